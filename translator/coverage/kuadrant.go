package coverage

import (
	"fmt"
	"slices"
	"strings"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kuadrantController is how Kuadrant names itself in the status of routes.
const kuadrantController = "kuadrant.io/policy-controller"

// ruleWhen is the merge unit of the conditions under which Authorino is asked at all.
const ruleWhen = "conditions#"

// kuadrantJudge answers for AuthPolicies. Kuadrant computes one effective policy for each way from the Gateway over a listener
// and a route to a rule, and gives it to its filter together with the host names.
type kuadrantJudge struct {
	*world
	gateway   *Gateway
	baselines []*Baseline
	// policies are the AuthPolicies that count, ours as they would be written now, by what they target and then by age.
	policies map[scope][]*authPolicy
	envoy    bool
	// disconnected is set where the patch that Kuadrant needs is refused.
	disconnected *answer
}

type authPolicy struct {
	*kuadrantv1.AuthPolicy
	age  age
	ours bool
}

func (p *authPolicy) String() string { return "AuthPolicy " + p.age.String() }

func newKuadrantJudge(w *world, gw *Gateway, bases []*Baseline) *kuadrantJudge {
	j := &kuadrantJudge{world: w, gateway: gw, baselines: bases, envoy: w.ofEnvoyGateway(gw), policies: map[scope][]*authPolicy{}}
	var all []*authPolicy
	ours := map[types.NamespacedName]bool{}
	for i := range w.in.Baselines {
		if ap := w.in.Baselines[i].Auth; ap != nil {
			ours[nameOf(&ap.ObjectMeta)] = true
			p := &authPolicy{AuthPolicy: ap, age: ageOf(&ap.ObjectMeta), ours: true}
			p.age.unborn = ap.CreationTimestamp.IsZero()
			all = append(all, p)
		}
	}
	for i := range w.in.AuthPolicies {
		ap := &w.in.AuthPolicies[i]
		if !ours[nameOf(&ap.ObjectMeta)] && counts(ap) {
			all = append(all, &authPolicy{AuthPolicy: ap, age: ageOf(&ap.ObjectMeta)})
		}
	}
	slices.SortFunc(all, func(a, b *authPolicy) int { return a.age.compare(b.age) })
	for _, p := range all {
		ref := p.Spec.TargetRef
		s := scope{kind: string(ref.Kind), NamespacedName: types.NamespacedName{Namespace: p.GetNamespace(), Name: string(ref.Name)}, section: section(ref.SectionName)}
		j.policies[s] = append(j.policies[s], p)
	}
	if j.envoy {
		j.disconnected = j.patchRefused()
	}
	return j
}

// counts reports whether Kuadrant has not refused the policy or is about to drop it.
func counts(ap *kuadrantv1.AuthPolicy) bool {
	accepted := meta.FindStatusCondition(ap.Status.Conditions, "Accepted")
	refused := accepted != nil && accepted.Status == metav1.ConditionFalse && ap.Status.ObservedGeneration == ap.Generation
	return !refused && ap.DeletionTimestamp == nil
}

// patchRefused tells that EnvoyPatchPolicy is off, by which Kuadrant tells Envoy where Authorino is.
// kuadrant-operator v1.5.2: internal/controller/envoy_gateway_auth_cluster_reconciler.go.
func (j *kuadrantJudge) patchRefused() *answer {
	name := types.NamespacedName{Namespace: j.gateway.Namespace, Name: "kuadrant-auth-" + j.gateway.Name}
	disabled := off(j.in.Gates.PatchPolicies)
	for i := range j.in.PatchPolicies {
		p := &j.in.PatchPolicies[i]
		if nameOf(&p.ObjectMeta) != name {
			continue
		}
		for _, ancestor := range p.Status.Ancestors {
			if c := meta.FindStatusCondition(ancestor.Conditions, "Accepted"); c != nil && c.Status == metav1.ConditionFalse && c.Reason == "Disabled" {
				disabled = true
			}
		}
	}
	if !disabled {
		return nil
	}
	return &answer{reason: PatchPolicyDisabled, displacedBy: "EnvoyPatchPolicy " + name.String(), why: "EnvoyPatchPolicy is off in Envoy Gateway's configuration, and Kuadrant's filter " +
		"finds Authorino by one, so that no request can be checked; set extensionApis.enableEnvoyPatchPolicy"}
}

func (j *kuadrantJudge) listener(l *listener) answer {
	meant := meantFor(j.baselines, l)
	if meant == nil {
		return notTargeted(l)
	}
	if out := j.outOfReach(l); out != nil {
		return *out
	}
	out := j.effective(l, nil, rule{index: -1}, meant)
	if !out.covered || !j.envoy {
		return out
	}
	return j.through(j.extendedAt(l, nil, rule{index: -1}), out)
}

func (j *kuadrantJudge) route(a *attachment, r rule) answer {
	meant := meantFor(j.baselines, a.listener)
	if meant == nil {
		return notTargeted(a.listener)
	}
	if out := j.outOfReach(a.listener); out != nil {
		return *out
	}
	out := j.effective(a.listener, a.route, r, meant)
	if open := j.unguarded(a); out.covered && len(open) > 0 {
		out = answer{reason: HostnameNotGuarded, displacedBy: a.route.ID().String(), why: fmt.Sprintf(
			"the route's host names are wider than the listener's, and for %s Kuadrant makes no action set, so that requests pass unchecked; give the route host names within %s, or none",
			strings.Join(open, ", "), a.listener.hostname())}
	}
	if !out.covered || !j.envoy {
		return reportedByKuadrant(out, a, j.gateway)
	}
	return reportedByKuadrant(j.through(j.extendedAt(a.listener, a.route, r), out), a, j.gateway)
}

// through answers for what lies between Envoy and Authorino.
func (j *kuadrantJudge) through(e extended, out answer) answer {
	if displaced := e.displacement(); displaced.reason != "" {
		return displaced
	}
	if j.disconnected != nil {
		return *j.disconnected
	}
	return e.answers500(out)
}

// outOfReach answers for listeners that Kuadrant does not know, or not as such.
func (j *kuadrantJudge) outOfReach(l *listener) *answer {
	var out answer
	switch {
	case !l.speaksHTTP():
		out = notHTTP(l)
	case l.set != nil:
		out = answer{reason: ListenerSetNotGuarded, displacedBy: fmt.Sprintf("ListenerSet %s", nameOf(&l.set.ObjectMeta)), why: "Kuadrant does not know ListenerSets and makes no action set for their routes, " +
			"so that requests pass unchecked; add the listener to the Gateway itself, or enforce with Envoy Gateway"}
	default:
		return nil
	}
	return &out
}

// unguarded are the host names that are served on the listener and that no action set of the route is for. An action set is
// for a host name of the route that lies within a listener's, whichever of the Gateway's that is: the filter does not know
// listeners.
// kuadrant-operator v1.5.2: internal/gatewayapi/utils.go, HostnamesFromListenerAndHTTPRoute; internal/wasm/utils.go.
func (j *kuadrantJudge) unguarded(a *attachment) []string {
	if len(a.route.Hostnames) == 0 {
		return nil
	}
	var guarded []string
	for _, l := range j.listeners[nameOf(&j.gateway.ObjectMeta)] {
		if l.set != nil || !j.linked(a.route, l) {
			continue
		}
		for _, host := range a.route.Hostnames {
			if within(host, l.hostname()) {
				guarded = append(guarded, host)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(a.hosts), func(served string) bool {
		return slices.ContainsFunc(guarded, func(host string) bool { return within(served, host) })
	})
}

// linked reports whether Kuadrant sees the route on a listener. It looks at names only, not at ports.
// policy-machinery v0.8.0: machinery/gateway_api_topology.go, findListenerFromParentRefFunc.
func (j *kuadrantJudge) linked(r *Route, l *listener) bool {
	for _, ref := range r.ParentRefs {
		if refersTo(ref, r.Namespace, l) && (ref.SectionName == nil || *ref.SectionName == l.Name) {
			return true
		}
	}
	return false
}

// within is the operator's comparison of host names; a listener without one takes every host.
// kuadrant-operator v1.5.2: internal/utils/hostname.go, SubsetOf.
func within(host, listener string) bool {
	suffix, wild := strings.CutPrefix(listener, "*")
	inner, innerWild := strings.CutPrefix(host, "*")
	switch {
	case listener == "":
		return true
	case innerWild && wild:
		return len(host) >= len(listener) && strings.HasSuffix(inner, suffix)
	case innerWild:
		return false
	case wild:
		return strings.HasSuffix(host, suffix)
	default:
		return host == listener
	}
}

// effective answers for the policies on the way to a rule, or to a listener.
// kuadrant-operator v1.5.2: api/v1/merge_strategies.go, EffectivePolicyForPath; the merging is its own code.
func (j *kuadrantJudge) effective(l *listener, r *Route, of rule, meant *Baseline) answer {
	path := j.onPath(l, r, of)
	if len(path) == 0 {
		return answer{reason: NotTargeted, why: "no AuthPolicy targets anything that there is"}
	}
	result := path[len(path)-1].AuthPolicy
	for _, p := range slices.Backward(path) {
		merged, ok := result.Merge(p.AuthPolicy).(*kuadrantv1.AuthPolicy)
		if !ok {
			continue
		}
		result = merged
	}
	rules := result.Rules()
	mine := slices.IndexFunc(path, func(p *authPolicy) bool { return p.ours && p.age.NamespacedName == nameOf(&meant.Auth.ObjectMeta) })
	if mine < 0 || !keeps(rules, path[mine].AuthPolicy) {
		return displacedIn(path, rules, mine)
	}
	if other := foreignCondition(rules, path[mine].AuthPolicy); other != "" {
		return answer{reason: ConditionMerged, displacedBy: other, why: fmt.Sprintf(
			"%s has `when`, which is merged with ours: where it is false, Authorino is not asked; take `when` out of it, or use overrides of strategy atomic", other)}
	}
	return answer{covered: true, by: path[mine].String()}
}

// onPath are the AuthPolicies on the way to a rule: the least specific target first, on one target the oldest.
func (j *kuadrantJudge) onPath(l *listener, r *Route, of rule) []*authPolicy {
	targets := []scope{{kind: kindGateway, NamespacedName: nameOf(&l.gateway.ObjectMeta)}, {kind: kindGateway, NamespacedName: nameOf(&l.gateway.ObjectMeta), section: string(l.Name)}}
	if r != nil {
		whole := scope{kind: r.Kind, NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}}
		part := whole
		if part.section = of.name; of.name == "" {
			part.section = fmt.Sprintf("rule-%d", of.index+1)
		}
		targets = append(targets, whole, part)
	}
	var out []*authPolicy
	for _, target := range targets {
		out = append(out, j.policies[target]...)
	}
	return out
}

// keeps reports whether every rule of a policy is in the effective one.
func keeps(rules map[string]kuadrantv1.MergeableRule, p *kuadrantv1.AuthPolicy) bool {
	for id := range p.Rules() {
		if found, ok := rules[id]; !ok || found.GetSource() != p.GetLocator() {
			return false
		}
	}
	return true
}

// foreignCondition names the policy whose `when` is in the effective policy, "" for none or ours.
func foreignCondition(rules map[string]kuadrantv1.MergeableRule, ours *kuadrantv1.AuthPolicy) string {
	when, ok := rules[ruleWhen]
	if !ok || when.GetSource() == ours.GetLocator() {
		return ""
	}
	return sourceName(when.GetSource())
}

// sourceName turns a locator (authpolicy.kuadrant.io:NAMESPACE/NAME) into a name.
func sourceName(locator string) string {
	_, name, _ := strings.Cut(locator, ":")
	return "AuthPolicy " + name
}

// displacedIn names the policy that stands in place of ours, which has the position mine on the way, or -1.
func displacedIn(path []*authPolicy, rules map[string]kuadrantv1.MergeableRule, mine int) answer {
	sources := map[string]bool{}
	for _, r := range rules {
		sources[r.GetSource()] = true
	}
	for i, p := range path {
		if p.ours || !sources[p.GetLocator()] {
			continue
		}
		name := p.String()
		if i < mine {
			return answer{reason: AuthPolicyOverrides, displacedBy: name, why: fmt.Sprintf("%s has overrides and is older or stands above ours, so that ours has no effect or not all of it; delete it, or take its rules into an XAccessPolicy", name)}
		}
		return answer{reason: AuthPolicyBelow, displacedBy: name, why: fmt.Sprintf("%s has a narrower or newer target, and ours is only a default here; delete it, or target the listener in an XAccessPolicy", name)}
	}
	return answer{reason: AuthPolicyOverrides, why: "our AuthPolicy is not among those that are in force here; see its targetRef"}
}
