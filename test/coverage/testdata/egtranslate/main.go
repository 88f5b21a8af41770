// Command egtranslate is built inside a copy of Envoy Gateway's module (see ../../build). From stdin it reads lists of
// Kubernetes objects as JSON arrays, one after the other, and for each has Envoy Gateway's own translators make the configuration
// of Envoy, which it writes to stdout in the form of egctl, a line for each list.
//
// It is for what egctl leaves out: egctl drops creation times and labels, which decide between policies, and ListenerSets,
// ignores mergeGateways, and has Lua and EnvoyPatchPolicy switched on. An EnvoyGateway among the objects sets those.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwapiv1b1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	egv1a1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/envoyproxy/gateway/internal/gatewayapi"
	"github.com/envoyproxy/gateway/internal/gatewayapi/resource"
	"github.com/envoyproxy/gateway/internal/ir"
	"github.com/envoyproxy/gateway/internal/logging"
	"github.com/envoyproxy/gateway/internal/wasm"
	_ "github.com/envoyproxy/gateway/internal/xds/extensions"
	"github.com/envoyproxy/gateway/internal/xds/translator"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "egtranslate:", err)
		os.Exit(1)
	}
}

// world is what the objects amount to.
type world struct {
	*resource.Resources
	apis    *egv1a1.ExtensionAPISettings
	proxies []*egv1a1.EnvoyProxy
}

func run(in io.Reader, out io.Writer) error {
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var objects []map[string]any
		err := decoder.Decode(&objects)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		a, err := translate(objects)
		if err != nil {
			a = &answer{Error: err.Error()}
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

func translate(objects []map[string]any) (*answer, error) {
	w := &world{Resources: resource.NewResources(), apis: &egv1a1.ExtensionAPISettings{EnableEnvoyPatchPolicy: true, EnableBackend: true, EnableLua: true}}
	for _, object := range objects {
		if err := w.add(&unstructured.Unstructured{Object: object}); err != nil {
			return nil, err
		}
	}
	if w.GatewayClass == nil {
		return nil, errors.New("there is no GatewayClass")
	}
	w.complete()
	w.Sort()
	return w.translate()
}

// The schemas are read once; that takes longer than all the rest.
var (
	validator = resource.GetDefaultValidator()
	defaulter = resource.GetGatewaySchemaDefaulter()
)

// add takes an object, after the CRD's defaults and validation.
func (w *world) add(u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	if gvk.Kind == "EnvoyGateway" {
		var config egv1a1.EnvoyGateway
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &config); err != nil {
			return err
		}
		w.apis = config.ExtensionAPIs
		return nil
	}
	if gvk.Group == egv1a1.GroupName || gvk.Group == gwapiv1.GroupName {
		var err error
		if u, err = admitted(u); err != nil {
			return fmt.Errorf("%s %s: %w", gvk.Kind, u.GetName(), err)
		}
	}
	switch gvk.Kind {
	case "GatewayClass":
		w.GatewayClass = &gwapiv1.GatewayClass{}
		return into(u, w.GatewayClass)
	case "Gateway":
		return keep(u, &w.Gateways)
	case "ListenerSet":
		return keep(u, &w.ListenerSets)
	case "HTTPRoute":
		return keep(u, &w.HTTPRoutes)
	case "GRPCRoute":
		return keep(u, &w.GRPCRoutes)
	case "TLSRoute":
		return keep(u, &w.TLSRoutes)
	case "TCPRoute":
		return keep(u, &w.TCPRoutes)
	case "UDPRoute":
		return keep(u, &w.UDPRoutes)
	case "ReferenceGrant":
		return keep[gwapiv1b1.ReferenceGrant](u, &w.ReferenceGrants)
	case "Namespace":
		return keep[corev1.Namespace](u, &w.Namespaces)
	case "Service":
		return keep[corev1.Service](u, &w.Services)
	case "SecurityPolicy":
		return keep(u, &w.SecurityPolicies)
	case "EnvoyExtensionPolicy":
		return keep(u, &w.EnvoyExtensionPolicies)
	case "EnvoyPatchPolicy":
		return keep(u, &w.EnvoyPatchPolicies)
	case "EnvoyProxy":
		return keep(u, &w.proxies)
	}
	return fmt.Errorf("objects of kind %s are not taken", gvk.Kind)
}

// before has the objects that were admitted, by their JSON without metadata: many are alike, and validation is slow.
var before = map[string]*unstructured.Unstructured{}

// admitted does what the API server does.
func admitted(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	metadata := u.Object["metadata"]
	alike := u.DeepCopy()
	alike.Object["metadata"] = map[string]any{"name": "x", "namespace": "x"}
	raw, err := alike.MarshalJSON()
	if err != nil {
		return u, err
	}
	out, ok := before[string(raw)]
	if !ok {
		if err := validator.Validate(raw); err != nil {
			return u, err
		}
		if out, err = defaulter.ApplyDefault(u); err != nil {
			return u, err
		}
		before[string(raw)] = out
	}
	out = out.DeepCopy()
	out.Object["metadata"] = metadata
	return out, nil
}

func keep[T any](u *unstructured.Unstructured, list *[]*T) error {
	object := new(T)
	*list = append(*list, object)
	return into(u, object)
}

func into(u *unstructured.Unstructured, object any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object)
}

// complete adds what a cluster would have: namespaces, the Services of routes, and the EnvoyProxy that the class names.
func (w *world) complete() {
	names := map[string]bool{}
	services := map[string]bool{}
	for _, ns := range w.Namespaces {
		names[ns.Name] = true
	}
	for _, s := range w.Services {
		services[s.Namespace+"/"+s.Name] = true
	}
	need := func(namespace string) {
		if !names[namespace] {
			names[namespace] = true
			w.Namespaces = append(w.Namespaces, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"kubernetes.io/metadata.name": namespace}}})
		}
	}
	backend := func(namespace string, ref gwapiv1.BackendRef, protocol corev1.Protocol) {
		if name := namespace + "/" + string(ref.Name); ref.Port != nil && !services[name] {
			services[name] = true
			w.Services = append(w.Services, &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(ref.Name)},
				Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: "port", Port: *ref.Port, Protocol: protocol}}}})
		}
	}
	for _, gw := range w.Gateways {
		need(gw.Namespace)
	}
	for _, ls := range w.ListenerSets {
		need(ls.Namespace)
	}
	for _, r := range w.HTTPRoutes {
		need(r.Namespace)
		for _, rule := range r.Spec.Rules {
			for _, ref := range rule.BackendRefs {
				backend(r.Namespace, ref.BackendRef, corev1.ProtocolTCP)
			}
		}
	}
	for _, r := range w.GRPCRoutes {
		need(r.Namespace)
		for _, rule := range r.Spec.Rules {
			for _, ref := range rule.BackendRefs {
				backend(r.Namespace, ref.BackendRef, corev1.ProtocolTCP)
			}
		}
	}
	for _, r := range w.TCPRoutes {
		need(r.Namespace)
		backend(r.Namespace, r.Spec.Rules[0].BackendRefs[0], corev1.ProtocolTCP)
	}
	for _, r := range w.TLSRoutes {
		need(r.Namespace)
		backend(r.Namespace, r.Spec.Rules[0].BackendRefs[0], corev1.ProtocolTCP)
	}
	for _, r := range w.UDPRoutes {
		need(r.Namespace)
		backend(r.Namespace, r.Spec.Rules[0].BackendRefs[0], corev1.ProtocolUDP)
	}
	for _, p := range w.proxies {
		if ref := w.GatewayClass.Spec.ParametersRef; ref != nil && ref.Name == p.Name {
			w.EnvoyProxyForGatewayClass = p
		} else {
			w.EnvoyProxiesForGateways = append(w.EnvoyProxiesForGateways, p)
		}
	}
}

// answer has the configuration of each set of Envoys, or why there is none, and the policies with the status they get. Error is
// set where the objects cannot be taken.
type answer struct {
	Error    string            `json:"error,omitempty"`
	XDS      map[string]any    `json:"xds"`
	Failed   map[string]string `json:"failed,omitempty"`
	Policies []any             `json:"policies"`
}

// translate does what Envoy Gateway's runners do.
// internal/gatewayapi/runner/runner.go, internal/xds/runner/runner.go.
func (w *world) translate() (*answer, error) {
	logger := logging.DefaultLogger(io.Discard, egv1a1.LogLevelInfo)
	t := &gatewayapi.Translator{
		GatewayControllerName:           string(w.GatewayClass.Spec.ControllerName),
		GatewayClassName:                gwapiv1.ObjectName(w.GatewayClass.Name),
		EndpointRoutingDisabled:         true,
		MergeGateways:                   gatewayapi.IsMergeGatewaysEnabled(w.Resources),
		EnvoyPatchPolicyEnabled:         w.apis != nil && w.apis.EnableEnvoyPatchPolicy,
		LuaEnvoyExtensionPolicyDisabled: w.apis.LuaDisabled(),
		BackendEnabled:                  true,
		ControllerNamespace:             "envoy-gateway-system",
		WasmCache:                       plugins{},
		Logger:                          logger,
	}
	result, _ := t.Translate(context.Background(), w.Resources) // the error is about policies at fault, which is a result, too
	out := &answer{XDS: map[string]any{}, Failed: map[string]string{}}
	for _, p := range result.SecurityPolicies {
		out.Policies = append(out.Policies, p)
	}
	for _, p := range result.EnvoyExtensionPolicies {
		out.Policies = append(out.Policies, p)
	}
	for key, each := range result.XdsIR {
		dump, err := configuration(each, logger)
		if err != nil {
			out.Failed[key] = err.Error() // and so is never given to Envoy
			continue
		}
		out.XDS[key] = dump
	}
	return out, nil
}

func configuration(x *ir.Xds, logger logging.Logger) (any, error) {
	t := &translator.Translator{ControllerNamespace: "envoy-gateway-system", FilterOrder: x.FilterOrder, Logger: logger}
	table, err := t.Translate(context.Background(), x)
	if err != nil {
		return nil, err
	}
	var listeners, routes []any
	for _, kind := range slices.Sorted(slices.Values([]string{resourcev3.ListenerType, resourcev3.RouteType})) {
		for _, object := range table.XdsResources[kind] {
			raw, err := protojson.Marshal(object)
			if err != nil {
				return nil, err
			}
			if kind == resourcev3.ListenerType {
				listeners = append(listeners, map[string]any{"activeState": map[string]any{"listener": json.RawMessage(raw)}})
			} else {
				routes = append(routes, map[string]any{"routeConfig": json.RawMessage(raw)})
			}
		}
	}
	return map[string]any{"configs": []any{map[string]any{"dynamicListeners": listeners}, map[string]any{"dynamicRouteConfigs": routes}}}, nil
}

// plugins has every WebAssembly plugin.
type plugins struct{}

func (plugins) Start(context.Context) {}

func (plugins) Get(url string, options *wasm.GetOptions) (string, string, error) {
	return url, options.Checksum, nil
}
