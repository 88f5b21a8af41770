package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"accesspolicy-operator/api/v1alpha1"
)

// maxAncestors is the CRD's limit for status.ancestors, of all controllers together.
const maxAncestors = 16

// statusWriter writes our entries of status.ancestors and leaves those of other controllers as they are.
type statusWriter struct {
	client client.Client
	// live reads past the cache, after a conflict.
	live    client.Reader
	events  events.EventRecorder
	written *written
	full    fullStatuses
}

// set makes our entries for one Gateway be those given, and none where none are given. Entries come without times and generation.
func (s *statusWriter) set(ctx context.Context, policy *Policy, gateway types.NamespacedName, entries []v1alpha1.PolicyAncestorStatus) error {
	current := policy
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if current == nil {
			current = &Policy{}
			if err := s.live.Get(ctx, client.ObjectKeyFromObject(policy), current); err != nil {
				return client.IgnoreNotFound(err)
			}
			if current.UID != policy.UID || current.Generation != policy.Generation {
				return nil // what is to be said is about a former version; the change has a turn of its own
			}
		}
		before := current
		patch, full := s.patch(before, gateway, entries)
		if full && s.full.tell(policy.UID, gateway) {
			s.events.Eventf(policy, nil, corev1.EventTypeWarning, "StatusFull", "Report", "%s",
				fmt.Sprintf("status.ancestors has %d entries of other controllers, so there is no room to report on Gateway %s; remove some", maxAncestors, gateway))
		}
		if patch == nil {
			return nil
		}
		target := &Policy{}
		target.SetNamespace(policy.Namespace)
		target.SetName(policy.Name)
		if err := s.client.Status().Patch(ctx, target, patch); err != nil {
			current = nil // what the cache has is behind
			return err
		}
		if len(entries) > 0 { // a removal may cross with a Gateway that is looked after again, which has to see it
			s.written.rememberStatus(target)
		}
		writes.WithLabelValues("XAccessPolicy/status", "patch").Inc()
		s.announce(ctx, before, target, gateway)
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of policy %s/%s: %w", policy.Namespace, policy.Name, err)
	}
	return nil
}

// differs reports whether set would have something to write, or to complain about.
func (s *statusWriter) differs(policy *Policy, gateway types.NamespacedName, entries []v1alpha1.PolicyAncestorStatus) bool {
	patch, full := s.patch(policy, gateway, entries)
	if !full {
		s.full.forget(policy.UID, gateway)
	}
	return patch != nil || full && !s.full.told(policy.UID, gateway)
}

// fullStatuses remembers which policies have been said to have no room in their status.
type fullStatuses struct{ known sync.Map }

type fullStatus struct {
	policy  types.UID
	gateway types.NamespacedName
}

// tell reports whether it is news.
func (f *fullStatuses) tell(policy types.UID, gateway types.NamespacedName) bool {
	_, known := f.known.LoadOrStore(fullStatus{policy, gateway}, true)
	return !known
}

func (f *fullStatuses) told(policy types.UID, gateway types.NamespacedName) bool {
	_, known := f.known.Load(fullStatus{policy, gateway})
	return known
}

func (f *fullStatuses) forget(policy types.UID, gateway types.NamespacedName) {
	f.known.Delete(fullStatus{policy, gateway})
}

// patch returns what has to be written, nil if nothing has, and whether there is no room for it.
//
// A patch of single entries keeps what newer versions of the API have put into the others; the version makes the API server
// refuse it where the list is not the one that was read.
func (s *statusWriter) patch(policy *Policy, gateway types.NamespacedName, entries []v1alpha1.PolicyAncestorStatus) (client.Patch, bool) {
	type operation map[string]any
	ops := []operation{}
	list := policy.Status.Ancestors
	left := slices.Clone(entries)
	var gone []int
	for i := range list {
		if list[i].ControllerName != ControllerName || ancestorName(&policy.XAccessPolicy, list[i].AncestorRef) != gateway {
			continue
		}
		at := slices.IndexFunc(left, func(e v1alpha1.PolicyAncestorStatus) bool { return section(e) == section(list[i]) })
		if at < 0 {
			gone = append(gone, i)
			continue
		}
		entry := dated(left[at], list[i].Conditions, policy.Generation)
		left = slices.Delete(left, at, at+1)
		if !sameEntry(entry, list[i]) {
			ops = append(ops, operation{"op": "replace", "path": fmt.Sprintf("/status/ancestors/%d", i), "value": entry})
		}
	}
	slices.Reverse(gone) // the indexes of those before do not move
	for _, i := range gone {
		ops = append(ops, operation{"op": "remove", "path": fmt.Sprintf("/status/ancestors/%d", i)})
	}
	room := max(0, maxAncestors-len(list)+len(gone))
	full := len(left) > room
	var added []v1alpha1.PolicyAncestorStatus
	for _, entry := range left[:min(room, len(left))] {
		added = append(added, dated(entry, nil, policy.Generation))
	}
	if len(added) > 0 && len(list) == 0 {
		return s.mergePatch(policy, added), full
	}
	for _, entry := range added {
		ops = append(ops, operation{"op": "add", "path": "/status/ancestors/-", "value": entry})
	}
	if len(ops) == 0 {
		return nil, full
	}
	ops = append(ops, operation{"op": "replace", "path": "/metadata/resourceVersion", "value": policy.ResourceVersion})
	return client.RawPatch(types.JSONPatchType, marshal(ops)), full
}

// mergePatch makes the list where there is none.
func (s *statusWriter) mergePatch(policy *Policy, entries []v1alpha1.PolicyAncestorStatus) client.Patch {
	return client.RawPatch(types.MergePatchType, marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": policy.ResourceVersion},
		"status":   map[string]any{"ancestors": entries},
	}))
}

// marshal is for values that always have a JSON form.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("controllers: %v", err))
	}
	return b
}

func section(e v1alpha1.PolicyAncestorStatus) string {
	if e.AncestorRef.SectionName == nil {
		return ""
	}
	return string(*e.AncestorRef.SectionName)
}

// dated gives conditions their generation and time: a time moves only with the status value.
func dated(entry v1alpha1.PolicyAncestorStatus, before []metav1.Condition, generation int64) v1alpha1.PolicyAncestorStatus {
	var out []metav1.Condition
	for _, c := range entry.Conditions {
		c.ObservedGeneration = generation
		if old := meta.FindStatusCondition(before, c.Type); old != nil {
			out = append(out, *old)
		}
		meta.SetStatusCondition(&out, c)
	}
	entry.Conditions = out
	return entry
}

func sameEntry(a, b v1alpha1.PolicyAncestorStatus) bool {
	return slices.EqualFunc(a.Conditions, b.Conditions, func(x, y metav1.Condition) bool {
		x.LastTransitionTime, y.LastTransitionTime = metav1.Time{}, metav1.Time{}
		return x == y
	})
}

// ownConditions returns the conditions that we have written for a policy on a listener of a Gateway, "" for all of it.
func ownConditions(policy *Policy, gateway types.NamespacedName, listener string) []metav1.Condition {
	for _, a := range policy.Status.Ancestors {
		if a.ControllerName == ControllerName && ancestorName(&policy.XAccessPolicy, a.AncestorRef) == gateway && section(a) == listener {
			return a.Conditions
		}
	}
	return nil
}

// announce sends an event for every condition whose status or reason has changed. That something is still being worked on is
// no news.
func (s *statusWriter) announce(ctx context.Context, before, after *Policy, gateway types.NamespacedName) {
	for _, a := range after.Status.Ancestors {
		if a.ControllerName != ControllerName || ancestorName(&after.XAccessPolicy, a.AncestorRef) != gateway {
			continue
		}
		old := ownConditions(before, gateway, section(a))
		for _, c := range a.Conditions {
			was := meta.FindStatusCondition(old, c.Type)
			if was != nil && was.Status == c.Status && was.Reason == c.Reason || c.Reason == v1alpha1.PolicyReasonPending {
				continue
			}
			kind := corev1.EventTypeNormal
			if c.Status != metav1.ConditionTrue {
				kind = corev1.EventTypeWarning
			}
			logf.FromContext(ctx).Info("policy changed", "policy", client.ObjectKeyFromObject(after), "listener", section(a), "condition", c.Type, "status", c.Status, "reason", c.Reason)
			s.events.Eventf(after, nil, kind, c.Reason, c.Type, "%s", eventNote(gateway, section(a), c.Message))
		}
	}
}

// eventNote is the text of an event, which the API server limits to 1,024 bytes.
func eventNote(gateway types.NamespacedName, listener, message string) string {
	where := "Gateway " + gateway.String()
	if listener != "" {
		where += ", listener " + shorten(listener)
	}
	const limit = 1000
	note := where + ": " + message
	if len(note) > limit {
		note = strings.ToValidUTF8(note[:limit], "") + "…"
	}
	return note
}
