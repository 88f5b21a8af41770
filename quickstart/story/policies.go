package story

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/controllers"
	"accesspolicy-operator/test/stack"
)

func policy(name string) *unstructured.Unstructured {
	return stack.Object(v1alpha1.GroupVersion.String(), "XAccessPolicy", namespace, name, nil)
}

// condition returns a condition of a policy, and an error where there is none about its
// present generation.
func (w *World) condition(ctx context.Context, name, kind string) (*metav1.Condition, error) {
	object := policy(name)
	if err := w.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return nil, err
	}

	read := &v1alpha1.XAccessPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, read); err != nil {
		return nil, err
	}

	for _, ancestor := range read.Status.Ancestors {
		condition := meta.FindStatusCondition(ancestor.Conditions, kind)
		if ancestor.ControllerName == controllers.ControllerName && condition != nil && condition.ObservedGeneration == read.Generation {
			return condition, nil
		}
	}

	return nil, fmt.Errorf("policy %s has no condition %s yet", name, kind)
}

// reported waits until a policy has a condition with a reason.
func (w *World) reported(name, kind, reason string) *metav1.Condition {
	w.t.Helper()

	var last *metav1.Condition

	stack.Eventually(w.t, settles, fmt.Sprintf("policy %s is reported as %s", name, reason), func(ctx context.Context) error {
		condition, err := w.condition(ctx, name, kind)
		if err != nil {
			return err
		}

		last = condition

		return unmet(condition.Reason == reason, "%s is %s: %s: %s", kind, condition.Status, condition.Reason, condition.Message)
	})

	return last
}

// programmed waits until policies are in force, and what stands in for the plugin too.
func (w *World) programmed(names ...string) {
	w.t.Helper()

	for _, name := range names {
		w.reported(name, v1alpha1.PolicyConditionProgrammed, v1alpha1.PolicyReasonProgrammed)
	}
}

// settled waits until what stands in for the plugin does what it should, and a caller
// gets for a call what it should. What comes then is not waited for.
func (w *World) settled(name, label string, allowed bool) time.Duration {
	w.t.Helper()

	c, begin := callOf(label), time.Now()
	stack.Eventually(w.t, settles, fmt.Sprintf("%s of %s is decided anew", label, name), func(context.Context) error {
		if w.plugin != nil && w.plugin.failure() != nil {
			return w.plugin.failure()
		}

		answers, err := w.call(w.caller(name), c.text())
		if err != nil {
			return err
		}

		return unmet((answers[0].Error == "") == allowed, "it is answered with %+v", answers[0])
	})

	return time.Since(begin)
}

// apply applies a file of quickstart/policies.
func (w *World) apply(name string) {
	w.t.Helper()
	w.ApplyFiles(w.t, w.manifest(name))
}

// refused applies a file that the API server has to refuse, and returns what it says.
func (w *World) refused(name string) error {
	w.t.Helper()

	text, err := os.ReadFile(w.manifest(name))
	if err != nil {
		w.t.Fatal(err)
	}

	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		w.t.Fatal(err)
	}

	return w.Client.Create(context.Background(), object)
}

// remove deletes an object.
func (w *World) remove(object *unstructured.Unstructured) {
	w.t.Helper()

	if err := w.Client.Delete(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
}

// removePolicies deletes every policy.
func (w *World) removePolicies() {
	w.t.Helper()

	if err := w.Client.DeleteAllOf(context.Background(), policy(""), client.InNamespace(namespace)); err != nil {
		w.t.Fatal(err)
	}
}
