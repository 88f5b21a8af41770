// Package coverage computes from specs where a generated baseline holds: for each listener, route and route rule of a
// Gateway that has one, whether our object decides there, and which object displaces it. It asks nobody: values in, values
// out. The status of other people's objects is compared with the answer, and never replaces it, because it is late, names
// no winner and is imprecise (docs/coverage.md).
//
// What it knows of precedence is read in the sources, and every case in testdata is compared with what Envoy Gateway itself
// makes of the same objects (test/coverage).
package coverage

import (
	"cmp"
	"fmt"
	"slices"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
)

// Input is everything that Compute looks at.
type Input struct {
	Gateways []Gateway
	// Classes tell whose Gateways these are. One whose class is not here is taken for Envoy Gateway's, which has more ways to
	// displace a baseline.
	Classes []gwv1.GatewayClass
	// EnvoyControllers are the controllerNames of classes that are an Envoy Gateway's; the name that it has by default where
	// there are none.
	EnvoyControllers []string
	ListenerSets     []egv1a1.ListenerSet
	Routes           []Route

	SecurityPolicies  []egv1a1.SecurityPolicy
	ExtensionPolicies []egv1a1.EnvoyExtensionPolicy
	PatchPolicies     []egv1a1.EnvoyPatchPolicy
	EnvoyProxies      []egv1a1.EnvoyProxy
	AuthPolicies      []kuadrantv1.AuthPolicy

	// Namespaces are their labels. One that is not here has the label of its name only.
	Namespaces map[string]map[string]string
	Grants     []Grant
	Gates      Gates
	// Baselines are what we generated, or would generate now.
	Baselines []Baseline
}

// Gateway is a Gateway and which ListenerSets it takes.
type Gateway struct {
	gwv1.Gateway
	// AllowedListeners is spec.allowedListeners, which the Gateway type in use does not have. Nil means that it was not read:
	// then every ListenerSet counts, so that none is overlooked.
	AllowedListeners *egv1a1.AllowedListeners
}

// Gates are the switches in Envoy Gateway's own configuration; nil where they are not known.
type Gates struct {
	// Lua is extensionApis.enableLua, PatchPolicies extensionApis.enableEnvoyPatchPolicy. Both are off unless set.
	Lua, PatchPolicies *bool
}

// Baseline is an object that we generated for a Gateway or one of its listeners. The object's creationTimestamp is the one
// that it has in the cluster; zero means that it is not written yet, and so is the newest.
type Baseline struct {
	Gateway types.NamespacedName
	// Listener is the Gateway's own listener that the object targets, "" for the whole Gateway.
	Listener string
	// One of the two is set.
	Security *egv1a1.SecurityPolicy
	Auth     *kuadrantv1.AuthPolicy
}

// Enforcer is whose object the baseline is.
func (b *Baseline) Enforcer() string {
	if b.Auth != nil {
		return kuadrant.Enforcer
	}
	return envoygateway.Enforcer
}

// Line is the answer for a Gateway as a whole, one listener, or one rule of a route on one listener.
type Line struct {
	Gateway types.NamespacedName
	// Listener is "" where the line is about the whole Gateway. ListenerSet is set where the listener is one of its.
	Listener    string
	ListenerSet types.NamespacedName
	// Route is zero where the line is about a listener: about what any route gets there that nobody else governs.
	Route RouteID
	// Rule is the index of the route's rule, and RuleName its name, if it has one. Rule is -1 where the answer is about all of
	// the route, as it is outside HTTP.
	Rule     int
	RuleName string
	// Enforcer is the one whose object was generated; with two, each has lines of its own, and each should hold.
	Enforcer string
	// Covered says that our object decides here.
	Covered bool
	// By is our object, "" where none of ours is meant to hold.
	By string
	// DisplacedBy is the object that decides instead, or that keeps ours from working, "" where there is none.
	DisplacedBy string
	// Reason is one of the constants. It may be set on a covered line, too, where there is something to say.
	Reason string
	// Why is a sentence: the cause, then the cure.
	Why string
	// Reported is what the status of the objects says against this line, "" where it agrees or says nothing.
	Reported string
}

// Lacking reports whether a baseline was meant to hold here and does not.
func (l *Line) Lacking() bool { return !l.Covered && l.Reason != NotTargeted }

// Reasons of lines. docs/coverage.md explains each.
const (
	// NotTargeted: no policy of ours is meant for this listener.
	NotTargeted = "NotTargeted"
	// OlderPolicy: an older SecurityPolicy has the target that ours has.
	OlderPolicy = "OlderPolicy"
	// ListenerPolicy, ListenerSetPolicy, RoutePolicy, RulePolicy: a SecurityPolicy with a more specific target replaces ours.
	ListenerPolicy    = "ListenerPolicy"
	ListenerSetPolicy = "ListenerSetPolicy"
	RoutePolicy       = "RoutePolicy"
	RulePolicy        = "RulePolicy"
	// RulesReplaced, ProvidersReplaced, DefaultAllow: a policy is merged into ours, and what it brings replaces what counts.
	RulesReplaced     = "RulesReplaced"
	ProvidersReplaced = "ProvidersReplaced"
	DefaultAllow      = "DefaultAllow"
	// ExtAuthReplaced: a policy is merged into ours, and its extAuth asks somebody else, or about something else.
	ExtAuthReplaced = "ExtAuthReplaced"
	// MergedElsewhere: the policy of the route is merged into somebody else's, not into ours.
	MergedElsewhere = "MergedElsewhere"
	// Merged: covered; a policy of the route is merged into ours and leaves it whole.
	Merged = "Merged"
	// PolicyInvalid: covered; a policy of the route would replace ours, but Envoy Gateway refuses it before it has effect.
	PolicyInvalid = "PolicyInvalid"
	// NotHTTP: the listener does not speak HTTP.
	NotHTTP = "NotHTTP"
	// ConnectionsRefused: covered; our object has no rules, so that it refuses every connection also outside HTTP.
	ConnectionsRefused = "ConnectionsRefused"
	// OtherClass: Envoy Gateway does not look after this Gateway, and a SecurityPolicy has no effect on it.
	OtherClass = "OtherClass"
	// TranslationFails: Envoy Gateway cannot translate the Gateway and leaves its Envoys as they were.
	TranslationFails = "TranslationFails"
	// FilterOrder: an EnvoyProxy puts authorization before what it relies on, or no EnvoyProxy puts it behind.
	FilterOrder = "FilterOrder"
	// PatchPolicy: an EnvoyPatchPolicy changes filters that ours needs.
	PatchPolicy = "PatchPolicy"
	// PatchStale: covered; an EnvoyPatchPolicy names what Envoy Gateway 1.9 does not generate any more.
	PatchStale = "PatchStale"
	// LuaDisabled: covered; a Lua extension is attached while Lua is off, and the route answers 500 to everything.
	LuaDisabled = "LuaDisabled"
	// PatchPolicyDisabled: EnvoyPatchPolicy is off, and Kuadrant reaches Authorino by one.
	PatchPolicyDisabled = "PatchPolicyDisabled"
	// ExtensionPolicy: an EnvoyExtensionPolicy replaces Kuadrant's, and with it Kuadrant.
	ExtensionPolicy = "ExtensionPolicy"
	// OlderExtensionPolicy: an older EnvoyExtensionPolicy has the target that Kuadrant's has.
	OlderExtensionPolicy = "OlderExtensionPolicy"
	// AuthPolicyOverrides: an AuthPolicy with overrides stands above ours or is older.
	AuthPolicyOverrides = "AuthPolicyOverrides"
	// AuthPolicyBelow: an AuthPolicy below ours replaces it, because ours is a default there.
	AuthPolicyBelow = "AuthPolicyBelow"
	// ConditionMerged: another AuthPolicy's `when` is merged with ours, and where it is false Authorino is not asked.
	ConditionMerged = "ConditionMerged"
	// HostnameNotGuarded: Kuadrant makes no action set for a host name that is wider than the listener's.
	HostnameNotGuarded = "HostnameNotGuarded"
	// ListenerSetNotGuarded: Kuadrant does not know ListenerSets.
	ListenerSetNotGuarded = "ListenerSetNotGuarded"
)

// Compute gives a line for every listener of the Gateways that have a baseline, and for every rule of the routes that attach
// there, and lines without a listener for what concerns a whole Gateway. A route that does not attach gives none. The same
// input in any order gives the same lines.
func Compute(in Input) []Line {
	w := newWorld(in)
	var out []Line
	for _, gw := range w.gateways {
		for _, enforcer := range []string{kuadrant.Enforcer, envoygateway.Enforcer} {
			if bases := w.baselinesOf(gw, enforcer); len(bases) > 0 {
				out = append(out, w.gatewayLines(gw, enforcer, bases)...)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Line) int { return cmp.Compare(a.Gateway.String(), b.Gateway.String()) })
	return out
}

// judge answers for one enforcer on one Gateway.
type judge interface {
	// listener answers for a listener by itself, route for a rule of a route on it.
	listener(l *listener) answer
	route(a *attachment, r rule) answer
}

// answer is the part of a Line that a judge decides.
type answer struct {
	covered                      bool
	by, displacedBy, reason, why string
	reported                     string
}

func (w *world) gatewayLines(gw *Gateway, enforcer string, bases []*Baseline) []Line {
	j := w.judgeFor(gw, enforcer, bases)
	everywhere, notes := w.everywhere(gw, enforcer)
	base := Line{Gateway: nameOf(&gw.ObjectMeta), Enforcer: enforcer, Rule: -1}
	var out []Line
	for _, note := range notes {
		out = append(out, base.with(note))
	}
	for _, l := range w.listeners[base.Gateway] {
		if l.conflicted {
			continue // it serves nothing
		}
		line := base
		line.Listener = string(l.Name)
		if l.set != nil {
			line.ListenerSet = nameOf(&l.set.ObjectMeta)
		}
		out = append(out, line.with(less(j.listener(l), everywhere)))
		for _, a := range w.attachedTo(l) {
			line.Route = a.route.ID()
			for _, r := range a.route.linesOf() {
				line.Rule, line.RuleName = r.index, r.name
				out = append(out, line.with(less(j.route(a, r), everywhere)))
			}
		}
	}
	return out
}

func (w *world) judgeFor(gw *Gateway, enforcer string, bases []*Baseline) judge {
	if enforcer == kuadrant.Enforcer {
		return newKuadrantJudge(w, gw, bases)
	}
	return &envoyJudge{world: w, gateway: gw, baselines: bases}
}

// with fills a line in.
func (l Line) with(a answer) Line {
	l.Covered, l.By, l.DisplacedBy, l.Reason, l.Why, l.Reported = a.covered, a.by, a.displacedBy, a.reason, a.why, a.reported
	return l
}

// less takes back what is covered where something concerns the whole Gateway.
func less(a answer, everywhere *answer) answer {
	if everywhere == nil || !a.covered {
		return a
	}
	by := a.by
	a = *everywhere
	a.by = by
	return a
}

// baselinesOf gives the baselines of a Gateway and enforcer, the whole Gateway's first.
func (w *world) baselinesOf(gw *Gateway, enforcer string) []*Baseline {
	var out []*Baseline
	for i := range w.in.Baselines {
		b := &w.in.Baselines[i]
		if b.Gateway == nameOf(&gw.ObjectMeta) && b.Enforcer() == enforcer {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *Baseline) int { return cmp.Compare(a.Listener, b.Listener) })
	return out
}

// meantFor is the baseline that should hold on a listener, nil for none. The one of a listener never speaks for a listener
// of a ListenerSet, whatever its name.
func meantFor(bases []*Baseline, l *listener) *Baseline {
	var found *Baseline
	for _, b := range bases {
		if b.Listener == "" || l.set == nil && b.Listener == string(l.Name) {
			found = b // sorted: the listener's own comes last
		}
	}
	return found
}

func notTargeted(l *listener) answer {
	where := "listener " + string(l.Name)
	if l.set != nil {
		where = fmt.Sprintf("ListenerSet %s", nameOf(&l.set.ObjectMeta))
	}
	return answer{reason: NotTargeted, why: fmt.Sprintf("no policy targets %s, so it is as its owner left it; target the whole Gateway to close it", where)}
}
