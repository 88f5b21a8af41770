package stack

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// gatewayClassName is the one class that the objects here use.
	gatewayClassName  = "envoy"
	gatewayController = "gateway.envoyproxy.io/gatewayclass-controller"

	gatewayAPI = "gateway.networking.k8s.io/v1"

	listenerPort = 8080
	servicePort  = 80
)

// Object builds an object; spec may be nil, namespace empty.
func Object(apiVersion, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	object.SetName(name)

	if namespace != "" {
		object.SetNamespace(namespace)
	}

	if spec != nil {
		object.Object["spec"] = spec
	}

	return object
}

// Namespace is a namespace.
func Namespace(name string) *unstructured.Unstructured {
	return Object("v1", "Namespace", "", name, nil)
}

// ServiceAccount is a ServiceAccount.
func ServiceAccount(namespace, name string) *unstructured.Unstructured {
	return Object("v1", "ServiceAccount", namespace, name, nil)
}

// Service is a Service with one port, which is the one that HTTPRoute sends to.
func Service(namespace, name string) *unstructured.Unstructured {
	return Object("v1", "Service", namespace, name, map[string]any{
		"ports": []any{map[string]any{"port": int64(servicePort), "protocol": "TCP"}},
	})
}

// GatewayClass is the class of Envoy Gateway, which Gateway names.
func GatewayClass() *unstructured.Unstructured {
	return Object(gatewayAPI, "GatewayClass", "", gatewayClassName, map[string]any{"controllerName": gatewayController})
}

// Gateway is a Gateway with one HTTP listener for each host name, called
// "listener-0" and so on; an empty host name stands for all. Routes of all
// namespaces may attach.
func Gateway(namespace, name string, hostnames ...string) *unstructured.Unstructured {
	listeners := make([]any, 0, len(hostnames))

	for i, hostname := range hostnames {
		listener := map[string]any{
			"name": fmt.Sprintf("listener-%d", i), "port": int64(listenerPort), "protocol": "HTTP",
			"allowedRoutes": map[string]any{"namespaces": map[string]any{"from": "All"}},
		}
		if hostname != "" {
			listener["hostname"] = hostname
		}

		listeners = append(listeners, listener)
	}

	return Object(gatewayAPI, "Gateway", namespace, name, map[string]any{
		"gatewayClassName": gatewayClassName, "listeners": listeners,
	})
}

// HTTPRoute is a route from a Gateway of its namespace to a Service of its
// namespace, for one host name and the paths below a prefix.
func HTTPRoute(namespace, name, gateway, hostname, prefix, service string) *unstructured.Unstructured {
	return Object(gatewayAPI, "HTTPRoute", namespace, name, map[string]any{
		"parentRefs": []any{map[string]any{"name": gateway}},
		"hostnames":  []any{hostname},
		"rules": []any{map[string]any{
			"matches":     []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": prefix}}},
			"backendRefs": []any{map[string]any{"name": service, "port": int64(servicePort)}},
		}},
	})
}

// ServiceAt is a gRPC Service that leads to a port of an address, with its namespace.
// The address is one that Envoy Gateway takes, so none in 127.0.0.0/8.
func ServiceAt(namespace, name string, port int64, address string, target int64) []*unstructured.Unstructured {
	const portName = "grpc"

	slice := Object("discovery.k8s.io/v1", "EndpointSlice", namespace, name, nil)
	slice.SetLabels(map[string]string{"kubernetes.io/service-name": name})
	slice.Object["addressType"] = "IPv4"
	slice.Object["ports"] = []any{map[string]any{"name": portName, "port": target, "protocol": "TCP"}}
	slice.Object["endpoints"] = []any{map[string]any{"addresses": []any{address}, "conditions": map[string]any{"ready": true}}}

	return []*unstructured.Unstructured{
		Namespace(namespace),
		Object("v1", "Service", namespace, name, map[string]any{
			"ports": []any{map[string]any{"name": portName, "port": port, "protocol": "TCP"}},
		}),
		slice,
	}
}

// GrantServices lets the SecurityPolicies of a namespace refer to the Services of
// another.
func GrantServices(namespace, from string) *unstructured.Unstructured {
	return Object("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", namespace, from, map[string]any{
		"from": []any{map[string]any{"group": "gateway.envoyproxy.io", "kind": "SecurityPolicy", "namespace": from}},
		"to":   []any{map[string]any{"group": "", "kind": "Service"}},
	})
}
