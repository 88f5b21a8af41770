package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/controllers"
)

const (
	sumOnly  = "{methods: [{name: tools/call, params: [sum]}]}"
	baseOnly = "{mcpBaseProtocolMethodsOption: MATCH_BASE_PROTOCOL_METHODS}"
	sumBase  = "{mcpBaseProtocolMethodsOption: MATCH_BASE_PROTOCOL_METHODS, methods: [{name: tools/call, params: [sum]}]}"
	sumSkip  = "{mcpBaseProtocolMethodsOption: SKIP_BASE_PROTOCOL_METHODS, methods: [{name: tools/call, params: [sum]}]}"
	skipOnly = "{mcpBaseProtocolMethodsOption: SKIP_BASE_PROTOCOL_METHODS}"
)

// onceOnly are scenarios in which it does not matter how callers show who they are.
var onceOnly = []scenario{
	{"accepted", accepted},
	{"status", statusShape},
}

// everyWay are scenarios that come out alike however callers show who they are.
var everyWay = []scenario{
	{"delegated", delegated},
	{"base-match", baseMatch},
	{"base-match-and-tool", baseMatchAndTool},
	{"base-skip", baseSkip},
	{"base-skip-all", baseSkipAll},
	{"matching", identityMatching},
	{"evaluation", evaluationLogic},
	{"delegated-twice", delegatedTwice},
	{"mcp", mcpMatching},
	{"programmed", programmedCondition},
	{"two-listeners", twoListeners},
}

// accepted: an Allow policy is accepted in the version that upstream's newer test reads, and the older version is not there.
func accepted(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.allow(t, "sum", "tester", sumOnly, "main")
	tr.expect(t, "sum", "main", v1alpha1.PolicyConditionAccepted, metav1.ConditionTrue, v1alpha1.PolicyReasonAccepted)
	path := func(version string) string {
		return "/apis/agentic.networking.x-k8s.io/" + version + "/namespaces/" + tr.namespace + "/xaccesspolicies/sum"
	}
	object := &unstructured.Unstructured{}
	require.NoError(t, tr.Raw(t.Context(), path("v1alpha1"), "application/json", object))
	require.Equal(t, "sum", object.GetName())
	err := tr.Raw(t.Context(), path("v0alpha0"), "application/json", &unstructured.Unstructured{})
	require.True(t, apierrors.IsNotFound(err), "v0alpha0: %v", err)
}

// delegated: an ExternalAuth policy is refused with a reason, and so is what it would have delegated.
func delegated(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.delegate(t, "elsewhere", "tester", "", "main")
	condition := tr.expect(t, "elsewhere", "main", v1alpha1.PolicyConditionAccepted, metav1.ConditionFalse, v1alpha1.PolicyReasonUnsupportedAction)
	require.Contains(t, condition.Message, "ExternalAuth")
	tr.expect(t, "elsewhere", "main", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonInvalid)
	require.Contains(t, tr.event(t, "elsewhere", v1alpha1.PolicyReasonUnsupportedAction), "ExternalAuth")
	tr.ask(t, "main", slices.Concat(tr.base(http.StatusForbidden, tr.tester), []request{
		{"a call that it delegates", tr.tester(tool(tr.host, "", "sum")), http.StatusForbidden},
		{"a call that nobody allows", tr.other(tool(tr.host, "", "sum")), http.StatusForbidden},
		{"no credential", tool(tr.host, "", "sum"), http.StatusUnauthorized},
	})...)

	tr.allow(t, "for-tester", "tester", sumBase, "main")
	tr.allow(t, "for-other", "other", sumBase, "main")
	tr.programmed(t, "for-tester", "main")
	tr.programmed(t, "for-other", "main")
	tr.ask(t, "main",
		request{"what is delegated stays refused", tr.tester(tool(tr.host, "", "sum")), http.StatusForbidden},
		request{"the handshake too", tr.tester(mcp(tr.host, "", "initialize")), http.StatusForbidden},
		request{"what is not delegated is allowed", tr.other(tool(tr.host, "", "sum")), http.StatusOK},
	)
}

func baseMatch(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.allow(t, "base", "tester", baseOnly, "main")
	tr.programmed(t, "base", "main")
	tr.ask(t, "main", tr.base(http.StatusOK, tr.tester)...)
	tr.ask(t, "main", request{"a tool", tr.tester(tool(tr.host, "", "sum")), http.StatusForbidden},
		request{"prompts of the list", tr.tester(mcp(tr.host, "", "prompts/list")), http.StatusForbidden},
		request{"a method that begins alike", tr.tester(mcp(tr.host, "", "tools/list-all")), http.StatusForbidden},
		request{"another account", tr.other(mcp(tr.host, "", "initialize")), http.StatusForbidden},
		request{"no credential", mcp(tr.host, "", "initialize"), http.StatusUnauthorized})
	tr.ask(t, "main", forgeries(tr.host, tr.tester, "sum")...)

	// Upstream answers 200 with an error of JSON-RPC and the request's ID in it.
	answer := tr.refusal(t, "main", tr.tester(tool(tr.host, "", "sum")))
	require.Equal(t, http.StatusForbidden, answer.Code)
	require.Equal(t, "application/json", answer.Headers["content-type"])
	var body struct {
		JSONRPC string `json:"jsonrpc"`
		ID      *int   `json:"id"`
		Error   struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer.Body), &body), answer.Body)
	require.Equal(t, "2.0", body.JSONRPC)
	require.Nil(t, body.ID)
	require.Equal(t, http.StatusForbidden, body.Error.Code)
	require.Equal(t, "Access to this tool is forbidden.", body.Error.Message)
}

func baseMatchAndTool(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.allow(t, "session", "tester", sumBase, "main")
	tr.programmed(t, "session", "main")
	tr.ask(t, "main", append(tr.base(http.StatusOK, tr.tester),
		request{"the tool", tr.tester(tool(tr.host, "", "sum")), http.StatusOK},
		request{"another tool", tr.tester(tool(tr.host, "", "echo")), http.StatusForbidden})...)
	tr.ask(t, "main", forgeries(tr.host, tr.tester, "sum")...)
}

func baseSkip(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.allow(t, "tool", "tester", sumSkip, "main")
	tr.programmed(t, "tool", "main")
	tr.ask(t, "main", append(tr.base(http.StatusForbidden, tr.tester),
		request{"the tool", tr.tester(tool(tr.host, "", "sum")), http.StatusOK},
		request{"another tool", tr.tester(tool(tr.host, "", "echo")), http.StatusForbidden})...)
	// What upstream looks for in the answer.
	require.Contains(t, tr.refusal(t, "main", tr.tester(mcp(tr.host, "", "initialize"))).Body, "403")
}

// baseSkipAll: without methods the option has nothing to leave out, and the rule has no condition on MCP at all.
func baseSkipAll(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.allow(t, "all", "tester", skipOnly, "main")
	tr.programmed(t, "all", "main")
	tr.ask(t, "main", slices.Concat(tr.base(http.StatusOK, tr.tester), tr.base(http.StatusForbidden, tr.other), []request{
		{"any tool", tr.tester(tool(tr.host, "", "echo")), http.StatusOK},
		{"any tool of another account", tr.other(tool(tr.host, "", "echo")), http.StatusForbidden},
		{"any tool without a credential", tool(tr.host, "", "echo"), http.StatusUnauthorized},
	})...)
}

func identityMatching(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.allow(t, "sum", "tester", sumBase, "main")
	tr.programmed(t, "sum", "main")
	requests := []request{
		{"the tool", tr.tester(tool(tr.host, "", "sum")), http.StatusOK},
		{"the handshake", tr.tester(mcp(tr.host, "", "initialize")), http.StatusOK},
		{"another tool", tr.tester(tool(tr.host, "", "echo")), http.StatusForbidden},
	}
	requests = append(requests, tr.strangers(t, "sum")...)
	requests = append(requests, forgeries(tr.host, tr.tester, "sum")...)
	tr.ask(t, "main", requests...)
}

// evaluationLogic: what an ExternalAuth policy covers comes first, and Allow policies form a union.
func evaluationLogic(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.allow(t, "sums", "tester",
		"{mcpBaseProtocolMethodsOption: MATCH_BASE_PROTOCOL_METHODS, methods: [{name: tools/call, params: [sum, echo]}]}", "main")
	tr.allow(t, "times", "tester", "{methods: [{name: tools/call, params: [now]}]}", "main")
	tr.allow(t, "echoes", "other", "{methods: [{name: tools/call, params: [echo]}]}", "main")
	for _, policy := range []string{"sums", "times", "echoes"} {
		tr.programmed(t, policy, "main")
	}
	rest := []request{
		{"sum is allowed by one policy", tr.tester(tool(tr.host, "", "sum")), http.StatusOK},
		{"now by another", tr.tester(tool(tr.host, "", "now")), http.StatusOK},
		{"the handshake by one", tr.tester(mcp(tr.host, "", "initialize")), http.StatusOK},
		{"env by none", tr.tester(tool(tr.host, "", "env")), http.StatusForbidden},
		{"sum is not for another account", tr.other(tool(tr.host, "", "sum")), http.StatusForbidden},
		{"which has no handshake", tr.other(mcp(tr.host, "", "initialize")), http.StatusForbidden},
		{"but a tool of its own", tr.other(tool(tr.host, "", "echo")), http.StatusOK},
		{"no credential", tool(tr.host, "", "sum"), http.StatusUnauthorized},
	}
	echo := tr.tester(tool(tr.host, "", "echo"))
	tr.ask(t, "main", append(rest, request{"echo is allowed", echo, http.StatusOK})...)

	tr.delegate(t, "ask", "tester", "{methods: [{name: tools/call, params: [echo]}]}", "main")
	tr.expect(t, "ask", "main", v1alpha1.PolicyConditionAccepted, metav1.ConditionFalse, v1alpha1.PolicyReasonUnsupportedAction)
	tr.ask(t, "main", append([]request{{"echo is refused first", echo, http.StatusForbidden}}, rest...)...)
	tr.programmed(t, "sums", "main")

	tr.delete(t, tr.policy(t, "times", "{}"))
	tr.ask(t, "main",
		request{"now is allowed by none", tr.tester(tool(tr.host, "", "now")), http.StatusForbidden},
		request{"sum as before", tr.tester(tool(tr.host, "", "sum")), http.StatusOK})
	tr.delete(t, tr.policy(t, "ask", "{}"))
	tr.ask(t, "main", request{"echo is allowed again", echo, http.StatusOK})
}

// delegatedTwice: upstream carries out the older of two ExternalAuth policies and refuses the younger for its number; here both
// have the same reason, and what either covers is refused.
func delegatedTwice(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.allow(t, "all-tools", "tester", "{methods: [{name: tools}]}", "main")
	tr.delegate(t, "ask-1", "tester", "{methods: [{name: tools/call, params: [sum]}]}", "main")
	tr.delegate(t, "ask-2", "tester", "{methods: [{name: tools/call, params: [echo]}]}", "main")
	for _, policy := range []string{"ask-1", "ask-2"} {
		tr.expect(t, policy, "main", v1alpha1.PolicyConditionAccepted, metav1.ConditionFalse, v1alpha1.PolicyReasonUnsupportedAction)
	}
	tr.programmed(t, "all-tools", "main")
	tr.ask(t, "main",
		request{"what neither covers", tr.tester(tool(tr.host, "", "env")), http.StatusOK},
		request{"what the first covers", tr.tester(tool(tr.host, "", "sum")), http.StatusForbidden},
		request{"what the second covers", tr.tester(tool(tr.host, "", "echo")), http.StatusForbidden},
		request{"another account", tr.other(tool(tr.host, "", "env")), http.StatusForbidden},
		request{"no credential", tool(tr.host, "", "env"), http.StatusUnauthorized})

	tr.delete(t, tr.policy(t, "ask-1", "{}"))
	tr.ask(t, "main",
		request{"the first is gone", tr.tester(tool(tr.host, "", "sum")), http.StatusOK},
		request{"the second is not", tr.tester(tool(tr.host, "", "echo")), http.StatusForbidden})
	tr.expect(t, "ask-2", "main", v1alpha1.PolicyConditionAccepted, metav1.ConditionFalse, v1alpha1.PolicyReasonUnsupportedAction)
}

// prompt is a prompts/get that the router has routed.
func prompt(host, name string) call {
	return call{host: host, headers: map[string]string{"x-mcp-method": "prompts/get", "x-mcp-promptname": name, "x-mcp-servername": "default/tools"}}
}

// mcpMatching: params, a category, and methods by their names.
func mcpMatching(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	tr.allow(t, "some", "tester", `{methods: [{name: tools/call, params: [sum, now]}, {name: prompts}, {name: resources/list}]}`, "main")
	tr.allow(t, "prompt", "other", `{methods: [{name: prompts/get, params: [greet]}, {name: tools}]}`, "main")
	tr.programmed(t, "some", "main")
	tr.programmed(t, "prompt", "main")
	tr.ask(t, "main",
		request{"the first of the tools", tr.tester(tool(tr.host, "", "sum")), http.StatusOK},
		request{"the second of the tools", tr.tester(tool(tr.host, "", "now")), http.StatusOK},
		request{"another tool", tr.tester(tool(tr.host, "", "echo")), http.StatusForbidden},
		request{"a tool in upper case", tr.tester(tool(tr.host, "", "SUM")), http.StatusForbidden},
		request{"the tools of the list", tr.tester(mcp(tr.host, "", "tools/list")), http.StatusForbidden},
		request{"prompts of the list", tr.tester(mcp(tr.host, "", "prompts/list")), http.StatusOK},
		request{"any prompt", tr.tester(prompt(tr.host, "greet")), http.StatusOK},
		request{"a method that begins like the category", tr.tester(mcp(tr.host, "", "promptsx/list")), http.StatusForbidden},
		request{"resources of the list", tr.tester(mcp(tr.host, "", "resources/list")), http.StatusOK},
		request{"another method of resources", tr.tester(mcp(tr.host, "", "resources/read")), http.StatusForbidden},
		request{"no base protocol", tr.tester(mcp(tr.host, "", "initialize")), http.StatusForbidden},
		request{"one prompt for another account", tr.other(prompt(tr.host, "greet")), http.StatusOK},
		request{"no other prompt", tr.other(prompt(tr.host, "insult")), http.StatusForbidden},
		request{"not the list of prompts", tr.other(mcp(tr.host, "", "prompts/list")), http.StatusForbidden},
		request{"a call in a category", tr.other(tool(tr.host, "", "echo")), http.StatusOK},
		request{"a list in a category", tr.other(mcp(tr.host, "", "tools/list")), http.StatusOK},
		request{"no credential", prompt(tr.host, "greet"), http.StatusUnauthorized})
	tr.ask(t, "main", forgeries(tr.host, tr.tester, "sum")[:3]...)
}

// programmedCondition: the condition that upstream proposes is True for the policy's generation, and then the rule is in force;
// it follows a change.
func programmedCondition(t *testing.T, tr *trial) {
	tr.gateway(t, "main", tr.host)
	rule := func(authorization string) {
		tr.Apply(t, tr.policy(t, "any", fmt.Sprintf(`
targetRefs: %s
action: Allow
rules: [{name: callers, source: %s%s}]
`, targets("main"), tr.way.source(tr.kube, "tester"), authorization)))
	}
	rule("")
	tr.programmed(t, "any", "main")
	tr.ask(t, "main",
		request{"any tool", tr.tester(tool(tr.host, "", "sum")), http.StatusOK},
		request{"what is no MCP", tr.tester(call{host: tr.host, method: http.MethodPut, path: "/files/1"}), http.StatusOK},
		request{"another account", tr.other(tool(tr.host, "", "sum")), http.StatusForbidden},
		request{"no credential", tool(tr.host, "", "sum"), http.StatusUnauthorized})

	first, err := tr.read(t.Context(), "any")
	require.NoError(t, err)
	rule(", authorization: {type: Inline, mcp: " + sumOnly + "}")
	tr.programmed(t, "any", "main")
	second, err := tr.read(t.Context(), "any")
	require.NoError(t, err)
	require.Greater(t, second.Generation, first.Generation)
	tr.ask(t, "main",
		request{"the tool", tr.tester(tool(tr.host, "", "sum")), http.StatusOK},
		request{"another tool now", tr.tester(tool(tr.host, "", "echo")), http.StatusForbidden})
}

// statusShape: one entry for each target, with the target in full, our name, and both conditions of this generation.
func statusShape(t *testing.T, tr *trial) {
	tr.gateway(t, "first", "a."+tr.host)
	tr.allow(t, "sum", "tester", sumOnly, "first")
	tr.programmed(t, "sum", "first")
	tr.gateway(t, "second", "b."+tr.host, "c."+tr.host)
	tr.allow(t, "sum", "tester", sumBase, "first", "second/listener-1", "nowhere")
	tr.programmed(t, "sum", "first")
	tr.expect(t, "sum", "second/listener-1", v1alpha1.PolicyConditionAccepted, metav1.ConditionTrue, v1alpha1.PolicyReasonAccepted)

	policy, err := tr.read(t.Context(), "sum")
	require.NoError(t, err)
	require.Greater(t, policy.Generation, int64(1))
	var refs []string
	for _, entry := range policy.Status.Ancestors {
		ref, section := entry.AncestorRef, ""
		require.NotNil(t, ref.Group)
		require.NotNil(t, ref.Kind)
		require.NotNil(t, ref.Namespace)
		require.Nil(t, ref.Port)
		if ref.SectionName != nil {
			section = "/" + string(*ref.SectionName)
		}
		refs = append(refs, fmt.Sprintf("%s %s %s/%s%s", *ref.Group, *ref.Kind, *ref.Namespace, ref.Name, section))
		require.EqualValues(t, controllers.ControllerName, entry.ControllerName)
		var kinds []string
		for _, condition := range entry.Conditions {
			kinds = append(kinds, condition.Type)
			require.Equal(t, policy.Generation, condition.ObservedGeneration, condition.Type)
			require.NotEmpty(t, condition.Message)
			require.False(t, condition.LastTransitionTime.IsZero())
		}
		require.ElementsMatch(t, []string{v1alpha1.PolicyConditionAccepted, v1alpha1.PolicyConditionProgrammed}, kinds)
	}
	require.ElementsMatch(t, []string{
		"gateway.networking.k8s.io Gateway " + tr.namespace + "/first",
		"gateway.networking.k8s.io Gateway " + tr.namespace + "/second/listener-1",
	}, refs, "a target that is not there has no entry")

	// A target that is given up loses its entry.
	tr.allow(t, "sum", "tester", sumBase, "first")
	eventually(t, "the entry of the second target goes", func(ctx context.Context) error {
		p, err := tr.read(ctx, "sum")
		if err != nil {
			return err
		}
		return want(len(p.Status.Ancestors) == 1 && p.Status.Ancestors[0].AncestorRef.Name == "first", "%+v", p.Status.Ancestors)
	})
}
