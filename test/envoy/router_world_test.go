package envoy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// What the router of mcp-gateway is told of the one server that it federates.
const (
	publicHost = "mcp.example.test" // which the router sets, whatever the client says
	clientHost = "h.example"
	serverHost = "calc.example.test"
	serverName = "demo/calc"
	toolPrefix = "calc_"
)

// routedSite is a Gateway whose requests go through the router of an mcp-gateway of its own before the rules look at them.
type routedSite struct {
	*site
	address string
	// objects are those of docs/headers.md by their kind.
	objects map[string]*unstructured.Unstructured
	// session is the gateway session of a client that answers questions.
	session string
}

// routedWorld is a world whose Envoy logs what the rules saw of each request.
type routedWorld struct {
	*world
	mcpServer string // address
	accessLog string // file
	sent      int
}

// logHeaders are the headers in the access log. No filter changes them behind the router, so what Envoy logs is what the
// rules saw.
var logHeaders = []string{"x-mcp-method", "x-mcp-toolname", "x-mcp-promptname", "x-mcp-resourceuri", "x-mcp-servername",
	plan.HeaderContentType, plan.HeaderSession, plan.HeaderProtocolVersion}

// headerTry marks a request, and the requests that the router makes on its behalf.
const headerTry = "x-try"

func newRoutedWorld(t *testing.T) *routedWorld {
	t.Helper()
	w := &routedWorld{world: newWorld(t), accessLog: filepath.Join(t.TempDir(), "access.log")}
	format := map[string]any{"try": "%REQ(" + headerTry + ")%", "agent": "%REQ(user-agent)%", "status": "%RESPONSE_CODE%",
		"details": "%RESPONSE_CODE_DETAILS%", "method": "%REQ(:method)%", "host": "%REQ(:authority)%", "path": "%REQ(:path)%"}
	for _, name := range logHeaders {
		format[name] = "%REQ(" + name + ")%"
	}
	w.Apply(t, sharedProxy(map[string]any{"telemetry": map[string]any{"accessLog": map[string]any{"settings": []any{map[string]any{
		"format": map[string]any{"type": "JSON", "json": format},
		"sinks":  []any{map[string]any{"type": "File", "file": map[string]any{"path": w.accessLog}}},
	}}}}}))
	w.mcpServer = onUpstreamAddress(stack.FreeAddress(t))
	w.StartMCPServer(t, w.mcpServer)
	return w
}

func onUpstreamAddress(address string) string {
	return fmt.Sprintf("%s:%d", upstreamAddress, port(address))
}

// addBehindRouter makes a Gateway with the policies of testdata/router. Where strips is set, Envoy removes the x-mcp-* headers
// that clients send before the router sees a request.
func (w *routedWorld) addBehindRouter(t *testing.T, name string, strips bool) *routedSite {
	t.Helper()
	s := &routedSite{}
	s.site = w.addRouted(t, name, policiesForRouter(t), func(added *site, gateway string) {
		s.address = added.ports["http"]
		mcpGateway := w.StartMCPGateway(t, upstreamAddress, publicHost, s.address, "",
			stack.MCPServer{Name: serverName, URL: "http://" + w.mcpServer + "/mcp", Hostname: serverHost, Prefix: toolPrefix, State: "Enabled"})
		const broker, server, router = "broker", "server", "broker-router"
		w.Apply(t, backendAt(added.namespace, broker, mcpGateway.Broker), routeTo(added.namespace, gateway, broker),
			backendAt(added.namespace, server, w.mcpServer), routeTo(added.namespace, gateway, server, serverHost),
			backendAt(added.namespace, router, mcpGateway.Router))
		s.objects = ofPage(t, added.namespace)
		w.Apply(t, s.objects["EnvoyExtensionPolicy"], s.objects["EnvoyPatchPolicy"])
		if strips {
			w.Apply(t, s.objects["ClientTrafficPolicy"])
		}
	})
	return s
}

func policiesForRouter(t *testing.T) *requests.Case {
	t.Helper()
	const path = "testdata/router/in.yaml"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	c := &requests.Case{Set: manifest.Set{}, File: &requests.File{}}
	require.NoError(t, c.Set.Add(path, text))
	settings, err := requests.ParseSettings(nil)
	require.NoError(t, err)
	c.Options, err = settings.Options()
	require.NoError(t, err)
	return c
}

// headersPage has the objects that are tried, and the table of what came out.
const headersPage = "../../docs/headers.md"

// ofPage are the objects of docs/headers.md, in a namespace and for one Envoy that Gateways share. That the page's Gateway and
// backend have the names of those here is how they fit.
func ofPage(t *testing.T, namespace string) map[string]*unstructured.Unstructured {
	t.Helper()
	page, err := os.ReadFile(headersPage)
	require.NoError(t, err)
	out := map[string]*unstructured.Unstructured{}
	for i, block := range strings.Split(string(page), "```") {
		text, ok := strings.CutPrefix(block, "yaml\n")
		if i%2 == 0 || !ok {
			continue
		}
		for _, one := range strings.Split(text, "---\n") {
			u := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(one, "demo/prod/", namespace+"/prod/")), &u.Object), one)
			u.SetNamespace(namespace)
			out[u.GetKind()] = u
		}
	}
	require.NoError(t, unstructured.SetNestedMap(out["EnvoyPatchPolicy"].Object,
		map[string]any{"group": "gateway.networking.k8s.io", "kind": "GatewayClass", "name": class}, "spec", "targetRef"))
	return out
}

// serveRouted starts Envoy and waits until everything is in force.
func (w *routedWorld) serveRouted(t *testing.T, sites ...*routedSite) {
	t.Helper()
	var plain []*site
	for _, s := range sites {
		plain = append(plain, s.site)
	}
	w.serve(t, plain)
	for _, s := range sites {
		for _, kind := range []string{"EnvoyExtensionPolicy", "EnvoyPatchPolicy"} {
			u := s.objects[kind]
			eventually(t, s.name+": "+kind+" is accepted", func(ctx context.Context) error {
				if err := w.Client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
					return err
				}
				return acceptedBy(u)
			})
		}
	}
	time.Sleep(3 * time.Second) // the last routes may still be on their way
	w.notRejected(t)
	for _, s := range sites {
		s.session = w.newSession(t, s)
	}
}

// newSession opens a session with the broker, for a client that answers questions.
func (w *routedWorld) newSession(t *testing.T, s *routedSite) string {
	t.Helper()
	response, err := post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}}`,
		"authorization: Bearer "+w.token(t, reader, audience)).open(s.address, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	session := response.Header.Get(plan.HeaderSession)
	require.NotEmpty(t, session, "initialize: %s", response.Status)
	return session
}

// post is a request of an MCP client.
func post(body string, headers ...string) call {
	return call{line: "POST /mcp", body: body, headers: append([]string{"content-type: application/json",
		"accept: application/json, text/event-stream"}, headers...)}
}

// logged is a request as the rules saw it, and what became of it.
type logged struct {
	plan.Request
	try, details string
	status       int
	// hairpin is set for a request that the router made.
	hairpin bool
}

// Verdicts.
const (
	allows = "allowed"
	denies = "denied"
	// answersItself is set where the router does not let the request go on to the rules.
	answersItself = "the router answers"
	// breaksRefusal is set where Envoy refused the request before the router saw it. The router is then asked about the answer
	// alone, takes that for a fault, and makes a 500 of the 401.
	breaksRefusal = "refused without a token, as 500"
)

// verdict is what the rules said.
func (l logged) verdict() string {
	switch {
	case l.details == "via_upstream", l.details == "downstream_remote_disconnect" && l.status == http.StatusOK: // a stream
		return allows
	case strings.HasPrefix(l.details, "rbac_access_denied"), strings.HasPrefix(l.details, "jwt_authn_access_denied"), l.details == "ext_authz_denied":
		return denies
	case l.status == http.StatusInternalServerError && l.Host == clientHost:
		return breaksRefusal
	}
	return answersItself
}

const mcpPrefix = "x-mcp-"

// mcpHeaders are the x-mcp-* headers that the rules saw, as a text without that prefix.
func (l logged) mcpHeaders() string {
	var out []string
	for _, name := range logHeaders {
		if value, sent := l.Headers[name]; sent && strings.HasPrefix(name, mcpPrefix) {
			out = append(out, strings.TrimPrefix(name, mcpPrefix)+"="+value)
		}
	}
	return strings.Join(out, " ")
}

// beside are the names of the x-mcp-* headers that the rules saw here and not there. Where both have one, it must be the same.
func (l logged) beside(t *testing.T, other logged) string {
	t.Helper()
	var out []string
	for _, name := range logHeaders {
		value, sent := l.Headers[name]
		if !strings.HasPrefix(name, mcpPrefix) {
			continue
		}
		if was, there := other.Headers[name]; there {
			assert.Equal(t, was, value, name)
		} else if sent {
			out = append(out, strings.TrimPrefix(name, mcpPrefix))
		}
	}
	return strings.Join(out, ", ")
}

// logOf waits until Envoy has logged the request with a mark, and returns it and those that the router made for it.
func (w *routedWorld) logOf(t *testing.T, try string) (request logged, hairpins []logged) {
	t.Helper()
	eventually(t, "the log of request "+try, func(context.Context) error {
		text, err := os.ReadFile(w.accessLog)
		if err != nil {
			return err
		}
		hairpins, err = nil, errors.New("not there")
		for line := range strings.Lines(string(text)) {
			if !strings.HasSuffix(line, "\n") {
				break // it is being written
			}
			switch l := parseLog(t, line); {
			case l.try != try:
			case l.hairpin:
				hairpins = append(hairpins, l)
			default:
				request, err = l, nil
			}
		}
		return err
	})
	return request, hairpins
}

func parseLog(t *testing.T, line string) logged {
	t.Helper()
	var values map[string]any
	require.NoError(t, json.Unmarshal([]byte(line), &values), line)
	text := func(name string) string {
		if values[name] == nil {
			return ""
		}
		return fmt.Sprint(values[name])
	}
	l := logged{try: text("try"), details: text("details"), hairpin: text("agent") == "mcp-router"}
	l.status, _ = strconv.Atoi(text("status"))
	l.Method, l.Host, l.Path, l.Headers, l.Time = text("method"), text("host"), text("path"), map[string]string{}, time.Now()
	for _, name := range logHeaders {
		if values[name] != nil {
			l.Headers[name] = text(name)
		}
	}
	return l
}

// decide is what the plan says to a request of a caller ("" for nobody).
func (s *routedSite) decide(l logged, caller string) plan.Decision {
	request := l.Request
	if caller != "" {
		token := requests.TokenReview(caller)
		request.Token = &token
	}
	return plan.Select(s.result.EnvoyGateway.Expressed, "http", request.Host).Decide(request)
}

// rejectedMutations is how many changes of the routers Envoy has refused.
func (w *routedWorld) rejectedMutations(t *testing.T) int {
	t.Helper()
	n, err := w.envoy.RejectedMutations(t.Context())
	require.NoError(t, err)
	return n
}
