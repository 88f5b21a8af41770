package pipeline

import (
	"maps"
	"slices"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
)

// path is one way from the Gateway to a rule of a route. Kuadrant computes one
// effective policy, and Authorino gets one AuthConfig, for each.
type path struct {
	gateway  *gateway
	listener listener
	route    *httpRoute
	rule     int
}

// id is the string whose SHA-256 names the AuthConfig.
// Read in: kuadrant-operator v1.5.2 api/v1/merge_strategies.go, PathID, and
// policy-machinery v0.8.0 machinery/gateway_api_types.go for the section names.
func (p path) id() string {
	gatewayKey := p.gateway.Namespace + "/" + p.gateway.Name
	routeKey := p.route.Namespace + "/" + p.route.Name

	return p.gateway.Spec.GatewayClassName + "|" + gatewayKey + "|" + gatewayKey + "#" + p.listener.Name +
		"|" + routeKey + "|" + routeKey + "#" + p.route.ruleName(p.rule)
}

// String names the path for people.
func (p path) String() string {
	return "gateway " + p.gateway.Namespace + "/" + p.gateway.Name + ", listener " + p.listener.Name +
		", route " + p.route.Namespace + "/" + p.route.Name + ", rule " + p.route.ruleName(p.rule)
}

// pathsOf lists every path of the Gateway, in the order of its listeners, then of
// the routes and their rules.
func pathsOf(gw *gateway, routes []*httpRoute) []path {
	var paths []path

	for _, l := range gw.Spec.Listeners {
		for _, route := range routes {
			if !slices.ContainsFunc(route.attachedTo(gw), func(a listener) bool { return a.Name == l.Name }) {
				continue
			}

			for rule := range route.Spec.Rules {
				paths = append(paths, path{gateway: gw, listener: l, route: route, rule: rule})
			}
		}
	}

	return paths
}

// policies picks those attached along the path, least specific target first and
// oldest first on the same target. The input is sorted by age.
// Read in: kuadrant-operator v1.5.2 api/v1/merge_strategies.go, PoliciesInPath.
func (p path) policies(sorted []*authPolicy) []*authPolicy {
	type target struct{ kind, namespace, name, section string }

	var found []*authPolicy

	for _, t := range []target{
		{"Gateway", p.gateway.Namespace, p.gateway.Name, ""},
		{"Gateway", p.gateway.Namespace, p.gateway.Name, p.listener.Name},
		{"HTTPRoute", p.route.Namespace, p.route.Name, ""},
		{"HTTPRoute", p.route.Namespace, p.route.Name, p.route.ruleName(p.rule)},
	} {
		for _, policy := range sorted {
			if policy.targets(t.kind, t.namespace, t.name, t.section) {
				found = append(found, policy)
			}
		}
	}

	return found
}

// ruleID is the unit of merging.
// Read in: kuadrant-operator v1.5.2 api/v1/authpolicy_types.go, Rules.
type ruleID struct {
	group ruleGroup
	name  string
}

type ruleGroup int

const (
	groupPatterns ruleGroup = iota
	groupWhen
	groupAuthentication
	groupMetadata
	groupAuthorization
	groupUnauthenticated
	groupUnauthorized
	groupSuccessHeaders
	groupSuccessFilters
	groupCallbacks
)

// ruleSet holds the rules of one policy or of several merged ones, each with the
// policy it comes from.
type ruleSet map[ruleID]sourcedRule

type sourcedRule struct {
	source string
	value  any
}

func (s ruleSet) add(source string, group ruleGroup, name string, value any) {
	s[ruleID{group, name}] = sourcedRule{source, value}
}

func addAll[T any](s ruleSet, source string, group ruleGroup, values map[string]T) {
	for name, value := range values {
		s.add(source, group, name, value)
	}
}

// rulesOf splits a policy into the units that merging works on.
func rulesOf(p *authPolicy) ruleSet {
	set := ruleSet{}
	source := p.key()
	spec := p.proper()

	addAll(set, source, groupPatterns, spec.Patterns)

	if len(spec.When) > 0 {
		// All conditions together are one unit, so merging never mixes two lists.
		set.add(source, groupWhen, "", spec.When)
	}

	addAll(set, source, groupAuthentication, spec.Rules.Authentication)
	addAll(set, source, groupMetadata, spec.Rules.Metadata)
	addAll(set, source, groupAuthorization, spec.Rules.Authorization)
	addAll(set, source, groupCallbacks, spec.Rules.Callbacks)

	response := spec.Rules.Response
	if response == nil {
		return set
	}

	if response.Unauthenticated != nil {
		set.add(source, groupUnauthenticated, "", *response.Unauthenticated)
	}

	if response.Unauthorized != nil {
		set.add(source, groupUnauthorized, "", *response.Unauthorized)
	}

	addAll(set, source, groupSuccessHeaders, response.Success.Headers)
	addAll(set, source, groupSuccessFilters, response.Success.Filters)

	return set
}

// merged lets the policy, which is less specific or older, act on what the more
// specific and newer ones left.
// Read in: kuadrant-operator v1.5.2 api/v1/merge_strategies.go.
func merged(policy *authPolicy, below ruleSet) ruleSet {
	own := rulesOf(policy)

	switch {
	case policy.spec.Overrides != nil && policy.spec.Overrides.Strategy == strategyMerge:
		return union(own, below)
	case policy.spec.Overrides != nil:
		return own
	case policy.spec.Defaults != nil && policy.spec.Defaults.Strategy == strategyMerge:
		return union(below, own)
	default:
		// Bare rules are atomic defaults. The operator asks whether the policy
		// below has rules at all; a policy without any is refused at the border.
		return below
	}
}

// union has every rule of both; where both have one, the first wins.
func union(first, second ruleSet) ruleSet {
	all := maps.Clone(second)
	maps.Copy(all, first)

	return all
}

// effective is what the policies along one path amount to, nil without policies.
// Read in: kuadrant-operator v1.5.2 api/v1/merge_strategies.go,
// EffectivePolicyForPath: reduced from the most specific to the least specific.
func effective(policies []*authPolicy) ruleSet {
	if len(policies) == 0 {
		return nil
	}

	set := rulesOf(policies[len(policies)-1])
	for _, policy := range slices.Backward(policies) {
		set = merged(policy, set)
	}

	return set
}

// when lists the conditions under which the shim asks Authorino at all.
func (s ruleSet) when() []whenPredicate {
	conditions, _ := s[ruleID{group: groupWhen}].value.([]whenPredicate)

	return conditions
}

// sources lists the policies that rules come from, sorted.
func (s ruleSet) sources() []string {
	names := map[string]bool{}
	for _, rule := range s {
		names[rule.source] = true
	}

	return slices.Sorted(maps.Keys(names))
}

func group[T any](s ruleSet, wanted ruleGroup) map[string]T {
	var values map[string]T

	for id, rule := range s {
		if id.group != wanted {
			continue
		}

		if values == nil {
			values = map[string]T{}
		}

		values[id.name] = rule.value.(T)
	}

	return values
}

// authConfigSpec is the AuthConfig of a path. The conditions of the policy are
// not in it: the operator gives them to the shim only.
// Read in: kuadrant-operator v1.5.2 internal/controller/authconfigs_reconciler.go,
// buildDesiredAuthConfig.
func (s ruleSet) authConfigSpec(host string) authorinov1beta3.AuthConfigSpec {
	spec := authorinov1beta3.AuthConfigSpec{
		Hosts:          []string{host},
		Authentication: group[authorinov1beta3.AuthenticationSpec](s, groupAuthentication),
		Metadata:       group[authorinov1beta3.MetadataSpec](s, groupMetadata),
		Authorization:  group[authorinov1beta3.AuthorizationSpec](s, groupAuthorization),
		Callbacks:      group[authorinov1beta3.CallbackSpec](s, groupCallbacks),
	}

	for name, patterns := range group[namedPatterns](s, groupPatterns) {
		if spec.NamedPatterns == nil {
			spec.NamedPatterns = map[string]authorinov1beta3.PatternExpressions{}
		}

		spec.NamedPatterns[name] = patterns.AllOf
	}

	response := authorinov1beta3.ResponseSpec{
		Success: authorinov1beta3.WrappedSuccessResponseSpec{
			Headers:         group[authorinov1beta3.HeaderSuccessResponseSpec](s, groupSuccessHeaders),
			DynamicMetadata: group[authorinov1beta3.SuccessResponseSpec](s, groupSuccessFilters),
		},
	}

	if deny, found := s[ruleID{group: groupUnauthenticated}]; found {
		response.Unauthenticated = pointer(deny.value.(authorinov1beta3.DenyWithSpec))
	}

	if deny, found := s[ruleID{group: groupUnauthorized}]; found {
		response.Unauthorized = pointer(deny.value.(authorinov1beta3.DenyWithSpec))
	}

	if response.Unauthenticated != nil || response.Unauthorized != nil ||
		response.Success.Headers != nil || response.Success.DynamicMetadata != nil {
		spec.Response = &response
	}

	return spec
}
