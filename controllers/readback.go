package controllers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
)

// Conditions of an AuthPolicy (kuadrant-operator v1.5.2, internal/controller/auth_policy_status_updater.go).
const (
	kuadrantAccepted  = "Accepted"
	kuadrantEnforced  = "Enforced"
	kuadrantOverriden = "Overridden"
	kuadrantUnknown   = "Unknown"
)

// Conditions and reasons of a SecurityPolicy (Envoy Gateway v1.9.1, internal/gatewayapi/status).
const (
	envoyAccepted   = "Accepted"
	envoyConflicted = "Conflicted"
	envoyOverridden = "Overridden"
)

// inForce is what is reported about our objects of one Gateway, kind by kind.
type inForce []*kindForce

// kindForce is what is reported about the objects of one kind.
type kindForce struct {
	kind *objectKind
	// whole is set where one object stands for the whole Gateway.
	whole    *objectForce
	sections map[string]objectForce
	// beneath is the denial under the objects of listeners.
	beneath *objectForce
}

// objectForce is one object as its controller reports it.
type objectForce struct {
	name   string
	status metav1.ConditionStatus
	// reason and message are those of the Programmed condition that follows from it alone.
	reason, message string
	// behind is set while the controller has not come to our last write, and what was in force before stays so.
	behind bool
}

func (o objectForce) holds() bool { return o.status == metav1.ConditionTrue }

// readBack reads what is reported about objects.
func readBack(objects []*wanted, live map[objectName]generated) inForce {
	var f inForce
	for _, object := range objects {
		at := slices.IndexFunc(f, func(k *kindForce) bool { return k.kind == object.kind })
		if at < 0 {
			at, f = len(f), append(f, &kindForce{kind: object.kind, sections: map[string]objectForce{}})
		}
		state := pending(object, "is not there yet")
		if o := live[object.objectName]; o != nil {
			state = o.force(object)
		}
		switch {
		case object.section != "":
			f[at].sections[object.section] = state
		case object.beneath:
			f[at].beneath = &state
		default:
			f[at].whole = &state
		}
	}
	return f
}

// everything reports whether there are objects and all of them are in force.
func (f inForce) everything() bool {
	return len(f) > 0 && !slices.ContainsFunc(f, func(k *kindForce) bool { return !k.worst("").holds() })
}

// pending is the state of an object that is not in force yet.
func pending(want *wanted, format string, args ...any) objectForce {
	return objectForce{name: want.name, status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending,
		message: want.String() + " " + fmt.Sprintf(format, args...)}
}

func (a *AuthPolicy) force(want *wanted) objectForce {
	o := pending(want, "")
	if want.beneath { // a default that the objects of listeners override, as it should be, so nothing can be told of it
		o.status, o.reason = metav1.ConditionTrue, v1alpha1.PolicyReasonProgrammed
		return o
	}
	enforced := meta.FindStatusCondition(a.Status.Conditions, kuadrantEnforced)
	if a.Status.ObservedGeneration != a.Generation {
		o.behind = enforced != nil && enforced.Status == metav1.ConditionTrue
		o.message = fmt.Sprintf("Kuadrant has not reported on the last change of %s yet", want)
		if len(a.Status.Conditions) == 0 {
			o.message = fmt.Sprintf("Kuadrant has not reported on %s yet; if this lasts, see whether kuadrant-operator runs", want)
		}
		return o
	}
	if accepted := meta.FindStatusCondition(a.Status.Conditions, kuadrantAccepted); accepted == nil || accepted.Status != metav1.ConditionTrue {
		o.message = fmt.Sprintf("Kuadrant does not accept %s: %s", want, told(accepted))
		return o
	}
	switch {
	case enforced == nil:
		o.message = fmt.Sprintf("Kuadrant has not reported %s as enforced yet", want)
	case enforced.Status == metav1.ConditionTrue:
		o.status, o.reason, o.message = metav1.ConditionTrue, v1alpha1.PolicyReasonProgrammed, fmt.Sprintf("%s is enforced", want)
		if strings.Contains(enforced.Message, "partially") {
			o.status, o.reason = metav1.ConditionFalse, v1alpha1.PolicyReasonPartiallyOverridden
			o.message = fmt.Sprintf("%s is enforced in part only: %s", want, told(enforced))
		}
	case enforced.Reason == kuadrantOverriden:
		o.reason = v1alpha1.PolicyReasonOverridden
		o.message = fmt.Sprintf("%s has no effect: %s. Delete or change the object that it names", want, strings.TrimSuffix(told(enforced), "."))
	default:
		o.behind = enforced.Reason == kuadrantUnknown && strings.Contains(enforced.Message, "waiting for")
		o.message = fmt.Sprintf("%s is not enforced yet: %s", want, told(enforced))
	}
	return o
}

// force of an AuthConfig is whether Authorino has it. Authorino does not say of which generation it speaks.
func (a *AuthConfig) force(want *wanted) objectForce {
	o := pending(want, "")
	ready := a.ready()
	switch {
	case ready == nil:
		o.message = fmt.Sprintf("Authorino has not reported on %s yet; if this lasts, see whether Authorino runs and looks after the namespace", want)
	case ready.Status == corev1.ConditionTrue:
		o.status, o.reason, o.message = metav1.ConditionTrue, v1alpha1.PolicyReasonProgrammed, fmt.Sprintf("%s is ready", want)
	default:
		o.message = fmt.Sprintf("%s is not ready in Authorino: %s", want, shortenMessage(cmp.Or(ready.Message, ready.Reason, "it gives no reason yet")))
	}
	return o
}

// ready is the condition that tells, nil for none.
func (a *AuthConfig) ready() *authorinov1beta3.AuthConfigStatusCondition {
	i := slices.IndexFunc(a.Status.Conditions, func(c authorinov1beta3.AuthConfigStatusCondition) bool {
		return c.Type == authorinov1beta3.StatusConditionReady
	})
	if i < 0 {
		return nil
	}
	return &a.Status.Conditions[i]
}

// force of a SecurityPolicy is the worst of what Envoy Gateway says of it: there can be an entry for the Gateway and one for
// each of its listeners. That a route's policy is merged into it says neither that it is whole nor that it is not; coverage
// knows.
func (s *SecurityPolicy) force(want *wanted) objectForce {
	var states []objectForce
	for _, entry := range s.Status.Ancestors {
		ref := entry.AncestorRef
		if string(entry.ControllerName) != want.controller || !s.concerns(ref, want.section) {
			continue
		}
		states = append(states, s.forceOn(entry.Conditions, want))
	}
	if len(states) == 0 {
		o := pending(want, "")
		o.message = fmt.Sprintf("Envoy Gateway has not reported on %s yet; if this lasts, see whether Envoy Gateway runs", want)
		return o
	}
	return slices.MinFunc(states, func(a, b objectForce) int { return cmp.Compare(rank(a), rank(b)) })
}

// concerns reports whether an entry of the status is about the Gateway that owns the object, and the listener that it is for.
func (s *SecurityPolicy) concerns(ref gwv1.ParentReference, section string) bool {
	if ref.Kind != nil && *ref.Kind != kindGateway || ref.Namespace != nil && string(*ref.Namespace) != s.Namespace {
		return false
	}
	if section != "" && ref.SectionName != nil && string(*ref.SectionName) != section {
		return false
	}
	return slices.ContainsFunc(s.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == kindGateway && owner.Name == string(ref.Name)
	})
}

func (s *SecurityPolicy) forceOn(conditions []metav1.Condition, want *wanted) objectForce {
	o := pending(want, "")
	accepted := meta.FindStatusCondition(conditions, envoyAccepted)
	overridden := meta.FindStatusCondition(conditions, envoyOverridden)
	switch {
	case accepted == nil:
		o.message = fmt.Sprintf("Envoy Gateway has not reported whether it accepts %s yet", want)
	case accepted.ObservedGeneration != s.Generation:
		o.behind = accepted.Status == metav1.ConditionTrue
		o.message = fmt.Sprintf("Envoy Gateway has not reported on the last change of %s yet", want)
	case accepted.Status != metav1.ConditionTrue && accepted.Reason == envoyConflicted:
		o.reason = v1alpha1.PolicyReasonOverridden
		o.message = fmt.Sprintf("%s has no effect, because another SecurityPolicy is on the same target: %s. Delete or change the other one", want, strings.TrimSuffix(told(accepted), "."))
	case accepted.Status != metav1.ConditionTrue:
		o.message = fmt.Sprintf("Envoy Gateway does not accept %s: %s", want, told(accepted))
		if s.Spec.ExtAuth != nil { // most likely nothing lets it refer to the Service of another namespace
			o.message = strings.TrimSuffix(o.message, ".") + ". Every request is denied until Authorino can be asked; a ReferenceGrant beside its Service is needed"
		}
	case overridden != nil && overridden.Status == metav1.ConditionTrue && !want.beneath: // beneath, by the objects of listeners, as it should be
		o.reason = v1alpha1.PolicyReasonPartiallyOverridden
		o.message = fmt.Sprintf("%s is in force in part only: %s", want, told(overridden))
	default:
		o.status, o.reason, o.message = metav1.ConditionTrue, v1alpha1.PolicyReasonProgrammed, fmt.Sprintf("%s is accepted", want)
	}
	return o
}

func told(c *metav1.Condition) string {
	if c == nil {
		return "it gives no reason yet"
	}
	return shortenMessage(cmp.Or(c.Message, c.Reason))
}

// of returns status, reason and message of the Programmed condition for a policy on a listener, "" for the whole Gateway.
// A policy of this generation that was in force stays so while an enforcer works on somebody else's edit: until then the former
// rules hold, and what it grants is among them.
func (f inForce) of(section string, generation int64, before []metav1.Condition) (metav1.ConditionStatus, string, string) {
	o := f.worst(section)
	if !o.holds() && o.behind {
		if was := inForceBefore(generation, before); was != nil {
			return was.Status, was.Reason, was.Message
		}
	}
	return o.status, o.reason, o.message
}

// inForceBefore returns the condition by which a policy of this generation was in force, nil if it was not.
func inForceBefore(generation int64, before []metav1.Condition) *metav1.Condition {
	was := meta.FindStatusCondition(before, v1alpha1.PolicyConditionProgrammed)
	if was == nil || was.Status != metav1.ConditionTrue || was.ObservedGeneration != generation {
		return nil
	}
	return was
}

// worst says how much in force a policy is. With several kinds of objects each must allow a request, so all of them have to
// be in force, and the message names those that are not.
func (f inForce) worst(section string) objectForce {
	if len(f) == 0 {
		return objectForce{status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "no object has been generated yet"}
	}
	states := make([]objectForce, len(f))
	for i, k := range f {
		states[i] = k.worst(section)
	}
	slices.SortStableFunc(states, func(a, b objectForce) int { return cmp.Compare(rank(a), rank(b)) })
	worst := states[0]
	for _, o := range states[1:] {
		if o.holds() == worst.holds() {
			worst.message += "; " + o.message
		}
	}
	return worst
}

// worst returns the object that is least in force of those that a policy is in.
func (k *kindForce) worst(section string) objectForce {
	if o, ok := k.sections[section]; ok {
		return o
	}
	if k.whole != nil {
		return *k.whole
	}
	states := slices.Collect(maps.Values(k.sections))
	if k.beneath != nil && (!k.beneath.holds() || len(states) == 0) {
		states = append(states, *k.beneath)
	}
	slices.SortFunc(states, func(a, b objectForce) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.name, b.name))
	})
	worst := states[0]
	if rank(worst) == rank(states[len(states)-1]) {
		if worst.holds() && len(states) > 1 {
			_, verb, _ := strings.Cut(worst.message, " is ")
			worst.message = fmt.Sprintf("%s %s are %s", k.kind, strings.Join(names(states), ", "), verb)
		}
		return worst
	}
	if worst.reason == v1alpha1.PolicyReasonOverridden { // on some listeners, not on all
		worst.reason = v1alpha1.PolicyReasonPartiallyOverridden
	}
	return worst
}

func names(states []objectForce) []string {
	out := make([]string, len(states))
	for i, o := range states {
		out[i] = o.name
	}
	return out
}

// rank orders objects by how much is amiss.
func rank(o objectForce) int {
	switch {
	case o.holds():
		return 3
	case o.behind:
		return 2
	case o.reason == v1alpha1.PolicyReasonPending:
		return 1
	}
	return 0
}

func (a *AuthPolicy) sameReport(other generated) bool {
	b, ok := other.(*AuthPolicy)
	same := func(name string) bool {
		x, y := meta.FindStatusCondition(a.Status.Conditions, name), meta.FindStatusCondition(b.Status.Conditions, name)
		return x == nil && y == nil || x != nil && y != nil && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
	}
	return ok && a.Status.ObservedGeneration == b.Status.ObservedGeneration && same(kuadrantAccepted) && same(kuadrantEnforced)
}

func (a *AuthConfig) sameReport(other generated) bool {
	b, ok := other.(*AuthConfig)
	if !ok {
		return false
	}
	x, y := a.ready(), b.ready()
	return x == nil && y == nil || x != nil && y != nil && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
}

func (s *SecurityPolicy) sameReport(other generated) bool {
	b, ok := other.(*SecurityPolicy)
	return ok && equality.Semantic.DeepEqual(s.Status, b.Status)
}
