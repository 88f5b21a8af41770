package stack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const fakeEvery = 200 * time.Millisecond

// fake writes the status that a component which does not run would write.
type fake struct {
	kind      schema.GroupVersionKind
	namespace string
	// done says whether the status is there already.
	done func(*unstructured.Unstructured) bool
	// status is what is merged into the object's status.
	status func(*unstructured.Unstructured) map[string]any
}

// fakes stand in for: the kubelet, which would run Envoy; a load balancer, which
// would give Envoy's Service an address; the operators of Authorino and Limitador,
// which would deploy those two.
var fakes = []fake{
	{
		kind:      schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		namespace: envoyNamespace,
		done:      deploymentAvailable,
		status:    availableDeployment,
	},
	{
		kind:      schema.GroupVersionKind{Version: "v1", Kind: "Service"},
		namespace: envoyNamespace,
		done:      hasLoadBalancer,
		status: func(*unstructured.Unstructured) map[string]any {
			return map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": loopback}}}}
		},
	},
	{
		kind:      schema.GroupVersionKind{Group: "operator.authorino.kuadrant.io", Version: "v1beta1", Kind: "Authorino"},
		namespace: kuadrantNamespace,
		done:      isReady,
		status:    readyStatus,
	},
	{
		kind:      schema.GroupVersionKind{Group: "limitador.kuadrant.io", Version: "v1alpha1", Kind: "Limitador"},
		namespace: kuadrantNamespace,
		done:      isReady,
		status:    readyStatus,
	},
}

// fakeInfrastructure reports in the name of the components in fakes, until the
// test ends, that what they would deploy is ready. Nothing else is faked. It does
// so once for a cluster, however often it is called.
func (c *Cluster) fakeInfrastructure(t T) {
	t.Helper()
	c.faking.Do(func() { c.startFakes(t) })
}

func (c *Cluster) startFakes(t T) {
	t.Helper()

	ctx, cancel := context.WithCancel(context.Background())

	var (
		loop sync.WaitGroup
		last error
	)

	loop.Go(func() {
		for ctx.Err() == nil {
			if err := c.fakeOnce(ctx); err != nil && ctx.Err() == nil {
				last = err
			}

			select {
			case <-ctx.Done():
			case <-time.After(fakeEvery):
			}
		}
	})

	t.Cleanup(func() {
		cancel()
		loop.Wait()

		// Tests stop the API server, so that an error alone is no failure.
		if t.Failed() && last != nil {
			t.Logf("last error of the fakes: %v", last)
		}
	})
}

func (c *Cluster) fakeOnce(ctx context.Context) error {
	var failures []error

	for _, f := range fakes {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(f.kind)

		if err := c.Client.List(ctx, list, client.InNamespace(f.namespace)); err != nil {
			// The CRDs come one after another.
			if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
				failures = append(failures, fmt.Errorf("list %s: %w", f.kind.Kind, err))
			}

			continue
		}

		for i := range list.Items {
			failures = append(failures, c.fakeStatus(ctx, f, &list.Items[i]))
		}
	}

	return errors.Join(append(failures, c.unstick(ctx))...)
}

// unreported is how long an EnvoyPatchPolicy may be without a status.
const unreported = 3 * time.Second

// unstick deletes an EnvoyPatchPolicy without a status; kuadrant-operator makes it
// again. Now and then (about one Gateway in ten) Envoy Gateway v1.9.1 writes the
// status only when something else changes, and Kuadrant reports an AuthPolicy as
// enforced only after that. Rules are in force by then all the same.
func (c *Cluster) unstick(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyPatchPolicy"})

	if err := c.Client.List(ctx, list); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil
		}

		return fmt.Errorf("list EnvoyPatchPolicies: %w", err)
	}

	var failures []error

	for i := range list.Items {
		object := &list.Items[i]
		if object.Object["status"] == nil && time.Since(object.GetCreationTimestamp().Time) > unreported {
			failures = append(failures, client.IgnoreNotFound(c.Client.Delete(ctx, object)))
		}
	}

	return errors.Join(failures...)
}

func (c *Cluster) fakeStatus(ctx context.Context, f fake, object *unstructured.Unstructured) error {
	if f.done(object) {
		return nil
	}

	before := object.DeepCopy()
	object.Object["status"] = f.status(object)

	if err := c.Client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("fake the status of %s %s: %w", f.kind.Kind, object.GetName(), err)
	}

	return nil
}

func deploymentAvailable(object *unstructured.Unstructured) bool {
	return Condition(object, "Available") == nil
}

func availableDeployment(object *unstructured.Unstructured) map[string]any {
	return map[string]any{
		"observedGeneration": object.GetGeneration(),
		"replicas":           int64(1), "updatedReplicas": int64(1), "readyReplicas": int64(1), "availableReplicas": int64(1),
		"conditions": []any{trueCondition("Available", "MinimumReplicasAvailable")},
	}
}

// hasLoadBalancer is true as well for a Service that asks for none.
func hasLoadBalancer(object *unstructured.Unstructured) bool {
	kind, _, _ := unstructured.NestedString(object.Object, "spec", "type")
	ingress, _, _ := unstructured.NestedSlice(object.Object, "status", "loadBalancer", "ingress")

	return kind != "LoadBalancer" || len(ingress) > 0
}

func isReady(object *unstructured.Unstructured) bool { return Condition(object, "Ready") == nil }

func readyStatus(*unstructured.Unstructured) map[string]any {
	return map[string]any{"conditions": []any{trueCondition("Ready", "Faked")}}
}

func trueCondition(kind, reason string) map[string]any {
	return map[string]any{
		"type": kind, "status": string(metav1.ConditionTrue), "reason": reason,
		"message": "written by the test", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
}
