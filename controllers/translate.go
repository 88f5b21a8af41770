package controllers

import (
	"slices"
	"time"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
)

// translation is what the policies of one Gateway come to.
type translation struct {
	// objects are in the order in which they are to be written.
	objects []*wanted
	// bytes is the size of the largest object.
	bytes int
	// expressed are the plans as the objects express them, of each enforcer.
	expressed []plan.Plan
	plans     []plan.Plan
	verdicts  []translator.Verdict
	findings  []plan.Finding
}

// objectsOf returns the objects of some enforcers.
func (t *translation) objectsOf(of translator.Enforcers) []*wanted {
	var out []*wanted
	for _, object := range t.objects {
		if object.kind.works(of) {
			out = append(out, object)
		}
	}
	return out
}

// translate runs the translator on the world of one Gateway.
func (r *GatewayReconciler) translate(w *world) (*translation, error) {
	begin := time.Now()
	name := types.NamespacedName{Namespace: w.gateway.Namespace, Name: w.gateway.Name}
	in := translator.Input{Gateways: []gwv1.Gateway{w.gateway}, Routes: w.routes,
		Enforcers: map[types.NamespacedName]translator.Enforcers{name: w.enforcing()}}
	for i := range w.policies {
		in.Policies = append(in.Policies, translator.Policy{Object: w.policies[i].XAccessPolicy, Problems: w.policies[i].Problems})
	}
	in.AuthPolicies = make([]kuadrantv1.AuthPolicy, len(w.authPolicies))
	for i := range w.authPolicies {
		in.AuthPolicies[i] = w.authPolicies[i].AuthPolicy
	}
	in.SecurityPolicies = make([]egv1a1.SecurityPolicy, len(w.securityPolicies))
	for i := range w.securityPolicies {
		in.SecurityPolicies[i] = w.securityPolicies[i].SecurityPolicy
	}
	in.ClientTraffic = make([]egv1a1.ClientTrafficPolicy, len(w.clientTraffic))
	for i := range w.clientTraffic {
		in.ClientTraffic[i] = w.clientTraffic[i].ClientTrafficPolicy
	}
	in.Classes, in.EnvoyProxies, in.NoAuthConfigs = []gwv1.GatewayClass{*w.class}, w.proxies, !w.asked
	in.AuthConfigs = make([]authorinov1beta3.AuthConfig, len(w.authConfigs))
	for i := range w.authConfigs {
		in.AuthConfigs[i] = w.authConfigs[i].AuthConfig
	}
	opts := r.config.Translation
	opts.EnvoyGateway.Issuer, opts.EnvoyGateway.JWKS = r.issuer.known()
	result, err := translator.Translate(in, opts)
	if err != nil {
		return nil, err
	}
	translateSeconds.Observe(time.Since(begin).Seconds())
	return about(result, name, w.controller)
}

// about keeps what a result says of one Gateway. A policy may target others as well; they have a turn of their own.
func about(result *translator.Result, gateway types.NamespacedName, controller string) (*translation, error) {
	t := &translation{}
	for _, g := range result.Gateways {
		if g.Gateway != gateway {
			continue
		}
		t.plans = g.Plans
		t.expressed = slices.Concat(g.Kuadrant.Expressed, g.EnvoyGateway.Expressed)
		t.bytes = max(g.Kuadrant.Bytes, g.EnvoyGateway.Bytes)
		if err := t.collect(&g, controller); err != nil {
			return nil, err
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
	return t, nil
}

// collect takes the objects out of a result and puts them into the order in which they are to be written.
func (t *translation) collect(g *translator.GatewayResult, controller string) error {
	for _, ap := range g.Kuadrant.Objects {
		content, err := kuadrant.Unstructured(ap)
		if err != nil {
			return err
		}
		section := ""
		if ap.Spec.TargetRef.SectionName != nil {
			section = string(*ap.Spec.TargetRef.SectionName)
		}
		t.objects = append(t.objects, &wanted{objectName: objectName{authPolicies, ap.Name}, content: content, section: section,
			beneath:  ap.Spec.Defaults != nil && len(g.Kuadrant.Objects) > 1,
			baseline: coverage.Baseline{Gateway: g.Gateway, Listener: section, Auth: ap}})
	}
	configs := g.EnvoyGateway.AuthConfigs
	for _, sp := range g.EnvoyGateway.Objects {
		content, err := envoygateway.Unstructured(sp)
		if err != nil {
			return err
		}
		section := ""
		if refs := sp.Spec.TargetRefs; len(refs) == 1 && refs[0].SectionName != nil {
			section = string(*refs[0].SectionName)
		}
		if sp.Spec.ExtAuth != nil { // what is asked comes before what asks
			config, err := kuadrant.Unstructured(configs[0])
			if err != nil {
				return err
			}
			t.objects = append(t.objects, &wanted{objectName: objectName{authConfigs, configs[0].Name}, content: config, section: section})
			configs = configs[1:]
		}
		t.objects = append(t.objects, &wanted{objectName: objectName{securityPolicies, sp.Name}, content: content, section: section,
			controller: controller, beneath: section == "" && len(g.EnvoyGateway.Objects) > 1,
			baseline: coverage.Baseline{Gateway: g.Gateway, Listener: section, Security: sp}})
	}
	slices.SortStableFunc(t.objects, func(a, b *wanted) int {
		switch {
		case a.beneath == b.beneath:
			return 0
		case b.beneath:
			return -1
		}
		return 1
	})
	return nil
}
