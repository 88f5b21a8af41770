package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"

	"accesspolicy-operator/translator/owned"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// asWanted reports whether a live object is what we would write: it has every field that we want, nobody but us owns a field
// of its spec, and we own none that we do not want, such as one that we wanted before, or one that somebody wrote in our
// name. What else is in the spec are then defaults of the CRD.
func asWanted(live generated, wanted *unstructured.Unstructured) bool {
	return contains(live.liveSpec(), wanted.Object["spec"]) && hasLabels(live, wanted) && ownsSpec(live.GetManagedFields()) &&
		!slices.ContainsFunc(live.GetManagedFields(), intruder) && len(unwanted(live, wanted)) == 0
}

// unwanted returns the paths that are in the live spec and not in ours, and that an entry of ours owns.
func unwanted(live generated, wanted *unstructured.Unstructured) []string {
	more := extra(specPrefix, live.liveSpec(), wanted.Object["spec"])
	if len(more) == 0 {
		return nil
	}
	mine := &fieldpath.Set{}
	for _, entry := range live.GetManagedFields() {
		if set := (&fieldpath.Set{}); entry.Manager == owned.ManagedBy && mentionsSpec(entry) && set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) == nil {
			mine = mine.Union(set)
		}
	}
	var out []string
	for _, path := range more {
		if within := mine.WithPrefix(path[0]); mine.Has(path) || !subset(within, path[1:]).Empty() {
			out = append(out, path.String())
		}
	}
	return out
}

func subset(set *fieldpath.Set, path fieldpath.Path) *fieldpath.Set {
	for _, element := range path {
		set = set.WithPrefix(element)
	}
	return set
}

// extra returns the paths of what live has and wanted does not. What the CRD sets by itself does not count: a create makes
// its defaults ours.
func extra(path fieldpath.Path, live, wanted any) []fieldpath.Path {
	have, isMap := live.(map[string]any)
	want, wantMap := wanted.(map[string]any)
	if !isMap || !wantMap {
		return nil
	}
	var out []fieldpath.Path
	for key, value := range have {
		at := append(path.Copy(), fieldpath.PathElement{FieldName: &key})
		field, there := want[key]
		switch {
		case there:
			out = append(out, extra(at, value, field)...)
		case isDefault(key, value):
		default:
			out = append(out, at)
		}
	}
	return out
}

// isDefault knows what the CRDs of Kuadrant v1.5.2 and Envoy Gateway v1.9.1 set in what we write.
func isDefault(key string, value any) bool {
	return key == "metrics" && value == false || key == "priority" && value == int64(0) || key == "valueType" && value == "String"
}

func hasLabels(live generated, wanted *unstructured.Unstructured) bool {
	for name, value := range wanted.GetLabels() {
		if live.GetLabels()[name] != value {
			return false
		}
	}
	return true
}

// contains reports whether everything in wanted is in live as well; lists have to be equal but for defaults.
func contains(live, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		m, ok := live.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range wanted {
			if found, ok := m[key]; !ok || !contains(found, value) {
				return false
			}
		}
		return true
	case []any:
		list, ok := live.([]any)
		return ok && slices.EqualFunc(list, wanted, func(a, b any) bool { return contains(a, b) && onlyDefaults(a, b) })
	}
	return sameScalar(live, wanted)
}

// onlyDefaults reports whether what live has and wanted does not are defaults.
func onlyDefaults(live, wanted any) bool {
	switch live := live.(type) {
	case map[string]any:
		want, ok := wanted.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range live {
			if field, there := want[key]; there && !onlyDefaults(value, field) || !there && !isDefault(key, value) {
				return false
			}
		}
		return true
	case []any:
		want, ok := wanted.([]any)
		return ok && slices.EqualFunc(live, want, onlyDefaults)
	}
	return true
}

// sameScalar compares JSON values; a number may have been read as an integer or as a float.
func sameScalar(a, b any) bool {
	x, isFloat := a.(float64)
	y, isInt := b.(int64)
	if isFloat && isInt {
		return x == float64(y)
	}
	x, isFloat = b.(float64)
	y, isInt = a.(int64)
	if isFloat && isInt {
		return x == float64(y)
	}
	return reflect.DeepEqual(a, b)
}

// specPrefix begins the paths of all fields of a spec.
var specPrefix = fieldpath.MakePathOrDie("spec")

// intruder reports whether an entry is of somebody else and has fields of the spec.
func intruder(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager != owned.ManagedBy && entry.Subresource == "" && mentionsSpec(entry)
}

// mentionsSpec looks for the field spec without decoding the whole set, which has an element for every field of the object.
func mentionsSpec(entry metav1.ManagedFieldsEntry) bool {
	return entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:spec"`))
}

// ownsSpec reports whether any entry of ours has fields of the spec.
func ownsSpec(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == owned.ManagedBy && mentionsSpec(m) })
}

// takeOver moves what other entries own of the spec into the entry of our applies, so that the next apply removes what it
// does not want. Our own Update entry, which a create and a replacement leave behind, is one of the others.
func (r *GatewayReconciler) takeOver(ctx context.Context, live generated) error {
	entries, changed, err := takenOver(live.GetManagedFields())
	if err != nil || !changed {
		return err
	}
	// The version makes the API server refuse it if the object has changed since.
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	if err != nil {
		return err
	}
	err = r.client.Patch(ctx, reference(live), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(owned.ManagedBy))
	if err == nil {
		writes.WithLabelValues(live.kind().String(), operationTakeOver).Inc()
	}
	return err
}

func takenOver(entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, bool, error) {
	all := &fieldpath.Set{}
	var out []metav1.ManagedFieldsEntry
	var applies metav1.ManagedFieldsEntry
	changed := false
	for _, entry := range entries {
		if entry.Subresource != "" || !mentionsSpec(entry) {
			out = append(out, entry)
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return nil, false, err
		}
		if entry.Manager == owned.ManagedBy && entry.Operation == metav1.ManagedFieldsOperationApply {
			applies = entry
			all = all.Union(set)
			continue
		}
		changed = true
		spec, rest := splitSpec(set)
		if entry.Manager == owned.ManagedBy {
			spec, rest = set, &fieldpath.Set{}
		}
		all = all.Union(spec)
		applies.APIVersion, applies.FieldsType, applies.Time = entry.APIVersion, entry.FieldsType, entry.Time
		if !rest.Empty() {
			kept := entry
			if err := setFields(&kept, rest); err != nil {
				return nil, false, err
			}
			out = append(out, kept)
		}
	}
	applies.Manager, applies.Operation = owned.ManagedBy, metav1.ManagedFieldsOperationApply
	if err := setFields(&applies, all); err != nil {
		return nil, false, err
	}
	return append(out, applies), changed, nil
}

func splitSpec(set *fieldpath.Set) (spec, rest *fieldpath.Set) {
	spec, rest = &fieldpath.Set{}, &fieldpath.Set{}
	set.Iterate(func(p fieldpath.Path) {
		if len(p) > 0 && p[0].Equals(specPrefix[0]) {
			spec.Insert(p.Copy())
		} else {
			rest.Insert(p.Copy())
		}
	})
	return spec, rest
}

func setFields(entry *metav1.ManagedFieldsEntry, set *fieldpath.Set) error {
	raw, err := set.ToJSON()
	if err != nil {
		return err
	}
	entry.FieldsV1 = &metav1.FieldsV1{}
	entry.FieldsV1.SetRawBytes(raw)
	return nil
}

func isInvalid(err error) bool { return apierrors.IsInvalid(err) }

// differences names, for the log, where a live object is not what we want.
func differences(live generated, wanted *unstructured.Unstructured) []string {
	if live == nil {
		return []string{"the object is not there"}
	}
	var out []string
	for _, entry := range live.GetManagedFields() {
		if intruder(entry) {
			out = append(out, "fields of "+entry.Manager)
		}
	}
	out = append(out, unwanted(live, wanted)...)
	return append(out, differing("spec", live.liveSpec(), wanted.Object["spec"], 5)...)
}

// differing returns the paths, down to a depth, of wanted values that live does not have.
func differing(path string, live, wanted any, depth int) []string {
	if contains(live, wanted) {
		return nil
	}
	want, isMap := wanted.(map[string]any)
	have, liveMap := live.(map[string]any)
	if !isMap || !liveMap || depth == 0 {
		return []string{path}
	}
	var out []string
	for key, value := range want {
		out = append(out, differing(path+"."+key, have[key], value, depth-1)...)
	}
	slices.Sort(out)
	return out
}
