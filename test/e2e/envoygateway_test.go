package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/owned"
)

// What Envoy makes of a SecurityPolicy is in test/envoy; here is what the operator makes of Envoy Gateway.

func securityPolicy(namespace, name string, spec map[string]any) *unstructured.Unstructured {
	return stack.Object(egv1a1.GroupVersion.String(), egv1a1.KindSecurityPolicy, namespace, name, spec)
}

// onGateway is the target of a SecurityPolicy.
func onGateway(name string) []any { return onKind("Gateway", name) }

func onKind(kind, name string) []any {
	return []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": kind, "name": name}}
}

// secured returns a SecurityPolicy that has to be there.
func (k *kube) secured(ctx context.Context, name string) (*egv1a1.SecurityPolicy, *unstructured.Unstructured, error) {
	object := securityPolicy(k.namespace, name, nil)
	if err := k.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return nil, nil, err
	}
	out := &egv1a1.SecurityPolicy{}
	return out, object, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, out)
}

// list returns the objects of a kind in the namespace, or of all where it is "", by name.
func (k *kube) list(ctx context.Context, namespace, apiVersion, kind string) (map[string]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(apiVersion)
	list.SetKind(kind + "List")
	err := k.Client.List(ctx, list, client.InNamespace(namespace))
	out := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		out[list.Items[i].GetNamespace()+"/"+list.Items[i].GetName()] = &list.Items[i]
	}
	return out, err
}

func (k *kube) securityPolicies(ctx context.Context) (map[string]*unstructured.Unstructured, error) {
	return k.list(ctx, k.namespace, egv1a1.GroupVersion.String(), egv1a1.KindSecurityPolicy)
}

// allows waits until the SecurityPolicy of a Gateway has a text in it and lacks another, if one is given.
func (k *kube) allows(t testing.TB, name, with, without string) {
	t.Helper()
	eventually(t, fmt.Sprintf("SecurityPolicy %s/%s allows %q and not %q", k.namespace, name, with, without), func(ctx context.Context) error {
		sp, _, err := k.secured(ctx, name)
		if err != nil {
			return err
		}
		text, err := json.Marshal(sp.Spec.Authorization)
		if err != nil {
			return err
		}
		return want(strings.Contains(string(text), with) && (without == "" || !strings.Contains(string(text), without)), "it is %s", text)
	})
}

// enforcedBy annotates a Gateway.
func (k *kube) enforcedBy(t testing.TB, gateway, enforcer string) {
	t.Helper()
	value := "null"
	if enforcer != "" {
		value = `"` + enforcer + `"`
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, translator.AnnotationEnforcer, value)
	require.NoError(t, k.Client.Patch(t.Context(), stack.Gateway(k.namespace, gateway), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// TestEnvoyGateway runs what needs nothing restarted with the real Envoy Gateway and no Kuadrant.
func TestEnvoyGateway(t *testing.T) {
	c := stack.Start(t)
	c.StartEnvoyGateway(t)
	c.InstallOperator(t)
	c.Apply(t, stack.GatewayClass())
	o := startOperator(t, c)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *operator, *kube)
	}{
		{"from-a-policy-to-a-status", securedFromPolicyToStatus},
		{"edits-of-our-securitypolicy-are-undone", securedDriftIsUndone},
		{"split-by-listener-and-back-under-envoy-gateway", securedSplitAndCollapse},
		{"an-older-securitypolicy-wins", securedConflict},
		{"a-route-has-a-securitypolicy-of-its-own", securedRoute},
		{"a-clienttrafficpolicy-counts", securedClientTraffic},
		{"a-restart-writes-nothing-for-envoy-gateway", securedRestart},
		{"kuadrant-comes-and-does-not-answer", securedAndKuadrantIsSilent},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, o, inNamespace(t, c, test.name)) })
	}
}

func securedFromPolicyToStatus(t *testing.T, o *operator, k *kube) {
	k.gateway(t, "prod", "a.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	begin := time.Now()
	k.programmed(t, "tools", "prod")
	t.Logf("from the policy to Programmed: %s", time.Since(begin).Round(10*time.Millisecond))
	sp, object, err := k.secured(t.Context(), "prod-auth")
	require.NoError(t, err)
	require.Equal(t, owned.ManagedBy, object.GetLabels()[owned.LabelManagedBy])
	require.Equal(t, "prod", object.GetOwnerReferences()[0].Name)
	issuer, keys := k.Issuer(t)
	provider := sp.Spec.JWT.Providers[0]
	require.Equal(t, issuer, provider.Issuer)
	require.Equal(t, []string{audience}, provider.Audiences)
	require.JSONEq(t, keys, *provider.LocalJWKS.Inline)
	require.Equal(t, egv1a1.ActionDeny, sp.Spec.Authorization.DefaultAction)
	require.Contains(t, k.event(t, "tools", v1alpha1.PolicyReasonProgrammed), "SecurityPolicy prod-auth")
	require.Contains(t, table(t, k.Cluster, k.namespace), "tools prod Allow True True")
	require.InDelta(t, 1, o.value(t, "accesspolicy_in_force", `namespace="`+k.namespace+`"`), 0)
	require.Positive(t, o.value(t, "accesspolicy_writes_total", `object="SecurityPolicy"`))
	require.Positive(t, o.value(t, "accesspolicy_issuer_keys_read_timestamp_seconds"))

	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"echo"}, "prod")))
	k.allows(t, "prod-auth", `"echo"`, `"add"`)
	k.programmed(t, "tools", "prod")
	k.delete(t, k.policy(t, "tools", "{}"))
	k.gone(t, object)
}

func securedDriftIsUndone(t *testing.T, o *operator, k *kube) {
	k.gateway(t, "prod", "c.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	o.settled(t)
	_, object, err := k.secured(t.Context(), "prod-auth")
	require.NoError(t, err)
	good := object.Object["spec"]
	patched := func(kind types.PatchType, patch, manager string) func(*testing.T) error {
		return func(t *testing.T) error {
			return k.Client.Patch(t.Context(), securityPolicy(k.namespace, "prod-auth", nil), client.RawPatch(kind, []byte(patch)), client.FieldOwner(manager))
		}
	}
	merge := func(patch string) func(*testing.T) error { return patched(types.MergePatchType, patch, "somebody") }
	for _, edit := range []struct {
		name string
		make func(*testing.T) error
	}{
		{"everything-is-allowed", merge(`{"spec":{"authorization":{"defaultAction":"Allow"}}}`)},
		{"a-rule-is-added", patched(types.JSONPatchType, `[{"op":"add","path":"/spec/authorization/rules/-","value":{"action":"Allow","cel":"true"}}]`, "somebody")},
		{"the-keys-are-others", patched(types.JSONPatchType, `[{"op":"replace","path":"/spec/jwt/providers/0/localJWKS/inline","value":"{\"keys\":[]}"}]`, "somebody")},
		{"in-our-name-too", patched(types.MergePatchType, `{"spec":{"authorization":{"defaultAction":"Allow"},"cors":{"allowMethods":["GET"]}}}`, owned.ManagedBy)},
		{"another-part-is-added", merge(`{"spec":{"cors":{"allowMethods":["GET"]}}}`)},
		{"it-targets-something-else", merge(`{"spec":{"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"elsewhere"}]}}`)},
		{"another-applier", func(t *testing.T) error {
			object := securityPolicy(k.namespace, "prod-auth", map[string]any{"targetRefs": onGateway("prod"), "authorization": map[string]any{"defaultAction": "Allow"}})
			return k.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("another-controller"), client.ForceOwnership)
		}},
		{"the-label-is-lost", merge(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"}}}`)},
		{"who-owns-what-is-wiped", func(t *testing.T) error {
			_, live, err := k.secured(t.Context(), "prod-auth")
			require.NoError(t, err)
			require.NoError(t, unstructured.SetNestedField(live.Object, "Allow", "spec", "authorization", "defaultAction"))
			live.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
			return k.Client.Update(t.Context(), live, client.FieldOwner("somebody"))
		}},
		{"it-is-deleted", func(t *testing.T) error {
			return k.Client.Delete(t.Context(), securityPolicy(k.namespace, "prod-auth", nil))
		}},
	} {
		t.Run(edit.name, func(t *testing.T) {
			require.NoError(t, edit.make(t))
			eventually(t, "the edit is undone", func(ctx context.Context) error {
				_, live, err := k.secured(ctx, "prod-auth")
				if err != nil {
					return err
				}
				if live.GetLabels()[owned.LabelManagedBy] != owned.ManagedBy {
					return fmt.Errorf("labels are %v", live.GetLabels())
				}
				return sameJSON(good, live.Object["spec"])
			})
			o.settled(t)
			k.programmed(t, "tools", "prod")
		})
	}
}

func securedSplitAndCollapse(t *testing.T, o *operator, k *kube) {
	k.gateway(t, "prod", "f0.example.test", "f1.example.test")
	k.Apply(t, k.policy(t, "wide", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "wide", "prod")
	k.Apply(t, k.policy(t, "narrow", allowing("reader", []string{"echo"}, "prod/listener-1")))
	k.programmed(t, "narrow", "prod/listener-1")
	k.programmed(t, "wide", "prod")
	all, err := k.securityPolicies(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 3, "one for each listener, and the denial beneath")
	beneath, _, err := k.secured(t.Context(), "prod-auth")
	require.NoError(t, err)
	require.Empty(t, beneath.Spec.Authorization.Rules)
	o.settled(t)

	k.delete(t, k.policy(t, "narrow", "{}"))
	eventually(t, "one object is left", func(ctx context.Context) error {
		all, err := k.securityPolicies(ctx)
		if err != nil {
			return err
		}
		return want(len(all) == 1 && all[k.namespace+"/prod-auth"] != nil, "there are %d", len(all))
	})
	k.allows(t, "prod-auth", `"add"`, `"echo"`)
	k.programmed(t, "wide", "prod")
}

func securedConflict(t *testing.T, _ *operator, k *kube) {
	k.gateway(t, "prod", "d.example.test")
	theirs := securityPolicy(k.namespace, "prod-auth", map[string]any{"targetRefs": onGateway("prod"), "cors": map[string]any{"allowMethods": []any{"GET"}}})
	k.Apply(t, theirs)
	time.Sleep(time.Second) // creation times have whole seconds, and the older one wins
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonOverridden)
	require.Contains(t, condition.Message, "SecurityPolicy "+k.namespace+"/prod-auth is older")
	k.delete(t, theirs)
	k.programmed(t, "tools", "prod")
	eventually(t, "ours has the plain name", func(ctx context.Context) error {
		all, err := k.securityPolicies(ctx)
		if err != nil {
			return err
		}
		return want(len(all) == 1 && all[k.namespace+"/prod-auth"] != nil, "there are %d", len(all))
	})
	k.programmed(t, "tools", "prod")
}

func securedRoute(t *testing.T, _ *operator, k *kube) {
	k.gateway(t, "prod", "r.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	theirs := securityPolicy(k.namespace, "of-a-route", cors(onKind("HTTPRoute", "prod-0")))
	k.Apply(t, theirs.DeepCopy())
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonOverridden)
	require.Contains(t, condition.Message, "HTTPRoute "+k.namespace+"/prod-0: SecurityPolicy "+k.namespace+"/of-a-route ")
	// The cure that the message names is one: what is merged leaves ours whole, though Envoy Gateway reports it as merged.
	require.Contains(t, condition.Message, "set mergeType: StrategicMerge in it")
	k.Apply(t, mergedInto(theirs))
	k.programmed(t, "tools", "prod")
	k.delete(t, theirs)
	k.programmed(t, "tools", "prod")
}

// securedClientTraffic: SPIFFE IDs are believed from the moment on that somebody verifies certificates.
func securedClientTraffic(t *testing.T, _ *operator, k *kube) {
	k.gateway(t, "prod", "s.example.test")
	k.Apply(t, k.policy(t, "spiffe", `
targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: prod}]
action: Allow
rules:
- name: tools
  source: {type: SPIFFE, spiffe: "spiffe://example.test/agent"}
  authorization: {type: Inline, mcp: {methods: [{name: tools/call, params: [add]}]}}
`))
	k.expect(t, "spiffe", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonPartiallyProgrammed)
	traffic := stack.Object(egv1a1.GroupVersion.String(), "ClientTrafficPolicy", k.namespace, "mtls", map[string]any{"targetRefs": onGateway("prod"),
		"tls": map[string]any{"clientValidation": map[string]any{"mode": "VerifyIfGiven", "caCertificateRefs": []any{map[string]any{"group": "", "kind": "ConfigMap", "name": "ca"}}}}})
	k.Apply(t, traffic)
	k.allows(t, "prod-auth", "spiffe://example.test/agent", "")
	k.delete(t, traffic)
	k.expect(t, "spiffe", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonPartiallyProgrammed)
	eventually(t, "certificates that nobody verifies are not believed", func(ctx context.Context) error {
		sp, _, err := k.secured(ctx, "prod-auth")
		if err != nil {
			return err
		}
		return want(len(sp.Spec.Authorization.Rules) == 0, "rules are %+v", sp.Spec.Authorization.Rules)
	})
}

func securedRestart(t *testing.T, o *operator, k *kube) {
	k.gateway(t, "prod", "m.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	o.settled(t)
	state := func() map[string]string {
		out := map[string]string{}
		for kind, version := range map[string]string{"XAccessPolicy": v1alpha1.GroupVersion.String(), egv1a1.KindSecurityPolicy: egv1a1.GroupVersion.String()} {
			all, err := k.list(t.Context(), "", version, kind)
			require.NoError(t, err)
			for name, object := range all {
				out[kind+" "+name] = object.GetResourceVersion()
			}
		}
		return out
	}
	before := state()
	require.Greater(t, len(before), 6)
	o.Kill(t)
	o.Start(t)
	eventually(t, "the restarted operator has looked at the Gateways", func(context.Context) error {
		return want(o.value(t, "accesspolicy_policies", `namespace="`+k.namespace+`"`) == 1, "no metric of %s yet", k.namespace)
	})
	o.settled(t)
	require.Equal(t, before, state())
	require.Zero(t, o.writes(t))
}

// securedAndKuadrantIsSilent comes last, because it installs Kuadrant's CRDs. Nobody reports on AuthPolicies here, so nothing
// that enforces may be deleted for them.
func securedAndKuadrantIsSilent(t *testing.T, o *operator, k *kube) {
	k.gateway(t, "prod", "n.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	k.InstallCRDs(t, stack.CRDsKuadrant)
	eventually(t, "the operator has seen Kuadrant's CRD", func(context.Context) error {
		return want(strings.Contains(o.Tail(), "Kuadrant's AuthPolicy is installed"), "not yet")
	})
	// A Gateway that is new gets what auto prefers; one that has an enforcer keeps it.
	k.Apply(t, stack.Gateway(k.namespace, "new", "o.example.test"), k.policy(t, "on-new", allowing("reader", []string{"add"}, "new")))
	k.granted(t, "new-auth", "reader add", "")
	o.settled(t)
	k.programmed(t, "tools", "prod")
	k.gone(t, authPolicy(k.namespace, "prod-auth"))

	k.enforcedBy(t, "prod", translator.EnforcerKuadrant)
	k.granted(t, "prod-auth", "reader add", "")
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonPending)
	require.Contains(t, condition.Message, "AuthPolicy prod-auth")
	o.settled(t)
	// What is left keeps up with the policies, so that taking something away does not wait for the switch.
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"echo"}, "prod")))
	k.granted(t, "prod-auth", "reader echo", "reader add")
	k.allows(t, "prod-auth", `"echo"`, `"add"`)
	o.settled(t)

	k.enforcedBy(t, "prod", translator.EnforcerEnvoyGateway)
	k.gone(t, authPolicy(k.namespace, "prod-auth"))
	k.programmed(t, "tools", "prod")
	k.enforcedBy(t, "prod", translator.EnforcerBoth)
	k.granted(t, "prod-auth", "reader echo", "")
	condition = k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonPending)
	require.Contains(t, condition.Message, "AuthPolicy prod-auth")
	require.NotContains(t, condition.Message, "SecurityPolicy prod-auth")

	// What cannot be done is said, and what enforces goes on.
	k.enforcedBy(t, "prod", "none")
	k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonInvalidAnnotation)
	k.delete(t, k.policy(t, "tools", "{}"))
	k.gone(t, authPolicy(k.namespace, "prod-auth"))
	k.gone(t, securityPolicy(k.namespace, "prod-auth", nil))
}

// TestSwitchingEnforcers goes from Kuadrant to Envoy Gateway and back, with both at work. At every moment something is in
// force.
func TestSwitchingEnforcers(t *testing.T) {
	c := startChain(t)
	k := inNamespace(t, c.Cluster, "switching")
	k.gateway(t, "prod", "a.example.test")
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.programmed(t, "tools", "prod")
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	var gap error
	looks := 0
	watching.Go(func() {
		for ctx.Err() == nil && gap == nil {
			if err := k.someInForce(ctx, "prod-auth"); err != nil && ctx.Err() == nil {
				gap = fmt.Errorf("after %d looks: %w", looks, err)
			}
			looks++
		}
	})
	for _, step := range []struct {
		enforcer string
		has      []string
		gone     *unstructured.Unstructured
	}{
		{translator.EnforcerEnvoyGateway, []string{"SecurityPolicy prod-auth is accepted"}, authPolicy("switching", "prod-auth")},
		{translator.EnforcerAuto, []string{"SecurityPolicy prod-auth is accepted"}, authPolicy("switching", "prod-auth")},
		{translator.EnforcerBoth, []string{"AuthPolicy prod-auth is enforced", "SecurityPolicy prod-auth is accepted"}, nil},
		{translator.EnforcerKuadrant, []string{"AuthPolicy prod-auth is enforced"}, securityPolicy("switching", "prod-auth", nil)},
		{translator.EnforcerEnvoyGateway, []string{"SecurityPolicy prod-auth is accepted"}, authPolicy("switching", "prod-auth")},
		{translator.EnforcerKuadrant, []string{"AuthPolicy prod-auth is enforced"}, securityPolicy("switching", "prod-auth", nil)},
	} {
		begin := time.Now()
		k.enforcedBy(t, "prod", step.enforcer)
		if step.gone != nil {
			k.gone(t, step.gone)
		}
		eventually(t, "the status follows", func(ctx context.Context) error {
			condition, err := k.condition(ctx, "tools", "prod", v1alpha1.PolicyConditionProgrammed)
			if err != nil {
				return err
			}
			for _, text := range step.has {
				if !strings.Contains(condition.Message, text) {
					return fmt.Errorf("%s lacks %q", condition.Message, text)
				}
			}
			return want(condition.Status == metav1.ConditionTrue, "%s", condition.Message)
		})
		t.Logf("%s: after %s", step.enforcer, time.Since(begin).Round(10*time.Millisecond))
		c.operator.settled(t)
	}
	cancel()
	watching.Wait()
	require.NoError(t, gap)
	t.Logf("looked %d times", looks)
}

// someInForce returns an error where no object of ours is reported in force. A kind is looked at twice, because it may come
// while the other is looked at.
func (k *kube) someInForce(ctx context.Context, name string) error {
	var errs []error
	for _, look := range []func(context.Context, string) error{k.authInForce, k.securityInForce, k.authInForce, k.securityInForce} {
		err := look(ctx, name)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("nothing is in force: %w", errors.Join(errs...))
}

func (k *kube) authInForce(ctx context.Context, name string) error {
	object := authPolicy(k.namespace, name)
	if err := k.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	return stack.Condition(object, "Enforced")
}

func (k *kube) securityInForce(ctx context.Context, name string) error {
	sp, _, err := k.secured(ctx, name)
	if err != nil {
		return err
	}
	for _, a := range sp.Status.Ancestors {
		for _, c := range a.Conditions {
			if c.Type == "Accepted" && c.Status == metav1.ConditionTrue {
				return nil
			}
		}
	}
	return fmt.Errorf("not accepted: %+v", sp.Status)
}

// TestEnvoyGatewayComesAndGoes: nothing but CRDs is there, so nothing is reported in force.
func TestEnvoyGatewayComesAndGoes(t *testing.T) {
	c := startCluster(t)
	k := inNamespace(t, c, "coming")
	o := startOperator(t, c)
	k.Apply(t, stack.Gateway("coming", "prod", "a.example.test"), k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonNoEnforcer)
	require.Contains(t, condition.Message, "Envoy Gateway")
	k.enforcedBy(t, "prod", translator.EnforcerKuadrant)
	eventually(t, "the status says what is missing", func(ctx context.Context) error {
		condition, err := k.condition(ctx, "tools", "prod", v1alpha1.PolicyConditionProgrammed)
		if err != nil {
			return err
		}
		return want(strings.Contains(condition.Message, "Kuadrant's AuthPolicy is not installed"), "%s", condition.Message)
	})
	k.enforcedBy(t, "prod", "")
	for range 2 {
		c.InstallCRDs(t, stack.CRDsEnvoyGateway)
		k.allows(t, "prod-auth", `"add"`, "")
		condition = k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonPending)
		require.Contains(t, condition.Message, "Envoy Gateway runs", "the message says where to look")
		c.RemoveCRD(t, "securitypolicies.gateway.envoyproxy.io")
		k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonNoEnforcer)
	}
	o.settled(t)
}

// TestSigningKeysAreRotated: the API server gets another key and loses a former one. It has its keys from a file that it
// reads when it starts.
func TestSigningKeysAreRotated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "more.pub")
	first, second := publicKey(t), publicKey(t)
	require.NoError(t, os.WriteFile(file, first, 0o600))
	c := stack.Start(t, stack.APIServerFlags("--service-account-key-file="+file))
	c.InstallCRDs(t, stack.CRDsGatewayAPI, stack.CRDsEnvoyGateway)
	c.InstallOperator(t)
	c.Apply(t, stack.GatewayClass())
	k := inNamespace(t, c, "rotation")
	o := startOperator(t, c, "--leader-election-lease=60s", "--jwks-refresh=10s")
	k.Apply(t, stack.Gateway("rotation", "prod", "a.example.test"), k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	inline := func(keys int) {
		t.Helper()
		begin := time.Now()
		eventually(t, "the SecurityPolicy has the keys of the API server", func(ctx context.Context) error {
			sp, _, err := k.secured(ctx, "prod-auth")
			if err != nil {
				return err
			}
			var have, served struct {
				Keys []map[string]any `json:"keys"`
			}
			_, text := k.Issuer(t)
			if err := errors.Join(json.Unmarshal([]byte(text), &served), json.Unmarshal([]byte(*sp.Spec.JWT.Providers[0].LocalJWKS.Inline), &have)); err != nil {
				return err
			}
			ids := func(list []map[string]any) map[string]bool {
				out := map[string]bool{}
				for _, key := range list {
					out[key["kid"].(string)] = true
				}
				return out
			}
			require.Len(t, served.Keys, keys)
			return sameJSON(ids(served.Keys), ids(have.Keys))
		})
		t.Logf("%d keys after %s", keys, time.Since(begin).Round(100*time.Millisecond))
		o.settled(t)
	}
	inline(2)
	for _, step := range []struct {
		content []byte
		keys    int
	}{{append(append([]byte{}, first...), second...), 3}, {second, 2}} {
		require.NoError(t, os.WriteFile(file, step.content, 0o600))
		c.KillAPIServer(t)
		c.StartAPIServer(t)
		inline(step.keys)
	}
	k.allows(t, "prod-auth", `"add"`, "")
}

func publicKey(t testing.TB) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// TestAnOperatorWithFewerRights may not read the keys of ServiceAccount tokens, nor some of what can displace its objects, nor
// what Authorino has. It says so, grants nothing to tokens, and lets everything else take effect; as soon as it may, tokens count.
func TestAnOperatorWithFewerRights(t *testing.T) {
	c := startCluster(t, stack.CRDsEnvoyGateway, stack.CRDsKuadrant)
	k := inNamespace(t, c, "fewer-rights")
	discovery := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "system:service-account-issuer-discovery"}}
	require.NoError(t, c.Client.Delete(t.Context(), discovery))
	role := &rbacv1.ClusterRole{}
	require.NoError(t, c.Client.Get(t.Context(), types.NamespacedName{Name: stack.OperatorName}, role))
	rules := role.Rules
	role = role.DeepCopy()
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return len(rule.NonResourceURLs) > 0 || slices.Contains(rule.Resources, "authconfigs")
	})
	for i := range role.Rules {
		role.Rules[i].Resources = slices.DeleteFunc(role.Rules[i].Resources, func(resource string) bool { return resource == "grpcroutes" })
	}
	require.NoError(t, c.Client.Update(t.Context(), role))
	o := startOperator(t, c)

	k.Apply(t, stack.Gateway(k.namespace, "prod", "a.example.test"))
	k.enforcedBy(t, "prod", translator.EnforcerEnvoyGateway)
	k.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonPartiallyProgrammed)
	require.Contains(t, condition.Message, "the issuer of ServiceAccount tokens or its keys (JWKS) are not known")
	sp, _, err := k.secured(t.Context(), "prod-auth")
	require.NoError(t, err)
	require.Empty(t, sp.Spec.Authorization.Rules)
	require.NotEqual(t, egv1a1.ActionAllow, sp.Spec.Authorization.DefaultAction)

	require.Contains(t, k.event(t, "prod", "CoverageIncomplete"), `cannot list resource "grpcroutes"`)
	require.InDelta(t, 1, o.value(t, "accesspolicy_findings", "CoverageIncomplete"), 0)

	role.Rules = rules
	require.NoError(t, c.Client.Update(t.Context(), role))
	eventually(t, "tokens count", func(ctx context.Context) error {
		sp, _, err := k.secured(ctx, "prod-auth")
		return errors.Join(err, want(err == nil && len(sp.Spec.Authorization.Rules) == 1, "there are no rules yet"))
	})
	k.displacedTools(t, v1alpha1.PolicyReasonPending)
	eventually(t, "everything is read", func(context.Context) error {
		return want(o.value(t, "accesspolicy_findings", "CoverageIncomplete") == 0, "not yet")
	})
}
