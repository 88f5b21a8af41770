package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"
)

// KindSecurityPolicy is the kind of SecurityPolicy.
const KindSecurityPolicy = "SecurityPolicy"

// SecurityPolicy says how requests to its targets are authenticated and authorized.
type SecurityPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SecurityPolicySpec      `json:"spec"`
	Status            gwv1alpha2.PolicyStatus `json:"status,omitzero"`
}

// SecurityPolicySpec has the fields that we write as types; those that only matter by being there are raw.
type SecurityPolicySpec struct {
	PolicyTargetReferences `json:",inline"`
	// MergeType of a route's policy: StrategicMerge or JSONMerge. Without it the policy replaces its parent as a whole.
	MergeType     *string               `json:"mergeType,omitempty"`
	JWT           *JWT                  `json:"jwt,omitempty"`
	ExtAuth       *ExtAuth              `json:"extAuth,omitempty"`
	Authorization *Authorization        `json:"authorization,omitempty"`
	APIKeyAuth    *runtime.RawExtension `json:"apiKeyAuth,omitempty"`
	BasicAuth     *runtime.RawExtension `json:"basicAuth,omitempty"`
	OIDC          *runtime.RawExtension `json:"oidc,omitempty"`
	CORS          *runtime.RawExtension `json:"cors,omitempty"`
	CSRF          *runtime.RawExtension `json:"csrf,omitempty"`
}

// JWT verifies tokens. With FailOpen a request whose token is missing or does not verify goes on without claims.
type JWT struct {
	Optional  *bool         `json:"optional,omitempty"`
	FailOpen  *bool         `json:"failOpen,omitempty"`
	Providers []JWTProvider `json:"providers"`
}

// JWTProvider is an issuer of tokens and the keys that it signs with.
type JWTProvider struct {
	Name        string                `json:"name"`
	Issuer      string                `json:"issuer,omitempty"`
	Audiences   []string              `json:"audiences,omitempty"`
	RemoteJWKS  *runtime.RawExtension `json:"remoteJWKS,omitempty"`
	LocalJWKS   *LocalJWKS            `json:"localJWKS,omitempty"`
	ExtractFrom *JWTExtractor         `json:"extractFrom,omitempty"`
}

// LocalJWKS holds the keys: Type Inline with Inline, or ValueRef.
type LocalJWKS struct {
	Type     string                     `json:"type"`
	Inline   *string                    `json:"inline,omitempty"`
	ValueRef *gwv1.LocalObjectReference `json:"valueRef,omitempty"`
}

// JWTExtractor says where a token is looked for; left out, also in the query of the request.
type JWTExtractor struct {
	Headers []JWTHeaderExtractor `json:"headers,omitempty"`
	Cookies []string             `json:"cookies,omitempty"`
	Params  []string             `json:"params,omitempty"`
}

// JWTHeaderExtractor reads a token behind ValuePrefix in a header.
type JWTHeaderExtractor struct {
	Name        string `json:"name"`
	ValuePrefix string `json:"valuePrefix,omitempty"`
}

// ExtAuth asks an external authorizer.
type ExtAuth struct {
	GRPC              *GRPCExtAuthService   `json:"grpc,omitempty"`
	HTTP              *runtime.RawExtension `json:"http,omitempty"`
	FailOpen          *bool                 `json:"failOpen,omitempty"`
	ContextExtensions []ContextExtension    `json:"contextExtensions,omitempty"`
	StatusOnError     *int32                `json:"statusOnError,omitempty"`
}

// GRPCExtAuthService is where the authorizer is.
type GRPCExtAuthService struct {
	BackendRefs []gwv1.BackendObjectReference `json:"backendRefs,omitempty"`
}

// ContextExtension is a value that the authorizer is given with every request; Type is Value.
type ContextExtension struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Value *string `json:"value,omitempty"`
}

// Actions of authorization rules.
const (
	ActionAllow = "Allow"
	ActionDeny  = "Deny"
)

// Authorization holds ordered rules; the first that matches decides.
type Authorization struct {
	Rules []AuthorizationRule `json:"rules,omitempty"`
	// DefaultAction decides where no rule matches; left out: Deny.
	DefaultAction string `json:"defaultAction,omitempty"`
}

// AuthorizationRule matches when all of its parts do.
type AuthorizationRule struct {
	Name      string     `json:"name,omitempty"`
	Action    string     `json:"action"`
	Principal *Principal `json:"principal,omitempty"`
	// CEL has 1 to 4096 characters of the subset that Envoy evaluates; an error is no match.
	CEL string `json:"cel,omitempty"`
}

// Principal matches when all of its parts do.
type Principal struct {
	JWT     *JWTPrincipal              `json:"jwt,omitempty"`
	Headers []AuthorizationHeaderMatch `json:"headers,omitempty"`
	// ClientCIDRs is the one part that Envoy Gateway can compare on a TCP connection.
	ClientCIDRs []string `json:"clientCIDRs,omitempty"`
}

// JWTPrincipal compares the claims of a token that Provider verified.
type JWTPrincipal struct {
	Provider string     `json:"provider"`
	Claims   []JWTClaim `json:"claims,omitempty"`
}

// JWTClaim is a claim that must be one of Values.
type JWTClaim struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// AuthorizationHeaderMatch is a header that must be one of Values, compared whole.
type AuthorizationHeaderMatch struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}
