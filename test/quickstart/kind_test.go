package quickstart

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/test/stack"
)

const (
	limit     = 60 * time.Second
	namespace = "demo"
)

// TestKindMCPGateway has the real controller of mcp-gateway work on what quickstart/kind
// gives it, with Gateway API's status as Istio would write it and a Deployment's as the
// controllers of a cluster would, and looks at what comes out: the configuration of
// broker and router, and the object for Envoy that quickstart/kind/kuadrant/mcp-headers.yaml
// has to come before.
func TestKindMCPGateway(t *testing.T) {
	c := stack.Start(t)
	c.InstallCRDs(t, stack.CRDsGatewayAPI, stack.CRDsMCPGateway, stack.CRDsIstio)
	kind := filepath.Join("..", "..", "quickstart", "kind")
	for _, file := range []string{"base/namespace.yaml", "base/mcpserver.yaml", "kuadrant/gateway.yaml", "kuadrant/mcp-headers.yaml", "kuadrant/mcp-gateway.yaml"} {
		c.ApplyFiles(t, filepath.Join(kind, file))
	}
	gateway, route := stack.Gateway(namespace, "prod"), stack.Object("gateway.networking.k8s.io/v1", "HTTPRoute", namespace, "calc", nil)
	condition := func(kind string) string {
		return fmt.Sprintf(`{"type":%q,"status":"True","reason":%q,"message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`, kind, kind)
	}
	both := `"conditions":[` + condition("Accepted") + `,` + condition("Programmed") + `]`
	report(t, c, gateway, `{`+both+`,"listeners":[{"name":"mcp","attachedRoutes":0,"supportedKinds":[],`+both+`}]}`)
	report(t, c, route, `{"parents":[{"parentRef":{"name":"prod"},"controllerName":"istio.io/gateway-controller","conditions":[`+condition("Accepted")+`]}]}`)

	image := "ghcr.io/kuadrant/mcp-gateway:v0.9.0"
	// Its ports are fixed. Nothing else listens in this network namespace.
	c.Program(t, stack.Component(t, "mcp-controller"), "http://127.0.0.1:8081/readyz", nil,
		"KUBECONFIG="+c.Kubeconfig(), "NAMESPACE=mcp-system", "RELATED_IMAGE_ROUTER_BROKER="+image).Start(t)

	// Broker and router. In the file is the server, by the addresses of quickstart/kind.
	broker := stack.Object("apps/v1", "Deployment", namespace, "mcp-gateway", nil)
	there(t, c, broker)
	report(t, c, broker, `{"observedGeneration":1,"replicas":1,"readyReplicas":1,"availableReplicas":1,"updatedReplicas":1}`)
	c.WaitFor(t, limit, stack.Object("mcp.kuadrant.io/v1", "MCPServerRegistration", namespace, "calc", nil), "Ready")
	c.WaitFor(t, limit, stack.Object("mcp.kuadrant.io/v1", "MCPGatewayExtension", namespace, "prod", nil), "Ready")
	text, err := json.Marshal(broker.Object["spec"])
	require.NoError(t, err)
	for _, part := range []string{image, "--mcp-gateway-public-host=mcp.example.test", "--mcp-gateway-private-host=prod-istio.demo.svc.cluster.local:8080"} {
		assert.Contains(t, string(text), part)
	}
	config := &corev1.Secret{}
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "mcp-gateway-config"}, config))
	for _, line := range []string{"hostname: calc.mcp.local\n", "name: demo/calc\n", "prefix: calc_\n", "url: http://calc.demo.svc.cluster.local:8000/mcp\n", "state: Enabled\n"} {
		assert.Contains(t, string(config.Data["config.yaml"]), line)
	}

	// The broker's route, for the host name that agents call.
	brokers := stack.Object("gateway.networking.k8s.io/v1", "HTTPRoute", namespace, "mcp-gateway-route", nil)
	there(t, c, brokers)
	hosts, _, err := unstructured.NestedStringSlice(brokers.Object, "spec", "hostnames")
	require.NoError(t, err)
	assert.Equal(t, []string{"mcp.example.test"}, hosts)

	// What asks the router is an HTTP filter, and early header mutations come before those.
	asks := stack.Object("networking.istio.io/v1alpha3", "EnvoyFilter", namespace, "mcp-ext-proc-demo-gateway", nil)
	there(t, c, asks)
	patches, _, err := unstructured.NestedSlice(asks.Object, "spec", "configPatches")
	require.NoError(t, err)
	require.Len(t, patches, 1)
	assert.Equal(t, "HTTP_FILTER", patches[0].(map[string]any)["applyTo"])
	selected, _, err := unstructured.NestedStringMap(asks.Object, "spec", "workloadSelector", "labels")
	require.NoError(t, err)
	strips := stack.Object("networking.istio.io/v1alpha3", "EnvoyFilter", namespace, "mcp-headers", nil)
	there(t, c, strips)
	ours, _, err := unstructured.NestedStringMap(strips.Object, "spec", "workloadSelector", "labels")
	require.NoError(t, err)
	assert.Equal(t, selected, ours, "they are for the same Envoy")
}

// there waits until an object is there, and reads it.
func there(t *testing.T, c *stack.Cluster, object *unstructured.Unstructured) {
	t.Helper()
	stack.Eventually(t, limit, object.GetKind()+" "+object.GetName(), func(ctx context.Context) error {
		return c.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
	})
}

// report writes an object's status.
func report(t *testing.T, c *stack.Cluster, object *unstructured.Unstructured, status string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))
	require.NoError(t, c.Client.Status().Patch(t.Context(), object.DeepCopy(), patch))
}
