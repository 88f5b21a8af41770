package coverage

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Documents reads the objects of a YAML or JSON text, those of a List one by one. What is no object is passed over.
func Documents(data []byte) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var out []*unstructured.Unstructured
	for {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: object}
		items, list := object["items"].([]any)
		if !list || !strings.HasSuffix(u.GetKind(), "List") {
			out = append(out, u)
			continue
		}
		for _, item := range items {
			member, ok := item.(map[string]any)
			if !ok {
				continue
			}
			if member["kind"] == nil { // as in a typed list
				member["kind"], member["apiVersion"] = strings.TrimSuffix(u.GetKind(), "List"), u.GetAPIVersion()
			}
			out = append(out, &unstructured.Unstructured{Object: member})
		}
	}
}
