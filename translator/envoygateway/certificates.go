package envoygateway

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
)

// scope returns the ClientTrafficPolicies that can hold where a plan does: those of the Gateway and of the listener, and
// for a plan that holds on the whole Gateway (listener "") those of any of its listeners.
func (e *emission) scope(listener string) []*egv1a1.ClientTrafficPolicy {
	var out []*egv1a1.ClientTrafficPolicy
	for i := range e.ClientTraffic {
		policy := &e.ClientTraffic[i]
		if policy.Namespace != e.Gateway.Namespace {
			continue
		}
		if slices.ContainsFunc(sectionsOf(policy.Spec.PolicyTargetReferences, e.Gateway), func(section string) bool {
			return section == "" || listener == "" || section == listener
		}) {
			out = append(out, policy)
		}
	}
	return out
}

// clientTraffic is the ClientTrafficPolicy that Envoy Gateway uses for a listener: one of the listener before one of the
// Gateway, then the oldest (internal/gatewayapi/clienttrafficpolicy.go). It is nil for none.
func (e *emission) clientTraffic(listener string) *egv1a1.ClientTrafficPolicy {
	for _, section := range []string{listener, ""} {
		var found *egv1a1.ClientTrafficPolicy
		for _, p := range e.scope(listener) {
			if slices.Contains(sectionsOf(p.Spec.PolicyTargetReferences, e.Gateway), section) && (found == nil || older(p, found)) {
				found = p
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

func older(a, b *egv1a1.ClientTrafficPolicy) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// sectionsOf returns the sections of a Gateway that a policy in its namespace targets, "" for the whole.
func sectionsOf(refs egv1a1.PolicyTargetReferences, gw *gwv1.Gateway) []string {
	list := refs.TargetRefs
	if refs.TargetRef != nil {
		list = []egv1a1.TargetRef{*refs.TargetRef}
	}
	var out []string
	for _, ref := range list {
		if ref.Group != gwv1.GroupName || ref.Kind != "Gateway" || string(ref.Name) != gw.Name {
			continue
		}
		section := ""
		if ref.SectionName != nil {
			section = string(*ref.SectionName)
		}
		out = append(out, section)
	}
	if slices.ContainsFunc(refs.TargetSelectors, func(s egv1a1.TargetSelector) bool { return selects(s, gw) }) {
		out = append(out, "")
	}
	return out
}

func selects(s egv1a1.TargetSelector, gw *gwv1.Gateway) bool {
	if s.Kind != "Gateway" || s.Group != nil && *s.Group != gwv1.GroupName {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: s.MatchLabels, MatchExpressions: s.MatchExpressions})
	return err == nil && selector.Matches(labels.Set(gw.Labels))
}

// uncertain returns why SPIFFE IDs cannot be believed on a listener, or "". Envoy Gateway v1.9 also has modes that ask for
// a certificate and take any (Request, RequireAny).
func (e *emission) uncertain(listener string) string {
	verified := false
	for _, policy := range e.scope(listener) {
		tls := policy.Spec.TLS
		if tls == nil || tls.ClientValidation == nil {
			continue
		}
		if why := tls.ClientValidation.Unverified(); why != "" {
			return fmt.Sprintf("ClientTrafficPolicy %s takes client certificates that nobody verified: %s", policy.Name, why)
		}
		verified = true
	}
	if !verified {
		return "no ClientTrafficPolicy verifies client certificates there; create one with tls.clientValidation, mode VerifyIfGiven and caCertificateRefs"
	}
	return ""
}
