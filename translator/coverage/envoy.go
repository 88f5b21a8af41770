package coverage

import (
	"fmt"
	"reflect"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
)

// envoyJudge answers for SecurityPolicies. Of the policies of a rule, a route, a listener, a ListenerSet and a Gateway the
// narrowest decides alone: Envoy Gateway sets what a route has as a whole, and skips what comes later.
// Envoy Gateway: internal/gatewayapi/securitypolicy.go, translateSecurityPolicyFor*.
type envoyJudge struct {
	*world
	gateway   *Gateway
	baselines []*Baseline
}

func (j *envoyJudge) listener(l *listener) answer {
	meant := meantFor(j.baselines, l)
	if meant == nil {
		return notTargeted(l)
	}
	if !l.speaksHTTP() {
		return notHTTP(l)
	}
	winner, _ := j.security.above(l)
	return j.extendedAt(l, nil, rule{}).answers500(j.reported(j.byListener(winner, l, meant), meant, winner))
}

func (j *envoyJudge) route(a *attachment, r rule) answer {
	meant := meantFor(j.baselines, a.listener)
	if meant == nil {
		return notTargeted(a.listener)
	}
	if !a.listener.speaksHTTP() {
		return j.connection(a, r)
	}
	above, _ := j.security.above(a.listener)
	note := answer{}
	for _, p := range j.security.atRoute(a.route, r) {
		switch effect, problem := effectOf(p, above, a.route.Kind); effect {
		case none:
			note.reason = PolicyInvalid
			note.why = fmt.Sprintf("%s on %s would replace it, but Envoy Gateway refuses that policy (%s), so that it has no effect; delete it before somebody mends it", p, p.target(), problem)
		case replaces:
			return replacedBy(p, meant)
		case merges:
			return j.merged(p, above)
		}
	}
	out := j.reported(j.byListener(above, a.listener, meant), meant, above)
	if out.covered {
		out.reason, out.why = note.reason, note.why
	}
	return j.extendedAt(a.listener, a.route, r).answers500(out)
}

// byListener answers where no policy of a route decides.
func (j *envoyJudge) byListener(winner placed, l *listener, meant *Baseline) answer {
	name := "SecurityPolicy " + nameOf(&meant.Security.ObjectMeta).String()
	if winner.policy == nil {
		return answer{reason: NotTargeted, why: fmt.Sprintf("%s targets nothing that there is; see its targetRefs", name)}
	}
	if winner.ours {
		return answer{covered: true, by: winner.String()}
	}
	out := answer{displacedBy: winner.String()}
	switch {
	case winner.scope.section == meant.Listener && winner.scope.kind == kindGateway:
		out.reason = OlderPolicy
		out.why = fmt.Sprintf("%s is older and is attached to %s, too, so %s is Conflicted; delete it, or let it target something else", winner, winner.target(), name)
	case winner.scope.kind == kindListenerSet:
		out.reason = ListenerSetPolicy
		out.why = fmt.Sprintf("%s is attached to %s, which counts before the Gateway's; delete it, or take its rules into an XAccessPolicy", winner, winner.target())
	default:
		out.reason = ListenerPolicy
		out.why = fmt.Sprintf("%s is attached to %s, which counts before the whole Gateway's; delete it, or target listener %s in an XAccessPolicy", winner, winner.target(), l.Name)
	}
	return out
}

func replacedBy(p placed, meant *Baseline) answer {
	out := answer{displacedBy: p.String(), reason: RoutePolicy}
	if p.scope.section != "" {
		out.reason = RulePolicy
	}
	cure := "set mergeType: StrategicMerge in it"
	if s := p.security.Spec; asking(&meant.Security.Spec) {
		if s.ExtAuth != nil {
			cure = "delete it: with mergeType its own extAuth would still replace ours"
		}
	} else if s.Authorization != nil && len(s.Authorization.Rules) > 0 || s.JWT != nil {
		cure = "delete it: with mergeType its own rules or providers would still replace ours"
	}
	out.why = fmt.Sprintf("%s on %s has %s and no mergeType, so it stands in place of the whole baseline; %s", p, p.target(), contents(&p.security.Spec), cure)
	return out
}

// contents names what a policy has, for people.
func contents(s *egv1a1.SecurityPolicySpec) string {
	var parts []string
	for _, part := range []struct {
		name string
		has  bool
	}{{"authorization", s.Authorization != nil}, {"jwt", s.JWT != nil}, {"extAuth", s.ExtAuth != nil}, {"oidc", s.OIDC != nil},
		{"basicAuth", s.BasicAuth != nil}, {"apiKeyAuth", s.APIKeyAuth != nil}, {"cors", s.CORS != nil}, {"csrf", s.CSRF != nil}} {
		if part.has {
			parts = append(parts, part.name)
		}
	}
	if len(parts) == 0 {
		return "nothing in it"
	}
	return "only " + strings.Join(parts, ", ")
}

// effect is what a route's policy does to the policy above it.
type effect int

const (
	// none: it is refused before it is translated, and what is above it counts.
	none effect = iota
	// replaces also stands for a policy that cannot be translated: then the route answers 500.
	replaces
	merges
)

// effectOf returns what a policy of a route does, and why it has none.
// Envoy Gateway: internal/gatewayapi/securitypolicy.go, processSecurityPolicyForRoute.
func effectOf(p, above placed, routeKind string) (effect, string) {
	if problem := refused(&p.security.Spec, routeKind); problem != "" {
		return none, problem
	}
	result, kind := &p.security.Spec, replaces
	if p.mergeType != nil && above.policy != nil {
		merged := mergedSpec(&above.security.Spec, &p.security.Spec)
		if problem := refused(&merged, routeKind); problem != "" {
			return none, problem
		}
		result, kind = &merged, merges
	}
	if routeKind == KindTCPRoute && result.Authorization == nil {
		return none, "it has no authorization, which is all that counts for TCP"
	}
	return kind, ""
}

// mergedSpec is what a policy with a mergeType becomes. Only what matters here is merged: StrategicMerge and JSONMerge agree on
// it, because Envoy Gateway's lists of rules and providers have no merge key, so that a list replaces a list; and
// defaultAction is always written, so that a child's authorization without it takes the parent's away, which leaves Deny.
// Envoy Gateway: internal/utils/merge.go; api/v1alpha1/authorization_types.go.
func mergedSpec(parent, child *egv1a1.SecurityPolicySpec) egv1a1.SecurityPolicySpec {
	out := *child
	switch {
	case child.Authorization == nil:
		out.Authorization = parent.Authorization
	case parent.Authorization != nil:
		merged := *child.Authorization
		if len(merged.Rules) == 0 {
			merged.Rules = parent.Authorization.Rules
		}
		out.Authorization = &merged
	}
	switch {
	case child.JWT == nil:
		out.JWT = parent.JWT
	case parent.JWT != nil && len(child.JWT.Providers) == 0:
		merged := *child.JWT
		merged.Providers = parent.JWT.Providers
		out.JWT = &merged
	}
	for _, part := range []struct {
		of   **gwRaw
		from *gwRaw
	}{{&out.APIKeyAuth, parent.APIKeyAuth}, {&out.BasicAuth, parent.BasicAuth}, {&out.OIDC, parent.OIDC}, {&out.CORS, parent.CORS}, {&out.CSRF, parent.CSRF}} {
		if *part.of == nil {
			*part.of = part.from
		}
	}
	if out.ExtAuth == nil {
		out.ExtAuth = parent.ExtAuth
	}
	return out
}

// merged answers where a route's policy is merged into the one above.
func (j *envoyJudge) merged(p, above placed) answer {
	if !above.ours {
		return answer{reason: MergedElsewhere, displacedBy: above.String(), why: fmt.Sprintf(
			"%s on %s is merged into %s of %s, which counts before ours; delete the latter, or take its rules into an XAccessPolicy", p, p.target(), above, above.target())}
	}
	ours, child := &above.security.Spec, &p.security.Spec
	result := mergedSpec(ours, child)
	out := answer{displacedBy: p.String()}
	switch {
	case asking(ours) && child.ExtAuth != nil: // how its parts are merged is not worked out
		out.reason = ExtAuthReplaced
		out.why = fmt.Sprintf("%s on %s is merged into ours, and its extAuth takes the place of ours or of parts of it; take extAuth out of it", p, p.target())
	case asking(ours):
		return answer{covered: true, by: above.String(), reason: Merged, why: fmt.Sprintf("%s on %s is merged into ours, and Authorino is asked all the same; extAuth in it would replace ours", p, p.target())}
	case !reflect.DeepEqual(rulesOf(&result), rulesOf(ours)):
		out.reason = RulesReplaced
		out.why = fmt.Sprintf("%s on %s is merged into ours, and its authorization.rules replace ours, because lists are not merged; take the rules out of it, or into an XAccessPolicy", p, p.target())
	case result.Authorization != nil && result.Authorization.DefaultAction == egv1a1.ActionAllow:
		out.reason = DefaultAllow
		out.why = fmt.Sprintf("%s on %s is merged into ours, and its authorization.defaultAction Allow admits what no rule of ours allows; take it out", p, p.target())
	case ours.JWT != nil && !reflect.DeepEqual(result.JWT.Providers, ours.JWT.Providers):
		out.reason = ProvidersReplaced
		out.why = fmt.Sprintf("%s on %s is merged into ours, and its jwt.providers replace ours, so that our rules read tokens of somebody else or none; take jwt out of it", p, p.target())
	default:
		return answer{covered: true, by: above.String(), reason: Merged, why: fmt.Sprintf("%s on %s is merged into ours and leaves it whole; rules or providers in it would replace ours", p, p.target())}
	}
	return out
}

func rulesOf(s *egv1a1.SecurityPolicySpec) []egv1a1.AuthorizationRule {
	if s.Authorization == nil {
		return nil
	}
	return s.Authorization.Rules
}

func notHTTP(l *listener) answer {
	return answer{reason: NotHTTP, why: fmt.Sprintf("listener %s speaks %s, where no rule for HTTP requests can be checked; give it a Gateway of its own, or accept that it is open", l.Name, l.Protocol)}
}

// connection answers for a route outside HTTP, where only authorization counts, and only by client address.
// Envoy Gateway: internal/gatewayapi/securitypolicy.go, translateSecurityPolicyForListeners (TCP listeners).
func (j *envoyJudge) connection(a *attachment, r rule) answer {
	if a.listener.Protocol == gwv1.UDPProtocolType {
		return notHTTP(a.listener)
	}
	winner, authorization := j.authorizing(a, r)
	switch {
	case winner.policy == nil:
		return notHTTP(a.listener)
	case !winner.ours:
		return answer{reason: NotHTTP, displacedBy: winner.String(), why: fmt.Sprintf("%s of %s decides by client address on listener %s, which does not speak HTTP; nothing of ours can be checked there", winner, winner.target(), a.listener.Name)}
	case len(authorization.Rules) == 0:
		return answer{covered: true, by: winner.String(), reason: ConnectionsRefused, why: fmt.Sprintf(
			"%s has no rules, so that every connection to %s is refused; give the listener a Gateway of its own if it is meant to work", winner, a.route.ID())}
	default:
		return notHTTP(a.listener) // the whole Gateway fails, see failing
	}
}

// authorizing is the policy whose authorization a TCP connection gets: one without authorization is passed over there.
func (j *world) authorizing(a *attachment, r rule) (placed, *egv1a1.Authorization) {
	above, _ := j.security.above(a.listener)
	if a.route.Kind == KindTCPRoute {
		for _, p := range j.security.atRoute(a.route, r) {
			switch effect, _ := effectOf(p, above, a.route.Kind); effect {
			case none:
			case replaces:
				return p, p.security.Spec.Authorization
			case merges:
				merged := mergedSpec(&above.security.Spec, &p.security.Spec)
				return p, merged.Authorization
			}
		}
	}
	for _, s := range scopesOf(a.listener) {
		if p, ok := j.security[s]; ok && p.security.Spec.Authorization != nil {
			return p, p.security.Spec.Authorization
		}
	}
	return placed{}, nil
}
