package envoygateway

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
)

// Filters as Envoy Gateway names them.
const (
	FilterExtAuthz = "envoy.filters.http.ext_authz"
	FilterExtProc  = "envoy.filters.http.ext_proc"
	FilterJWT      = "envoy.filters.http.jwt_authn"
	FilterRBAC     = "envoy.filters.http.rbac"
	FilterWasm     = "envoy.filters.http.wasm"
)

const kindEnvoyProxy = "EnvoyProxy"

// mergeReplace is the mergeType of an EnvoyProxy that stands alone, as one without does.
const mergeReplace = "Replace"

// ProxyOfGateway names the EnvoyProxy that a Gateway refers to; nil for none.
func ProxyOfGateway(gw *gwv1.Gateway) *types.NamespacedName {
	infra := gw.Spec.Infrastructure
	if infra == nil || infra.ParametersRef == nil || !isProxy(infra.ParametersRef.Group, infra.ParametersRef.Kind) {
		return nil
	}
	return &types.NamespacedName{Namespace: gw.Namespace, Name: infra.ParametersRef.Name}
}

// ProxyOfClass names the EnvoyProxy that a class refers to; nil for none.
func ProxyOfClass(class *gwv1.GatewayClass) *types.NamespacedName {
	if class == nil || class.Spec.ParametersRef == nil || !isProxy(class.Spec.ParametersRef.Group, class.Spec.ParametersRef.Kind) {
		return nil
	}
	name := types.NamespacedName{Name: class.Spec.ParametersRef.Name}
	if class.Spec.ParametersRef.Namespace != nil {
		name.Namespace = string(*class.Spec.ParametersRef.Namespace)
	}
	return &name
}

func isProxy(group gwv1.Group, kind gwv1.Kind) bool {
	return string(group) == egv1a1.GroupVersion.Group && kind == kindEnvoyProxy
}

// Unordered returns why it is not certain that the Envoys of a Gateway ask Authorino behind the filters that set MCP headers,
// or "", and the EnvoyProxy that counts, if it is known. Envoy Gateway asks before them, unless the EnvoyProxy that counts has one entry that says otherwise, and none that moves
// those filters. A default EnvoyProxy in Envoy Gateway's own configuration cannot be seen from here.
//
// Envoy Gateway: internal/xds/translator/httpfilters.go, sortHTTPFilters.
func Unordered(gw *gwv1.Gateway, class *gwv1.GatewayClass, proxies []egv1a1.EnvoyProxy) (why string, counts *egv1a1.EnvoyProxy) {
	proxy, why := proxyOf(gw, class, proxies)
	if why != "" {
		return why, nil
	}
	name := fmt.Sprintf("EnvoyProxy %s/%s", proxy.Namespace, proxy.Name)
	if merge := proxy.Spec.MergeType; merge != nil && *merge != mergeReplace {
		return fmt.Sprintf("%s has mergeType %.40s, and what comes of that cannot be told from here; leave mergeType out", name, *merge), proxy
	}
	var own []egv1a1.FilterPosition
	for _, position := range proxy.Spec.FilterOrder {
		switch position.Name {
		case FilterExtAuthz:
			own = append(own, position)
		case FilterExtProc, FilterRBAC:
			return fmt.Sprintf("filterOrder of %s moves %s; take that entry out", name, position.Name), proxy
		}
	}
	if len(own) != 1 || own[0].Before != nil || own[0].After == nil || *own[0].After != FilterExtProc {
		return fmt.Sprintf("filterOrder of %s must have one entry for %s, with after: %s", name, FilterExtAuthz, FilterExtProc), proxy
	}
	return "", proxy
}

// proxyOf finds the EnvoyProxy that counts for a Gateway: its own, unless the class has Gateways share their Envoys, else the
// class's. The second result says why it cannot be told.
//
// Envoy Gateway: internal/gatewayapi/contexts.go, attachEnvoyProxy; helpers.go, IsMergeGatewaysEnabled.
func proxyOf(gw *gwv1.Gateway, class *gwv1.GatewayClass, proxies []egv1a1.EnvoyProxy) (*egv1a1.EnvoyProxy, string) {
	if class == nil {
		return nil, fmt.Sprintf("GatewayClass %s is not there, so which EnvoyProxy counts cannot be told", gw.Spec.GatewayClassName)
	}
	var ofClass *egv1a1.EnvoyProxy
	if class.Spec.ParametersRef != nil {
		var why string
		if ofClass, why = find(ProxyOfClass(class), proxies, "GatewayClass "+class.Name); why != "" {
			return nil, why
		}
	}
	infra := gw.Spec.Infrastructure
	shared := ofClass != nil && ofClass.Spec.MergeGateways != nil && *ofClass.Spec.MergeGateways
	if infra != nil && infra.ParametersRef != nil && !shared {
		return find(ProxyOfGateway(gw), proxies, "Gateway "+gw.Name)
	}
	if ofClass == nil {
		return nil, fmt.Sprintf("neither the Gateway nor its class refers to an EnvoyProxy; refer to one whose filterOrder has %s after: %s", FilterExtAuthz, FilterExtProc)
	}
	return ofClass, ""
}

func find(name *types.NamespacedName, proxies []egv1a1.EnvoyProxy, referrer string) (*egv1a1.EnvoyProxy, string) {
	if name == nil {
		return nil, fmt.Sprintf("parametersRef of %s is not to an EnvoyProxy", referrer)
	}
	i := slices.IndexFunc(proxies, func(p egv1a1.EnvoyProxy) bool { return p.Namespace == name.Namespace && p.Name == name.Name })
	if i < 0 {
		return nil, fmt.Sprintf("EnvoyProxy %s, which %s refers to, is not there", name, referrer)
	}
	return &proxies[i], ""
}
