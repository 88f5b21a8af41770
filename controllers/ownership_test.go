package controllers

import (
	"testing"

	"accesspolicy-operator/translator/owned"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func fieldsOf(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
	entry := metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: subresource, APIVersion: "kuadrant.io/v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{}}
	entry.FieldsV1.SetRawBytes([]byte(fields))
	return entry
}

func TestTakeOver(t *testing.T) {
	const ours = owned.ManagedBy
	label := `"f:metadata":{"f:labels":{"f:theirs":{}}}`
	entries := []metav1.ManagedFieldsEntry{
		fieldsOf(ours, metav1.ManagedFieldsOperationUpdate, "", `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:targetRef":{}}}`),
		fieldsOf("somebody", metav1.ManagedFieldsOperationUpdate, "", `{`+label+`,"f:spec":{"f:overrides":{"f:when":{}}}}`),
		fieldsOf("kuadrant", metav1.ManagedFieldsOperationUpdate, "status", `{"f:status":{"f:conditions":{}}}`),
		fieldsOf("an-applier", metav1.ManagedFieldsOperationApply, "", `{"f:spec":{"f:rules":{}}}`),
	}
	require.True(t, ownsSpec(entries))
	require.True(t, intruder(entries[1]))
	require.True(t, intruder(entries[3]))
	require.False(t, intruder(entries[2]), "a status is its controller's")

	after, changed, err := takenOver(entries)
	require.NoError(t, err)
	require.True(t, changed)
	require.Len(t, after, 3)
	require.Equal(t, "somebody", after[0].Manager)
	require.JSONEq(t, `{`+label+`}`, after[0].FieldsV1.GetRawString(), "what is not the spec stays theirs")
	require.Equal(t, "kuadrant", after[1].Manager)
	require.Equal(t, metav1.ManagedFieldsOperationApply, after[2].Operation)
	require.Equal(t, ours, after[2].Manager)
	require.JSONEq(t, `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:overrides":{"f:when":{}},"f:rules":{},"f:targetRef":{}}}`, after[2].FieldsV1.GetRawString())

	again, changed, err := takenOver(after)
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, after, again)
}

func TestContains(t *testing.T) {
	live := map[string]any{"a": int64(1), "b": []any{map[string]any{"c": "x", "default": true}}, "e": []any{map[string]any{"name": "sub", "valueType": "String"}}}
	for name, test := range map[string]struct {
		wanted any
		holds  bool
	}{
		"the-same":             {live, true},
		"less":                 {map[string]any{"a": int64(1)}, true},
		"less-in-a-list":       {map[string]any{"b": []any{map[string]any{"c": "x"}}}, false},
		"a-number-as-a-float":  {map[string]any{"a": 1.0}, true},
		"another-number":       {map[string]any{"a": 2.0}, false},
		"a-field-is-missing":   {map[string]any{"d": nil}, false},
		"a-value-is-different": {map[string]any{"b": []any{map[string]any{"c": "y"}}}, false},
		"a-list-is-longer":     {map[string]any{"b": []any{}}, false},
		"a-default-in-a-list":  {map[string]any{"e": []any{map[string]any{"name": "sub"}}}, true},
		"another-kind":         {map[string]any{"a": "1"}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.holds, contains(live, test.wanted)) })
	}
}

// TestAsWanted: a field that nobody owns is a default of the CRD; one that an entry of ours owns is one that we wrote, or
// that somebody wrote in our name.
func TestAsWanted(t *testing.T) {
	spec := func(more map[string]any) map[string]any {
		rule := map[string]any{"patterns": []any{}, "metrics": false, "priority": int64(0)}
		out := map[string]any{"overrides": map[string]any{"rules": map[string]any{"a": rule}}}
		for key, value := range more {
			out["overrides"].(map[string]any)[key] = value
		}
		return out
	}
	wanted := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"overrides": map[string]any{"rules": map[string]any{"a": map[string]any{"patterns": []any{}}}}}}}
	const rules = `{"f:spec":{"f:overrides":{"f:rules":{"f:a":{"f:patterns":{}}}}}}`
	for name, test := range map[string]struct {
		live  map[string]any
		owned string
		holds bool
	}{
		"defaults":                {spec(nil), rules, true},
		"a-default-of-a-newer":    {spec(map[string]any{"newer": true}), rules, true},
		"written-in-our-name":     {spec(map[string]any{"when": []any{"false"}}), `{"f:spec":{"f:overrides":{"f:when":{},"f:rules":{}}}}`, false},
		"wanted-before":           {spec(map[string]any{"old": map[string]any{"x": "y"}}), `{"f:spec":{"f:overrides":{"f:old":{"f:x":{}},"f:rules":{}}}}`, false},
		"what-we-want-is-missing": {map[string]any{}, rules, false},
	} {
		t.Run(name, func(t *testing.T) {
			live := &AuthPolicy{Live: test.live}
			live.ManagedFields = []metav1.ManagedFieldsEntry{fieldsOf(owned.ManagedBy, metav1.ManagedFieldsOperationApply, "", test.owned)}
			require.Equal(t, test.holds, asWanted(live, wanted))
		})
	}
}
