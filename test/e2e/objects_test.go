package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/controllers"
	"accesspolicy-operator/test/stack"
)

// kube is one namespace of a cluster, in which a test has everything to itself.
type kube struct {
	*stack.Cluster
	namespace string
}

func inNamespace(t testing.TB, c *stack.Cluster, name string) *kube {
	t.Helper()
	c.Apply(t, stack.Namespace(name))
	c.Apply(t, stack.Namespace(name))
	k := &kube{Cluster: c, namespace: name}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what is left in namespace %s:\n%s", name, k.dump())
		}
	})
	return k
}

// dump is the state of what takes part in enforcement, for the log of a test that failed.
func (k *kube) dump() string {
	var out strings.Builder
	for _, kind := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind("XAccessPolicyList"), {Group: "kuadrant.io", Version: "v1", Kind: "AuthPolicyList"},
		{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "SecurityPolicyList"},
		{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyPatchPolicyList"},
		{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyExtensionPolicyList"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := k.Client.List(context.Background(), list, client.InNamespace(k.namespace)); err != nil {
			fmt.Fprintf(&out, "%s: %v\n", kind.Kind, err)
			continue
		}
		for _, item := range list.Items {
			fmt.Fprintf(&out, "%s %s, generation %d, status %v\n", item.GetKind(), item.GetName(), item.GetGeneration(), item.Object["status"])
		}
	}
	return out.String()
}

// policy builds an XAccessPolicy from its spec in YAML.
func (k *kube) policy(t testing.TB, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var content map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(spec), &content), "%s", spec)
	return stack.Object(v1alpha1.GroupVersion.String(), "XAccessPolicy", k.namespace, name, content)
}

// allowing is the spec of a policy by which a ServiceAccount of the namespace may call tools. A target is a Gateway's name, or
// gateway/listener.
func allowing(account string, tools []string, targets ...string) string {
	var refs []string
	for _, target := range targets {
		name, listener, scoped := strings.Cut(target, "/")
		ref := "{group: gateway.networking.k8s.io, kind: Gateway, name: " + name
		if scoped {
			ref += ", sectionName: " + listener
		}
		refs = append(refs, ref+"}")
	}
	return fmt.Sprintf(`
targetRefs: [%s]
action: Allow
rules:
- name: tools
  source: {type: ServiceAccount, serviceAccount: {name: %s}}
  authorization: {type: Inline, mcp: {methods: [{name: tools/call, params: [%s]}]}}
`, strings.Join(refs, ", "), account, strings.Join(tools, ", "))
}

// read returns a policy as it is now.
func (k *kube) read(ctx context.Context, name string) (*v1alpha1.XAccessPolicy, error) {
	object := stack.Object(v1alpha1.GroupVersion.String(), "XAccessPolicy", k.namespace, name, nil)
	if err := k.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return nil, err
	}
	policy := &v1alpha1.XAccessPolicy{}
	return policy, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy)
}

// condition returns a condition that we wrote for a policy on a target, and an error where there is none for the policy's
// present generation.
func (k *kube) condition(ctx context.Context, policy, target, kind string) (*metav1.Condition, error) {
	p, err := k.read(ctx, policy)
	if err != nil {
		return nil, err
	}
	gateway, listener, _ := strings.Cut(target, "/")
	for _, a := range p.Status.Ancestors {
		section := ""
		if a.AncestorRef.SectionName != nil {
			section = string(*a.AncestorRef.SectionName)
		}
		if a.ControllerName != controllers.ControllerName || string(a.AncestorRef.Name) != gateway || section != listener {
			continue
		}
		c := meta.FindStatusCondition(a.Conditions, kind)
		if c != nil && c.ObservedGeneration == p.Generation {
			return c, nil
		}
	}
	return nil, fmt.Errorf("policy %s has no condition %s for %s at generation %d: %+v", policy, kind, target, p.Generation, p.Status.Ancestors)
}

// expect waits until a condition has a status and a reason, and returns it.
func (k *kube) expect(t testing.TB, policy, target, kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	eventually(t, fmt.Sprintf("policy %s on %s: %s=%s, %s", policy, target, kind, status, reason), func(ctx context.Context) error {
		c, err := k.condition(ctx, policy, target, kind)
		if err != nil {
			return err
		}
		found = c
		return want(c.Status == status && c.Reason == reason, "is %s, %s: %s", c.Status, c.Reason, c.Message)
	})
	return found
}

// programmed waits until a policy is accepted and in force on a target.
func (k *kube) programmed(t testing.TB, policy, target string) {
	t.Helper()
	k.expect(t, policy, target, v1alpha1.PolicyConditionAccepted, metav1.ConditionTrue, v1alpha1.PolicyReasonAccepted)
	k.expect(t, policy, target, v1alpha1.PolicyConditionProgrammed, metav1.ConditionTrue, v1alpha1.PolicyReasonProgrammed)
}

func authPolicy(namespace, name string) *unstructured.Unstructured {
	return stack.Object("kuadrant.io/v1", "AuthPolicy", namespace, name, nil)
}

// authPolicies returns the AuthPolicies of the namespace by name.
func (k *kube) authPolicies(ctx context.Context) (map[string]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("kuadrant.io/v1")
	list.SetKind("AuthPolicyList")
	if err := k.Client.List(ctx, list, client.InNamespace(k.namespace)); err != nil {
		return nil, err
	}
	out := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		out[list.Items[i].GetName()] = &list.Items[i]
	}
	return out, nil
}

// get returns an AuthPolicy that has to be there.
func (k *kube) get(t testing.TB, name string) *unstructured.Unstructured {
	t.Helper()
	object := authPolicy(k.namespace, name)
	require.NoError(t, k.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	return object
}

// gone waits until an object is not there.
func (k *kube) gone(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	eventually(t, object.GetKind()+" "+object.GetName()+" is gone", func(ctx context.Context) error {
		err := k.Client.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopy())
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// delete removes an object.
func (k *kube) delete(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, client.IgnoreNotFound(k.Client.Delete(t.Context(), object)))
}

// gateway makes a Gateway with a listener and a route for every host name, and waits until it is programmed.
func (k *kube) gateway(t testing.TB, name string, hosts ...string) *unstructured.Unstructured {
	t.Helper()
	gateway := stack.Gateway(k.namespace, name, hosts...)
	k.Apply(t, gateway, stack.Service(k.namespace, "tools"))
	for i, host := range hosts {
		k.Apply(t, stack.HTTPRoute(k.namespace, fmt.Sprintf("%s-%d", name, i), name, host, "/", "tools"))
	}
	k.WaitFor(t, limit, gateway, "Programmed")
	return gateway
}

// events returns the reasons of events about an object.
func (k *kube) events(ctx context.Context, name string) (map[string]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("events.k8s.io/v1")
	list.SetKind("EventList")
	if err := k.Client.List(ctx, list, client.InNamespace(k.namespace)); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, e := range list.Items {
		if about, _, _ := unstructured.NestedString(e.Object, "regarding", "name"); about == name {
			out[e.Object["reason"].(string)], _, _ = unstructured.NestedString(e.Object, "note")
		}
	}
	return out, nil
}

// event waits for an event about an object and returns its text.
func (k *kube) event(t testing.TB, name, reason string) string {
	t.Helper()
	var note string
	eventually(t, "event "+reason+" about "+name, func(ctx context.Context) error {
		all, err := k.events(ctx, name)
		if err != nil {
			return err
		}
		text, there := all[reason]
		note = text
		return want(there, "there are %v", all)
	})
	return note
}

// sameJSON compares two JSON values and says where they differ.
func sameJSON(a, b any) error {
	if diff := cmp.Diff(a, b); diff != "" {
		return fmt.Errorf("they differ:\n%s", diff)
	}
	return nil
}
