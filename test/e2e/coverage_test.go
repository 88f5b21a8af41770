package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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
	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/owned"
)

// optionalCRDs are those of kinds that the operator reads only to tell where its objects have effect.
var optionalCRDs = []string{"listenersets.gateway.networking.k8s.io", "referencegrants.gateway.networking.k8s.io", "grpcroutes.gateway.networking.k8s.io",
	"tcproutes.gateway.networking.k8s.io", "tlsroutes.gateway.networking.k8s.io", "udproutes.gateway.networking.k8s.io",
	"envoyextensionpolicies.gateway.envoyproxy.io", "envoypatchpolicies.gateway.envoyproxy.io", "envoyproxies.gateway.envoyproxy.io"}

// TestDisplacedPolicies has no Envoy Gateway: the test says in its place that it accepts our object, which it does in all of
// these situations but that of an older object, so that what the operator knows it has from specs.
func TestDisplacedPolicies(t *testing.T) {
	c := startCluster(t, stack.CRDsEnvoyGateway)
	for _, name := range optionalCRDs {
		c.RemoveCRD(t, name)
	}
	o := startOperator(t, c, "--envoy-gateway-controller="+egv1a1.Controller, "--envoy-gateway-controller="+otherEnvoyGateway)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *operator, *kube)
	}{
		{"a-route-without-optional-crds", displacedOnRoute},
		{"an-older-policy", displacedByOlder},
		{"coverage-asks-the-cluster", coverageOfTheCluster},
		{"envoy-gateway-has-another-name", underAnotherName},
		{"optional-crds-come", displacedByWhatCame},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, o, inNamespace(t, c, test.name)) })
	}
}

// governed makes a Gateway with a route for every host, a policy, and what Envoy Gateway would say about our object.
func (k *kube) governed(t *testing.T, hosts ...string) {
	t.Helper()
	k.Apply(t, stack.Gateway(k.namespace, "prod", hosts...), k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	for i, host := range hosts {
		k.Apply(t, stack.HTTPRoute(k.namespace, fmt.Sprintf("prod-%d", i), "prod", host, "/", "tools"))
	}
	k.accepted(t, "prod-auth", egv1a1.Controller)
}

// accepted says in the place of an Envoy Gateway that it accepts an object.
func (k *kube) accepted(t *testing.T, name, controller string) {
	t.Helper()
	eventually(t, name+" is accepted", func(ctx context.Context) error {
		_, object, err := k.secured(ctx, name)
		if err != nil {
			return err
		}
		status := fmt.Sprintf(`{"status":{"ancestors":[{"ancestorRef":{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"prod","namespace":%q},"controllerName":%q,
			"conditions":[{"type":"Accepted","status":"True","reason":"Accepted","message":"Policy has been accepted.","observedGeneration":%d,"lastTransitionTime":%q}]}]}}`,
			k.namespace, controller, object.GetGeneration(), time.Now().UTC().Format(time.RFC3339))
		return k.Client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(status)))
	})
}

func (k *kube) displacedTools(t *testing.T, reason string) *metav1.Condition {
	t.Helper()
	return k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, reason)
}

// told counts events about a policy, also those that the API server has only one object for.
func (k *kube) told(t *testing.T, name, reason string) int64 {
	t.Helper()
	all, err := k.list(t.Context(), k.namespace, "events.k8s.io/v1", "Event")
	require.NoError(t, err)
	var count int64
	for _, e := range all {
		if about, _, _ := unstructured.NestedString(e.Object, "regarding", "name"); about != name || e.Object["reason"] != reason {
			continue
		}
		require.Equal(t, "Warning", e.Object["type"])
		repeated, _, _ := unstructured.NestedInt64(e.Object, "series", "count")
		count += max(1, repeated)
	}
	return count
}

// mergedInto is the same policy merged into that of the Gateway.
func mergedInto(theirs *unstructured.Unstructured) *unstructured.Unstructured {
	out := theirs.DeepCopy()
	out.Object["spec"].(map[string]any)["mergeType"] = "StrategicMerge"
	return out
}

func cors(target []any) map[string]any {
	return map[string]any{"targetRefs": target, "cors": map[string]any{"allowMethods": []any{"GET"}}}
}

func displacedOnRoute(t *testing.T, o *operator, k *kube) {
	k.governed(t, "a.example.test", "b.example.test")
	k.programmed(t, "tools", "prod")
	theirs := securityPolicy(k.namespace, "of-a-route", cors(onKind("HTTPRoute", "prod-0")))
	k.Apply(t, theirs.DeepCopy()) // an object that was applied has what the API server adds
	condition := k.displacedTools(t, v1alpha1.PolicyReasonPartiallyOverridden)
	require.Contains(t, condition.Message, "HTTPRoute "+k.namespace+"/prod-0: SecurityPolicy "+k.namespace+"/of-a-route ")
	require.Contains(t, condition.Message, "set mergeType: StrategicMerge in it")
	require.NotContains(t, condition.Message, "prod-1")
	require.Contains(t, k.event(t, "tools", v1alpha1.PolicyReasonPartiallyOverridden), "of-a-route")
	labels := []string{`namespace="` + k.namespace + `"`}
	require.InDelta(t, 1, o.value(t, "accesspolicy_uncovered_lines", append(labels, coverage.RoutePolicy)...), 0)
	require.Zero(t, o.value(t, "accesspolicy_in_force", labels...))
	o.settled(t)
	// Turns in which nothing has changed say nothing.
	k.Apply(t, stack.HTTPRoute(k.namespace, "prod-1", "prod", "b.example.test", "/other", "tools"))
	o.settled(t)
	require.Equal(t, int64(1), k.told(t, "tools", v1alpha1.PolicyReasonPartiallyOverridden))

	second := securityPolicy(k.namespace, "of-another-route", cors(onKind("HTTPRoute", "prod-1")))
	k.Apply(t, second)
	condition = k.displacedTools(t, v1alpha1.PolicyReasonOverridden)
	require.Contains(t, condition.Message, "of-another-route")
	k.delete(t, second)
	k.displacedTools(t, v1alpha1.PolicyReasonPartiallyOverridden)

	k.Apply(t, mergedInto(theirs))
	k.programmed(t, "tools", "prod")
	rules := mergedInto(theirs)
	rules.Object["spec"].(map[string]any)["authorization"] = map[string]any{"rules": []any{map[string]any{"action": "Allow",
		"principal": map[string]any{"clientCIDRs": []any{"0.0.0.0/0"}}}}}
	k.Apply(t, rules)
	require.Contains(t, k.displacedTools(t, v1alpha1.PolicyReasonPartiallyOverridden).Message, "authorization.rules replace ours")
	k.delete(t, theirs.DeepCopy())
	k.programmed(t, "tools", "prod")
	eventually(t, "the metric is back", func(context.Context) error {
		return want(o.value(t, "accesspolicy_uncovered_lines", labels...) == 0 && o.value(t, "accesspolicy_in_force", labels...) == 1, "it is not")
	})
	k.Apply(t, theirs)
	k.displacedTools(t, v1alpha1.PolicyReasonPartiallyOverridden)
	k.delete(t, stack.Gateway(k.namespace, "prod"))
	eventually(t, "the metric goes with the Gateway", func(context.Context) error {
		return want(o.value(t, "accesspolicy_uncovered_lines", labels...) == 0, "it is there")
	})
}

func displacedByOlder(t *testing.T, o *operator, k *kube) {
	theirs := securityPolicy(k.namespace, "theirs", cors(onGateway("prod")))
	k.Apply(t, theirs)
	time.Sleep(time.Second) // creation times have whole seconds, and the older one wins
	k.governed(t, "c.example.test")
	condition := k.displacedTools(t, v1alpha1.PolicyReasonOverridden)
	require.Contains(t, condition.Message, "SecurityPolicy "+k.namespace+"/theirs is older")
	o.settled(t)
	require.Equal(t, int64(1), k.told(t, "tools", v1alpha1.PolicyReasonOverridden))
	k.delete(t, theirs)
	k.programmed(t, "tools", "prod")
}

// ask runs `kubectl accesspolicy coverage` and returns its exit code and what it wrote.
func ask(t *testing.T, kubeconfig string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary := os.Getenv(cliVariable)
	require.NotEmpty(t, binary, "%s has to name the plugin's binary; `make test-e2e` builds it", cliVariable)
	command := exec.CommandContext(t.Context(), binary, append([]string{"coverage", "--kubeconfig", kubeconfig}, args...)...)
	var out, faults strings.Builder
	command.Stdout, command.Stderr = &out, &faults
	err := command.Run()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit, "%v", args)
	}
	return command.ProcessState.ExitCode(), out.String(), faults.String()
}

// otherEnvoyGateway is the controllerName of an Envoy Gateway whose configuration gives it one.
const otherEnvoyGateway = "example.test/envoy-gateway"

// underAnotherName: only what the Envoy Gateway of the Gateway's own class reports counts.
func underAnotherName(t *testing.T, _ *operator, k *kube) {
	gateway := stack.Gateway(k.namespace, "prod", "g.example.test")
	gateway.Object["spec"].(map[string]any)["gatewayClassName"] = "other"
	k.Apply(t, stack.Object("gateway.networking.k8s.io/v1", "GatewayClass", "", "other", map[string]any{"controllerName": otherEnvoyGateway}), gateway,
		stack.HTTPRoute(k.namespace, "prod-0", "prod", "g.example.test", "/", "tools"), k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.accepted(t, "prod-auth", egv1a1.Controller)
	require.Contains(t, k.displacedTools(t, v1alpha1.PolicyReasonPending).Message, "has not reported")
	k.accepted(t, "prod-auth", otherEnvoyGateway)
	k.programmed(t, "tools", "prod")
	code, stdout, stderr := ask(t, k.Kubeconfig(), "-n", k.namespace, "route/prod-0", "--envoy-gateway-controller", otherEnvoyGateway)
	require.Zero(t, code, "%s%s", stdout, stderr)
	code, stdout, _ = ask(t, k.Kubeconfig(), "-n", k.namespace, "route/prod-0")
	require.Equal(t, 3, code)
	require.Contains(t, stdout, coverage.OtherClass)
}

// coverageOfTheCluster: for an admin of the cluster, and for a developer who may read no more than their own namespace.
func coverageOfTheCluster(t *testing.T, _ *operator, k *kube) {
	k.governed(t, "e.example.test", "f.example.test")
	k.programmed(t, "tools", "prod")
	code, stdout, stderr := ask(t, k.Kubeconfig(), "-n", k.namespace, "gateway/prod")
	require.Zero(t, code, "%s%s", stdout, stderr)
	require.Contains(t, stdout, "HTTPRoute "+k.namespace+"/prod-0")
	require.Empty(t, stderr)

	theirs := securityPolicy(k.namespace, "of-a-route", cors(onKind("HTTPRoute", "prod-0")))
	pretender := securityPolicy(k.namespace, "pretender", cors(onKind("HTTPRoute", "prod-1")))
	pretender.SetLabels(map[string]string{owned.LabelManagedBy: owned.ManagedBy})
	k.Apply(t, theirs, pretender)
	code, stdout, stderr = ask(t, k.Kubeconfig(), "-n", k.namespace, "route/prod-0")
	require.Equal(t, 3, code, "%s%s", stdout, stderr)
	require.Contains(t, stdout, "RoutePolicy: SecurityPolicy "+k.namespace+"/of-a-route ")
	require.NotContains(t, stdout, "prod-1")
	require.Contains(t, stderr, "does not hold on 1 of 1 lines")
	_, stdout, _ = ask(t, k.Kubeconfig(), "-n", k.namespace, "httproute/prod-1")
	require.Contains(t, stdout, "SecurityPolicy "+k.namespace+"/pretender ", "a label makes nothing ours")
	k.delete(t, pretender)

	// The developer of a route sees no more than what is near it, and is told so.
	rules := []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"httproutes", "gateways", "securitypolicies", "xaccesspolicies"}, "verbs": []any{"list"}}}
	role := stack.Object("rbac.authorization.k8s.io/v1", "Role", k.namespace, "reader", nil)
	role.Object["rules"] = rules
	binding := stack.Object("rbac.authorization.k8s.io/v1", "RoleBinding", k.namespace, "reader", nil)
	binding.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
	binding.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "namespace": k.namespace, "name": "developer"}}
	k.Apply(t, stack.ServiceAccount(k.namespace, "developer"), role, binding)
	developer := k.KubeconfigFor(t, k.namespace, "developer")
	code, stdout, stderr = ask(t, developer, "-n", k.namespace, "route/prod-0")
	require.Equal(t, 3, code, "%s%s", stdout, stderr)
	require.Contains(t, stdout, "RoutePolicy: SecurityPolicy "+k.namespace+"/of-a-route ")
	require.Contains(t, stderr, "securitypolicies.gateway.envoyproxy.io may not be listed in all namespaces; only those in "+k.namespace+" are looked at")
	require.Contains(t, stderr, "gatewayclasses.gateway.networking.k8s.io may not be listed and are not looked at")
	code, stdout, stderr = ask(t, developer, "-n", k.namespace, "route/prod-1", "-o", "json")
	require.Zero(t, code, "%s%s", stdout, stderr)
	require.Contains(t, stdout, `"holds": "yes"`)

	// A policy whose Gateway nobody looks after is not passed over.
	k.Apply(t, stack.Object("gateway.networking.k8s.io/v1", "Gateway", k.namespace, "nobodys", map[string]any{"gatewayClassName": "nobodys",
		"listeners": []any{map[string]any{"name": "http", "port": int64(80), "protocol": "HTTP"}}}),
		k.policy(t, "lost", allowing("reader", []string{"add"}, "nobodys")))
	code, stdout, stderr = ask(t, k.Kubeconfig(), "-n", k.namespace, "gateway/nobodys")
	require.Equal(t, 3, code, "%s%s", stdout, stderr)
	require.Contains(t, stderr, "policies target Gateway "+k.namespace+"/nobodys, and there is nothing for it that the operator wrote")
	code, _, stderr = ask(t, k.Kubeconfig(), "-n", k.namespace, "route/none")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "route/none is not there")
	code, stdout, stderr = ask(t, k.Kubeconfig())
	require.Equal(t, 3, code, "%s%s", stdout, stderr)
	require.Contains(t, stdout, "of-a-route")
	require.Contains(t, stderr, k.namespace+"/nobodys")
}

// displacedByWhatCame comes last, because it installs the CRDs of other routes, ListenerSets and EnvoyProxies.
func displacedByWhatCame(t *testing.T, o *operator, k *kube) {
	k.governed(t, "d.example.test")
	k.programmed(t, "tools", "prod")
	k.InstallCRDs(t, stack.CRDsGatewayAPI, stack.CRDsEnvoyGateway)
	o.settled(t)
	k.programmed(t, "tools", "prod")

	grpc := stack.Object("gateway.networking.k8s.io/v1", "GRPCRoute", k.namespace, "calls", map[string]any{"parentRefs": []any{map[string]any{"name": "prod"}},
		"hostnames": []any{"d.example.test"}, "rules": []any{map[string]any{"name": "one"}}})
	theirs := securityPolicy(k.namespace, "of-calls", cors(onKind("GRPCRoute", "calls")))
	k.Apply(t, grpc, theirs)
	require.Contains(t, k.displacedTools(t, v1alpha1.PolicyReasonPartiallyOverridden).Message, "GRPCRoute "+k.namespace+"/calls: SecurityPolicy "+k.namespace+"/of-calls ")
	k.delete(t, grpc)
	k.programmed(t, "tools", "prod")

	// A policy of a ListenerSet counts as soon as the Gateway takes ListenerSets, and not before.
	set := stack.Object("gateway.networking.k8s.io/v1", "ListenerSet", k.namespace, "more", map[string]any{"parentRef": map[string]any{"name": "prod"},
		"listeners": []any{map[string]any{"name": "extra", "port": int64(9090), "protocol": "HTTP"}}})
	k.Apply(t, set, securityPolicy(k.namespace, "of-more", cors(onKind("ListenerSet", "more"))))
	o.settled(t)
	k.programmed(t, "tools", "prod")
	gateway := stack.Gateway(k.namespace, "prod", "d.example.test")
	gateway.Object["spec"].(map[string]any)["allowedListeners"] = map[string]any{"namespaces": map[string]any{"from": "Same"}}
	k.Apply(t, gateway)
	require.Contains(t, k.displacedTools(t, v1alpha1.PolicyReasonPartiallyOverridden).Message, "listener "+k.namespace+"/more/extra: SecurityPolicy "+k.namespace+"/of-more ")
	k.delete(t, set)
	k.programmed(t, "tools", "prod")

	patch := stack.Object(egv1a1.GroupVersion.String(), "EnvoyPatchPolicy", k.namespace, "patch", map[string]any{"type": "JSONPatch",
		"targetRef": map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "prod"},
		"jsonPatches": []any{map[string]any{"type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "x",
			"operation": map[string]any{"op": "remove", "path": "/default_filter_chain/filters/0/typed_config/http_filters/0"}}}})
	k.Apply(t, patch)
	require.Contains(t, k.displacedTools(t, v1alpha1.PolicyReasonOverridden).Message, "EnvoyPatchPolicy")
	k.delete(t, patch)
	k.programmed(t, "tools", "prod")
}
