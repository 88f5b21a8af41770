package manifest_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/manifest"
)

// FuzzAdd: no text makes the reader panic, and a policy without problems means the same after it was written and read
// again.
func FuzzAdd(f *testing.F) {
	f.Add([]byte(policyText))
	f.Add([]byte(policyText + "---\n" + gatewayText + "---\n" + authPolicyText))
	f.Add([]byte(policyText + "    authorization: {type: Inline, ports: [80], paths: [{value: /a}], mcp: {methods: [{name: tools/call, params: [add]}]}}\n"))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{<<: &a {kind: b}, c: *a}]\n"))
	f.Add([]byte(`{"apiVersion":"agentic.networking.x-k8s.io/v1alpha1","kind":"XAccessPolicy","metadata":{"name":"p"},"spec":{"rules":[],"action":"Allow"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var set manifest.Set
		_ = set.Add("in", data)
		set.AssumeGateways()
		for _, p := range set.Policies {
			if len(p.Problems) > 0 {
				continue
			}
			again := v1alpha1.XAccessPolicy{TypeMeta: p.Object.TypeMeta, Spec: p.Object.Spec}
			again.Name, again.Namespace = p.Object.Name, p.Object.Namespace
			raw, err := json.Marshal(again)
			require.NoError(t, err)
			// A policy without targets or rules reads back the same as well; null targets are the writer's, not the user's.
			read := manifest.DecodePolicy(raw)
			if p.Object.Spec.TargetRefs != nil {
				require.Empty(t, read.Problems, "%s", raw)
			}
			require.True(t, equality.Semantic.DeepEqual(p.Object.Spec, read.Object.Spec), "%s", raw)
			require.Equal(t, p.Object.Spec.Rules == nil, read.Object.Spec.Rules == nil)
		}
	})
}
