package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// trail is what was written between a policy and Authorino, and when, so that a violation can be traced to who made it.
type trail struct {
	mu     sync.Mutex
	events []trailEvent
}

type trailEvent struct {
	at   time.Time
	text string
}

// follow keeps the trail until the test ends.
func follow(t *testing.T, k *kube) *trail {
	t.Helper()
	c, err := client.NewWithWatch(k.Admin(), client.Options{})
	require.NoError(t, err)
	out := &trail{}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "kuadrant.io", Version: "v1", Kind: "AuthPolicyList"},
		{Group: "authorino.kuadrant.io", Version: "v1beta3", Kind: "AuthConfigList"},
		{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyExtensionPolicyList"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		events, err := c.Watch(context.Background(), list)
		require.NoError(t, err)
		var reading sync.WaitGroup
		reading.Go(func() {
			for e := range events.ResultChan() {
				out.add(e)
			}
		})
		t.Cleanup(func() { events.Stop(); reading.Wait() })
	}
	return out
}

func (r *trail) add(e watch.Event) {
	object, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	spec, err := json.Marshal(object.Object["spec"])
	if err != nil {
		return
	}
	enforced := ""
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok {
			enforced += fmt.Sprintf(" %v=%v(%v)", m["type"], m["status"], m["message"])
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, trailEvent{time.Now(), fmt.Sprintf("%s %s %s generation %d version %s:%s\n      %s",
		e.Type, object.GetKind(), object.GetName(), object.GetGeneration(), object.GetResourceVersion(), enforced, spec)})
}

// between is the trail of a time.
func (r *trail) between(from, to time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	for _, e := range r.events {
		if !e.at.Before(from) && !e.at.After(to) {
			fmt.Fprintf(&out, "  %s %s\n", clock(e.at), e.text)
		}
	}
	return out.String()
}
