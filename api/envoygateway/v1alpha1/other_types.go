package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"
)

// EnvoyExtensionPolicy adds filters to the routes that it targets.
type EnvoyExtensionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              EnvoyExtensionPolicySpec `json:"spec"`
	Status            gwv1alpha2.PolicyStatus  `json:"status,omitzero"`
}

// EnvoyExtensionPolicySpec tells which kinds of filters there are; what they do is not looked at.
type EnvoyExtensionPolicySpec struct {
	PolicyTargetReferences `json:",inline"`
	MergeType              *string                `json:"mergeType,omitempty"`
	Wasm                   []Wasm                 `json:"wasm,omitempty"`
	ExtProc                []runtime.RawExtension `json:"extProc,omitempty"`
	Lua                    []runtime.RawExtension `json:"lua,omitempty"`
}

// Wasm is a WebAssembly filter.
type Wasm struct {
	Name *string `json:"name,omitempty"`
	// FailOpen lets requests pass when the filter fails.
	FailOpen *bool `json:"failOpen,omitempty"`
}

// EnvoyPatchPolicy changes the configuration that Envoy Gateway generates.
type EnvoyPatchPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              EnvoyPatchPolicySpec    `json:"spec"`
	Status            gwv1alpha2.PolicyStatus `json:"status,omitzero"`
}

// EnvoyPatchPolicySpec names what is changed.
type EnvoyPatchPolicySpec struct {
	TargetRef   gwv1alpha2.LocalPolicyTargetReference `json:"targetRef"`
	JSONPatches []EnvoyJSONPatch                      `json:"jsonPatches,omitempty"`
}

// EnvoyJSONPatch changes the resource of a type and name.
type EnvoyJSONPatch struct {
	Type      string             `json:"type"`
	Name      string             `json:"name"`
	Operation JSONPatchOperation `json:"operation"`
}

// JSONPatchOperation is where a patch changes something.
type JSONPatchOperation struct {
	Op       string  `json:"op"`
	Path     *string `json:"path,omitempty"`
	JSONPath *string `json:"jsonPath,omitempty"`
}

// EnvoyProxy configures the Envoys of a GatewayClass or Gateway.
type EnvoyProxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              EnvoyProxySpec `json:"spec"`
}

// EnvoyProxySpec is the part that concerns the order of filters and the sharing of an Envoy.
type EnvoyProxySpec struct {
	MergeGateways *bool            `json:"mergeGateways,omitempty"`
	FilterOrder   []FilterPosition `json:"filterOrder,omitempty"`
	// MergeType says how it is merged with less specific ones; left out or Replace, it stands alone.
	MergeType *string `json:"mergeType,omitempty"`
}

// FilterPosition moves the filters of a kind before or after those of another.
type FilterPosition struct {
	Name   string  `json:"name"`
	Before *string `json:"before,omitempty"`
	After  *string `json:"after,omitempty"`
}

// ListenerSet adds listeners to a Gateway (gateway.networking.k8s.io/v1).
type ListenerSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ListenerSetSpec `json:"spec"`
}

// ListenerSetSpec has the Gateway and the listeners.
type ListenerSetSpec struct {
	ParentRef ParentGatewayReference `json:"parentRef"`
	Listeners []gwv1.Listener        `json:"listeners"`
}

// ParentGatewayReference names the Gateway; Namespace left out is the ListenerSet's own.
type ParentGatewayReference struct {
	Group     *gwv1.Group     `json:"group,omitempty"`
	Kind      *gwv1.Kind      `json:"kind,omitempty"`
	Name      gwv1.ObjectName `json:"name"`
	Namespace *gwv1.Namespace `json:"namespace,omitempty"`
}

// AllowedListeners is spec.allowedListeners of a Gateway, which the Gateway type in use here does not have: whose
// ListenerSets it takes. Left out, none.
type AllowedListeners struct {
	Namespaces *ListenerNamespaces `json:"namespaces,omitempty"`
}

// ListenerNamespaces are where the ListenerSets of a Gateway may be: None (also when left out), Same, All or Selector.
type ListenerNamespaces struct {
	From     *gwv1.FromNamespaces  `json:"from,omitempty"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}
