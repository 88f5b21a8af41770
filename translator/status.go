package translator

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
)

// Conditions returns the conditions of a verdict without times and generation, which only the writer of the status knows.
// Programmed is never True here: only reading back the enforcer's own status can tell.
func (v Verdict) Conditions() []metav1.Condition {
	accepted := metav1.ConditionFalse
	if v.Accepted {
		accepted = metav1.ConditionTrue
	}
	return []metav1.Condition{
		{Type: v1alpha1.PolicyConditionAccepted, Status: accepted, Reason: v.Reason, Message: v.Message},
		{Type: v1alpha1.PolicyConditionProgrammed, Status: metav1.ConditionFalse, Reason: v.Programmed, Message: v.ProgrammedMessage},
	}
}

// AncestorRef names the verdict's ancestor as status.ancestors[].ancestorRef does.
func (v Verdict) AncestorRef() gwv1.ParentReference {
	group, kind, namespace := gwv1.Group(gwv1.GroupName), gwv1.Kind("Gateway"), gwv1.Namespace(v.Gateway.Namespace)
	ref := gwv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: gwv1.ObjectName(v.Gateway.Name)}
	if v.Section != "" {
		section := gwv1.SectionName(v.Section)
		ref.SectionName = &section
	}
	return ref
}
