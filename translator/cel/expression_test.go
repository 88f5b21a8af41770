package cel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/ast"
	"github.com/stretchr/testify/require"
)

// testEngine spells every name as one identifier that no user can write.
var testEngine = Engine{
	Method: "E_method", Path: "E_path", URLPath: "E_url_path", Host: "E_host", Time: "timestamp(E_seconds)",
	MCPMethod: "E_mcp_method", Tool: "E_tool", Prompt: "E_prompt", Server: "E_server", ResourceURI: "E_uri",
	Principal: "E_principal", Identity: "E_identity",
	HeaderValue: func(n string) string {
		return fmt.Sprintf("(%s in E_headers ? E_headers[%s] : '')", Quote(n), Quote(n))
	},
	HeaderPresent: func(n string) string { return Quote(n) + " in E_headers" },
}

func TestRenderRewritesTheTree(t *testing.T) {
	for source, want := range map[string]string{
		`request.mcp.tool_name == 'add'`: `E_tool == "add"`,
		// a name inside a string stays what it is
		`request.mcp.tool_name == 'request.mcp.tool_name'`: `E_tool == "request.mcp.tool_name"`,
		`request.headers['X-Team'] == 'blue'`:              `(("x-team" in E_headers) ? (E_headers["x-team"]) : "") == "blue"`,
		`request.headers.team == 'blue'`:                   `(("team" in E_headers) ? (E_headers["team"]) : "") == "blue"`,
		`has(request.headers.team)`:                        `"team" in E_headers`,
		`'x-team' in request.headers`:                      `"x-team" in E_headers`,
		// iteration variables are renamed, so they cannot capture a name of the emitter
		`['a'].exists(t, t == request.mcp.tool_name)`:             `["a"].exists(v0, v0 == E_tool)`,
		`['a'].exists(E_tool, E_tool == request.host)`:            `["a"].exists(v0, v0 == E_host)`,
		`request.path.split('/').filter(h, h != '') == []`:        `E_path.split("/").filter(v0, v0 != "") == []`,
		`['a'].map(x, x == request.host)[0]`:                      `["a"].map(v0, v0 == E_host)[0]`,
		`auth.identity.user.groups.exists(g, g == 'ops')`:         `E_identity.user.groups.exists(v0, v0 == "ops")`,
		`has(auth.identity.user)`:                                 `has(E_identity.user)`,
		`source.principal == 'x' || !(request.method in ['GET'])`: `E_principal == "x" || !(E_method in ["GET"])`,
		`request.time < timestamp('2027-01-01T00:00:00Z')`:        `timestamp(E_seconds) < timestamp("2027-01-01T00:00:00Z")`,
		`(true ? 1 : 2) - (1 - 2) == 2`:                           `(true ? 1 : 2) - (1 - 2) == 2`,
	} {
		e, err := Compile(source, Vocabulary{})
		require.NoError(t, err, source)
		got, err := e.Render(testEngine)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

func TestCompileRefuses(t *testing.T) {
	vocab := Vocabulary{
		ForbiddenHeader: func(name string) string {
			if name == "authorization" {
				return "it carries a credential"
			}
			return ""
		},
		Unavailable: map[string]string{"request.mcp.resource_uri": "the profile has no header for it"},
	}
	for source, want := range map[string]string{
		``:                                                             "empty",
		` `:                                                            "empty",
		`request.unrecognized == 'x'`:                                  "undeclared reference",
		`request.mcp.tool_name_x == ''`:                                "undeclared reference",
		`metadata.x == 1`:                                              "undeclared reference",
		`1 + 'a' == 2`:                                                 "no matching overload",
		`request.mcp.tool_name`:                                        "must give bool",
		`request.mcp.resource_uri == 'x'`:                              "has no header",
		`request.headers['Authorization'] == ''`:                       "credential",
		`request.headers.authorization == ''`:                          "credential",
		`'authorization' in request.headers`:                           "credential",
		`request.headers[request.method] == ''`:                        "literal name",
		`request.headers[':path'] == '/'`:                              "not a header name",
		`request.headers.exists(h, h == 'x')`:                          "one header at a time",
		`size(request.headers) > 0`:                                    "one header at a time",
		`request.headers == {'a': 'b'}`:                                "one header at a time",
		`['a'].exists(request, request == 'a')`:                        "hides a name",
		`.request.method == 'GET'`:                                     "not part of the vocabulary",
		`'a'.replace('a', 'b') == 'b'`:                                 `"replace" is not part`,
		`['a'].join(',') == 'a'`:                                       `"join" is not part`,
		`type(1) == int`:                                               "is not part",
		`[1].exists(x, [2].exists(y, x == y))`:                         "inside another",
		`['a'].exists(x, x + 'b' == 'ab')`:                             "inside a comprehension",
		`['a'].exists(x, x.matches('b'))`:                              "inside a comprehension",
		`request.method.matches(request.host)`:                         "must be a literal",
		`request.method.matches('(.{0,999}){1,1}.{0,999}')`:            "instructions",
		"auth.identity.`a-b` == 'x'":                                   "a",
		`request.method.matches('[')`:                                  "invalid matches argument",
		`timestamp('yesterday') < request.time`:                        "invalid timestamp",
		`request.method ==`:                                            "Syntax error",
		`google.protobuf.Struct{} == google.protobuf.Struct{}`:         "only names",
		strings.Repeat("!(", 300) + "true" + strings.Repeat(")", 300):  "recursion",
		strings.Repeat("(", 5000) + "true" + strings.Repeat(")", 5000): "code points",
		"true" + strings.Repeat(" || true", 1000):                      "parts",
	} {
		_, err := Compile(source, vocab)
		require.Error(t, err, "%.60s", source)
		require.Contains(t, err.Error(), want, "%.60s", source)
		require.NotContains(t, err.Error(), "\n", "%.60s", source)
	}
}

func TestEval(t *testing.T) {
	in := Input{
		Method: "POST", Path: "/mcp?a=b", URLPath: "/mcp", Host: "mcp.example.com", MCPMethod: "tools/call", Tool: "add",
		Principal: "system:serviceaccount:demo:reader", Headers: map[string]string{"x-team": "blue"},
		Identity: map[string]any{"user": map[string]any{"groups": []string{"ops"}}},
		Time:     time.Date(2026, 1, 1, 0, 0, 0, 500, time.UTC),
	}
	for source, want := range map[string]bool{
		`request.mcp.tool_name.startsWith('ad')`:                       true,
		`request.headers['x-team'] == 'blue'`:                          true,
		`request.headers['x-none'] == ''`:                              true,
		`'x-none' in request.headers`:                                  false,
		`has(request.headers.missing)`:                                 false,
		`request.mcp.prompt_name == '' && request.mcp.method != ''`:    true,
		`auth.identity.user.groups.exists(g, g == 'ops')`:              true,
		`source.principal.endsWith(':reader')`:                         true,
		`request.time == timestamp('2026-01-01T00:00:00Z')`:            true,
		`request.url_path == '/mcp' && request.path == '/mcp?a=b'`:     true,
		`request.host == 'mcp.example.com' && request.method != 'GET'`: true,
	} {
		e, err := Compile(source, Vocabulary{})
		require.NoError(t, err, source)
		got, err := e.Eval(in)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

func TestEvalErrors(t *testing.T) {
	for _, source := range []string{`auth.identity.missing == 'x'`, `request.path.split('/')[9] == 'x'`,
		`request.time < timestamp('2027-01-01T00:00:00Z')`, `1 / (size(request.host) - size(request.host)) == 1`} {
		e, err := Compile(source, Vocabulary{})
		require.NoError(t, err, source)
		got, err := e.Eval(Input{Identity: map[string]any{}})
		require.Error(t, err, source)
		require.False(t, got, source)
	}
}

func TestUses(t *testing.T) {
	e, err := Compile(`request.headers['X-B'] == request.headers['x-a'] && source.principal != '' && request.url_path == '/' && 'x-b' in request.headers`, Vocabulary{})
	require.NoError(t, err)
	require.Equal(t, Uses{Path: true, Principal: true, Headers: []string{"x-a", "x-b"},
		Features: []Feature{FeatureLogic, FeatureComparison, FeatureMembership}}, e.Uses())
}

// Whatever compiles renders to text in which no name is left that the engine did not put there, and nothing panics.
func FuzzCompile(f *testing.F) {
	for _, s := range hostileStrings {
		f.Add("request.mcp.tool_name == " + Quote(s))
		f.Add(s)
	}
	for _, s := range []string{`['a'].exists(x, x == request.host)`, `has(auth.identity.a)`, `request.headers['a'] == "b"`, `{'a': b'x'} == {}`, `[?1] == []`, `1.5 > 2e3 ? true : !false`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		e, err := Compile(source, Vocabulary{})
		if err != nil {
			return
		}
		text, err := e.Render(testEngine)
		if err != nil {
			t.Fatalf("%q compiles but does not render: %v", source, err)
		}
		if names := names(t, text); slices.ContainsFunc(names, func(n string) bool { return slices.Contains(roots, n) || strings.HasPrefix(n, "ap_") }) {
			t.Fatalf("%q rendered to %q, which reads %v", source, text, names)
		}
		_, _ = e.Eval(Input{Headers: map[string]string{}, Identity: map[string]any{}})
	})
}

// names returns the identifiers that stand in a text.
func names(t *testing.T, text string) []string {
	t.Helper()
	parsed, issues := syntaxEnv.Parse(text)
	require.NoError(t, issues.Err())
	var out []string
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			out = append(out, e.AsIdent())
		}
	}))
	return out
}
