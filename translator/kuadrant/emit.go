package kuadrant

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
)

// Input is what one Gateway needs.
type Input struct {
	Gateway *gwv1.Gateway
	// Listeners has a plan per listener of the Gateway that speaks HTTP.
	Listeners []plan.Plan
	// Baseline is the plan for listeners that are not there yet; nil when they stay open.
	Baseline *plan.Plan
	// Wide is what the policies for the whole Gateway say of any listener, also of one that nobody has seen yet.
	Wide plan.Plan
	// Existing are the AuthPolicies that are there, ours and others.
	Existing []kuadrantv1.AuthPolicy
	// Routes are the HTTPRoutes that may be attached to the Gateway.
	Routes []gwv1.HTTPRoute
}

// Output is what the emitter made of a Gateway.
type Output struct {
	// Objects in a fixed order: the Gateway's first, then the listeners'.
	Objects []*kuadrantv1.AuthPolicy
	// Expressed are the plans as the objects really express them, with the Gateway's own plan (Listener "") for what no
	// listener's plan covers. They never grant more than the plans that came in.
	Expressed []plan.Plan
	Findings  []plan.Finding
	// Bytes is the size of the largest object as JSON; MaxObject is its limit.
	Bytes int
}

type emission struct {
	Input
	opts    Options
	gateway types.NamespacedName
	out     Output
}

// Emit makes the AuthPolicies of a Gateway. Faults and limits are findings; an error is a fault of the configuration or
// of ours.
func Emit(in Input, opts Options) (*Output, error) {
	e := emission{Input: in, opts: opts, gateway: types.NamespacedName{Namespace: in.Gateway.Namespace, Name: in.Gateway.Name}}
	expressed := e.byHostClass()
	// One object for the Gateway holds on a listener from the moment it is added, so it may grant no more than is granted on
	// any listener.
	whole := in.Baseline != nil && (len(expressed) == 0 || allSame(expressed) && plan.Same(&in.Wide, &expressed[0]))
	e.displacedRoutes(in.Baseline != nil && !whole)
	e.identityFindings(expressed)
	if whole {
		p := *in.Baseline
		if len(expressed) > 0 {
			p = expressed[0]
			p.Listener, p.Host = "", ""
		}
		return &e.out, e.emit(&p, false)
	}
	if in.Baseline != nil {
		if err := e.emit(in.Baseline, true); err != nil {
			return nil, err
		}
	}
	for i := range expressed {
		if expressed[i].Open {
			e.out.Expressed = append(e.out.Expressed, expressed[i])
			continue
		}
		if err := e.emit(&expressed[i], false); err != nil {
			return nil, err
		}
	}
	return &e.out, nil
}

func allSame(plans []plan.Plan) bool {
	return !slices.ContainsFunc(plans[1:], func(p plan.Plan) bool { return !plan.Same(&p, &plans[0]) })
}

// emit makes the object of one plan. Whatever cannot be written as it should leaves the attachment point closed.
func (e *emission) emit(p *plan.Plan, defaults bool) error {
	expressed := *p
	if displaced := e.wouldDisplace(p.Listener, defaults); len(displaced) > 0 {
		e.finding(p.Listener, v1alpha1.PolicyReasonWouldDisplace, fmt.Sprintf(
			"AuthPolicy %s is there for the same target and would be displaced, so only the denial was generated; delete it, or annotate the Gateway with %s: \"true\"",
			some(displaced), AnnotationReplace))
		expressed.Rules = nil
	}
	if winners := e.overriding(p.Listener); len(winners) > 0 {
		e.finding(p.Listener, v1alpha1.PolicyReasonOverridden, fmt.Sprintf(
			"AuthPolicy %s has overrides for the same target and is older, so it stays in force and ours has no effect; delete it", some(winners)))
	}
	scheme, err := NewScheme(&expressed, e.opts)
	if err != nil {
		return err
	}
	name := e.name(p.Listener)
	object := e.opts.object(e.Gateway, name, p.Listener, scheme.Rules, defaults)
	size := len(marshal(object))
	if size > MaxObject {
		if err := scheme.Close(fmt.Sprintf("the AuthPolicy would have %d bytes, %d fit", size, MaxObject)); err != nil {
			return err
		}
		object = e.opts.object(e.Gateway, name, p.Listener, scheme.Rules, defaults)
		size = len(marshal(object))
	}
	e.out.Bytes = max(e.out.Bytes, size)
	e.out.Objects = append(e.out.Objects, object)
	e.out.Expressed = append(e.out.Expressed, scheme.Expressed)
	e.out.Findings = append(e.out.Findings, scheme.Findings...)
	return nil
}

// name gives the object its name. An object of that name that is not ours is never touched: the next name is used, and
// enforcement is never skipped because of it.
func (e *emission) name(listener string) string {
	name, skipped := owned.Name(e.Gateway.Name, listener, e.taken)
	for _, other := range skipped {
		e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Note, Enforcer: Enforcer, Gateway: e.gateway, Listeners: sections(listener), Reason: "NameTaken",
			Message: fmt.Sprintf("AuthPolicy %s is somebody else's and is left alone; ours is named %s", other, name)})
	}
	return name
}

func (e *emission) taken(name string) bool {
	return slices.ContainsFunc(e.Existing, func(ap kuadrantv1.AuthPolicy) bool {
		return ap.Namespace == e.Gateway.Namespace && ap.Name == name && !e.ours(&ap)
	})
}

func (e *emission) ours(ap *kuadrantv1.AuthPolicy) bool { return owned.Is(e.Gateway, &ap.ObjectMeta) }

// wouldDisplace names the other AuthPolicies on the same target. Overrides of a Gateway also displace those of its
// listeners. Defaults displace nothing more specific, but of two defaults on one object the newer one wins.
func (e *emission) wouldDisplace(listener string, defaults bool) []string {
	if e.Gateway.Annotations[AnnotationReplace] == "true" {
		return nil
	}
	return e.others(func(ap *kuadrantv1.AuthPolicy) bool {
		section := ap.Spec.TargetRef.SectionName
		return listener == "" && !defaults || section == nil || string(*section) == listener
	})
}

// overriding names the AuthPolicies that stay in force whatever we write: overrides on the Gateway above a listener, and older
// ones on the same target (kuadrant-operator v1.5.2: the less specific of two overrides wins, then the older).
func (e *emission) overriding(listener string) []string {
	ours := slices.IndexFunc(e.Existing, func(ap kuadrantv1.AuthPolicy) bool {
		return e.ours(&ap) && sectionOf(&ap) == listener
	})
	return e.others(func(ap *kuadrantv1.AuthPolicy) bool {
		switch section := sectionOf(ap); {
		case ap.Spec.Overrides == nil || section != "" && section != listener:
			return false
		case section != listener || ours < 0:
			return true
		}
		return !e.Existing[ours].CreationTimestamp.Before(&ap.CreationTimestamp)
	})
}

func sectionOf(ap *kuadrantv1.AuthPolicy) string {
	if ap.Spec.TargetRef.SectionName == nil {
		return ""
	}
	return string(*ap.Spec.TargetRef.SectionName)
}

// some lists a few names and says how many more there are.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// others names the AuthPolicies of other people on this Gateway that satisfy a condition.
func (e *emission) others(holds func(*kuadrantv1.AuthPolicy) bool) []string {
	var out []string
	for i := range e.Existing {
		ap := &e.Existing[i]
		ref := ap.Spec.TargetRef
		if ap.Namespace == e.Gateway.Namespace && ref.Kind == "Gateway" && string(ref.Name) == e.Gateway.Name && !e.ours(ap) && holds(ap) {
			out = append(out, ap.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (e *emission) finding(listener, reason, message string) {
	e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Error, Enforcer: Enforcer, Gateway: e.gateway,
		Listeners: sections(listener), Reason: reason, Message: message})
}

func sections(listener string) []string {
	if listener == "" {
		return nil
	}
	return []string{listener}
}

// byHostClass returns the plans that Kuadrant can express. Kuadrant chooses an AuthConfig by host name and route, never by
// listener, so listeners whose host names overlap must have the same rules: what does not hold on each of them is dropped
// on all, and a refusal on one holds on all.
func (e *emission) byHostClass() []plan.Plan {
	out := slices.Clone(e.Listeners)
	for _, class := range e.hostClasses() {
		e.unify(out, class)
	}
	return out
}

func (e *emission) unify(plans []plan.Plan, class []int) {
	if len(class) == 1 {
		return
	}
	var closed, open []string
	var union plan.Plan
	holds := map[plan.Origin][]string{} // the listeners on which a rule holds
	for _, i := range class {
		if plans[i].Open {
			open = append(open, plans[i].Listener)
			continue
		}
		closed = append(closed, plans[i].Listener)
		union.Refusals = mergeRefusals(union.Refusals, plans[i].Refusals)
		for _, r := range plans[i].Rules {
			if holds[r.Origin] == nil {
				union.Rules = append(union.Rules, r)
			}
			holds[r.Origin] = append(holds[r.Origin], plans[i].Listener)
		}
	}
	if len(closed) == 0 {
		return
	}
	if len(open) > 0 {
		e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Warning, Enforcer: Enforcer, Gateway: e.gateway, Listeners: open, Reason: "ClosedToo",
			Message: fmt.Sprintf("no policy targets %s, but its host names overlap those of %s and Kuadrant cannot tell them apart: the same rules hold there", strings.Join(open, ", "), strings.Join(closed, ", "))})
	}
	e.refusedToo(plans, class, union.Refusals)
	common := slices.DeleteFunc(union.Rules, func(r plan.Rule) bool {
		missing := slices.DeleteFunc(slices.Clone(closed), func(l string) bool { return slices.Contains(holds[r.Origin], l) })
		if len(missing) > 0 {
			e.notEverywhere(r.Origin, missing)
		}
		return len(missing) > 0
	})
	for _, i := range class {
		plans[i].Open, plans[i].Rules, plans[i].Refusals = false, common, union.Refusals
	}
}

// mergeRefusals adds refusals to those of other listeners. What is refused on one of them is refused on all.
func mergeRefusals(list, more []plan.Refusal) []plan.Refusal {
	list = slices.Clone(list)
	for _, r := range more {
		i := slices.IndexFunc(list, func(x plan.Refusal) bool { return x.Origin == r.Origin })
		if i < 0 {
			list = append(list, r)
			continue
		}
		list[i].All = list[i].All || r.All
		list[i].Rules = slices.Clone(list[i].Rules)
		for _, rule := range r.Rules {
			if !slices.ContainsFunc(list[i].Rules, func(x plan.Rule) bool { return x.Origin == rule.Origin }) {
				list[i].Rules = append(list[i].Rules, rule)
			}
		}
	}
	return list
}

// refusedToo tells of listeners on which more is refused than the policies say.
func (e *emission) refusedToo(plans []plan.Plan, class []int, union []plan.Refusal) {
	for _, i := range class {
		p := plans[i]
		if p.Open || plan.Same(&plan.Plan{Refusals: p.Refusals}, &plan.Plan{Refusals: union}) {
			continue
		}
		e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Warning, Enforcer: Enforcer, Gateway: e.gateway, Listeners: []string{p.Listener}, Reason: "RefusedToo",
			Message: fmt.Sprintf("what an ExternalAuth policy refuses on listeners with overlapping host names is refused on %s too, because Kuadrant cannot tell them apart", p.Listener)})
	}
}

// identityFindings tells what the configuration of identities means for these plans.
func (e *emission) identityFindings(plans []plan.Plan) {
	var ids plan.Identities
	for i := range plans {
		if !plans[i].Open {
			used := plans[i].Identities()
			ids.Token, ids.SPIFFE = ids.Token || used.Token, ids.SPIFFE || used.SPIFFE
		}
	}
	warn := func(severity plan.Severity, reason, message string) {
		e.out.Findings = append(e.out.Findings, plan.Finding{Severity: severity, Enforcer: Enforcer, Gateway: e.gateway, Reason: reason, Message: message})
	}
	if ids.SPIFFE && e.opts.SPIFFEFrom != SPIFFEFromXFCC {
		warn(plan.Note, "PeerIdentity", "SPIFFE IDs are read from source.principal, which Envoy's ext_authz filter sends and Kuadrant's plugin does not; "+
			"behind the plugin no certificate is seen, and rules that need one grant nothing. Behind a gateway that sanitises x-forwarded-client-cert, use the source xfcc")
	}
	if i := slices.IndexFunc(e.opts.Audiences, func(a string) bool { return strings.HasPrefix(a, apiServerAudience) }); ids.Token && i >= 0 {
		warn(plan.Warning, "APIServerAudience", fmt.Sprintf("the token audience %s is usually the API server's own: every server behind the Gateway can use the tokens that it sees against the API server; use an audience of the Gateway's own", e.opts.Audiences[i]))
	}
}

// apiServerAudience begins the default audience of an API server.
const apiServerAudience = "https://kubernetes.default.svc"

// displacedRoutes tells of AuthPolicies on routes of the Gateway: our overrides keep them from taking effect.
// With rules split by listener, the Gateway's own object is a default, which such a policy displaces.
func (e *emission) displacedRoutes(split bool) {
	if e.opts.Strategy == StrategyMerge {
		return
	}
	for _, ap := range e.Existing {
		if ap.Spec.TargetRef.Kind != "HTTPRoute" || !slices.ContainsFunc(e.Routes, func(r gwv1.HTTPRoute) bool {
			return r.Namespace == ap.Namespace && r.Name == string(ap.Spec.TargetRef.Name) && e.attached(&r)
		}) {
			continue
		}
		reason, message := "RoutePolicyDisplaced", "has no effect while policies target the Gateway: ours overrides it"
		if split {
			reason, message = "RoutePolicyOpens", "has no effect on the listeners that are there, but on a listener that is added later it takes the place of our denial until that listener has an object of its own; delete it, or let all listeners have the same rules"
		}
		e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Warning, Enforcer: Enforcer, Gateway: e.gateway, Reason: reason,
			Message: fmt.Sprintf("AuthPolicy %s/%s on HTTPRoute %s %s", ap.Namespace, ap.Name, ap.Spec.TargetRef.Name, message)})
	}
}

func (e *emission) attached(r *gwv1.HTTPRoute) bool {
	return slices.ContainsFunc(r.Spec.ParentRefs, func(ref gwv1.ParentReference) bool {
		return string(ref.Name) == e.Gateway.Name && (ref.Kind == nil || *ref.Kind == "Gateway") &&
			(ref.Namespace == nil && r.Namespace == e.Gateway.Namespace || ref.Namespace != nil && string(*ref.Namespace) == e.Gateway.Namespace)
	})
}

func (e *emission) notEverywhere(rule plan.Origin, missing []string) {
	e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Error, Enforcer: Enforcer, Gateway: e.gateway, Origin: rule, Listeners: missing,
		Reason: v1alpha1.PolicyReasonPartiallyProgrammed, Message: fmt.Sprintf(
			"rule %s does not hold on listener %s, whose host names overlap, and Kuadrant cannot tell the listeners apart: the rule grants nothing. Give the listeners distinct host names, or let the rule hold on all of them",
			rule.Rule, some(missing))})
}

// hostClasses groups the listeners (by index into Listeners) whose host names overlap, directly or through others.
func (e *emission) hostClasses() [][]int {
	class := make([]int, len(e.Listeners))
	for i := range class {
		class[i] = i
		for j := range e.Listeners[:i] {
			if overlap(e.Listeners[i].Host, e.Listeners[j].Host) && class[i] != class[j] {
				from, to := max(class[i], class[j]), min(class[i], class[j])
				for k := range class {
					if class[k] == from {
						class[k] = to
					}
				}
			}
		}
	}
	groups := map[int][]int{}
	for i, c := range class {
		groups[c] = append(groups[c], i)
	}
	var out [][]int
	for _, g := range groups {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	return out
}

// overlap reports whether some host name matches both; "" is every host.
func overlap(a, b string) bool {
	covers := func(wild, host string) bool {
		suffix, ok := strings.CutPrefix(wild, "*")
		return ok && strings.HasSuffix(host, suffix)
	}
	return a == "" || b == "" || strings.EqualFold(a, b) || covers(strings.ToLower(a), strings.ToLower(b)) || covers(strings.ToLower(b), strings.ToLower(a))
}
