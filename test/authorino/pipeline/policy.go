package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// authPolicy is kuadrant.io/v1 AuthPolicy. The parts that Kuadrant hands on
// unread to Authorino are Authorino's own types.
// Read in: kuadrant-operator v1.5.2 api/v1/authpolicy_types.go.
type authPolicy struct {
	metav1.ObjectMeta
	spec authPolicySpec
}

type authPolicySpec struct {
	TargetRef targetRef      `json:"targetRef"`
	Defaults  *mergeableSpec `json:"defaults"`
	Overrides *mergeableSpec `json:"overrides"`
	properSpec
}

type targetRef struct {
	Group       string  `json:"group"`
	Kind        string  `json:"kind"`
	Name        string  `json:"name"`
	SectionName *string `json:"sectionName"`
}

type mergeableSpec struct {
	Strategy string `json:"strategy"`
	properSpec
}

type properSpec struct {
	Patterns map[string]namedPatterns `json:"patterns"`
	When     []whenPredicate          `json:"when"`
	Rules    *rules                   `json:"rules"`
}

type namedPatterns struct {
	AllOf authorinov1beta3.PatternExpressions `json:"allOf"`
}

type whenPredicate struct {
	Predicate string `json:"predicate"`
}

type rules struct {
	Authentication map[string]authorinov1beta3.AuthenticationSpec `json:"authentication"`
	Metadata       map[string]authorinov1beta3.MetadataSpec       `json:"metadata"`
	Authorization  map[string]authorinov1beta3.AuthorizationSpec  `json:"authorization"`
	Response       *responseRules                                 `json:"response"`
	Callbacks      map[string]authorinov1beta3.CallbackSpec       `json:"callbacks"`
}

type responseRules struct {
	Unauthenticated *authorinov1beta3.DenyWithSpec `json:"unauthenticated"`
	Unauthorized    *authorinov1beta3.DenyWithSpec `json:"unauthorized"`
	Success         struct {
		Headers map[string]authorinov1beta3.HeaderSuccessResponseSpec `json:"headers"`
		Filters map[string]authorinov1beta3.SuccessResponseSpec       `json:"filters"`
	} `json:"success"`
}

const (
	strategyAtomic = "atomic"
	strategyMerge  = "merge"
)

// decodePolicies reads AuthPolicies in their JSON form. An unknown field in a
// spec is an error: the API server would drop it, and the judge would then judge
// something else than what was written.
func decodePolicies(raw []json.RawMessage) ([]*authPolicy, error) {
	policies := make([]*authPolicy, 0, len(raw))

	for i, document := range raw {
		policy, err := decodePolicy(document)
		if err != nil {
			return nil, fmt.Errorf("authPolicies[%d]: %w", i, err)
		}

		policies = append(policies, policy)
	}

	// Read in: policy-machinery v0.8.0 controller/object.go, ObjectsByCreationTimestamp.
	slices.SortStableFunc(policies, func(a, b *authPolicy) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}

		return strings.Compare(a.key(), b.key())
	})

	return policies, nil
}

func decodePolicy(document json.RawMessage) (*authPolicy, error) {
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     json.RawMessage   `json:"spec"`
	}

	if err := json.Unmarshal(document, &object); err != nil {
		return nil, err
	}

	policy := &authPolicy{ObjectMeta: object.Metadata}
	if policy.Name == "" || len(object.Spec) == 0 {
		return nil, fmt.Errorf("policy %q: needs a name and a spec", policy.Name)
	}

	decoder := json.NewDecoder(bytes.NewReader(object.Spec))
	decoder.DisallowUnknownFields()

	if err := decoder.Decode(&policy.spec); err != nil {
		return nil, fmt.Errorf("policy %s: spec: %w", policy.key(), err)
	}

	return policy, policy.validate()
}

// validate repeats the two rules of the CRD that keep a policy unambiguous.
func (p *authPolicy) validate() error {
	bare := p.spec.Patterns != nil || p.spec.When != nil || p.spec.Rules != nil
	if p.spec.Defaults != nil && p.spec.Overrides != nil || bare && (p.spec.Defaults != nil || p.spec.Overrides != nil) {
		return fmt.Errorf("policy %s: give one of defaults, overrides and bare rules; the API server refuses more", p.key())
	}

	for _, part := range []*mergeableSpec{p.spec.Defaults, p.spec.Overrides} {
		if part != nil && part.Strategy != "" && part.Strategy != strategyAtomic && part.Strategy != strategyMerge {
			return fmt.Errorf("policy %s: strategy %q: use %s or %s", p.key(), part.Strategy, strategyAtomic, strategyMerge)
		}
	}

	if p.proper().Rules == nil {
		return fmt.Errorf("policy %s: no rules; the API server refuses it", p.key())
	}

	return nil
}

func (p *authPolicy) key() string { return p.Namespace + "/" + p.Name }

func (p *authPolicy) proper() properSpec {
	switch {
	case p.spec.Defaults != nil:
		return p.spec.Defaults.properSpec
	case p.spec.Overrides != nil:
		return p.spec.Overrides.properSpec
	default:
		return p.spec.properSpec
	}
}

// targets tells whether the policy is attached to the object of this kind and
// name, or to this section of it ("" for the object itself).
func (p *authPolicy) targets(kind, namespace, name, section string) bool {
	ref := p.spec.TargetRef

	return ref.Group == gatewayAPIGroup && ref.Kind == kind &&
		p.Namespace == namespace && ref.Name == name && valueOr(ref.SectionName, "") == section
}

// hasTarget tells whether the policy's target exists.
func (p *authPolicy) hasTarget(gw *gateway, routes []*httpRoute) bool {
	if p.targets("Gateway", gw.Namespace, gw.Name, "") {
		return true
	}

	for _, l := range gw.Spec.Listeners {
		if p.targets("Gateway", gw.Namespace, gw.Name, l.Name) {
			return true
		}
	}

	for _, route := range routes {
		if p.targets("HTTPRoute", route.Namespace, route.Name, "") {
			return true
		}

		for rule := range route.Spec.Rules {
			if p.targets("HTTPRoute", route.Namespace, route.Name, route.ruleName(rule)) {
				return true
			}
		}
	}

	return false
}
