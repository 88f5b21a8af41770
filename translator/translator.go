// Package translator turns the XAccessPolicies that target a Gateway into plans and the objects that enforce them. It is
// pure: values in, values out, no client, no clock. Controllers and the command line are shells around Translate.
package translator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
)

// Policy is an XAccessPolicy as it was read. Problems are what reading it found (a field that this version does not know,
// a second object of the same name); a policy with problems is refused and still closes its targets.
type Policy struct {
	Object   v1alpha1.XAccessPolicy
	Problems []Problem
}

// Input is everything that Translate looks at.
type Input struct {
	Policies []Policy
	Gateways []gwv1.Gateway
	// Routes are the HTTPRoutes that exist; they only serve to say what is displaced and how much is sent to Envoy.
	Routes []gwv1.HTTPRoute
	// AuthPolicies and SecurityPolicies are those that exist already, ours and other people's.
	AuthPolicies     []kuadrantv1.AuthPolicy
	SecurityPolicies []egv1a1.SecurityPolicy
	// ClientTraffic are the ClientTrafficPolicies that exist.
	ClientTraffic []egv1a1.ClientTrafficPolicy
	// Classes, EnvoyProxies and AuthConfigs are those that exist. Whether Authorino can be asked on Envoy Gateway depends on them;
	// NoAuthConfigs is set where the API server does not serve AuthConfigs.
	Classes       []gwv1.GatewayClass
	EnvoyProxies  []egv1a1.EnvoyProxy
	AuthConfigs   []authorinov1beta3.AuthConfig
	NoAuthConfigs bool
	// Enforcers says what enforces the policies of a Gateway, where that is not Options.Enforcers.
	Enforcers map[types.NamespacedName]Enforcers
}

// Options are the operator's configuration.
type Options struct {
	// Profile says which MCP headers can be believed; plan.ProfileNamed has the known ones.
	Profile plan.Profile
	// TrustDomain, when set, lets a ServiceAccount source match spiffe://<TrustDomain>/ns/<ns>/sa/<name> as well.
	TrustDomain string
	// Enforcers is what enforces policies. The zero value is Kuadrant alone.
	Enforcers    Enforcers
	Kuadrant     kuadrant.Options
	EnvoyGateway envoygateway.Options
}

// Validate returns an error that names the option which cannot be used.
func (o Options) Validate() error {
	if o.Profile.MethodHeader == "" {
		return errors.New("profile: the header that carries the MCP method has no name")
	}
	if o.TrustDomain != "" {
		if td, err := spiffeid.TrustDomainFromString(o.TrustDomain); err != nil || td.Name() != o.TrustDomain {
			return fmt.Errorf("trust domain: %q is not a SPIFFE trust domain", o.TrustDomain)
		}
	}
	if err := o.Kuadrant.Validate(); err != nil {
		return err
	}
	if o.Enforcers.EnvoyGateway {
		return o.EnvoyGateway.Validate()
	}
	return nil
}

// Result is what Translate makes of an Input. Everything in it is sorted: the same input in any order gives the same
// result.
type Result struct {
	// Gateways has an entry for every Gateway of the input that some policy targets or that denies by default.
	Gateways []GatewayResult
	// Verdicts has one entry per policy and ancestor.
	Verdicts []Verdict
	Findings []plan.Finding
}

// GatewayResult is what belongs to one Gateway.
type GatewayResult struct {
	Gateway types.NamespacedName
	// Plans holds one plan for the whole Gateway (Listener ""), or one per listener and one with Listener "" for
	// listeners that are not there yet.
	Plans []plan.Plan
	// Enforcers is what enforces the policies.
	Enforcers Enforcers
	// Kuadrant and EnvoyGateway are what was generated for them; zero where they do not enforce.
	Kuadrant     kuadrant.Output
	EnvoyGateway envoygateway.Output
}

// Verdict says whether a policy was taken on an ancestor.
type Verdict struct {
	Policy  types.NamespacedName
	Gateway types.NamespacedName
	// Section is the listener that the policy names, or "".
	Section  string
	Accepted bool
	// Reason and Message are those of the Accepted condition.
	Reason, Message string
	// Problems are the faults behind a refusal.
	Problems []Problem
	// Programmed is what the translation alone can tell about the Programmed condition: Pending until the object is
	// reported in force, or the reason why the policy is not (wholly) in it.
	Programmed, ProgrammedMessage string
}

// attachment is a policy on a Gateway.
type attachment struct {
	*compiled
	policy  *Policy
	section string
	// missing is set when no listener has the section's name.
	missing bool
	// mute is set when the listener does not speak HTTP.
	mute bool
}

// AnnotationDefaultDeny on a Gateway closes every listener that no policy targets.
const AnnotationDefaultDeny = "accesspolicy-operator/default-deny"

// DefaultDeny reports whether a Gateway is annotated to be closed where no policy targets it. Any value but "false" closes
// it: a misspelt value must not open anything.
func DefaultDeny(gw *gwv1.Gateway) bool {
	value, set := gw.Annotations[AnnotationDefaultDeny]
	return set && value != "false"
}

// Translate is the one entry point. A fault of a user is a verdict or a finding; an error is a fault of ours or of the
// configuration.
func Translate(in Input, opts Options) (*Result, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	policies := slices.Clone(in.Policies)
	slices.SortStableFunc(policies, older)
	markDuplicates(policies)
	byGateway := map[types.NamespacedName][]attachment{}
	out := &Result{}
	for i := range policies {
		c := compile(policies[i], opts)
		out.Findings = append(out.Findings, c.findings...)
		named := targets(&policies[i], &c, out)
		if len(named) == 0 {
			out.Findings = append(out.Findings, unplaced(&c, types.NamespacedName{})...)
		}
		for _, target := range named {
			byGateway[target.gateway] = append(byGateway[target.gateway],
				attachment{compiled: &c, policy: &policies[i], section: target.section})
		}
	}
	for _, gw := range sortedGateways(in.Gateways) {
		name := types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}
		attached := byGateway[name]
		delete(byGateway, name)
		if len(attached) == 0 && !DefaultDeny(gw) {
			continue
		}
		if err := translateGateway(gw, attached, in, opts, out); err != nil {
			return nil, fmt.Errorf("Gateway %s: %w", name, err)
		}
	}
	missingGateways(byGateway, out)
	sortFindings(out.Findings)
	return out, nil
}

// older orders policies as GEP-713 does: by creation time, then by namespace and name.
func older(a, b Policy) int {
	order := cmp.Or(a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time),
		cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	if order == 0 { // copies of one policy; all are refused, and in an order that is none of the input's
		order = cmp.Compare(contents(a), contents(b))
	}
	return order
}

// contents is the text of a policy's spec and problems.
func contents(p Policy) string {
	text, err := json.Marshal(p.Object.Spec)
	if err != nil {
		text = []byte(err.Error()) // an order is all that is asked for
	}
	return string(text) + summary(p.Problems)
}

// markDuplicates refuses every copy of an object that stands in the input more than once: which one is meant cannot be
// told, and merging would grant what neither says.
func markDuplicates(policies []Policy) {
	count := map[types.NamespacedName]int{}
	for i := range policies {
		count[key(&policies[i].Object)]++
	}
	for i := range policies {
		if n := count[key(&policies[i].Object)]; n > 1 {
			policies[i].Problems = append(slices.Clone(policies[i].Problems), Problem{Field: "metadata.name",
				Reason: v1alpha1.PolicyReasonInvalid, Message: fmt.Sprintf("the input has %d policies of this namespace and name; keep one", n)})
		}
	}
}

func key(p *v1alpha1.XAccessPolicy) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

type target struct {
	gateway types.NamespacedName
	section string
}

// targets returns the Gateways that a policy names, once each. Other kinds get no ancestor: an entry with Accepted=False
// would disable the policy for the implementation that does know them.
func targets(p *Policy, c *compiled, out *Result) []target {
	var list []target
	for i, ref := range p.Object.Spec.TargetRefs {
		if ref.Group != gwv1.GroupName || ref.Kind != "Gateway" {
			out.Findings = append(out.Findings, plan.Finding{Severity: plan.Warning, Reason: "TargetIgnored",
				Origin:  plan.Origin{Policy: c.name, Field: fmt.Sprintf("spec.targetRefs[%d]", i)},
				Message: fmt.Sprintf("only Gateways of %s can be targeted, not %s of group %q; this target is left to other implementations", gwv1.GroupName, ref.Kind, ref.Group)})
			continue
		}
		t := target{gateway: types.NamespacedName{Namespace: p.Object.Namespace, Name: string(ref.Name)}}
		if ref.SectionName != nil {
			t.section = string(*ref.SectionName)
		}
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

func sortedGateways(list []gwv1.Gateway) []*gwv1.Gateway {
	out := make([]*gwv1.Gateway, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	slices.SortFunc(out, func(a, b *gwv1.Gateway) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func missingGateways(left map[types.NamespacedName][]attachment, out *Result) {
	for gateway, attached := range left {
		for _, a := range attached {
			out.Findings = append(out.Findings, plan.Finding{Severity: plan.Error, Reason: v1alpha1.PolicyReasonTargetNotFound, Gateway: gateway,
				Origin:  plan.Origin{Policy: a.name, Field: "spec.targetRefs"},
				Message: fmt.Sprintf("Gateway %s does not exist; create it, or correct the name", gateway)})
			out.Findings = append(out.Findings, unplaced(a.compiled, gateway)...)
		}
	}
}

// unplaced tells the faults of a policy that has no ancestor whose status could tell them.
func unplaced(c *compiled, gateway types.NamespacedName) []plan.Finding {
	var out []plan.Finding
	for _, p := range c.problems {
		out = append(out, plan.Finding{Severity: plan.Error, Gateway: gateway, Reason: p.Reason, Message: p.Message, Origin: plan.Origin{Policy: c.name, Field: p.Field}})
	}
	return out
}

func translateGateway(gw *gwv1.Gateway, attached []attachment, in Input, opts Options, out *Result) error {
	markMissing(gw, attached)
	set := planListeners(gw, attached, opts.Profile)
	out.Findings = append(out.Findings, set.findings...)
	result, err := emit(gw, set, in, opts)
	if err != nil {
		return err
	}
	emitted := slices.Concat(result.Kuadrant.Findings, result.EnvoyGateway.Findings)
	out.Findings = append(out.Findings, emitted...)
	out.Gateways = append(out.Gateways, result)
	for _, a := range attached {
		v := verdict(gw, a)
		programmed(&v, emitted)
		out.Verdicts = append(out.Verdicts, v)
	}
	return nil
}

// emit runs the emitters of a Gateway's enforcers.
func emit(gw *gwv1.Gateway, set planSet, in Input, opts Options) (GatewayResult, error) {
	result := GatewayResult{Gateway: types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}, Plans: set.collapsed()}
	result.Enforcers = enforcersOf(result.Gateway, in, opts)
	if result.Enforcers.Kuadrant {
		emitted, err := kuadrant.Emit(kuadrant.Input{Gateway: gw, Listeners: set.listeners, Baseline: set.baseline, Wide: set.wide,
			Existing: in.AuthPolicies, Routes: in.Routes}, opts.Kuadrant)
		if err != nil {
			return result, err
		}
		result.Kuadrant = *emitted
	}
	if result.Enforcers.EnvoyGateway {
		options := opts.EnvoyGateway
		options.Scheme = opts.Kuadrant
		emitted, err := envoygateway.Emit(envoygateway.Input{Gateway: gw, Plans: result.Plans, Class: classOf(gw, in.Classes), Proxies: in.EnvoyProxies,
			Existing: in.SecurityPolicies, AuthConfigs: in.AuthConfigs, NoAuthConfigs: in.NoAuthConfigs, ClientTraffic: in.ClientTraffic, Routes: in.Routes}, options)
		if err != nil {
			return result, err
		}
		result.EnvoyGateway = *emitted
	}
	return result, nil
}

func classOf(gw *gwv1.Gateway, classes []gwv1.GatewayClass) *gwv1.GatewayClass {
	for i := range classes {
		if classes[i].Name == string(gw.Spec.GatewayClassName) {
			return &classes[i]
		}
	}
	return nil
}

func verdict(gw *gwv1.Gateway, a attachment) Verdict {
	v := Verdict{Policy: a.name, Gateway: types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}, Section: a.section, Problems: a.problems}
	switch {
	case len(a.problems) > 0:
		v.Reason, v.Message = a.problems[0].Reason, summary(a.problems)
		if a.action != v1alpha1.ActionTypeAllow {
			v.Message += "; until this is mended every request on the target is refused"
		}
	case a.mute:
		v.Reason = v1alpha1.PolicyReasonUnsupportedField
		v.Problems = []Problem{{Field: "spec.targetRefs", Reason: v.Reason, Message: fmt.Sprintf(
			"listener %s does not speak HTTP, so no policy can govern it; name a listener of protocol HTTP or HTTPS", shorten(a.section))}}
		v.Message = summary(v.Problems)
	case a.missing:
		v.Reason = v1alpha1.PolicyReasonTargetNotFound
		v.Problems = []Problem{{Field: "spec.targetRefs", Reason: v.Reason, Message: fmt.Sprintf(
			"the Gateway has no listener %s; correct sectionName. Until then every listener that no other policy targets is closed", shorten(a.section))}}
		v.Message = summary(v.Problems)
	case a.action == v1alpha1.ActionTypeExternalAuth:
		v.Reason = v1alpha1.PolicyReasonUnsupportedAction
		v.Problems = []Problem{{Field: "spec.action", Reason: v.Reason, Message: "ExternalAuth is not supported yet; " +
			"the requests that this policy would delegate are refused. Delete the policy, or use action Allow"}}
		v.Message = summary(v.Problems)
	case a.action != v1alpha1.ActionTypeAllow:
		v.Reason = v1alpha1.PolicyReasonUnsupportedAction
		v.Problems = []Problem{{Field: "spec.action", Reason: v.Reason, Message: fmt.Sprintf(
			"the action %s is not known; since it may forbid something, every request on the target is refused. Use Allow", shorten(string(a.action)))}}
		v.Message = summary(v.Problems)
	default:
		v.Accepted, v.Reason, v.Message = true, v1alpha1.PolicyReasonAccepted, "the policy is part of the generated configuration"
	}
	return v
}

// programmed carries over what the emitter could not do for the policy.
func programmed(v *Verdict, emitted []plan.Finding) {
	v.Programmed, v.ProgrammedMessage = v1alpha1.PolicyReasonPending, "the generated object has not been reported as enforced yet"
	if !v.Accepted {
		v.Programmed, v.ProgrammedMessage = v1alpha1.PolicyReasonInvalid, "the policy was not accepted; its rules grant nothing"
		if v.Reason == v1alpha1.PolicyReasonUnsupportedAction {
			v.ProgrammedMessage = "the policy was not accepted; what it would decide is refused"
		}
		return
	}
	var parts []string
	for _, f := range emitted {
		elsewhere := v.Section != "" && len(f.Listeners) > 0 && !slices.Contains(f.Listeners, v.Section)
		if f.Severity != plan.Error || elsewhere || f.Origin.Policy != v.Policy && f.Origin.Policy != (types.NamespacedName{}) {
			continue
		}
		v.Programmed = f.Reason
		parts = append(parts, f.Message)
	}
	if len(parts) > 0 {
		v.ProgrammedMessage = strings.Join(slices.Compact(parts), "; ")
	}
}

func sortFindings(list []plan.Finding) {
	slices.SortStableFunc(list, func(a, b plan.Finding) int {
		return cmp.Or(cmp.Compare(a.Gateway.String(), b.Gateway.String()), cmp.Compare(a.Origin.Policy.String(), b.Origin.Policy.String()),
			cmp.Compare(a.Origin.Field, b.Origin.Field), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message),
			cmp.Compare(a.Enforcer, b.Enforcer), slices.Compare(a.Listeners, b.Listeners))
	})
}
