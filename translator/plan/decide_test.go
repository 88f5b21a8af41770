package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

const reader = TokenPrefix + "demo:reader"

func profile(t *testing.T, name string) Profile {
	t.Helper()
	p, ok := ProfileNamed(name)
	require.True(t, ok)
	return p
}

// toolCall is what the router of mcp-gateway 0.9 makes of a call of a federated tool.
func toolCall(tool string) Request {
	return Request{Method: "POST", Host: "mcp.example.com", Path: "/mcp", Token: &Token{Username: reader}, Headers: map[string]string{
		"content-type": "application/json", "x-mcp-method": "tools/call", "x-mcp-toolname": tool, "x-mcp-servername": "demo/server"}}
}

func onePlan(t *testing.T, rules ...Rule) Plan {
	t.Helper()
	for i := range rules {
		rules[i].Origin = Origin{Policy: types.NamespacedName{Namespace: "demo", Name: "p"}, Rule: string(rune('a' + i))}
	}
	return Plan{Profile: profile(t, ProfileMCPGateway), Rules: rules}
}

func mcp(methods ...MCPMethod) *MCPMatch { return &MCPMatch{Methods: methods} }

func TestZeroValuesGrantNothing(t *testing.T) {
	p := onePlan(t, Rule{})
	require.False(t, p.Decide(toolCall("add")).Allowed, "a source that is forgotten means nobody")
	require.False(t, (&Plan{}).Decide(Request{}).Allowed)
	p = onePlan(t, Rule{Source: Source{Any: true}, MCP: &MCPMatch{}})
	require.False(t, p.Decide(toolCall("add")).Allowed, "an MCP section without content matches nothing")
}

// Each entry is a way to look like the granted call without being it (docs/decisions/0006-which-mcp-headers-are-believed.md).
func TestToolConditionIsNotForgeable(t *testing.T) {
	p := onePlan(t, Rule{Source: Source{Principals: []string{reader}}, MCP: mcp(MCPMethod{Name: "tools/call", Params: []string{"add"}})})
	require.True(t, p.Decide(toolCall("add")).Allowed)
	for name, change := range map[string]func(*Request){
		"another tool":                func(r *Request) { r.Headers["x-mcp-toolname"] = "subtract" },
		"two tools in one header":     func(r *Request) { r.Headers["x-mcp-toolname"] = "add,add" },
		"upper case":                  func(r *Request) { r.Headers["x-mcp-toolname"] = "ADD" },
		"no tool":                     func(r *Request) { delete(r.Headers, "x-mcp-toolname") },
		"GET":                         func(r *Request) { r.Method = "GET" },
		"DELETE":                      func(r *Request) { r.Method = "DELETE" },
		"text":                        func(r *Request) { r.Headers["content-type"] = "text/plain" },
		"two content types":           func(r *Request) { r.Headers["content-type"] = "application/json,text/plain" },
		"no content type":             func(r *Request) { delete(r.Headers, "content-type") },
		"another method":              func(r *Request) { r.Headers["x-mcp-method"] = "prompts/get" },
		"the broker":                  func(r *Request) { r.Headers["x-mcp-servername"] = "mcpBroker" },
		"no server":                   func(r *Request) { delete(r.Headers, "x-mcp-servername") },
		"empty server":                func(r *Request) { r.Headers["x-mcp-servername"] = "" },
		"the 2026 protocol":           func(r *Request) { r.Headers["mcp-protocol-version"] = "2026-07-28" },
		"two versions":                func(r *Request) { r.Headers["mcp-protocol-version"] = "2025-06-18,2025-06-18" },
		"an unknown version":          func(r *Request) { r.Headers["mcp-protocol-version"] = "2031-01-01" },
		"another caller":              func(r *Request) { r.Token = &Token{Username: TokenPrefix + "demo:writer"} },
		"no caller":                   func(r *Request) { r.Token = nil },
		"a certificate of that name":  func(r *Request) { r.Token, r.SPIFFE = nil, reader },
		"a user with a blank":         func(r *Request) { r.Token = &Token{Username: reader + " x"} },
		"a user with a SPIFFE's name": func(r *Request) { r.Token = &Token{Username: "spiffe://td/x"} },
	} {
		r := toolCall("add")
		change(&r)
		require.False(t, p.Decide(r).Allowed, name)
	}
	r := toolCall("add")
	r.Headers["mcp-protocol-version"] = "2025-06-18"
	require.True(t, p.Decide(r).Allowed)
}

func TestBaseProtocol(t *testing.T) {
	p := onePlan(t, Rule{Source: Source{Any: true}, MCP: &MCPMatch{Base: true}})
	post := func(method string) Request {
		return Request{Method: "POST", Path: "/mcp", Headers: map[string]string{"content-type": "application/json", "x-mcp-method": method}}
	}
	for _, method := range []string{"initialize", "ping", "tools/list", "notifications/initialized", "completion/complete", "logging/setLevel"} {
		require.True(t, p.Decide(post(method)).Allowed, method)
	}
	for _, method := range []string{"", "tools/call", "notifications", "completion", "initialize2", "Initialize", "prompts/list", "initialize,tools/call"} {
		require.False(t, p.Decide(post(method)).Allowed, method)
	}
	for _, c := range []struct {
		method  string
		headers map[string]string
		want    bool
	}{
		{"GET", nil, true},
		{"DELETE", nil, false},
		{"DELETE", map[string]string{"mcp-session-id": ""}, false},
		{"DELETE", map[string]string{"mcp-session-id": "s"}, true},
		{"GET", map[string]string{"x-mcp-method": "tools/list"}, false},
		{"GET", map[string]string{"x-mcp-method": ""}, false},
		{"DELETE", map[string]string{"mcp-session-id": "s", "x-mcp-method": "initialize"}, false},
		{"PUT", nil, false},
		{"POST", nil, false},
	} {
		require.Equal(t, c.want, p.Decide(Request{Method: c.method, Path: "/mcp", Headers: c.headers}).Allowed, "%+v", c)
	}
}

func TestFirstMatchNamesTheRule(t *testing.T) {
	all := Source{Any: true}
	p := onePlan(t, Rule{Source: all, MCP: mcp(MCPMethod{Name: "tools/call", Params: []string{"other"}})}, Rule{Source: all, Methods: []string{"POST"}}, Rule{Source: all})
	d := p.Decide(toolCall("add"))
	require.True(t, d.Allowed)
	require.Equal(t, "demo/p/b", d.By.String())
	require.Nil(t, d.NearMiss)
}

func TestNearMissAndStatus(t *testing.T) {
	p := onePlan(t, Rule{Source: Source{Principals: []string{TokenPrefix + "demo:writer"}}},
		Rule{Source: Source{Principals: []string{reader}}, MCP: mcp(MCPMethod{Name: "tools/call", Params: []string{"add"}})})
	d := p.Decide(toolCall("delete_database"))
	require.Equal(t, Decision{Status: 403, Reason: "no rule grants this request",
		NearMiss: &NearMiss{Origin: p.Rules[1].Origin, Why: "the MCP call tools/call on \"delete_database\" is not in its mcp section"}}, d)
	r := toolCall("add")
	r.Token = nil
	require.Equal(t, 401, p.Decide(r).Status)
	r.SPIFFE = "spiffe://td/x"
	require.Equal(t, 401, p.Decide(r).Status, "no rule asks for a certificate, so it is not looked at")
}

func TestRefusalsComeFirst(t *testing.T) {
	p := onePlan(t, Rule{Source: Source{Any: true}})
	p.Refusals = []Refusal{{Origin: Origin{Policy: types.NamespacedName{Namespace: "demo", Name: "ext"}},
		Rules: []Rule{{Source: Source{Any: true}, MCP: mcp(MCPMethod{Name: "tools/call", Params: []string{"delete"}})}}}}
	require.True(t, p.Decide(toolCall("add")).Allowed)
	for name, change := range map[string]func(*Request){
		"the call":                func(*Request) {},
		"forged as text":          func(r *Request) { r.Headers["content-type"] = "text/plain" },
		"forged as GET":           func(r *Request) { r.Method = "GET" },
		"through the broker":      func(r *Request) { r.Headers["x-mcp-servername"] = "mcpBroker" },
		"a joined tool":           func(r *Request) { r.Headers["x-mcp-toolname"] = "add,delete" },
		"a joined method":         func(r *Request) { r.Headers["x-mcp-method"] = "ping,tools/call" },
		"a tool that is not told": func(r *Request) { delete(r.Headers, "x-mcp-toolname") },
	} {
		r := toolCall("delete")
		change(&r)
		d := p.Decide(r)
		require.False(t, d.Allowed, name)
		require.Equal(t, "demo/ext", d.By.String(), name)
	}
}
