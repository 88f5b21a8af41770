package differential

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/requests"
)

// injections are texts that try to leave the place where they are put.
var injections = []string{
	`'`, `\`, `\'`, `'\`, `"`, "`", `a'||true||''=='`, `') || true || ('`, `'] || true || [''`, `' in [''] || true || '`, `\' || true || \'`,
	"\n", "\r\n' || true", "\u2028", "\u202e", "\x01", `\u0027||true||\u0027`, `\x27`, `{"a":1}`, `${request.path}`, "//", "/*", "*/",
	"true", "false || true", "request.mcp.tool_name", "auth.identity", `'.matches('.*') || '`, "é", "\U0001f600", "x' && false && 'x",
	strings.Repeat("'", 20), strings.Repeat(`\`, 19),
}

// places put a hostile text somewhere into the rule of a policy of team b.
var places = map[string]func(p *v1alpha1.XAccessPolicy, text string){
	"tool": func(p *v1alpha1.XAccessPolicy, s string) { mcpOf(p).Methods[0].Params[0] = v1alpha1.MCPMethodParam(s) },
	"prompt": func(p *v1alpha1.XAccessPolicy, s string) {
		mcpOf(p).Methods[0] = v1alpha1.MCPMethod{Name: "prompts/get", Params: []v1alpha1.MCPMethodParam{v1alpha1.MCPMethodParam(s)}}
	},
	"account":           func(p *v1alpha1.XAccessPolicy, s string) { p.Spec.Rules[0].Source.ServiceAccount.Name = s },
	"account namespace": func(p *v1alpha1.XAccessPolicy, s string) { p.Spec.Rules[0].Source.ServiceAccount.Namespace = s },
	"spiffe": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Source = &v1alpha1.AccessRuleSource{Type: v1alpha1.AuthorizationSourceTypeSPIFFE, SPIFFE: new(v1alpha1.AuthorizationSourceSPIFFE("spiffe://td/" + s))}
	},
	"header value": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Authorization.Headers = []v1alpha1.HTTPHeaderMatch{{Name: "x-team", Value: s}}
	},
	"header name": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Authorization.Headers = []v1alpha1.HTTPHeaderMatch{{Name: v1alpha1.HTTPHeaderName(s), Value: "x"}}
	},
	"header regex": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Authorization.Headers = []v1alpha1.HTTPHeaderMatch{{Type: new(v1alpha1.HeaderMatchRegularExpression), Name: "x-team", Value: s}}
	},
	"path": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Authorization.Paths = []v1alpha1.HTTPPathMatch{{Value: new("/" + s)}}
	},
	"path regex": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Authorization.Paths = []v1alpha1.HTTPPathMatch{{Type: new(v1alpha1.PathMatchRegularExpression), Value: new("/" + s)}}
	},
	"host": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Authorization.Hosts = []v1alpha1.Hostname{v1alpha1.Hostname(s)}
	},
	"http method": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Authorization.Methods = []v1alpha1.HTTPMethod{v1alpha1.HTTPMethod(s)}
	},
	"mcp method": func(p *v1alpha1.XAccessPolicy, s string) {
		mcpOf(p).Methods[0] = v1alpha1.MCPMethod{Name: v1alpha1.MCPMethodName(s)}
	},
	"rule name":   func(p *v1alpha1.XAccessPolicy, s string) { p.Spec.Rules[0].Name = s },
	"policy name": func(p *v1alpha1.XAccessPolicy, s string) { p.Name = s },
	"namespace":   func(p *v1alpha1.XAccessPolicy, s string) { p.Namespace = s },
	"cel literal": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Authorization = &v1alpha1.AuthorizationRule{Type: v1alpha1.AuthorizationRuleTypeCEL, CEL: &v1alpha1.AccessPolicyCELRule{Expression: "request.mcp.tool_name == '" + s + "'"}}
	},
	"cel": func(p *v1alpha1.XAccessPolicy, s string) {
		p.Spec.Rules[0].Authorization = &v1alpha1.AuthorizationRule{Type: v1alpha1.AuthorizationRuleTypeCEL, CEL: &v1alpha1.AccessPolicyCELRule{Expression: s}}
	},
	"section": func(p *v1alpha1.XAccessPolicy, s string) { p.Spec.TargetRefs[0].SectionName = new(gwv1.SectionName(s)) },
}

func mcpOf(p *v1alpha1.XAccessPolicy) *v1alpha1.MCPAttributes {
	return p.Spec.Rules[0].Authorization.MCP
}

// teamPolicy lets the ServiceAccount of a team call one tool.
func teamPolicy(team, tool string) v1alpha1.XAccessPolicy {
	var p v1alpha1.XAccessPolicy
	p.Namespace, p.Name, p.Spec.Action = "demo", team, v1alpha1.ActionTypeAllow
	p.Spec.TargetRefs = []v1alpha1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: v1alpha1.LocalPolicyTargetReference{Group: gwv1.GroupName, Kind: "Gateway", Name: "prod"}}}
	p.Spec.Rules = []v1alpha1.AccessRule{{Name: "call",
		Source: &v1alpha1.AccessRuleSource{Type: v1alpha1.AuthorizationSourceTypeServiceAccount, ServiceAccount: &v1alpha1.AuthorizationSourceServiceAccount{Namespace: team, Name: "agent"}},
		Authorization: &v1alpha1.AuthorizationRule{Type: v1alpha1.AuthorizationRuleTypeInline,
			MCP: &v1alpha1.MCPAttributes{Methods: []v1alpha1.MCPMethod{{Name: "tools/call", Params: []v1alpha1.MCPMethodParam{v1alpha1.MCPMethodParam(tool)}}}}}}}
	return p
}

func callBy(account, tool string) requests.Request {
	return requests.Request{Caller: requests.Caller{ServiceAccount: account}, HTTP: requests.HTTP{Headers: map[string]string{"x-team": "blue"}},
		MCP: &requests.MCP{Method: "tools/call", Name: tool}}
}

// TestInjections puts each hostile text into each place where a user can write one. No call is granted that the policies
// do not name, and team a is never affected: not by a grant, not by an AuthConfig that Authorino refuses.
func TestInjections(t *testing.T) {
	client := startJudge(t)
	opts, err := requests.Settings{}.Options()
	require.NoError(t, err)
	accepted, escapes := 0, 0
	for place, put := range places {
		for _, text := range injections {
			hostile := teamPolicy("team-b", "subtract")
			put(&hostile, text)
			in := translator.Input{Gateways: []gwv1.Gateway{benchGateway()}, Policies: []translator.Policy{{Object: teamPolicy("team-a", "add")}, {Object: hostile}}}
			result, err := translator.Translate(in, opts)
			require.NoError(t, err)
			gw := &result.Gateways[0]
			for _, v := range result.Verdicts {
				if v.Policy.Name != "team-a" && v.Accepted {
					accepted++
				}
			}
			what := fmt.Sprintf("%q as %s", text, place)
			loaded, err := client.Load("injection", World(&in.Gateways[0], gw, in, opts, []string{"team-a/agent", "team-b/agent", "other/agent"}))
			require.NoError(t, err, what)
			require.True(t, loaded.Ready(), "%s breaks everybody's AuthConfig: %+v", what, loaded.AuthConfigs)
			list := []requests.Request{callBy("team-a/agent", "add"), callBy("team-a/agent", "delete_database"), callBy("team-b/agent", "delete_database"),
				callBy("other/agent", "add"), callBy("other/agent", "delete_database"), {MCP: &requests.MCP{Method: "tools/call", Name: "delete_database"}}}
			judged, err := Ask(client, "injection", &in.Gateways[0], gw, opts, ShapeFor(opts), list)
			require.NoError(t, err, what)
			for i, j := range judged {
				require.Empty(t, j.Disagreement(true), what)
				// An author may write any expression for their own callers.
				own := strings.HasPrefix(place, "cel") && i == 2
				if j.Real.Allowed != (i == 0) && !own {
					escapes++
					t.Errorf("%s: request %d %+v: allowed=%v", what, i, *j.Request.MCP, j.Real.Allowed)
				}
			}
		}
	}
	require.Greater(t, accepted, 100, "too many texts are refused for the test to mean anything")
	t.Logf("%d texts in %d places, %d accepted as values, %d escapes", len(injections), len(places), accepted, escapes)
}
