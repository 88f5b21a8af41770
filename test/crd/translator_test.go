package crd

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/translator"
	reader "accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/requests"
)

// What the CRD refuses, the translator must not take either: input does not always come through an API server that knows
// this CRD. The manifests are made from one that the translator takes, each with one fault; TestVerdicts shows that an
// API server refuses such faults.
func TestTranslatorTakesNothingThatTheCRDRefuses(t *testing.T) {
	valid := readManifests(t, validFolder)
	base := valid[slices.IndexFunc(valid, func(m manifest) bool { return m.name == validFolder+"/everything-the-translator-takes" })]
	require.True(t, taken(t, base), "the translator has to take the base, or the faults prove nothing")

	facets := readCRD(t, oursFile).schema(t)
	refused := 0

	// The generator makes its faults in the first rule.
	for range base.object["spec"].(map[string]any)["rules"].([]any) {
		refused += checkFaults(t, newGenerator(t, facets, base.object), markers(t, facets))
		base.object = firstRuleLast(base.object)
	}

	require.Greater(t, refused, 150)
	t.Logf("%d faults that the CRD refuses", refused)
}

func checkFaults(t *testing.T, g *generator, all []facet) int {
	t.Helper()

	refused := 0

	for _, f := range all {
		if strings.HasPrefix(f.id(), "status") || strings.HasPrefix(f.id(), "spec.externalAuth") || !g.has(f) {
			continue // the first two grant nothing
		}

		for _, m := range g.generate(f) {
			if m.trips == "" {
				continue
			}

			refused++

			if taken(t, m) {
				t.Errorf("%s: the CRD refuses it for %q, the translator accepts it", m.name, m.trips)
			}
		}
	}

	return refused
}

func firstRuleLast(object map[string]any) map[string]any {
	out := clone(object)
	spec := out["spec"].(map[string]any)
	rules := spec["rules"].([]any)
	spec["rules"] = slices.Concat(rules[1:], rules[:1])

	return out
}

// taken tells whether the translator accepts a policy on any of its targets.
func taken(t *testing.T, m manifest) bool {
	t.Helper()

	opts, err := requests.Settings{}.Options()
	require.NoError(t, err)

	raw, err := json.Marshal(m.object)
	require.NoError(t, err)

	set := reader.Set{Policies: []translator.Policy{reader.DecodePolicy(raw)}}
	set.AssumeGateways()

	result, err := translator.Translate(set.Input(), opts)
	require.NoError(t, err)

	return slices.ContainsFunc(result.Verdicts, func(v translator.Verdict) bool { return v.Accepted })
}

// TestGoldenAuthPoliciesAreValid shows every AuthPolicy of the golden cases to an API server with Kuadrant's own CRD,
// under strict validation.
func TestGoldenAuthPoliciesAreValid(t *testing.T) {
	s := startServer(t, authPolicyCRD(t))
	resource := schema.GroupVersionResource{Group: "kuadrant.io", Version: "v1", Resource: "authpolicies"}
	shown := 0

	require.NoError(t, filepath.WalkDir("../../translator/testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "kuadrant.yaml" {
			return err
		}

		text, err := os.ReadFile(path)
		require.NoError(t, err)

		for _, document := range strings.Split(string(text), "\n---\n") {
			var object map[string]any

			require.NoError(t, yaml.Unmarshal([]byte(document), &object), path)

			if object == nil {
				continue
			}

			u := &unstructured.Unstructured{Object: object}
			u.SetNamespace(testNamespace)
			shown++

			_, err := s.client.Resource(resource).Namespace(testNamespace).Create(t.Context(), u, metav1.CreateOptions{
				DryRun:          []string{metav1.DryRunAll},
				FieldValidation: metav1.FieldValidationStrict,
			})
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}

		return nil
	}))
	require.Greater(t, shown, 40)
	t.Logf("%d AuthPolicies accepted by Kuadrant's CRD", shown)
}

// authPolicyCRD reads the CRD from the module whose types the translator writes.
func authPolicyCRD(t *testing.T) crdDocument {
	t.Helper()

	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kuadrant/kuadrant-operator").Output()
	require.NoError(t, err)

	return readCRD(t, filepath.Join(strings.TrimSpace(string(dir)), "config/crd/bases/kuadrant.io_authpolicies.yaml"))
}

// has tells whether the base has the path of a marker.
func (g *generator) has(f facet) bool {
	return slices.ContainsFunc(g.bases, func(base map[string]any) bool {
		_, found := edit(clone[any](base), steps(f.path), func(v any) any { return v })

		return found
	})
}
