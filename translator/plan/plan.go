// Package plan is the intermediate form between XAccessPolicies and what an enforcer runs: who may do what on one
// attachment point of a Gateway. Decide is the reference evaluator that every enforcer is compared with; String explains
// a plan to a person. Nothing in here does I/O.
package plan

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"accesspolicy-operator/translator/cel"
)

// Plan holds everything that decides a request on one attachment point: a whole Gateway or one listener.
type Plan struct {
	Gateway types.NamespacedName
	// Listener is the listener's name; empty for the whole Gateway.
	Listener string
	// Host is the listener's host name, which can begin with *.; empty for every host and for the whole Gateway.
	Host string
	// Open is set where no XAccessPolicy targets the attachment point: requests are as the Gateway's owner left them.
	// An open plan has no refusals and no rules.
	Open bool
	// Profile says which MCP headers can be believed.
	Profile Profile
	// Refusals are looked at before any rule.
	Refusals []Refusal
	// Rules grant; the first that matches names the policy. None matches: denied.
	Rules []Rule
}

// Origin says where in the user's text a meaning comes from.
type Origin struct {
	Policy types.NamespacedName
	// Rule is the rule's name; empty where the policy as a whole is meant.
	Rule string
	// Field is the path in the policy, for instance spec.rules[0].
	Field string
}

// String gives namespace/policy/rule, or namespace/policy without a rule.
func (o Origin) String() string {
	s := o.Policy.String()
	if o.Rule != "" {
		s += "/" + o.Rule
	}
	return s
}

// Rule is one rule of an Allow policy. All parts that are set must hold; the zero value of a part is "no restriction".
// A part that was in the user's text and grants nothing is never represented by its zero value: the rule is left out of
// the plan instead.
type Rule struct {
	Origin Origin
	Source Source
	// Methods, Paths, Hosts: one of them must match. Headers: each must match.
	Methods []string
	Paths   []PathMatch
	Headers []HeaderMatch
	Hosts   []string
	// MCP is nil for no MCP-level check.
	MCP *MCPMatch
	// CEL is the user's expression. With it, MCP can only hold the base protocol option, as an alternative to it.
	CEL *cel.Expression
}

// Source is whom a rule speaks of.
type Source struct {
	// Any is any caller, also one without an identity. It is explicit, so that a forgotten principal means nobody.
	Any bool
	// Principals are compared whole: system:serviceaccount:<namespace>:<name> or a SPIFFE ID. Sorted, distinct.
	Principals []string
}

// PathType is how a PathMatch compares. The values are those of the API.
type PathType string

// Path types of XAccessPolicy (HTTPPathMatch.type).
const (
	PathExact  PathType = "Exact"
	PathPrefix PathType = "PathPrefix"
	PathRegex  PathType = "RegularExpression"
)

// PathMatch is a condition on the request path without its query. A prefix is stored without its trailing slashes; the
// empty prefix is every clean path (see CleanPath).
type PathMatch struct {
	Type  PathType
	Value string
}

// HeaderMatch is a condition on one header. Name is lower-case. Regex tells that Value is an RE2 expression for the whole
// value.
type HeaderMatch struct {
	Name  string
	Value string
	Regex bool
}

// MCPMatch is a condition on the MCP call; one of its parts must match.
type MCPMatch struct {
	Methods []MCPMethod
	// Base is the base protocol option (MATCH_BASE_PROTOCOL_METHODS).
	Base bool
}

// MCPMethod matches a method or a category of methods.
type MCPMethod struct {
	// Name is a whole method (tools/call), or with Category set a category (tools: every method tools/…).
	Name     string
	Category bool
	// Params are compared with what the method names: tool, prompt or resource URI. Empty: no restriction.
	Params []string
}

// Refusal stands for an ExternalAuth policy, whose callout is not made yet: the requests that it would have delegated are
// refused. Its conditions lean the other way: what cannot be told counts as a match.
type Refusal struct {
	Origin Origin
	// All refuses every request of the attachment point.
	All bool
	// Rules are read with the leaning of Refused; a part that could not be expressed is left out of them, which makes
	// them match more.
	Rules []Rule
}

// Identities tells which kinds of identity a plan looks at. A credential of another kind is not looked at, so a caller
// with that alone is unidentified.
type Identities struct {
	Token, SPIFFE bool
	// Anonymous is set when some rule can apply to an unidentified caller. Without it such a caller gets 401.
	Anonymous bool
}

// TokenPrefix is how the principal of a ServiceAccount begins, as TokenReview reports it.
const TokenPrefix = "system:serviceaccount:"

// SPIFFEPrefix is how the principal of a client certificate begins.
const SPIFFEPrefix = "spiffe://"

// Identities computes the kinds of identity in use.
func (p *Plan) Identities() Identities {
	var ids Identities
	add := func(r Rule) {
		for _, principal := range r.Source.Principals {
			ids.SPIFFE = ids.SPIFFE || strings.HasPrefix(principal, SPIFFEPrefix)
			ids.Token = ids.Token || strings.HasPrefix(principal, TokenPrefix)
		}
		if r.CEL != nil && r.Source.Any {
			uses := r.CEL.Uses()
			ids.Token = ids.Token || uses.Principal || uses.Identity
			ids.SPIFFE = ids.SPIFFE || uses.Principal
		}
		ids.Anonymous = ids.Anonymous || r.Source.Any
	}
	for _, r := range p.Rules {
		add(r)
	}
	for _, refusal := range p.Refusals {
		for _, r := range refusal.Rules {
			// A refusal never makes a caller welcome.
			anonymous := ids.Anonymous
			add(r)
			ids.Anonymous = anonymous
		}
	}
	if !ids.Token && !ids.SPIFFE {
		ids.Anonymous = true // no credential could help, so there is none to ask for: 403, not 401
	}
	return ids
}

// Policies returns the policies that have rules in the plan, in the plan's order.
func (p *Plan) Policies() []types.NamespacedName {
	var out []types.NamespacedName
	for _, r := range p.Rules {
		if len(out) == 0 || out[len(out)-1] != r.Origin.Policy {
			out = append(out, r.Origin.Policy)
		}
	}
	return out
}

// Same reports whether two plans of one Gateway decide alike. Within a Gateway a rule is the same rule wherever it
// stands, so comparing where the rules come from is enough.
func Same(a, b *Plan) bool {
	sameRule := func(x, y Rule) bool { return x.Origin == y.Origin }
	return a.Open == b.Open && slices.EqualFunc(a.Rules, b.Rules, sameRule) &&
		slices.EqualFunc(a.Refusals, b.Refusals, func(x, y Refusal) bool {
			return x.Origin == y.Origin && x.All == y.All && slices.EqualFunc(x.Rules, y.Rules, sameRule)
		})
}

// SortedPrincipals returns the distinct principals in order.
func SortedPrincipals(principals ...string) []string {
	slices.SortFunc(principals, cmp.Compare)
	return slices.Compact(principals)
}
