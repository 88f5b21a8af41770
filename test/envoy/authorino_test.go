package envoy_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/envoygateway"
)

// TestAuthorinoDecidesBehindTheRouter has the real router of mcp-gateway set the headers before Authorino is asked.
func TestAuthorinoDecidesBehindTheRouter(t *testing.T) {
	w := newRoutedWorld(t)
	w.asking = true
	s := w.addBehindRouter(t, "asking", false)
	require.Len(t, s.result.EnvoyGateway.AuthConfigs, 1)
	w.serveRouted(t, s)
	w.verdicts(t, s, denies)
}

// authorinoService is where the golden cases have Authorino.
var authorinoService = envoygateway.Service{Namespace: "authorino", Name: "authorino", Port: 50051}

// askAuthorino lets the SecurityPolicies of a namespace ask Authorino, which is started for the first.
func (w *world) askAuthorino(t testing.TB, namespace string) {
	t.Helper()
	if w.authorino == nil {
		// Each token is one question to the API server, of which Authorino asks no more than 20 a second unless it is told.
		w.authorino = w.StartAuthorino(t, "--kube-client-qps=10000", "--kube-client-burst=10000")
		w.Apply(t, authorinoEndpoints(t, w.authorino.Port)...)
	}
	w.Apply(t, grantFrom(namespace))
}

// authorinoEndpoints are the Service that leads to a port of the upstreams' address.
func authorinoEndpoints(t testing.TB, port string) []*unstructured.Unstructured {
	t.Helper()
	target, err := strconv.ParseInt(port, 10, 64)
	require.NoError(t, err)
	return stack.ServiceAt(authorinoService.Namespace, authorinoService.Name, int64(authorinoService.Port), upstreamAddress, target)
}

// grantFrom lets the SecurityPolicies of a namespace refer to Authorino's Service.
func grantFrom(namespace string) *unstructured.Unstructured {
	return stack.GrantServices(authorinoService.Namespace, namespace)
}

// behindTheRouter gives the Gateways of a case that name no EnvoyProxy a class whose EnvoyProxy is like the one that serves here.
func behindTheRouter(in *translator.Input) {
	after := envoygateway.FilterExtProc
	proxy := egv1a1.EnvoyProxy{Spec: egv1a1.EnvoyProxySpec{FilterOrder: []egv1a1.FilterPosition{{Name: envoygateway.FilterExtAuthz, After: &after}}}}
	proxy.Namespace, proxy.Name = "envoy-gateway-system", class
	in.EnvoyProxies = append(in.EnvoyProxies, proxy)
	for _, gw := range in.Gateways {
		if slices.ContainsFunc(in.Classes, func(c gwv1.GatewayClass) bool { return c.Name == string(gw.Spec.GatewayClassName) }) {
			continue
		}
		namespace := gwv1.Namespace(proxy.Namespace)
		c := gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ParametersRef: &gwv1.ParametersReference{
			Group: gwv1.Group(egv1a1.GroupVersion.Group), Kind: "EnvoyProxy", Name: proxy.Name, Namespace: &namespace}}}
		c.Name = string(gw.Spec.GatewayClassName)
		in.Classes = append(in.Classes, c)
	}
}

// manifests are the objects of a case in the namespace in which it is served.
func (s *site) manifests(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	objects, err := s.result.EnvoyGateway.Manifests()
	require.NoError(t, err)
	for _, u := range objects {
		u.SetNamespace(s.namespace)
		u.SetOwnerReferences(nil)
	}
	return objects
}

// ready waits until Authorino has the AuthConfigs of a case.
func (w *world) ready(t testing.TB, s *site) {
	t.Helper()
	for _, config := range s.result.EnvoyGateway.AuthConfigs {
		u := stack.Object(config.APIVersion, config.Kind, s.namespace, config.Name, nil)
		eventually(t, s.name+": AuthConfig "+config.Name+" is ready", func(ctx context.Context) error {
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
				return err
			}
			if ready, _, _ := unstructured.NestedBool(u.Object, "status", "summary", "ready"); !ready {
				return fmt.Errorf("not ready: %v", u.Object["status"])
			}
			return nil
		})
	}
}
