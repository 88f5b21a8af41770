package coverage

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
)

type gwRaw = runtime.RawExtension

// refused returns why Envoy Gateway refuses a route's policy before it looks at the route, "" if it does not. Such a policy has
// no effect at all, though it keeps its target from younger ones. A policy that fails later replaces what is above it, and the
// route answers 500.
// Envoy Gateway: internal/gatewayapi/securitypolicy.go, validateSecurityPolicy, validateSecurityPolicyForTCP.
func refused(s *egv1a1.SecurityPolicySpec, routeKind string) string {
	if routeKind == KindTCPRoute {
		return refusedForTCP(s)
	}
	if several(s.APIKeyAuth) {
		return "apiKeyAuth.extractFrom mixes headers, params and cookies"
	}
	return passThrough(s)
}

// several reports whether an entry of apiKeyAuth.extractFrom has more than one kind of place.
func several(raw *gwRaw) bool {
	if raw == nil {
		return false
	}
	var auth struct {
		ExtractFrom []struct{ Headers, Params, Cookies []string }
	}
	if json.Unmarshal(raw.Raw, &auth) != nil {
		return false
	}
	for _, from := range auth.ExtractFrom {
		kinds := 0
		for _, list := range [][]string{from.Headers, from.Params, from.Cookies} {
			kinds += min(len(list), 1)
		}
		if kinds > 1 {
			return true
		}
	}
	return false
}

// passThrough is the fault of an OIDC policy that lets a token through for jwt to check.
func passThrough(s *egv1a1.SecurityPolicySpec) string {
	if s.OIDC == nil {
		return ""
	}
	var oidc struct {
		PassThroughAuthHeader *bool
		ForwardIDToken        *struct{ Header string }
	}
	if json.Unmarshal(s.OIDC.Raw, &oidc) != nil || oidc.PassThroughAuthHeader == nil || !*oidc.PassThroughAuthHeader {
		return ""
	}
	if s.JWT == nil {
		return "oidc.passThroughAuthHeader needs jwt"
	}
	var headers []string
	for _, p := range s.JWT.Providers {
		if p.ExtractFrom == nil {
			headers = append(headers, "Authorization")
			continue
		}
		for _, h := range p.ExtractFrom.Headers {
			headers = append(headers, h.Name)
		}
	}
	if len(headers) == 0 {
		return "oidc.passThroughAuthHeader needs a jwt provider that reads a header"
	}
	if oidc.ForwardIDToken != nil && slices.ContainsFunc(headers, func(h string) bool { return strings.EqualFold(h, oidc.ForwardIDToken.Header) }) {
		return "oidc.forwardIDToken uses a header that a jwt provider reads"
	}
	return ""
}

func refusedForTCP(s *egv1a1.SecurityPolicySpec) string {
	if s.CORS != nil || s.CSRF != nil || s.JWT != nil || s.OIDC != nil || s.APIKeyAuth != nil || s.BasicAuth != nil || s.ExtAuth != nil {
		return "only authorization is supported for TCP"
	}
	if s.Authorization == nil {
		return ""
	}
	for _, r := range s.Authorization.Rules {
		switch p := r.Principal; {
		case r.CEL != "":
			return "CEL is not supported for TCP"
		case p == nil:
		case p.JWT != nil || len(p.Headers) > 0:
			return "jwt and headers are not supported for TCP"
		case slices.ContainsFunc(p.ClientCIDRs, func(c string) bool { _, err := netip.ParsePrefix(c); return err != nil }):
			return "a client CIDR is none"
		}
	}
	return ""
}
