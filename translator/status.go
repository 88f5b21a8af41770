package translator

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
