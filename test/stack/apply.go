package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	fieldOwner = "stack"

	// yamlLookahead is how far the decoder looks to tell YAML from JSON.
	yamlLookahead = 4096
)

// Apply writes objects by server-side apply, which refuses unknown fields, and
// takes over fields of other owners. The objects are updated to what is stored.
func (c *Cluster) Apply(t T, objects ...*unstructured.Unstructured) {
	t.Helper()

	for _, object := range objects {
		must(t, c.apply(context.Background(), object))
	}
}

// ApplyFiles does the same with the objects in YAML files.
func (c *Cluster) ApplyFiles(t T, files ...string) {
	t.Helper()

	for _, file := range files {
		objects, err := readObjects(file)
		must(t, err)
		c.Apply(t, objects...)
	}
}

func (c *Cluster) apply(ctx context.Context, object *unstructured.Unstructured) error {
	err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.ForceOwnership, client.FieldOwner(fieldOwner))
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
	}

	return nil
}

func readObjects(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	var objects []*unstructured.Unstructured

	for decoder := yaml.NewYAMLOrJSONDecoder(file, yamlLookahead); ; {
		object := &unstructured.Unstructured{}

		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}

		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}

		// Nothing but comments between two separators.
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
