package pipeline

import (
	"fmt"
	"slices"
	"strings"
)

// actionSet is one entry of the wasm-shim's configuration that calls Authorino:
// a host name, the predicates of one match of a route rule, and the AuthConfig.
type actionSet struct {
	hostname   string
	match      httpRouteMatch
	route      *httpRoute
	predicates []*shimPredicate
	when       []*shimPredicate
	target     *authConfig
}

// actionSetsOf builds the action sets of a path. A path with none passes requests
// unauthorized; that is what the operator does too, so the judge must keep it.
// Read in: kuadrant-operator v1.5.2 internal/wasm/utils.go, BuildActionSetsForPath.
func actionSetsOf(target *authConfig, conditions []whenPredicate) ([]*actionSet, error) {
	when, err := compileWhen(conditions)
	if err != nil {
		// Read in: kuadrant-operator v1.5.2 internal/controller/
		// istio_extension_reconciler.go, buildWasmConfigs: an action whose
		// condition is not valid CEL is left out, and with it the action set.
		target.warn("the policy's `when` is not valid CEL (%v): Kuadrant leaves the action out and the path is open", err)

		return nil, nil
	}

	p := target.path

	var sets []*actionSet

	for _, hostname := range hostnamesOf(p.listener, p.route) {
		for i, match := range p.route.Spec.Rules[p.rule].Matches {
			predicates, err := compileRoute(match)
			if err != nil {
				return nil, fmt.Errorf("%s, match %d: %w; the shim would refuse its whole configuration", p, i, err)
			}

			sets = append(sets, &actionSet{
				hostname: hostname, match: match, route: p.route,
				predicates: predicates, when: when, target: target,
			})
		}
	}

	return sets, nil
}

// hostnamesOf is not the intersection of Gateway API: a route host name that is
// wider than the listener's is dropped, and then nothing guards that route there.
// Read in: kuadrant-operator v1.5.2 internal/gatewayapi/utils.go,
// HostnamesFromListenerAndHTTPRoute, and internal/utils SubsetOf.
func hostnamesOf(l listener, route *httpRoute) []string {
	if len(route.Spec.Hostnames) == 0 {
		return []string{l.hostname()}
	}

	var kept []string

	for _, hostname := range route.Spec.Hostnames {
		if subsetOf(hostname, l.hostname()) {
			kept = append(kept, hostname)
		}
	}

	return kept
}

func subsetOf(inner, outer string) bool {
	outerSuffix, outerWild := strings.CutPrefix(outer, "*")
	innerSuffix, innerWild := strings.CutPrefix(inner, "*")

	switch {
	case innerWild && outerWild:
		return strings.HasSuffix(innerSuffix, outerSuffix)
	case innerWild:
		return false
	case outerWild:
		return strings.HasSuffix(inner, outerSuffix)
	default:
		return inner == outer
	}
}

// routePredicates are the CEL predicates that the operator makes of a match. Like
// the operator's, they quote nothing, and a path prefix is a prefix of the string.
// Read in: kuadrant-operator v1.5.2 internal/wasm/utils.go, PredicatesFromHTTPRouteMatch.
func routePredicates(m httpRouteMatch) []string {
	var predicates []string

	if m.Method != nil {
		predicates = append(predicates, fmt.Sprintf("request.method == '%s'", *m.Method))
	}

	switch value := *m.Path.Value; *m.Path.Type {
	case pathPrefix:
		predicates = append(predicates, fmt.Sprintf("request.url_path.startsWith('%s')", value))
	case pathRegularExpression:
		predicates = append(predicates, fmt.Sprintf("request.url_path.matches('%s')", value))
	default:
		predicates = append(predicates, fmt.Sprintf("request.url_path == '%s'", value))
	}

	for _, header := range m.Headers {
		predicates = append(predicates, fmt.Sprintf(
			"request.headers.exists(name, name.lowerAscii() == '%s' && request.headers[name] == '%s')",
			strings.ToLower(header.Name), header.Value))
	}

	seen := map[string]bool{}

	for _, param := range m.QueryParams {
		if seen[param.Name] {
			continue
		}

		seen[param.Name] = true
		predicates = append(predicates, fmt.Sprintf(
			"'%s' in queryMap(request.query) ? queryMap(request.query)['%s'] == '%s' : false",
			param.Name, param.Name, param.Value))
	}

	return predicates
}

// compareActionSets orders action sets as the operator writes them; the shim takes
// the first that matches. Zero means that the operator leaves the order to chance:
// it collects paths from a map and sorts without a stable sort.
// Read in: kuadrant-operator v1.5.2 internal/gatewayapi/types.go,
// SortableHTTPRouteMatchConfigs, and internal/utils CompareHostnamesSpecificity.
func compareActionSets(a, b *actionSet) int {
	if a.hostname != b.hostname {
		return compareHostnames(a.hostname, b.hostname)
	}

	if c := pathTypeRank(a.match) - pathTypeRank(b.match); c != 0 {
		return c
	}

	if c := len(*b.match.Path.Value) - len(*a.match.Path.Value); c != 0 {
		return c
	}

	// A match without a method stands before one with a method. Gateway API has it
	// the other way round; the operator's order is what the shim sees.
	if (a.match.Method == nil) != (b.match.Method == nil) {
		if a.match.Method == nil {
			return -1
		}

		return 1
	}

	if c := len(b.match.Headers) - len(a.match.Headers); c != 0 {
		return c
	}

	if c := len(b.match.QueryParams) - len(a.match.QueryParams); c != 0 {
		return c
	}

	if c := a.route.CreationTimestamp.Compare(b.route.CreationTimestamp.Time); c != 0 {
		return c
	}

	return strings.Compare(a.route.Namespace+"/"+a.route.Name, b.route.Namespace+"/"+b.route.Name)
}

func pathTypeRank(m httpRouteMatch) int {
	switch *m.Path.Type {
	case pathExact:
		return 0
	case pathRegularExpression:
		return 1
	default:
		return 2
	}
}

func compareHostnames(a, b string) int {
	if c := strings.Count(b, ".") - strings.Count(a, "."); c != 0 {
		return c
	}

	aWild, bWild := strings.HasPrefix(a, "*"), strings.HasPrefix(b, "*")
	if aWild != bWild {
		if bWild {
			return -1
		}

		return 1
	}

	return strings.Compare(a, b)
}

// hostIndex finds action sets by host name. It has one list per host name and
// looks at one list only: when none of the sets of the most specific host name
// match, wider ones are not asked.
// Read in: wasm-shim src/kuadrant/pipeline/factory.rs (commit 0174b425),
// select_blueprint, get_hostname and reverse_subdomain.
type hostIndex map[string][]*actionSet

func newHostIndex(sets []*actionSet) hostIndex {
	sorted := slices.Clone(sets)
	slices.SortStableFunc(sorted, compareActionSets)

	index := hostIndex{}
	for _, set := range sorted {
		index[set.hostname] = append(index[set.hostname], set)
	}

	return index
}

// candidates is the list of the most specific host name that covers the host. The
// port is cut off, letters are compared as they are.
func (index hostIndex) candidates(host string) []*actionSet {
	name, _, _ := strings.Cut(host, ":")

	if sets, found := index[name]; found && !strings.HasPrefix(name, "*") {
		return sets
	}

	for rest := name; ; {
		_, suffix, found := strings.Cut(rest, ".")
		if !found {
			return index["*"]
		}

		if sets, found := index["*."+suffix]; found {
			return sets
		}

		rest = suffix
	}
}

// selected tells the action sets that answer for the request: one, or several that
// the operator leaves in no order. None means that the request passes.
func (index hostIndex) selected(attributes shimAttributes) ([]*actionSet, error) {
	candidates := index.candidates(attributes.host())

	for i, set := range candidates {
		matches, err := allTrue(set.predicates, attributes)
		if err != nil {
			return nil, fmt.Errorf("route predicate of %s: %w", set.target.path, err)
		}

		if !matches {
			continue
		}

		tied := []*actionSet{set}

		for _, other := range candidates[i+1:] {
			if compareActionSets(set, other) != 0 {
				break
			}

			if matches, err := allTrue(other.predicates, attributes); err == nil && matches {
				tied = append(tied, other)
			}
		}

		return tied, nil
	}

	return nil, nil
}
