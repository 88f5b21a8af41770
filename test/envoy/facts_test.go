package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/requests"
)

// What Envoy 1.39 makes of an expression that Envoy Gateway parsed. The emitter relies on the first two columns and keeps
// away from what is refused; where this test fails, the ledger has to be read again.
const (
	holds   = "holds"
	fails   = "does not hold"
	refused = "Envoy refuses the configuration"
)

// expressions are evaluated for a POST to /mcp?x=/y with the header x-team: blue.
var expressions = []struct{ text, want string }{
	{`request.method == 'POST'`, holds},
	{`request.url_path == '/mcp'`, holds},
	{`request.path == '/mcp?x=/y'`, holds},
	{`request.host == 'Mcp.Example.com:80'`, holds},
	{`request.headers['x-team'] == 'blue'`, holds},
	{`'x-team' in request.headers`, holds},
	{`!('x-other' in request.headers)`, holds},
	{`request.headers['x-other'] == ''`, fails}, // an error
	{`request.headers['x-other'] != ''`, fails},
	{`!(request.headers['x-other'] == 'a')`, fails},
	{`request.headers['x-other'] == 'a' || true`, holds}, // which an alternative that holds makes up for
	{`true || request.headers['x-other'] == 'a'`, holds},
	{`false && request.headers['x-other'] == 'a'`, fails},
	{`('x-other' in request.headers ? request.headers['x-other'] : '') == ''`, holds},
	{`request.headers['x-team'] in ['red', 'blue']`, holds},
	{`request.headers['x-team'].startsWith('bl') && request.headers['x-team'].endsWith('ue') && request.headers['x-team'].contains('lu')`, holds},
	{`request.headers['x-team'].matches('l')`, holds}, // a part is enough
	{`request.headers['x-team'].matches('^BLUE$')`, fails},
	{`request.headers['x-team'].matches('^(?i)BLUE$')`, holds},
	{`size(request.headers['x-team']) == 4 && request.headers['x-team'].size() == 4`, holds},
	{`2 + 3 * 4 - 6 / 2 == 11 && 7 % 4 == 3 && -1 < 0 && 1.5 + 1.5 == 3.0`, holds},
	{`int('5') == 5 && double('1.5') == 1.5 && uint(3) == 3u`, holds},
	{`bool('true')`, holds},
	{`request.time > timestamp('2026-01-01T00:00:00Z')`, holds},
	{`request.time - duration('24h') < request.time`, holds},
	{`request.time.getFullYear() >= 2026 && request.time.getMonth() >= 0 && request.time.getDate() >= 1 && request.time.getDayOfWeek() >= 0`, holds},
	{`request.time.getHours() >= 0 && request.time.getMinutes() >= 0 && request.time.getSeconds() >= 0 && request.time.getDayOfYear() >= 0`, holds},
	{`{'blue': true}[request.headers['x-team']]`, holds},
	{`[false, true][1]`, holds},
	{`'\u00e9' == 'é' && '\'' == "'"`, holds},
	{`connection.mtls`, fails},
	{`connection.mtls && connection.uri_san_peer_certificate == 'spiffe://a/b'`, fails},
	{`request.headers['x-team'].matches('` + strings.Repeat("a", 94) + `')`, fails}, // 100 instructions
	{`request.headers['x-team'].matches('` + strings.Repeat("a", 97) + `')`, refused},
	{strings.Repeat("1 + ", 60) + "1 > 0", refused},
	{`['a', 'blue'].exists(x, x == request.headers['x-team'])`, refused},
	{`['blue'].all(x, x == request.headers['x-team'])`, refused},
	{`request.headers['x-team'] + 'x' == 'bluex'`, fails},
	{`string(5) == '5'`, refused},
	{`request.headers['x-team'].lowerAscii() == 'blue'`, refused},
	{`request.headers['x-team'].split('l').size() == 2`, refused},
	{`request.headers['x-team'].substring(1) == 'lue'`, refused},
}

// nested expressions are repeated until they are as deep as the emitter writes them.
var nested = []struct{ begin, inside, end, compare, want string }{
	{"(true && (false || ", "true", "))", "", holds},
	{"(true ? ", "true", " : false)", "", holds},
	{"false ? true : (", "true", ")", "", holds},
	{"(true == ", "true", ")", "", holds},
	{"(1 + ", "1", ")", " > 0", holds},
	{"1 + ", "1", "", " > 0", holds},
	{"[", "1", "]", " == []", fails},
	{"{1: ", "1", "}", " == {}", fails},
	{"", "request.headers['x-team']", ".size()", " == 4", fails}, // a number has no size
}

// TestExpressions gives each expression a listener of its own. Those that Envoy refuses come last, one after the other on
// one listener. TestRefusedConfiguration is about what that does to others.
func TestExpressions(t *testing.T) {
	expressions := expressions
	for _, n := range nested {
		text := longest(t, envoygateway.MaxNesting, cel.Nesting, func(depth int) string {
			return strings.Repeat(n.begin, depth) + n.inside + strings.Repeat(n.end, depth) + n.compare
		})
		expressions = append(expressions, struct{ text, want string }{text, n.want})
	}
	w := newWorld(t)
	w.Apply(t, stack.Namespace(facts))
	ports := map[string]string{"last": stack.FreeAddress(t)}
	listeners := []any{map[string]any{"name": "last", "port": port(ports["last"]), "protocol": "HTTP"}}
	w.Apply(t, expressionPolicy("last", `true`))
	for i, e := range expressions {
		if e.want == refused {
			continue
		}
		ports[e.text] = stack.FreeAddress(t)
		listener := fmt.Sprintf("l%d", i)
		listeners = append(listeners, map[string]any{"name": listener, "port": port(ports[e.text]), "protocol": "HTTP"})
		w.Apply(t, expressionPolicy(listener, e.text))
	}
	w.routes(t, facts, facts)
	w.Apply(t, stack.Object("gateway.networking.k8s.io/v1", "Gateway", facts, facts, map[string]any{"gatewayClassName": class, "listeners": listeners}))
	w.envoy = w.StartEnvoyOfClass(t, class)
	w.listening(t, ports)
	time.Sleep(3 * time.Second) // the last routes may still be on their way
	w.notRejected(t)
	for _, e := range expressions {
		if e.want != refused {
			assert.Equal(t, e.want, try(ports[e.text]), "%s", e.text)
		}
	}
	for _, e := range expressions {
		if e.want == refused {
			w.refuses(t, ports["last"], e.text)
		}
	}
}

const facts = "facts"

// expressionPolicy allows on a listener what an expression allows.
func expressionPolicy(listener, text string) *unstructured.Unstructured {
	return stack.Object("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", facts, listener, map[string]any{
		"targetRefs":    []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": facts, "sectionName": listener}},
		"authorization": map[string]any{"defaultAction": "Deny", "rules": []any{map[string]any{"action": "Allow", "cel": text}}},
	})
}

// refuses checks that Envoy does not take a configuration with an expression, that what was in force stays, and that Envoy
// Gateway does not know.
func (w *world) refuses(t *testing.T, address, text string) {
	t.Helper()
	before, _, err := w.envoy.Rejected(t.Context())
	require.NoError(t, err)
	policy := expressionPolicy("last", text)
	w.Apply(t, policy)
	eventually(t, "Envoy refuses "+text, func(ctx context.Context) error {
		rejected, _, err := w.envoy.Rejected(ctx)
		if err == nil && rejected == before {
			err = errors.New("it does not")
		}
		return err
	})
	assert.Equal(t, holds, try(address), "%s", text)
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	assert.NoError(t, acceptedBy(policy), "%s", text)
	w.Apply(t, expressionPolicy("last", `true`))
	time.Sleep(time.Second)
}

// try sends the request that the expressions speak of.
func try(address string) string {
	path, host := "/mcp?x=/y", "Mcp.Example.com:80"
	a, err := dial(address, requests.Request{HTTP: requests.HTTP{Path: &path, Host: &host, Headers: map[string]string{"x-team": "blue"}}})
	switch {
	case err != nil:
		return err.Error()
	case a.allowed():
		return holds
	case a.denied():
		return fails
	}
	return fmt.Sprintf("status %d", a.status)
}
