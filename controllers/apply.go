package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/owned"
)

// apply makes our AuthPolicies of a Gateway what they should be and returns them as they are now, by name.
//
// The order never opens the Gateway. Rules for listeners are written before the Gateway's own object, which, as overrides,
// is stronger than they are, becomes the weaker default; and what is not wanted any more is deleted when everything that is
// wanted is there. kuadrant-operator reads all AuthPolicies through one watch, so it sees them in this order as well. After
// an error neither of these steps is taken, but what is granted on one listener does not wait for another.
func (r *GatewayReconciler) apply(ctx context.Context, w *world, wanted []*kuadrantv1.AuthPolicy) (map[string]*AuthPolicy, error) {
	have := r.ours(w)
	if !w.kuadrant {
		return have, nil
	}
	verified := sync.OnceValue(func() error { return r.schema.verify(ctx) })
	var errs []error
	for _, object := range inOrder(wanted) {
		if object.Spec.Defaults != nil && len(errs) > 0 {
			continue
		}
		live, err := r.applyOne(ctx, have[object.Name], object, verified)
		if err != nil {
			errs = append(errs, fmt.Errorf("write AuthPolicy %s: %w", object.Name, err))
			continue
		}
		have[object.Name] = live
	}
	if len(errs) > 0 {
		return have, errors.Join(errs...)
	}
	for name, live := range have {
		if slices.ContainsFunc(wanted, func(ap *kuadrantv1.AuthPolicy) bool { return ap.Name == name }) {
			continue
		}
		if err := verified(); err != nil {
			return have, fmt.Errorf("delete AuthPolicy %s: %w", name, err)
		}
		if err := r.prune(ctx, live); err != nil {
			return have, fmt.Errorf("delete AuthPolicy %s: %w", name, err)
		}
		delete(have, name)
	}
	return have, nil
}

func inOrder(wanted []*kuadrantv1.AuthPolicy) []*kuadrantv1.AuthPolicy {
	out := slices.Clone(wanted)
	slices.SortStableFunc(out, func(a, b *kuadrantv1.AuthPolicy) int {
		switch {
		case a.Spec.Defaults == nil && b.Spec.Defaults != nil:
			return -1
		case a.Spec.Defaults != nil && b.Spec.Defaults == nil:
			return 1
		}
		return 0
	})
	return out
}

// applyOne writes one object if it is not as it should be, and returns it as it is afterwards. verified is asked before.
func (r *GatewayReconciler) applyOne(ctx context.Context, live *AuthPolicy, wanted *kuadrantv1.AuthPolicy, verified func() error) (*AuthPolicy, error) {
	content, err := kuadrant.Unstructured(wanted)
	if err != nil {
		return nil, err
	}
	if live != nil && asWanted(live, content) {
		return live, nil
	}
	if err := verified(); err != nil {
		return nil, err
	}
	begin := time.Now()
	after, operation, err := r.write(ctx, live, content)
	if err != nil {
		return nil, err
	}
	applySeconds.Observe(time.Since(begin).Seconds())
	logf.FromContext(ctx).Info("wrote AuthPolicy", "authPolicy", after.Name, "operation", operation, "generation", after.Generation,
		"differs", differences(live, content))
	return after, nil
}

// Operations of a write, as the log and the metric name them.
const (
	operationCreate   = "create"
	operationTakeOver = "take-over"
	operationApply    = "apply"
	operationReplace  = "replace"
	operationDelete   = "delete"
)

// write creates the object or applies it over the live one.
//
// It is created with a plain POST, because an apply would merge into an object of that name that somebody else made a
// moment ago. An apply in turn takes away only fields that it owns: what other field managers wrote into the spec is made
// ours first. Where the result of an apply would be invalid, as with a bare `rules` of somebody else's beside our
// `overrides`, or where nothing is recorded as ours, the whole spec is replaced.
func (r *GatewayReconciler) write(ctx context.Context, live *AuthPolicy, content *unstructured.Unstructured) (*AuthPolicy, string, error) {
	if live == nil {
		err := r.client.Create(ctx, content, client.FieldOwner(owned.ManagedBy))
		return r.wrote(content, operationCreate, err)
	}
	if !ownsSpec(live.ManagedFields) {
		return r.replace(ctx, live, content)
	}
	if err := r.takeOver(ctx, live); err != nil {
		return nil, "", err
	}
	applied := content.DeepCopy()
	applied.SetUID(live.UID) // another object of this name is not ours to change
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(owned.ManagedBy), client.ForceOwnership)
	if isInvalid(err) {
		return r.replace(ctx, live, content)
	}
	return r.wrote(applied, operationApply, err)
}

// replace puts the wanted spec in the place of whatever is there.
func (r *GatewayReconciler) replace(ctx context.Context, live *AuthPolicy, content *unstructured.Unstructured) (*AuthPolicy, string, error) {
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(content.GroupVersionKind())
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(content), current); err != nil {
		return nil, "", err
	}
	if current.GetUID() != live.UID {
		return nil, "", errors.New("another object has taken its name")
	}
	current.Object["spec"] = content.Object["spec"]
	labels := current.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	for name, value := range content.GetLabels() {
		labels[name] = value
	}
	current.SetLabels(labels)
	if err := r.client.Update(ctx, current, client.FieldOwner(owned.ManagedBy)); err != nil {
		return nil, "", absent(err)
	}
	// Where nothing was recorded as anybody's, an update records nothing either; an apply does.
	applied := content.DeepCopy()
	applied.SetUID(live.UID)
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(owned.ManagedBy), client.ForceOwnership)
	return r.wrote(applied, operationReplace, err)
}

// wrote remembers what a write returned until the cache has it.
func (r *GatewayReconciler) wrote(object *unstructured.Unstructured, operation string, err error) (*AuthPolicy, string, error) {
	if err != nil {
		return nil, "", absent(err)
	}
	writes.WithLabelValues("AuthPolicy", operation).Inc()
	raw, err := object.MarshalJSON()
	if err != nil {
		return nil, "", err
	}
	after := &AuthPolicy{}
	if err := after.UnmarshalJSON(raw); err != nil {
		return nil, "", err
	}
	r.written.remember(after)
	return after, operation, nil
}

// prune deletes an object of ours that is not wanted any more, if it still is the one that was looked at.
func (r *GatewayReconciler) prune(ctx context.Context, live *AuthPolicy) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(authPolicyKind)
	object.SetNamespace(live.Namespace)
	object.SetName(live.Name)
	err := r.client.Delete(ctx, object, client.Preconditions{UID: &live.UID})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	r.written.forget(live)
	if err == nil {
		writes.WithLabelValues("AuthPolicy", operationDelete).Inc()
		logf.FromContext(ctx).Info("deleted AuthPolicy", "authPolicy", live.Name, "operation", operationDelete)
	}
	return nil
}
