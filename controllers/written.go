package controllers

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/types"
)

// written remembers what our writes returned, for as long as the cache may be behind: without it a second reconcile right
// after a write would see the object as it was before, and write again.
type written struct {
	mu      sync.Mutex
	objects map[types.UID]*AuthPolicy
	// policies has the resource version that our last status write gave a policy.
	policies map[types.UID]string
}

func newWritten() *written {
	return &written{objects: map[types.UID]*AuthPolicy{}, policies: map[types.UID]string{}}
}

func (w *written) remember(ap *AuthPolicy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects[ap.UID] = ap
}

func (w *written) forget(ap *AuthPolicy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.objects, ap.UID)
}

// newer returns what we wrote in place of what the cache has, if the cache is behind. An object that is in step is not
// remembered any longer.
func (w *written) newer(cached *AuthPolicy) *AuthPolicy {
	w.mu.Lock()
	defer w.mu.Unlock()
	ours := w.objects[cached.UID]
	switch {
	case ours == nil:
		return cached
	case cached.Generation < ours.Generation:
		return ours
	}
	delete(w.objects, cached.UID)
	return cached
}

// unseen returns the objects of a Gateway that we wrote and that the cache does not have yet.
func (w *written) unseen(gateway types.UID, seen map[types.UID]bool) []*AuthPolicy {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*AuthPolicy
	for uid, ap := range w.objects {
		if !seen[uid] && slices.ContainsFunc(ap.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == gateway }) {
			out = append(out, ap)
		}
	}
	return out
}

// isOurWrite reports whether an object that has reached the cache is as our last write left it. There is nothing to
// remember any longer then.
func (w *written) isOurWrite(ap *AuthPolicy) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ours := w.objects[ap.UID]; ours == nil || ours.ResourceVersion != ap.ResourceVersion {
		return false
	}
	delete(w.objects, ap.UID)
	return true
}

func (w *written) rememberStatus(uid types.UID, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policies[uid] = version
}

func (w *written) isOurStatus(p *Policy) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policies[p.UID] == p.ResourceVersion
}

func (w *written) forgetPolicy(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.policies, uid)
}
