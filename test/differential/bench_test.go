package differential

import (
	"fmt"
	"testing"
	"time"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"github.com/stretchr/testify/require"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/test/judge"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// Each measurement of Authorino takes about this long.
const measure = time.Second

// BenchmarkDecision measures Authorino's own Check of one granted request, in one run, beside a constant predicate and
// beside one guarded evaluator per rule, the shape of the published proof of concept. The caller is known by a
// certificate, so no TokenReview is in the figures. Run it with -benchtime=1x: the judge counts by itself.
func BenchmarkDecision(b *testing.B) {
	client := startJudge(b)
	var constant judge.Measurement
	report := func(b *testing.B, m judge.Measurement) {
		b.Helper()
		b.ReportAllocs()
		for b.Loop() { // the work is done
		}
		require.True(b, m.Result.Allowed, "%+v", m.Result)
		b.ReportMetric(m.NsPerOp, "ns/op")
		b.ReportMetric(float64(m.AllocsPerOp), "allocs/op")
		b.ReportMetric(float64(m.BytesPerOp), "B/op")
		if constant.NsPerOp > 0 {
			b.ReportMetric(m.NsPerOp/constant.NsPerOp, "x-constant")
		}
	}
	b.Run("constant", func(b *testing.B) {
		constant = measureWorld(b, client, constantPolicy(b), 1)
		report(b, constant)
	})
	for _, rules := range []int{1, 10, 100, 1000, 3000, 10000} {
		b.Run(fmt.Sprintf("ours/rules=%d", rules), func(b *testing.B) {
			report(b, measureWorld(b, client, ourPolicies(b, rules), rules))
		})
	}
	for _, rules := range []int{1, 10, 100, 500} {
		b.Run(fmt.Sprintf("one-evaluator-per-rule/rules=%d", rules), func(b *testing.B) {
			report(b, measureWorld(b, client, perRulePolicy(b, rules), rules))
		})
	}
}

func agent(i int) string { return fmt.Sprintf("spiffe://cluster.local/ns/demo/sa/agent-%05d", i) }
func tool(i int) string  { return fmt.Sprintf("tool-%d", i%1000) }

// measureWorld measures the request that the last rule grants.
func measureWorld(b *testing.B, client *judge.Client, policies []*kuadrantv1.AuthPolicy, rules int) judge.Measurement {
	b.Helper()
	opts, err := requests.Settings{}.Options()
	require.NoError(b, err)
	gw := benchGateway()
	loaded, err := client.Load("bench", judge.World{Gateway: &gw, AuthPolicies: policies})
	require.NoError(b, err)
	require.True(b, loaded.Ready(), "%+v", loaded.AuthConfigs)
	w := requests.Request{Caller: requests.Caller{SPIFFE: agent(rules - 1)}, MCP: &requests.MCP{Method: "tools/call", Name: tool(rules - 1)}}.Wire(opts.Profile)
	m, err := client.Bench("bench", judge.Request{Shape: judge.ShapeEnvoy, Method: w.Method, Host: w.Host, Path: w.Path, Headers: w.Headers, Principal: w.Principal}, measure)
	require.NoError(b, err)
	return m
}

func benchGateway() gwv1.Gateway {
	var gw gwv1.Gateway
	gw.Namespace, gw.Name, gw.UID, gw.Spec.GatewayClassName = "demo", "prod", "11111111-1111-1111-1111-111111111111", "istio"
	gw.Spec.Listeners = []gwv1.Listener{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType}}
	return gw
}

// benchInput has so many rules, each for a caller of its own.
func benchInput(rules, tools, perPolicy int) translator.Input {
	in := translator.Input{Gateways: []gwv1.Gateway{benchGateway()}}
	for i := range rules {
		if i%perPolicy == 0 {
			var p v1alpha1.XAccessPolicy
			p.Namespace, p.Name, p.Spec.Action = "demo", fmt.Sprintf("policy-%05d", i/perPolicy), v1alpha1.ActionTypeAllow
			p.Spec.TargetRefs = []v1alpha1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: v1alpha1.LocalPolicyTargetReference{Group: gwv1.GroupName, Kind: "Gateway", Name: "prod"}}}
			in.Policies = append(in.Policies, translator.Policy{Object: p})
		}
		call := v1alpha1.MCPMethod{Name: v1alpha1.MCPMethodNameToolsCall}
		for k := range tools {
			call.Params = append(call.Params, v1alpha1.MCPMethodParam(tool(i+k)))
		}
		last := &in.Policies[len(in.Policies)-1].Object.Spec
		last.Rules = append(last.Rules, v1alpha1.AccessRule{Name: fmt.Sprintf("rule-%d", i%perPolicy),
			Source:        &v1alpha1.AccessRuleSource{Type: v1alpha1.AuthorizationSourceTypeSPIFFE, SPIFFE: new(v1alpha1.AuthorizationSourceSPIFFE(agent(i)))},
			Authorization: &v1alpha1.AuthorizationRule{Type: v1alpha1.AuthorizationRuleTypeInline, MCP: &v1alpha1.MCPAttributes{Methods: []v1alpha1.MCPMethod{call}}}})
	}
	return in
}

func ourPolicies(tb testing.TB, rules int) []*kuadrantv1.AuthPolicy {
	tb.Helper()
	opts, err := requests.Settings{}.Options()
	require.NoError(tb, err)
	result, err := translator.Translate(benchInput(rules, 1, 10), opts)
	require.NoError(tb, err)
	requireNoErrors(tb, result)
	return result.Gateways[0].Kuadrant.Objects
}

func requireNoErrors(tb testing.TB, result *translator.Result) {
	tb.Helper()
	for _, f := range result.Findings {
		require.NotEqual(tb, plan.Error, f.Severity, f.Message)
	}
}

// constantPolicy has our authentication and one predicate that is always true.
func constantPolicy(tb testing.TB) []*kuadrantv1.AuthPolicy {
	tb.Helper()
	policies := ourPolicies(tb, 1)
	var spec kuadrantv1.MergeableAuthorizationSpec
	spec.PatternMatching = &authorinov1beta3.PatternMatchingAuthorizationSpec{Patterns: predicate("true")}
	policies[0].Spec.Overrides.AuthScheme.Authorization = map[string]kuadrantv1.MergeableAuthorizationSpec{"constant": spec}
	return policies
}

// perRulePolicy has our authentication and, as the published proof of concept, one guarded evaluator per rule and a
// guarded fail-close.
func perRulePolicy(tb testing.TB, rules int) []*kuadrantv1.AuthPolicy {
	tb.Helper()
	policies := ourPolicies(tb, 1)
	all := map[string]kuadrantv1.MergeableAuthorizationSpec{}
	for i := range rules + 1 {
		var spec kuadrantv1.MergeableAuthorizationSpec
		spec.Priority = i
		spec.Conditions = predicate("size(auth.authorization) == 0")
		if i == rules {
			spec.Opa = &authorinov1beta3.OpaAuthorizationSpec{Rego: "allow = false"}
			all[kuadrant.KeyFailClose] = spec
			continue
		}
		spec.Conditions = append(spec.Conditions, predicate("auth.identity.principal == "+cel.Quote(agent(i)))...)
		spec.Conditions = append(spec.Conditions, predicate("request.headers['x-mcp-method'] == 'tools/call' && request.headers['x-mcp-toolname'] == "+cel.Quote(tool(i)))...)
		spec.Opa = &authorinov1beta3.OpaAuthorizationSpec{Rego: "allow = true"}
		all[fmt.Sprintf("policy-rule-%d", i)] = spec
	}
	policies[0].Spec.Overrides.AuthScheme.Authorization = all
	return policies
}

func predicate(text string) []authorinov1beta3.PatternExpressionOrRef {
	return []authorinov1beta3.PatternExpressionOrRef{{CelPredicate: authorinov1beta3.CelPredicate{Predicate: text}}}
}

// Twenty thousand grants (2,000 callers with ten tools each, in 400 policies) on one Gateway are accepted by Authorino and
// decided correctly.
func TestTwentyThousandGrantsInAuthorino(t *testing.T) {
	client := startJudge(t)
	opts, err := requests.Settings{}.Options()
	require.NoError(t, err)
	in := benchInput(2000, 10, 5)
	result, err := translator.Translate(in, opts)
	require.NoError(t, err)
	requireNoErrors(t, result)
	gw := &result.Gateways[0]
	loaded, err := client.Load("large", World(&in.Gateways[0], gw, in, opts, nil))
	require.NoError(t, err)
	require.True(t, loaded.Ready(), "%+v", loaded.AuthConfigs)
	g := newGenerator(t)
	var list []requests.Request
	for range 500 {
		caller := g.IntN(2000)
		list = append(list, requests.Request{Caller: requests.Caller{SPIFFE: agent(caller)}, MCP: &requests.MCP{Method: "tools/call", Name: tool(caller + g.IntN(20))}})
	}
	judged, err := Ask(client, "large", &in.Gateways[0], gw, opts, judge.ShapeEnvoy, list)
	require.NoError(t, err)
	allowed := 0
	for _, j := range judged {
		require.Empty(t, j.Disagreement(false), "%+v", j.Request)
		if j.Real.Allowed {
			allowed++
		}
	}
	require.InDelta(t, 250, allowed, 100)
	t.Logf("%d bytes, %d evaluators, %d of %d requests allowed", gw.Kuadrant.Bytes, len(gw.Kuadrant.Objects[0].Spec.Overrides.AuthScheme.Authorization)-1, allowed, len(list))
}
