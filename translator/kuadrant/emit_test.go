package kuadrant

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	authorinocel "github.com/kuadrant/authorino/pkg/expressions/cel"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
)

func testGateway() *gwv1.Gateway {
	gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod", UID: "uid-1"}}
	gw.Spec.Listeners = []gwv1.Listener{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType}}
	return gw
}

// foreign is an AuthPolicy of somebody else on the test Gateway.
func foreign(name string, overrides bool) kuadrantv1.AuthPolicy {
	ap := kuadrantv1.AuthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1, 0))}}
	ap.Spec.TargetRef.Kind, ap.Spec.TargetRef.Name = "Gateway", gwv1alpha2.ObjectName("prod")
	if overrides {
		ap.Spec.Overrides = &kuadrantv1.MergeableAuthPolicySpec{}
	}
	return ap
}

func emitWith(t *testing.T, gw *gwv1.Gateway, existing ...kuadrantv1.AuthPolicy) *Output {
	t.Helper()
	profile, _ := plan.ProfileNamed(plan.ProfileMCPGateway)
	p := plan.Plan{Profile: profile, Rules: []plan.Rule{{Source: plan.Source{Any: true}}}}
	p.Listener = "http"
	out, err := Emit(Input{Gateway: gw, Listeners: []plan.Plan{p}, Baseline: &plan.Plan{Profile: profile}, Wide: p, Existing: existing}, Options{Audiences: []string{"a"}})
	require.NoError(t, err)
	return out
}

func reasons(out *Output) []string {
	var list []string
	for _, f := range out.Findings {
		list = append(list, f.Reason)
	}
	return list
}

// An older override stays in force whatever is written, with or without the annotation, and that is said.
func TestForeignOverridesAreReported(t *testing.T) {
	gw := testGateway()
	require.ElementsMatch(t, []string{v1alpha1.PolicyReasonWouldDisplace, v1alpha1.PolicyReasonOverridden}, reasons(emitWith(t, gw, foreign("theirs", true))))
	require.Equal(t, []string{v1alpha1.PolicyReasonWouldDisplace}, reasons(emitWith(t, gw, foreign("theirs", false))))
	gw.Annotations = map[string]string{AnnotationReplace: "true"}
	require.Equal(t, []string{v1alpha1.PolicyReasonOverridden}, reasons(emitWith(t, gw, foreign("theirs", true))))
	require.Empty(t, reasons(emitWith(t, gw, foreign("theirs", false))))
}

// Label and owner can be written by anybody; the field manager that an API server recorded cannot be left out.
func TestOursNeedsTheFieldManager(t *testing.T) {
	gw, ap := testGateway(), foreign("prod-auth", false)
	ap.Labels = map[string]string{owned.LabelManagedBy: owned.ManagedBy}
	ap.OwnerReferences = []metav1.OwnerReference{{Kind: "Gateway", UID: "uid-1"}}
	ap.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: owned.ManagedBy}}
	require.Empty(t, reasons(emitWith(t, gw, ap)))
	ap.ManagedFields[0].Manager = "kubectl"
	out := emitWith(t, gw, ap)
	require.ElementsMatch(t, []string{v1alpha1.PolicyReasonWouldDisplace, "NameTaken"}, reasons(out))
	require.NotEqual(t, "prod-auth", out.Objects[0].Name)
}

func TestNamesAreUniqueAndFit(t *testing.T) {
	gw := testGateway()
	first := emitWith(t, gw, foreign("prod-auth", false)).Objects[0].Name
	second := emitWith(t, gw, foreign("prod-auth", false), foreign(first, false)).Objects[0].Name
	require.NotContains(t, []string{"prod-auth", first}, second)
	gw.Name = strings.Repeat("g", 253)
	require.LessOrEqual(t, len(emitWith(t, gw).Objects[0].Name), owned.MaxName)
}

// The JWT form has not been run against an issuer; its expressions are evaluated here as Authorino would.
func TestPrincipalsOfAJWT(t *testing.T) {
	opts := Options{Verify: VerifyJWT, Issuer: "https://issuer.example", Audiences: []string{"mcp-gateway", "x'y"}}
	expression, err := authorinocel.NewExpression(string(opts.serviceAccount(false).Overrides[fieldPrincipals].Expression))
	require.NoError(t, err)
	const sub = "system:serviceaccount:demo:reader"
	for name, c := range map[string]struct {
		claims map[string]any
		want   []any
	}{
		"right":            {map[string]any{"sub": sub, "aud": []string{"other", "mcp-gateway"}}, []any{sub}},
		"quoted audience":  {map[string]any{"sub": sub, "aud": []string{"x'y"}}, []any{sub}},
		"another audience": {map[string]any{"sub": sub, "aud": []string{"api"}}, []any{}},
		"audience as text": {map[string]any{"sub": sub, "aud": "mcp-gateway"}, []any{}},
		"no audience":      {map[string]any{"sub": sub}, []any{}},
		"no subject":       {map[string]any{"aud": []string{"mcp-gateway"}}, []any{}},
		"a user":           {map[string]any{"sub": "alice", "aud": []string{"mcp-gateway"}}, []any{}},
		"with a blank":     {map[string]any{"sub": sub + " x", "aud": []string{"mcp-gateway"}}, []any{}},
	} {
		text, err := json.Marshal(map[string]any{"auth": map[string]any{"identity": c.claims}})
		require.NoError(t, err)
		got, err := expression.ResolveFor(string(text))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}
