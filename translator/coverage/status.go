package coverage

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
)

// conditionAffected is set by Kuadrant on Gateways, listeners and routes, and names the AuthPolicies that concern them. Envoy
// Gateway 1.9 has no such condition.
// kuadrant-operator v1.5.2: internal/controller/common.go, PolicyAffectedCondition.
const conditionAffected = "kuadrant.io/AuthPolicyAffected"

// affecting reads the names out of the message, which is: Object affected by AuthPolicy [NAMESPACE/NAME NAMESPACE/NAME].
func affecting(conditions []metav1.Condition) []string {
	c := meta.FindStatusCondition(conditions, conditionAffected)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	_, list, _ := strings.Cut(c.Message, "[")
	return strings.Fields(strings.TrimSuffix(list, "]"))
}

// reportedByKuadrant compares a covered answer with the status of the route.
func reportedByKuadrant(a answer, at *attachment, gw *Gateway) answer {
	names, read := at.route.Affected[nameOf(&gw.ObjectMeta)]
	if !a.covered || !read {
		return a
	}
	if name := strings.TrimPrefix(a.by, "AuthPolicy "); !slices.Contains(names, name) {
		a.reported = fmt.Sprintf("Kuadrant's status of the route does not name %s among the AuthPolicies that affect it", name)
	}
	return a
}

// reported compares an answer about a listener with the status that Envoy Gateway gave our object there.
func (w *world) reported(a answer, meant *Baseline, winner placed) answer {
	object := meant.Security
	if winner.policy != nil && winner.ours {
		object = winner.security
	}
	accepted := w.accepted(object, meant.Gateway)
	switch {
	case accepted == nil || accepted.ObservedGeneration != object.Generation:
	case a.covered && accepted.Status == metav1.ConditionFalse:
		a.reported = fmt.Sprintf("Envoy Gateway does not accept %s: %s", nameOf(&object.ObjectMeta), accepted.Message)
	case a.reason == OlderPolicy && accepted.Status == metav1.ConditionTrue:
		a.reported = fmt.Sprintf("Envoy Gateway accepts %s, although %s is older", nameOf(&object.ObjectMeta), a.displacedBy)
	}
	return a
}

// accepted is the condition that Envoy Gateway gave a policy on a Gateway.
func (w *world) accepted(sp *egv1a1.SecurityPolicy, gateway types.NamespacedName) *metav1.Condition {
	for _, ancestor := range sp.Status.Ancestors {
		ref := ancestor.AncestorRef
		same := string(ref.Name) == gateway.Name && (ref.Namespace == nil || string(*ref.Namespace) == gateway.Namespace)
		if !same || !w.in.IsEnvoyGateway(string(ancestor.ControllerName)) {
			continue
		}
		if c := meta.FindStatusCondition(ancestor.Conditions, "Accepted"); c != nil {
			return c
		}
	}
	return nil
}
