package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
)

// PolicyReconciler looks after what no Gateway can: entries of a policy's status for Gateways that it does not target any
// more, or that are gone, and targets that come to nothing.
type PolicyReconciler struct {
	*classReader
	status *statusWriter
	events events.EventRecorder
	schema *schemaGuard
	told   toldTargets
}

// Reconcile works on one policy.
func (r *PolicyReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if r.schema.stale() {
		return ctrl.Result{}, nil
	}
	policy := &Policy{}
	if err := r.client.Get(ctx, request.NamespacedName, policy); err != nil {
		if apierrors.IsNotFound(err) {
			r.told.forget(request.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	unplaced, managed, err := r.targets(ctx, policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, problem := range r.told.renew(request.NamespacedName, unplaced) {
		r.events.Eventf(policy, nil, corev1.EventTypeWarning, problem.reason, "Attach", "%s", problem.message)
	}
	for _, gateway := range ancestorGateways(&policy.XAccessPolicy) {
		if slices.Contains(managed, gateway) {
			continue
		}
		if err := r.status.set(ctx, policy, gateway, nil); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// unplacedTarget is a target that comes to nothing.
type unplacedTarget struct {
	reason, message string
}

// targets returns the targets that come to nothing, and the Gateways that a policy targets and that are looked after.
func (r *PolicyReconciler) targets(ctx context.Context, policy *Policy) ([]unplacedTarget, []types.NamespacedName, error) {
	var unplaced []unplacedTarget
	var managed []types.NamespacedName
	for i, ref := range policy.Spec.TargetRefs {
		if !isGateway(ref.Group, ref.Kind) {
			unplaced = append(unplaced, unplacedTarget{reasonTargetIgnored, fmt.Sprintf(
				"spec.targetRefs[%d]: only Gateways of %s can be targeted, not %s of group %q; this target is left to other implementations", i, gwv1.GroupName, shorten(string(ref.Kind)), shorten(string(ref.Group)))})
			continue
		}
		name := types.NamespacedName{Namespace: policy.Namespace, Name: string(ref.Name)}
		var gateway gwv1.Gateway
		err := r.client.Get(ctx, name, &gateway)
		if apierrors.IsNotFound(err) {
			unplaced = append(unplaced, unplacedTarget{v1alpha1.PolicyReasonTargetNotFound, fmt.Sprintf(
				"spec.targetRefs[%d]: Gateway %s does not exist; create it, or correct the name", i, name)})
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		_, looked, err := r.classOf(ctx, &gateway)
		if err != nil {
			return nil, nil, err
		}
		if looked {
			managed = append(managed, name)
		}
	}
	return unplaced, managed, nil
}

// toldTargets remembers which targets that come to nothing have been announced, and is the metric of them.
type toldTargets struct {
	mu       sync.Mutex
	byPolicy map[types.NamespacedName][]unplacedTarget
}

func (t *toldTargets) renew(policy types.NamespacedName, now []unplacedTarget) []unplacedTarget {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPolicy == nil {
		t.byPolicy = map[types.NamespacedName][]unplacedTarget{}
	}
	before := t.byPolicy[policy]
	var fresh []unplacedTarget
	for _, target := range now {
		if !slices.Contains(before, target) {
			fresh = append(fresh, target)
		}
	}
	if len(now) == 0 {
		delete(t.byPolicy, policy)
	} else {
		t.byPolicy[policy] = now
	}
	t.export()
	return fresh
}

func (t *toldTargets) forget(policy types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byPolicy, policy)
	t.export()
}

func (t *toldTargets) export() {
	count := map[string]int{reasonTargetIgnored: 0, v1alpha1.PolicyReasonTargetNotFound: 0}
	for _, targets := range t.byPolicy {
		for _, target := range targets {
			count[target.reason]++
		}
	}
	for reason, n := range count {
		unplacedTargets.WithLabelValues(reason).Set(float64(n))
	}
}
