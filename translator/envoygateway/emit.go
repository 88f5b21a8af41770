package envoygateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
)

// Input is what one Gateway needs.
type Input struct {
	Gateway *gwv1.Gateway
	// Plans holds one plan for the whole Gateway (Listener ""), or one per listener and, where listeners that come later are
	// to be closed, one with Listener "" for them.
	Plans []plan.Plan
	// Existing are the SecurityPolicies that are there, ours and others, and AuthConfigs the AuthConfigs.
	Existing    []egv1a1.SecurityPolicy
	AuthConfigs []authorinov1beta3.AuthConfig
	// NoAuthConfigs is set where the API server does not serve AuthConfigs.
	NoAuthConfigs bool
	// Class is the Gateway's; nil where it is not known. Proxies are the EnvoyProxies that are there. The form that asks Authorino
	// depends on both.
	Class   *gwv1.GatewayClass
	Proxies []egv1a1.EnvoyProxy
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
	// AuthConfigs are those that the objects ask, in the same order; one that denies everything asks none.
	AuthConfigs []*authorinov1beta3.AuthConfig
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
	// asks is set for the form that asks Authorino; unordered then says why it cannot be relied on, "" where it can.
	asks      bool
	unordered string
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
	if e.asks = e.form() == FormExtAuth; e.asks {
		e.unordered, _ = Unordered(in.Gateway, in.Class, in.Proxies)
	}
	if e.unordered != "" && slices.ContainsFunc(plans, func(p plan.Plan) bool { return !p.Open }) {
		e.orderFinding()
	}
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

// emit makes the objects of one plan. Whatever cannot be written as it should leaves the attachment point closed.
func (e *emission) emit(p *plan.Plan) error {
	if e.asks {
		return e.delegate(p)
	}
	expressed := *p
	expressed.Rules, expressed.Refusals = nil, nil
	var rules []egv1a1.AuthorizationRule
	if slices.ContainsFunc(p.Refusals, func(r plan.Refusal) bool { return r.All }) {
		expressed.Refusals = p.Refusals
	} else {
		rules = e.refuse(p, &expressed)
		for _, r := range p.Rules {
			r, why := e.recognise(r, p.Listener)
			var allowed []egv1a1.AuthorizationRule
			if why == "" {
				var err error
				if allowed, why, err = allow(&r, p.Profile); err != nil {
					return err
				}
			}
			if why != "" {
				e.dropped(r.Origin, p.Listener, why)
				continue
			}
			rules = append(rules, allowed...)
			expressed.Rules = append(expressed.Rules, r)
		}
	}
	object := e.native(&expressed, rules)
	size, err := sizeOf(object)
	if err != nil {
		return err
	}
	if size > MaxObject {
		e.finding(plan.Error, p.Listener, v1alpha1.PolicyReasonTooLarge, fmt.Sprintf(
			"the SecurityPolicy would have %d bytes, %d fit; until the policies are smaller or on several Gateways, every request is denied", size, MaxObject))
		return e.addClosed(p)
	}
	return e.add(&expressed, object)
}

// add takes an object, and the plan as it expresses it.
func (e *emission) add(expressed *plan.Plan, object *egv1a1.SecurityPolicy) error {
	size, err := sizeOf(object)
	if err != nil {
		return err
	}
	e.out.Bytes = max(e.out.Bytes, size)
	e.sent += delivery(size, e.copies(expressed.Listener))
	e.out.Objects = append(e.out.Objects, object)
	e.out.Expressed = append(e.out.Expressed, *expressed)
	return nil
}

// recognise returns a rule with the callers that can be recognised; the string says why none can be.
func (e *emission) recognise(r plan.Rule, listener string) (plan.Rule, string) {
	source, why := e.verifiable(r.Source, listener)
	if len(source.Principals) == 0 && !source.Any {
		return r, why
	}
	e.partly(r, source, listener, why)
	r.Source = source
	return r, ""
}

// verifiable returns the part of a source that can be recognised, and why the rest cannot.
func (e *emission) verifiable(s plan.Source, listener string) (plan.Source, string) {
	kept, reason := plan.Source{Any: s.Any}, ""
	for _, c := range callers(s) {
		why := ""
		switch {
		case c.jwt != nil && !e.asks && !e.opts.verifiesTokens():
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
				e.refusesMore(r.Origin, p.Listener, "a SecurityPolicy refuses by caller and HTTP method only: of what the ExternalAuth rule would delegate, all requests of its callers with its HTTP methods are refused")
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

func (e *emission) refusesMore(rule plan.Origin, listener, message string) {
	e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Warning, Enforcer: Enforcer, Gateway: e.gateway, Listeners: listeners(listener),
		Origin: rule, Reason: "RefusesMore", Message: message})
}

// object is a SecurityPolicy for a listener, "" for the whole Gateway, with nothing in it yet.
func (e *emission) object(listener string) *egv1a1.SecurityPolicy {
	name := e.name(egv1a1.KindSecurityPolicy, listener, func(name string) bool {
		return slices.ContainsFunc(e.Existing, func(sp egv1a1.SecurityPolicy) bool {
			return sp.Namespace == e.Gateway.Namespace && sp.Name == name && !owned.Is(e.Gateway, &sp.ObjectMeta)
		})
	})
	object := &egv1a1.SecurityPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: egv1a1.GroupVersion.String(), Kind: egv1a1.KindSecurityPolicy},
		ObjectMeta: owned.Meta(e.Gateway, name),
	}
	target := egv1a1.TargetRef{Group: gwv1.GroupName, Kind: "Gateway", Name: gwv1.ObjectName(e.Gateway.Name)}
	if listener != "" {
		section := gwv1.SectionName(listener)
		target.SectionName = &section
	}
	object.Spec.TargetRefs = []egv1a1.TargetRef{target}
	return object
}

// native is the SecurityPolicy of a plan that Envoy itself enforces. jwt and authorization always stand in one object: apart, one
// could be displaced without the other.
func (e *emission) native(p *plan.Plan, rules []egv1a1.AuthorizationRule) *egv1a1.SecurityPolicy {
	object := e.object(p.Listener)
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

// name gives an object of a kind its name. An object of that name that is not ours is never touched.
func (e *emission) name(kind, listener string, taken func(name string) bool) string {
	name, skipped := owned.Name(e.Gateway.Name, listener, taken)
	for _, other := range skipped {
		note := plan.Finding{Severity: plan.Note, Enforcer: Enforcer, Gateway: e.gateway, Listeners: listeners(listener), Reason: "NameTaken",
			Message: fmt.Sprintf("%s %s is somebody else's and is left alone; ours is named %s", kind, other, name)}
		if !slices.ContainsFunc(e.out.Findings, func(f plan.Finding) bool { return f.Message == note.Message }) { // asked again for a smaller object
			e.out.Findings = append(e.out.Findings, note)
		}
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

// Manifests are the objects in the order in which they are to be written: what is asked before what asks.
func (o *Output) Manifests() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, config := range o.AuthConfigs {
		u, err := kuadrant.Unstructured(config)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	for _, object := range o.Objects {
		u, err := Unstructured(object)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
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
