package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"accesspolicy-operator/translator/owned"
)

// apply makes our objects of a Gateway what they should be and returns them as they are now.
//
// The order never opens the Gateway. With Kuadrant, rules for listeners are written before the Gateway's own object, which,
// as overrides, is stronger than they are, becomes the weaker default. With Envoy Gateway a listener's object is the
// stronger one in any case, so that the Gateway's may become the bare denial only when each listener has an object, and a
// listener's may go only when the Gateway's has rules again. Both come to this: listeners first, the denial beneath them
// after that, and what is not wanted any more is deleted when everything that is wanted is there. The enforcers' controllers
// follow each kind through one watch, so they see it in this order as well. After an error neither of the later steps is
// taken for that kind, but what is granted on one listener does not wait for another.
//
// What Authorino is asked about is written before what has it asked, and goes after it, when Envoy has had time to hear that it
// is not to ask any more.
//
// An enforcer that is not chosen any more keeps its objects, and they keep up with the policies, until everything that was
// written for the chosen ones has been reported in force for a while: while both are there each must allow a request, so
// the Gateway is closed further for a moment and never open. apply returns when to look again at a switch that waits, 0 for
// none.
func (r *GatewayReconciler) apply(ctx context.Context, w *world, t *translation) (map[objectName]generated, time.Duration, error) {
	a := applying{GatewayReconciler: r, have: w.ours, verified: sync.OnceValue(func() error { return r.schema.verify(ctx) })}
	left := w.left()
	a.write(ctx, t.objectsOf(w.chosen))
	keep := t.objects
	ready := len(a.errs) == 0 && readBack(t.objectsOf(w.chosen), a.have).everything()
	wait := r.handOvers.wait(w.gateway.UID, ready && (!left.None() || a.unasked(t.objects)))
	if ready && wait == 0 {
		keep = t.objectsOf(w.chosen)
	} else {
		a.write(ctx, t.objectsOf(left))
	}
	asking := a.asking()
	a.pruneAll(ctx, func(name objectName) bool { return name.kind != authConfigs && !isWanted(keep, name) })
	switch {
	case asking && !a.asking() && len(t.objects) > 0: // another enforcer works, and should not have to deny meanwhile
		wait = handOver
	case len(t.objects) == 0 || ready && wait == 0:
		a.pruneAll(ctx, func(name objectName) bool {
			return name.kind == authConfigs && !isWanted(t.objects, name) && !a.failed(securityPolicies)
		})
	}
	return a.have, wait, a.failure()
}

func isWanted(objects []*wanted, name objectName) bool {
	return slices.ContainsFunc(objects, func(o *wanted) bool { return o.objectName == name })
}

// unasked reports whether there are AuthConfigs that nothing asks about any more.
func (a *applying) unasked(objects []*wanted) bool {
	for name := range a.have {
		if name.kind == authConfigs && !isWanted(objects, name) {
			return true
		}
	}
	return false
}

// asking reports whether there are SecurityPolicies, which may ask.
func (a *applying) asking() bool {
	for name := range a.have {
		if name.kind == securityPolicies {
			return true
		}
	}
	return false
}

// pruneAll deletes what should go. Nothing of a kind goes while some of it could not be written.
func (a *applying) pruneAll(ctx context.Context, goes func(objectName) bool) {
	for name, live := range a.have {
		if !goes(name) || a.failed(name.kind) {
			continue
		}
		if err := a.prune(ctx, live); err != nil {
			a.errs = append(a.errs, writeError{name.kind, fmt.Errorf("delete %s: %w", name, err)})
			continue
		}
		delete(a.have, name)
	}
}

// handOver is how long both enforcers work after the new one has been reported in force: what is reported is that its
// controller has taken the objects, and the proxies get them a moment later.
const handOver = 5 * time.Second

// handOvers remembers since when the Gateways that change their enforcer could let go of the former one.
type handOvers struct {
	mu    sync.Mutex
	since map[types.UID]time.Time
}

// wait returns how long a Gateway still has to wait.
func (h *handOvers) wait(gateway types.UID, ready bool) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !ready {
		delete(h.since, gateway)
		return 0
	}
	if h.since == nil {
		h.since = map[types.UID]time.Time{}
	}
	if _, waits := h.since[gateway]; !waits {
		h.since[gateway] = time.Now()
	}
	return max(0, handOver-time.Since(h.since[gateway]))
}

// applying is one round of writes for a Gateway.
type applying struct {
	*GatewayReconciler
	have map[objectName]generated
	// verified is asked before anything is written.
	verified func() error
	errs     []writeError
}

type writeError struct {
	kind *objectKind
	error
}

func (a *applying) failed(kind *objectKind) bool {
	return slices.ContainsFunc(a.errs, func(e writeError) bool { return e.kind == kind })
}

func (a *applying) failure() error {
	var errs []error
	for _, e := range a.errs {
		errs = append(errs, e.error)
	}
	return errors.Join(errs...)
}

// write writes those objects that are not as they should be, in the order in which they come.
func (a *applying) write(ctx context.Context, objects []*wanted) {
	for _, object := range objects {
		if object.beneath && a.failed(object.kind) {
			continue
		}
		live, err := a.applyOne(ctx, a.have[object.objectName], object.content)
		if err != nil {
			a.errs = append(a.errs, writeError{object.kind, fmt.Errorf("write %s: %w", object.objectName, object.kind.absent(err))})
			continue
		}
		a.have[object.objectName] = live
	}
}

// applyOne writes one object if it is not as it should be, and returns it as it is afterwards.
func (a *applying) applyOne(ctx context.Context, live generated, content *unstructured.Unstructured) (generated, error) {
	if live != nil && asWanted(live, content) {
		return live, nil
	}
	if err := a.verified(); err != nil {
		return nil, err
	}
	begin := time.Now()
	after, operation, err := a.writeOne(ctx, live, content)
	if err != nil {
		return nil, err
	}
	applySeconds.Observe(time.Since(begin).Seconds())
	logf.FromContext(ctx).Info("wrote "+content.GetKind(), "object", after.GetName(), "operation", operation, "generation", after.GetGeneration(),
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

// writeOne creates the object or applies it over the live one.
//
// It is created with a plain POST, because an apply would merge into an object of that name that somebody else made a
// moment ago. An apply in turn takes away only fields that it owns: what other field managers wrote into the spec is made
// ours first. Where the result of an apply would be invalid, as with a bare `rules` of somebody else's beside our
// `overrides`, or where nothing is recorded as ours, the whole spec is replaced.
func (r *GatewayReconciler) writeOne(ctx context.Context, live generated, content *unstructured.Unstructured) (generated, string, error) {
	if live == nil {
		err := r.client.Create(ctx, content, client.FieldOwner(owned.ManagedBy))
		return r.wrote(content, operationCreate, err)
	}
	if !ownsSpec(live.GetManagedFields()) {
		return r.replace(ctx, live, content)
	}
	if err := r.takeOver(ctx, live); err != nil {
		return nil, "", err
	}
	applied := content.DeepCopy()
	applied.SetUID(live.GetUID()) // another object of this name is not ours to change
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(owned.ManagedBy), client.ForceOwnership)
	if isInvalid(err) {
		return r.replace(ctx, live, content)
	}
	return r.wrote(applied, operationApply, err)
}

// replace puts the wanted spec in the place of whatever is there.
func (r *GatewayReconciler) replace(ctx context.Context, live generated, content *unstructured.Unstructured) (generated, string, error) {
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(content.GroupVersionKind())
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(content), current); err != nil {
		return nil, "", err
	}
	if current.GetUID() != live.GetUID() {
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
		return nil, "", err
	}
	// Where nothing was recorded as anybody's, an update records nothing either; an apply does.
	applied := content.DeepCopy()
	applied.SetUID(live.GetUID())
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(owned.ManagedBy), client.ForceOwnership)
	return r.wrote(applied, operationReplace, err)
}

// wrote remembers what a write returned until the cache has it.
func (r *GatewayReconciler) wrote(object *unstructured.Unstructured, operation string, err error) (generated, string, error) {
	if err != nil {
		return nil, "", err
	}
	writes.WithLabelValues(object.GetKind(), operation).Inc()
	raw, err := object.MarshalJSON()
	if err != nil {
		return nil, "", err
	}
	after := kindNamed(object.GetKind()).empty()
	if err := after.UnmarshalJSON(raw); err != nil {
		return nil, "", err
	}
	r.written.remember(after)
	return after, operation, nil
}

// prune deletes an object of ours that is not wanted any more, if it still is the one that was looked at.
func (a *applying) prune(ctx context.Context, live generated) error {
	if err := a.verified(); err != nil {
		return err
	}
	uid := live.GetUID()
	err := a.client.Delete(ctx, reference(live), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	a.written.forget(live)
	if err == nil {
		writes.WithLabelValues(live.kind().String(), operationDelete).Inc()
		logf.FromContext(ctx).Info("deleted "+live.kind().String(), "object", live.GetName(), "operation", operationDelete)
	}
	return nil
}

// reference names an object for a patch or a deletion.
func reference(live generated) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(live.kind().gvk)
	object.SetNamespace(live.GetNamespace())
	object.SetName(live.GetName())
	return object
}
