package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindSecurityPolicy is the kind of SecurityPolicy.
const KindSecurityPolicy = "SecurityPolicy"

// SecurityPolicy says how requests to its targets are authenticated and authorized.
type SecurityPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SecurityPolicySpec `json:"spec"`
}

// SecurityPolicySpec has the fields that we write.
type SecurityPolicySpec struct {
	PolicyTargetReferences `json:",inline"`
	JWT                    *JWT           `json:"jwt,omitempty"`
	Authorization          *Authorization `json:"authorization,omitempty"`
}

// JWT verifies tokens. With FailOpen a request whose token is missing or does not verify goes on without claims.
type JWT struct {
	FailOpen  *bool         `json:"failOpen,omitempty"`
	Providers []JWTProvider `json:"providers"`
}

// JWTProvider is an issuer of tokens and the keys that it signs with.
type JWTProvider struct {
	Name        string        `json:"name"`
	Issuer      string        `json:"issuer,omitempty"`
	Audiences   []string      `json:"audiences,omitempty"`
	LocalJWKS   *LocalJWKS    `json:"localJWKS,omitempty"`
	ExtractFrom *JWTExtractor `json:"extractFrom,omitempty"`
}

// LocalJWKS holds the keys: Type is Inline.
type LocalJWKS struct {
	Type   string  `json:"type"`
	Inline *string `json:"inline,omitempty"`
}

// JWTExtractor says where a token is looked for; left out, also in the query of the request.
type JWTExtractor struct {
	Headers []JWTHeaderExtractor `json:"headers,omitempty"`
}

// JWTHeaderExtractor reads a token behind ValuePrefix in a header.
type JWTHeaderExtractor struct {
	Name        string `json:"name"`
	ValuePrefix string `json:"valuePrefix,omitempty"`
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
