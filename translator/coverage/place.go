package coverage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
)

// world is the input with its relations worked out.
type world struct {
	in       Input
	gateways []*Gateway
	// routes are sorted by age.
	routes    []*Route
	byID      map[RouteID]*Route
	listeners map[types.NamespacedName][]*listener
	attached  map[*listener][]*attachment
	// security and extension are the policies that are attached, after Envoy Gateway's rules.
	security, extension placement
}

func newWorld(in Input) *world {
	w := &world{in: in, byID: map[RouteID]*Route{}, listeners: map[types.NamespacedName][]*listener{}, attached: map[*listener][]*attachment{}}
	for i := range in.Gateways {
		w.gateways = append(w.gateways, &in.Gateways[i])
	}
	slices.SortFunc(w.gateways, func(a, b *Gateway) int {
		return cmp.Compare(nameOf(&a.ObjectMeta).String(), nameOf(&b.ObjectMeta).String())
	})
	for i := range in.Routes {
		w.routes = append(w.routes, &in.Routes[i])
		w.byID[in.Routes[i].ID()] = &in.Routes[i]
	}
	slices.SortFunc(w.routes, func(a, b *Route) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	for _, gw := range w.gateways {
		w.listeners[nameOf(&gw.ObjectMeta)] = w.listenersOf(gw)
	}
	for _, all := range w.listeners {
		for _, l := range all {
			w.attached[l] = w.attach(l)
		}
	}
	w.security = w.place(w.securityPolicies())
	w.extension = w.place(w.extensionPolicies())
	return w
}

// age orders objects as Envoy Gateway and Kuadrant do. What is not written yet is the newest.
type age struct {
	unborn bool
	types.NamespacedName
	at time.Time
}

func ageOf(meta *metav1.ObjectMeta) age {
	return age{NamespacedName: nameOf(meta), at: meta.CreationTimestamp.Time}
}

func (a age) compare(b age) int {
	if a.unborn != b.unborn {
		if a.unborn {
			return 1
		}
		return -1
	}
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func nameOf(meta *metav1.ObjectMeta) types.NamespacedName {
	return types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
}

// policy is a SecurityPolicy or an EnvoyExtensionPolicy; one of the two is set.
type policy struct {
	security  *egv1a1.SecurityPolicy
	extension *egv1a1.EnvoyExtensionPolicy
	age       age
	targets   *egv1a1.PolicyTargetReferences
	mergeType *string
	// ours is set for a baseline, and for the EnvoyExtensionPolicy that Kuadrant works by.
	ours bool
}

func (p *policy) String() string {
	if p.security != nil {
		return "SecurityPolicy " + p.age.String()
	}
	return "EnvoyExtensionPolicy " + p.age.String()
}

func (p *policy) kind() string {
	if p.security != nil {
		return egv1a1.KindSecurityPolicy
	}
	return "EnvoyExtensionPolicy"
}

// scope is what a policy is attached to: an object, or a section of it.
type scope struct {
	kind string
	types.NamespacedName
	section string
}

// placed is the policy that holds a scope, and how it came to it.
type placed struct {
	*policy
	scope scope
	// selector is set where it chose its target by labels.
	selector bool
}

// placement has the one policy of each scope.
type placement map[scope]placed

// securityPolicies are all of them, with ours as they would be written now.
func (w *world) securityPolicies() []*policy {
	var out []*policy
	ours := map[types.NamespacedName]bool{}
	for i := range w.in.Baselines {
		if sp := w.in.Baselines[i].Security; sp != nil {
			ours[nameOf(&sp.ObjectMeta)] = true
			out = append(out, &policy{security: sp, ours: true, age: ageOf(&sp.ObjectMeta), targets: &sp.Spec.PolicyTargetReferences})
			out[len(out)-1].age.unborn = sp.CreationTimestamp.IsZero()
		}
	}
	for i := range w.in.SecurityPolicies {
		sp := &w.in.SecurityPolicies[i]
		if !ours[nameOf(&sp.ObjectMeta)] {
			out = append(out, &policy{security: sp, age: ageOf(&sp.ObjectMeta), targets: &sp.Spec.PolicyTargetReferences, mergeType: sp.Spec.MergeType})
		}
	}
	return out
}

// place attaches policies to their targets: the oldest of a scope has it, and the others are in conflict and without effect
// there. An older policy keeps its scope also where it is refused later on.
// Envoy Gateway: internal/gatewayapi/securitypolicy.go, resolveSecurityPolicy*TargetRef, and envoyextensionpolicy.go.
func (w *world) place(policies []*policy) placement {
	slices.SortStableFunc(policies, func(a, b *policy) int { return a.age.compare(b.age) })
	out := placement{}
	take := func(p *policy, s scope, selector bool) {
		if _, taken := out[s]; !taken && w.exists(s) {
			out[s] = placed{policy: p, scope: s, selector: selector}
		}
	}
	for _, p := range policies {
		for _, ref := range refsOf(p.targets) {
			s := scope{kind: string(ref.Kind), NamespacedName: types.NamespacedName{Namespace: p.age.Namespace, Name: string(ref.Name)}}
			if ref.SectionName != nil {
				s.section = string(*ref.SectionName)
			}
			take(p, s, false)
		}
		for i := range p.targets.TargetSelectors {
			for _, s := range w.selected(p, &p.targets.TargetSelectors[i]) {
				take(p, s, true)
			}
		}
	}
	return out
}

func refsOf(t *egv1a1.PolicyTargetReferences) []egv1a1.TargetRef {
	if t.TargetRef != nil {
		return []egv1a1.TargetRef{*t.TargetRef}
	}
	return t.TargetRefs
}

// exists reports whether there is such an object with such a section; a policy with a section that is not there holds
// nothing.
func (w *world) exists(s scope) bool {
	switch s.kind {
	case kindGateway, kindListenerSet:
		for _, l := range w.listeners[w.gatewayOf(s)] {
			inSet := l.set != nil && s.kind == kindListenerSet && nameOf(&l.set.ObjectMeta) == s.NamespacedName
			own := l.set == nil && s.kind == kindGateway
			if (inSet || own) && (s.section == "" || s.section == string(l.Name)) {
				return true
			}
		}
		return false
	default:
		r := w.byID[RouteID{s.kind, s.Namespace, s.Name}]
		return r != nil && (s.section == "" || slices.Contains(r.Rules, s.section))
	}
}

// gatewayOf is the Gateway whose listeners a scope is about.
func (w *world) gatewayOf(s scope) types.NamespacedName {
	if s.kind == kindGateway {
		return s.NamespacedName
	}
	for gateway, all := range w.listeners {
		for _, l := range all {
			if l.set != nil && nameOf(&l.set.ObjectMeta) == s.NamespacedName {
				return gateway
			}
		}
	}
	return types.NamespacedName{}
}

// selected are the objects that a selector chooses: whole ones, and in another namespace only by a ReferenceGrant there.
// Envoy Gateway: internal/gatewayapi/helpers.go, resolvePolicyTargetsFromSelectors.
func (w *world) selected(p *policy, selector *egv1a1.TargetSelector) []scope {
	var out []scope
	group := gwv1.Group(gwv1.GroupName)
	if selector.Group != nil {
		group = *selector.Group
	}
	choose := func(kind string, name types.NamespacedName, labels map[string]string) {
		if group != gwv1.GroupName || kind != string(selector.Kind) || !w.selectsNamespace(selector.Namespaces, p.age.Namespace, name.Namespace) ||
			!matches(&metav1.LabelSelector{MatchLabels: selector.MatchLabels, MatchExpressions: selector.MatchExpressions}, labels) {
			return
		}
		if name.Namespace != p.age.Namespace && !w.granted(p, kind, name) {
			return
		}
		out = append(out, scope{kind: kind, NamespacedName: name})
	}
	for _, gw := range w.gateways {
		choose(kindGateway, nameOf(&gw.ObjectMeta), gw.Labels)
	}
	for i := range w.in.ListenerSets {
		choose(kindListenerSet, nameOf(&w.in.ListenerSets[i].ObjectMeta), w.in.ListenerSets[i].Labels)
	}
	for _, r := range w.routes {
		choose(r.Kind, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, r.Labels)
	}
	return out
}

func (w *world) selectsNamespace(n *egv1a1.TargetSelectorNamespaces, own, target string) bool {
	if n == nil {
		return own == target
	}
	switch n.From {
	case "", "Same":
		return own == target
	case "All":
		return true
	case "Selector":
		return w.namespaceMatches(n.Selector, target)
	default:
		return false
	}
}

// Grant is a ReferenceGrant: what objects of its namespace may be referred to from elsewhere.
type Grant struct {
	Namespace string
	From      []GrantFrom
	To        []GrantTo
}

// GrantFrom is a kind in another namespace.
type GrantFrom struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
}

// GrantTo is a kind of objects, or one of them.
type GrantTo struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name,omitempty"`
}

// granted reports whether a ReferenceGrant lets the policy choose an object of another namespace.
// Envoy Gateway: internal/gatewayapi/helpers.go, isCrossNamespaceReferencePermitted.
func (w *world) granted(p *policy, kind string, target types.NamespacedName) bool {
	return slices.ContainsFunc(w.in.Grants, func(g Grant) bool {
		return g.Namespace == target.Namespace &&
			slices.Contains(g.From, GrantFrom{egv1a1.GroupVersion.Group, p.kind(), p.age.Namespace}) &&
			slices.ContainsFunc(g.To, func(to GrantTo) bool {
				return to.Group == gwv1.GroupName && to.Kind == kind && (to.Name == "" || to.Name == target.Name)
			})
	})
}

// above is the policy of a listener: its own, then that of the ListenerSet, then the Gateway's. A policy for a section of the
// Gateway says nothing about the listeners of ListenerSets. A route's policy with a mergeType is merged into this one.
// Envoy Gateway: internal/gatewayapi/securitypolicy.go, ProcessSecurityPolicies, processSecurityPolicyForRoute.
func (p placement) above(l *listener) (placed, bool) {
	for _, s := range scopesOf(l) {
		if found, ok := p[s]; ok {
			return found, true
		}
	}
	return placed{}, false
}

// scopesOf are the scopes that a listener is in, the narrowest first.
func scopesOf(l *listener) []scope {
	gateway := scope{kind: kindGateway, NamespacedName: nameOf(&l.gateway.ObjectMeta)}
	first := gateway
	if l.set != nil {
		first = scope{kind: kindListenerSet, NamespacedName: nameOf(&l.set.ObjectMeta)}
	}
	section := first
	section.section = string(l.Name)
	if l.set != nil {
		return []scope{section, first, gateway}
	}
	return []scope{section, gateway}
}

// atRoute are the policies of a route, that of the rule first.
func (p placement) atRoute(r *Route, of rule) []placed {
	var out []placed
	whole := scope{kind: r.Kind, NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}}
	if of.name != "" {
		section := whole
		section.section = of.name
		if found, ok := p[section]; ok {
			out = append(out, found)
		}
	}
	if found, ok := p[whole]; ok {
		out = append(out, found)
	}
	return out
}

// target says in words what a policy is attached to.
func (p placed) target() string {
	text := fmt.Sprintf("%s %s", p.scope.kind, p.scope.NamespacedName)
	if p.scope.section != "" {
		part := "rule"
		if p.scope.kind == kindGateway || p.scope.kind == kindListenerSet {
			part = "listener"
		}
		text = fmt.Sprintf("%s %s of %s", part, p.scope.section, text)
	}
	if p.selector {
		text += " (by its labels)"
	}
	return text
}
