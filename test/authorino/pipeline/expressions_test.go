package pipeline

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// value evaluates an expression in Authorino, as part of a response.
func value(t *testing.T, expression string, request Request) (any, bool) {
	t.Helper()

	result := check(t, withRules(t, anyone+"response: {success: {filters: {value: {plain: {expression: "+quoted(expression)+"}}}}}"), request)
	wants(t, result, "allowed")
	got, found := result.Metadata["value"]

	return got, found
}

func TestAttributes(t *testing.T) {
	moment := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	request := post("X-Mixed", "a", "x-mixed", "b", "user-agent", "agent", "x-request-id", "r-1")
	request.Path, request.Time, request.Host = "/mcp/a%2fb?x=1&y=%2f", &moment, "tools.example.com:8443"
	request.Principal = "spiffe://example.org/ns/shop/sa/teller"

	shared := map[string]any{
		"request.method":             "POST",
		"request.path":               "/mcp/a%2fb?x=1&y=%2f",
		"request.url_path":           "/mcp/a/b", // decoded, unlike Envoy's attribute of this name
		"request.query":              "x=1&y=%2f",
		"request.host":               "tools.example.com:8443",
		"request.scheme":             "http",
		"request.protocol":           "HTTP/1.1",
		"request.id":                 "r-1",
		"request.user_agent":         "agent",
		"request.time":               map[string]any{"seconds": float64(moment.Unix())}, // not a timestamp
		"has(request.size)":          false,
		"has(request.body)":          false,
		"request.headers['x-mixed']": "a,b",
		"metadata":                   map[string]any{},
		"auth":                       map[string]any{"identity": map[string]any{"anonymous": true}},
		"has(auth.authorization)":    false,
		"source.port":                40001.0,
		"timestamp(int(request.time.seconds)).getFullYear()": 2031.0,
		"request.headers": map[string]any{
			":method": "POST", ":authority": "tools.example.com:8443", ":path": "/mcp/a%2fb?x=1&y=%2f", ":scheme": "http",
			"content-type": "application/json", "x-mixed": "a,b", "user-agent": "agent", "x-request-id": "r-1",
		},
	}
	own := map[Shape]map[string]any{
		ShapeEnvoy: {
			"source.address": "192.0.2.7", "source.principal": "spiffe://example.org/ns/shop/sa/teller", "destination.address": "192.0.2.1",
		},
		ShapeWasmShim: {
			"source.address": "192.0.2.7:40001", "has(source.principal)": false, "destination.address": "192.0.2.1:8080",
		},
	}

	for shape, more := range own {
		request.Shape = shape

		for _, expected := range []map[string]any{shared, more} {
			for expression, want := range expected {
				if got, _ := value(t, expression, request); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s: got %#v, want %#v", shape, expression, got, want)
				}
			}
		}
	}
}

func TestAttributesThatErr(t *testing.T) {
	for _, expression := range []string{
		"request.headers['X-Mixed']", "request.headers['host']", "timestamp(request.time)", "size(auth.authorization)",
		"source.principal", "request.size", "auth.metadata",
	} {
		if got, found := value(t, expression, post("X-Mixed", "a")); found {
			t.Errorf("%s: got %v, want an error", expression, got)
		}
	}
}

// A double slash makes the first segment an authority, which url_path leaves out.
func TestURLPathIsNotThePath(t *testing.T) {
	request := post()
	request.Path = "//admin/mcp"

	if got, _ := value(t, "request.url_path", request); got != "/mcp" {
		t.Errorf("got %v", got)
	}
}

func TestFunctions(t *testing.T) {
	for expression, want := range map[string]any{
		"'abc'.matches('b')": true, "'aB'.lowerAscii()": "ab", "'aB'.upperAscii()": "AB", "'a,b'.split(',')": []any{"a", "b"},
		"['a','b'].filter(x, x == 'b')": []any{"b"}, "'abc'.substring(1)": "bc", "'abc'.indexOf('c')": 2.0,
		"'aba'.lastIndexOf('a')": 2.0, "'abc'.replace('a', 'x')": "xbc", "['a','b'].join('-')": "a-b", "' a '.trim()": "a",
		"'abc'.charAt(1)": "b", "[1, 2].exists(x, x == 2)": true, "[1, 2].all(x, x > 1)": false, "[1, 2].map(x, x + 1)": []any{2.0, 3.0},
		"request.headers[?'x-absent'].orValue('none')": "none", "auth.?identity.?principal.orValue('none')": "none",
		"string(1.0)": "1", "has(request.headers)": true, "'x-absent' in request.headers": false, "duration('90s')": "90s",
	} {
		if got, found := value(t, expression, post()); !found || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, want %#v", expression, got, want)
		}
	}
}

// Limits of the parser: what is past them is refused when the AuthConfig is loaded, so
// everybody is denied.
func TestLimitsOfExpressions(t *testing.T) {
	const sizeLimit = 100_000

	filler := func(size int) string {
		frame := "true || '' == ''"

		return strings.Replace(frame, "''", "'"+strings.Repeat("é", size-len(frame))+"'", 1)
	}
	nested := func(depth int) string {
		expression := "true"
		for level := range depth {
			expression = fmt.Sprintf("[1].exists(x%d, %s)", level, expression)
		}

		return expression
	}

	for name, test := range map[string]struct {
		accepted, refused, message string
	}{
		"code points": {filler(sizeLimit), filler(sizeLimit + 1), "expression code point size exceeds limit: size: 100001, limit 100000"},
		"ternaries": {
			strings.Repeat("request.method == 'x' ? false : ", 248) + "true",
			strings.Repeat("request.method == 'x' ? false : ", 249) + "true", "recursion",
		},
		"ternaries in parentheses": {
			strings.Repeat("(request.method == 'x' ? false : ", 124) + "true" + strings.Repeat(")", 124),
			strings.Repeat("(request.method == 'x' ? false : ", 125) + "true" + strings.Repeat(")", 125), "recursion",
		},
		"nested exists": {nested(249), nested(250), "recursion"},
		"sums":          {strings.Repeat("'a' + ", 249) + "'a' != ''", strings.Repeat("'a' + ", 250) + "'a' != ''", "recursion"},
		// A chain of || is no nesting, however long; but compiling it takes time that
		// grows with the square of its length.
		"alternatives": {strings.Repeat("request.path == 'x' || ", 1000) + "true", strings.Repeat("request.path == 'x' || ", 4400) + "true", "code point size"},
	} {
		t.Run(name, func(t *testing.T) {
			wants(t, check(t, withRules(t, matching(test.accepted)), post()), "allowed")

			judge := loaded(t, World{AuthPolicies: documents(t, gatewayPolicy(matching(test.refused)))})
			if config := judge.AuthConfigs()[0]; config.Ready || !strings.Contains(config.Error, test.message) {
				t.Errorf("got %+v, want it refused for %q", config, test.message)
			}

			wants(t, check(t, judge, post()), "404")
		})
	}
}

func TestLongLists(t *testing.T) {
	wants(t, check(t, withRules(t, matching("'last' in ["+strings.Repeat("'tool',", 10_000)+"'last']")), post()), "allowed")
}
