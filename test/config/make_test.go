package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
)

// stub writes a program that keeps its arguments and its input, and returns its
// path and how to read them.
func stub(t *testing.T, name string) (path string, calls func() (arguments []string, input [][]byte)) {
	t.Helper()
	folder := t.TempDir()
	path = filepath.Join(folder, name)
	script := "#!/bin/sh\nn=$(ls " + folder + " | grep -c input)\necho \"$*\" >>" + folder + "/arguments\nif [ \"$1\" = info ]; then exit 0; fi\ncat >" + folder + "/input.$n\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return path, func() ([]string, [][]byte) {
		text, err := os.ReadFile(filepath.Join(folder, "arguments"))
		require.NoError(t, err)
		files, err := filepath.Glob(filepath.Join(folder, "input.*"))
		require.NoError(t, err)
		slices.Sort(files)
		var inputs [][]byte
		for _, file := range files {
			input, err := os.ReadFile(file)
			require.NoError(t, err)
			inputs = append(inputs, input)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n"), inputs
	}
}

// makeTarget runs make with variables. The flags of a make that runs the tests are
// not for this one.
func makeTarget(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := exec.Command("make", append([]string{"-C", root, "--no-print-directory"}, arguments...)...)
	command.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "MAKE") || strings.HasPrefix(entry, "MFLAGS")
	})
	out, err := command.CombinedOutput()
	return string(out), err
}

func keys(t *testing.T, stream []byte) []string {
	t.Helper()
	var found []string
	for _, object := range objects(t, stream) {
		found = append(found, key(object))
	}
	return found
}

func TestMakeInstall(t *testing.T) {
	kubectl, calls := stub(t, "kubectl")
	out, err := makeTarget(t, "install", "KUBECTL="+kubectl)
	require.NoError(t, err, out)
	arguments, inputs := calls()
	assert.Equal(t, []string{"apply --server-side -f -"}, arguments)
	assert.Equal(t, []string{"CustomResourceDefinition//xaccesspolicies.agentic.networking.x-k8s.io"}, keys(t, inputs[0]))
}

func TestMakeDeploy(t *testing.T) {
	kubectl, calls := stub(t, "kubectl")
	const other = "registry.example.com:5000/team/operator@sha256:0123"
	out, err := makeTarget(t, "deploy", "KUBECTL="+kubectl, "IMAGE="+other)
	require.NoError(t, err, out)
	arguments, inputs := calls()
	assert.Equal(t, []string{"apply --server-side -f -"}, arguments)
	deployed := objects(t, inputs[0])
	assert.Equal(t, other, one[*appsv1.Deployment](t, deployed).Spec.Template.Spec.Containers[0].Image)
	assert.ElementsMatch(t, keys(t, render(t, "default")), keys(t, inputs[0]))
}

// TestMakeUndeploy: everything that deploy installs goes, but for the CRD, which
// only uninstall removes, and last.
func TestMakeUndeploy(t *testing.T) {
	crd := keys(t, render(t, "crd"))
	installed := slices.DeleteFunc(keys(t, render(t, "default")), func(key string) bool { return slices.Contains(crd, key) })

	kubectl, calls := stub(t, "kubectl")
	out, err := makeTarget(t, "undeploy", "KUBECTL="+kubectl)
	require.NoError(t, err, out)
	arguments, inputs := calls()
	assert.Equal(t, []string{"delete --ignore-not-found -f -"}, arguments)
	assert.ElementsMatch(t, installed, keys(t, inputs[0]))
	for _, kind := range []string{"authpolicies.kuadrant.io", "securitypolicies.gateway.envoyproxy.io"} {
		assert.Contains(t, out, kind+" -A -l app.kubernetes.io/managed-by=accesspolicy-operator", "does not say that these stay")
	}

	kubectl, calls = stub(t, "kubectl")
	out, err = makeTarget(t, "uninstall", "KUBECTL="+kubectl)
	require.NoError(t, err, out)
	arguments, inputs = calls()
	require.Len(t, arguments, 2)
	assert.ElementsMatch(t, installed, keys(t, inputs[0]))
	assert.Equal(t, crd, keys(t, inputs[1]))
}

func TestMakeImage(t *testing.T) {
	engine, calls := stub(t, "engine")
	t.Setenv("CONTAINER_ENGINE", engine)
	t.Setenv("VERSION", "v1.2.3")
	out, err := makeTarget(t, "image", "IMAGE=some/name:tag")
	require.NoError(t, err, out)
	arguments, _ := calls()
	assert.Equal(t, []string{"build --file Containerfile --tag some/name:tag --build-arg VERSION=v1.2.3 ."}, arguments)
}

// TestMakeImageChoosesWhatAnswers: podman where docker has no daemon, and a clear
// word where there is neither.
func TestMakeImageChoosesWhatAnswers(t *testing.T) {
	podman, calls := stub(t, "podman")
	folder := filepath.Dir(podman)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "docker"), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	t.Setenv("CONTAINER_ENGINE", "")
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := makeTarget(t, "image")
	require.NoError(t, err, out)
	arguments, _ := calls()
	require.Len(t, arguments, 2)
	assert.Contains(t, arguments[1], "build --file Containerfile --tag "+image)

	require.NoError(t, os.WriteFile(podman, []byte("#!/bin/sh\nexit 1\n"), 0o700))
	out, err = makeTarget(t, "image")
	require.Error(t, err)
	assert.Contains(t, out, "docker or podman")
}
