package stack

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Table is what `kubectl get xaccesspolicies` shows of a namespace: the API server
// prints it.
func (c *Cluster) Table(ctx context.Context, namespace string) (*metav1.Table, error) {
	table := &metav1.Table{}

	return table, c.Raw(ctx, "/apis/agentic.networking.x-k8s.io/v1alpha1/namespaces/"+namespace+"/xaccesspolicies",
		"application/json;as=Table;v=v1;g=meta.k8s.io", table)
}

// Versions are the resource versions of all objects of some kinds, by kind,
// namespace and name.
func (c *Cluster) Versions(ctx context.Context, kinds ...schema.GroupVersionKind) (map[string]string, error) {
	out := map[string]string{}

	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)

		if err := c.Client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
		}

		for _, item := range list.Items {
			out[item.GetKind()+" "+item.GetNamespace()+"/"+item.GetName()] = item.GetResourceVersion()
		}
	}

	return out, nil
}
