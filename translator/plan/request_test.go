package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCleanPath(t *testing.T) {
	for target, want := range map[string]string{
		"/mcp": "/mcp", "/mcp?x=/../": "/mcp", "/": "/", "/a/.hidden": "/a/.hidden", "/a..b": "/a..b", "/a%20b": "/a%20b", "/...": "/...",
		"": "", "*": "", "mcp": "", "?a": "", "http://x/mcp": "",
		"/a%2fb": "", "/a%2Fb": "", `/a\b`: "", "/a%5cb": "", "/a%5Cb": "", "/a%00": "", "//": "", "/a//b": "",
		"/./a": "", "/a/.": "", "/..": "", "/a/../b": "", "/a/%2e/b": "", "/a/%2E%2e/b": "", "/a/.%2e": "", "/a/%2e.": "", "/a/..;/b": "", "/a/..%3Bx/b": "", "/a/.;": "",
	} {
		require.Equal(t, want, CleanPath(target), target)
	}
}

func TestCleanHost(t *testing.T) {
	for authority, want := range map[string]string{
		"mcp.example.com": "mcp.example.com", "MCP.Example.com:8443": "mcp.example.com", "mcp.example.com:": "mcp.example.com:",
		"a:1:2": "a:1", "[::1]:80": "[::1]", "mcp.example.com.": "", "mcp.example.com.:80": "", "": "", ":80": "", "a:b": "a:b",
	} {
		require.Equal(t, want, CleanHost(authority), authority)
	}
}

func TestJSONContentType(t *testing.T) {
	for value, want := range map[string]bool{
		"application/json": true, "Application/JSON": true, "application/json;charset=utf-8": true, "application/json; charset=utf-8": true,
		"": false, "application/jsonx": false, "application/json ;x": false, "text/plain;x=application/json": false,
		"application/json,application/json": false, "application/json;a,b": false, "application/vnd+json": false,
	} {
		require.Equal(t, want, JSONContentType(value), value)
	}
}

func TestForwardedID(t *testing.T) {
	const id = "spiffe://td.example/ns/demo/sa/reader"
	for header, want := range map[string]string{
		"URI=" + id: id,
		`By=spiffe://td.example/gw;Hash=00ff;Subject="CN=a,O=b";URI=` + id: id,
		`By=spiffe://td.example/gw;URI=` + id + `;DNS=reader.example`:      id,
		"":                              "",
		"By=" + id:                      "",
		"URI=" + id + ",URI=" + id:      "",
		"URI=" + id + ";URI=" + id:      "",
		`Subject="CN=x;URI=` + id + `"`: "",
		`Subject="x;URI=` + id + `";URI=spiffe://td.example/other`:    "",
		`Subject="x\";URI=` + id + `;";URI=spiffe://td.example/other`: "",
		`Subject="x` + `;URI=` + id:                                   "",
		`Evil=1;URI=` + id:                                            "",
		`uri=` + id:                                                   "",
		`URI="` + id + `"`:                                            "",
		`URI=https://example.com`:                                     "",
		`URI=spiffe://TD.example/x`:                                   "",
		`Hash=a=b;URI=` + id:                                          "",
		`;URI=` + id:                                                  "",
		`URI=` + id + `;`:                                             "",
	} {
		require.Equal(t, want, ForwardedID(header), header)
	}
}

func TestSelect(t *testing.T) {
	plans := []Plan{{Listener: "any"}, {Listener: "wide", Host: "*.example.com"}, {Listener: "narrow", Host: "*.b.example.com"}, {Listener: "exact", Host: "mcp.example.com"}, {}}
	for host, want := range map[string]string{
		"mcp.example.com": "exact", "MCP.example.com:8443": "exact", "a.example.com": "wide", "x.b.example.com": "narrow", "b.example.com": "wide",
		"example.com": "any", "other.test": "any",
	} {
		require.Equal(t, want, Select(plans, "", host).Listener, host)
	}
	require.Equal(t, "wide", Select(plans, "wide", "other.test").Listener)
	require.Equal(t, "", Select(plans, "new", "other.test").Listener, "a listener without a plan of its own has the Gateway's")
	require.Nil(t, Select([]Plan{{Listener: "exact", Host: "mcp.example.com"}}, "", "other.test"))
}
