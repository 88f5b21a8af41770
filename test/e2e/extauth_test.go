package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator/envoygateway"
)

// askedService is where Authorino is, askedAddress what its Service leads to: the address that hack/loopback adds.
var askedService = envoygateway.Service{Namespace: "authorino", Name: "authorino", Port: 50051}

const askedAddress = "192.0.2.1"

func authConfig(namespace, name string) *unstructured.Unstructured {
	return stack.Object("authorino.kuadrant.io/v1beta3", envoygateway.KindAuthConfig, namespace, name, nil)
}

// behindRouter is an EnvoyProxy that has Authorino asked behind the MCP router, or one that says nothing of it.
func behindRouter(namespace string, is bool) *unstructured.Unstructured {
	spec := map[string]any{}
	if is {
		spec["filterOrder"] = []any{map[string]any{"name": envoygateway.FilterExtAuthz, "after": envoygateway.FilterExtProc}}
	}
	return stack.Object(egv1a1.GroupVersion.String(), "EnvoyProxy", namespace, "behind-the-router", spec)
}

// formed annotates a Gateway with a form.
func (k *kube) formed(t testing.TB, gateway, form string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, envoygateway.AnnotationForm, form)
	require.NoError(t, k.Client.Patch(t.Context(), stack.Gateway(k.namespace, gateway), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// asks waits until the SecurityPolicy of a Gateway has Authorino asked, or has not.
func (k *kube) asks(t testing.TB, name string, asks bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("SecurityPolicy %s/%s has Authorino asked: %t", k.namespace, name, asks), func(ctx context.Context) error {
		sp, _, err := k.secured(ctx, name)
		if err != nil {
			return err
		}
		return want((sp.Spec.ExtAuth != nil) == asks, "it is %v", sp.Spec)
	})
}

// TestAskingAuthorino runs with the real Envoy Gateway and the real Authorino. What Envoy makes of it is in test/envoy.
func TestAskingAuthorino(t *testing.T) {
	c := stack.Start(t)
	c.StartEnvoyGateway(t)
	c.InstallOperator(t)
	o := startOperator(t, c, "--authorino-service="+askedService.String())
	k := inNamespace(t, c, "asking")
	proxy := map[string]any{"group": egv1a1.GroupVersion.Group, "kind": "EnvoyProxy", "name": "behind-the-router"}
	gateway := stack.Gateway(k.namespace, "prod", "a.example.test")
	require.NoError(t, unstructured.SetNestedMap(gateway.Object, proxy, "spec", "infrastructure", "parametersRef"))
	gateway.SetAnnotations(map[string]string{envoygateway.AnnotationForm: envoygateway.FormExtAuth})
	c.Apply(t, stack.GatewayClass(), behindRouter(k.namespace, true), gateway)
	c.Apply(t, k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))

	// Authorino is not installed.
	k.programmed(t, "tools", "prod")
	k.asks(t, "prod-auth", false)
	eventually(t, "an event says why", func(ctx context.Context) error {
		events, err := k.events(ctx, "prod")
		return want(err == nil && strings.Contains(fmt.Sprint(events), "AuthConfig is not installed"), "%v %v", events, err)
	})

	// It comes, and nothing lets the SecurityPolicy refer to it.
	authorino := c.StartAuthorino(t)
	target, err := strconv.ParseInt(authorino.Port, 10, 64)
	require.NoError(t, err)
	c.Apply(t, stack.ServiceAt(askedService.Namespace, askedService.Name, int64(askedService.Port), askedAddress, target)...)
	k.asks(t, "prod-auth", true)
	k.says(t, "tools", v1alpha1.PolicyReasonPending, "ReferenceGrant", "Every request is denied")
	c.Apply(t, stack.GrantServices(askedService.Namespace, k.namespace))
	k.programmed(t, "tools", "prod")
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionTrue, v1alpha1.PolicyReasonProgrammed)
	require.Contains(t, condition.Message, "AuthConfig prod-auth is ready")
	require.Contains(t, condition.Message, "SecurityPolicy prod-auth is accepted")
	k.configured(t, "prod-auth", "reader add")

	// An edit of the policy reaches the AuthConfig, one of the AuthConfig is undone.
	c.Apply(t, k.policy(t, "tools", allowing("reader", []string{"echo"}, "prod")))
	k.configured(t, "prod-auth", "reader echo")
	require.NoError(t, c.Client.Patch(t.Context(), authConfig(k.namespace, "prod-auth"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hosts":["elsewhere"]}}`))))
	k.configured(t, "prod-auth", "reader echo")
	require.NoError(t, c.Client.Delete(t.Context(), authConfig(k.namespace, "prod-auth")))
	k.configured(t, "prod-auth", "reader echo")
	k.programmed(t, "tools", "prod")
	o.settled(t)

	// The order of filters is not certain any more.
	c.Apply(t, behindRouter(k.namespace, false))
	k.asks(t, "prod-auth", false)
	condition = k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonFilterOrder)
	require.Contains(t, condition.Message, "must have one entry for "+envoygateway.FilterExtAuthz)
	k.gone(t, authConfig(k.namespace, "prod-auth"))
	c.Apply(t, behindRouter(k.namespace, true))
	k.asks(t, "prod-auth", true)
	k.programmed(t, "tools", "prod")

	// Envoy has time to hear that it is not to ask any more before the answer goes.
	k.formed(t, "prod", envoygateway.FormNative)
	k.asks(t, "prod-auth", false)
	begin := time.Now()
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKeyFromObject(authConfig(k.namespace, "prod-auth")), authConfig(k.namespace, "prod-auth")))
	k.gone(t, authConfig(k.namespace, "prod-auth"))
	require.Greater(t, time.Since(begin), 3*time.Second)
	k.programmed(t, "tools", "prod")

	k.formed(t, "prod", envoygateway.FormExtAuth)
	k.asks(t, "prod-auth", true)
	k.programmed(t, "tools", "prod")
	k.delete(t, k.policy(t, "tools", "{}"))
	k.gone(t, securityPolicy(k.namespace, "prod-auth", nil))
	k.gone(t, authConfig(k.namespace, "prod-auth"))
	o.settled(t)
}

// says waits until the Programmed condition of a policy has a reason and texts.
func (k *kube) says(t testing.TB, policy, reason string, texts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("policy %s says %v", policy, texts), func(ctx context.Context) error {
		condition, err := k.condition(ctx, policy, "prod", v1alpha1.PolicyConditionProgrammed)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if condition.Reason != reason || !strings.Contains(condition.Message, text) {
				return fmt.Errorf("it says %s: %s", condition.Reason, condition.Message)
			}
		}
		return nil
	})
}

// configured waits until an AuthConfig grants something, under the host that the SecurityPolicy has asked about.
func (k *kube) configured(t testing.TB, name, grant string) {
	t.Helper()
	eventually(t, fmt.Sprintf("AuthConfig %s/%s grants %q", k.namespace, name, grant), func(ctx context.Context) error {
		config := authConfig(k.namespace, name)
		if err := k.Client.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		sp, _, err := k.secured(ctx, name)
		if err != nil {
			return err
		}
		text, err := json.Marshal(config.Object["spec"])
		if err != nil {
			return err
		}
		hosts, _, _ := unstructured.NestedStringSlice(config.Object, "spec", "hosts")
		return want(strings.Contains(string(text), grant) && len(hosts) == 1 && hosts[0] == *sp.Spec.ExtAuth.ContextExtensions[0].Value, "it is %s", text)
	})
}
