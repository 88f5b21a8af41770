// Package envoygateway turns plans into Envoy Gateway SecurityPolicies (gateway.envoyproxy.io/v1alpha1), which Envoy
// itself enforces: tokens by its jwt_authn filter, rules by its RBAC filter. What it can express and how is in
// translator/ledger; why the object looks as it does, in docs/enforcers.md.
package envoygateway

import (
	"encoding/json"
	"errors"
	"fmt"
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
}

// Validate returns an error that names the option which cannot be used.
func (o Options) Validate() error {
	switch {
	case len(o.Audiences) == 0:
		return errors.New("token audiences: none is configured; set the audience that agents' tokens are made for")
	case len(o.Audiences) > MaxAudiences:
		return fmt.Errorf("token audiences: %d, a SecurityPolicy takes %d", len(o.Audiences), MaxAudiences)
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

func (o Options) verifiesTokens() bool { return o.Issuer != "" && o.JWKS != "" }
