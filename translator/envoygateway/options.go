// Package envoygateway turns plans into Envoy Gateway SecurityPolicies (gateway.envoyproxy.io/v1alpha1), which Envoy
// itself enforces: tokens by its jwt_authn filter, rules by its RBAC filter. In a second form the SecurityPolicy has Envoy ask
// Authorino, and an AuthConfig (authorino.kuadrant.io/v1beta3) stands beside it. What the first can express and how is in
// translator/ledger; why the objects look as they do, in docs/enforcers.md.
package envoygateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"accesspolicy-operator/translator/kuadrant"
)

// Enforcer is the name under which findings speak of this emitter.
const Enforcer = "envoy-gateway"

// Limits of what the API server, Envoy Gateway and Envoy take.
const (
	// MaxExpression is the greatest number of characters of a rule's CEL (CRD: authorization.rules[].cel).
	MaxExpression = 4096
	// MaxRuleName is the greatest length of a rule's name (CRD: authorization.rules[].name).
	MaxRuleName = 253
	// MaxAudiences is the greatest number of audiences of a JWT provider (CRD: jwt.providers[].audiences).
	MaxAudiences = 8
	// MaxHeaderName is the greatest length of the name of a header (CRD: principal.headers[].name).
	MaxHeaderName = 256
	// MaxProgram is the greatest size of a regular expression that Envoy's CEL runs, in instructions of RE2.
	MaxProgram = 100
	// MaxNesting is the greatest depth of a rule's CEL as cel.Nesting counts it. Envoy reads 100 and needs some for what
	// stands around it.
	MaxNesting = 80
	// MaxObject is the greatest size of the object as JSON in bytes: etcd refuses requests over 1.5 MiB, and managed
	// fields need room beside it.
	MaxObject = 1_300_000
)

// Provider is the name of the JWT provider in generated objects.
const Provider = "service-account"

// Options configure the emitter.
type Options struct {
	// Audiences that a token must be made for, 1 to MaxAudiences.
	Audiences []string
	// Issuer is the issuer of ServiceAccount tokens, and JWKS the keys that it signs with, as a JSON Web Key Set. While
	// one of them is empty no token can be verified: rules for ServiceAccounts are left out.
	Issuer, JWKS string
	// Form is FormNative (also for "") or FormExtAuth, for Gateways without AnnotationForm.
	Form string
	// Authorino is where FormExtAuth asks; without it that form cannot be had.
	Authorino Service
	// Scheme says how Authorino verifies tokens; its audiences and where it has SPIFFE IDs from are not looked at.
	Scheme kuadrant.Options
}

// Validate returns an error that names the option which cannot be used.
func (o Options) Validate() error {
	switch {
	case len(o.Audiences) == 0:
		return errors.New("token audiences: none is configured; set the audience that agents' tokens are made for")
	case len(o.Audiences) > MaxAudiences:
		return fmt.Errorf("token audiences: %d, a SecurityPolicy takes %d", len(o.Audiences), MaxAudiences)
	case o.Form != "" && !slices.Contains(Forms(), o.Form):
		return fmt.Errorf("form of Envoy Gateway's policies %q: use %s", o.Form, strings.Join(Forms(), " or "))
	case o.Form == FormExtAuth && o.Authorino == (Service{}):
		return fmt.Errorf("form of Envoy Gateway's policies: %s needs Authorino's service", FormExtAuth)
	case o.JWKS != "" && !isKeySet(o.JWKS):
		return errors.New("JWKS: not a JSON Web Key Set with at least one key")
	}
	return nil
}

// isKeySet keeps text that is no key set out of the object: Envoy Gateway would answer it with a policy that it refuses.
func isKeySet(text string) bool {
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	return json.Unmarshal([]byte(text), &set) == nil && len(set.Keys) > 0
}

// form is the form of a Gateway that asks for none.
func (o Options) form() string { return cmp.Or(o.Form, FormNative) }

func (o Options) verifiesTokens() bool { return o.Issuer != "" && o.JWKS != "" }
