package coverage_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"accesspolicy-operator/translator/coverage"
)

var (
	seed   = flag.Uint64("seed", 1, "where the random worlds begin")
	worlds = flag.Int("worlds", 60, "how many of them")
)

// TestRandom asks about worlds that nobody wrote: Gateways, ListenerSets, routes and policies that get in each other's way by
// chance.
func TestRandom(t *testing.T) {
	program := egtranslate.program(t)
	var questions []question
	var lists [][]*unstructured.Unstructured
	for i := range uint64(*worlds) {
		objects := dice{rand.New(rand.NewPCG(*seed+i, 0))}.world()
		objects = append(objects, probesFor(input(t, objects, egtranslate))...)
		q := question{name: fmt.Sprintf("seed-%d", *seed+i), in: input(t, objects, egtranslate)}
		q.told = coverage.Compute(q.in)
		questions, lists = append(questions, q), append(lists, known(objects))
	}
	reasons := map[string]int{}
	for i, answer := range egtranslate.ask(t, program, lists) {
		for _, l := range questions[i].told {
			reasons[l.Reason]++
		}
		t.Run(questions[i].name, func(t *testing.T) { check(t, egtranslate, &questions[i], &answer) })
	}
	t.Logf("lines by reason: %v", reasons)
}

// dice makes choices.
type dice struct{ *rand.Rand }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

type object = map[string]any

// made gives an object metadata; a world takes place within ten days, so that some things are of one age.
func (d dice) made(apiVersion, kind, name string, spec object) *unstructured.Unstructured {
	metadata := object{"name": name, "namespace": "demo", "creationTimestamp": fmt.Sprintf("2026-01-%02dT00:00:00Z", 1+d.IntN(10))}
	if d.chance(30) {
		metadata["labels"] = object{"team": pick(d, "a", "b")}
	}
	return &unstructured.Unstructured{Object: object{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "spec": spec}}
}

const (
	gatewayAPI = "gateway.networking.k8s.io/v1"
	envoyAPI   = "gateway.envoyproxy.io/v1alpha1"
)

func (d dice) world() []*unstructured.Unstructured {
	out := []*unstructured.Unstructured{
		{Object: object{"apiVersion": gatewayAPI, "kind": "GatewayClass", "metadata": object{"name": "envoy"}, "spec": object{"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}}},
		{Object: object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "router", "namespace": "demo"},
			"spec": object{"clusterIP": "10.0.0.9", "ports": []any{object{"name": "grpc", "port": int64(50051), "protocol": "TCP"}}}}},
	}
	for _, name := range []string{"prod", "stage"}[:1+d.IntN(2)] {
		spec := object{"gatewayClassName": "envoy", "listeners": d.listeners()}
		if d.chance(70) {
			spec["allowedListeners"] = object{"namespaces": object{"from": "Same"}}
		}
		out = append(out, d.made(gatewayAPI, "Gateway", name, spec))
	}
	for _, name := range []string{"extra", "more"}[:d.IntN(3)] {
		out = append(out, d.made(gatewayAPI, "ListenerSet", name, object{"parentRef": object{"name": "prod"}, "listeners": d.listeners()}))
	}
	for i := range 1 + d.IntN(4) {
		out = append(out, d.route(fmt.Sprintf("r%d", i)))
	}
	for i := range d.IntN(7) {
		out = append(out, d.securityPolicy(fmt.Sprintf("sp%d", i)))
	}
	for i := range d.IntN(4) {
		out = append(out, d.extensionPolicy(fmt.Sprintf("ep%d", i)))
	}
	if d.chance(30) {
		out = append(out, &unstructured.Unstructured{Object: object{"apiVersion": envoyAPI, "kind": "EnvoyGateway", "extensionApis": object{"enableLua": d.chance(50), "enableEnvoyPatchPolicy": true}}})
	}
	return append(out, d.baselines()...)
}

func (d dice) listeners() []any {
	var out []any
	taken := map[string]bool{}
	for _, name := range []string{"a", "b", "c"}[:1+d.IntN(3)] {
		l := object{"name": name, "port": int64(80 + d.IntN(2)), "protocol": "HTTP"}
		if host := pick(d, "", "", "x.example.com", "*.example.com", "y.example.com"); host != "" {
			l["hostname"] = host
		}
		if d.chance(8) {
			l["protocol"] = "TCP"
			delete(l, "hostname")
		}
		key := fmt.Sprint(l["port"], l["protocol"], l["hostname"])
		if taken[key] {
			continue // the API server refuses that
		}
		taken[key] = true
		if d.chance(10) && l["protocol"] == "HTTP" {
			l["allowedRoutes"] = object{"kinds": []any{object{"kind": "GRPCRoute"}}}
		}
		out = append(out, l)
	}
	return out
}

func (d dice) route(name string) *unstructured.Unstructured {
	kind := pick(d, "HTTPRoute", "HTTPRoute", "HTTPRoute", "GRPCRoute", "TCPRoute")
	var parents []any
	for _, parent := range []string{"prod", "stage", "extra", "more"} {
		if !d.chance(45) {
			continue
		}
		ref := object{"name": parent}
		if parent == "extra" || parent == "more" {
			ref["group"], ref["kind"] = "gateway.networking.k8s.io", "ListenerSet"
		}
		if d.chance(40) {
			ref["sectionName"] = pick(d, "a", "b", "c")
		}
		if d.chance(15) {
			ref["port"] = int64(80 + d.IntN(2))
		}
		parents = append(parents, ref)
	}
	if parents == nil {
		parents = []any{object{"name": "prod"}}
	}
	spec := object{"parentRefs": parents}
	if kind != "TCPRoute" && d.chance(50) {
		spec["hostnames"] = pick(d, []any{"x.example.com"}, []any{"*.example.com"}, []any{"y.example.com", "z.example.org"}, []any{"*.com"})
	}
	count := 1
	if kind != "TCPRoute" {
		count += d.IntN(3)
	}
	var rules []any
	for i := range count {
		rule := object{"backendRefs": []any{object{"name": "backend", "port": int64(8080)}}}
		switch kind {
		case "HTTPRoute":
			rule["matches"] = []any{object{"path": object{"type": "PathPrefix", "value": fmt.Sprintf("/%s/%d", name, i)}}}
		case "GRPCRoute":
			rule["matches"] = []any{object{"method": object{"type": "Exact", "service": name, "method": fmt.Sprintf("M%d", i)}}}
		}
		if d.chance(70) {
			rule["name"] = fmt.Sprintf("rule%d", i)
		}
		rules = append(rules, rule)
	}
	spec["rules"] = rules
	return d.made(gatewayAPI, kind, name, spec)
}

// target chooses what a policy is attached to, and whether it is a route.
func (d dice) target(spec object, kinds ...string) bool {
	kind := pick(d, kinds...)
	isRoute := kind != "Gateway" && kind != "ListenerSet"
	if d.chance(15) {
		spec["targetSelectors"] = []any{object{"kind": kind, "matchLabels": object{"team": pick(d, "a", "b")}}}
		return isRoute
	}
	names := map[string][]string{"Gateway": {"prod", "prod", "stage"}, "ListenerSet": {"extra", "more"}}[kind]
	sections := []string{"", "", "a", "b", "c"}
	if isRoute {
		names, sections = []string{"r0", "r1", "r2"}, []string{"", "", "rule0", "rule1"}
	}
	ref := object{"group": "gateway.networking.k8s.io", "kind": kind, "name": pick(d, names...)}
	if section := pick(d, sections...); section != "" {
		ref["sectionName"] = section
	}
	spec["targetRefs"] = []any{ref}
	return isRoute
}

func (d dice) securityPolicy(name string) *unstructured.Unstructured {
	spec := object{}
	isRoute := d.target(spec, "Gateway", "Gateway", "ListenerSet", "HTTPRoute", "HTTPRoute", "HTTPRoute", "GRPCRoute", "TCPRoute")
	if isRoute && d.chance(55) {
		spec["mergeType"] = pick(d, "StrategicMerge", "JSONMerge")
	}
	if d.chance(40) {
		spec["cors"] = object{"allowOrigins": []any{"https://example.com"}}
	}
	byAddress := object{"name": name, "action": "Allow", "principal": object{"clientCIDRs": []any{"10.0.0.0/8"}}}
	byHeader := object{"name": name, "action": "Allow", "principal": object{"headers": []any{object{"name": "x-a", "values": []any{"b"}}}}}
	switch d.IntN(7) {
	case 0:
		spec["authorization"] = object{"defaultAction": "Deny", "rules": []any{byAddress}}
	case 1:
		spec["authorization"] = object{"rules": []any{byHeader}}
	case 2:
		spec["authorization"] = object{"defaultAction": "Allow"}
	case 3:
		// Without a merge it denies all, and cannot be told from ours without rules in what Envoy gets.
		if spec["mergeType"] != nil {
			spec["authorization"] = object{}
		}
	}
	if d.chance(15) {
		spec["jwt"] = object{"providers": []any{object{"name": "kubernetes", "issuer": "https://" + name + ".example.com", "localJWKS": object{"type": "Inline", "inline": `{"keys":[]}`}}}}
	}
	return d.made(envoyAPI, "SecurityPolicy", name, spec)
}

func (d dice) extensionPolicy(name string) *unstructured.Unstructured {
	spec := object{}
	isRoute := d.target(spec, "Gateway", "ListenerSet", "HTTPRoute", "HTTPRoute", "GRPCRoute")
	if isRoute && d.chance(50) {
		spec["mergeType"] = pick(d, "StrategicMerge", "JSONMerge")
	}
	switch d.IntN(4) {
	case 0:
		spec["lua"] = []any{object{"type": "Inline", "inline": "function envoy_on_request(h) end"}}
	case 1:
		spec["wasm"] = plugin("own")
	case 2:
		spec["extProc"] = []any{object{"backendRefs": []any{object{"name": "router", "port": int64(50051)}}}}
	}
	return d.made(envoyAPI, "EnvoyExtensionPolicy", name, spec)
}

func plugin(name string) []any {
	return []any{object{"name": name, "code": object{"type": "HTTP", "http": object{"url": "https://plugins.example.com/" + name + ".wasm",
		"sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}}}
}

// baselines are ours: for a Gateway or for some listeners, by one enforcer or both.
func (d dice) baselines() []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	add := func(name, listener string) {
		ref := object{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "prod"}
		if listener != "" {
			ref["sectionName"] = listener
		}
		spec := object{"targetRefs": []any{ref}}
		switch d.IntN(3) {
		case 0:
			spec["authorization"] = object{"defaultAction": "Deny"}
		case 1:
			spec["authorization"] = object{"defaultAction": "Deny", "rules": []any{object{"name": "ours/" + listener, "action": "Allow",
				"principal": object{"headers": []any{object{"name": "x-mcp-method", "values": []any{"tools/call"}}}}}}}
		case 2:
			spec["jwt"] = object{"providers": []any{object{"name": "kubernetes", "issuer": "https://ours.example.com", "localJWKS": object{"type": "Inline", "inline": `{"keys":[]}`}}}}
			spec["authorization"] = object{"defaultAction": "Deny", "rules": []any{object{"name": "ours/token/" + listener, "action": "Allow",
				"principal": object{"jwt": object{"provider": "kubernetes", "claims": []any{object{"name": "sub", "values": []any{"reader"}}}}}}}}
		}
		u := d.made(envoyAPI, "SecurityPolicy", name, spec)
		u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "accesspolicy-operator"})
		out = append(out, u)
	}
	if d.chance(70) {
		add("prod-auth", "")
	}
	for _, listener := range []string{"a", "b"} {
		if d.chance(25) {
			add("prod-"+listener+"-0a1b2c3d", listener)
		}
	}
	if d.chance(40) {
		auth := d.made("kuadrant.io/v1", "AuthPolicy", "prod-auth", object{"targetRef": object{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "prod"},
			"overrides": object{"strategy": "atomic", "rules": object{"authorization": object{"fail-close": object{"patternMatching": object{"patterns": []any{object{"predicate": "false"}}}}}}}})
		auth.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "accesspolicy-operator"})
		filter := d.made(envoyAPI, "EnvoyExtensionPolicy", "kuadrant-prod", object{"targetRefs": []any{object{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "prod"}}, "wasm": plugin("kuadrant")})
		out = append(out, auth, filter)
	}
	return out
}
