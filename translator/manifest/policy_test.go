package manifest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/manifest"
)

// policyText is a policy in which {} stands for what a test adds at the end of its only rule.
const policyText = `apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: XAccessPolicy
metadata: {name: p, namespace: demo}
spec:
  targetRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: prod}
  action: Allow
  rules:
  - name: r
    source: {type: ServiceAccount, serviceAccount: {name: reader}}
`

func readOne(t *testing.T, text string) *manifest.Set {
	t.Helper()
	var set manifest.Set
	require.NoError(t, set.Add("in.yaml", []byte(text)))
	require.Len(t, set.Policies, 1)
	return &set
}

func problems(set *manifest.Set) []string {
	var out []string
	for _, p := range set.Policies[0].Problems {
		out = append(out, p.Reason+" "+p.String())
	}
	return out
}

func TestPolicyIsReadStrictly(t *testing.T) {
	const unknown = "the field is not known"
	for name, c := range map[string]struct{ text, reason, field, message string }{
		"unknown field of a method": {policyText + "    authorization: {type: Inline, mcp: {methods: [{name: tools/call, parms: [add]}]}}\n",
			"UnsupportedField", "spec.rules[0].authorization.mcp.methods[0].parms", unknown},
		"unknown field of the object":   {policyText + "extra: 1\n", "UnsupportedField", "extra", unknown},
		"a field in another case":       {strings.Replace(policyText, "action:", "Action:", 1), "UnsupportedField", "spec.Action", unknown},
		"spec in another case":          {strings.Replace(policyText, "\nspec:", "\nSpec:", 1), "UnsupportedField", "Spec", unknown},
		"unknown field of a target":     {strings.Replace(policyText, "name: prod", "name: prod, namespace: other", 1), "UnsupportedField", "spec.targetRefs[0].namespace", unknown},
		"a key that stands twice":       {policyText + "    source: {type: SPIFFE}\n", "Invalid", "spec.rules[0].source", "stands twice"},
		"spec twice":                    {policyText + "spec: {}\n", "Invalid", "spec", "stands twice"},
		"a null source":                 {strings.Replace(policyText, "{type: ServiceAccount, serviceAccount: {name: reader}}", "", 1), "Invalid", "spec.rules[0].source", "null is no value"},
		"a null in a list":              {policyText + "  - null\n", "Invalid", "spec.rules[1]", "null is no value"},
		"a null spec":                   {"apiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: XAccessPolicy\nmetadata: {name: p}\nspec:\n", "Invalid", "spec", "null is no value"},
		"a number for text":             {strings.Replace(policyText, "name: reader", "name: 7", 1), "Invalid", "spec.rules[0].source.serviceAccount.name", "text is expected here, not a number"},
		"a YAML boolean for text":       {strings.Replace(policyText, "name: reader", "name: on", 1), "Invalid", "spec.rules[0].source.serviceAccount.name", "text is expected here, not true or false"},
		"text for a list":               {policyText + "    authorization: {type: Inline, methods: GET}\n", "Invalid", "spec.rules[0].authorization.methods", "a list is expected here, not text"},
		"a list for an object":          {strings.Replace(policyText, "{type: ServiceAccount, serviceAccount: {name: reader}}", "[]", 1), "Invalid", "spec.rules[0].source", "an object is expected here, not a list"},
		"a port out of range":           {policyText + "    authorization: {type: Inline, ports: [80, 99999999999]}\n", "Invalid", "spec.rules[0].authorization.ports[1]", "a whole number in range is expected here, not 99999999999"},
		"a fraction for a port":         {policyText + "    authorization: {type: Inline, ports: [80.5]}\n", "Invalid", "spec.rules[0].authorization.ports[0]", "a whole number in range"},
		"no name":                       {strings.Replace(policyText, "name: p, ", "", 1), "Invalid", "metadata.name", "name is missing"},
		"labels of a wrong type":        {strings.Replace(policyText, "name: p,", "name: p, labels: 5,", 1), "Invalid", "metadata.labels", "an object is expected here, not a number"},
		"a creation time that is none":  {strings.Replace(policyText, "name: p,", "name: p, creationTimestamp: yesterday,", 1), "Invalid", "metadata", "yesterday"},
		"an older version":              {strings.Replace(policyText, "v1alpha1", "v0alpha0", 1), "UnsupportedField", "apiVersion", "write apiVersion: agentic.networking.x-k8s.io/v1alpha1"},
		"a newer version":               {strings.Replace(policyText, "v1alpha1", "v1beta1", 1) + "    somethingNew: 1\n", "UnsupportedField", "apiVersion", "v1beta1 is not known"},
		"the proof of concept's kind":   {strings.Replace(policyText, "XAccessPolicy", "AccessPolicy", 1), "UnsupportedField", "kind", "write kind: XAccessPolicy"},
		"a key that stands twice, JSON": {`{"apiVersion":"agentic.networking.x-k8s.io/v1alpha1","kind":"XAccessPolicy","metadata":{"name":"p","namespace":"demo"},"spec":{"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"prod"}],"action":"Allow","action":"Allow"}}`, "Invalid", "spec.action", "stands twice"},
	} {
		t.Run(name, func(t *testing.T) {
			set := readOne(t, c.text)
			require.Len(t, set.Policies[0].Problems, 1, "%v", problems(set))
			p := set.Policies[0].Problems[0]
			require.Equal(t, c.reason, p.Reason)
			require.Equal(t, c.field, p.Field)
			require.Contains(t, p.Message, c.message)
		})
	}
}

// A refused policy has to close its targets, so they must survive the fault, wherever it stands.
func TestRefusedPolicyKeepsNameAndTargets(t *testing.T) {
	for name, text := range map[string]string{
		"unknown field":     policyText + "    extra: 1\n",
		"wrong type before": strings.Replace(policyText, "  targetRefs:", "  rules: 5\n  targetRefs:", 1),
		"wrong type after":  policyText + "    authorization: 5\n",
		"wrong metadata":    strings.Replace(policyText, "namespace: demo", "namespace: demo, labels: 5", 1),
		"null":              policyText + "    authorization:\n",
		"another version":   strings.Replace(policyText, "v1alpha1", "v2", 1),
		"another kind":      strings.Replace(policyText, "XAccessPolicy", "AccessPolicy", 1),
		"one bad target":    strings.Replace(policyText, "  action:", "  - 5\n  action:", 1),
	} {
		t.Run(name, func(t *testing.T) {
			p := readOne(t, text).Policies[0]
			require.NotEmpty(t, p.Problems)
			require.Equal(t, "p", p.Object.Name)
			require.Equal(t, "demo", p.Object.Namespace)
			require.NotEmpty(t, p.Object.Spec.TargetRefs)
			require.EqualValues(t, "prod", p.Object.Spec.TargetRefs[0].Name)
			require.EqualValues(t, "Allow", p.Object.Spec.Action)
		})
	}
}

func TestPolicyWithoutFault(t *testing.T) {
	for name, text := range map[string]string{
		"plain":                    policyText,
		"status of somebody else":  policyText + "status: {ancestors: 5, extra: null}\n",
		"metadata of a server":     strings.Replace(policyText, "name: p,", "name: p, managedFields: [{manager: kubectl}], unheardOf: 1, annotations: {a: null},", 1),
		"a name that looks like a": strings.Replace(policyText, "name: reader", `name: "on"`, 1),
		"references":               strings.Replace(policyText, "{name: reader}", "&who {name: reader}", 1) + "  - name: s\n    source: {type: ServiceAccount, serviceAccount: *who}\n",
		"merge":                    strings.Replace(policyText, "source: {", "source: &who {", 1) + "  - name: s\n    source: {<<: *who}\n",
		"byte order mark":          "\ufeff" + policyText,
		"CRLF":                     strings.ReplaceAll(policyText, "\n", "\r\n"),
		"comments and empties":     "# nothing\n---\n---\n# still nothing\n---\n" + policyText + "---\n...\n---\n",
		"a document that ends":     policyText + "...\n# trailing\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := readOne(t, text).Policies[0]
			require.Empty(t, p.Problems)
			require.EqualValues(t, "reader", strings.Replace(p.Object.Spec.Rules[0].Source.ServiceAccount.Name, "on", "reader", 1))
			last := p.Object.Spec.Rules[len(p.Object.Spec.Rules)-1]
			require.NotNil(t, last.Source, "what a reference stands for must not get lost")
			require.NotNil(t, last.Source.ServiceAccount)
		})
	}
}

func TestRulesLeftOutAndEmptyStayApart(t *testing.T) {
	head, _, _ := strings.Cut(policyText, "  rules:")
	require.Nil(t, readOne(t, head).Policies[0].Object.Spec.Rules)
	empty := readOne(t, head+"  rules: []\n").Policies[0]
	require.Empty(t, empty.Problems)
	require.NotNil(t, empty.Object.Spec.Rules)
}

func TestNamespaceDefault(t *testing.T) {
	set := readOne(t, strings.Replace(policyText, ", namespace: demo", "", 1))
	require.Equal(t, "default", set.Policies[0].Object.Namespace)
	require.Empty(t, set.Notes)
	require.Empty(t, set.Policies[0].Problems)
}

func TestDecodePolicyOfNoJSON(t *testing.T) {
	for _, raw := range []string{"", "null", "[]", "{", `"x"`, "{}{}", "\xff", `{"kind":5}`} {
		require.NotEmpty(t, manifest.DecodePolicy([]byte(raw)).Problems, "%q", raw)
	}
}
