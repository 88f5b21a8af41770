package envoygateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
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
		why, err := tooMuch(strings.Repeat("1 + ", terms) + "1 > 0")
		require.NoError(t, err)
		require.Equal(t, taken, why == "", "%d: %s", terms, why)
	}
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
