package envoygateway

import (
	"fmt"
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/translator/plan"
)

// ReasonLargeDelivery is the finding that every change sends very much to the Envoys of a Gateway.
const ReasonLargeDelivery = "LargeDelivery"

// WarnDelivery is how many bytes a change may send to an Envoy before that is a finding. Envoy Gateway puts all rules of an
// object into every route that it governs, and sends all routes again when one of them changes; nothing refuses that.
const WarnDelivery = 16 << 20

// delivery estimates what Envoy is sent of an object of a size in bytes: measured, 2.6 times its JSON for every copy
// (docs/performance.md).
func delivery(size, copies int) int { return size * copies * 5 / 2 }

// deliveryFinding warns of a Gateway whose rules are many and stand in many routes.
func (e *emission) deliveryFinding(bytes int) {
	if bytes <= WarnDelivery {
		return
	}
	// By powers of two, so that a message is not new with each edit.
	told := WarnDelivery
	for told <= bytes/2 {
		told *= 2
	}
	e.finding(plan.Warning, "", ReasonLargeDelivery, fmt.Sprintf("every change of a policy sends more than %d MiB to each Envoy of this Gateway, because "+
		"Envoy Gateway repeats all rules for each match and host name of each route; use several Gateways, or fewer matches", told>>20))
}

// copies is how many routes Envoy has where an object for a listener governs, "" for all: at most one for each match and host
// name of an HTTPRoute on each listener.
func (e *emission) copies(listener string) int {
	n := 0
	for _, l := range e.Gateway.Spec.Listeners {
		if listener != "" && string(l.Name) != listener || l.Protocol != gwv1.HTTPProtocolType && l.Protocol != gwv1.HTTPSProtocolType {
			continue
		}
		for _, r := range e.Routes {
			if !slices.ContainsFunc(r.Spec.ParentRefs, func(ref gwv1.ParentReference) bool { return e.on(ref, r.Namespace, l) }) {
				continue
			}
			matches := 0
			for _, rule := range r.Spec.Rules {
				matches += max(1, len(rule.Matches))
			}
			n += matches * max(1, len(r.Spec.Hostnames))
		}
	}
	return n
}

// on reports whether a reference of a route in a namespace is to a listener of the Gateway.
func (e *emission) on(ref gwv1.ParentReference, namespace string, l gwv1.Listener) bool {
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	return string(ref.Name) == e.Gateway.Name && namespace == e.Gateway.Namespace && (ref.Kind == nil || *ref.Kind == "Gateway") &&
		(ref.SectionName == nil || *ref.SectionName == l.Name) && (ref.Port == nil || *ref.Port == l.Port)
}
