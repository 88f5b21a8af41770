package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestQuickstartSaysWhatItCannotDo runs the script with what it refuses before it builds anything.
func TestQuickstartSaysWhatItCannotDo(t *testing.T) {
	for name, c := range map[string]struct{ variable, says string }{
		"an unknown enforcer": {"ENFORCER=nobody", "it can be kuadrant or envoy-gateway"},
		"an unknown mode":     {"QUICKSTART_MODE=cloud", "it can be auto, local or kind"},
		"a missing program":   {"PATH=" + onlyIn(t, "bash", "dirname", "uname", "awk", "git"), "missing: go, make, unshare, ip, python3 with pip"},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(filepath.Join(root, "quickstart", "quickstart"))
			command.Env = append(os.Environ(), "QUICKSTART_MODE=local", "ENVOY_BIN=", c.variable)
			out, err := command.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			assert.Equal(t, 1, exit.ExitCode(), "%s", out)
			assert.Contains(t, string(out), c.says)
		})
	}
}

// onlyIn is a folder with these programs.
func onlyIn(t *testing.T, names ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range names {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(folder, name)))
	}
	return folder
}
