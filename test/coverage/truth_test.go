package coverage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/envoygateway"
)

const cases = "../../translator/coverage/testdata"

// TestTruth compares the lines of every case with the configuration that Envoy Gateway generates from the same objects.
func TestTruth(t *testing.T) { askAbout(t, egtranslate) }

// TestEgctl asks Envoy Gateway's own tool, about the part of each case that it takes.
func TestEgctl(t *testing.T) { askAbout(t, egctl) }

// question is a case, with a route of the test's own on every listener.
type question struct {
	name string
	in   coverage.Input
	told []coverage.Line
}

func askAbout(t *testing.T, who asker) {
	program := who.program(t)
	files, err := filepath.Glob(filepath.Join(cases, "*", "in.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var questions []question
	var lists [][]*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		objects, err := coverage.Documents(data)
		require.NoError(t, err)
		objects = append(objects, probesFor(input(t, objects, who))...)
		q := question{name: filepath.Base(filepath.Dir(file)), in: input(t, objects, who)}
		q.told = coverage.Compute(q.in)
		if who.concerns(&q) {
			questions, lists = append(questions, q), append(lists, who.sees(objects))
		}
	}
	for i, answer := range who.ask(t, program, lists) {
		t.Run(questions[i].name, func(t *testing.T) { check(t, who, &questions[i], &answer) })
	}
}

// concerns reports whether there is anything in a case that the program knows of.
func (a asker) concerns(q *question) bool {
	for _, gw := range q.in.Gateways {
		if !a.ages && gw.Spec.Infrastructure != nil { // egctl takes the order of filters from the class
			return false
		}
	}
	for _, class := range q.in.Classes {
		if string(class.Spec.ControllerName) != egv1a1.Controller {
			return false
		}
	}
	return a.plugins || slices.ContainsFunc(q.in.Baselines, func(b coverage.Baseline) bool { return b.Security != nil })
}

func check(t *testing.T, who asker, q *question, config *translated) {
	t.Helper()
	require.Empty(t, config.Error, "%s refuses the case itself", who.name)
	for gateway, why := range config.Failed {
		t.Logf("%s does not translate %s: %s", who.name, gateway, why)
	}
	if _, all := config.Failed[""]; all { // which Gateway it is cannot be told
		if !slices.ContainsFunc(q.told, func(l coverage.Line) bool { return l.Reason == coverage.TranslationFails }) {
			t.Errorf("%s translates nothing, and no line says so", who.name)
		}
		return
	}
	found := search(t, config, q.in.Baselines)
	seen := map[spot]bool{}
	checked := 0
	for i := range q.told {
		line := &q.told[i]
		where := spotOf(line)
		seen[where] = true
		if failed(line, config.Failed) {
			if line.Covered {
				t.Errorf("%s: holds, and the Gateway is not translated", where)
			}
			checked++
			continue
		}
		if line.Route == (coverage.RouteID{}) {
			where = probeOf(line)
		}
		if line.Listener != "" && (found[where] != nil || line.Route != (coverage.RouteID{})) {
			who.compare(t, line, found[where])
			checked++
		}
	}
	for where := range found {
		if !seen[where] && slices.ContainsFunc(q.told, func(l coverage.Line) bool { return spotOf(&l).gateway == where.gateway }) {
			t.Errorf("%s is served, and there is no line for it", where)
		}
	}
	t.Logf("%d of %d lines compared", checked, len(q.told))
}

// failed reports whether the Gateway of a line, or its class, is not translated.
func failed(l *coverage.Line, all map[string]string) bool {
	for key := range all {
		if key == l.Gateway.String() || !strings.Contains(key, "/") {
			return true
		}
	}
	return false
}

// spot is what a line is about.
type spot struct {
	gateway, listener string
	route             coverage.RouteID
	rule              int
}

func (s spot) String() string {
	return fmt.Sprintf("Gateway %s listener %s %s rule %d", s.gateway, s.listener, s.route, s.rule)
}

func spotOf(l *coverage.Line) spot {
	return spot{gateway: l.Gateway.String(), listener: l.ListenerName(), route: l.Route, rule: l.Rule}
}

// compare checks a line.
func (a asker) compare(t *testing.T, line *coverage.Line, f *fact) {
	t.Helper()
	where := spotOf(line)
	switch {
	case line.Route.Kind == coverage.KindUDPRoute: // nothing in the configuration bears its name
	case f == nil:
		t.Errorf("there is a line for %s, and no such rule is served", where)
	case line.Enforcer != envoygateway.Enforcer:
		if a.plugins {
			compareKuadrant(t, line, f)
		}
	case f.ours > 0 && f.ours < f.total:
		t.Errorf("%s: ours is on %d of %d routes of the rule", where, f.ours, f.total)
	case line.Covered != (f.ours > 0):
		t.Errorf("%s: holds %t (%s %s), and ours is in Envoy's configuration: %t", where, line.Covered, line.Reason, line.DisplacedBy, f.ours > 0)
	}
	if f != nil && line.Covered && a.plugins && (line.Reason == coverage.LuaDisabled) != f.answers500 {
		t.Errorf("%s: reason %q, and the route answers 500 to everything: %t", where, line.Reason, f.answers500)
	}
}

// compareKuadrant checks what Envoy Gateway can know of Kuadrant: whether its filter is on.
func compareKuadrant(t *testing.T, line *coverage.Line, f *fact) {
	t.Helper()
	switch line.Reason {
	case "", coverage.LuaDisabled, coverage.ExtensionPolicy, coverage.OlderExtensionPolicy:
		if f.kuadrant != 0 && f.kuadrant != f.total || line.Covered != (f.kuadrant > 0) {
			t.Errorf("%s: holds %t (%s), and Kuadrant's filter is on for %d of %d routes", spotOf(line), line.Covered, line.Reason, f.kuadrant, f.total)
		}
	}
}

// probeOf is the test's own route on a listener.
func probeOf(line *coverage.Line) spot {
	where := spotOf(line)
	where.rule = 0
	where.route = coverage.RouteID{Kind: coverage.KindHTTPRoute, Namespace: line.Gateway.Namespace, Name: probeName(line)}
	if line.ListenerSet.Name != "" {
		where.route.Namespace = line.ListenerSet.Namespace
	}
	return where
}

func probeName(l *coverage.Line) string {
	return "zz-probe-" + strings.ReplaceAll(l.Gateway.Name+"/"+l.ListenerName(), "/", "-")
}

// probesFor makes a route for every listener that has a line and takes one: nobody else governs it, so that it gets what the
// listener's line promises.
func probesFor(in coverage.Input) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	var named []string // with two enforcers a listener has two lines
	for _, l := range coverage.Compute(in) {
		if l.Listener == "" || slices.Contains(named, probeName(&l)) || l.Route != (coverage.RouteID{}) || l.Reason == coverage.NotHTTP || l.ListenerSet.Name == "" && selective(in, &l) {
			continue
		}
		parent := map[string]any{"group": gwv1.GroupName, "kind": "Gateway", "name": l.Gateway.Name, "sectionName": l.Listener}
		named = append(named, probeName(&l))
		namespace := l.Gateway.Namespace
		if l.ListenerSet.Name != "" {
			parent["kind"], parent["name"], namespace = "ListenerSet", l.ListenerSet.Name, l.ListenerSet.Namespace
		}
		out = append(out, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
			"metadata": map[string]any{"name": probeName(&l), "namespace": namespace, "creationTimestamp": "2026-12-31T00:00:00Z"},
			"spec": map[string]any{"parentRefs": []any{parent}, "rules": []any{map[string]any{
				"matches":     []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/" + probeName(&l)}}},
				"backendRefs": []any{map[string]any{"name": "probe", "port": int64(80)}}}}},
		}})
	}
	return out
}

// selective reports whether a listener of a Gateway takes no HTTPRoute of its namespace.
func selective(in coverage.Input, l *coverage.Line) bool {
	for _, gw := range in.Gateways {
		for _, each := range gw.Spec.Listeners {
			if gw.Namespace == l.Gateway.Namespace && gw.Name == l.Gateway.Name && string(each.Name) == l.Listener {
				allowed := each.AllowedRoutes
				return each.Protocol != gwv1.HTTPProtocolType || allowed != nil && (len(allowed.Kinds) > 0 ||
					allowed.Namespaces != nil && *allowed.Namespaces.From == gwv1.NamespacesFromSelector)
			}
		}
	}
	return false
}

// input is what coverage is asked: the objects as the program sees them, and ours as they are.
func input(t *testing.T, objects []*unstructured.Unstructured, who asker) coverage.Input {
	t.Helper()
	var whole, in coverage.Input
	for _, u := range objects {
		require.NoError(t, whole.Add(u))
	}
	seen := objects
	if !who.ages {
		seen = who.sees(objects)
	}
	for _, u := range seen {
		require.NoError(t, in.Add(u))
	}
	in.Baselines = whole.Written()
	if !who.ages {
		oneAge(&in)
	}
	return in
}

// oneAge makes everything as old as everything else, for a program that does not know ages.
func oneAge(in *coverage.Input) {
	when := metav1.Unix(1_800_000_000, 0)
	for i := range in.SecurityPolicies {
		in.SecurityPolicies[i].CreationTimestamp = when
	}
	for i := range in.ExtensionPolicies {
		in.ExtensionPolicies[i].CreationTimestamp = when
	}
	for i := range in.Baselines {
		if sp := in.Baselines[i].Security; sp != nil {
			sp.CreationTimestamp = when
		}
	}
}
