package envoygateway

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/plan"
)

const spiffeID = "spiffe://example.org/agent"

var testOptions = Options{Audiences: []string{"mcp-gateway"}, Issuer: "https://issuer.example", JWKS: `{"keys":[{"kty":"RSA"}]}`}

// wide is the input for a Gateway on all of which the rules hold.
func wide(rules ...plan.Rule) Input {
	gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod", UID: "uid-1"}}
	gw.Spec.Listeners = []gwv1.Listener{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType}}
	profile, _ := plan.ProfileNamed(plan.ProfileMCPGateway)
	p := plan.Plan{Gateway: types.NamespacedName{Namespace: "demo", Name: "prod"}, Profile: profile, Rules: rules}
	return Input{Gateway: gw, Plans: []plan.Plan{p}}
}

func rule(principal string) plan.Rule {
	return plan.Rule{Origin: plan.Origin{Policy: types.NamespacedName{Namespace: "demo", Name: "tools"}, Rule: "one", Field: "spec.rules[0]"},
		Source: plan.Source{Principals: []string{principal}}}
}

func clientTraffic(mode string, change func(*egv1a1.ClientValidation)) egv1a1.ClientTrafficPolicy {
	p := egv1a1.ClientTrafficPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "clients"}}
	p.Spec.TargetRefs = []egv1a1.TargetRef{{Group: gwv1.GroupName, Kind: "Gateway", Name: "prod"}}
	validation := &egv1a1.ClientValidation{Mode: &mode, CACertificateRefs: []gwv1.SecretObjectReference{{Name: "ca"}}}
	change(validation)
	p.Spec.TLS = &egv1a1.ClientTLSSettings{ClientValidation: validation}
	return p
}

func emitted(t *testing.T, in Input, opts Options) *Output {
	t.Helper()
	out, err := Emit(in, opts)
	require.NoError(t, err)
	require.Len(t, out.Objects, 1)
	require.Equal(t, egv1a1.ActionDeny, out.Objects[0].Spec.Authorization.DefaultAction)
	return out
}

func reasons(out *Output) []string {
	var list []string
	for _, f := range out.Findings {
		list = append(list, f.Reason)
	}
	return list
}

// Envoy Gateway has modes that ask for a certificate and take any. A SPIFFE ID of such a one is anybody's.
func TestCertificatesMustBeVerified(t *testing.T) {
	same := func(*egv1a1.ClientValidation) {}
	yes := true
	good := clientTraffic(egv1a1.VerifyIfGiven, same)
	elsewhere, other := good, good
	elsewhere.Namespace = "ops"
	other.Spec.TargetRefs = []egv1a1.TargetRef{{Group: gwv1.GroupName, Kind: "Gateway", Name: "another"}}
	section := gwv1.SectionName("http")
	unsafe := clientTraffic("Request", same)
	unsafe.Name = "unsafe"
	unsafe.Spec.TargetRefs[0].SectionName = &section
	for name, c := range map[string]struct {
		traffic  []egv1a1.ClientTrafficPolicy
		believed bool
	}{
		"verify if given":            {[]egv1a1.ClientTrafficPolicy{good}, true},
		"require and verify":         {[]egv1a1.ClientTrafficPolicy{clientTraffic(egv1a1.RequireAndVerify, same)}, true},
		"none":                       {nil, false},
		"in another namespace":       {[]egv1a1.ClientTrafficPolicy{elsewhere}, false},
		"of another Gateway":         {[]egv1a1.ClientTrafficPolicy{other}, false},
		"asked for and not verified": {[]egv1a1.ClientTrafficPolicy{clientTraffic("Request", same)}, false},
		"required and not verified":  {[]egv1a1.ClientTrafficPolicy{clientTraffic("RequireAny", same)}, false},
		"a mode that is not known":   {[]egv1a1.ClientTrafficPolicy{clientTraffic("Trust", same)}, false},
		"without a CA":               {[]egv1a1.ClientTrafficPolicy{clientTraffic(egv1a1.VerifyIfGiven, func(v *egv1a1.ClientValidation) { v.CACertificateRefs = nil })}, false},
		"expired ones too":           {[]egv1a1.ClientTrafficPolicy{clientTraffic(egv1a1.VerifyIfGiven, func(v *egv1a1.ClientValidation) { v.AllowExpiredCertificate = &yes })}, false},
		"one listener takes any":     {[]egv1a1.ClientTrafficPolicy{good, unsafe}, false},
	} {
		in := wide(rule(spiffeID))
		in.ClientTraffic = c.traffic
		out := emitted(t, in, testOptions)
		require.Equal(t, c.believed, len(out.Objects[0].Spec.Authorization.Rules) == 1, name)
		require.Equal(t, c.believed, len(out.Expressed[0].Rules) == 1, name)
		if !c.believed {
			require.Equal(t, []string{v1alpha1.PolicyReasonPartiallyProgrammed}, reasons(out), name)
		}
	}
}

// Without keys no token can be verified, and the provider is left out: with an empty key set Envoy Gateway would refuse the
// policy, and the Gateway would be without one.
func TestWithoutKeysTokensGrantNothing(t *testing.T) {
	for _, opts := range []Options{{Audiences: testOptions.Audiences}, {Audiences: testOptions.Audiences, Issuer: testOptions.Issuer}, {Audiences: testOptions.Audiences, JWKS: testOptions.JWKS}} {
		out := emitted(t, wide(rule("system:serviceaccount:demo:reader")), opts)
		require.Nil(t, out.Objects[0].Spec.JWT)
		require.Empty(t, out.Objects[0].Spec.Authorization.Rules)
		require.Equal(t, []string{v1alpha1.PolicyReasonPartiallyProgrammed}, reasons(out))
	}
	require.Error(t, Options{Audiences: testOptions.Audiences, JWKS: `{"keys":[]}`}.Validate())
	require.Error(t, Options{Audiences: testOptions.Audiences, JWKS: `no keys`}.Validate())
	require.Error(t, Options{}.Validate())
}

// A ServiceAccount that is known by a token and, with a trust domain, by a certificate, keeps the one that can be verified.
func TestOneCredentialIsEnough(t *testing.T) {
	r := rule("")
	r.Source.Principals = []string{spiffeID, "system:serviceaccount:demo:reader"}
	out := emitted(t, wide(r), testOptions)
	require.Equal(t, []string{"OneCredentialOnly"}, reasons(out))
	require.Equal(t, []string{"system:serviceaccount:demo:reader"}, out.Expressed[0].Rules[0].Source.Principals)
	require.Nil(t, out.Objects[0].Spec.JWT.FailOpen, "no rule does without a token, so a bad one is 401")
}

func TestFailOpenWhereARuleNeedsNoToken(t *testing.T) {
	anybody := rule("")
	anybody.Source = plan.Source{Any: true}
	out := emitted(t, wide(rule("system:serviceaccount:demo:reader"), anybody), testOptions)
	require.True(t, *out.Objects[0].Spec.JWT.FailOpen)
	require.NotNil(t, out.Objects[0].Spec.Authorization)
}

// What is refused is never less than what the plan refuses.
func TestRefusalsLeanToRefusal(t *testing.T) {
	in := wide(rule("system:serviceaccount:demo:reader"))
	delegated := rule(spiffeID)
	delegated.Methods, delegated.Hosts = []string{"POST"}, []string{"mcp.example.com"}
	refusal := []plan.Refusal{{Origin: plan.Origin{Policy: types.NamespacedName{Namespace: "demo", Name: "ask"}}, Rules: []plan.Rule{delegated}}}
	in.Plans[0].Refusals = refusal
	out := emitted(t, in, testOptions)
	first := out.Objects[0].Spec.Authorization.Rules[0]
	require.Equal(t, egv1a1.ActionDeny, first.Action)
	require.Empty(t, first.CEL, "the certificate cannot be verified, so every caller is refused")
	require.Equal(t, []egv1a1.AuthorizationHeaderMatch{{Name: ":method", Values: []string{"POST"}}}, first.Principal.Headers)
	require.Contains(t, reasons(out), "RefusesMore")

	refusal[0].All = true
	out = emitted(t, in, testOptions)
	require.Empty(t, out.Objects[0].Spec.Authorization.Rules)
}

func TestTooLargeIsClosed(t *testing.T) {
	var rules []plan.Rule
	for i := range 3000 {
		r := rule(fmt.Sprintf("system:serviceaccount:demo:reader-%d", i))
		r.Headers = []plan.HeaderMatch{{Name: "x-team", Value: strings.Repeat("b", 400)}}
		rules = append(rules, r)
	}
	out := emitted(t, wide(rules...), testOptions)
	require.Equal(t, []string{v1alpha1.PolicyReasonTooLarge}, reasons(out))
	require.Empty(t, out.Objects[0].Spec.Authorization.Rules)
	require.False(t, out.Expressed[0].Decide(plan.Request{}).Allowed)
}

// Envoy would refuse an expression that is nested too deep, and with it everybody's rules. What a user may write is not that
// deep; the limit is for what is made of it.
func TestDeepExpressionsAreTooMuch(t *testing.T) {
	for terms, taken := range map[int]bool{37: true, 40: false} {
		why, err := tooMuch(strings.Repeat("1 + ", terms)+"1 > 0", true)
		require.NoError(t, err)
		require.Equal(t, taken, why == "", "%d: %s", terms, why)
	}
}

// Depth is only looked at where a user has written CEL, so what is made of everything else may not be deep, as much of it as
// there may be.
func TestRulesWithoutExpressionsAreFlat(t *testing.T) {
	r := rule(spiffeID)
	r.MCP = &plan.MCPMatch{Base: true, Methods: []plan.MCPMethod{{Name: "tools/call", Params: []string{"add", "subtract"}}, {Name: "prompts", Category: true}}}
	for i := range 64 {
		r.Hosts = append(r.Hosts, fmt.Sprintf("*.%d.example", i))
		r.Paths = append(r.Paths, plan.PathMatch{Type: plan.PathPrefix, Value: fmt.Sprintf("/%d", i)})
		r.Headers = append(r.Headers, plan.HeaderMatch{Name: fmt.Sprintf("x-%d", i), Value: "a+", Regex: true})
	}
	for _, name := range []string{plan.ProfileMCPGateway, plan.ProfileGeneric} {
		profile, _ := plan.ProfileNamed(name)
		alternatives, err := parts(&r, profile, spiffeID)
		require.NoError(t, err)
		require.NotEmpty(t, alternatives)
		for _, alternative := range alternatives {
			depth, err := cel.Nesting(callers(r.Source)[0].rule(alternative).CEL)
			require.NoError(t, err)
			require.LessOrEqual(t, depth, MaxNesting, name)
		}
	}
}

// Of a thousand rules about tools most are about others, and Envoy is done with those after one comparison.
func TestNamesComeFirst(t *testing.T) {
	calls := func(names ...string) egv1a1.AuthorizationRule {
		r := rule(spiffeID)
		r.MCP = &plan.MCPMatch{Methods: []plan.MCPMethod{{Name: "tools/call", Params: names}}}
		rules, why, err := allow(&r, wide().Plans[0].Profile)
		require.NoError(t, err)
		require.Empty(t, why)
		require.Len(t, rules, 1)
		require.Contains(t, rules[0].Principal.Headers, egv1a1.AuthorizationHeaderMatch{Name: "x-mcp-toolname", Values: names})
		return rules[0]
	}
	require.Regexp(t, "^"+regexp.QuoteMeta("request.headers['x-mcp-toolname'] == 'add' && connection.mtls"), calls("add").CEL)
	require.Regexp(t, "^"+regexp.QuoteMeta("request.headers['x-mcp-toolname'] in ['add','echo'] && "), calls("add", "echo").CEL)
	var many []string
	for i := range 64 {
		many = append(many, fmt.Sprintf("tool-number-%d", i))
	}
	require.Regexp(t, "^"+regexp.QuoteMeta("connection.mtls"), calls(many...).CEL, "a list that is paid for by everybody")
}

func TestOtherPeoplesObjectIsLeftAlone(t *testing.T) {
	in := wide(rule("system:serviceaccount:demo:reader"))
	in.Existing = []egv1a1.SecurityPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-auth"}}}
	out := emitted(t, in, testOptions)
	require.Equal(t, []string{"NameTaken"}, reasons(out))
	require.NotEqual(t, "prod-auth", out.Objects[0].Name)
}

func TestHeadersThatClientsSend(t *testing.T) {
	r := rule("system:serviceaccount:demo:reader")
	r.MCP = &plan.MCPMatch{Base: true}
	in := wide(r)
	require.Equal(t, []string{ReasonHeadersNotStripped}, reasons(emitted(t, in, testOptions)))
	policy := clientTraffic(egv1a1.VerifyIfGiven, func(*egv1a1.ClientValidation) {})
	prefix := "Prefix"
	policy.Spec.Headers = &egv1a1.HeaderSettings{EarlyRequestHeaders: &egv1a1.HTTPHeaderFilter{RemoveOnMatch: []egv1a1.StringMatch{{Type: &prefix, Value: "X-Mcp-"}}}}
	in.ClientTraffic = []egv1a1.ClientTrafficPolicy{policy}
	require.Empty(t, reasons(emitted(t, in, testOptions)))
	policy.Spec.Headers.EarlyRequestHeaders = &egv1a1.HTTPHeaderFilter{Remove: []string{"X-MCP-Method", "x-mcp-toolname", "x-mcp-promptname", "x-mcp-servername"}}
	require.Empty(t, reasons(emitted(t, in, testOptions)))
}

func TestRuleNamesAreUniqueAndFit(t *testing.T) {
	long := plan.Origin{Policy: types.NamespacedName{Namespace: "demo", Name: strings.Repeat("p", 253)}, Rule: "r"}
	seen := map[string]bool{}
	for n := range 5 {
		name := ruleName("refuse/"+long.String(), n)
		require.LessOrEqual(t, len(name), MaxRuleName)
		require.False(t, seen[name])
		seen[name] = true
	}
	require.Equal(t, "demo/tools/one#2", ruleName(rule("x").Origin.String(), 1))
}
