package translator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
)

// A rule that alone is too large for an expression that others share costs its own policy, and nobody else's.
func TestOneOversizedRuleDropsItsPolicyOnly(t *testing.T) {
	in := scaleInput(20, 1, 10)
	in.Policies[1].Object.Spec.Rules[3].Authorization.Headers = nil
	for i := range 10 {
		in.Policies[1].Object.Spec.Rules[3].Authorization.Headers = append(in.Policies[1].Object.Spec.Rules[3].Authorization.Headers,
			v1alpha1.HTTPHeaderMatch{Name: v1alpha1.HTTPHeaderName(fmt.Sprintf("x-%d", i)), Value: strings.Repeat("\U0001f600", 4096)})
	}
	result, err := translator.Translate(in, scaleOptions(t))
	require.NoError(t, err)
	out := result.Gateways[0].Kuadrant
	require.Len(t, out.Findings, 1)
	require.Equal(t, v1alpha1.PolicyReasonTooLarge, out.Findings[0].Reason)
	require.Equal(t, "demo/policy-00001/rule-3", out.Findings[0].Origin.String())
	require.True(t, out.Expressed[0].Decide(request("demo/agent-00003", "tool-3")).Allowed)
	require.False(t, out.Expressed[0].Decide(request("demo/agent-00012", "tool-12")).Allowed, "a policy is in force whole or not at all")
	require.Equal(t, []string{v1alpha1.PolicyReasonPending, v1alpha1.PolicyReasonTooLarge}, []string{result.Verdicts[0].Programmed, result.Verdicts[1].Programmed})
}

// What does not fit the object closes the Gateway, with the figure.
func TestAnOversizedObjectClosesTheGateway(t *testing.T) {
	result, err := translator.Translate(scaleInput(12000, 10, 10), scaleOptions(t))
	require.NoError(t, err)
	out := result.Gateways[0].Kuadrant
	require.Len(t, out.Findings, 1)
	require.Equal(t, v1alpha1.PolicyReasonTooLarge, out.Findings[0].Reason)
	require.Contains(t, out.Findings[0].Message, fmt.Sprintf("%d fit", kuadrant.MaxObject))
	require.Len(t, out.Objects, 1)
	require.Len(t, out.Objects[0].Spec.Overrides.AuthScheme.Authorization, 1, "fail-close stays")
	require.Empty(t, out.Expressed[0].Rules)
	for _, v := range result.Verdicts {
		require.True(t, v.Accepted)
		require.Equal(t, v1alpha1.PolicyReasonTooLarge, v.Programmed)
	}
}

// Configuration that cannot be used is an error, not a wide policy.
func TestOptionsAreChecked(t *testing.T) {
	opts := scaleOptions(t)
	for name, change := range map[string]func(*translator.Options){
		"no audience":         func(o *translator.Options) { o.Kuadrant.Audiences = nil },
		"an empty audience":   func(o *translator.Options) { o.Kuadrant.Audiences = []string{""} },
		"an unknown strategy": func(o *translator.Options) { o.Kuadrant.Strategy = "none" },
		"jwt without issuer":  func(o *translator.Options) { o.Kuadrant.Verify = kuadrant.VerifyJWT },
		"unknown SPIFFE":      func(o *translator.Options) { o.Kuadrant.SPIFFEFrom = "header" },
		"a bad trust domain":  func(o *translator.Options) { o.TrustDomain = "Cluster.Local" },
		"no profile":          func(o *translator.Options) { o.Profile = plan.Profile{} },
	} {
		changed := opts
		change(&changed)
		_, err := translator.Translate(scaleInput(1, 1, 1), changed)
		require.Error(t, err, name)
	}
}
