package coverage_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/coverage"
)

// fact is what was found for a rule of a route on a listener. It has a route in Envoy for each match and host name.
type fact struct {
	// ours counts the ones that have our rules, kuadrant those that Kuadrant's filter is on for.
	ours, kuadrant, total int
	// answers500 is set where no request goes further.
	answers500 bool
}

// facts are filled in while a configuration is read.
type facts struct {
	baselines []coverage.Baseline
	found     map[spot]*fact
	// requests has, for each set of routes, what the filters of its listener say.
	requests map[string]chain
}

// chain is what the filters before a set of routes have to do with us.
type chain struct {
	// issuers are those that a token may be of, by the name of a requirement.
	issuers map[string][]string
	// misordered is set where authorization stands before what it needs, asksEarly where Authorino is asked before the MCP router.
	misordered, asksEarly bool
}

// search finds our rules in a configuration.
func search(t *testing.T, config *translated, baselines []coverage.Baseline) map[spot]*fact {
	t.Helper()
	f := facts{baselines: baselines, found: map[spot]*fact{}, requests: map[string]chain{}}
	for _, dump := range config.XDS {
		for _, c := range dump.Configs {
			for i := range c.DynamicListeners {
				f.listener(t, &c.DynamicListeners[i].ActiveState.Listener)
			}
		}
		for _, c := range dump.Configs {
			for i := range c.DynamicRouteConfigs {
				f.routes(t, &c.DynamicRouteConfigs[i].RouteConfig)
			}
		}
	}
	return f.found
}

func (f *facts) at(where spot) *fact {
	if f.found[where] == nil {
		f.found[where] = &fact{}
	}
	f.found[where].total++
	return f.found[where]
}

// listener looks at filters: at those of connections by themselves, at those of requests for what routes refer to.
func (f *facts) listener(t *testing.T, l *xdsListener) {
	t.Helper()
	all := l.FilterChains
	if l.DefaultFilterChain != nil {
		all = append(all, *l.DefaultFilterChain)
	}
	for _, each := range all {
		var rules *matcher
		for i := range each.Filters {
			filter := &each.Filters[i]
			if filter.Name == "envoy.filters.network.rbac" {
				rules = filter.TypedConfig.Matcher
			}
			if routes := filter.TypedConfig.RDS.RouteConfigName; routes != "" {
				f.requests[routes] = chainOf(t, filter.TypedConfig.HTTPFilters)
			}
		}
		kind, name, _ := strings.Cut(each.Name, "/")
		route := coverage.RouteID{Kind: map[string]string{"tcproute": coverage.KindTCPRoute, "tlsroute": coverage.KindTLSRoute}[kind]}
		if route.Kind == "" {
			continue
		}
		route.Namespace, route.Name, _ = strings.Cut(name, "/")
		where := listenerSpot(l.Name)
		where.route, where.rule = route, -1
		if at := f.at(where); f.isOurs(rules, nil) {
			at.ours++
		}
	}
}

// listenerSpot reads Envoy Gateway's name of a listener: NAMESPACE/GATEWAY/LISTENER, or with a ListenerSet's namespace and name
// before the last.
func listenerSpot(name string) spot {
	parts := strings.SplitN(name, "/", 3)
	return spot{gateway: parts[0] + "/" + parts[1], listener: parts[2]}
}

func chainOf(t *testing.T, filters []httpFilter) chain {
	t.Helper()
	var out chain
	authorization, needed, asked := -1, -1, -1
	for i, filter := range filters {
		switch {
		case filter.Name == "envoy.filters.http.rbac":
			authorization = i
		case strings.HasPrefix(filter.Name, "envoy.filters.http.ext_proc"):
			needed = i
			out.asksEarly = asked >= 0
		case strings.HasPrefix(filter.Name, "envoy.filters.http.ext_authz"):
			asked = i
		case filter.Name == "envoy.filters.http.jwt_authn":
			needed = i
			out.issuers = issuersOf(t, filter.TypedConfig)
		}
	}
	out.misordered = authorization >= 0 && authorization < needed
	return out
}

func issuersOf(t *testing.T, raw json.RawMessage) map[string][]string {
	t.Helper()
	var config struct {
		Providers      map[string]struct{ Issuer string }
		RequirementMap map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal(raw, &config))
	out := map[string][]string{}
	for name, requirement := range config.RequirementMap {
		for provider, p := range config.Providers {
			if strings.Contains(string(requirement), strconv.Quote(provider)) {
				out[name] = append(out[name], p.Issuer)
			}
		}
		slices.Sort(out[name])
	}
	return out
}

func (f *facts) routes(t *testing.T, r *xdsRoutes) {
	t.Helper()
	for _, host := range r.VirtualHosts {
		for i := range host.Routes {
			where := listenerSpot(host.Name[:strings.LastIndex(host.Name, "/")])
			parts := strings.Split(host.Routes[i].Name, "/") // httproute/NAMESPACE/NAME/rule/INDEX/match/INDEX/HOST
			if len(parts) < 5 || parts[3] != "rule" {
				continue
			}
			var err error
			where.rule, err = strconv.Atoi(parts[4])
			require.NoError(t, err)
			where.route = coverage.RouteID{Kind: map[string]string{"httproute": coverage.KindHTTPRoute, "grpcroute": coverage.KindGRPCRoute}[parts[0]], Namespace: parts[1], Name: parts[2]}
			f.route(t, &host.Routes[i], f.at(where), f.requests[r.Name])
		}
	}
}

func (f *facts) route(t *testing.T, r *xdsRoute, at *fact, before chain) {
	t.Helper()
	var authorization struct{ RBAC struct{ Matcher *matcher } }
	var tokens struct{ RequirementName string }
	var sent asked
	for filter, raw := range r.PerFilter {
		switch {
		case filter == "envoy.filters.http.rbac":
			require.NoError(t, json.Unmarshal(raw, &authorization))
		case filter == "envoy.filters.http.jwt_authn":
			require.NoError(t, json.Unmarshal(raw, &tokens))
		case strings.HasPrefix(filter, "envoy.filters.http.ext_authz/"):
			require.NoError(t, json.Unmarshal(raw, &sent))
		case strings.HasPrefix(filter, "envoy.filters.http.wasm/envoyextensionpolicy/") && strings.Contains(filter, "/kuadrant-"):
			at.kuadrant++
		}
	}
	if f.isOurs(authorization.RBAC.Matcher, before.issuers[tokens.RequirementName]) && !before.misordered || f.isAsked(sent) && !before.asksEarly {
		at.ours++
	}
	at.answers500 = at.answers500 || r.DirectResponse != nil && r.DirectResponse.Status == 500
}

// asked is what Envoy sends to an external authorizer.
type asked struct {
	CheckSettings struct{ ContextExtensions map[string]string }
}

// isAsked reports whether Authorino is asked about one of our objects.
func (f *facts) isAsked(a asked) bool {
	return slices.ContainsFunc(f.baselines, func(b coverage.Baseline) bool {
		return b.Security != nil && b.Security.Spec.ExtAuth != nil &&
			a.CheckSettings.ContextExtensions["host"] == *b.Security.Spec.ExtAuth.ContextExtensions[0].Value
	})
}

// isOurs reports whether rules and issuers are those of one of our objects.
func (f *facts) isOurs(m *matcher, issuers []string) bool {
	return m != nil && m.OnNoMatch.Action.TypedConfig.Name == "DENY" && slices.ContainsFunc(f.baselines, func(b coverage.Baseline) bool {
		if b.Security == nil || b.Security.Spec.ExtAuth != nil {
			return false
		}
		var rules, wanted, known []string
		for _, each := range m.MatcherList.Matchers {
			rules = append(rules, each.OnMatch.Action.TypedConfig.Name+" "+each.OnMatch.Action.Name)
		}
		for _, r := range b.Security.Spec.Authorization.Rules {
			wanted = append(wanted, strings.ToUpper(r.Action)+" "+r.Name)
		}
		if b.Security.Spec.JWT != nil {
			for _, p := range b.Security.Spec.JWT.Providers {
				known = append(known, p.Issuer)
			}
		}
		return slices.Equal(rules, wanted) && (b.Security.Spec.JWT == nil || slices.Equal(issuers, known))
	})
}
