package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/owned"
)

// chain is the whole of it: the operator, and what it hands its AuthPolicies to.
type chain struct {
	*stack.Cluster
	authorino *stack.Authorino
	operator  *operator
}

func startChain(t *testing.T) *chain {
	t.Helper()
	c := stack.Start(t)
	authorino := c.StartAuthorino(t)
	c.StartEnvoyGateway(t)
	c.StartKuadrant(t)
	c.InstallOperator(t)
	c.Apply(t, stack.GatewayClass())
	return &chain{Cluster: c, authorino: authorino, operator: startOperator(t, c)}
}

// TestChain runs everything that needs nothing restarted on one chain: XAccessPolicy, AuthPolicy, AuthConfig, Check.
func TestChain(t *testing.T) {
	c := startChain(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *chain, *kube)
	}{
		{"from-a-policy-to-a-verdict", fromPolicyToVerdict},
		{"an-edit-leaves-others-as-they-are", editLeavesOthers},
		{"a-policy-moves-to-another-gateway", policyMoves},
		{"edits-of-our-object-are-undone", driftIsUndone},
		{"an-older-authpolicy-is-not-displaced", foreignAuthPolicy},
		{"an-older-override-wins-and-is-named", foreignOverride},
		{"split-by-listener-and-back", splitAndCollapse},
		{"the-last-policy-goes", lastPolicyGoes},
		{"a-refused-policy-closes", refusedPolicyCloses},
		{"entries-of-others-are-kept", othersEntries},
		{"targets-that-come-to-nothing", unplacedTargets},
		{"an-unknown-annotation", unknownAnnotation},
		{"a-restart-writes-nothing", restartWritesNothing},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, c, inNamespace(t, c.Cluster, test.name))
		})
	}
}

func fromPolicyToVerdict(t *testing.T, c *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"), stack.ServiceAccount(k.namespace, "other"))
	reader, other := k.Token(t, k.namespace, "reader", audience), k.Token(t, k.namespace, "other", audience)
	k.gateway(t, "prod", "a.example.test")
	answers(t, k, c.authorino, "prod", tool("a.example.test", "", "add"), open)

	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	for _, want := range []struct {
		call call
		code int
	}{
		{tool("a.example.test", reader, "add"), http.StatusOK},
		{tool("a.example.test", reader, "delete_database"), http.StatusForbidden},
		{tool("a.example.test", other, "add"), http.StatusForbidden},
		{tool("a.example.test", "", "add"), http.StatusUnauthorized},
		{tool("a.example.test", k.Token(t, k.namespace, "reader", "somebody-else"), "add"), http.StatusUnauthorized},
		{mcp("a.example.test", reader, "initialize"), http.StatusForbidden},
	} {
		answers(t, k, c.authorino, "prod", want.call, want.code)
	}
	object := k.get(t, "prod-auth")
	require.Equal(t, owned.ManagedBy, object.GetLabels()[owned.LabelManagedBy])
	require.Len(t, object.GetOwnerReferences(), 1)
	require.Equal(t, "prod", object.GetOwnerReferences()[0].Name)
	require.Contains(t, k.event(t, "tools", v1alpha1.PolicyReasonProgrammed), "prod-auth")
	require.Contains(t, table(t, k.Cluster, k.namespace), "tools prod Allow True True")
}

// table is what `kubectl get xaccesspolicies` shows, without the age.
func table(t *testing.T, c *stack.Cluster, namespace string) string {
	t.Helper()
	list, err := c.Table(t.Context(), namespace)
	require.NoError(t, err)
	text := ""
	for _, row := range list.Rows {
		for _, cell := range row.Cells[:len(row.Cells)-1] {
			text += fmt.Sprintf("%v ", cell)
		}
		text += "\n"
	}
	return text
}

func editLeavesOthers(t *testing.T, c *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"))
	reader := k.Token(t, k.namespace, "reader", audience)
	k.gateway(t, "prod", "b.example.test")
	k.Apply(t, k.policy(t, "mine", allowing("reader", []string{"add"}, "prod")), k.policy(t, "theirs", allowing("reader", []string{"echo"}, "prod")))
	k.programmed(t, "mine", "prod")
	k.programmed(t, "theirs", "prod")
	c.operator.settled(t)
	before, err := k.read(t.Context(), "mine")
	require.NoError(t, err)
	written := c.operator.writes(t)

	k.Apply(t, k.policy(t, "theirs", allowing("reader", []string{"subtract"}, "prod")))
	k.programmed(t, "theirs", "prod")
	answers(t, k, c.authorino, "prod", tool("b.example.test", reader, "subtract"), http.StatusOK)
	answers(t, k, c.authorino, "prod", tool("b.example.test", reader, "echo"), http.StatusForbidden)
	answers(t, k, c.authorino, "prod", tool("b.example.test", reader, "add"), http.StatusOK)
	c.operator.settled(t)
	after, err := k.read(t.Context(), "mine")
	require.NoError(t, err)
	require.Equal(t, before.ResourceVersion, after.ResourceVersion, "the status of a policy that nobody edited was written")
	// The object, which is taken over from its creation first, and the status of the edited policy: Pending, with up to two
	// reasons one after the other, and in force.
	require.LessOrEqual(t, c.operator.writes(t)-written, 5.0)
}

func policyMoves(t *testing.T, c *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"))
	reader := k.Token(t, k.namespace, "reader", audience)
	k.gateway(t, "one", "one.example.test")
	k.gateway(t, "two", "two.example.test")
	k.Apply(t, k.policy(t, "stays", allowing("reader", []string{"echo"}, "one")), k.policy(t, "moves", allowing("reader", []string{"add"}, "one")))
	k.programmed(t, "moves", "one")
	answers(t, k, c.authorino, "one", tool("one.example.test", reader, "add"), http.StatusOK)

	k.Apply(t, k.policy(t, "moves", allowing("reader", []string{"add"}, "two")))
	k.programmed(t, "moves", "two")
	answers(t, k, c.authorino, "two", tool("two.example.test", reader, "add"), http.StatusOK)
	answers(t, k, c.authorino, "one", tool("one.example.test", reader, "add"), http.StatusForbidden)
	answers(t, k, c.authorino, "one", tool("one.example.test", reader, "echo"), http.StatusOK)
	eventually(t, "the former Gateway is not in the status any more", func(ctx context.Context) error {
		p, err := k.read(ctx, "moves")
		if err != nil {
			return err
		}
		return want(len(p.Status.Ancestors) == 1 && p.Status.Ancestors[0].AncestorRef.Name == "two", "%+v", p.Status.Ancestors)
	})
}

// driftIsUndone edits our object in every way that widens or breaks it; each edit must be undone.
func driftIsUndone(t *testing.T, c *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"))
	reader := k.Token(t, k.namespace, "reader", audience)
	k.gateway(t, "prod", "c.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	c.operator.settled(t)
	good := k.get(t, "prod-auth").Object["spec"]

	merge := func(patch string) func(*testing.T) error {
		return func(t *testing.T) error {
			return k.Client.Patch(t.Context(), authPolicy(k.namespace, "prod-auth"), client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("somebody"))
		}
	}
	applied := func(spec map[string]any) func(*testing.T) error {
		return func(t *testing.T) error {
			object := stack.Object("kuadrant.io/v1", "AuthPolicy", k.namespace, "prod-auth", spec)
			return k.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("another-controller"), client.ForceOwnership)
		}
	}
	anonymous := map[string]any{"anyone": map[string]any{"anonymous": map[string]any{}}}
	for _, edit := range []struct {
		name string
		make func(*testing.T) error
	}{
		{"a-rule-is-taken-out", merge(`{"spec":{"overrides":{"rules":{"authorization":{"fail-close":null}}}}}`)},
		{"a-rule-is-changed", merge(`{"spec":{"overrides":{"rules":{"authorization":{"fail-close":{"patternMatching":{"patterns":[{"predicate":"true"}]}}}}}}}`)},
		{"another-identity-is-added", merge(`{"spec":{"overrides":{"rules":{"authentication":{"anyone":{"anonymous":{}}}}}}}`)},
		{"a-condition-switches-it-off", merge(`{"spec":{"overrides":{"when":[{"predicate":"false"}]}}}`)},
		{"a-condition-in-our-name-switches-it-off", func(t *testing.T) error {
			return k.Client.Patch(t.Context(), authPolicy(k.namespace, "prod-auth"),
				client.RawPatch(types.MergePatchType, []byte(`{"spec":{"overrides":{"when":[{"predicate":"false"}]}}}`)), client.FieldOwner(owned.ManagedBy))
		}},
		{"overrides-become-defaults", func(t *testing.T) error {
			live := k.get(t, "prod-auth")
			spec := live.Object["spec"].(map[string]any)
			spec["defaults"] = spec["overrides"]
			delete(spec, "overrides")
			return k.Client.Update(t.Context(), live, client.FieldOwner("somebody"))
		}},
		{"rules-take-the-place-of-overrides", func(t *testing.T) error {
			live := k.get(t, "prod-auth")
			live.Object["spec"] = map[string]any{"targetRef": live.Object["spec"].(map[string]any)["targetRef"], "rules": map[string]any{"authentication": anonymous}}
			return k.Client.Update(t.Context(), live, client.FieldOwner("somebody"))
		}},
		{"it-targets-something-else", merge(`{"spec":{"targetRef":{"name":"elsewhere"}}}`)},
		{"another-applier-adds-an-identity", applied(map[string]any{"overrides": map[string]any{"rules": map[string]any{"authentication": anonymous}}})},
		{"the-label-is-lost", merge(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"}}}`)},
		{"who-owns-what-is-wiped", func(t *testing.T) error {
			live := k.get(t, "prod-auth")
			require.NoError(t, unstructured.SetNestedField(live.Object, map[string]any{"anonymous": map[string]any{}}, "spec", "overrides", "rules", "authentication", "anyone"))
			live.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
			return k.Client.Update(t.Context(), live, client.FieldOwner("somebody"))
		}},
		{"it-is-deleted", func(t *testing.T) error { return k.Client.Delete(t.Context(), authPolicy(k.namespace, "prod-auth")) }},
	} {
		t.Run(edit.name, func(t *testing.T) {
			require.NoError(t, edit.make(t))
			eventually(t, "the edit is undone", func(ctx context.Context) error {
				object := authPolicy(k.namespace, "prod-auth")
				if err := k.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
					return err
				}
				if object.GetLabels()[owned.LabelManagedBy] != owned.ManagedBy {
					return fmt.Errorf("labels are %v", object.GetLabels())
				}
				return sameJSON(good, object.Object["spec"])
			})
			c.operator.settled(t)
			require.NoError(t, sameJSON(good, k.get(t, "prod-auth").Object["spec"]))
			k.programmed(t, "tools", "prod")
			answers(t, k, c.authorino, "prod", tool("c.example.test", reader, "add"), http.StatusOK)
			answers(t, k, c.authorino, "prod", tool("c.example.test", reader, "delete_database"), http.StatusForbidden)
		})
	}
}

func foreignAuthPolicy(t *testing.T, c *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"))
	reader := k.Token(t, k.namespace, "reader", audience)
	k.gateway(t, "prod", "d.example.test")
	theirs := stack.Object("kuadrant.io/v1", "AuthPolicy", k.namespace, "prod-auth", map[string]any{
		"targetRef": map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "prod"},
		"rules":     map[string]any{"authentication": map[string]any{"anyone": map[string]any{"anonymous": map[string]any{}}}},
	})
	k.Apply(t, theirs)
	k.WaitFor(t, limit, theirs, "Enforced")
	version := theirs.GetResourceVersion()

	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonWouldDisplace)
	require.Contains(t, condition.Message, "prod-auth")
	// Enforcement is not skipped: nothing is granted, under a name of our own, and theirs is as it was.
	answers(t, k, c.authorino, "prod", tool("d.example.test", reader, "add"), http.StatusForbidden)
	require.Equal(t, theirs.GetUID(), k.get(t, "prod-auth").GetUID())
	require.NoError(t, sameJSON(theirs.Object["spec"], k.get(t, "prod-auth").Object["spec"]), "their object was touched; it was at version %s", version)

	gateway := stack.Gateway(k.namespace, "prod", "d.example.test")
	gateway.SetAnnotations(map[string]string{kuadrant.AnnotationReplace: "true"})
	k.Apply(t, gateway)
	k.programmed(t, "tools", "prod")
	answers(t, k, c.authorino, "prod", tool("d.example.test", reader, "add"), http.StatusOK)

	// The migration ends with their object deleted; ours then gets the name that everybody expects.
	k.delete(t, theirs)
	eventually(t, "ours has the plain name", func(ctx context.Context) error {
		all, err := k.authPolicies(ctx)
		if err != nil {
			return err
		}
		return want(len(all) == 1 && all["prod-auth"] != nil && all["prod-auth"].GetUID() != theirs.GetUID(), "there are %d", len(all))
	})
	k.programmed(t, "tools", "prod")
	answers(t, k, c.authorino, "prod", tool("d.example.test", reader, "add"), http.StatusOK)
}

func foreignOverride(t *testing.T, _ *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"))
	k.gateway(t, "prod", "e.example.test")
	theirs := stack.Object("kuadrant.io/v1", "AuthPolicy", k.namespace, "company-wide", map[string]any{
		"targetRef": map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "prod"},
		"overrides": map[string]any{"rules": map[string]any{"authentication": map[string]any{"anyone": map[string]any{"anonymous": map[string]any{}}}}},
	})
	k.Apply(t, theirs)
	k.WaitFor(t, limit, theirs, "Enforced")
	time.Sleep(time.Second) // creation times have whole seconds, and of two overrides the older one wins
	gateway := stack.Gateway(k.namespace, "prod", "e.example.test")
	gateway.SetAnnotations(map[string]string{kuadrant.AnnotationReplace: "true"})
	k.Apply(t, gateway, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonOverridden)
	require.Contains(t, condition.Message, "company-wide")
	require.Contains(t, k.event(t, "tools", v1alpha1.PolicyReasonOverridden), "company-wide")
	k.delete(t, theirs)
	k.programmed(t, "tools", "prod")
}

func splitAndCollapse(t *testing.T, c *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"))
	reader := k.Token(t, k.namespace, "reader", audience)
	k.gateway(t, "prod", "f0.example.test", "f1.example.test")
	k.Apply(t, k.policy(t, "wide", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "wide", "prod")

	k.Apply(t, k.policy(t, "narrow", allowing("reader", []string{"echo"}, "prod/listener-1")))
	k.programmed(t, "narrow", "prod/listener-1")
	k.programmed(t, "wide", "prod")
	answers(t, k, c.authorino, "prod", tool("f1.example.test", reader, "echo"), http.StatusOK)
	answers(t, k, c.authorino, "prod", tool("f0.example.test", reader, "echo"), http.StatusForbidden)
	answers(t, k, c.authorino, "prod", tool("f0.example.test", reader, "add"), http.StatusOK)
	all, err := k.authPolicies(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 3, "one for each listener, and the denial beneath")

	k.delete(t, k.policy(t, "narrow", "{}"))
	eventually(t, "one object is left", func(ctx context.Context) error {
		all, err := k.authPolicies(ctx)
		if err != nil {
			return err
		}
		return want(len(all) == 1 && all["prod-auth"] != nil, "there are %d", len(all))
	})
	k.programmed(t, "wide", "prod")
	answers(t, k, c.authorino, "prod", tool("f1.example.test", reader, "echo"), http.StatusForbidden)
	answers(t, k, c.authorino, "prod", tool("f1.example.test", reader, "add"), http.StatusOK)
}

func lastPolicyGoes(t *testing.T, c *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"))
	reader := k.Token(t, k.namespace, "reader", audience)
	gateway := k.gateway(t, "prod", "g.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	k.delete(t, k.policy(t, "tools", "{}"))
	k.gone(t, authPolicy(k.namespace, "prod-auth"))
	answers(t, k, c.authorino, "prod", tool("g.example.test", "", "delete_database"), open)

	closed := stack.Gateway(k.namespace, "prod", "g.example.test")
	closed.SetAnnotations(map[string]string{translator.AnnotationDefaultDeny: "yes"})
	k.Apply(t, closed)
	answers(t, k, c.authorino, "prod", tool("g.example.test", reader, "add"), http.StatusForbidden)
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	answers(t, k, c.authorino, "prod", tool("g.example.test", reader, "add"), http.StatusOK)
	k.delete(t, k.policy(t, "tools", "{}"))
	answers(t, k, c.authorino, "prod", tool("g.example.test", reader, "add"), http.StatusForbidden)
	require.NotNil(t, k.get(t, "prod-auth"))

	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	k.delete(t, gateway)
	k.gone(t, authPolicy(k.namespace, "prod-auth"))
	eventually(t, "the status does not speak of the Gateway any more", func(ctx context.Context) error {
		p, err := k.read(ctx, "tools")
		if err != nil {
			return err
		}
		return want(len(p.Status.Ancestors) == 0, "%+v", p.Status.Ancestors)
	})
	require.Contains(t, k.event(t, "tools", v1alpha1.PolicyReasonTargetNotFound), "does not exist")
}

func refusedPolicyCloses(t *testing.T, c *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"))
	reader := k.Token(t, k.namespace, "reader", audience)
	k.gateway(t, "prod", "h.example.test")
	k.Apply(t, k.policy(t, "broken", `
targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: prod}]
action: Allow
rules:
- name: cel
  authorization: {type: CEL, cel: {expression: "request.mcp.tool_name == "}}
`))
	condition := k.expect(t, "broken", "prod", v1alpha1.PolicyConditionAccepted, metav1.ConditionFalse, v1alpha1.PolicyReasonInvalidCEL)
	require.Contains(t, condition.Message, "spec.rules[0]")
	answers(t, k, c.authorino, "prod", tool("h.example.test", reader, "add"), http.StatusForbidden)
	require.Contains(t, k.event(t, "broken", v1alpha1.PolicyReasonInvalidCEL), "spec.rules[0]")
	require.InDelta(t, 1, c.operator.value(t, "accesspolicy_refused_policies", `namespace="`+k.namespace+`"`, `reason="InvalidCEL"`), 0)

	k.Apply(t, k.policy(t, "good", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "good", "prod")
	answers(t, k, c.authorino, "prod", tool("h.example.test", reader, "add"), http.StatusOK)
	k.expect(t, "broken", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonInvalid)
}

// othersEntries: a status with an entry of another controller, with a field that our types do not have a place for.
func othersEntries(t *testing.T, c *chain, k *kube) {
	k.gateway(t, "prod", "i.example.test")
	policy := k.policy(t, "shared", allowing("reader", []string{"add"}, "prod"))
	k.Apply(t, policy)
	k.programmed(t, "shared", "prod")
	c.operator.settled(t)
	entry := func(i int) map[string]any {
		return map[string]any{
			"ancestorRef":    map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "prod"},
			"controllerName": fmt.Sprintf("example.com/other-%d", i),
			"conditions": []any{map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "by them",
				"lastTransitionTime": "2026-01-01T00:00:00Z"}},
		}
	}
	writeStatus := func(ancestors ...any) {
		t.Helper()
		eventually(t, "another controller writes the status", func(ctx context.Context) error {
			live := policy.DeepCopy()
			if err := k.Client.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
				return err
			}
			live.Object["status"] = map[string]any{"ancestors": ancestors}
			return k.Client.Status().Update(ctx, live, client.FieldOwner("other"))
		})
	}
	// They drop our entry; it comes back, and theirs is as they wrote it.
	writeStatus(entry(0))
	k.programmed(t, "shared", "prod")
	p, err := k.read(t.Context(), "shared")
	require.NoError(t, err)
	require.Len(t, p.Status.Ancestors, 2)
	require.Equal(t, "by them", p.Status.Ancestors[0].Conditions[0].Message)

	var full []any
	for i := range 16 {
		full = append(full, entry(i))
	}
	writeStatus(full...)
	require.Contains(t, k.event(t, "shared", "StatusFull"), "16 entries")
	p, err = k.read(t.Context(), "shared")
	require.NoError(t, err)
	require.Len(t, p.Status.Ancestors, 16)
}

func unplacedTargets(t *testing.T, c *chain, k *kube) {
	k.Apply(t, k.policy(t, "nowhere", allowing("reader", []string{"add"}, "no-such-gateway")),
		k.policy(t, "elsewhere", `
targetRefs: [{group: agentic.networking.x-k8s.io, kind: XBackend, name: tools}]
action: Allow
rules: []
`))
	require.Contains(t, k.event(t, "nowhere", v1alpha1.PolicyReasonTargetNotFound), "no-such-gateway")
	require.Contains(t, k.event(t, "elsewhere", "TargetIgnored"), "XBackend")
	require.Positive(t, c.operator.value(t, "accesspolicy_unplaced_targets", `reason="TargetNotFound"`))
	for _, name := range []string{"nowhere", "elsewhere"} {
		p, err := k.read(t.Context(), name)
		require.NoError(t, err)
		require.Empty(t, p.Status.Ancestors, name)
	}

	class := stack.Object("gateway.networking.k8s.io/v1", "GatewayClass", "", "somebody-elses", map[string]any{"controllerName": "example.com/other"})
	unmanaged := stack.Gateway(k.namespace, "unmanaged", "x.example.test")
	require.NoError(t, unstructured.SetNestedField(unmanaged.Object, "somebody-elses", "spec", "gatewayClassName"))
	k.Apply(t, class, unmanaged, k.policy(t, "on-unmanaged", allowing("reader", []string{"add"}, "unmanaged")))
	// A policy of the same namespace that comes later and is reported on shows that this one has had its turn.
	k.gateway(t, "prod", "j.example.test")
	k.Apply(t, k.policy(t, "later", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "later", "prod")
	c.operator.settled(t)
	p, err := k.read(t.Context(), "on-unmanaged")
	require.NoError(t, err)
	require.Empty(t, p.Status.Ancestors)

	// The Gateway that was missing comes.
	k.gateway(t, "no-such-gateway", "k.example.test")
	k.programmed(t, "nowhere", "no-such-gateway")
}

func unknownAnnotation(t *testing.T, c *chain, k *kube) {
	k.Apply(t, stack.ServiceAccount(k.namespace, "reader"))
	reader := k.Token(t, k.namespace, "reader", audience)
	k.gateway(t, "prod", "l.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	annotated := stack.Gateway(k.namespace, "prod", "l.example.test")
	annotated.SetAnnotations(map[string]string{translator.AnnotationEnforcer: "none"})
	k.Apply(t, annotated)
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonInvalidAnnotation)
	require.Contains(t, condition.Message, translator.AnnotationEnforcer)
	answers(t, k, c.authorino, "prod", tool("l.example.test", reader, "add"), http.StatusOK)
	answers(t, k, c.authorino, "prod", tool("l.example.test", reader, "echo"), http.StatusForbidden)
	// Edits still count.
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"echo"}, "prod")))
	answers(t, k, c.authorino, "prod", tool("l.example.test", reader, "add"), http.StatusForbidden)
	k.Apply(t, stack.Gateway(k.namespace, "prod", "l.example.test"))
	k.programmed(t, "tools", "prod")
}

// restartWritesNothing comes last: everything that the tests before have left behind has to stay as it is.
func restartWritesNothing(t *testing.T, c *chain, k *kube) {
	k.gateway(t, "prod", "m.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	c.operator.settled(t)
	before := versions(t, c.Cluster)
	require.Greater(t, len(before), 10)
	c.operator.Kill(t)
	c.operator.Start(t)
	eventually(t, "the restarted operator has looked at the Gateways", func(context.Context) error {
		return want(c.operator.value(t, "accesspolicy_policies", `namespace="`+k.namespace+`"`) == 1, "no metric of %s yet", k.namespace)
	})
	c.operator.settled(t)
	require.Equal(t, before, versions(t, c.Cluster))
	require.Zero(t, c.operator.writes(t))
}

// versions returns the resource versions of everything that the operator writes.
func versions(t testing.TB, c *stack.Cluster) map[string]string {
	t.Helper()
	out, err := c.Versions(t.Context(), v1alpha1.GroupVersion.WithKind("XAccessPolicyList"), schema.GroupVersionKind{Group: "kuadrant.io", Version: "v1", Kind: "AuthPolicyList"})
	require.NoError(t, err)
	return out
}
