package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/test/stack"
)

// The tests here ask what upstream's conformance tests ask of an implementation; docs/conformance.md says which is which, and
// where the answers differ. The policies, names and requests are our own.

const (
	trustDomain = "trial.example"

	// certificateHeader is the one in which Envoy forwards what is in the client's certificate.
	certificateHeader = "x-forwarded-client-cert"
)

// caller makes a request one of somebody's, by adding a credential.
type caller func(call) call

// way is how a rule names its callers, and how the callers show who they are.
type way struct {
	name string
	// source is what a rule has as its source.
	source func(k *kube, account string) string
	show   func(t *testing.T, k *kube, account string) caller
	// near are somebody, and almost the right one; unseen show the right account or ID where it is not looked at.
	near, unseen callers
}

func id(k *kube, account string) string {
	return "spiffe://" + trustDomain + "/ns/" + k.namespace + "/sa/" + account
}

func namedAccount(_ *kube, account string) string {
	return "{type: ServiceAccount, serviceAccount: {name: " + account + "}}"
}

func namedID(k *kube, account string) string {
	return "{type: SPIFFE, spiffe: '" + id(k, account) + "'}"
}

// withToken sends a token that the API server has issued.
func withToken(t *testing.T, k *kube, account string) caller {
	t.Helper()
	token := k.Token(t, k.namespace, account, audience)
	return func(c call) call { c.token = token; return c }
}

// withCertificate has a connection whose certificate is verified, and an authorization service is told its ID.
func withCertificate(_ *testing.T, k *kube, account string) caller {
	return connected(id(k, account))
}

func connected(principal string) caller {
	return func(c call) call { c.principal = principal; return c }
}

// withHeader has such a connection too, but all that is passed on is the header in which the gateway forwards the certificate.
func withHeader(_ *testing.T, k *kube, account string) caller {
	return forwarded(id(k, account))
}

func forwarded(principal string) caller {
	return headed(certificateHeader, `Hash=5f0c;Subject="CN=client,O=Trial";URI=`+principal)
}

// headed adds a header.
func headed(name, value string) caller {
	return func(c call) call {
		c.headers = maps.Clone(c.headers)
		if c.headers == nil {
			c.headers = map[string]string{}
		}
		c.headers[name] = value
		return c
	}
}

// callers makes callers that are like an account, by what they do.
type callers func(t *testing.T, k *kube, account string) map[string]caller

// namesakes is an account of the same name in another namespace.
func namesakes(t *testing.T, k *kube, account string) map[string]caller {
	t.Helper()
	elsewhere := &kube{Cluster: k.Cluster, namespace: k.namespace + "-next"}
	k.Apply(t, stack.Namespace(elsewhere.namespace), stack.ServiceAccount(elsewhere.namespace, account))
	return map[string]caller{"the account of another namespace": withToken(t, elsewhere, account)}
}

// neighbours have IDs that are almost the right one.
func neighbours(present func(principal string) caller) callers {
	return func(_ *testing.T, k *kube, account string) map[string]caller {
		exact := id(k, account)
		return map[string]caller{
			"a longer name":        present(exact + "-2"),
			"a shorter name":       present(strings.TrimSuffix(exact, "r")),
			"a path below":         present(exact + "/agent"),
			"a name in upper case": present(strings.Replace(exact, account, strings.ToUpper(account), 1)),
			"another trust domain": present(strings.Replace(exact, trustDomain, "next."+trustDomain, 1)),
			"another namespace":    present(strings.Replace(exact, k.namespace, k.namespace+"-next", 1)),
		}
	}
}

// hostileHeaders are forwarded certificates in which the right ID stands, and not as that of the caller.
func hostileHeaders(_ *testing.T, k *kube, account string) map[string]caller {
	exact := id(k, account)
	return map[string]caller{
		"the ID in the subject":         headed(certificateHeader, `Hash=5f0c;Subject="CN=x;URI=`+exact+`"`),
		"the ID as that of the gateway": headed(certificateHeader, `By=`+exact+`;Hash=5f0c`),
		"the header of two proxies":     headed(certificateHeader, "Hash=5f0c;URI="+exact+",Hash=77aa;URI="+id(k, "other")),
		"two IDs in one certificate":    headed(certificateHeader, "Hash=5f0c;URI="+exact+";URI="+id(k, "other")),
	}
}

// lookAlikes are callers who show the right account or ID in a way that is not looked at.
func lookAlikes(ways map[string]func(*testing.T, *kube, string) caller, more ...callers) callers {
	return func(t *testing.T, k *kube, account string) map[string]caller {
		t.Helper()
		all := map[string]caller{}
		for name, show := range ways {
			all[name] = show(t, k, account)
		}
		for _, further := range more {
			maps.Copy(all, further(t, k, account))
		}
		return all
	}
}

type shows = map[string]func(*testing.T, *kube, string) caller

var (
	accountByToken = way{"account-by-token", namedAccount, withToken, namesakes,
		lookAlikes(shows{"the certificate of the account": withCertificate, "its header": withHeader})}
	idByCertificate = way{"id-by-certificate", namedID, withCertificate, neighbours(connected),
		lookAlikes(shows{"the token of the account": withToken, "a forged header": withHeader})}
	idByHeader = way{"id-by-header", namedID, withHeader, neighbours(forwarded),
		lookAlikes(shows{"the token of the account": withToken, "the ID of the connection": withCertificate}, hostileHeaders)}
	accountByCertificate = way{"account-by-cert", namedAccount, withCertificate, neighbours(connected),
		lookAlikes(shows{"a forged header": withHeader})}
	accountByHeader = way{"account-by-header", namedAccount, withHeader, neighbours(forwarded),
		lookAlikes(shows{"the ID of the connection": withCertificate}, hostileHeaders)}
	// accountByTokenToo is that of an operator that also takes certificates of accounts.
	accountByTokenToo = way{"account-by-token-too", namedAccount, withToken, namesakes,
		lookAlikes(shows{"a forged header": withHeader})}
)

// trial is one scenario in one way, in a namespace of its own.
type trial struct {
	*kube
	chain *chain
	way   way
	// host is the one that requests are for.
	host string
	// tester is who the policies are about, other is another account of the namespace.
	tester, other caller
}

// request is what somebody asks for and the answer that has to come: an HTTP status, or open.
type request struct {
	name string
	call call
	code int
}

// ask waits for the answers to requests, and then expects that they stay what they are.
func (tr *trial) ask(t *testing.T, gateway string, requests ...request) {
	t.Helper()
	for _, r := range requests {
		if !t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) { answers(t, tr.kube, tr.chain.authorino, gateway, r.call, r.code) }) {
			t.FailNow() // each of the others would wait as long
		}
	}
	for _, r := range requests {
		code, err := verdict(t.Context(), tr.kube, tr.chain.authorino, gateway, r.call)
		require.NoError(t, err, r.name)
		require.Equal(t, r.code, code, "%s: the answer has changed", r.name)
	}
}

// targets are targetRefs; each is a Gateway's name, or gateway/listener.
func targets(names ...string) string {
	var refs []string
	for _, target := range names {
		name, listener, scoped := strings.Cut(target, "/")
		if scoped {
			name += ", sectionName: " + listener
		}
		refs = append(refs, "{group: gateway.networking.k8s.io, kind: Gateway, name: "+name+"}")
	}
	return "[" + strings.Join(refs, ", ") + "]"
}

// allow applies a policy by which an account may do what mcp says, on the targets.
func (tr *trial) allow(t *testing.T, name, account, mcpRule string, on ...string) {
	t.Helper()
	tr.Apply(t, tr.policy(t, name, fmt.Sprintf(`
targetRefs: %s
action: Allow
rules:
- name: callers
  source: %s
  authorization: {type: Inline, mcp: %s}
`, targets(on...), tr.way.source(tr.kube, account), mcpRule)))
}

// delegate applies a policy that has requests of an account decided elsewhere: all of them, or those that mcp says.
func (tr *trial) delegate(t *testing.T, name, account, mcpRule string, on ...string) {
	t.Helper()
	authorization := ""
	if mcpRule != "" {
		authorization = "\n  authorization: {type: Inline, mcp: " + mcpRule + "}"
	}
	tr.Apply(t, tr.policy(t, name, fmt.Sprintf(`
targetRefs: %s
action: ExternalAuth
externalAuth: {protocol: GRPC, backendRef: {name: no-such-service, port: 9000}, grpc: {}}
rules:
- name: delegated
  source: %s%s
`, targets(on...), tr.way.source(tr.kube, account), authorization)))
}

// forgeries are requests of a caller who may call the tool and has to be refused all the same, because the headers do not come
// from the router, or not all of them.
func forgeries(host string, as caller, name string) []request {
	with := func(change func(*call)) call {
		c := tool(host, "", name)
		change(&c)
		return as(c)
	}
	header := func(key, value string) call { return with(func(c *call) { c.headers[key] = value }) }
	return []request{
		{"GET with forged headers", with(func(c *call) { c.method = http.MethodGet }), http.StatusForbidden},
		{"DELETE without a session", as(call{host: host, method: http.MethodDelete}), http.StatusForbidden},
		{"DELETE with a session and forged headers", with(func(c *call) {
			c.method = http.MethodDelete
			c.headers["mcp-session-id"] = "s-1"
		}), http.StatusForbidden},
		{"POST of plain text with forged headers", header("content-type", "text/plain"), http.StatusForbidden},
		{"POST of two content types", header("content-type", "text/plain,application/json"), http.StatusForbidden},
		{"POST without MCP headers", as(call{host: host}), http.StatusForbidden},
		{"a tool joined from two", header("x-mcp-toolname", name+",delete-all"), http.StatusForbidden},
		{"the same tool twice", header("x-mcp-toolname", name+","+name), http.StatusForbidden},
		{"a method joined from two", header("x-mcp-method", "tools/call,tools/call"), http.StatusForbidden},
		{"no tool", with(func(c *call) { delete(c.headers, "x-mcp-toolname") }), http.StatusForbidden},
		{"a call of the broker's own tools", header("x-mcp-servername", "mcpBroker"), http.StatusForbidden},
		{"no server", with(func(c *call) { delete(c.headers, "x-mcp-servername") }), http.StatusForbidden},
		{"a prompt under the tool's name", header("x-mcp-method", "prompts/get"), http.StatusForbidden},
		{"a protocol whose headers are the client's", header("mcp-protocol-version", "2026-07-28"), http.StatusForbidden},
	}
}

// strangers are requests for a tool that the tester may call, by everybody else.
func (tr *trial) strangers(t *testing.T, name string) []request {
	t.Helper()
	requests := []request{
		{"another account", tr.other(tool(tr.host, "", name)), http.StatusForbidden},
		{"no credential", tool(tr.host, "", name), http.StatusUnauthorized},
		{"a token that nobody issued", tool(tr.host, "e30.e30.e30", name), http.StatusUnauthorized},
	}
	for what, as := range tr.way.near(t, tr.kube, "tester") {
		requests = append(requests, request{what, as(tool(tr.host, "", name)), http.StatusForbidden})
	}
	for what, as := range tr.way.unseen(t, tr.kube, "tester") {
		requests = append(requests, request{what, as(tool(tr.host, "", name)), http.StatusUnauthorized})
	}
	return requests
}

// base are the messages of the base protocol as they reach the broker, with one answer for all.
func (tr *trial) base(code int, as caller) []request {
	requests := []request{
		{"the event stream", as(call{host: tr.host, method: http.MethodGet, headers: map[string]string{"accept": "text/event-stream"}}), code},
		{"the end of the session", as(call{host: tr.host, method: http.MethodDelete, headers: map[string]string{"mcp-session-id": "s-1"}}), code},
	}
	for _, method := range []string{"initialize", "notifications/initialized", "tools/list", "ping", "logging/setLevel", "completion/complete"} {
		requests = append(requests, request{method, as(mcp(tr.host, "", method)), code})
	}
	return requests
}

type scenario struct {
	name string
	run  func(*testing.T, *trial)
}

// run runs scenarios, each in a namespace of its own.
func (w way) run(t *testing.T, c *chain, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(w.name+"/"+s.name, func(t *testing.T) {
			k := inNamespace(t, c.Cluster, s.name+"-"+w.name)
			k.Apply(t, stack.ServiceAccount(k.namespace, "tester"), stack.ServiceAccount(k.namespace, "other"))
			tr := &trial{kube: k, chain: c, way: w, host: k.namespace + ".example.test",
				tester: w.show(t, k, "tester"), other: w.show(t, k, "other")}
			defer tr.clear(t)
			s.run(t, tr)
		})
	}
}

// clear removes the Gateways of the namespace and waits until they are gone, so that there is one at a time. Envoy Gateway
// 1.9.1 can lose the status of an EnvoyPatchPolicy where there are several: whenever it translates one Gateway it deletes what it
// has to report on the others' (internal/xds/runner/runner.go, statusesToDelete), and a report and its deletion that come close
// together are merged into the deletion. Kuadrant then waits for that status, for as long as nothing else happens.
func (tr *trial) clear(t *testing.T) {
	t.Helper()
	if t.Failed() {
		t.Logf("before the Gateways of %s go:\n%s", tr.namespace, tr.dump())
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("gateway.networking.k8s.io/v1")
	list.SetKind("GatewayList")
	require.NoError(t, tr.Client.List(t.Context(), list, client.InNamespace(tr.namespace)))
	for i := range list.Items {
		tr.delete(t, &list.Items[i])
		tr.gone(t, &list.Items[i])
	}
}

// startChainWith is startChain for an operator with flags.
func startChainWith(t *testing.T, flags ...string) *chain {
	t.Helper()
	c := stack.Start(t)
	authorino := c.StartAuthorino(t)
	c.StartEnvoyGateway(t)
	c.StartKuadrant(t)
	c.InstallOperator(t)
	c.Apply(t, stack.GatewayClass())
	return &chain{Cluster: c, authorino: authorino, operator: startOperator(t, c, flags...)}
}

// TestConformance has what the operator does without being told where certificates come from: tokens, and the ID that an
// authorization service gets with the connection.
func TestConformance(t *testing.T) {
	c := startChainWith(t)
	accountByToken.run(t, c, append(onceOnly, everyWay...))
	idByCertificate.run(t, c, everyWay)
}

// TestConformanceForwardedCertificate has IDs in the header that the gateway forwards, which is all that Kuadrant's plugin
// passes on.
func TestConformanceForwardedCertificate(t *testing.T) {
	idByHeader.run(t, startChainWith(t, "--spiffe-from=xfcc"), everyWay)
}

// TestConformanceTrustDomain has ServiceAccounts that show certificates, as all callers of upstream's tests do.
func TestConformanceTrustDomain(t *testing.T) {
	c := startChainWith(t, "--trust-domain="+trustDomain)
	accountByCertificate.run(t, c, everyWay)
	accountByTokenToo.run(t, c, []scenario{{"matching", identityMatching}})

	c.operator.Stop(t)
	c.operator = startOperator(t, c.Cluster, "--trust-domain="+trustDomain, "--spiffe-from=xfcc")
	accountByHeader.run(t, c, everyWay)
}

// refusal returns the whole answer to a request that is refused.
func (tr *trial) refusal(t *testing.T, gateway string, c call) stack.Verdict {
	t.Helper()
	headers := maps.Clone(c.headers)
	headers["content-type"] = "application/json"
	if c.token != "" {
		headers["authorization"] = "Bearer " + c.token
	}
	var answer stack.Verdict
	eventually(t, "a refusal", func(ctx context.Context) error {
		sets, err := tr.ActionSets(ctx, tr.namespace, gateway)
		if err != nil {
			return err
		}
		scopes, err := stack.Scopes(sets, stack.Request{Host: c.host, Method: http.MethodPost, Path: "/mcp", Headers: headers})
		if err != nil {
			return err
		}
		if len(scopes) != 1 {
			return fmt.Errorf("Authorino is asked %d times", len(scopes))
		}
		answer, err = tr.chain.authorino.Check(ctx, stack.CheckInput{Scope: scopes[0], Method: http.MethodPost, Path: "/mcp",
			Host: c.host, Headers: headers, Principal: c.principal})
		if err == nil && answer.Code == http.StatusOK {
			err = errors.New("it is allowed")
		}
		return err
	})
	return answer
}

// listeners makes a Gateway with named listeners, and for each host name a route on one of them; it waits until it is programmed.
func (tr *trial) listeners(t *testing.T, name string, hosts map[string]string, routes map[string]string) {
	t.Helper()
	gateway := stack.Gateway(tr.namespace, name)
	var listeners []any
	for listener, host := range hosts {
		listeners = append(listeners, map[string]any{"name": listener, "port": int64(8080), "protocol": "HTTP", "hostname": host,
			"allowedRoutes": map[string]any{"namespaces": map[string]any{"from": "All"}}})
	}
	require.NoError(t, unstructured.SetNestedSlice(gateway.Object, listeners, "spec", "listeners"))
	tr.Apply(t, gateway, stack.Service(tr.namespace, "servers"))
	for host, listener := range routes {
		route := stack.HTTPRoute(tr.namespace, name+"-"+listener, name, host, "/mcp", "servers")
		parents := []any{map[string]any{"name": name, "sectionName": listener}}
		require.NoError(t, unstructured.SetNestedSlice(route.Object, parents, "spec", "parentRefs"))
		tr.Apply(t, route)
	}
	tr.WaitFor(t, limit, gateway, "Programmed")
}
