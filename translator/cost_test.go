package translator_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
)

// What one author writes must not cost everybody on the Gateway: each of these is refused, and the neighbour's policy stays
// in force.
func TestCostlyPoliciesAreRefused(t *testing.T) {
	manyRegexes := func(p *v1alpha1.XAccessPolicy) {
		kind, value := v1alpha1.PathMatchRegularExpression, "/"+strings.Repeat("[a-f]", 200)
		for i := range p.Spec.Rules {
			for range 10 {
				p.Spec.Rules[i].Authorization.Paths = append(p.Spec.Rules[i].Authorization.Paths, v1alpha1.HTTPPathMatch{Type: &kind, Value: &value})
			}
		}
	}
	expression := func(text string) func(*v1alpha1.XAccessPolicy) {
		return func(p *v1alpha1.XAccessPolicy) {
			p.Spec.Rules[0].Authorization = &v1alpha1.AuthorizationRule{Type: v1alpha1.AuthorizationRuleTypeCEL, CEL: &v1alpha1.AccessPolicyCELRule{Expression: text}}
		}
	}
	for name, change := range map[string]func(*v1alpha1.XAccessPolicy){
		"many regular expressions":      manyRegexes,
		"one with repetitions":          expression("request.mcp.method.matches('" + strings.Repeat(".{0,999}", 3) + "')"),
		"one that the client chooses":   expression("request.mcp.method.matches(request.headers['x-a'])"),
		"text that grows in a loop":     expression("request.headers['x-a'].split('').exists(c, (request.headers['x-a'] + c) == 'a')"),
		"nested lists":                  expression(strings.Repeat("[", 98) + "request.headers['x']" + strings.Repeat("]", 98) + " != []"),
		"nested conversions":            expression(strings.Repeat("string(", 98) + "request.headers['x']" + strings.Repeat(")", 98) + " != ''"),
		"a field of newer CEL versions": expression("auth.identity.`a-b` == 'x'"),
	} {
		in := scaleInput(20, 1, 10)
		change(&in.Policies[1].Object)
		result, err := translator.Translate(in, scaleOptions(t))
		require.NoError(t, err, name)
		require.True(t, result.Verdicts[0].Accepted, name)
		require.False(t, result.Verdicts[1].Accepted, name)
		require.True(t, result.Gateways[0].Kuadrant.Expressed[0].Decide(request("demo/agent-00003", "tool-3")).Allowed, name)
		require.False(t, result.Gateways[0].Kuadrant.Expressed[0].Decide(request("demo/agent-00012", "tool-12")).Allowed, name)
	}
}
