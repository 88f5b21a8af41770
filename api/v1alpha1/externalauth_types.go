package v1alpha1

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// HTTPExternalAuthFilter names an authorization service and how to speak to it.
// It is Gateway API's type of this name (GEP-1494), which the Gateway API
// version this project can import does not have yet.
//
// +kubebuilder:validation:XValidation:rule="self.protocol == 'GRPC' ? has(self.grpc) : true",message="grpc must be specified when protocol is set to 'GRPC'"
// +kubebuilder:validation:XValidation:rule="has(self.grpc) ? self.protocol == 'GRPC' : true",message="protocol must be 'GRPC' when grpc is set"
// +kubebuilder:validation:XValidation:rule="self.protocol == 'HTTP' ? has(self.http) : true",message="http must be specified when protocol is set to 'HTTP'"
// +kubebuilder:validation:XValidation:rule="has(self.http) ? self.protocol == 'HTTP' : true",message="protocol must be 'HTTP' when http is set"
type HTTPExternalAuthFilter struct {
	// protocol that the service speaks. The section of the same name has to be
	// present, even if it is empty.
	//
	// +required
	// +unionDiscriminator
	ExternalAuthProtocol HTTPRouteExternalAuthProtocol `json:"protocol"`

	// backendRef is the service. In another namespace it needs a
	// ReferenceGrant there.
	//
	// +required
	BackendRef gwv1.BackendObjectReference `json:"backendRef"`

	// grpc goes with protocol GRPC.
	//
	// +optional
	GRPCAuthConfig *GRPCAuthConfig `json:"grpc,omitempty"`

	// http goes with protocol HTTP.
	//
	// +optional
	HTTPAuthConfig *HTTPAuthConfig `json:"http,omitempty"`

	// forwardBody limits how much of the request body the service gets. Left
	// out, none.
	//
	// +optional
	ForwardBody *ForwardBodyConfig `json:"forwardBody,omitempty"`
}

// HTTPRouteExternalAuthProtocol is a protocol of an authorization service.
//
// +kubebuilder:validation:Enum=HTTP;GRPC
type HTTPRouteExternalAuthProtocol string

const (
	// HTTPRouteExternalAuthHTTPProtocol asks by a plain HTTP request.
	HTTPRouteExternalAuthHTTPProtocol HTTPRouteExternalAuthProtocol = "HTTP"

	// HTTPRouteExternalAuthGRPCProtocol asks by Envoy's ext_authz gRPC service.
	HTTPRouteExternalAuthGRPCProtocol HTTPRouteExternalAuthProtocol = "GRPC"
)

// GRPCAuthConfig is how to speak to a gRPC authorization service.
type GRPCAuthConfig struct {
	// allowedHeaders are the request headers that the service gets. Empty or
	// left out, all of them.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	AllowedRequestHeaders []string `json:"allowedHeaders,omitempty"`
}

// HTTPAuthConfig is how to speak to an HTTP authorization service.
type HTTPAuthConfig struct {
	// path is put before the path of the request. Empty or left out, nothing
	// is.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$`
	Path string `json:"path,omitempty"`

	// allowedHeaders are request headers that the service gets besides Host,
	// Method, Path, Content-Length and Authorization.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	AllowedRequestHeaders []string `json:"allowedHeaders,omitempty"`

	// allowedResponseHeaders are headers of the service's answer that are added
	// to the request. Empty or left out, all of them but Authority and Host.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	AllowedResponseHeaders []string `json:"allowedResponseHeaders,omitempty"`
}

// ForwardBodyConfig limits how much of the request body is forwarded.
type ForwardBodyConfig struct {
	// maxSize in bytes; 0 forwards nothing. The schema sets no bounds, so the
	// Go type is wide enough for whatever an API server stores: one object that
	// cannot be decoded would stop every read of the whole list.
	//
	// +optional
	MaxSize int `json:"maxSize,omitempty"`
}
