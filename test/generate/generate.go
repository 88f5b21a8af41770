// Package generate makes random worlds and requests, hostile ones among them, with which the plan is compared with what
// the enforcers really do.
package generate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/requests"
)

// The universe. Hostile values stand beside plain ones, so that they are granted, asked for and mixed up.
var (
	namespaces  = []string{"demo", "ops"}
	accounts    = []string{"reader", "writer", "agent.v2"}
	tools       = []string{"add", "subtract", "delete_database", "bob's_tool", "a'||true||''=='", `x\`, "été", "\U0001f600", "t", "add,subtract", " add", "ADD"}
	prompts     = []string{"hello", "it's", "hello,world"}
	resources   = []string{"file:///a", "file:///b'"}
	teamValues  = []string{"blue", "red", "it's", `bl\ue`, "blue,red", "' || true || '"}
	hosts       = []string{"mcp.example.com", "a.example.com", "a.b.example.com", "other.test", "example.com"}
	hostRules   = []string{"mcp.example.com", "*.example.com", "other.test", "*.b.example.com", "example.com"}
	paths       = []string{"/mcp", "/mcp/", "/mcp/v1", "/mcpx", "/", "/admin", "/it's", "/MCP"}
	regexes     = []string{"/mcp.*", "/(mcp|admin)", `/mcp/[a-z0-9]+`, "(?i)/mcp", "/it's"}
	valueRegex  = []string{"b.*", "(?i)BLUE", "blue|red", "it's", "[^,]+"}
	listeners   = []string{"", "*.example.com", "mcp.example.com", "other.test", "*.b.example.com"}
	ports       = []int32{80, 443, 8080}
	methodsHTTP = []string{"GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "CONNECT", "PATCH", "TRACE"}
	mcpNames    = []v1alpha1.MCPMethodName{"tools", "prompts", "resources", "prompts/list", "tools/list", "resources/list",
		"resources/templates/list", "prompts/get", "tools/call", "tools/call", "tools/call", "resources/read", "resources/subscribe"}
	mcpCalls = []string{"initialize", "ping", "tools/list", "tools/call", "tools/call", "tools/call", "prompts/get", "prompts/list",
		"resources/read", "resources/list", "notifications/initialized", "completion/complete", "logging/setLevel", "notifications", "x/y", "TOOLS/CALL", "resources/subscribe"}
	expressions = []string{
		`request.mcp.tool_name == 'add'`, `request.mcp.tool_name.startsWith('a')`, `request.mcp.tool_name != 'delete_database'`,
		`request.mcp.method == 'tools/list'`, `request.mcp.method != 'initialize' && request.mcp.tool_name == "bob's_tool"`,
		`request.headers['x-team'] == 'blue'`, `!('x-team' in request.headers)`, `has(request.headers.accept) || request.mcp.method == ''`,
		`['add', 'subtract'].exists(t, t == request.mcp.tool_name)`, `['x'].all(h, request.headers['x-team'] != h)`,
		`source.principal == 'system:serviceaccount:demo:reader'`, `source.principal != ''`, `source.principal.startsWith('spiffe://')`,
		`source.principal != 'system:serviceaccount:demo:writer' && request.mcp.method == 'tools/list'`,
		`auth.identity.user.groups.exists(g, g == 'system:serviceaccounts:ops')`, `has(auth.identity.user)`, `auth.identity.missing == 'x'`,
		`request.url_path.startsWith('/mcp')`, `!request.path.startsWith('/admin')`, `request.path.contains('?')`, `request.path.split('/').size() > 2`,
		`request.host.endsWith('.example.com')`, `request.host != 'mcp.example.com' && request.mcp.method == 'ping'`,
		`request.time < timestamp('2026-06-01T00:00:00Z')`, `request.method == 'GET' && request.mcp.method == ''`, `request.mcp.method != 'tools/call'`, `request.mcp.prompt_name != 'hello'`,
		`request.mcp.prompt_name == 'hello' && request.mcp.method == 'prompts/get'`, `request.mcp.server_name == 'demo/server'`,
		`request.mcp.server_name != 'demo/other' && request.mcp.method.startsWith('tools/')`, `request.mcp.method.matches('tools/.*')`,
		`(true ? request.mcp.tool_name : '') == 'x\\'`, `{'add': true}[request.mcp.tool_name]`, `request.headers['x-team'].size() / 0 == 1`, `true`, `false`,
		`request.mcp.resource_uri == 'file:///a' && request.mcp.method == 'resources/read'`,
		`request.headers['x-team'].split(',').filter(v0, v0 == 'red').size() == 1`, `1 == `, `request.nope`,
	}
)

// Generator makes random worlds.
type Generator struct{ *rand.Rand }

// New makes a generator; the same seed gives the same worlds and requests.
func New(seed uint64) Generator { return Generator{rand.New(rand.NewPCG(seed, seed))} }

// Accounts lists the ServiceAccounts that callers have, as namespace/name.
func Accounts() []string {
	var out []string
	for _, ns := range namespaces {
		for _, name := range accounts {
			out = append(out, ns+"/"+name)
		}
	}
	return out
}

func pick[T any](g Generator, list []T) T { return list[g.IntN(len(list))] }

func (g Generator) chance(percent int) bool { return g.IntN(100) < percent }

// some returns up to n distinct entries.
func some[T any](g Generator, list []T, n int) []T {
	order := g.Perm(len(list))
	var out []T
	for _, i := range order[:min(1+g.IntN(n), len(list))] {
		out = append(out, list[i])
	}
	return out
}

// Settings are random settings of the operator.
func (g Generator) Settings() requests.Settings {
	s := requests.Settings{MaxNamedEvaluators: 1 + g.IntN(6)}
	if g.chance(30) {
		s.Profile = "generic"
	}
	if g.chance(40) {
		s.TrustDomain = "cluster.local"
	}
	if g.chance(50) {
		s.SPIFFEFrom = "xfcc"
	}
	s.AllowProtocol2026 = g.chance(20)
	return s
}

// VerifiedCertificates has client certificates verified on a Gateway.
func VerifiedCertificates(gw *gwv1.Gateway) []egv1a1.ClientTrafficPolicy {
	p := egv1a1.ClientTrafficPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: gw.Namespace, Name: gw.Name}}
	p.Spec.TargetRefs = []egv1a1.TargetRef{{Group: gwv1.GroupName, Kind: "Gateway", Name: gwv1.ObjectName(gw.Name)}}
	p.Spec.TLS = &egv1a1.ClientTLSSettings{ClientValidation: &egv1a1.ClientValidation{Mode: new(egv1a1.VerifyIfGiven),
		CACertificateRefs: []gwv1.SecretObjectReference{{Kind: new(gwv1.Kind("ConfigMap")), Name: "agents-ca"}}}}
	return []egv1a1.ClientTrafficPolicy{p}
}

// Input is a Gateway with random listeners and policies.
func (g Generator) Input() translator.Input {
	gw := gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod", UID: "11111111-1111-1111-1111-111111111111"}}
	gw.Spec.GatewayClassName = "istio"
	names := some(g, listeners, 3)
	if g.chance(50) {
		names = []string{""}
	}
	for i, host := range names {
		l := gwv1.Listener{Name: gwv1.SectionName(fmt.Sprintf("l%d", i)), Port: gwv1.PortNumber(pick(g, ports)), Protocol: gwv1.HTTPProtocolType}
		if host != "" {
			l.Hostname = new(gwv1.Hostname(host))
		}
		gw.Spec.Listeners = append(gw.Spec.Listeners, l)
	}
	in := translator.Input{Gateways: []gwv1.Gateway{gw}}
	count := 1 + g.IntN(6)
	if g.chance(10) {
		count = 12
	}
	for i := range count {
		in.Policies = append(in.Policies, translator.Policy{Object: g.policy(i)})
	}
	return in
}

func (g Generator) policy(i int) v1alpha1.XAccessPolicy {
	// Names that could collide when joined with rule names.
	name := pick(g, []string{"a", "a-b", "fail", "fail-close", "refuse"})
	p := v1alpha1.XAccessPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: fmt.Sprintf("%s-%d", name, i),
		CreationTimestamp: metav1.NewTime(time.Unix(int64(1_700_000_000+g.IntN(3)), 0))}}
	if i == 0 {
		p.Name = name
	}
	ref := v1alpha1.LocalPolicyTargetReferenceWithSectionName{LocalPolicyTargetReference: v1alpha1.LocalPolicyTargetReference{Group: gwv1.GroupName, Kind: "Gateway", Name: "prod"}}
	if g.chance(25) {
		ref.SectionName = new(gwv1.SectionName(fmt.Sprintf("l%d", g.IntN(4))))
	}
	p.Spec.TargetRefs = append(p.Spec.TargetRefs, ref)
	p.Spec.Action = v1alpha1.ActionTypeAllow
	if g.chance(10) {
		p.Spec.Action = v1alpha1.ActionTypeExternalAuth
		p.Spec.ExternalAuth = &v1alpha1.HTTPExternalAuthFilter{ExternalAuthProtocol: v1alpha1.HTTPRouteExternalAuthGRPCProtocol, GRPCAuthConfig: &v1alpha1.GRPCAuthConfig{}}
	}
	if g.chance(2) {
		return p
	}
	p.Spec.Rules = []v1alpha1.AccessRule{}
	for j := range g.IntN(4) + 1 {
		p.Spec.Rules = append(p.Spec.Rules, g.rule(j))
	}
	return p
}

func (g Generator) rule(j int) v1alpha1.AccessRule {
	r := v1alpha1.AccessRule{Name: pick(g, []string{"c", "b-c", "close", "rule"}) + fmt.Sprint(j)}
	switch n := g.IntN(100); {
	case n < 20:
	case n < 65:
		sa := v1alpha1.AuthorizationSourceServiceAccount{Name: pick(g, accounts)}
		if g.chance(60) {
			sa.Namespace = pick(g, namespaces)
		}
		r.Source = &v1alpha1.AccessRuleSource{Type: v1alpha1.AuthorizationSourceTypeServiceAccount, ServiceAccount: &sa}
	case n < 97:
		r.Source = &v1alpha1.AccessRuleSource{Type: v1alpha1.AuthorizationSourceTypeSPIFFE, SPIFFE: new(v1alpha1.AuthorizationSourceSPIFFE(g.spiffe()))}
	default:
		r.Source = &v1alpha1.AccessRuleSource{Type: v1alpha1.AuthorizationSourceTypeSPIFFE}
	}
	if g.chance(92) {
		r.Authorization = g.authorization()
	}
	return r
}

func (g Generator) spiffe() string {
	return fmt.Sprintf("spiffe://%s/ns/%s/sa/%s", pick(g, []string{"cluster.local", "td.example"}), pick(g, namespaces), pick(g, accounts))
}

func (g Generator) authorization() *v1alpha1.AuthorizationRule {
	a := &v1alpha1.AuthorizationRule{Type: v1alpha1.AuthorizationRuleTypeInline}
	if g.chance(15) {
		for _, m := range some(g, methodsHTTP, 3) {
			a.Methods = append(a.Methods, v1alpha1.HTTPMethod(m))
		}
	}
	if g.chance(20) {
		a.Paths = g.paths()
	}
	if g.chance(15) {
		a.Headers = g.headers()
	}
	if g.chance(15) {
		for _, h := range some(g, hostRules, 2) {
			a.Hosts = append(a.Hosts, v1alpha1.Hostname(h))
		}
	}
	if g.chance(10) {
		a.Ports = []v1alpha1.PortNumber{v1alpha1.PortNumber(pick(g, ports))}
	}
	if g.chance(35) {
		a.Type, a.CEL = v1alpha1.AuthorizationRuleTypeCEL, &v1alpha1.AccessPolicyCELRule{Expression: pick(g, expressions)}
		if g.chance(20) {
			a.MCP = &v1alpha1.MCPAttributes{MCPBaseProtocolMethodsOption: v1alpha1.MCPBaseProtocolMethodsOptionMatch}
		}
		return a
	}
	if g.chance(80) {
		a.MCP = g.mcp()
	}
	return a
}

func (g Generator) paths() []v1alpha1.HTTPPathMatch {
	var out []v1alpha1.HTTPPathMatch
	for range 1 + g.IntN(2) {
		m := v1alpha1.HTTPPathMatch{Value: new(pick(g, paths))}
		switch g.IntN(4) {
		case 0:
			m.Type = new(v1alpha1.PathMatchExact)
		case 1:
			m.Type, m.Value = new(v1alpha1.PathMatchRegularExpression), new(pick(g, regexes))
		case 2:
			m.Type = new(v1alpha1.PathMatchPathPrefix)
		default:
			if g.chance(30) {
				m.Value = nil
			}
		}
		out = append(out, m)
	}
	return out
}

func (g Generator) headers() []v1alpha1.HTTPHeaderMatch {
	m := v1alpha1.HTTPHeaderMatch{Name: v1alpha1.HTTPHeaderName(pick(g, []string{"x-team", "X-Team", "accept"})), Value: pick(g, teamValues)}
	if g.chance(30) {
		m.Type, m.Value = new(v1alpha1.HeaderMatchRegularExpression), pick(g, valueRegex)
	}
	return []v1alpha1.HTTPHeaderMatch{m}
}

func (g Generator) mcp() *v1alpha1.MCPAttributes {
	m := &v1alpha1.MCPAttributes{}
	if g.chance(30) {
		m.MCPBaseProtocolMethodsOption = v1alpha1.MCPBaseProtocolMethodsOptionMatch
	}
	for _, name := range some(g, mcpNames, 3) {
		method := v1alpha1.MCPMethod{Name: name}
		var from []string
		switch name {
		case v1alpha1.MCPMethodNameToolsCall:
			from = tools
		case v1alpha1.MCPMethodNamePromptsGet:
			from = prompts
		case v1alpha1.MCPMethodNameResourcesRead:
			from = resources
		default: // takes no params here
		}
		if from != nil && g.chance(85) {
			for _, p := range some(g, from, 3) {
				method.Params = append(method.Params, v1alpha1.MCPMethodParam(p))
			}
		}
		duplicate := false
		for _, other := range m.Methods {
			duplicate = duplicate || other.Name == name
		}
		if !duplicate {
			m.Methods = append(m.Methods, method)
		}
	}
	return m
}

// Request is a call, most often one that the router passed on, often a forged one.
func (g Generator) Request() requests.Request {
	r := requests.Request{Expect: requests.Deny}
	switch n := g.IntN(100); {
	case n < 45:
		r.Caller.ServiceAccount = pick(g, namespaces) + "/" + pick(g, accounts)
	case n < 55:
		r.Caller.BadToken = true
	}
	if g.chance(45) {
		r.Caller.SPIFFE = g.spiffe()
	}
	r.HTTP.Method = "POST"
	if g.chance(20) {
		r.HTTP.Method = pick(g, methodsHTTP)
	}
	r.HTTP.Host = new(g.host())
	r.HTTP.Path = new(g.path())
	r.HTTP.Headers = g.clientHeaders()
	if g.chance(70) {
		r.MCP = g.call()
	}
	if g.chance(10) {
		r.Time = new(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	return r
}

func (g Generator) host() string {
	host := pick(g, hosts)
	switch g.IntN(12) {
	case 0:
		return host + ":8443"
	case 1:
		return "MCP.Example.COM"
	}
	return host
}

func (g Generator) path() string {
	path := pick(g, paths)
	if g.chance(20) {
		path += pick(g, []string{"?a=b", "?/../", "/%2e%2e/admin", "//", "/./x", "%2Fx", `\x`, "/..", "/a%00", "/.hidden", "/a..b", "?"})
	}
	return path
}

func (g Generator) clientHeaders() map[string]string {
	h := map[string]string{}
	add := func(percent int, name string, values ...string) {
		if g.chance(percent) {
			h[name] = pick(g, values)
		}
	}
	add(40, "x-team", append(teamValues, "", strings.Repeat("b", 1024), strings.Repeat("b", 1025))...)
	add(20, "accept", "blue", "text/event-stream")
	add(10, "content-type", "application/json; charset=utf-8", "Application/JSON", "text/plain", "application/json,application/json", "application/jsonx", "")
	add(15, "mcp-protocol-version", "2025-06-18", "2026-07-28", "2025-06-18,2026-07-28", "")
	add(25, "mcp-session-id", "s1", "")
	add(15, "x-mcp-toolname", append(tools, "", strings.Repeat("a", 1100))...)
	add(10, "x-mcp-method", "tools/call", "initialize", "tools/list", "tools/call,tools/list", "")
	add(10, "x-mcp-servername", "demo/server", "mcpBroker", "", "demo/server,mcpBroker")
	add(10, "x-mcp-promptname", prompts...)
	add(5, "x-mcp-resourceuri", resources...)
	add(6, "x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/demo/sa/reader", `Subject="CN=x;URI=spiffe://cluster.local/ns/demo/sa/reader"`,
		"By=spiffe://cluster.local/ns/demo/sa/reader", "URI=spiffe://cluster.local/ns/demo/sa/reader,URI=spiffe://td.example/ns/ops/sa/writer",
		"URI=spiffe://cluster.local/ns/demo/sa/reader;URI=spiffe://td.example/ns/ops/sa/writer", `Subject="CN=\";URI=spiffe://td.example/ns/ops/sa/writer;";URI=spiffe://cluster.local/ns/demo/sa/reader`,
		`Hash=00;Subject="a";URI=spiffe://td.example/ns/ops/sa/writer;DNS=x`, "")
	return h
}

func (g Generator) call() *requests.MCP {
	m := &requests.MCP{Method: pick(g, mcpCalls)}
	switch m.Method {
	case "tools/call":
		m.Name = pick(g, tools)
	case "prompts/get":
		m.Name = pick(g, prompts)
	case "resources/read", "resources/subscribe":
		m.Name = pick(g, resources)
	}
	if g.chance(10) {
		m.Server = pick(g, []string{"mcpBroker", "demo/other"})
	}
	return m
}
