package controllers

import (
	"time"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
)

// translation is what the policies of one Gateway come to.
type translation struct {
	kuadrant kuadrant.Output
	plans    []plan.Plan
	verdicts []translator.Verdict
	findings []plan.Finding
}

// translate runs the translator on the world of one Gateway.
func (r *GatewayReconciler) translate(w *world) (*translation, error) {
	begin := time.Now()
	in := translator.Input{Gateways: []gwv1.Gateway{w.gateway}, Routes: w.routes}
	for i := range w.policies {
		in.Policies = append(in.Policies, translator.Policy{Object: w.policies[i].XAccessPolicy, Problems: w.policies[i].Problems})
	}
	in.AuthPolicies = make([]kuadrantv1.AuthPolicy, len(w.authPolicies))
	for i := range w.authPolicies {
		in.AuthPolicies[i] = w.authPolicies[i].AuthPolicy
	}
	result, err := translator.Translate(in, r.config.Translation)
	if err != nil {
		return nil, err
	}
	translateSeconds.Observe(time.Since(begin).Seconds())
	return about(result, types.NamespacedName{Namespace: w.gateway.Namespace, Name: w.gateway.Name}), nil
}

// about keeps what a result says of one Gateway. A policy may target others as well; they have a turn of their own.
func about(result *translator.Result, gateway types.NamespacedName) *translation {
	t := &translation{}
	for _, g := range result.Gateways {
		if g.Gateway == gateway {
			t.kuadrant, t.plans = g.Kuadrant, g.Plans
		}
	}
	for _, v := range result.Verdicts {
		if v.Gateway == gateway {
			t.verdicts = append(t.verdicts, v)
		}
	}
	for _, f := range result.Findings {
		if f.Gateway == gateway || f.Gateway == (types.NamespacedName{}) && f.Reason != reasonTargetIgnored {
			t.findings = append(t.findings, f)
		}
	}
	return t
}
