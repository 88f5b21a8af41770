package envoy_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/requests"
)

const (
	audience = "mcp-gateway"
	class    = "shared"
	backend  = "echo"
	caName   = "agents-ca"
	// upstreamAddress is one that hack/loopback adds: Envoy Gateway takes none in 127.0.0.0/8.
	upstreamAddress = "192.0.2.1"
	tlsName         = "server"
	// settles is how long a change takes until Envoy has it, at the very most.
	settles = 60 * time.Second
)

// world is one API server, one Envoy Gateway, and one Envoy that serves the Gateways
// of all cases.
type world struct {
	*stack.Cluster
	envoy  *stack.Envoy
	echo   string // address
	issuer string
	keys   string
	ca     *stack.Authority
	tokens map[string]string
	// workloads are client certificates by their SPIFFE ID.
	workloads map[string]*tls.Certificate
	served    int
	// asking has every case ask Authorino, which is there when something does.
	asking    bool
	authorino *stack.Authorino
}

// site is a case as it is served.
type site struct {
	name      string
	namespace string
	// ports has the port of a listener of the case.
	ports map[string]string
	// secure is set where listeners speak TLS, for client certificates.
	secure bool
	hosts  map[string]string
	result *translator.GatewayResult
	opts   translator.Options
	file   *requests.File
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Cluster: stack.Start(t), tokens: map[string]string{}, workloads: map[string]*tls.Certificate{}, ca: stack.NewAuthority(t)}
	w.StartEnvoyGateway(t)
	w.echo = startEcho(t)
	w.issuer, w.keys = w.Issuer(t)
	proxy := sharedProxy(map[string]any{})
	shared := stack.Object("gateway.networking.k8s.io/v1", "GatewayClass", "", class, map[string]any{
		"controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
		"parametersRef":  map[string]any{"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": class, "namespace": "envoy-gateway-system"},
	})
	w.Apply(t, proxy, shared)
	return w
}

// sharedProxy has the Gateways of all cases share an Envoy, which asks Authorino behind the router where it asks.
func sharedProxy(spec map[string]any) *unstructured.Unstructured {
	spec["mergeGateways"] = true
	spec["filterOrder"] = []any{map[string]any{"name": envoygateway.FilterExtAuthz, "after": envoygateway.FilterExtProc}}
	return stack.Object("gateway.envoyproxy.io/v1alpha1", "EnvoyProxy", "envoy-gateway-system", class, spec)
}

// startEcho runs the upstream: it answers with what it was sent.
func startEcho(t testing.TB) string {
	t.Helper()
	return startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		seen := echo{Method: r.Method, Host: r.Host, Path: r.RequestURI, Headers: map[string]string{}}
		for name, values := range r.Header {
			seen.Headers[strings.ToLower(name)] = strings.Join(values, ",")
		}
		text, _ := json.Marshal(seen)
		w.Header().Set(headerEcho, base64.StdEncoding.EncodeToString(text)) // an answer to HEAD has no body
	})
}

func startUpstream(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	listener, err := net.Listen("tcp", upstreamAddress+":0")
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: settles, Handler: handler}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// echo is a request as the upstream saw it.
type echo struct {
	Method, Host, Path string
	Headers            map[string]string
}

const headerEcho = "x-echo"

// add makes the case's Gateway, policies and routes. The Gateway's listeners get ports of their own, because one Envoy
// serves all cases; a case whose callers have certificates is served with TLS.
func (w *world) add(t testing.TB, name string, c *requests.Case) *site {
	t.Helper()
	return w.addRouted(t, name, c, func(s *site, gateway string) { w.routes(t, s.namespace, gateway) })
}

// addRouted does the same with other routes, which are made when the ports are known.
func (w *world) addRouted(t testing.TB, name string, c *requests.Case, routes func(s *site, gateway string)) *site {
	t.Helper()
	s := w.translate(t, name, c)
	gw := findGateway(c, s.result)
	w.Apply(t, stack.Namespace(s.namespace))
	listeners := s.listeners(t, gw)
	if len(s.result.EnvoyGateway.AuthConfigs) > 0 {
		w.askAuthorino(t, s.namespace)
	}
	w.Apply(t, s.manifests(t)...)
	if s.secure {
		w.certificates(t, s, gw.Name)
	}
	routes(s, gw.Name)
	w.Apply(t, stack.Object("gateway.networking.k8s.io/v1", "Gateway", s.namespace, gw.Name, map[string]any{"gatewayClassName": class, "listeners": listeners}))
	return s
}

// routes sends everything that arrives at a Gateway to the upstream.
func (w *world) routes(t testing.TB, namespace, gateway string) {
	t.Helper()
	w.Apply(t, backendAt(namespace, backend, w.echo), routeTo(namespace, gateway, backend))
}

func backendAt(namespace, name, address string) *unstructured.Unstructured {
	return stack.Object("gateway.envoyproxy.io/v1alpha1", "Backend", namespace, name, map[string]any{
		"endpoints": []any{map[string]any{"ip": map[string]any{"address": upstreamAddress, "port": port(address)}}}})
}

// routeTo is a route to a backend of the same namespace, for these hosts or for all.
func routeTo(namespace, gateway, backend string, hosts ...any) *unstructured.Unstructured {
	spec := map[string]any{
		"parentRefs": []any{map[string]any{"name": gateway}},
		"rules":      []any{map[string]any{"backendRefs": []any{backendRef(backend)}}},
	}
	if len(hosts) > 0 {
		spec["hostnames"] = hosts
	}
	return stack.Object("gateway.networking.k8s.io/v1", "HTTPRoute", namespace, backend, spec)
}

func backendRef(name string) map[string]any {
	return map[string]any{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": name}
}

// translate makes the SecurityPolicies for the API server's own issuer.
func (w *world) translate(t testing.TB, name string, c *requests.Case) *site {
	t.Helper()
	opts := c.Options
	namespace := fmt.Sprintf("case-%d-%s", w.served, shortName(name))
	for i := range c.Set.Gateways { // names that cases share are told apart by the UID
		c.Set.Gateways[i].UID = types.UID(namespace)
	}
	opts.Enforcers = translator.Enforcers{EnvoyGateway: true}
	opts.EnvoyGateway.Issuer, opts.EnvoyGateway.JWKS = w.issuer, w.keys
	in := c.Set.Input()
	if w.asking {
		behindTheRouter(&in)
		opts.EnvoyGateway.Form, opts.EnvoyGateway.Authorino = envoygateway.FormExtAuth, authorinoService
	}
	result, err := translator.Translate(in, opts)
	require.NoError(t, err)
	gateway, err := requests.Gateway(c.File, result)
	require.NoError(t, err)
	s := &site{name: name, namespace: namespace, ports: map[string]string{}, hosts: map[string]string{},
		result: gateway, opts: opts, file: c.File}
	w.served++
	for _, r := range c.File.Requests {
		s.secure = s.secure || r.Caller.SPIFFE != ""
	}
	return s
}

func shortName(name string) string {
	name = strings.NewReplacer("/", "-", "_", "-").Replace(strings.ToLower(name))
	return strings.Trim(name[:min(len(name), 40)], "-")
}

func findGateway(c *requests.Case, result *translator.GatewayResult) *gwv1.Gateway {
	for i := range c.Set.Gateways {
		if gw := &c.Set.Gateways[i]; gw.Namespace == result.Gateway.Namespace && gw.Name == result.Gateway.Name {
			return gw
		}
	}
	return nil
}

func (s *site) listeners(t testing.TB, gw *gwv1.Gateway) []any {
	t.Helper()
	var out []any
	for _, l := range gw.Spec.Listeners {
		if l.Protocol != gwv1.HTTPProtocolType && l.Protocol != gwv1.HTTPSProtocolType {
			continue
		}
		free := stack.FreeAddress(t)
		s.ports[string(l.Name)] = free
		listener := map[string]any{"name": string(l.Name), "port": port(free), "protocol": "HTTP"}
		if l.Hostname != nil {
			listener["hostname"] = string(*l.Hostname)
			s.hosts[string(l.Name)] = string(*l.Hostname)
		}
		if s.secure {
			listener["protocol"] = "HTTPS"
			listener["tls"] = map[string]any{"mode": "Terminate", "certificateRefs": []any{map[string]any{"name": tlsName}}}
		}
		out = append(out, listener)
	}
	return out
}

func port(address string) int64 {
	_, text, _ := net.SplitHostPort(address)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// certificates gives the listeners a certificate, and has clients' certificates verified.
func (w *world) certificates(t testing.TB, s *site, gateway string) {
	t.Helper()
	chain, key := w.ca.Server(t, "gateway.example.test")
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"stringData": map[string]any{"tls.crt": string(chain), "tls.key": string(key)}}}
	secret.SetNamespace(s.namespace)
	secret.SetName(tlsName)
	ca := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"ca.crt": string(w.ca.PEM())}}}
	ca.SetNamespace(s.namespace)
	ca.SetName(caName)
	w.Apply(t, secret, ca, stack.Object("gateway.envoyproxy.io/v1alpha1", "ClientTrafficPolicy", s.namespace, gateway, map[string]any{
		"targetRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway}},
		"tls": map[string]any{"clientValidation": map[string]any{"mode": "VerifyIfGiven",
			"caCertificateRefs": []any{map[string]any{"kind": "ConfigMap", "name": caName}}}},
	}))
}

// token is a token of a ServiceAccount (namespace/name), which is created if it is not there.
func (w *world) token(t testing.TB, account string, audiences ...string) string {
	t.Helper()
	key := account + " " + strings.Join(audiences, " ")
	if token, ok := w.tokens[key]; ok {
		return token
	}
	namespace, name, _ := strings.Cut(account, "/")
	w.Apply(t, stack.Namespace(namespace), stack.ServiceAccount(namespace, name))
	w.tokens[key] = w.Token(t, namespace, name, audiences...)
	return w.tokens[key]
}

// serve starts Envoy and waits until Envoy Gateway has accepted every policy and Envoy every configuration.
func (w *world) serve(t testing.TB, sites []*site) {
	t.Helper()
	w.envoy = w.StartEnvoyOfClass(t, class)
	for _, s := range sites {
		w.ready(t, s)
		for _, object := range s.result.EnvoyGateway.Objects {
			u := stack.Object("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", s.namespace, object.Name, nil)
			eventually(t, s.name+": SecurityPolicy "+object.Name+" is accepted", func(ctx context.Context) error {
				if err := w.Client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
					return err
				}
				return acceptedBy(u)
			})
		}
		w.listening(t, s.ports)
	}
	w.notRejected(t)
}

// listening waits until Envoy listens for all.
func (w *world) listening(t testing.TB, ports map[string]string) {
	t.Helper()
	for name, address := range ports {
		eventually(t, "Envoy listens for "+name, func(context.Context) error {
			connection, err := net.DialTimeout("tcp", address, time.Second)
			if err == nil {
				err = connection.Close()
			}
			return err
		})
	}
}

func (w *world) notRejected(t testing.TB) {
	t.Helper()
	rejected, why, err := w.envoy.Rejected(t.Context())
	require.NoError(t, err)
	require.Zero(t, rejected, "Envoy refuses what Envoy Gateway made of it: %s", why)
}

// acceptedBy returns nil if every ancestor of a policy of Envoy Gateway has it accepted in its last generation.
func acceptedBy(u *unstructured.Unstructured) error {
	ancestors, _, _ := unstructured.NestedSlice(u.Object, "status", "ancestors")
	if len(ancestors) == 0 {
		return errors.New("no status yet")
	}
	for _, a := range ancestors {
		conditions, _ := a.(map[string]any)["conditions"].([]any)
		if !slices.ContainsFunc(conditions, func(c any) bool {
			condition, _ := c.(map[string]any)
			observed, _ := condition["observedGeneration"].(int64) // egctl knows no generations
			return condition["type"] == "Accepted" && condition["status"] == "True" && observed == u.GetGeneration()
		}) {
			return fmt.Errorf("not accepted: %v", conditions)
		}
	}
	return nil
}

func eventually(t testing.TB, what string, try func(context.Context) error) {
	t.Helper()
	deadline := time.Now().Add(settles)
	for {
		err := try(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %s: %v", what, settles, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
