package controllers

import (
	"testing"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
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

// wants is an object of a Gateway called prod.
func wants(kind *objectKind, name, section string) *wanted {
	return &wanted{objectName: objectName{kind, name}, section: section, controller: egv1a1.Controller}
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
			object := wants(authPolicies, "prod-auth", "")
			live := map[objectName]generated{}
			if test.live != nil {
				live[object.objectName] = test.live
			}
			var before []metav1.Condition
			if test.was != "" {
				was := is(v1alpha1.PolicyConditionProgrammed, test.was, "was", "was")
				was.ObservedGeneration = 3
				before = []metav1.Condition{was}
			}
			force := readBack([]*wanted{object}, live)
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
	beneath := wants(authPolicies, "beneath", "")
	beneath.beneath = true
	accepted := is("Accepted", metav1.ConditionTrue, "Accepted", "")
	overridden := is("Enforced", metav1.ConditionFalse, "Overridden", "AuthPolicy is overridden by [demo/other]")
	good := is("Enforced", metav1.ConditionTrue, "Enforced", "AuthPolicy has been successfully enforced")
	objects := []*wanted{beneath, wants(authPolicies, "a", "a"), wants(authPolicies, "b", "b")}
	state := func(a, b metav1.Condition) map[objectName]generated {
		return map[objectName]generated{{authPolicies, "beneath"}: reported(2, accepted, overridden), {authPolicies, "a"}: reported(2, accepted, a), {authPolicies, "b"}: reported(2, accepted, b)}
	}

	force := readBack(objects, state(good, good))
	status, _, message := force.of("", 3, nil)
	require.Equal(t, metav1.ConditionTrue, status)
	require.Equal(t, "AuthPolicy a, b are enforced", message)

	force = readBack(objects, state(good, overridden))
	_, reason, _ := force.of("", 3, nil)
	require.Equal(t, v1alpha1.PolicyReasonPartiallyOverridden, reason)
	status, _, _ = force.of("a", 3, nil)
	require.Equal(t, metav1.ConditionTrue, status, "a policy for one listener does not care about another")
	_, reason, _ = force.of("b", 3, nil)
	require.Equal(t, v1alpha1.PolicyReasonOverridden, reason)
}

// toldOf is a SecurityPolicy of generation 2 of Gateway demo/prod, with entries of Envoy Gateway in its status.
func toldOf(entries ...gwv1alpha2.PolicyAncestorStatus) *SecurityPolicy {
	sp := &SecurityPolicy{}
	sp.Namespace, sp.Generation = "demo", 2
	sp.OwnerReferences = []metav1.OwnerReference{{Kind: "Gateway", Name: "prod"}}
	sp.Status.Ancestors = entries
	return sp
}

// saidOf is what Envoy Gateway says of a Gateway, or with a section of one of its listeners, at a generation.
func saidOf(gateway, section string, generation int64, conditions ...metav1.Condition) gwv1alpha2.PolicyAncestorStatus {
	kind, namespace := gwv1.Kind("Gateway"), gwv1.Namespace("demo")
	out := gwv1alpha2.PolicyAncestorStatus{ControllerName: egv1a1.Controller, AncestorRef: gwv1.ParentReference{Kind: &kind, Namespace: &namespace, Name: gwv1.ObjectName(gateway)}}
	if section != "" {
		name := gwv1.SectionName(section)
		out.AncestorRef.SectionName = &name
	}
	for _, c := range conditions {
		c.ObservedGeneration = generation
		out.Conditions = append(out.Conditions, c)
	}
	return out
}

// TestReadBackOfSecurityPolicies has the words of Envoy Gateway v1.9.1.
func TestReadBackOfSecurityPolicies(t *testing.T) {
	accepted := is("Accepted", metav1.ConditionTrue, "Accepted", "Policy has been accepted.")
	conflicted := is("Accepted", metav1.ConditionFalse, "Conflicted", "Unable to target Gateway prod, another SecurityPolicy has already attached to it")
	invalid := is("Accepted", metav1.ConditionFalse, "Invalid", "no such thing")
	overridden := is("Overridden", metav1.ConditionTrue, "Overridden", "This policy is being overridden by other securityPolicies for these routes: [demo/a]")
	merged := is("Merged", metav1.ConditionTrue, "Merged", "This policy is being merged by other securityPolicies for these routes: [demo/a]")
	somebody := saidOf("prod", "", 2, invalid)
	somebody.ControllerName = "example.com/other"
	for name, test := range map[string]struct {
		live    *SecurityPolicy
		section string
		beneath bool
		status  metav1.ConditionStatus
		reason  string
		message string
		behind  bool
	}{
		"in-force":             {live: toldOf(saidOf("prod", "", 2, accepted)), status: metav1.ConditionTrue, reason: v1alpha1.PolicyReasonProgrammed, message: "SecurityPolicy prod-auth is accepted"},
		"not-there":            {status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "is not there yet"},
		"new":                  {live: toldOf(), status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "has not reported on SecurityPolicy prod-auth yet"},
		"only-others":          {live: toldOf(somebody, saidOf("other", "", 2, accepted)), status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "has not reported on"},
		"others-do-not-count":  {live: toldOf(somebody, saidOf("prod", "", 2, accepted)), status: metav1.ConditionTrue, reason: v1alpha1.PolicyReasonProgrammed},
		"behind":               {live: toldOf(saidOf("prod", "", 1, accepted)), status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "last change", behind: true},
		"behind-and-was-bad":   {live: toldOf(saidOf("prod", "", 1, invalid)), status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "last change"},
		"conflicted":           {live: toldOf(saidOf("prod", "", 2, conflicted)), status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonOverridden, message: "another SecurityPolicy is on the same target"},
		"invalid":              {live: toldOf(saidOf("prod", "", 2, invalid)), status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "no such thing"},
		"overridden":           {live: toldOf(saidOf("prod", "", 2, accepted, overridden)), status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPartiallyOverridden, message: "[demo/a]"},
		"merged":               {live: toldOf(saidOf("prod", "", 2, accepted, merged)), status: metav1.ConditionTrue, reason: v1alpha1.PolicyReasonProgrammed},
		"beneath-and-so":       {live: toldOf(saidOf("prod", "", 2, accepted, overridden)), beneath: true, status: metav1.ConditionTrue, reason: v1alpha1.PolicyReasonProgrammed},
		"beneath-and-bad":      {live: toldOf(saidOf("prod", "", 2, conflicted)), beneath: true, status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonOverridden},
		"all-entries-agree":    {live: toldOf(saidOf("prod", "", 2, accepted), saidOf("prod", "a", 2, invalid)), status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "no such thing"},
		"of-the-listener":      {live: toldOf(saidOf("prod", "a", 2, accepted), saidOf("prod", "b", 2, conflicted)), section: "a", status: metav1.ConditionTrue, reason: v1alpha1.PolicyReasonProgrammed},
		"not-of-the-listener":  {live: toldOf(saidOf("prod", "b", 2, accepted)), section: "a", status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending},
		"nothing-about-accept": {live: toldOf(saidOf("prod", "", 2)), status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "whether it accepts"},
	} {
		t.Run(name, func(t *testing.T) {
			object := wants(securityPolicies, "prod-auth", test.section)
			object.beneath = test.beneath
			live := map[objectName]generated{}
			if test.live != nil {
				live[object.objectName] = test.live
			}
			o := readBack([]*wanted{object}, live).worst(test.section)
			require.Equal(t, test.status, o.status, o.message)
			require.Equal(t, test.reason, o.reason, o.message)
			require.Contains(t, o.message, test.message)
			require.Equal(t, test.behind, o.behind)
		})
	}
}

// TestReadBackOfBoth: each enforcer must allow, so a policy is in force when both say so, and the message names what is not.
func TestReadBackOfBoth(t *testing.T) {
	objects := []*wanted{wants(authPolicies, "prod-auth", ""), wants(securityPolicies, "prod-auth", "")}
	accepted := is("Accepted", metav1.ConditionTrue, "Accepted", "")
	enforced := is("Enforced", metav1.ConditionTrue, "Enforced", "")
	live := func(ap *AuthPolicy, sp *SecurityPolicy) map[objectName]generated {
		return map[objectName]generated{objects[0].objectName: ap, objects[1].objectName: sp}
	}
	force := readBack(objects, live(reported(2, accepted, enforced), toldOf(saidOf("prod", "", 2, accepted))))
	require.True(t, force.everything())
	status, _, message := force.of("", 3, nil)
	require.Equal(t, metav1.ConditionTrue, status)
	require.Equal(t, "AuthPolicy prod-auth is enforced; SecurityPolicy prod-auth is accepted", message)

	force = readBack(objects, live(reported(2, accepted, enforced), toldOf()))
	require.False(t, force.everything())
	status, _, message = force.of("", 3, nil)
	require.Equal(t, metav1.ConditionFalse, status)
	require.Contains(t, message, "SecurityPolicy prod-auth")
	require.NotContains(t, message, "AuthPolicy prod-auth is enforced")

	force = readBack(objects, live(reported(0), toldOf()))
	_, _, message = force.of("", 3, nil)
	require.Contains(t, message, "reported on AuthPolicy prod-auth")
	require.Contains(t, message, "reported on SecurityPolicy prod-auth")

	require.False(t, readBack(nil, nil).everything(), "nothing is in force where there is nothing")
}

// An AuthConfig is in force when Authorino says that it has it; until then the reason is Authorino's.
func TestAuthConfigForce(t *testing.T) {
	want := wants(authConfigs, "prod-auth", "")
	config := func(conditions ...authorinov1beta3.AuthConfigStatusCondition) *AuthConfig {
		out := &AuthConfig{}
		out.Status.Conditions = conditions
		return out
	}
	ready := authorinov1beta3.AuthConfigStatusCondition{Type: authorinov1beta3.StatusConditionReady, Status: corev1.ConditionTrue, Reason: "Reconciled"}
	refused := authorinov1beta3.AuthConfigStatusCondition{Type: authorinov1beta3.StatusConditionReady, Status: corev1.ConditionFalse, Reason: "HostsNotLinked", Message: "one or more hosts are not linked to the resource"}
	available := authorinov1beta3.AuthConfigStatusCondition{Type: authorinov1beta3.StatusConditionAvailable, Status: corev1.ConditionTrue}
	require.True(t, config(available, ready).force(want).holds())
	for message, object := range map[string]*AuthConfig{"has not reported": config(available), "hosts are not linked": config(available, refused)} {
		state := object.force(want)
		require.False(t, state.holds())
		require.Equal(t, v1alpha1.PolicyReasonPending, state.reason)
		require.Contains(t, state.message, message)
	}
	require.False(t, config(refused).sameReport(config(ready)))
	require.False(t, config().sameReport(config(ready)))
	moved := ready
	moved.LastTransitionTime = metav1.Now()
	require.True(t, config(moved, available).sameReport(config(ready)))
	require.False(t, config(ready).sameReport(&SecurityPolicy{}))
}
