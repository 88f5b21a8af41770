package config

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scripts are the shell scripts of the checkout.
func scripts(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, name := range strings.Split(strings.TrimSuffix(printed(t, ".", "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted and still tracked
			continue
		}
		require.NoError(t, err)
		first, _, _ := bytes.Cut(text, []byte("\n"))
		if bytes.HasPrefix(first, []byte("#!")) && (bytes.HasSuffix(first, []byte("bash")) || bytes.HasSuffix(first, []byte("sh"))) {
			found = append(found, name)
		}
	}
	require.Contains(t, found, kindFolder+"/quickstart")
	require.Contains(t, found, "hack/verify.sh")
	return found
}

// inCheckout runs a program at the top of the checkout.
func inCheckout(name string, arguments ...string) ([]byte, error) {
	command := exec.Command(name, arguments...)
	command.Dir = root
	return command.CombinedOutput()
}

func TestScriptsParse(t *testing.T) {
	for _, script := range scripts(t) {
		out, err := inCheckout("bash", "-n", script)
		assert.NoError(t, err, "%s: %s", script, out)
	}
}

// TestShellCheck finds no fault with any script.
func TestShellCheck(t *testing.T) {
	program, err := exec.LookPath("shellcheck")
	if err != nil {
		path, err := inCheckout("hack/tools/tool", "shellcheck")
		if err != nil {
			t.Skipf("there is no shellcheck, and none to be had for this machine: %s", path)
		}
		// Before the path there are notes, when it has just been fetched.
		lines := strings.Fields(string(path))
		program = lines[len(lines)-1]
	}
	out, err := inCheckout(program, append([]string{"--external-sources"}, scripts(t)...)...)
	assert.NoError(t, err, "%s", out)
}
