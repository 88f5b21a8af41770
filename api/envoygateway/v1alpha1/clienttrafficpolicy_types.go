package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"
)

// ClientTrafficPolicy says how a Gateway's listeners treat their clients. It targets Gateways and ListenerSets.
type ClientTrafficPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ClientTrafficPolicySpec `json:"spec"`
	Status            gwv1alpha2.PolicyStatus `json:"status,omitzero"`
}

// ClientTrafficPolicySpec is the part that concerns identities and headers.
type ClientTrafficPolicySpec struct {
	PolicyTargetReferences `json:",inline"`
	TLS                    *ClientTLSSettings `json:"tls,omitempty"`
	Headers                *HeaderSettings    `json:"headers,omitempty"`
}

// ClientTLSSettings is the part that concerns client certificates.
type ClientTLSSettings struct {
	ClientValidation *ClientValidation `json:"clientValidation,omitempty"`
}

// Modes of ClientValidation.
const (
	RequireAndVerify = "RequireAndVerify"
	VerifyIfGiven    = "VerifyIfGiven"
)

// ClientValidation says whether a client certificate is asked for and verified.
type ClientValidation struct {
	// Optional is the older way to say VerifyIfGiven; Mode wins.
	Optional          bool                         `json:"optional,omitempty"`
	Mode              *string                      `json:"mode,omitempty"`
	CACertificateRefs []gwv1.SecretObjectReference `json:"caCertificateRefs,omitempty"`
	// AllowExpiredCertificate accepts certificates past their time.
	AllowExpiredCertificate *bool `json:"allowExpiredCertificate,omitempty"`
}

// HeaderSettings is the part that concerns headers which clients must not choose.
type HeaderSettings struct {
	EarlyRequestHeaders *HTTPHeaderFilter `json:"earlyRequestHeaders,omitempty"`
}

// HTTPHeaderFilter changes headers before anything else looks at them.
type HTTPHeaderFilter struct {
	Remove        []string      `json:"remove,omitempty"`
	RemoveOnMatch []StringMatch `json:"removeOnMatch,omitempty"`
}

// StringMatch compares a header's name; Type is Exact (also when left out), Prefix, Suffix or RegularExpression.
type StringMatch struct {
	Type  *string `json:"type,omitempty"`
	Value string  `json:"value"`
}

// Unverified returns why a certificate that a client presents is not proof of its identity, or "".
func (v *ClientValidation) Unverified() string {
	switch {
	case v.Mode != nil && *v.Mode != VerifyIfGiven && *v.Mode != RequireAndVerify:
		return "its mode is " + *v.Mode + ", use VerifyIfGiven or RequireAndVerify"
	case len(v.CACertificateRefs) == 0:
		return "it has no caCertificateRefs"
	case v.AllowExpiredCertificate != nil && *v.AllowExpiredCertificate:
		return "it allows expired ones"
	}
	return ""
}
