package controllers

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/plan"
)

const (
	reasonTargetIgnored      = "TargetIgnored"
	reasonCoverageIncomplete = "CoverageIncomplete"
)

// knownFindings are the findings about each Gateway that have been announced.
type knownFindings struct {
	mu        sync.Mutex
	byGateway map[types.NamespacedName]map[string]bool
}

// renew replaces the findings of a Gateway and returns those that were not there before, and whether the Gateway was known.
func (k *knownFindings) renew(gateway types.NamespacedName, findings []plan.Finding) (fresh []plan.Finding, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, known := k.byGateway[gateway]
	now := map[string]bool{}
	for _, f := range findings {
		id := f.Reason + "\x00" + f.Origin.String() + "\x00" + f.Message
		if !before[id] && !now[id] {
			fresh = append(fresh, f)
		}
		now[id] = true
	}
	if k.byGateway == nil {
		k.byGateway = map[types.NamespacedName]map[string]bool{}
	}
	k.byGateway[gateway] = now
	return fresh, known
}

func (k *knownFindings) forget(gateway types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byGateway, gateway)
}

// announce sends an event for every warning that is new, on the policy that it is about or else on the Gateway. A Gateway that
// this process sees for the first time is quiet where no status has changed: after a restart nothing is new.
//
// Errors among the findings are in the conditions of the accepted policies and announced with them; where there is none, as
// on a Gateway that denies by default and has no policy, they are announced here.
func (r *GatewayReconciler) announce(w *world, t *translation, problems []plan.Finding, changed bool) {
	gateway := types.NamespacedName{Namespace: w.gateway.Namespace, Name: w.gateway.Name}
	fresh, known := r.known.renew(gateway, append(slices.Clone(t.findings), problems...))
	news := known || changed || w.gateway.CreationTimestamp.After(r.started)
	for _, f := range fresh {
		told := f.Severity == plan.Error && slices.ContainsFunc(t.verdicts, func(v translator.Verdict) bool { return v.Accepted })
		if !news || told || f.Severity == plan.Note {
			continue
		}
		var about runtime.Object = &w.gateway
		for i := range w.policies {
			if w.policies[i].Name == f.Origin.Policy.Name && w.policies[i].Namespace == f.Origin.Policy.Namespace {
				about = &w.policies[i]
			}
		}
		text := f.Message
		if f.Origin.Field != "" {
			text = f.Origin.Field + ": " + text
		}
		r.events.Eventf(about, nil, corev1.EventTypeWarning, f.Reason, "Translate", "%s", eventNote(gateway, "", text))
	}
}

// problems are what keeps the objects of a Gateway as a whole from being in force. Accepted policies say so as well; a
// Gateway that denies by default may have none.
func problems(w *world, t *translation, force inForce, displaced displacement, failure error) []plan.Finding {
	var out []plan.Finding
	add := func(severity plan.Severity, reason, message string) {
		out = append(out, plan.Finding{Severity: severity, Reason: reason, Message: message, Gateway: types.NamespacedName{Namespace: w.gateway.Namespace, Name: w.gateway.Name}})
	}
	switch worst := force.worst(""); {
	case len(t.verdicts) == 0 && len(t.plans) == 0:
	case w.enforcing().None():
		add(plan.Error, v1alpha1.PolicyReasonNoEnforcer, w.noEnforcer())
	case failure != nil:
		add(plan.Warning, "WriteFailed", shortenMessage(failure.Error()))
	case displaced.reason != "":
		add(plan.Error, displaced.reason, displaced.message)
	case !worst.holds() && worst.reason != v1alpha1.PolicyReasonPending:
		add(plan.Error, worst.reason, worst.message)
	}
	if w.misconfigured != "" && !w.enforcing().None() {
		add(plan.Error, v1alpha1.PolicyReasonInvalidAnnotation, w.misconfigured)
	}
	return out
}

// forget drops what is remembered of a Gateway that is not looked after any more.
func (r *GatewayReconciler) forget(gateway types.NamespacedName) {
	r.known.forget(gateway)
	gauges.forget(gateway)
}
