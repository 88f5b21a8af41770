package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"accesspolicy-operator/api/v1alpha1"
)

const (
	assetsVariable = "KUBEBUILDER_ASSETS"
	testNamespace  = "default"
	statusObject   = "for-status"
)

// server is an API server with one CRD.
type server struct {
	config *rest.Config
	client dynamic.Interface
}

// startServer starts an API server and stops it when the test ends.
func startServer(t *testing.T, crd crdDocument) *server {
	t.Helper()

	if os.Getenv(assetsVariable) == "" {
		t.Fatalf("%s is not set, so there is no API server to ask; run `make test`, which builds one and sets it",
			assetsVariable)
	}

	var typed apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal([]byte(asJSON(crd)), &typed); err != nil {
		t.Fatal(err)
	}

	// The API server writes its own status; the file of a generator has a
	// placeholder that it refuses.
	typed.Status = apiextensionsv1.CustomResourceDefinitionStatus{}

	env := &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{&typed}}
	// Without these two the API server looks for a default route, and there is
	// none in a network namespace that has only loopback.
	env.ControlPlane.GetAPIServer().Configure().
		Append("advertise-address", "127.0.0.1").
		Append("endpoint-reconciler-type", "none")

	config, err := env.Start()
	if err != nil {
		t.Fatalf("start the API server in %s: %v", os.Getenv(assetsVariable), err)
	}

	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	return &server{config: config, client: client}
}

func (s *server) policies(version string) dynamic.ResourceInterface {
	resource := schema.GroupVersionResource{Group: v1alpha1.GroupName, Version: version, Resource: "xaccesspolicies"}

	return s.client.Resource(resource).Namespace(testNamespace)
}

// cause is one reason why an API server refused an object.
type cause struct {
	kind    metav1.CauseType
	field   string
	message string
}

// index is what stands for a list item in the path of a cause.
var index = regexp.MustCompile(`\[[^\]]+\]`)

// isFor says whether the cause is that the marker with this id was tripped.
func (c cause) isFor(id string) bool {
	path, marker, _ := strings.Cut(id, " ")
	keyword, detail, _ := strings.Cut(marker, " ")
	field := index.ReplaceAllString(c.field, listMark)

	switch keyword {
	case keyRequired:
		return c.kind == metav1.CauseTypeFieldValueRequired && field == join(path, detail)
	case keyRule:
		return field == path && strings.Contains(c.message, detail)
	case keyListType:
		return c.kind == metav1.CauseTypeFieldValueDuplicate && field == path+listMark
	case "enum":
		return c.kind == metav1.CauseTypeFieldValueNotSupported && field == path
	}

	words, known := wordsOf[keyword]

	return known && field == path && strings.Contains(c.message, words)
}

// wordsOf is how the API server words the keywords whose cause type says no more
// than "invalid". A new wording fails the test and is to be entered here.
var wordsOf = map[string]string{
	keyType:     "must be of type",
	"format":    "must be of type date-time",
	"pattern":   "should match",
	"minLength": "should be at least",
	"maxLength": "Too long",
	"minItems":  "should have at least",
	"maxItems":  "Too many",
	"minimum":   "should be greater than or equal to",
	"maximum":   "should be less than or equal to",
}

// verdict is an API server's answer. No causes and no other reason: accepted.
type verdict struct {
	causes []cause
	other  string
}

func (v verdict) accepted() bool { return len(v.causes) == 0 && v.other == "" }

// key is what two API servers have to agree on: which fields they refuse and
// for which kind of reason. Messages may be worded differently.
func (v verdict) key() string {
	if v.accepted() {
		return "accepted"
	}

	lines := []string{}
	if v.other != "" {
		lines = append(lines, v.other)
	}

	for _, c := range v.causes {
		lines = append(lines, fmt.Sprintf("%s: %s", c.field, c.kind))
	}

	slices.Sort(lines)

	return strings.Join(slices.Compact(lines), "\n")
}

func (v verdict) String() string {
	if v.accepted() {
		return "accepted"
	}

	lines := []string{v.key()}
	for _, c := range v.causes {
		lines = append(lines, "  "+c.field+": "+c.message)
	}

	return strings.Join(lines, "\n")
}

// ask shows an object to the API server without storing it. An object with a
// status is shown to the status subresource, because a create ignores status.
func (s *server) ask(ctx context.Context, t *testing.T, object map[string]any) verdict {
	t.Helper()

	u := &unstructured.Unstructured{Object: clone(object)}
	u.SetNamespace(testNamespace)
	policies := s.policies(u.GroupVersionKind().Version)

	_, err := policies.Create(ctx, u, metav1.CreateOptions{
		DryRun:          []string{metav1.DryRunAll},
		FieldValidation: metav1.FieldValidationStrict,
	})
	if _, hasStatus := object["status"]; err != nil || !hasStatus {
		return asVerdict(t, err)
	}

	stored := s.storedForStatus(ctx, t)
	stored.Object["status"] = u.Object["status"]
	_, err = policies.UpdateStatus(ctx, stored, metav1.UpdateOptions{
		DryRun:          []string{metav1.DryRunAll},
		FieldValidation: metav1.FieldValidationStrict,
	})

	return asVerdict(t, err)
}

// storedForStatus returns the one stored object, which has no status: the API
// server does not check again what an update leaves as it was.
func (s *server) storedForStatus(ctx context.Context, t *testing.T) *unstructured.Unstructured {
	t.Helper()

	policies := s.policies(apiVersion)

	stored, err := policies.Get(ctx, statusObject, metav1.GetOptions{})
	if err == nil {
		return stored
	}

	if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}

	stored, err = policies.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "XAccessPolicy",
		"metadata":   map[string]any{"name": statusObject, "namespace": testNamespace},
		"spec": map[string]any{
			"action": "Allow",
			"targetRefs": []any{map[string]any{
				"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "agents",
			}},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return stored
}

// quotedField finds the fields that a strict decoder does not know.
var quotedField = regexp.MustCompile(`unknown field "([^"]+)"`)

func asVerdict(t *testing.T, err error) verdict {
	t.Helper()

	if err == nil {
		return verdict{}
	}

	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("the API server did not answer: %v", err)
	}

	if details := status.Status().Details; status.Status().Reason == metav1.StatusReasonInvalid && details != nil {
		var v verdict
		for _, c := range details.Causes {
			v.causes = append(v.causes, cause{kind: c.Type, field: c.Field, message: c.Message})
		}

		return v
	}

	var unknown []string
	for _, match := range quotedField.FindAllStringSubmatch(err.Error(), -1) {
		unknown = append(unknown, unknownField+match[1])
	}

	if len(unknown) > 0 {
		return verdict{other: strings.Join(unknown, "\n")}
	}

	return verdict{other: string(status.Status().Reason) + ": " + status.Status().Message}
}
