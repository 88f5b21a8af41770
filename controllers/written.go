package controllers

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"accesspolicy-operator/api/v1alpha1"
)

// written remembers what our writes returned, for as long as the cache may be behind: without it a second reconcile right
// after a write would see the object as it was before, and write again.
type written struct {
	mu      sync.Mutex
	objects map[types.UID]generated
	// policies is what our last status write made of a policy.
	policies map[types.UID]writtenStatus
}

type writtenStatus struct {
	version    string
	generation int64
	// status is nil when the cache has had it.
	status *v1alpha1.AccessPolicyStatus
}

func newWritten() *written {
	return &written{objects: map[types.UID]generated{}, policies: map[types.UID]writtenStatus{}}
}

func (w *written) remember(o generated) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects[o.GetUID()] = o
}

func (w *written) forget(o generated) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.objects, o.GetUID())
}

// newer returns what we wrote in place of what the cache has, if the cache is behind. An object that is in step is not
// remembered any longer.
func (w *written) newer(cached generated) generated {
	w.mu.Lock()
	defer w.mu.Unlock()
	ours := w.objects[cached.GetUID()]
	switch {
	case ours == nil:
		return cached
	case cached.GetGeneration() < ours.GetGeneration():
		return ours
	}
	delete(w.objects, cached.GetUID())
	return cached
}

// unseen returns the objects of a Gateway that we wrote and that the cache does not have yet.
func (w *written) unseen(gateway types.UID, seen map[types.UID]bool) []generated {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []generated
	for uid, o := range w.objects {
		if !seen[uid] && slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == gateway }) {
			out = append(out, o)
		}
	}
	return out
}

// isOurWrite reports whether an object that has reached the cache is as our last write left it. There is nothing to
// remember any longer then.
func (w *written) isOurWrite(o generated) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ours := w.objects[o.GetUID()]; ours == nil || ours.GetResourceVersion() != o.GetResourceVersion() {
		return false
	}
	delete(w.objects, o.GetUID())
	return true
}

// rememberStatus takes a policy as our write of its status left it.
func (w *written) rememberStatus(p *Policy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if older(p.ResourceVersion, w.policies[p.UID].version) {
		return // of two Gateways the other one has written since
	}
	w.policies[p.UID] = writtenStatus{p.ResourceVersion, p.Generation, p.Status.DeepCopy()}
}

// catchUp gives a policy from the cache the status that we wrote, if the cache is behind. Compared with an older one, a status
// that has to be written again would look as if it were there, and the event of our own write is passed over.
func (w *written) catchUp(p *Policy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ours, known := w.policies[p.UID]
	switch {
	case !known || ours.status == nil || p.Generation != ours.generation: // another generation has a turn of its own
	case older(p.ResourceVersion, ours.version):
		p.Status, p.ResourceVersion = *ours.status, ours.version
	default:
		ours.status = nil
		w.policies[p.UID] = ours
	}
}

// older reports whether one resource version is known to come before another.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

func (w *written) isOurStatus(p *Policy) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policies[p.UID].version == p.ResourceVersion
}

func (w *written) forgetPolicy(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.policies, uid)
}
