package coverage

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
)

// extensionPolicies are all of them. Where Kuadrant is to enforce and has not written its own yet, the one that it will write
// is among them, as the newest.
func (w *world) extensionPolicies() []*policy {
	var out []*policy
	kuadrants := w.kuadrantExtensions()
	for i := range w.in.ExtensionPolicies {
		e := &w.in.ExtensionPolicies[i]
		p := &policy{extension: e, age: ageOf(&e.ObjectMeta), targets: &e.Spec.PolicyTargetReferences, mergeType: e.Spec.MergeType}
		if _, ours := kuadrants[p.age.String()]; ours {
			p.ours = true
			delete(kuadrants, p.age.String())
		}
		out = append(out, p)
	}
	for _, e := range kuadrants {
		p := &policy{extension: e, age: ageOf(&e.ObjectMeta), targets: &e.Spec.PolicyTargetReferences, ours: true}
		p.age.unborn = true
		out = append(out, p)
	}
	return out
}

// kuadrantExtensions are the EnvoyExtensionPolicies by which Kuadrant works on Envoy Gateway, by name.
// kuadrant-operator v1.5.2: internal/controller/envoy_gateway_extension_reconciler.go, buildEnvoyExtensionPolicyForGateway.
func (w *world) kuadrantExtensions() map[string]*egv1a1.EnvoyExtensionPolicy {
	out := map[string]*egv1a1.EnvoyExtensionPolicy{}
	for i := range w.in.Baselines {
		b := &w.in.Baselines[i]
		if b.Auth == nil {
			continue
		}
		e := &egv1a1.EnvoyExtensionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: b.Gateway.Namespace, Name: "kuadrant-" + b.Gateway.Name}}
		e.Spec.TargetRefs = []egv1a1.TargetRef{{Group: gwv1.GroupName, Kind: kindGateway, Name: gwv1.ObjectName(b.Gateway.Name)}}
		e.Spec.Wasm = []egv1a1.Wasm{{}}
		out[nameOf(&e.ObjectMeta).String()] = e
	}
	return out
}

// extended is what a route rule, or a listener, has of extensions.
type extended struct {
	// winner is the policy whose extensions it has, and merged the one that is merged into it.
	winner, merged placed
	// failing is a policy that cannot be translated: the route answers 500, and the policy itself is passed over.
	failing placed
}

// extendedAt applies the rules of SecurityPolicies to EnvoyExtensionPolicies, with one difference: a policy that cannot be
// translated leaves its place to the next one.
// Envoy Gateway: internal/gatewayapi/envoyextensionpolicy.go, translateEnvoyExtensionPolicyFor*.
func (w *world) extendedAt(l *listener, r *Route, of rule) extended {
	var out extended
	above, hasAbove := w.extension.above(l)
	var candidates []placed
	if r != nil {
		candidates = w.extension.atRoute(r, of)
	}
	for _, p := range candidates {
		lua := p.extension.Spec.Lua
		merges := p.mergeType != nil && hasAbove
		if merges && len(lua) == 0 {
			lua = above.extension.Spec.Lua
		}
		if len(lua) > 0 && off(w.in.Gates.Lua) {
			out.failing = p
			continue
		}
		out.winner = p
		// Lists are not merged: filters of a kind replace the parent's of that kind.
		if merges && len(p.extension.Spec.Wasm) == 0 {
			out.winner, out.merged = above, p
		}
		return out
	}
	for _, s := range scopesOf(l) {
		p, ok := w.extension[s]
		switch {
		case !ok:
		case len(p.extension.Spec.Lua) > 0 && off(w.in.Gates.Lua):
			out.failing = p
		default:
			out.winner = p
			return out
		}
	}
	return out
}

func off(gate *bool) bool { return gate != nil && !*gate }

// displacement tells where Kuadrant's extension is not there, "" as the reason where it is.
func (e extended) displacement() answer {
	p := e.winner
	if p.policy == nil || p.ours {
		return answer{}
	}
	out := answer{displacedBy: p.String(), reason: ExtensionPolicy}
	switch {
	case p.scope.kind == kindGateway && p.scope.section == "":
		out.reason = OlderExtensionPolicy
		out.why = fmt.Sprintf("%s is older than Kuadrant's and is attached to %s, too, so Kuadrant's is Conflicted and Kuadrant checks nothing on this Gateway; target single routes with it, with mergeType: StrategicMerge", p, p.target())
	case p.mergeType != nil && len(p.extension.Spec.Wasm) > 0:
		out.why = fmt.Sprintf("%s on %s is merged into Kuadrant's, and its wasm filters replace Kuadrant's, because lists are not merged; take wasm out of it", p, p.target())
	case p.scope.kind == kindGateway || p.scope.kind == kindListenerSet:
		out.why = fmt.Sprintf("%s is attached to %s, so Kuadrant's filter is not there and nothing is checked; target single routes with it, with mergeType: StrategicMerge", p, p.target())
	default:
		out.why = fmt.Sprintf("%s on %s has no mergeType, so it stands in place of Kuadrant's and nothing is checked; set mergeType: StrategicMerge in it", p, p.target())
	}
	return out
}

// answers500 adds to a covered answer that the route answers nothing but 500.
func (e extended) answers500(a answer) answer {
	if !a.covered || e.failing.policy == nil || a.reason != "" {
		return a
	}
	a.reason = LuaDisabled
	a.why = fmt.Sprintf("%s on %s has lua, which is off, so that every request is answered with 500; set extensionApis.enableLua in Envoy Gateway's configuration, or take lua out", e.failing, e.failing.target())
	return a
}
