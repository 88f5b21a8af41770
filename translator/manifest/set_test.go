package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/manifest"
)

const gatewayText = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: prod, namespace: demo}
spec:
  gatewayClassName: istio
  listeners: [{name: http, port: 80, protocol: HTTP}]
`

const authPolicyText = `apiVersion: kuadrant.io/v1
kind: AuthPolicy
metadata: {name: other, namespace: demo}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: prod}
`

const routeText = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r, namespace: demo}\nspec: {}\n"

func TestKinds(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
	var set manifest.Set
	require.NoError(t, set.Add("a.yaml", []byte(strings.Join([]string{policyText, gatewayText, authPolicyText, routeText, service, service}, "---\n"))))
	require.NoError(t, set.Add("b.yaml", []byte(strings.Replace(gatewayText, "/v1", "/v1beta1", 1)+"---\n"+service)), "the same Gateway in another version")
	require.Len(t, set.Policies, 1)
	require.Len(t, set.Gateways, 1)
	require.Len(t, set.AuthPolicies, 1)
	require.Len(t, set.Routes, 1)
	require.Equal(t, []string{"a.yaml: objects of kind Service (v1) are not looked at and were skipped",
		"b.yaml: Gateway demo/prod stands in the input twice, with the same content"}, set.Notes)
}

func TestLists(t *testing.T) {
	indent := func(s string) string { return "- " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") + "\n" }
	for name, text := range map[string]string{
		"List":             "apiVersion: v1\nkind: List\nitems:\n" + indent(policyText) + indent(gatewayText),
		"list of the kind": "apiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: XAccessPolicyList\nitems:\n" + indent(policyText) + "---\n" + gatewayText,
		"items without kind": "apiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: XAccessPolicyList\nitems:\n" +
			indent(policyText[strings.Index(policyText, "metadata:"):]) + "---\n" + gatewayText,
	} {
		t.Run(name, func(t *testing.T) {
			var set manifest.Set
			require.NoError(t, set.Add("in.yaml", []byte(text)))
			require.Len(t, set.Policies, 1)
			require.Empty(t, set.Policies[0].Problems)
			require.Len(t, set.Gateways, 1)
		})
	}
}

func TestJSON(t *testing.T) {
	const policy = `{"apiVersion":"agentic.networking.x-k8s.io/v1alpha1","kind":"XAccessPolicy","metadata":{"name":"%s"},"spec":{"targetRefs":[],"action":"Allow","rules":[]}}`
	for name, text := range map[string]string{
		"one after the other": policy + policy,
		"on lines":            policy + "\n" + policy + "\n",
		"with separators":     policy + "\n---\n" + policy,
		"with tabs":           strings.ReplaceAll(policy, ",", ",\n\t") + "\n" + policy,
		"a List":              `{"apiVersion":"v1","kind":"List","items":[` + policy + "," + policy + "]}",
	} {
		t.Run(name, func(t *testing.T) {
			var set manifest.Set
			require.NoError(t, set.Add("-", []byte(fmt.Sprintf(text, "a", "b"))))
			require.Len(t, set.Policies, 2, "no object may get lost")
			require.Equal(t, "b", set.Policies[1].Object.Name)
			require.Empty(t, set.Policies[0].Problems)
		})
	}
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"YAML that breaks off":   {policyText + "---\na: [1,\n", "in.yaml: document 2: line 12: did not find expected node content"},
		"bad first line":         {"a: b: c\n", "in.yaml: document 1: line 1: mapping values are not allowed in this context"},
		"a tab for indentation":  {"a:\n\tb: 1\n", "in.yaml: document 1: line 2: found character that cannot start any token"},
		"JSON that breaks off":   {"{\"a\":\n{\"b\": 1\n", "in.yaml: document 1: line 3: unexpected EOF"},
		"NUL":                    {"a: b\nc: \x00\n", "in.yaml: line 2: control character U+0000; remove it"},
		"not UTF-8":              {"a: b\n# caf\xe9\n", "in.yaml: line 2: not UTF-8 text; save the file as UTF-8"},
		"a list":                 {"- 1\n- 2\n", "in.yaml: document 1: an object with apiVersion and kind is expected, not a list or a single value"},
		"text":                   {"hello\n", "in.yaml: document 1: an object with apiVersion and kind is expected, not a list or a single value"},
		"no kind":                {"apiVersion: v1\nmetadata: {name: x}\n", "in.yaml: document 1: kind is missing; add it, for instance kind: XAccessPolicy"},
		"no version":             {"kind: XAccessPolicy\nmetadata: {name: x}\n", "in.yaml: document 1: apiVersion is missing; add it, for instance apiVersion: agentic.networking.x-k8s.io/v1alpha1"},
		"a kind that is none":    {"apiVersion: v1\nkind: [x]\n", "in.yaml: document 1: kind: text is expected here, not a list"},
		"a version that is none": {"apiVersion: a/b/c\nkind: x\n", "in.yaml: document 1: apiVersion: unexpected GroupVersion string: a/b/c"},
		"a bad Gateway":          {strings.Replace(gatewayText, "port: 80", "port: x", 1), "in.yaml: document 1: Gateway prod: spec.listeners[0].port: a whole number in range is expected here, not text"},
		"a nameless Gateway":     {strings.Replace(gatewayText, "name: prod, ", "", 1), "in.yaml: document 1: Gateway : metadata.name: the name is missing"},
		"two Gateways":           {gatewayText + "---\n" + strings.Replace(gatewayText, "80", "81", 1), "in.yaml: document 2: Gateway demo/prod stands in the input twice, and the two differ; keep one"},
		"a bad item":             {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: X}, 5]\n", "in.yaml: document 1: items[1]: an object with apiVersion and kind is expected, not a list or a single value"},
		"a List in a List":       {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List}]\n", "in.yaml: document 1: items[0]: a List inside a List is not read; write its members out"},
		"items that are no list": {"apiVersion: v1\nkind: List\nitems: 5\n", "in.yaml: document 1: items: a list is expected here, not a number"},
		"a reference to nothing": {"a: *b\n", "in.yaml: document 1: unknown anchor 'b' referenced"},
		"a reference to itself":  {"a: &x [*x]\n", "in.yaml: document 1: line 1: nested deeper than 500 levels"},
		"an unknown tag":         {"a: !thing b\n", "in.yaml: document 1: line 1: values of the type !thing are not read; write plain text or a number"},
		"a key that is a list":   {"? [a]\n: b\n", "in.yaml: document 1: line 1: a key must be a single value, not a list or an object"},
		"no number":              {"a: .nan\n", "in.yaml: document 1: line 1: .nan is not a number that JSON knows"},
		"trailing text":          {"{a: 1}\nb: 2\n", "in.yaml: document 2: line 1: did not find expected <document start>"},
		"braces of YAML, first":  {"{a: b}\n---\nx: [\n", "in.yaml: document 2: line 3: did not find expected node content"},
	} {
		t.Run(name, func(t *testing.T) {
			var set manifest.Set
			require.EqualError(t, set.Add("in.yaml", []byte(c.text)), c.want)
			if strings.HasPrefix(c.text, policyText) {
				require.Len(t, set.Policies, 1, "what stands before the fault stays")
			}
		})
	}
}

func TestNothing(t *testing.T) {
	for _, text := range []string{"", "\n", "# only words\n", "---\n---\n", "\ufeff", "null\n", "%YAML 1.1\n---\n"} {
		var set manifest.Set
		require.NoError(t, set.Add("in.yaml", []byte(text)), "%q", text)
		require.Empty(t, set.Policies)
		require.Empty(t, set.Notes)
	}
	var set manifest.Set
	require.NoError(t, set.Add("requests.yaml", []byte("requests: []\n")))
	require.Equal(t, []string{"requests.yaml: a document without apiVersion and kind is no Kubernetes object and was skipped"}, set.Notes)
}

func TestAssumeGateways(t *testing.T) {
	other := strings.NewReplacer("name: p,", "name: q,", "name: prod", "name: prod, sectionName: tls").Replace(policyText)
	elsewhere := strings.NewReplacer("namespace: demo", "namespace: other", "kind: Gateway", "kind: Service").Replace(policyText)
	var set manifest.Set
	require.NoError(t, set.Add("in.yaml", []byte(policyText+"---\n"+other+"---\n"+elsewhere)))
	set.AssumeGateways()
	require.Len(t, set.Gateways, 1)
	require.Len(t, set.Gateways[0].Spec.Listeners, 1)
	require.EqualValues(t, "tls", set.Gateways[0].Spec.Listeners[0].Name)
	require.Equal(t, []string{"Gateway demo/prod is not in the input; assumed with the listeners that policies name, tls, on port 80 for every host"}, set.Notes)
	set.AssumeGateways()
	require.Len(t, set.Gateways, 1, "nothing is assumed twice")

	alone := readOne(t, policyText)
	alone.AssumeGateways()
	require.EqualValues(t, "http", alone.Gateways[0].Spec.Listeners[0].Name)
	require.Equal(t, []string{"Gateway demo/prod is not in the input; assumed with one listener, http, on port 80 for every host"}, alone.Notes)

	given := readOne(t, other+"---\n"+gatewayText)
	given.AssumeGateways()
	require.Empty(t, given.Notes)
	require.Len(t, given.Gateways[0].Spec.Listeners, 1, "a Gateway that is there is left as it is")
}
