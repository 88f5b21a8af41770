package config

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
)

// header is the line that names a sample's case.
var header = regexp.MustCompile(`(?m)^# Golden case: (translator/testdata/\S+)$`)

// sampleFiles lists the samples.
func sampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config/samples/*.yaml"))
	require.NoError(t, err)
	var samples []string
	for _, file := range files {
		if filepath.Base(file) != "kustomization.yaml" {
			samples = append(samples, file)
		}
	}
	require.GreaterOrEqual(t, len(samples), 4)
	return samples
}

// withoutEnvoyGateway leaves out what only Envoy Gateway needs beside the policies of a case.
func withoutEnvoyGateway(manifests []byte) []byte {
	documents := bytes.Split(manifests, []byte("\n---\n"))
	return bytes.Join(slices.DeleteFunc(documents, func(d []byte) bool { return bytes.Contains(d, []byte("kind: ClientTrafficPolicy")) }), []byte("\n---\n"))
}

// TestSamplesAreGoldenCases compares everything but what the generator says it
// changes.
func TestSamplesAreGoldenCases(t *testing.T) {
	for _, file := range sampleFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			found := header.FindSubmatch(text)
			require.NotNil(t, found, "no line names the case")
			golden, err := os.ReadFile(filepath.Join(root, string(found[1]), "in.yaml"))
			require.NoError(t, err)
			for _, name := range []string{"status.yaml", "kuadrant.yaml", "requests.yaml"} {
				assert.FileExists(t, filepath.Join(root, string(found[1]), name), "the sample's effect is not shown")
			}
			sample := objects(t, text)
			assert.Empty(t, cmp.Diff(reduced(objects(t, withoutEnvoyGateway(golden))), reduced(objects(t, text))), "golden case (-) and sample (+); run make samples")
			for _, object := range sample {
				assert.Empty(t, object.GetUID(), "a server refuses to apply an object with a uid that it does not have")
				assert.Equal(t, metav1.Time{}, object.GetCreationTimestamp())
			}
			assert.NotEmpty(t, only[*v1alpha1.XAccessPolicy](sample))
		})
	}
}

// reduced leaves out what the API server sets, names of policies, which differ
// where two samples would have the same, and Gateways that say nothing to us.
func reduced(list []client.Object) []client.Object {
	var kept []client.Object
	for _, object := range list {
		if _, ok := object.(*gwv1.Gateway); ok && len(object.GetAnnotations()) == 0 {
			continue
		}
		object.SetUID("")
		object.SetCreationTimestamp(metav1.Time{})
		if _, ok := object.(*v1alpha1.XAccessPolicy); ok {
			object.SetName("")
		}
		kept = append(kept, object)
	}
	return kept
}

func TestTheReadmeNamesEverySample(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "config/samples/README.md"))
	require.NoError(t, err)
	for _, file := range sampleFiles(t) {
		name := filepath.Base(file)
		assert.Contains(t, string(readme), "["+name+"]("+name+")")
	}
}
