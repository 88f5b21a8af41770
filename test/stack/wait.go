package stack

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Condition returns nil if the condition of this type is True in the object's
// status, and both are about the object's present generation where they say which
// one; otherwise an error that says what is there.
func Condition(object *unstructured.Unstructured, kind string) error {
	observed, has, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	if has && observed != object.GetGeneration() {
		return fmt.Errorf("the status is about generation %d, not %d", observed, object.GetGeneration())
	}

	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return err
	}

	for _, item := range conditions {
		condition, isMap := item.(map[string]any)
		if !isMap || condition["type"] != kind {
			continue
		}

		if condition["status"] != "True" {
			return fmt.Errorf("%s=%v: %v: %v", kind, condition["status"], condition["reason"], condition["message"])
		}

		if observed, has := condition["observedGeneration"].(int64); has && observed != object.GetGeneration() {
			return fmt.Errorf("%s=True is about generation %d, not %d", kind, observed, object.GetGeneration())
		}

		return nil
	}

	return fmt.Errorf("no condition %s", kind)
}

// WaitFor reads an object again and again until a condition is True, at most for
// limit, and leaves it as last read.
func (c *Cluster) WaitFor(t T, limit time.Duration, object *unstructured.Unstructured, condition string) {
	t.Helper()

	key := client.ObjectKeyFromObject(object)
	Eventually(t, limit, fmt.Sprintf("%s %s is %s", object.GetKind(), key, condition), func(ctx context.Context) error {
		if err := c.Client.Get(ctx, key, object); err != nil {
			return err
		}

		return Condition(object, condition)
	})
}
