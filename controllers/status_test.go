package controllers

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
)

var (
	prod = types.NamespacedName{Namespace: "demo", Name: "prod"}
	lab  = types.NamespacedName{Namespace: "demo", Name: "lab"}
	past = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
)

// entry is a status entry by a controller on a Gateway, with one condition.
func entry(controller gwv1.GatewayController, gateway, listener string, status metav1.ConditionStatus, message string) v1alpha1.PolicyAncestorStatus {
	kind := gwv1.Kind(kindGateway)
	out := v1alpha1.PolicyAncestorStatus{ControllerName: controller, AncestorRef: gwv1.ParentReference{Kind: &kind, Name: gwv1.ObjectName(gateway)},
		Conditions: []metav1.Condition{{Type: "Accepted", Status: status, Reason: "Accepted", Message: message, LastTransitionTime: past, ObservedGeneration: 7}}}
	if listener != "" {
		section := gwv1.SectionName(listener)
		out.AncestorRef.SectionName = &section
	}
	return out
}

// patched is what a policy's status becomes. Entries of others have a field that our types do not know; it has to survive.
func patched(t *testing.T, before []v1alpha1.PolicyAncestorStatus, gateway types.NamespacedName, wanted ...v1alpha1.PolicyAncestorStatus) (after []map[string]any, wrote, full bool) {
	t.Helper()
	policy := &Policy{}
	policy.Namespace, policy.Generation, policy.ResourceVersion = "demo", 7, "42"
	policy.Status.Ancestors = before
	raw := []map[string]any{}
	for _, e := range before {
		object := map[string]any{}
		require.NoError(t, json.Unmarshal(marshal(e), &object))
		if e.ControllerName != ControllerName {
			object["newerField"] = "theirs"
		}
		raw = append(raw, object)
	}
	for _, e := range wanted { // what is wanted comes without times
		e.Conditions[0].LastTransitionTime = metav1.Time{}
	}
	patch, full := (&statusWriter{}).patch(policy, gateway, wanted)
	if patch == nil {
		return raw, false, full
	}
	document := marshal(map[string]any{"metadata": map[string]any{"resourceVersion": "42"}, "status": map[string]any{"ancestors": raw}})
	if len(before) == 0 {
		document = marshal(map[string]any{"metadata": map[string]any{"resourceVersion": "42"}})
	}
	data, err := patch.Data(nil)
	require.NoError(t, err)
	require.Contains(t, string(data), `"42"`, "the patch has to fail on another version")
	var result []byte
	if patch.Type() == types.MergePatchType {
		result, err = jsonpatch.MergePatch(document, data)
	} else {
		var operations jsonpatch.Patch
		operations, err = jsonpatch.DecodePatch(data)
		require.NoError(t, err)
		result, err = operations.Apply(document)
	}
	require.NoError(t, err)
	var out struct {
		Status struct{ Ancestors []map[string]any }
	}
	require.NoError(t, json.Unmarshal(result, &out))
	return out.Status.Ancestors, true, full
}

// authors says who wrote which entry, in order.
func authors(entries []map[string]any) []string {
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		ref := e["ancestorRef"].(map[string]any)
		out = append(out, fmt.Sprintf("%v %v %v %v", e["controllerName"], ref["name"], ref["sectionName"], e["newerField"]))
	}
	return out
}

func TestStatusPatch(t *testing.T) {
	const other = gwv1.GatewayController("example.com/other")
	ours, theirs := fmt.Sprintf("%s prod <nil> <nil>", ControllerName), "example.com/other prod <nil> theirs"
	elsewhere := fmt.Sprintf("%s lab <nil> <nil>", ControllerName)
	for name, test := range map[string]struct {
		before []v1alpha1.PolicyAncestorStatus
		wanted []v1alpha1.PolicyAncestorStatus
		after  []string
		wrote  bool
	}{
		"the-first": {nil, []v1alpha1.PolicyAncestorStatus{entry(ControllerName, "prod", "", "True", "")}, []string{ours}, true},
		"nothing-new": {[]v1alpha1.PolicyAncestorStatus{entry(ControllerName, "prod", "", "True", "same")},
			[]v1alpha1.PolicyAncestorStatus{entry(ControllerName, "prod", "", "True", "same")}, []string{ours}, false},
		"a-change-beside-others": {
			[]v1alpha1.PolicyAncestorStatus{entry(other, "prod", "", "True", ""), entry(ControllerName, "prod", "", "True", ""), entry(ControllerName, "lab", "", "True", "")},
			[]v1alpha1.PolicyAncestorStatus{entry(ControllerName, "prod", "", "False", "")}, []string{theirs, ours, elsewhere}, true},
		"not-a-target-any-more": {
			[]v1alpha1.PolicyAncestorStatus{entry(ControllerName, "prod", "", "True", ""), entry(other, "prod", "", "True", ""), entry(ControllerName, "prod", "a", "True", ""), entry(ControllerName, "lab", "", "True", "")},
			nil, []string{theirs, elsewhere}, true},
		"from-the-gateway-to-a-listener": {
			[]v1alpha1.PolicyAncestorStatus{entry(ControllerName, "prod", "", "True", ""), entry(other, "prod", "", "True", "")},
			[]v1alpha1.PolicyAncestorStatus{entry(ControllerName, "prod", "a", "True", "")}, []string{theirs, fmt.Sprintf("%s prod a <nil>", ControllerName)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			after, wrote, full := patched(t, test.before, prod, test.wanted...)
			require.Equal(t, test.wrote, wrote)
			require.False(t, full)
			require.Equal(t, test.after, authors(after))
		})
	}
}

// TestStatusTimes: the time of a condition moves with its status and with nothing else.
func TestStatusTimes(t *testing.T) {
	before := []v1alpha1.PolicyAncestorStatus{entry(ControllerName, "lab", "", "True", "before")}
	timeOf := func(after []map[string]any) any {
		return after[0]["conditions"].([]any)[0].(map[string]any)["lastTransitionTime"]
	}
	after, _, _ := patched(t, before, lab, entry(ControllerName, "lab", "", "True", "after"))
	require.Equal(t, "2026-01-02T03:04:05Z", timeOf(after))
	after, _, _ = patched(t, before, lab, entry(ControllerName, "lab", "", "False", "after"))
	require.NotEqual(t, "2026-01-02T03:04:05Z", timeOf(after))
}

// TestStatusIsFull: 16 entries are all there may be, and those of others are not ours to drop.
func TestStatusIsFull(t *testing.T) {
	var before []v1alpha1.PolicyAncestorStatus
	for range maxAncestors - 1 {
		before = append(before, entry("example.com/other", "prod", "", "True", ""))
	}
	after, wrote, full := patched(t, before, prod, entry(ControllerName, "prod", "", "True", ""), entry(ControllerName, "prod", "a", "True", ""))
	require.True(t, wrote)
	require.True(t, full)
	require.Len(t, after, maxAncestors)
}
