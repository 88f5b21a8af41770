package translator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// scaleInput is one Gateway with so many rules, each for a ServiceAccount of its own that may call
// some tools.
func scaleInput(rules, tools, perPolicy int) translator.Input {
	gw := gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod", UID: types.UID("11111111-1111-1111-1111-111111111111")}}
	gw.Spec.GatewayClassName = "istio"
	gw.Spec.Listeners = []gwv1.Listener{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType}}
	in := translator.Input{Gateways: []gwv1.Gateway{gw}}
	for i := 0; i < rules; i += perPolicy {
		p := v1alpha1.XAccessPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: fmt.Sprintf("policy-%05d", i/perPolicy),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(1_700_000_000+i), 0))}}
		p.Spec.TargetRefs = []v1alpha1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: v1alpha1.LocalPolicyTargetReference{
			Group: gwv1.GroupName, Kind: "Gateway", Name: "prod"}}}
		p.Spec.Action = v1alpha1.ActionTypeAllow
		for j := i; j < min(i+perPolicy, rules); j++ {
			p.Spec.Rules = append(p.Spec.Rules, scaleRule(j, tools))
		}
		in.Policies = append(in.Policies, translator.Policy{Object: p})
	}
	return in
}

func scaleRule(j, tools int) v1alpha1.AccessRule {
	call := v1alpha1.MCPMethod{Name: v1alpha1.MCPMethodNameToolsCall}
	for k := range tools {
		call.Params = append(call.Params, v1alpha1.MCPMethodParam(fmt.Sprintf("tool-%d", (j+k)%1000)))
	}
	return v1alpha1.AccessRule{
		Name: fmt.Sprintf("rule-%d", j%10),
		Source: &v1alpha1.AccessRuleSource{Type: v1alpha1.AuthorizationSourceTypeServiceAccount,
			ServiceAccount: &v1alpha1.AuthorizationSourceServiceAccount{Name: fmt.Sprintf("agent-%05d", j)}},
		Authorization: &v1alpha1.AuthorizationRule{Type: v1alpha1.AuthorizationRuleTypeInline,
			MCP: &v1alpha1.MCPAttributes{Methods: []v1alpha1.MCPMethod{call}}},
	}
}

func scaleOptions(t testing.TB) translator.Options {
	t.Helper()
	opts, err := requests.Settings{}.Options()
	require.NoError(t, err)
	return opts
}

// BenchmarkTranslate is translation and emission of one Gateway.
func BenchmarkTranslate(b *testing.B) {
	for _, rules := range []int{1000, 2000, 5000, 10000} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			in, opts := scaleInput(rules, 1, 10), scaleOptions(b)
			b.ReportAllocs()
			for b.Loop() {
				result, err := translator.Translate(in, opts)
				if err != nil || len(result.Gateways[0].Kuadrant.Objects) != 1 {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rules), "ns/rule")
		})
	}
}

// Twenty thousand grants of one Gateway fit its AuthPolicy. That Authorino takes it is test/differential's business.
func TestTwentyThousandGrantsFit(t *testing.T) {
	result, err := translator.Translate(scaleInput(2000, 10, 5), scaleOptions(t))
	require.NoError(t, err)
	out := result.Gateways[0].Kuadrant
	require.Empty(t, out.Findings)
	require.Len(t, out.Objects, 1)
	require.Less(t, out.Bytes, kuadrant.MaxObject)
	t.Logf("%d bytes, %d evaluators", out.Bytes, len(out.Objects[0].Spec.Overrides.AuthScheme.Authorization)-1)
	granted := out.Expressed[0].Decide(request("demo/agent-00042", "tool-45"))
	require.Equal(t, "demo/policy-00008/rule-2", granted.By.String())
	require.False(t, out.Expressed[0].Decide(request("demo/agent-00042", "tool-52")).Allowed)
}

// request is a tools/call of a ServiceAccount as the default profile's router passes it on.
func request(serviceAccount, tool string) plan.Request {
	r := requests.Request{Caller: requests.Caller{ServiceAccount: serviceAccount}, MCP: &requests.MCP{Method: "tools/call", Name: tool}}
	profile, _ := plan.ProfileNamed(plan.ProfileMCPGateway)
	return r.Plan(profile, false)
}
