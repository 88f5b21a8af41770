package controllers

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"accesspolicy-operator/translator/plan"
)

const reasonTargetIgnored = "TargetIgnored"

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
// Errors among the findings are in the conditions of the policies and announced with them.
func (r *GatewayReconciler) announce(w *world, t *translation, changed bool) {
	gateway := types.NamespacedName{Namespace: w.gateway.Namespace, Name: w.gateway.Name}
	fresh, known := r.known.renew(gateway, t.findings)
	for _, f := range fresh {
		if f.Severity != plan.Warning || !known && !changed {
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

// forget drops what is remembered of a Gateway that is not looked after any more.
func (r *GatewayReconciler) forget(gateway types.NamespacedName) {
	r.known.forget(gateway)
	gauges.forget(gateway)
}
