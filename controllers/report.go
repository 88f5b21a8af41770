package controllers

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
)

// report writes into the status of every policy of the Gateway what has become of it there, sends events about what has
// changed, and sets the metrics.
func (r *GatewayReconciler) report(ctx context.Context, w *world, t *translation, live map[string]*AuthPolicy, failure error) error {
	gateway := types.NamespacedName{Namespace: w.gateway.Namespace, Name: w.gateway.Name}
	force := readBack(t, live)
	var errs []error
	changed := map[types.NamespacedName]bool{}
	tally := newTally(t)
	for i := range w.policies {
		policy := &w.policies[i]
		var entries []v1alpha1.PolicyAncestorStatus
		for _, v := range t.verdicts {
			if v.Policy != (types.NamespacedName{Namespace: policy.Namespace, Name: policy.Name}) {
				continue
			}
			before := ownConditions(policy, gateway, v.Section)
			programmed := programmedCondition(v, w, force, failure, before)
			tally.count(v, programmed)
			entries = append(entries, v1alpha1.PolicyAncestorStatus{AncestorRef: ancestorRef(v), ControllerName: ControllerName,
				Conditions: []metav1.Condition{acceptedCondition(v), programmed}})
		}
		wrote, err := r.status.set(ctx, policy, gateway, entries)
		changed[types.NamespacedName{Namespace: policy.Namespace, Name: policy.Name}] = wrote
		errs = append(errs, err)
	}
	r.announce(w, t, changed)
	gauges.set(gateway, tally)
	return errors.Join(errs...)
}

func ancestorRef(v translator.Verdict) gwv1.ParentReference {
	group, kind, namespace := gwv1.Group(gwv1.GroupName), gwv1.Kind(kindGateway), gwv1.Namespace(v.Gateway.Namespace)
	ref := gwv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: gwv1.ObjectName(v.Gateway.Name)}
	if v.Section != "" {
		section := gwv1.SectionName(v.Section)
		ref.SectionName = &section
	}
	return ref
}

func acceptedCondition(v translator.Verdict) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.PolicyConditionAccepted, Status: metav1.ConditionFalse, Reason: v.Reason, Message: v.Message}
	if v.Accepted {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// programmedCondition says whether what a policy grants is in force. Whatever the translation or the writing could not do
// comes first: an object in force says nothing about what is not in it.
func programmedCondition(v translator.Verdict, w *world, force inForce, failure error, before []metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.PolicyConditionProgrammed, Status: metav1.ConditionFalse, Reason: v.Programmed, Message: v.ProgrammedMessage}
	switch {
	case !v.Accepted:
	case !w.kuadrant:
		c.Reason, c.Message = v1alpha1.PolicyReasonNoEnforcer, "Kuadrant's AuthPolicy is not installed, so nothing enforces policies on this Gateway; install Kuadrant"
	case w.misconfigured != "":
		c.Reason, c.Message = v1alpha1.PolicyReasonInvalidAnnotation, w.misconfigured
	case failure != nil:
		c.Reason, c.Message = v1alpha1.PolicyReasonPending, fmt.Sprintf("the AuthPolicy could not be written, and is tried again: %s", shortenMessage(failure.Error()))
	case v.Programmed != v1alpha1.PolicyReasonPending:
	default:
		c.Status, c.Reason, c.Message = force.of(v.Section, before)
	}
	return c
}

// shortenMessage keeps a message within what a condition may hold.
func shortenMessage(s string) string {
	const limit = 1000
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return s
}
