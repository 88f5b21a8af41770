package envoygateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
)

// Input is what one Gateway needs.
type Input struct {
	Gateway *gwv1.Gateway
	// Plans holds one plan for the whole Gateway (Listener ""), or one per listener and, where listeners that come later are
	// to be closed, one with Listener "" for them.
	Plans []plan.Plan
	// Existing are the SecurityPolicies that are there, ours and others.
	Existing []egv1a1.SecurityPolicy
	// ClientTraffic are the ClientTrafficPolicies that are there; they say whether client certificates are verified and
	// whether MCP headers of clients are removed.
	ClientTraffic []egv1a1.ClientTrafficPolicy
	// Routes are the HTTPRoutes that there are. They only serve to say how much Envoy is sent.
	Routes []gwv1.HTTPRoute
}

// Output is what the emitter made of a Gateway.
type Output struct {
	// Objects in a fixed order: the Gateway's first, then the listeners'.
	Objects []*egv1a1.SecurityPolicy
	// Expressed are the plans as the objects really express them, with the Gateway's own plan (Listener "") for what no
	// listener's plan covers. They never grant more than the plans that came in.
	Expressed []plan.Plan
	Findings  []plan.Finding
	// Bytes is the size of the largest object as JSON; MaxObject is its limit.
	Bytes int
}

type emission struct {
	Input
	opts    Options
	gateway types.NamespacedName
	out     Output
	// sent is an estimate of what a change sends to an Envoy, in bytes.
	sent int
}

// Emit makes the SecurityPolicies of a Gateway. Envoy Gateway takes the most specific one of a route: a listener's object
// stands instead of the Gateway's. Faults and limits are findings; an error is a fault of the configuration or of ours.
func Emit(in Input, opts Options) (*Output, error) {
	e := emission{Input: in, opts: opts, gateway: types.NamespacedName{Namespace: in.Gateway.Namespace, Name: in.Gateway.Name}}
	plans := slices.Clone(in.Plans)
	slices.SortStableFunc(plans, func(a, b plan.Plan) int { // the Gateway's own first
		return cmp.Compare(min(len(a.Listener), 1), min(len(b.Listener), 1))
	})
	e.headerFinding(plans)
	for i := range plans {
		if plans[i].Open {
			e.out.Expressed = append(e.out.Expressed, plans[i])
			continue
		}
		if err := e.emit(&plans[i]); err != nil {
			return nil, err
		}
	}
	e.deliveryFinding(e.sent)
	return &e.out, nil
}

// emit makes the object of one plan. Whatever cannot be written as it should leaves the attachment point closed.
func (e *emission) emit(p *plan.Plan) error {
	expressed := *p
	expressed.Rules, expressed.Refusals = nil, nil
	var rules []egv1a1.AuthorizationRule
	if slices.ContainsFunc(p.Refusals, func(r plan.Refusal) bool { return r.All }) {
		expressed.Refusals = p.Refusals
	} else {
		rules = e.refuse(p, &expressed)
		for _, r := range p.Rules {
			source, why := e.verifiable(r.Source, p.Listener)
			var allowed []egv1a1.AuthorizationRule
			if len(source.Principals) > 0 || source.Any {
				e.partly(r, source, p.Listener, why)
				r.Source = source
				var err error
				if allowed, why, err = allow(&r, p.Profile); err != nil {
					return err
				}
			}
			if why != "" && len(allowed) == 0 {
				e.dropped(r.Origin, p.Listener, why)
				continue
			}
			rules = append(rules, allowed...)
			expressed.Rules = append(expressed.Rules, r)
		}
	}
	object := e.object(&expressed, rules)
	size, err := sizeOf(object)
	if err != nil {
		return err
	}
	if size > MaxObject {
		e.finding(plan.Error, p.Listener, v1alpha1.PolicyReasonTooLarge, fmt.Sprintf(
			"the SecurityPolicy would have %d bytes, %d fit; until the policies are smaller or on several Gateways, every request is denied", size, MaxObject))
		expressed.Rules, expressed.Refusals = nil, nil
		object = e.object(&expressed, nil)
		if size, err = sizeOf(object); err != nil {
			return err
		}
	}
	e.out.Bytes = max(e.out.Bytes, size)
	e.sent += delivery(size, e.copies(p.Listener))
	e.out.Objects = append(e.out.Objects, object)
	e.out.Expressed = append(e.out.Expressed, expressed)
	return nil
}

// verifiable returns the part of a source that can be recognised, and why the rest cannot.
func (e *emission) verifiable(s plan.Source, listener string) (plan.Source, string) {
	kept, reason := plan.Source{Any: s.Any}, ""
	for _, c := range callers(s) {
		why := ""
		switch {
		case c.jwt != nil && !e.opts.verifiesTokens():
			why = "the issuer of ServiceAccount tokens or its keys (JWKS) are not known, so no token can be verified; the operator reads both from the API server and logs why it cannot; for files give --token-issuer and --jwks"
		case c.cel != "":
			why = e.uncertain(listener)
		}
		if why != "" {
			reason = why
		} else if c.principal != "" {
			kept.Principals = append(kept.Principals, c.principal)
		}
	}
	return kept, reason
}

// partly tells of a rule whose callers are recognised by one kind of credential only.
func (e *emission) partly(r plan.Rule, kept plan.Source, listener, why string) {
	if len(kept.Principals) == len(r.Source.Principals) {
		return
	}
	e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Warning, Enforcer: Enforcer, Gateway: e.gateway, Listeners: listeners(listener), Origin: r.Origin,
		Reason: "OneCredentialOnly", Message: fmt.Sprintf("callers of rule %s are recognised as %s only: %s", r.Origin.Rule, strings.Join(kept.Principals, ", "), why)})
}

// refuse renders what ExternalAuth policies would have delegated as Deny rules. They lean to refusal: only the source and
// the HTTP methods are compared, which cannot fail; every other condition is left out, so that more is refused.
func (e *emission) refuse(p, expressed *plan.Plan) []egv1a1.AuthorizationRule {
	var out []egv1a1.AuthorizationRule
	for _, refusal := range p.Refusals {
		kept := plan.Refusal{Origin: refusal.Origin}
		for _, r := range refusal.Rules {
			less := plan.Rule{Origin: r.Origin, Source: r.Source, Methods: r.Methods}
			if _, why := e.verifiable(r.Source, p.Listener); why != "" {
				less.Source = plan.Source{Any: true}
			}
			if len(r.Paths)+len(r.Headers)+len(r.Hosts) > 0 || r.MCP != nil || r.CEL != nil || less.Source.Any && !r.Source.Any {
				e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Warning, Enforcer: Enforcer, Gateway: e.gateway, Listeners: listeners(p.Listener),
					Origin: r.Origin, Reason: "RefusesMore", Message: "a SecurityPolicy refuses by caller and HTTP method only: of what the ExternalAuth rule would delegate, all requests of its callers with its HTTP methods are refused"})
			}
			for _, c := range callers(less.Source) {
				var conditions part
				if len(less.Methods) > 0 {
					conditions = conditions.header(headerMethod, less.Methods...)
				}
				rule := c.rule(conditions)
				rule.Name, rule.Action = ruleName("refuse/"+r.Origin.String(), len(out)), egv1a1.ActionDeny
				out = append(out, rule)
			}
			kept.Rules = append(kept.Rules, less)
		}
		expressed.Refusals = append(expressed.Refusals, kept)
	}
	return out
}

// object is the SecurityPolicy of a plan. jwt and authorization always stand in one object: apart, one could be displaced
// without the other.
func (e *emission) object(p *plan.Plan, rules []egv1a1.AuthorizationRule) *egv1a1.SecurityPolicy {
	object := &egv1a1.SecurityPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: egv1a1.GroupVersion.String(), Kind: egv1a1.KindSecurityPolicy},
		ObjectMeta: owned.Meta(e.Gateway, e.name(p.Listener)),
	}
	target := egv1a1.TargetRef{Group: gwv1.GroupName, Kind: "Gateway", Name: gwv1.ObjectName(e.Gateway.Name)}
	if p.Listener != "" {
		section := gwv1.SectionName(p.Listener)
		target.SectionName = &section
	}
	object.Spec.TargetRefs = []egv1a1.TargetRef{target}
	object.Spec.JWT = e.jwt(p)
	object.Spec.Authorization = &egv1a1.Authorization{Rules: rules, DefaultAction: egv1a1.ActionDeny}
	return object
}

// jwt verifies tokens where some rule reads them. A token that is missing or does not verify is an error for the caller only
// where nothing but a token could help; elsewhere the request goes on without claims, and the rules decide.
func (e *emission) jwt(p *plan.Plan) *egv1a1.JWT {
	ids := p.Identities()
	if !ids.Token {
		return nil
	}
	jwks := e.opts.JWKS
	provider := egv1a1.JWTProvider{Name: Provider, Issuer: e.opts.Issuer, Audiences: e.opts.Audiences,
		LocalJWKS:   &egv1a1.LocalJWKS{Type: "Inline", Inline: &jwks},
		ExtractFrom: &egv1a1.JWTExtractor{Headers: []egv1a1.JWTHeaderExtractor{{Name: "Authorization", ValuePrefix: "Bearer "}}}}
	jwt := &egv1a1.JWT{Providers: []egv1a1.JWTProvider{provider}}
	if ids.Anonymous || ids.SPIFFE {
		yes := true
		jwt.FailOpen = &yes
	}
	return jwt
}

// name gives the object its name. An object of that name that is not ours is never touched.
func (e *emission) name(listener string) string {
	name, skipped := owned.Name(e.Gateway.Name, listener, func(name string) bool {
		return slices.ContainsFunc(e.Existing, func(sp egv1a1.SecurityPolicy) bool {
			return sp.Namespace == e.Gateway.Namespace && sp.Name == name && !owned.Is(e.Gateway, &sp.ObjectMeta)
		})
	})
	for _, other := range skipped {
		e.finding(plan.Note, listener, "NameTaken", fmt.Sprintf("SecurityPolicy %s is somebody else's and is left alone; ours is named %s", other, name))
	}
	return name
}

func (e *emission) dropped(rule plan.Origin, listener, why string) {
	e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Error, Enforcer: Enforcer, Gateway: e.gateway, Listeners: listeners(listener), Origin: rule,
		Reason: v1alpha1.PolicyReasonPartiallyProgrammed, Message: fmt.Sprintf("rule %s grants nothing under Envoy Gateway: %s", rule.Rule, why)})
}

func (e *emission) finding(severity plan.Severity, listener, reason, message string) {
	e.out.Findings = append(e.out.Findings, plan.Finding{Severity: severity, Enforcer: Enforcer, Gateway: e.gateway, Listeners: listeners(listener), Reason: reason, Message: message})
}

func listeners(listener string) []string {
	if listener == "" {
		return nil
	}
	return []string{listener}
}

func sizeOf(object *egv1a1.SecurityPolicy) (int, error) {
	raw, err := json.Marshal(object)
	return len(raw), err
}

// Unstructured returns the object as it is to be written.
func Unstructured(object *egv1a1.SecurityPolicy) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	return out, out.UnmarshalJSON(raw)
}
