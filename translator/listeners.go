package translator

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/plan"
)

// planSet holds the plans of one Gateway.
type planSet struct {
	// listeners has one plan per listener, in the Gateway's order.
	listeners []plan.Plan
	// baseline is for listeners that are not there yet; nil where no policy targets the whole Gateway.
	baseline *plan.Plan
	// wide is what policies for the whole Gateway say of a listener, whatever its port.
	wide     plan.Plan
	findings []plan.Finding
}

func markMissing(gw *gwv1.Gateway, attached []attachment) {
	for i := range attached {
		a := &attached[i]
		a.mute = slices.ContainsFunc(gw.Spec.Listeners, func(l gwv1.Listener) bool { return string(l.Name) == a.section && !speaksHTTP(l) })
		a.missing = a.section != "" && !slices.ContainsFunc(gw.Spec.Listeners, func(l gwv1.Listener) bool { return string(l.Name) == a.section })
	}
}

// planListeners computes a plan per listener. A policy with a section counts for that listener only; one whose section
// does not exist closes every listener that nobody else targets, because what it was meant to protect cannot be told. A
// Gateway that denies by default is closed there as well.
func planListeners(gw *gwv1.Gateway, attached []attachment, profile plan.Profile) planSet {
	name := types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}
	wide := DefaultDeny(gw) || slices.ContainsFunc(attached, func(a attachment) bool { return a.section == "" || a.missing })
	var set planSet
	for _, l := range gw.Spec.Listeners {
		if !speaksHTTP(l) {
			continue
		}
		p := plan.Plan{Gateway: name, Listener: string(l.Name), Profile: profile, Open: !wide}
		if l.Hostname != nil {
			p.Host = string(*l.Hostname)
		}
		seen := map[types.NamespacedName]bool{} // a policy may name the Gateway and its listener
		for _, a := range attached {
			if !a.missing && (a.section == "" || a.section == string(l.Name)) && !seen[a.name] {
				seen[a.name], p.Open = true, false
				a.contribute(&p, int32(l.Port))
			}
		}
		set.listeners = append(set.listeners, p)
	}
	if wide {
		// What is granted on a listener that nobody has seen yet is decided when it is seen: no rules.
		set.baseline = &plan.Plan{Gateway: name, Profile: profile}
	}
	set.wide = plan.Plan{Gateway: name, Profile: profile, Open: !wide}
	for _, a := range attached {
		if a.section == "" {
			a.contribute(&set.wide, noPort)
		}
	}
	set.findings = append(portFindings(gw, attached), listenerFindings(gw, set.listeners, attached)...)
	return set
}

// noPort is the port of no listener: what holds there holds on every port.
const noPort = -1

// contribute adds what a policy says to the plan of a listener on a port.
func (a attachment) contribute(p *plan.Plan, port int32) {
	origin := plan.Origin{Policy: a.name, Field: "spec"}
	here := make([]plan.Rule, 0, len(a.rules))
	for _, r := range a.rules {
		if len(r.ports) == 0 || slices.Contains(r.ports, port) {
			here = append(here, r.Rule)
		}
	}
	switch {
	case a.action == v1alpha1.ActionTypeAllow:
		if len(a.problems) == 0 {
			p.Rules = append(p.Rules, here...)
		}
	case a.action == v1alpha1.ActionTypeExternalAuth && len(a.problems) == 0 && a.policy.Object.Spec.Rules != nil:
		p.Refusals = append(p.Refusals, plan.Refusal{Origin: origin, Rules: here})
	default:
		p.Refusals = append(p.Refusals, plan.Refusal{Origin: origin, All: true})
	}
}

// collapsed gives one plan for the Gateway when every listener there could be has the same, else all of them and the baseline.
func (s planSet) collapsed() []plan.Plan {
	if len(s.listeners) > 0 && s.baseline != nil && !slices.ContainsFunc(s.listeners, func(p plan.Plan) bool { return !plan.Same(&p, &s.wide) }) {
		whole := s.listeners[0]
		whole.Listener, whole.Host = "", ""
		return []plan.Plan{whole}
	}
	out := slices.Clone(s.listeners)
	if s.baseline != nil {
		out = append(out, *s.baseline)
	}
	return out
}

// portFindings tells of rules whose ports no listener has.
func portFindings(gw *gwv1.Gateway, attached []attachment) []plan.Finding {
	var out []plan.Finding
	for _, a := range attached {
		for _, r := range a.rules {
			if len(r.ports) == 0 || slices.ContainsFunc(gw.Spec.Listeners, func(l gwv1.Listener) bool {
				return slices.Contains(r.ports, int32(l.Port)) && (a.section == "" || a.section == string(l.Name))
			}) {
				continue
			}
			origin := r.Origin
			origin.Field += ".authorization.ports"
			out = append(out, plan.Finding{Severity: plan.Warning, Origin: origin, Reason: "GrantsNothing",
				Gateway: types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name},
				Message: fmt.Sprintf("no listener in reach of the policy has a port of %v, so the rule matches nothing; use the port of a listener", r.ports)})
		}
	}
	return out
}

// listenerFindings tells of listeners that a policy cannot govern, and of listeners left open beside protected ones: the
// MCP router sends tools/call to the upstream's own route, often on another listener.
func listenerFindings(gw *gwv1.Gateway, plans []plan.Plan, attached []attachment) []plan.Finding {
	name := types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}
	var out []plan.Finding
	var open []string
	for _, p := range plans {
		if p.Open {
			open = append(open, p.Listener)
		}
	}
	for _, l := range gw.Spec.Listeners {
		if !speaksHTTP(l) {
			out = append(out, plan.Finding{Severity: plan.Warning, Gateway: name, Listeners: []string{string(l.Name)}, Reason: "NotHTTP",
				Message: fmt.Sprintf("listener %s speaks %s: no policy can govern it, and no generated object protects it", l.Name, l.Protocol)})
		}
	}
	if len(open) == 0 {
		return out
	}
	for _, a := range attached {
		if slices.ContainsFunc(a.rules, func(r compiledRule) bool { return r.MCP != nil || r.CEL != nil }) {
			out = append(out, plan.Finding{Severity: plan.Warning, Gateway: name, Listeners: open, Reason: "ListenerOpen",
				Origin: plan.Origin{Policy: a.name, Field: "spec.targetRefs"},
				Message: fmt.Sprintf("no policy targets %s: if routes of registered MCP servers are attached there, tools/call reaches them unchecked; target the whole Gateway, or those listeners too",
					strings.Join(open, ", "))})
		}
	}
	return out
}

// speaksHTTP reports whether policies can govern a listener at all.
func speaksHTTP(l gwv1.Listener) bool {
	return l.Protocol != gwv1.TLSProtocolType && l.Protocol != gwv1.TCPProtocolType && l.Protocol != gwv1.UDPProtocolType
}
