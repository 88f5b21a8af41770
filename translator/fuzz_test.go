package translator_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	authorinocel "github.com/kuadrant/authorino/pkg/expressions/cel"
	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/plan"
)

// FuzzTranslate reads arbitrary manifests. Nothing panics, every Gateway that a policy targets is closed or has rules of
// accepted policies only, every generated expression compiles in Authorino's CEL, and the order of policies is no input.
func FuzzTranslate(f *testing.F) {
	for _, dir := range goldenFolders(f) {
		text, err := os.ReadFile(filepath.Join(dir, "in.yaml"))
		require.NoError(f, err)
		f.Add(text)
	}
	opts := scaleOptions(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var set manifest.Set
		if set.Add("in.yaml", data) != nil {
			return
		}
		set.AssumeGateways()
		in := set.Input()
		result, err := translator.Translate(in, opts)
		require.NoError(t, err)
		for _, gw := range result.Gateways {
			for i := range gw.Plans {
				onlyAccepted(t, result, &gw.Plans[i])
			}
			for _, ap := range gw.Kuadrant.Objects {
				for key, spec := range ap.Spec.Proper().AuthScheme.Authorization {
					for _, p := range append(slices.Clone(spec.Conditions), spec.PatternMatching.Patterns...) {
						_, err := authorinocel.NewPredicate(p.Predicate)
						require.NoError(t, err, key)
					}
				}
			}
		}
		slices.Reverse(in.Policies)
		again, err := translator.Translate(in, opts)
		require.NoError(t, err)
		require.Equal(t, string(objects(t, result)), string(objects(t, again)))
		require.Equal(t, string(status(t, result, result)), string(status(t, again, again)))
	})
}

func onlyAccepted(t *testing.T, result *translator.Result, p *plan.Plan) {
	t.Helper()
	wide := slices.ContainsFunc(result.Verdicts, func(v translator.Verdict) bool { return v.Gateway == p.Gateway && v.Section == "" })
	require.False(t, wide && p.Open, "a policy targets the whole Gateway, and %s is open", p.Where())
	for _, r := range p.Rules {
		require.True(t, slices.ContainsFunc(result.Verdicts, func(v translator.Verdict) bool {
			return v.Policy == r.Origin.Policy && v.Gateway == p.Gateway && v.Accepted
		}), "%s grants and was not accepted", r.Origin)
	}
}
