package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
)

const (
	// root is the top of the checkout; go test runs in the folder of the package.
	root = "../.."

	kustomizeVariable = "ACCESSPOLICY_KUSTOMIZE"

	namespace = "accesspolicy-system"
	operator  = "accesspolicy-operator"
)

// kustomize is the path of the binary: what make set, or the one of the checkout.
var kustomize = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(kustomizeVariable); path != "" {
		return path, nil
	}
	out, err := exec.Command(filepath.Join(root, "hack/tools/tool"), "kustomize").Output()
	if err != nil {
		return "", fmt.Errorf("build kustomize; set %s where that cannot be done: %w", kustomizeVariable, err)
	}
	return strings.TrimSpace(string(out)), nil
})

// render returns what a kustomization below config/ builds.
func render(t *testing.T, folder string) []byte {
	t.Helper()
	return renderFolder(t, filepath.Join(root, "config", folder))
}

func renderFolder(t *testing.T, folder string) []byte {
	t.Helper()
	binary, err := kustomize()
	require.NoError(t, err)
	var stderr bytes.Buffer
	command := exec.Command(binary, "build", folder)
	command.Stderr = &stderr
	out, err := command.Output()
	require.NoError(t, err, "kustomize build %s: %s", folder, &stderr)
	require.Empty(t, stderr.String(), "kustomize build %s warns", folder)
	return out
}

// renderWith returns config/default with a component, as a user's overlay has it.
func renderWith(t *testing.T, component string) []byte {
	t.Helper()
	overlay, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	config, err := filepath.Abs(filepath.Join(root, "config"))
	require.NoError(t, err)
	config, err = filepath.EvalSymlinks(config)
	require.NoError(t, err)
	// kustomize takes no absolute paths.
	config, err = filepath.Rel(overlay, config)
	require.NoError(t, err)
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%q]\ncomponents: [%q]\n",
		filepath.Join(config, "default"), filepath.Join(config, component))
	require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600))
	return renderFolder(t, overlay)
}

// kustomizations lists the folders below config/ that have one: those that stand
// alone, and components.
func kustomizations(t *testing.T) (alone, components []string) {
	t.Helper()
	base := filepath.Join(root, "config")
	require.NoError(t, filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(base, filepath.Dir(path))
		if bytes.Contains(text, []byte("\nkind: Component\n")) {
			components = append(components, folder)
		} else {
			alone = append(alone, folder)
		}
		return err
	}))
	return alone, components
}

// everything is what each kustomization builds, by its folder below config/.
func everything(t *testing.T) map[string][]byte {
	t.Helper()
	alone, components := kustomizations(t)
	require.Subset(t, alone, []string{"crd", "rbac", "manager", "default", "overlays/kuadrant", "samples"})
	require.Contains(t, components, "components/two-replicas")
	built := map[string][]byte{}
	for _, folder := range alone {
		built[folder] = render(t, folder)
	}
	for _, folder := range components {
		built[folder] = renderWith(t, folder)
	}
	return built
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, gwv1.Install, v1alpha1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}()

// documents splits a stream of YAML documents.
func documents(t *testing.T, stream []byte) [][]byte {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	var found [][]byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		// Comments before the first document are a document, too.
		if object, err := utilyaml.ToJSON(document); err != nil || !bytes.Equal(object, []byte("null")) {
			require.NoError(t, err)
			found = append(found, document)
		}
	}
}

// objects decodes strictly: an unknown field, a field that stands twice or a kind
// that is not known fails the test.
func objects(t *testing.T, stream []byte) []client.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var found []client.Object
	for _, document := range documents(t, stream) {
		decoded, _, err := decoder.Decode(document, nil, nil)
		require.NoError(t, err, "%s", document)
		object, ok := decoded.(client.Object)
		require.True(t, ok, "%T", decoded)
		found = append(found, object)
	}
	require.NotEmpty(t, found)
	return found
}

// only returns the objects of one type.
func only[T client.Object](all []client.Object) []T {
	var found []T
	for _, object := range all {
		if typed, ok := object.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// one returns the object of a type of which there is one.
func one[T client.Object](t *testing.T, all []client.Object) T {
	t.Helper()
	found := only[T](all)
	require.Len(t, found, 1)
	return found[0]
}
