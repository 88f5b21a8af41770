package controllers

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/coverage"
)

// on is a line about a route on a listener, or about the listener itself where there is no route. It is covered where there
// is no reason.
func on(listener, route, reason, by string) coverage.Line {
	l := coverage.Line{Gateway: prod, Listener: listener, Rule: -1, Enforcer: "envoy-gateway", Covered: reason == "", Reason: reason, DisplacedBy: by, Why: by + " is there; delete it"}
	if route != "" {
		l.Route, l.Rule = coverage.RouteID{Kind: coverage.KindHTTPRoute, Namespace: "demo", Name: route}, 0
	}
	return l
}

func TestDisplacement(t *testing.T) {
	ofSet := on("a", "", coverage.ListenerSetPolicy, "SecurityPolicy demo/x")
	ofSet.ListenerSet = types.NamespacedName{Namespace: "demo", Name: "set"}
	kuadrants := on("a", "r", coverage.ExtensionPolicy, "EnvoyExtensionPolicy demo/x")
	kuadrants.Enforcer = "kuadrant"
	everywhere := on("", "", coverage.FilterOrder, "EnvoyProxy demo/x")
	merged := on("a", "r", "", "SecurityPolicy demo/x")
	merged.Reason = coverage.Merged
	for name, test := range map[string]struct {
		section string
		lines   []coverage.Line
		reason  string
		message []string
	}{
		"nothing-to-say":                       {},
		"holds":                                {lines: []coverage.Line{on("a", "", "", ""), merged}},
		"not-http-is-a-finding":                {lines: []coverage.Line{on("a", "", "", ""), on("b", "", coverage.NotHTTP, "")}},
		"nothing-was-meant":                    {lines: []coverage.Line{on("a", "", coverage.NotTargeted, "")}},
		"one-route":                            {lines: []coverage.Line{on("a", "", "", ""), on("a", "r", coverage.RoutePolicy, "SecurityPolicy demo/x"), on("a", "s", "", "")}, reason: v1alpha1.PolicyReasonPartiallyOverridden, message: []string{"in force in part only, on HTTPRoute demo/r: SecurityPolicy demo/x"}},
		"every-route":                          {lines: []coverage.Line{on("a", "", "", ""), on("a", "r", coverage.RoutePolicy, "SecurityPolicy demo/x")}, reason: v1alpha1.PolicyReasonOverridden, message: []string{"not in force, on HTTPRoute demo/r"}},
		"no-route-and-the-listener":            {lines: []coverage.Line{on("a", "", coverage.OlderPolicy, "SecurityPolicy demo/x")}, reason: v1alpha1.PolicyReasonOverridden, message: []string{"on listener a"}},
		"no-route-and-one-of-two-listeners":    {lines: []coverage.Line{on("a", "", coverage.ListenerPolicy, "SecurityPolicy demo/x"), on("b", "", "", "")}, reason: v1alpha1.PolicyReasonPartiallyOverridden},
		"another-listener":                     {section: "b", lines: []coverage.Line{on("a", "", coverage.ListenerPolicy, "SecurityPolicy demo/x"), on("b", "", "", "")}},
		"a-listener-of-a-set-has-the-name":     {section: "a", lines: []coverage.Line{ofSet, on("a", "", "", "")}},
		"a-listener-of-a-set-is-the-gateway's": {lines: []coverage.Line{ofSet, on("a", "", "", "")}, reason: v1alpha1.PolicyReasonPartiallyOverridden, message: []string{"listener demo/set/a"}},
		"one-of-two-enforcers-everywhere":      {lines: []coverage.Line{on("a", "r", "", ""), kuadrants}, reason: v1alpha1.PolicyReasonOverridden},
		"the-object-is-named-in-any-case":      {lines: []coverage.Line{{Listener: "a", Reason: coverage.FilterOrder, DisplacedBy: "EnvoyProxy demo/x", Why: "its filterOrder"}}, reason: v1alpha1.PolicyReasonOverridden, message: []string{"EnvoyProxy demo/x: its filterOrder"}},
		"of-the-gateway-is-said-by-listeners":  {lines: []coverage.Line{everywhere, on("a", "", "", "")}},
		"routes-are-counted": {lines: []coverage.Line{on("a", "k", "", ""), on("a", "r1", coverage.RoutePolicy, "SecurityPolicy demo/x"), on("a", "r2", coverage.RoutePolicy, "SecurityPolicy demo/x"), on("a", "r2", coverage.RoutePolicy, "SecurityPolicy demo/x"),
			on("a", "r3", coverage.RoutePolicy, "SecurityPolicy demo/x"), on("a", "r4", coverage.RoutePolicy, "SecurityPolicy demo/x"), on("a", "r5", coverage.RoutePolicy, "SecurityPolicy demo/x"), on("a", "r6", coverage.RoutePolicy, "SecurityPolicy demo/x")},
			reason: v1alpha1.PolicyReasonPartiallyOverridden, message: []string{"HTTPRoute demo/r5 and 1 more: SecurityPolicy demo/x"}},
		"objects-are-counted": {lines: []coverage.Line{on("a", "k", "", ""), on("a", "r1", coverage.RoutePolicy, "SecurityPolicy demo/1"), on("a", "r2", coverage.RoutePolicy, "SecurityPolicy demo/2"),
			on("a", "r3", coverage.RoutePolicy, "SecurityPolicy demo/3"), on("a", "r4", coverage.RoutePolicy, "SecurityPolicy demo/4")},
			reason: v1alpha1.PolicyReasonPartiallyOverridden, message: []string{"demo/3 is there; delete it; and so do 1 more objects"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := newDisplacements(test.lines).of(test.section)
			require.Equal(t, test.reason, got.reason, got.message)
			for _, text := range test.message {
				require.Contains(t, got.message, text)
			}
		})
	}
}

// TestDisplacementIsTold: nothing that is displaced is called programmed, whatever is reported about our object.
func TestDisplacementIsTold(t *testing.T) {
	d := displacement{reason: v1alpha1.PolicyReasonOverridden, message: "not in force"}
	for _, was := range []metav1.Condition{
		{Status: metav1.ConditionTrue, Reason: v1alpha1.PolicyReasonProgrammed, Message: "is accepted"},
		{Status: metav1.ConditionFalse, Reason: v1alpha1.PolicyReasonPartiallyOverridden, Message: "somehow"},
		{Status: metav1.ConditionFalse, Reason: v1alpha1.PolicyReasonPending, Message: "not reported on"},
	} {
		c := was
		d.take(&c)
		require.Equal(t, metav1.ConditionFalse, c.Status)
		require.Equal(t, d.reason, c.Reason)
		require.Contains(t, c.Message, d.message)
		if was.Reason == v1alpha1.PolicyReasonPending {
			require.Contains(t, c.Message, was.Message)
		}
		c = was
		displacement{}.take(&c)
		require.Equal(t, was, c)
	}
}

// TestSlimOptional: coverage reads of what is kept what it would read of all of it.
func TestSlimOptional(t *testing.T) {
	object := func(kind string, spec, status map[string]any) *unstructured.Unstructured {
		version := "gateway.networking.k8s.io/v1"
		if kind == kindExtensionPolicy || kind == kindPatchPolicy || kind == kindEnvoyProxy {
			version = "gateway.envoyproxy.io/v1alpha1"
		}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "spec": spec}}
		u.SetNamespace("demo")
		u.SetName("x")
		u.SetLabels(map[string]string{"a": "b"})
		if status != nil {
			u.Object["status"] = status
		}
		return u
	}
	for _, u := range []*unstructured.Unstructured{
		object(coverage.KindGRPCRoute, map[string]any{"parentRefs": []any{map[string]any{"name": "prod"}}, "hostnames": []any{"a.test"}, "rules": []any{map[string]any{"name": "r", "filters": []any{"big"}}, map[string]any{}}}, nil),
		object(kindListenerSet, map[string]any{"parentRef": map[string]any{"name": "prod"}, "listeners": []any{map[string]any{"name": "l", "port": int64(80), "protocol": "HTTP"}}}, nil),
		object(kindReferenceGrant, map[string]any{"from": []any{map[string]any{"group": "g", "kind": "k", "namespace": "n"}}, "to": []any{map[string]any{"group": "g", "kind": "k"}}}, nil),
		object(kindPatchPolicy, map[string]any{"targetRef": map[string]any{"kind": "Gateway", "name": "prod"}, "jsonPatches": []any{map[string]any{"name": "n", "type": "t", "operation": map[string]any{"op": "add", "path": "/x"}}}},
			map[string]any{"ancestors": []any{map[string]any{"controllerName": "c"}}}),
		object(kindEnvoyProxy, map[string]any{"mergeGateways": true, "filterOrder": []any{map[string]any{"name": "a", "before": "b"}}}, nil),
		object(kindExtensionPolicy, map[string]any{"targetRefs": []any{map[string]any{"kind": "Gateway", "name": "prod"}}, "mergeType": "JSONMerge", "wasm": []any{map[string]any{}}}, nil),
	} {
		var whole, kept coverage.Input
		require.NoError(t, whole.Add(u.DeepCopy()))
		require.NoError(t, kept.Add(slimOptional(u.DeepCopy())))
		require.Equal(t, whole, kept, u.GetKind())
	}
	lua := slimOptional(object(kindExtensionPolicy, map[string]any{"lua": []any{map[string]any{"inline": "code"}}, "extProc": []any{map[string]any{}}}, nil))
	require.Equal(t, map[string]any{"lua": []any{map[string]any{}}}, lua.Object["spec"])
}
