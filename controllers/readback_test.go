package controllers

import (
	"testing"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/kuadrant"
)

// reported is an AuthPolicy of generation 2 about which Kuadrant has reported at a generation.
func reported(generation int64, conditions ...metav1.Condition) *AuthPolicy {
	ap := &AuthPolicy{}
	ap.Generation, ap.Status.ObservedGeneration, ap.Status.Conditions = 2, generation, conditions
	return ap
}

func is(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// TestReadBack has the words of kuadrant-operator v1.5.2.
func TestReadBack(t *testing.T) {
	accepted := is("Accepted", metav1.ConditionTrue, "Accepted", "AuthPolicy has been accepted")
	enforced := is("Enforced", metav1.ConditionTrue, "Enforced", "AuthPolicy has been successfully enforced")
	waiting := is("Enforced", metav1.ConditionFalse, "Unknown", "AuthPolicy waiting for the following components to sync: [AuthConfig (x)]")
	for name, test := range map[string]struct {
		live    *AuthPolicy
		was     metav1.ConditionStatus
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"in-force":                        {reported(2, accepted, enforced), "", metav1.ConditionTrue, v1alpha1.PolicyReasonProgrammed, "is enforced"},
		"not-there":                       {nil, metav1.ConditionTrue, metav1.ConditionFalse, v1alpha1.PolicyReasonPending, "not there"},
		"new":                             {reported(0), "", metav1.ConditionFalse, v1alpha1.PolicyReasonPending, "whether kuadrant-operator runs"},
		"new-and-the-policy-was-in-force": {reported(0), metav1.ConditionTrue, metav1.ConditionFalse, v1alpha1.PolicyReasonPending, ""},
		"behind":                          {reported(1, accepted, enforced), "", metav1.ConditionFalse, v1alpha1.PolicyReasonPending, "last change"},
		"behind-and-was-in-force":         {reported(1, accepted, enforced), metav1.ConditionTrue, metav1.ConditionTrue, "was", "was"},
		"waiting-and-was-in-force":        {reported(2, accepted, waiting), metav1.ConditionTrue, metav1.ConditionTrue, "was", "was"},
		"waiting":                         {reported(2, accepted, waiting), "", metav1.ConditionFalse, v1alpha1.PolicyReasonPending, "waiting for"},
		"behind-and-was-never-in-force":   {reported(1, accepted, waiting), metav1.ConditionFalse, metav1.ConditionFalse, v1alpha1.PolicyReasonPending, "last change"},
		"overridden": {reported(2, accepted, is("Enforced", metav1.ConditionFalse, "Overridden", "AuthPolicy is overridden by [demo/other]")),
			metav1.ConditionTrue, metav1.ConditionFalse, v1alpha1.PolicyReasonOverridden, "demo/other"},
		"in-part": {reported(2, accepted, is("Enforced", metav1.ConditionTrue, "Enforced", "AuthPolicy has been partially enforced")),
			metav1.ConditionTrue, metav1.ConditionFalse, v1alpha1.PolicyReasonPartiallyOverridden, "in part"},
		"not-accepted": {reported(2, is("Accepted", metav1.ConditionFalse, "MissingDependency", "Authorino is not installed")),
			metav1.ConditionTrue, metav1.ConditionFalse, v1alpha1.PolicyReasonPending, "Authorino is not installed"},
		"no-routes": {reported(2, accepted, is("Enforced", metav1.ConditionFalse, "Unknown", "AuthPolicy is not in the path to any existing routes")),
			metav1.ConditionTrue, metav1.ConditionFalse, v1alpha1.PolicyReasonPending, "not in the path"},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := &kuadrantv1.AuthPolicy{}
			wanted.Name = "prod-auth"
			live := map[string]*AuthPolicy{}
			if test.live != nil {
				live["prod-auth"] = test.live
			}
			var before []metav1.Condition
			if test.was != "" {
				was := is(v1alpha1.PolicyConditionProgrammed, test.was, "was", "was")
				was.ObservedGeneration = 3
				before = []metav1.Condition{was}
			}
			force := readBack(&translation{kuadrant: kuadrant.Output{Objects: []*kuadrantv1.AuthPolicy{wanted}}}, live)
			status, reason, message := force.of("", 3, before)
			require.Equal(t, test.status, status, message)
			require.Equal(t, test.reason, reason, message)
			require.Contains(t, message, test.message)
			if test.live != nil && test.reason == "was" {
				status, _, _ = force.of("", 4, before)
				require.Equal(t, metav1.ConditionFalse, status, "the policy itself was edited")
			}
		})
	}
}

// TestReadBackOfListeners: the denial beneath is overridden by design; a policy for all listeners is as good as its worst.
func TestReadBackOfListeners(t *testing.T) {
	section := func(name string) *kuadrantv1.AuthPolicy {
		ap := &kuadrantv1.AuthPolicy{}
		ap.Name = name
		listener := gwv1alpha2.SectionName(name)
		ap.Spec.TargetRef.SectionName = &listener
		return ap
	}
	beneath := &kuadrantv1.AuthPolicy{}
	beneath.Name, beneath.Spec.Defaults = "beneath", &kuadrantv1.MergeableAuthPolicySpec{}
	accepted := is("Accepted", metav1.ConditionTrue, "Accepted", "")
	overridden := is("Enforced", metav1.ConditionFalse, "Overridden", "AuthPolicy is overridden by [demo/other]")
	good := is("Enforced", metav1.ConditionTrue, "Enforced", "AuthPolicy has been successfully enforced")
	wanted := &translation{kuadrant: kuadrant.Output{Objects: []*kuadrantv1.AuthPolicy{beneath, section("a"), section("b")}}}

	force := readBack(wanted, map[string]*AuthPolicy{"beneath": reported(2, accepted, overridden), "a": reported(2, accepted, good), "b": reported(2, accepted, good)})
	status, _, message := force.of("", 3, nil)
	require.Equal(t, metav1.ConditionTrue, status)
	require.Equal(t, "AuthPolicy a, b are enforced", message)

	force = readBack(wanted, map[string]*AuthPolicy{"beneath": reported(2, accepted, overridden), "a": reported(2, accepted, good), "b": reported(2, accepted, overridden)})
	_, reason, _ := force.of("", 3, nil)
	require.Equal(t, v1alpha1.PolicyReasonPartiallyOverridden, reason)
	status, _, _ = force.of("a", 3, nil)
	require.Equal(t, metav1.ConditionTrue, status, "a policy for one listener does not care about another")
	_, reason, _ = force.of("b", 3, nil)
	require.Equal(t, v1alpha1.PolicyReasonOverridden, reason)
}
