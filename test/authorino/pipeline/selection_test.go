package pipeline

import (
	"strings"
	"testing"
)

func gatewayWith(listeners string) string {
	return "metadata: {namespace: shop, name: edge}\nspec: {gatewayClassName: mesh, listeners: [" + listeners + "]}"
}

func onListener(name, status string) policy {
	return policy{name: name, created: older, form: "overrides", target: "Gateway/edge#" + name, rules: closing(name, status)}
}

func request(host, method, path string) Request {
	r := post()
	r.Host, r.Method, r.Path = host, method, path

	return r
}

// The most specific host name decides, exactly as written.
func TestSelectionByHost(t *testing.T) {
	judge := loaded(t, World{
		Gateway: document(t, gatewayWith(`{name: any}, {name: wild, hostname: "*.example.com"}, {name: deep, hostname: "*.eu.example.com"},
			{name: exact, hostname: tools.example.com}`)),
		AuthPolicies: policyDocuments(t, onListener("any", "451"), onListener("wild", "452"), onListener("deep", "453"), onListener("exact", "454")),
	})

	for host, verdict := range map[string]string{
		"tools.example.com": "454", "tools.example.com:8443": "454", "other.example.com": "452", "a.b.example.com": "452",
		"a.eu.example.com": "453", "eu.example.com": "452", "example.com": "451", "localhost": "451", "xexample.com": "451",
		"TOOLS.example.com": "452", "tools.EXAMPLE.com": "451", "tools.example.com.": "451", "": "500",
	} {
		result := check(t, judge, request(host, "POST", "/mcp"))
		if wants(t, result, verdict); t.Failed() {
			t.Fatalf("host %q", host)
		}
	}
}

// Kuadrant asks only the most specific host name; where nothing of it matches, the
// request passes, although a wider one has a policy.
func TestNoActionSet(t *testing.T) {
	judge := loaded(t, World{
		HTTPRoutes: documents(t, `
metadata: {namespace: shop, name: narrow}
spec: {parentRefs: [{name: edge}], hostnames: [tools.example.com], rules: [{matches: [{path: {value: /mcp}}]}]}`, `
metadata: {namespace: shop, name: wide}
spec: {parentRefs: [{name: edge}]}`),
		AuthPolicies: policyDocuments(t, policy{name: "g", created: older, form: "overrides", target: "Gateway/edge", rules: closing("g", "403")}),
	})

	wants(t, check(t, judge, request("tools.example.com", "POST", "/mcp")), "403")
	wants(t, check(t, judge, request("other.example.com", "POST", "/else")), "403")

	result := check(t, judge, request("tools.example.com", "POST", "/else"))
	wants(t, result, "allowed")

	if result.Reason != reasonNoActionSet || result.AuthConfig != "" {
		t.Errorf("got %+v", result)
	}
}

func TestOtherListenersStayOpen(t *testing.T) {
	judge := loaded(t, World{
		Gateway:      document(t, gatewayWith(`{name: closed, hostname: a.example.com}, {name: open, hostname: b.example.com}`)),
		AuthPolicies: policyDocuments(t, onListener("closed", "403")),
	})

	wants(t, check(t, judge, request("a.example.com", "POST", "/")), "403")
	wants(t, check(t, judge, request("b.example.com", "POST", "/")), "allowed")
	wants(t, check(t, judge, request("c.example.com", "POST", "/")), "allowed")
}

// A route host name wider than the listener's has no action set there.
func TestRouteWiderThanItsListener(t *testing.T) {
	judge := loaded(t, World{
		Gateway:      document(t, gatewayWith(`{name: exact, hostname: tools.example.com}`)),
		HTTPRoutes:   documents(t, "metadata: {namespace: shop, name: wide}\nspec: {parentRefs: [{name: edge}], hostnames: ['*.example.com']}"),
		AuthPolicies: policyDocuments(t, onListener("exact", "403")),
	})

	wants(t, check(t, judge, request("tools.example.com", "POST", "/")), "allowed")

	if hostnames := judge.AuthConfigs()[0].Hostnames; len(hostnames) != 0 {
		t.Errorf("got %v", hostnames)
	}
}

// Two listeners with the same host name and the same route: the operator leaves to
// chance which of their AuthConfigs is asked, so one that allows is enough.
func TestTiedListeners(t *testing.T) {
	gw := gatewayWith(`{name: first, port: 80}, {name: second, port: 443}`)

	for name, second := range map[string]policy{
		"both deny":   onListener("second", "452"),
		"one allows":  {name: "second", created: older, form: "overrides", target: "Gateway/edge#second", rules: granting("s")},
		"one is open": {name: "second", created: older, target: "Gateway/other", rules: granting("s")},
	} {
		judge := loaded(t, World{Gateway: document(t, gw), AuthPolicies: policyDocuments(t, onListener("first", "451"), second)})
		result := check(t, judge, post())

		switch name {
		case "both deny":
			wants(t, result, "451")
		case "one allows":
			wants(t, result, "allowed")
		case "one is open":
			// A path without a policy has no action set that could be asked first.
			wants(t, result, "451")

			if result.Tied != nil {
				t.Errorf("got %+v", result.Tied)
			}

			continue
		}

		if len(result.Tied) != 2 || result.Tied[0].Allowed || result.Tied[1].Allowed != result.Allowed {
			t.Errorf("%s: got %+v", name, result.Tied)
		}
	}
}

func TestSelectionByRoute(t *testing.T) {
	judge := loaded(t, World{
		HTTPRoutes: documents(t, `
metadata: {namespace: shop, name: tools}
spec:
  parentRefs: [{name: edge}]
  rules:
  - {name: prefix, matches: [{path: {value: /a}}]}
  - {name: longer, matches: [{path: {value: /a/b}}]}
  - {name: exact, matches: [{path: {type: Exact, value: /a/b}}]}
  - {name: regex, matches: [{path: {type: RegularExpression, value: '/a/r.*'}}]}
  - {name: header, matches: [{path: {value: /h}, headers: [{name: X-Kind, value: one}]}]}
  - {name: plain, matches: [{path: {value: /h}}]}
  - {name: query, matches: [{path: {value: /q}, queryParams: [{name: k, value: v w}]}]}
  - {name: method, matches: [{path: {value: /m}, method: POST}]}
  - {name: anymethod, matches: [{path: {value: /m}}]}`),
		AuthPolicies: policyDocuments(t, policy{name: "g", created: older, target: "Gateway/edge", rules: closing("g", "403")}),
	})

	for path, rule := range map[string]string{
		"/a": "prefix", "/a/x": "prefix", "/abc": "prefix", "/a/b": "exact", "/a/b?q": "exact", "/a/b/c": "longer", "/a/rx": "regex",
		"/h": "header", "/q?k=v%20w&k=other": "query", "/q?k=other&k=v%20w": "", "/z": "",
		// Against Gateway API, the match without a method stands before the other.
		"/m": "anymethod",
	} {
		r := request("tools.example.com", "POST", path)
		r.Headers["x-kind"] = "one"

		result := check(t, judge, r)
		if got := result.Path; !strings.HasSuffix(got, "rule "+rule) && rule != "" || rule == "" && got != "" {
			t.Errorf("%s: got %q, want rule %q", path, got, rule)
		}
	}

	wants(t, check(t, judge, request("tools.example.com", "POST", "/h")), "403")
}

func TestRouteAttachment(t *testing.T) {
	gw := gatewayWith(`{name: a, hostname: a.example.com}, {name: b, hostname: b.example.com}`)

	for refs, want := range map[string]string{
		"{name: edge}": "a b", "{name: edge, sectionName: b}": "b", "{name: edge, sectionName: none}": "", "{name: other}": "",
		"{name: edge, namespace: elsewhere}": "", "{kind: Service, group: '', name: edge}": "", "{name: edge}, {name: edge, sectionName: a}": "a b",
	} {
		judge := loaded(t, World{
			Gateway: document(t, gw), HTTPRoutes: documents(t, "metadata: {namespace: shop, name: r}\nspec: {parentRefs: ["+refs+"]}"),
			AuthPolicies: policyDocuments(t, policy{name: "g", created: older, target: "Gateway/edge", rules: granting("g")}),
		})

		var listeners []string
		for _, config := range judge.AuthConfigs() {
			listeners = append(listeners, config.Listener)
		}

		if got := strings.Join(listeners, " "); got != want {
			t.Errorf("%s: got %q, want %q", refs, got, want)
		}
	}
}

// A quote in a route's value breaks out of the operator's predicate.
func TestQuoteInARouteValue(t *testing.T) {
	_, err := Load(World{
		Gateway:      document(t, oneListener),
		HTTPRoutes:   documents(t, `{metadata: {namespace: shop, name: r}, spec: {parentRefs: [{name: edge}], rules: [{matches: [{path: {value: "/it's"}}]}]}}`),
		AuthPolicies: policyDocuments(t, policy{name: "g", created: older, target: "Gateway/edge", rules: granting("g")}),
	})
	if err == nil || !strings.Contains(err.Error(), "the shim would refuse") {
		t.Errorf("got %v", err)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	judge := withRules(t, anyone)

	for name, change := range map[string]func(*Request){
		"shape": func(r *Request) { r.Shape = "" }, "method": func(r *Request) { r.Method = "" },
		"host header": func(r *Request) { r.Headers["Host"] = "a" }, "pseudo header": func(r *Request) { r.Headers[":path"] = "/" },
	} {
		r := post()
		change(&r)

		if _, err := judge.Check(r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The measurement is of Authorino alone, without the judge's own response item.
func TestBench(t *testing.T) {
	judge := withRules(t, matching("true"))

	measured, err := judge.Bench(post(), 1)
	if err != nil || measured.N == 0 || measured.NsPerOp == 0 || measured.AllocsPerOp == 0 || measured.BytesPerOp == 0 || !measured.Result.Allowed {
		t.Errorf("got %+v, %v", measured, err)
	}

	if specs := judge.plain.index.Get(judge.configs[0].name); specs == nil || len(specs.ResponseConfigs) != 0 {
		t.Errorf("measured with response items: %+v", specs)
	}

	if _, err := judge.Bench(request("tools.example.com", "POST", "*"), 1); err == nil {
		t.Error("measured a request that Authorino is not asked for")
	}
}
