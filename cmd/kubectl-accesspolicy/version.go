package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"accesspolicy-operator/api/v1alpha1"
)

// version is set by the linker in a release; else the module's version is shown, if the build knows it.
var version = ""

func (a *app) versionCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is and which API it reads",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.stdout, "%s %s (%s, %s/%s)\nreads %s XAccessPolicy\n", name, buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, v1alpha1.GroupVersion)
			return err
		},
	}
}

func buildVersion() string {
	if version != "" {
		return version
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
