package kuadrant

import (
	"fmt"
	"slices"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/types"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/plan"
)

// Scheme is what Authorino evaluates for a plan: the part that an AuthPolicy and an AuthConfig have in common.
type Scheme struct {
	// Rules are the evaluators.
	Rules kuadrantv1.AuthSchemeSpec
	// Expressed is the plan as the evaluators express it. It never grants more than the plan that came in.
	Expressed plan.Plan
	Findings  []plan.Finding

	opts Options
}

// NewScheme renders a plan. What is too large is a finding, and grants nothing. An error is a fault of ours.
func NewScheme(p *plan.Plan, opts Options) (*Scheme, error) {
	s := &Scheme{Expressed: *p, opts: opts}
	rules, err := s.fitting()
	if err != nil {
		return nil, err
	}
	s.Expressed.Rules = plain(rules)
	evaluators, err := split(rules, p.Profile, opts.maxNamed())
	if err != nil {
		return nil, err
	}
	limit, err := s.render(evaluators)
	if limit != "" {
		err = s.Close(limit)
	}
	return s, err
}

// Close leaves nothing but the denial, because of a limit that was exceeded.
func (s *Scheme) Close(limit string) error {
	p := &s.Expressed
	s.Findings = append(s.Findings, plan.Finding{Severity: plan.Error, Enforcer: Enforcer, Gateway: p.Gateway, Listeners: sections(p.Listener),
		Reason: v1alpha1.PolicyReasonTooLarge, Message: limit + "; until the policies are smaller or on several Gateways, every request is denied"})
	s.Expressed = plan.Plan{Gateway: p.Gateway, Listener: p.Listener, Profile: p.Profile}
	_, err := s.render(nil)
	return err
}

// render makes the rules. The string is a limit that was exceeded.
func (s *Scheme) render(evaluators []evaluator) (string, error) {
	ids := s.Expressed.Identities()
	authorization, limit, err := authorization(&s.Expressed, evaluators)
	if err != nil || limit != "" {
		return limit, err
	}
	s.Rules = kuadrantv1.AuthSchemeSpec{Authentication: s.opts.authentication(ids), Authorization: authorization, Response: s.opts.response(ids)}
	return "", nil
}

// fitting drops the policies of which one rule alone is too large for an expression that others share. A policy is taken
// whole or not at all.
func (s *Scheme) fitting() ([]sized, error) {
	p := &s.Expressed
	tooLarge := map[types.NamespacedName]bool{}
	all := make([]sized, 0, len(p.Rules))
	for _, r := range p.Rules {
		rule, err := measure(r, p.Profile)
		if err != nil {
			return nil, err
		}
		if rule.size > maxRule {
			tooLarge[r.Origin.Policy] = true
			s.Findings = append(s.Findings, plan.Finding{Severity: plan.Error, Enforcer: Enforcer, Gateway: p.Gateway, Origin: r.Origin,
				Reason: v1alpha1.PolicyReasonTooLarge, Listeners: sections(p.Listener), Message: fmt.Sprintf(
					"the rule needs %d code points in Authorino's expression, %d are allowed; the policy grants nothing until its headers, paths or CEL are shorter", rule.size, maxRule)})
		}
		all = append(all, rule)
	}
	return slices.DeleteFunc(all, func(r sized) bool { return tooLarge[r.Origin.Policy] }), nil
}

// AuthConfigSpec is what kuadrant-operator makes of the rules (v1.5.2, internal/controller/authconfigs_reconciler.go), for a
// host that requests are looked up by.
func (s *Scheme) AuthConfigSpec(host string) authorinov1beta3.AuthConfigSpec {
	out := authorinov1beta3.AuthConfigSpec{Hosts: []string{host}, Response: &authorinov1beta3.ResponseSpec{}}
	out.Authentication = make(map[string]authorinov1beta3.AuthenticationSpec, len(s.Rules.Authentication))
	for key, rule := range s.Rules.Authentication {
		out.Authentication[key] = rule.AuthenticationSpec
	}
	out.Authorization = make(map[string]authorinov1beta3.AuthorizationSpec, len(s.Rules.Authorization))
	for key, rule := range s.Rules.Authorization {
		out.Authorization[key] = rule.AuthorizationSpec
	}
	if deny := s.Rules.Response.Unauthenticated; deny != nil {
		out.Response.Unauthenticated = &deny.DenyWithSpec
	}
	if deny := s.Rules.Response.Unauthorized; deny != nil {
		out.Response.Unauthorized = &deny.DenyWithSpec
	}
	return out
}
