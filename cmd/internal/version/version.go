// Package version says which build a binary is.
package version

import "runtime/debug"

// linked is set by the linker in a release (-X accesspolicy-operator/cmd/internal/version.linked=v1.2.3).
var linked = ""

// Build returns the version that was linked in, else the commit that the build recorded, else the module's version.
func Build() string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
