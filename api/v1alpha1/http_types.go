package v1alpha1

// HTTPMethod is an HTTP request method.
//
// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;DELETE;CONNECT;OPTIONS;TRACE;PATCH
type HTTPMethod string

// The HTTP methods that a rule can name.
const (
	HTTPMethodGet     HTTPMethod = "GET"
	HTTPMethodHead    HTTPMethod = "HEAD"
	HTTPMethodPost    HTTPMethod = "POST"
	HTTPMethodPut     HTTPMethod = "PUT"
	HTTPMethodDelete  HTTPMethod = "DELETE"
	HTTPMethodConnect HTTPMethod = "CONNECT"
	HTTPMethodOptions HTTPMethod = "OPTIONS"
	HTTPMethodTrace   HTTPMethod = "TRACE"
	HTTPMethodPatch   HTTPMethod = "PATCH"
)

// PathMatchType is a way to compare a request path.
//
// +kubebuilder:validation:Enum=Exact;PathPrefix;RegularExpression
type PathMatchType string

const (
	// PathMatchExact compares the whole path.
	PathMatchExact PathMatchType = "Exact"

	// PathMatchPathPrefix compares whole path elements, split at "/", from the
	// left.
	PathMatchPathPrefix PathMatchType = "PathPrefix"

	// PathMatchRegularExpression compares with an RE2 expression.
	PathMatchRegularExpression PathMatchType = "RegularExpression"
)

// HTTPPathMatch is a condition on the request path. Unlike Gateway API's type
// of this name, its value defaults to the empty string and need not begin with
// a slash as far as the schema is concerned.
type HTTPPathMatch struct {
	// type is the way to compare.
	//
	// +optional
	// +kubebuilder:default=PathPrefix
	Type *PathMatchType `json:"type,omitempty"`

	// value is what to compare with.
	//
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=1024
	Value *string `json:"value,omitempty"`
}

// HeaderMatchType is a way to compare a header value.
//
// +kubebuilder:validation:Enum=Exact;RegularExpression
type HeaderMatchType string

const (
	// HeaderMatchExact compares the whole value.
	HeaderMatchExact HeaderMatchType = "Exact"

	// HeaderMatchRegularExpression compares with an RE2 expression.
	HeaderMatchRegularExpression HeaderMatchType = "RegularExpression"
)

// HTTPHeaderName is the name of a header; its case does not matter (RFC 9110,
// section 5.1).
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$`
type HTTPHeaderName string

// HTTPHeaderMatch is a condition on one request header.
type HTTPHeaderMatch struct {
	// type is the way to compare.
	//
	// +optional
	// +kubebuilder:default=Exact
	Type *HeaderMatchType `json:"type,omitempty"`

	// name of the header.
	//
	// +required
	Name HTTPHeaderName `json:"name"`

	// value is what to compare with.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value"`
}

// Hostname is a DNS name; its first label may be "*".
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
type Hostname string

// PortNumber is a TCP port.
//
// +kubebuilder:validation:Minimum=1
// +kubebuilder:validation:Maximum=65535
type PortNumber int32
