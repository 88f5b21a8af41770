package envoy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/requests"
)

const (
	// Rounds go from subject to subject, so that whatever else the machine does, it does to all.
	latencyRounds = 25
	connections   = 2
	// perRound is how many requests a connection sends to a subject in a round.
	perRound = 100
	// warmUp is how many of the first rounds count for nothing.
	warmUp = 2

	rulesPerPolicy = 10
)

// subject is something that requests go to.
type subject struct {
	name    string
	address string
	request []byte
	callers []*caller
	took    []time.Duration
}

// guard is a way to protect a Gateway that is to be measured.
type guard struct {
	name string
	// rules is how many rules there are, each for a tool and a caller of its own.
	rules int
	// routes is how many routes the Gateway has; all have the rules.
	routes int
	// asks is set where Authorino has the rules, and Envoy's routes do not.
	asks bool
	// policies are what protects the Gateway of a namespace.
	policies func(b *testing.B, w *world, namespace string, rules int) []*unstructured.Unstructured
}

var guards = []guard{
	{name: "no policy", routes: 1},
	{name: "10 grants", rules: 10, routes: 1, policies: securityPolicies},
	{name: "100 grants", rules: 100, routes: 1, policies: securityPolicies},
	{name: "1,000 grants", rules: 1000, routes: 1, policies: securityPolicies},
	{name: "100 grants, 10 routes", rules: 100, routes: 10, policies: securityPolicies},
	{name: "10 grants, Authorino", rules: 10, routes: 1, asks: true, policies: askingPolicies},
	{name: "100 grants, Authorino", rules: 100, routes: 1, asks: true, policies: askingPolicies},
	{name: "1,000 grants, Authorino", rules: 1000, routes: 1, asks: true, policies: askingPolicies},
}

// BenchmarkLatency is what a request through Envoy takes, with and without rules. It is one run, whatever the benchmark's time.
func BenchmarkLatency(b *testing.B) {
	w := newWorld(b)
	w.echo = startUpstream(b, func(http.ResponseWriter, *http.Request) {})
	subjects := []*subject{{name: "upstream, without Envoy", address: w.echo, request: callOf(w.token(b, account(0), audience), tool(0))}}
	ports := map[string]string{}
	for i, g := range guards {
		namespace := fmt.Sprintf("latency-%d", i)
		ports[g.name] = w.protect(b, g, namespace)
		subjects = append(subjects, w.subjectsOf(b, g, ports[g.name])...)
	}
	w.envoy = w.StartEnvoyOfClass(b, class)
	w.listening(b, ports)
	for _, s := range subjects {
		s.connect(b)
	}
	w.notRejected(b)

	for round := range warmUp + latencyRounds {
		for _, s := range subjects {
			took := s.round(b)
			if round >= warmUp {
				s.took = append(s.took, took...)
			}
		}
	}
	// The log of a benchmark is cut after a few lines.
	fmt.Printf("%d requests each, over %d connections\n%s\n%s", latencyRounds*connections*perRound, connections, latencies(b, subjects), w.sizes(b))
}

// subjectsOf are requests that the first rule of a guard grants, and the last.
func (w *world) subjectsOf(b *testing.B, g guard, address string) []*subject {
	b.Helper()
	of := func(name string, n int) *subject {
		return &subject{name: name, address: address, request: callOf(w.token(b, account(n), audience), tool(n))}
	}
	if g.rules == 0 {
		return []*subject{of(g.name, 0)}
	}
	return []*subject{of(g.name+", first", 0), of(g.name+", last", g.rules-1)}
}

func account(n int) string { return fmt.Sprintf("agents/agent-%04d", n) }
func tool(n int) string    { return fmt.Sprintf("tool-%04d", n) }

// protect makes the Gateway of a guard and returns its address.
func (w *world) protect(b *testing.B, g guard, namespace string) string {
	b.Helper()
	w.Apply(b, stack.Namespace(namespace))
	if g.policies != nil {
		w.Apply(b, g.policies(b, w, namespace, g.rules)...)
	}
	w.routes(b, namespace, prodGateway)
	for i := range g.routes - 1 {
		w.Apply(b, stack.Object("gateway.networking.k8s.io/v1", "HTTPRoute", namespace, fmt.Sprintf("route-%d", i), map[string]any{
			"parentRefs": []any{map[string]any{"name": prodGateway}},
			"rules": []any{map[string]any{
				"matches":     []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": fmt.Sprintf("/route-%d", i)}}},
				"backendRefs": []any{map[string]any{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": backend}}}},
		}))
	}
	address := stack.FreeAddress(b)
	w.Apply(b, stack.Object("gateway.networking.k8s.io/v1", "Gateway", namespace, prodGateway, map[string]any{"gatewayClassName": class,
		"listeners": []any{map[string]any{"name": "l", "port": port(address), "protocol": "HTTP"}}}))
	return address
}

const prodGateway = "prod"

// securityPolicies are the translation of policies with so many rules.
func securityPolicies(b *testing.B, w *world, namespace string, rules int) []*unstructured.Unstructured {
	b.Helper()
	in, opts := w.grants(b, namespace, rules)
	result, err := translator.Translate(in, opts)
	require.NoError(b, err)
	out := result.Gateways[0].EnvoyGateway
	require.Len(b, out.Objects, 1)
	require.Len(b, out.Objects[0].Spec.Authorization.Rules, rules, "%v", out.Findings)
	policy, err := envoygateway.Unstructured(out.Objects[0])
	require.NoError(b, err)
	policy.SetOwnerReferences(nil)
	return []*unstructured.Unstructured{policy}
}

// askingPolicies are the same, translated into the form that asks Authorino.
func askingPolicies(b *testing.B, w *world, namespace string, rules int) []*unstructured.Unstructured {
	b.Helper()
	w.askAuthorino(b, namespace)
	in, opts := w.grants(b, namespace, rules)
	behindTheRouter(&in)
	opts.EnvoyGateway.Form, opts.EnvoyGateway.Authorino = envoygateway.FormExtAuth, authorinoService
	result, err := translator.Translate(in, opts)
	require.NoError(b, err)
	out := result.Gateways[0].EnvoyGateway
	require.Len(b, out.AuthConfigs, 1, "%v", out.Findings)
	require.Len(b, out.Expressed[0].Rules, rules)
	objects, err := out.Manifests()
	require.NoError(b, err)
	return objects
}

func (w *world) grants(b *testing.B, namespace string, rules int) (translator.Input, translator.Options) {
	b.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %s, namespace: %s}
spec: {gatewayClassName: envoy, listeners: [{name: l, port: 80, protocol: HTTP}]}
`, prodGateway, namespace)
	for i := range rules {
		if i%rulesPerPolicy == 0 {
			fmt.Fprintf(&text, `---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: XAccessPolicy
metadata: {name: policy-%04d, namespace: %s}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: %s}]
  action: Allow
  rules:
`, i/rulesPerPolicy, namespace, prodGateway)
		}
		namespace, name, _ := strings.Cut(account(i), "/")
		fmt.Fprintf(&text, `  - name: rule-%d
    source: {type: ServiceAccount, serviceAccount: {namespace: %s, name: %s}}
    authorization: {type: Inline, mcp: {methods: [{name: tools/call, params: [%s]}]}}
`, i%rulesPerPolicy, namespace, name, tool(i))
	}
	var set manifest.Set
	require.NoError(b, set.Add("grants", []byte(text.String())))
	settings, err := requests.ParseSettings(nil)
	require.NoError(b, err)
	opts, err := settings.Options()
	require.NoError(b, err)
	opts.Enforcers = translator.Enforcers{EnvoyGateway: true}
	opts.EnvoyGateway.Issuer, opts.EnvoyGateway.JWKS = w.issuer, w.keys
	return set.Input(), opts
}

// callOf is a request that the rule of the tool grants.
func callOf(token, tool string) []byte {
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`
	c := toolCall(tool)
	return fmt.Appendf(nil, "%s HTTP/1.1\r\nhost: mcp.example.com\r\n%s\r\nauthorization: Bearer %s\r\ncontent-length: %d\r\n\r\n%s",
		c.line, strings.Join(c.headers, "\r\n"), token, len(body), body)
}

// caller is a connection that is kept.
type caller struct {
	connection net.Conn
	reader     *bufio.Reader
}

// connect opens the connections, and waits until the first request of each passes.
func (s *subject) connect(b *testing.B) {
	b.Helper()
	for range connections {
		connection, err := net.Dial("tcp", s.address)
		require.NoError(b, err)
		b.Cleanup(func() { connection.Close() })
		c := &caller{connection, bufio.NewReader(connection)}
		eventually(b, s.name+" answers", func(context.Context) error { return c.send(s.request) })
		s.callers = append(s.callers, c)
	}
}

func (c *caller) send(request []byte) error {
	if err := c.connection.SetDeadline(time.Now().Add(settles)); err != nil {
		return err
	}
	if _, err := c.connection.Write(request); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}

// round sends requests over all connections at once, each after the answer to the one before it.
func (s *subject) round(b *testing.B) []time.Duration {
	b.Helper()
	took, failed := make([][]time.Duration, len(s.callers)), make([]error, len(s.callers))
	var done sync.WaitGroup
	for i, c := range s.callers {
		done.Go(func() {
			for range perRound {
				begin := time.Now()
				if failed[i] = c.send(s.request); failed[i] != nil {
					return
				}
				took[i] = append(took[i], time.Since(begin))
			}
		})
	}
	done.Wait()
	for _, err := range failed {
		require.NoError(b, err, s.name)
	}
	return slices.Concat(took...)
}

// latencies is a table; ratios are to the Envoy that has no policy.
func latencies(b *testing.B, subjects []*subject) string {
	b.Helper()
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "subject\tp50 µs\tp99 µs\tp50 ×\tp99 ×\t")
	at := slices.IndexFunc(subjects, func(s *subject) bool { return s.name == guards[0].name })
	for _, s := range subjects {
		slices.Sort(s.took)
	}
	base := subjects[at]
	for _, s := range subjects {
		fmt.Fprintf(table, "%s\t%d\t%d\t%.2f\t%.2f\t\n", s.name, s.quantile(50).Microseconds(), s.quantile(99).Microseconds(),
			float64(s.quantile(50))/float64(base.quantile(50)), float64(s.quantile(99))/float64(base.quantile(99)))
	}
	require.NoError(b, table.Flush())
	return out.String()
}

func (s *subject) quantile(percent int) time.Duration { return s.took[len(s.took)*percent/100] }

// sizes is a table of what rules cost besides time: the object, what Envoy keeps for it, and the translation.
func (w *world) sizes(b *testing.B) string {
	b.Helper()
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "subject\tobjects' bytes\troutes as JSON\tper route and rule\ttranslation ms\t")
	dumped, all := w.routeConfigs(b), 0
	for i, g := range guards {
		if g.policies == nil {
			continue
		}
		namespace := fmt.Sprintf("latency-%d", i)
		objects, err := json.Marshal(g.policies(b, w, namespace, g.rules))
		require.NoError(b, err)
		if !g.asks {
			all += g.rules * g.routes
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%.2f\t\n", g.name, len(objects), dumped[namespace], dumped[namespace]/(g.rules*g.routes), w.translation(b, g.rules))
	}
	require.NoError(b, table.Flush())
	sent := w.sentForOneEdit(b)
	fmt.Fprintf(&out, "one edit of one Gateway: %d bytes to Envoy; with the %d rules of all routes of all Gateways: %d each\n", sent, all, sent/all)
	return out.String()
}

// routeConfigs are the sizes of the routes that Envoy has, by the namespace of the Gateway.
func (w *world) routeConfigs(b *testing.B) map[string]int {
	b.Helper()
	text, err := w.envoy.Admin(b.Context(), "/config_dump?resource=dynamic_route_configs")
	require.NoError(b, err)
	var dump struct {
		Configs []struct {
			RouteConfig json.RawMessage `json:"route_config"`
		} `json:"configs"`
	}
	require.NoError(b, json.Unmarshal([]byte(text), &dump))
	out := map[string]int{}
	for _, config := range dump.Configs {
		var named struct{ Name string }
		require.NoError(b, json.Unmarshal(config.RouteConfig, &named))
		var compact bytes.Buffer
		require.NoError(b, json.Compact(&compact, config.RouteConfig))
		namespace, _, _ := strings.Cut(named.Name, "/")
		out[namespace] += compact.Len()
	}
	return out
}

// sentForOneEdit is how many bytes Envoy gets when one rule of the smallest policy gets another name.
func (w *world) sentForOneEdit(b *testing.B) int {
	b.Helper()
	at := slices.IndexFunc(guards, func(g guard) bool { return g.policies != nil })
	policy := guards[at].policies(b, w, fmt.Sprintf("latency-%d", at), guards[at].rules)[0]
	rules, _, err := unstructured.NestedSlice(policy.Object, "spec", "authorization", "rules")
	require.NoError(b, err)
	rules[0].(map[string]any)["name"] = "renamed"
	require.NoError(b, unstructured.SetNestedSlice(policy.Object, rules, "spec", "authorization", "rules"))
	before := w.received(b)
	w.Apply(b, policy)
	time.Sleep(3 * settlesQuietly)
	after := w.received(b)
	require.Greater(b, after, before)
	return after - before
}

func (w *world) received(b *testing.B) int {
	b.Helper()
	const name = "cluster.xds_cluster.upstream_cx_rx_bytes_total"
	text, err := w.envoy.Admin(b.Context(), "/stats?filter=^"+name+"$")
	require.NoError(b, err)
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(text, name+": ")))
	require.NoError(b, err)
	return n
}

// translation is how many milliseconds our library takes, the median of some runs.
func (w *world) translation(b *testing.B, rules int) float64 {
	b.Helper()
	in, opts := w.grants(b, "latency", rules)
	var took []time.Duration
	for range 21 {
		begin := time.Now()
		_, err := translator.Translate(in, opts)
		took = append(took, time.Since(begin))
		require.NoError(b, err)
	}
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds()) / 1000
}
