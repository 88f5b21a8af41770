// Package kuadrant turns plans into Kuadrant AuthPolicies (kuadrant.io/v1), which Authorino enforces. The shape of the
// object and why it is so: docs/decisions and docs/enforcers.
package kuadrant

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
)

// Enforcer is the name under which findings speak of this emitter.
const Enforcer = "kuadrant"

// AnnotationReplace on a Gateway, set to "true", lets our AuthPolicy displace other people's on the same Gateway.
const AnnotationReplace = "accesspolicy-operator/replace-authpolicies"

// Keys of the AuthPolicy's rules. Keys of policies have a slash, so none of them can be one of these.
const (
	KeyServiceAccount = "service-account"
	KeySPIFFE         = "spiffe"
	KeyAnonymous      = "anonymous"
	KeyRefuse         = "refuse"
	KeyFailClose      = "fail-close"
)

// Merge strategies of AuthPolicy overrides.
const (
	StrategyAtomic = "atomic"
	StrategyMerge  = "merge"
)

// Ways to verify a bearer token.
const (
	VerifyTokenReview = "tokenreview"
	VerifyJWT         = "jwt"
)

// Where the SPIFFE ID of a client certificate comes from.
const (
	// SPIFFEFromPeer is source.principal of the authorization request, which Envoy's own ext_authz filter sends and
	// Kuadrant's wasm plugin does not.
	SPIFFEFromPeer = "peer"
	// SPIFFEFromXFCC is the header x-forwarded-client-cert; only right behind a gateway that sanitises it.
	SPIFFEFromXFCC = "xfcc"
)

// Limits of what Authorino and the API server take.
const (
	// MaxExpression is cel-go's default limit of code points in one expression.
	MaxExpression = 100_000
	// MaxObject is the greatest size of the object as JSON in bytes: etcd refuses requests over 1.5 MiB, and managed
	// fields and Kuadrant's copies need room beside it.
	MaxObject = 1_300_000
	// maxRule is the greatest size of one rule's condition. It is far below MaxExpression, so that the author of one
	// policy alone cannot close a Gateway that others share.
	maxRule = 40_000
)

// DefaultMaxNamedEvaluators is how many policies get an Authorino evaluator of their own, named after them. Each costs
// every request a JSON marshal and a parse, so past this number the policies share the fewest evaluators that hold them.
const DefaultMaxNamedEvaluators = 4

// Options configure the emitter.
type Options struct {
	// Strategy of the overrides: StrategyAtomic (also for "") or StrategyMerge. With merge the AuthPolicies of routes
	// add to ours; their authors can then authenticate callers as anybody, so they must be trusted (docs/security.md).
	Strategy string
	// Audiences that a token must be made for; required.
	Audiences []string
	// Verify is VerifyTokenReview (also for "") or VerifyJWT, which needs Issuer.
	Verify string
	Issuer string
	// SPIFFEFrom is SPIFFEFromPeer (also for "") or SPIFFEFromXFCC.
	SPIFFEFrom string
	// MaxNamedEvaluators bounds the evaluators that are named after a policy; 0 means DefaultMaxNamedEvaluators.
	MaxNamedEvaluators int
}

// Validate returns an error that names the option which cannot be used.
func (o Options) Validate() error {
	switch {
	case !slices.Contains([]string{"", StrategyAtomic, StrategyMerge}, o.Strategy):
		return fmt.Errorf("overrides strategy %q: use atomic or merge", o.Strategy)
	case !slices.Contains([]string{"", VerifyTokenReview, VerifyJWT}, o.Verify):
		return fmt.Errorf("token verification %q: use tokenreview or jwt", o.Verify)
	case !slices.Contains([]string{"", SPIFFEFromPeer, SPIFFEFromXFCC}, o.SPIFFEFrom):
		return fmt.Errorf("SPIFFE source %q: use peer or xfcc", o.SPIFFEFrom)
	case len(o.Audiences) == 0:
		// An empty list would make Authorino accept tokens made for the Host header, which client and router choose.
		return errors.New("token audiences: none is configured; set the audience that agents' tokens are made for")
	case slices.Contains(o.Audiences, ""):
		return errors.New("token audiences: one of them is empty")
	case o.MaxNamedEvaluators < 0:
		return fmt.Errorf("named evaluators: %d is negative", o.MaxNamedEvaluators)
	}
	if o.Verify == VerifyJWT {
		if u, err := url.Parse(o.Issuer); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return fmt.Errorf("token issuer %q: verification by jwt needs the URL of the cluster's issuer", o.Issuer)
		}
	}
	return nil
}

func (o Options) maxNamed() int {
	if o.MaxNamedEvaluators == 0 {
		return DefaultMaxNamedEvaluators
	}
	return o.MaxNamedEvaluators
}
