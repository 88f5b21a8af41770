package kuadrant

import (
	"encoding/json"
	"fmt"
	"strings"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"

	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
)

// DeniedMessage is what a caller gets to read with a 403; upstream's conformance tests have the same sentence.
const DeniedMessage = "Access to this tool is forbidden."

// object builds the AuthPolicy around rules. As overrides it holds against every AuthPolicy below; as defaults it only
// stands in where nothing more specific is.
func (o Options) object(gw *gwv1.Gateway, name, listener string, rules kuadrantv1.AuthSchemeSpec, defaults bool) *kuadrantv1.AuthPolicy {
	ap := &kuadrantv1.AuthPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: kuadrantv1.GroupVersion.String(), Kind: "AuthPolicy"},
		ObjectMeta: owned.Meta(gw, name),
	}
	ap.Spec.TargetRef.Group, ap.Spec.TargetRef.Kind, ap.Spec.TargetRef.Name = gwv1.GroupName, "Gateway", gwv1alpha2.ObjectName(gw.Name)
	if listener != "" {
		section := gwv1alpha2.SectionName(listener)
		ap.Spec.TargetRef.SectionName = &section
	}
	spec := &kuadrantv1.MergeableAuthPolicySpec{Strategy: StrategyAtomic}
	spec.AuthScheme = &rules
	if defaults {
		ap.Spec.Defaults = spec
		return ap
	}
	if o.Strategy != "" {
		spec.Strategy = o.Strategy
	}
	ap.Spec.Overrides = spec
	return ap
}

// response says what a denied caller reads. Without a message Authorino would show the text of an evaluation error.
func (o Options) response(ids plan.Identities) *kuadrantv1.MergeableResponseSpec {
	var ways []string
	if ids.Token {
		ways = append(ways, fmt.Sprintf("send a ServiceAccount token for the audience %s as Authorization: Bearer <token>", strings.Join(o.Audiences, " or ")))
	}
	if ids.SPIFFE {
		ways = append(ways, "present a client certificate with a SPIFFE ID")
	}
	need := "Authentication required: " + strings.Join(ways, ", or ") + "."
	unauthenticated := denial(401, need)
	// Authorino's own challenge would show the CEL text of the SPIFFE identity to callers.
	unauthenticated.Headers["www-authenticate"] = static(`Bearer realm="mcp"`)
	response := &kuadrantv1.MergeableResponseSpec{Unauthorized: denial(403, DeniedMessage)}
	if !ids.Anonymous {
		response.Unauthenticated = unauthenticated
	}
	return response
}

func denial(code int, message string) *kuadrantv1.MergeableDenyWithSpec {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%s}}`, code, marshalText(message))
	text, contentType := static(message), static("application/json")
	bodyValue := static(body)
	return &kuadrantv1.MergeableDenyWithSpec{DenyWithSpec: authorinov1beta3.DenyWithSpec{
		Code: authorinov1beta3.DenyWithCode(code), Message: &text, Body: &bodyValue,
		Headers: authorinov1beta3.NamedValuesOrSelectors{"content-type": contentType},
	}}
}

func static(s string) authorinov1beta3.ValueOrSelector {
	return authorinov1beta3.ValueOrSelector{Value: runtime.RawExtension{Raw: marshal(s)}}
}

// marshalText is a JSON string that people can read: <token> stays <token>.
func marshalText(s string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		panic(fmt.Sprintf("kuadrant: %v", err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// marshal is for values that always have a JSON form.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("kuadrant: %v", err))
	}
	return b
}

// Unstructured returns an AuthPolicy or AuthConfig as it is to be written: without status and without the empty fields that Go's
// JSON adds (value: null beside an expression would be a field that we own and do not mean).
func Unstructured(object metav1.Object) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, err
	}
	delete(content, "status")
	prune(content)
	return &unstructured.Unstructured{Object: content}, nil
}

// emptyByDefault are fields that Go's JSON writes as {} when they are unset.
var emptyByDefault = []string{"credentials", "success"}

func prune(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, field := range emptyByDefault {
			if m, ok := v[field].(map[string]any); ok && len(m) == 0 {
				delete(v, field)
			}
		}
		for k, field := range v {
			if field == nil {
				delete(v, k)
				continue
			}
			prune(field)
		}
	case []any:
		for _, item := range v {
			prune(item)
		}
	}
}
