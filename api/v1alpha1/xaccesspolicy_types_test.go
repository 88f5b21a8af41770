package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"accesspolicy-operator/api/v1alpha1"
)

// wire lists every way to leave something out and to write it empty, with what
// the Go value has to show. Each document has to come back as it was.
var wire = []struct {
	name string
	spec string
	want func(v1alpha1.AccessPolicySpec) bool
}{
	{
		"rules omitted", `{"targetRefs":[],"action":"Allow"}`,
		func(s v1alpha1.AccessPolicySpec) bool { return s.Rules == nil },
	},
	{
		"rules empty", `{"targetRefs":[],"action":"Allow","rules":[]}`,
		func(s v1alpha1.AccessPolicySpec) bool { return s.Rules != nil && len(s.Rules) == 0 },
	},
	{
		"source omitted", `{"targetRefs":[],"action":"Allow","rules":[{"name":"r"}]}`,
		func(s v1alpha1.AccessPolicySpec) bool { return s.Rules[0].Source == nil },
	},
	{
		"source empty", `{"targetRefs":[],"action":"Allow","rules":[{"name":"r","source":{}}]}`,
		func(s v1alpha1.AccessPolicySpec) bool {
			return s.Rules[0].Source != nil && *s.Rules[0].Source == v1alpha1.AccessRuleSource{}
		},
	},
	{
		"source type without member",
		`{"targetRefs":[],"action":"Allow","rules":[{"name":"r","source":{"type":"SPIFFE"}}]}`,
		func(s v1alpha1.AccessPolicySpec) bool {
			source := s.Rules[0].Source

			return source.Type == v1alpha1.AuthorizationSourceTypeSPIFFE && source.SPIFFE == nil
		},
	},
	{
		"source member without type",
		`{"targetRefs":[],"action":"Allow","rules":[{"name":"r","source":{"spiffe":"spiffe://a/b"}}]}`,
		func(s v1alpha1.AccessPolicySpec) bool {
			return s.Rules[0].Source.Type == "" && s.Rules[0].Source.SPIFFE != nil
		},
	},
	{
		"authorization omitted", `{"targetRefs":[],"action":"Allow","rules":[{"name":"r"}]}`,
		func(s v1alpha1.AccessPolicySpec) bool { return s.Rules[0].Authorization == nil },
	},
	{
		"mcp omitted",
		`{"targetRefs":[],"action":"Allow","rules":[{"name":"r","authorization":{"type":"Inline"}}]}`,
		func(s v1alpha1.AccessPolicySpec) bool { return s.Rules[0].Authorization.MCP == nil },
	},
	{
		"mcp empty",
		`{"targetRefs":[],"action":"Allow","rules":[{"name":"r","authorization":{"type":"Inline","mcp":{}}}]}`,
		func(s v1alpha1.AccessPolicySpec) bool {
			mcp := s.Rules[0].Authorization.MCP

			return mcp != nil && mcp.Methods == nil && mcp.MCPBaseProtocolMethodsOption == ""
		},
	},
	{
		"grpc section empty",
		`{"targetRefs":[],"action":"ExternalAuth",` +
			`"externalAuth":{"protocol":"GRPC","backendRef":{"name":"a","port":1},"grpc":{}}}`,
		func(s v1alpha1.AccessPolicySpec) bool { return s.ExternalAuth.GRPCAuthConfig != nil },
	},
}

func TestOmittedIsNotEmpty(t *testing.T) {
	for _, c := range wire {
		t.Run(c.name, func(t *testing.T) {
			var spec v1alpha1.AccessPolicySpec
			// The decoder that clients and informers use.
			if err := utiljson.Unmarshal([]byte(c.spec), &spec); err != nil {
				t.Fatal(err)
			}

			if !c.want(spec) {
				t.Errorf("read as %+v", spec)
			}

			written, err := json.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}

			if string(written) != c.spec {
				t.Errorf("written as %s, was %s", written, c.spec)
			}
		})
	}
}

// TestOmittedIsNotEmptyInUnstructured is the same for the way that server-side
// apply and the controller-runtime client take through unstructured objects.
func TestOmittedIsNotEmptyInUnstructured(t *testing.T) {
	for _, c := range wire {
		t.Run(c.name, func(t *testing.T) {
			var spec, back v1alpha1.AccessPolicySpec
			if err := utiljson.Unmarshal([]byte(c.spec), &spec); err != nil {
				t.Fatal(err)
			}

			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
			if err != nil {
				t.Fatal(err)
			}

			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &back); err != nil {
				t.Fatal(err)
			}

			if !c.want(back) {
				t.Errorf("read as %+v from %v", back, object)
			}
		})
	}
}

func TestDeepCopyKeepsEmpty(t *testing.T) {
	policy := &v1alpha1.XAccessPolicy{Spec: v1alpha1.AccessPolicySpec{Rules: []v1alpha1.AccessRule{}}}

	if got := policy.DeepCopy().Spec.Rules; got == nil || len(got) != 0 {
		t.Errorf("a copy of an empty list of rules is %#v", got)
	}
}

// TestStatusIsNotWrittenBeforeThereIsOne: the schema requires ancestors in a
// status, so a status without any would be invalid.
func TestStatusIsNotWrittenBeforeThereIsOne(t *testing.T) {
	written, err := json.Marshal(v1alpha1.XAccessPolicy{})
	if err != nil {
		t.Fatal(err)
	}

	var fields map[string]json.RawMessage
	if err := json.Unmarshal(written, &fields); err != nil {
		t.Fatal(err)
	}

	if _, ok := fields["status"]; ok {
		t.Errorf("written with a status: %s", written)
	}
}

// TestLargeBodyLimitIsRead: the schema accepts any integer, and an object that
// cannot be decoded would stop the reading of all others.
func TestLargeBodyLimitIsRead(t *testing.T) {
	var config v1alpha1.ForwardBodyConfig
	if err := utiljson.Unmarshal([]byte(`{"maxSize":1048576}`), &config); err != nil {
		t.Fatal(err)
	}

	if config.MaxSize != 1<<20 {
		t.Errorf("read as %d", config.MaxSize)
	}
}

func TestSchemeKnowsTheTypes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	want := schema.GroupVersion{Group: "agentic.networking.x-k8s.io", Version: "v1alpha1"}

	for _, object := range []runtime.Object{&v1alpha1.XAccessPolicy{}, &v1alpha1.XAccessPolicyList{}} {
		kinds, _, err := scheme.ObjectKinds(object)
		if err != nil {
			t.Fatal(err)
		}

		if len(kinds) != 1 || kinds[0].GroupVersion() != want {
			t.Errorf("%T is registered as %v", object, kinds)
		}
	}

	if got := v1alpha1.Resource("xaccesspolicies").String(); got != "xaccesspolicies.agentic.networking.x-k8s.io" {
		t.Errorf("resource %s", got)
	}
}
