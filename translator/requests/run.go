package requests

import (
	"fmt"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
)

// Outcome is what became of one request.
type Outcome struct {
	Request  Request
	Decision plan.Decision
	// Failure is "" when the expectation held; else one sentence.
	Failure string
}

// Against says what a file is run against.
type Against string

const (
	// AgainstPlan is what the policies say.
	AgainstPlan Against = "plan"
	// AgainstKuadrant is what the generated AuthPolicies express.
	AgainstKuadrant Against = kuadrant.Enforcer
	// AgainstEnvoyGateway is what the generated SecurityPolicies express.
	AgainstEnvoyGateway Against = envoygateway.Enforcer
)

// Enforcers are the enforcers that have to be translated for.
func (a Against) Enforcers() translator.Enforcers {
	return translator.Enforcers{Kuadrant: a != AgainstEnvoyGateway, EnvoyGateway: a == AgainstEnvoyGateway}
}

// Run decides every request of the file. The error is about the file or its Gateway, not about an expectation.
func Run(f *File, result *translator.Result, opts translator.Options, against Against) ([]Outcome, error) {
	gw, err := Gateway(f, result)
	if err != nil {
		return nil, err
	}
	plans := gw.Plans
	switch against {
	case AgainstKuadrant:
		plans = gw.Kuadrant.Expressed
	case AgainstEnvoyGateway:
		plans = gw.EnvoyGateway.Expressed
	case AgainstPlan:
	}
	out := make([]Outcome, len(f.Requests))
	for i, r := range f.Requests {
		// Envoy itself reads the certificate of the connection.
		request := r.Plan(opts.Profile, against != AgainstEnvoyGateway && opts.Kuadrant.SPIFFEFrom == kuadrant.SPIFFEFromXFCC)
		listener := r.Listener
		if against == AgainstKuadrant {
			listener = "" // Kuadrant chooses by host name
		}
		p := plan.Select(plans, listener, request.Host)
		if p == nil {
			return nil, fmt.Errorf("%s: no listener of Gateway %s has this host or name", r.Name, gw.Gateway)
		}
		out[i] = Outcome{Request: r, Decision: p.Decide(request)}
		out[i].Failure = r.compare(out[i].Decision, against)
	}
	return out, nil
}

// Gateway returns the result that the file speaks of.
func Gateway(f *File, result *translator.Result) (*translator.GatewayResult, error) {
	if f.Gateway == "" && len(result.Gateways) == 1 {
		return &result.Gateways[0], nil
	}
	var names []string
	for i := range result.Gateways {
		name := result.Gateways[i].Gateway.String()
		if name == f.Gateway {
			return &result.Gateways[i], nil
		}
		names = append(names, name)
	}
	if f.Gateway == "" {
		return nil, fmt.Errorf("gateway: say which, the policies target %v", names)
	}
	return nil, fmt.Errorf("gateway: %s is not the target of any policy; there are %v", f.Gateway, names)
}

// compare returns what is wrong with a decision.
func (r Request) compare(d plan.Decision, against Against) string {
	want, by := r.Expect, r.By
	if against == AgainstKuadrant && r.Kuadrant != "" {
		want, by = r.Kuadrant, ""
	}
	if against == AgainstEnvoyGateway && r.EnvoyGateway != "" {
		want, by = r.EnvoyGateway, ""
	}
	got := Deny
	if d.Allowed {
		got = Allow
	}
	switch {
	case got != want:
		return fmt.Sprintf("want %s, got %s: %s", want, got, explain(d))
	case by != "" && d.By.String() != by:
		return fmt.Sprintf("want it granted by %s, it was by %s", by, d.By)
	// Envoy answers 403 to a caller without a credential wherever some rule asks for none.
	case r.Status != 0 && d.Status != r.Status && against != AgainstEnvoyGateway:
		return fmt.Sprintf("want status %d, got %d", r.Status, d.Status)
	}
	return ""
}

func explain(d plan.Decision) string {
	if d.NearMiss != nil {
		return fmt.Sprintf("%s; nearest is %s: %s", d.Reason, d.NearMiss.Origin, d.NearMiss.Why)
	}
	return d.Reason
}
