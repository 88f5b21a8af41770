package envoytypes

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	egv1a1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	mirror "accesspolicy-operator/api/envoygateway/v1alpha1"
)

// TestMirrorHasOnlyFieldsOfTheOriginal compares by name, place and kind. A field of the mirror with a name that Envoy Gateway
// does not have would always be read as left out.
func TestMirrorHasOnlyFieldsOfTheOriginal(t *testing.T) {
	for _, pair := range [][2]any{
		{mirror.SecurityPolicy{}, egv1a1.SecurityPolicy{}},
		{mirror.ClientTrafficPolicy{}, egv1a1.ClientTrafficPolicy{}},
		{mirror.EnvoyExtensionPolicy{}, egv1a1.EnvoyExtensionPolicy{}},
		{mirror.EnvoyPatchPolicy{}, egv1a1.EnvoyPatchPolicy{}},
		{mirror.EnvoyProxy{}, egv1a1.EnvoyProxy{}},
		{mirror.ListenerSet{}, gwv1.ListenerSet{}},
		{mirror.AllowedListeners{}, gwv1.AllowedListeners{}},
	} {
		ours, theirs := reflect.TypeOf(pair[0]), reflect.TypeOf(pair[1])
		t.Run(ours.Name(), func(t *testing.T) {
			assert.Empty(t, differences(ours.Name(), ours, theirs))
		})
	}
}

// TestDifferencesAreFound has the comparison find what it is for.
func TestDifferencesAreFound(t *testing.T) {
	type theirs struct {
		Name  *string        `json:"name,omitempty"`
		Rules []struct{}     `json:"rules"`
		Count int32          `json:"count"`
		Set   map[string]int `json:"set"`
		Inner struct {
			Deep string `json:"deep"`
		} `json:"inner"`
		Raw struct{} `json:"raw"`
	}
	type ours struct {
		Name  string         `json:"nam"`
		Rules map[string]int `json:"rules"`
		Count string         `json:"count"`
		Set   map[string]any `json:"set"`
		Inner struct {
			Deep int `json:"deep"`
		} `json:"inner"`
		Raw   *runtime.RawExtension `json:"raw"`
		Plain int
	}
	assert.Equal(t, []string{
		"x.nam: the original has no such field",
		"x.rules: map, and slice in the original",
		"x.count: string, and int32 in the original",
		"x.set{}: interface, and int in the original",
		"x.inner.deep: int, and string in the original",
		"x.Plain: has no name in JSON",
	}, differences("x", reflect.TypeFor[ours](), reflect.TypeFor[theirs]()))
}

// differences says for each field of ours, of any depth, why it is not a field of theirs.
func differences(path string, ours, theirs reflect.Type) []string {
	ours, theirs = plain(ours), plain(theirs)
	// What is raw is not looked into.
	if ours == theirs || ours == reflect.TypeFor[runtime.RawExtension]() {
		return nil
	}
	if ours.Kind() != theirs.Kind() {
		return []string{path + ": " + ours.Kind().String() + ", and " + theirs.Kind().String() + " in the original"}
	}
	switch ours.Kind() {
	case reflect.Slice:
		return differences(path+"[]", ours.Elem(), theirs.Elem())
	case reflect.Map:
		return slices.Concat(differences(path+"{key}", ours.Key(), theirs.Key()), differences(path+"{}", ours.Elem(), theirs.Elem()))
	case reflect.Struct:
		return differentFields(path, ours, theirs)
	default:
		return nil
	}
}

func differentFields(path string, ours, theirs reflect.Type) []string {
	var out []string
	for field := range fieldsOf(ours) {
		name, at := jsonName(field), path+"."+field.Name
		if name == "" {
			out = append(out, at+": has no name in JSON")
			continue
		}
		at = path + "." + name
		original, ok := named(theirs, name)
		if !ok {
			out = append(out, at+": the original has no such field")
			continue
		}
		out = append(out, differences(at, field.Type, original.Type)...)
	}
	return out
}

// fieldsOf are the fields as JSON has them: those of inline structs stand among the others.
func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			field := t.Field(i)
			if !field.Anonymous || jsonName(field) != "" {
				if !yield(field) {
					return
				}
				continue
			}
			for inner := range fieldsOf(plain(field.Type)) {
				if !yield(inner) {
					return
				}
			}
		}
	}
}

func named(t reflect.Type, name string) (reflect.StructField, bool) {
	for field := range fieldsOf(t) {
		if jsonName(field) == name {
			return field, true
		}
	}
	return reflect.StructField{}, false
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// plain leaves out that something is optional.
func plain(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// TestConstants compares the values that the mirror spells out, which are plain strings there.
func TestConstants(t *testing.T) {
	for ours, theirs := range map[string]string{
		mirror.KindSecurityPolicy:    egv1a1.KindSecurityPolicy,
		mirror.ActionAllow:           string(egv1a1.AuthorizationActionAllow),
		mirror.ActionDeny:            string(egv1a1.AuthorizationActionDeny),
		mirror.VerifyIfGiven:         string(egv1a1.ClientValidationVerifyIfGiven),
		mirror.RequireAndVerify:      string(egv1a1.ClientValidationRequireAndVerify),
		mirror.Controller:            egv1a1.GatewayControllerName,
		mirror.GroupVersion.String(): egv1a1.GroupVersion.String(),
	} {
		assert.Equal(t, theirs, ours)
	}
}

// TestVersionIsTheOneThatRuns: types of another version than that of the Envoy Gateway in test/envoy would prove nothing.
func TestVersionIsTheOneThatRuns(t *testing.T) {
	version := regexp.MustCompile(`(?m)^\s+github\.com/envoyproxy/gateway (v\S+)`)
	var versions []string
	for _, file := range []string{"go.mod", "../../hack/components/envoygateway/go.mod"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found := version.FindSubmatch(text)
		require.NotNil(t, found, file)
		versions = append(versions, string(found[1]))
	}
	assert.Equal(t, versions[1], versions[0])
}
