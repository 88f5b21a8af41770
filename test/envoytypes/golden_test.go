package envoytypes

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	egv1a1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	mirror "accesspolicy-operator/api/envoygateway/v1alpha1"
)

const goldenFiles = "../../translator/testdata"

// TestGoldenPoliciesAreEnvoyGateways decodes every golden SecurityPolicy strictly with Envoy Gateway's own types and encodes it
// again: nothing is unknown, and nothing is lost or changed. The mirror is held to the same.
func TestGoldenPoliciesAreEnvoyGateways(t *testing.T) {
	policies := 0
	require.NoError(t, filepath.WalkDir(goldenFiles, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "envoygateway.yaml" {
			return err
		}
		for _, document := range securityPolicies(t, path) {
			policies++
			assert.NoError(t, roundTrips[egv1a1.SecurityPolicy](document), path)
			assert.NoError(t, roundTrips[mirror.SecurityPolicy](document), "the mirror: %s", path)
		}
		return nil
	}))
	require.NotZero(t, policies)
	t.Logf("%d SecurityPolicies", policies)
}

// TestRoundTripFindsFaults has the judge find what it is for.
func TestRoundTripFindsFaults(t *testing.T) {
	for name, document := range map[string]string{
		"unknown field":     `{"kind":"SecurityPolicy","spec":{"authorization":{"defaultAction":"Deny","rulez":[]}}}`,
		"name in any case":  `{"kind":"SecurityPolicy","spec":{"Authorization":{"defaultAction":"Deny"}}}`,
		"field given twice": `{"kind":"SecurityPolicy","spec":{"jwt":{"failOpen":true,"failOpen":false,"providers":[{"name":"a"}]}}}`,
		"other type":        `{"kind":"SecurityPolicy","spec":{"jwt":{"failOpen":"true","providers":[{"name":"a"}]}}}`,
		"lost on the way":   `{"kind":"SecurityPolicy","spec":{"jwt":{"optional":null,"providers":[{"name":"a"}]}}}`,
	} {
		assert.Error(t, roundTrips[egv1a1.SecurityPolicy]([]byte(document)), name)
	}
}

// securityPolicies are the SecurityPolicies of a golden file as JSON; the AuthConfigs that stand beside some are Authorino's.
func securityPolicies(t *testing.T, path string) [][]byte {
	t.Helper()
	var out [][]byte
	for _, document := range documents(t, path) {
		var object struct{ Kind string }
		require.NoError(t, json.Unmarshal(document, &object), path)
		if object.Kind == mirror.KindSecurityPolicy {
			out = append(out, document)
		}
	}
	return out
}

// documents are the objects of a file as JSON.
func documents(t *testing.T, path string) [][]byte {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	var out [][]byte
	for decoder := utilyaml.NewDocumentDecoder(file); ; {
		// Big enough for any of them.
		document := make([]byte, 1<<20)
		n, err := decoder.Read(document)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err, path)
		text, err := yaml.YAMLToJSONStrict(document[:n])
		require.NoError(t, err, path)
		if !bytes.Equal(text, []byte("null")) {
			out = append(out, text)
		}
	}
}

// roundTrips returns nil if a document is a T and nothing but a T.
func roundTrips[T any](document []byte) error {
	var typed T
	strict, err := kjson.UnmarshalStrict(document, &typed)
	if err = errors.Join(append(strict, err)...); err != nil {
		return err
	}
	encoded, err := json.Marshal(typed)
	if err != nil {
		return err
	}
	var want, got map[string]any
	if err := errors.Join(json.Unmarshal(document, &want), json.Unmarshal(encoded, &got)); err != nil {
		return err
	}
	// Envoy Gateway's type always writes a status.
	if _, ours := want["status"]; !ours {
		delete(got, "status")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return errors.New("changed by decoding (-) and encoding (+):\n" + diff)
	}
	return nil
}
