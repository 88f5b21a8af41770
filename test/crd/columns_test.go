package crd

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"accesspolicy-operator/api/v1alpha1"
)

// checkColumns stores a policy with two ancestors and reads it as kubectl get
// does.
func checkColumns(t *testing.T, s *server) {
	t.Helper()

	stored := s.storedForStatus(t.Context(), t)
	stored.Object["status"] = map[string]any{"ancestors": []any{
		ancestor("example.org/other", map[string]string{"Accepted": "True"}),
		ancestor("example.org/ours", map[string]string{"Accepted": "True", "Programmed": "False"}),
	}}

	_, err := s.policies(apiVersion).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	table := s.table(t)

	names := make([]string, 0, len(table.ColumnDefinitions))
	for _, c := range table.ColumnDefinitions {
		names = append(names, c.Name)
	}

	if want := []string{"Name", "Target", "Action", "Accepted", "Programmed", "Age"}; !slices.Equal(names, want) {
		t.Errorf("columns %v, want %v", names, want)
	}

	if len(table.Rows) != 1 {
		t.Fatalf("%d rows, want 1", len(table.Rows))
	}

	// The age is left out: it depends on the clock.
	cells := fmt.Sprint(table.Rows[0].Cells[:len(names)-1]...)
	if want := fmt.Sprint(statusObject, "agents", "Allow", "True", "False"); cells != want {
		t.Errorf("cells %q, want %q", cells, want)
	}
}

func (s *server) table(t *testing.T) metav1.Table {
	t.Helper()

	config := rest.CopyConfig(s.config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()

	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}

	data, err := client.Get().Namespace(testNamespace).Resource("xaccesspolicies").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	var table metav1.Table
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}

	return table
}

func ancestor(controller string, conditions map[string]string) map[string]any {
	list := make([]any, 0, len(conditions))
	for kind, status := range conditions {
		list = append(list, map[string]any{
			"type": kind, "status": status, "reason": kind, "message": "",
			"lastTransitionTime": "2026-07-01T00:00:00Z",
		})
	}

	return map[string]any{
		"ancestorRef":    map[string]any{"name": "agents"},
		"controllerName": controller,
		"conditions":     list,
	}
}
