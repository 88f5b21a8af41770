package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
)

// What one turn of a Gateway may write into statuses. A change of what is granted has to wait for the end of the turn, and a
// thousand policies on one Gateway take the API server many seconds.
const (
	maxStatusWrites = 100
	statusWriters   = 8
)

// entriesOf is what is to stand in the status of one policy about one Gateway.
type entriesOf struct {
	policy  *Policy
	entries []v1alpha1.PolicyAncestorStatus
}

// report writes into the status of every policy of the Gateway what has become of it there, sends events about what has
// changed, and sets the metrics. It returns whether there is more to write than one turn may.
func (r *GatewayReconciler) report(ctx context.Context, w *world, t *translation, live map[objectName]generated, failure error) (bool, error) {
	gateway := types.NamespacedName{Namespace: w.gateway.Namespace, Name: w.gateway.Name}
	force := readBack(t.objectsOf(w.reported()), live)
	lines, err := r.coverage(ctx, w, t, live)
	if err != nil {
		return false, fmt.Errorf("tell where policies have effect: %w", err)
	}
	t.findings = append(t.findings, r.unseen(w, t)...)
	displaced := newDisplacements(lines)
	tally := newTally(t, lines)
	byPolicy := map[types.NamespacedName][]translator.Verdict{}
	for _, v := range t.verdicts {
		byPolicy[v.Policy] = append(byPolicy[v.Policy], v)
	}
	var due []entriesOf
	for i := range w.policies {
		of := entriesOf{policy: &w.policies[i]}
		for _, v := range byPolicy[types.NamespacedName{Namespace: of.policy.Namespace, Name: of.policy.Name}] {
			programmed := programmedCondition(v, w, force, displaced, failure, of.policy)
			tally.count(v, programmed)
			of.entries = append(of.entries, v1alpha1.PolicyAncestorStatus{AncestorRef: ancestorRef(v), ControllerName: ControllerName,
				Conditions: []metav1.Condition{acceptedCondition(v), programmed}})
		}
		if r.status.differs(of.policy, gateway, of.entries) {
			due = append(due, of)
		}
	}
	tally.inForce = failure == nil && force.worst("").holds() && displaced.of("").reason == ""
	gauges.set(gateway, tally)
	r.announce(w, t, problems(w, t, force, displaced.of(""), failure), len(due) > 0)
	now := due[:min(len(due), maxStatusWrites)]
	return len(now) < len(due), r.status.setAll(ctx, gateway, now)
}

// setAll writes statuses, several at a time.
func (s *statusWriter) setAll(ctx context.Context, gateway types.NamespacedName, due []entriesOf) error {
	errs := make([]error, len(due))
	slots := make(chan struct{}, statusWriters)
	var wait sync.WaitGroup
	for i, of := range due {
		slots <- struct{}{}
		wait.Go(func() {
			errs[i] = s.set(ctx, of.policy, gateway, of.entries)
			<-slots
		})
	}
	wait.Wait()
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
	c := metav1.Condition{Type: v1alpha1.PolicyConditionAccepted, Status: metav1.ConditionFalse, Reason: v.Reason, Message: shortenMessage(v.Message)}
	if v.Accepted {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// programmedCondition says whether what a policy grants is in force. Whatever the translation or the writing could not do
// comes first: an object in force says nothing about what is not in it.
func programmedCondition(v translator.Verdict, w *world, force inForce, displaced *displacements, failure error, policy *Policy) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.PolicyConditionProgrammed, Status: metav1.ConditionFalse, Reason: v.Programmed, Message: v.ProgrammedMessage}
	switch {
	case !v.Accepted:
	case w.enforcing().None():
		c.Reason, c.Message = v1alpha1.PolicyReasonNoEnforcer, w.noEnforcer()
	case w.misconfigured != "":
		c.Reason, c.Message = v1alpha1.PolicyReasonInvalidAnnotation, w.misconfigured
	case failure != nil:
		c.Reason, c.Message = v1alpha1.PolicyReasonPending, fmt.Sprintf("not everything could be written, and it is tried again: %s", failure)
		if was := inForceBefore(policy.Generation, ownConditions(policy, v.Gateway, v.Section)); was != nil {
			c.Status, c.Reason, c.Message = was.Status, was.Reason, was.Message // the former rules hold, and they have its own
			displaced.of(v.Section).take(&c)
		}
	case v.Programmed != v1alpha1.PolicyReasonPending:
	default:
		c.Status, c.Reason, c.Message = force.of(v.Section, policy.Generation, ownConditions(policy, v.Gateway, v.Section))
		displaced.of(v.Section).take(&c)
	}
	c.Message = shortenMessage(c.Message)
	return c
}

// noEnforcer says why nothing enforces policies on a Gateway, and what to do.
func (w *world) noEnforcer() string {
	switch {
	case w.misconfigured != "":
		return "nothing enforces policies on this Gateway: " + w.misconfigured
	case w.ofEnvoyGateway:
		return "neither Kuadrant's AuthPolicy nor Envoy Gateway's SecurityPolicy is installed, so nothing enforces policies on this Gateway; install Kuadrant or Envoy Gateway"
	}
	return "Kuadrant's AuthPolicy is not installed, so nothing enforces policies on this Gateway; install Kuadrant"
}

// shortenMessage keeps a message within what a condition may hold.
func shortenMessage(s string) string {
	const limit = 4000 // 32,768 bytes fit
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return s
}
