package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"accesspolicy-operator/api/v1alpha1"
)

// Conditions of an AuthPolicy (kuadrant-operator v1.5.2, internal/controller/auth_policy_status_updater.go).
const (
	kuadrantAccepted  = "Accepted"
	kuadrantEnforced  = "Enforced"
	kuadrantOverriden = "Overridden"
	kuadrantUnknown   = "Unknown"
)

// inForce is what Kuadrant reports about each of our AuthPolicies of one Gateway.
type inForce struct {
	// whole is set where one object stands for the whole Gateway.
	whole    *objectForce
	sections map[string]objectForce
}

// objectForce is one AuthPolicy as Kuadrant reports it.
type objectForce struct {
	name   string
	status metav1.ConditionStatus
	// reason and message are those of the Programmed condition that follows from it alone.
	reason, message string
	// behind is set while Kuadrant has not come to our last write, and what it had enforced before stays in force.
	behind bool
}

// readBack reads the objects that were wanted.
func readBack(t *translation, live map[string]*AuthPolicy) inForce {
	f := inForce{sections: map[string]objectForce{}}
	for _, wanted := range t.kuadrant.Objects {
		state := forceOf(wanted.Name, live[wanted.Name])
		switch section := wanted.Spec.TargetRef.SectionName; {
		case section != nil:
			f.sections[string(*section)] = state
		case wanted.Spec.Defaults == nil || len(t.kuadrant.Objects) == 1:
			f.whole = &state
		}
		// A default beneath listeners' objects is reported as overridden by them, as it should be.
	}
	return f
}

func forceOf(name string, ap *AuthPolicy) objectForce {
	o := objectForce{name: name, status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending}
	if ap == nil {
		o.message = fmt.Sprintf("AuthPolicy %s is not there yet", name)
		return o
	}
	enforced := meta.FindStatusCondition(ap.Status.Conditions, kuadrantEnforced)
	if ap.Status.ObservedGeneration != ap.Generation {
		o.behind = enforced != nil && enforced.Status == metav1.ConditionTrue
		o.message = fmt.Sprintf("Kuadrant has not reported on the last change of AuthPolicy %s yet", name)
		if len(ap.Status.Conditions) == 0 {
			o.message = fmt.Sprintf("Kuadrant has not reported on AuthPolicy %s yet; if this lasts, see whether kuadrant-operator runs", name)
		}
		return o
	}
	if accepted := meta.FindStatusCondition(ap.Status.Conditions, kuadrantAccepted); accepted == nil || accepted.Status != metav1.ConditionTrue {
		o.message = fmt.Sprintf("Kuadrant does not accept AuthPolicy %s: %s", name, told(accepted))
		return o
	}
	switch {
	case enforced == nil:
		o.message = fmt.Sprintf("Kuadrant has not reported AuthPolicy %s as enforced yet", name)
	case enforced.Status == metav1.ConditionTrue:
		o.status, o.reason, o.message = metav1.ConditionTrue, v1alpha1.PolicyReasonProgrammed, fmt.Sprintf("AuthPolicy %s is enforced", name)
		if strings.Contains(enforced.Message, "partially") {
			o.status, o.reason = metav1.ConditionFalse, v1alpha1.PolicyReasonPartiallyOverridden
			o.message = fmt.Sprintf("AuthPolicy %s is enforced in part only: %s", name, told(enforced))
		}
	case enforced.Reason == kuadrantOverriden:
		o.reason = v1alpha1.PolicyReasonOverridden
		o.message = fmt.Sprintf("AuthPolicy %s has no effect: %s. Delete or change the object that it names", name, strings.TrimSuffix(told(enforced), "."))
	default:
		o.behind = enforced.Reason == kuadrantUnknown && strings.Contains(enforced.Message, "waiting for")
		o.message = fmt.Sprintf("AuthPolicy %s is not enforced yet: %s", name, told(enforced))
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
// A policy of this generation that was in force stays so while Kuadrant works on somebody else's edit: until then the former
// rules hold, and what it grants is among them.
func (f inForce) of(section string, generation int64, before []metav1.Condition) (metav1.ConditionStatus, string, string) {
	o := f.worst(section)
	if o.status != metav1.ConditionTrue && o.behind {
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

// worst returns the object that is least in force of those that a policy is in.
func (f inForce) worst(section string) objectForce {
	if o, ok := f.sections[section]; ok {
		return o
	}
	if f.whole != nil {
		return *f.whole
	}
	states := make([]objectForce, 0, len(f.sections))
	for _, o := range f.sections {
		states = append(states, o)
	}
	if len(states) == 0 {
		return objectForce{status: metav1.ConditionFalse, reason: v1alpha1.PolicyReasonPending, message: "no AuthPolicy has been generated yet"}
	}
	slices.SortFunc(states, func(a, b objectForce) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.name, b.name))
	})
	worst := states[0]
	if rank(worst) == rank(states[len(states)-1]) {
		if worst.status == metav1.ConditionTrue {
			worst.message = fmt.Sprintf("AuthPolicy %s are enforced", strings.Join(names(states), ", "))
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
	case o.status == metav1.ConditionTrue:
		return 3
	case o.behind:
		return 2
	case o.reason == v1alpha1.PolicyReasonPending:
		return 1
	}
	return 0
}

// sameReport reports whether two versions of an AuthPolicy say the same about being in force.
func sameReport(a, b *kuadrantv1.AuthPolicy) bool {
	same := func(name string) bool {
		x, y := meta.FindStatusCondition(a.Status.Conditions, name), meta.FindStatusCondition(b.Status.Conditions, name)
		return x == nil && y == nil || x != nil && y != nil && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
	}
	return a.Status.ObservedGeneration == b.Status.ObservedGeneration && same(kuadrantAccepted) && same(kuadrantEnforced)
}
