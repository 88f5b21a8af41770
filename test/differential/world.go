package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/test/judge"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// Judged is one request with the answers of the plan as expressed and of the real pipeline.
type Judged struct {
	Request requests.Request
	// Expressed is nil where the request reaches no route (see routed).
	Expressed *plan.Decision
	Real      judge.Result
}

// Disagreement says in what the answers differ, or "".
func (j Judged) Disagreement(named bool) string {
	if j.Expressed == nil {
		return ""
	}
	d := *j.Expressed
	switch {
	case d.Allowed != j.Real.Allowed:
		return fmt.Sprintf("plan: allowed=%v (%s), Authorino: allowed=%v (%d %s)", d.Allowed, d.Reason, j.Real.Allowed, j.Real.Status, j.Real.Reason)
	case !d.Allowed && d.Status != j.Real.Status:
		return fmt.Sprintf("plan: status %d, Authorino: %d %s", d.Status, j.Real.Status, j.Real.Reason)
	case named && d.Allowed && d.By.Policy.Name != "" && !grantedBy(j.Real.Granted, d.By):
		return fmt.Sprintf("plan: granted by %s, Authorino: by %v", d.By, j.Real.Granted)
	}
	return ""
}

// grantedBy looks for the evaluator of a policy; a large policy has several, namespace/name and namespace/name/2.
func grantedBy(keys []string, by plan.Origin) bool {
	own := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == kuadrant.KeyFailClose || k == kuadrant.KeyRefuse })
	return len(own) == 1 && (own[0] == by.Policy.String() || len(own[0]) > len(by.Policy.String()) && own[0][:len(by.Policy.String())+1] == by.Policy.String()+"/")
}

// ShapeFor is the data plane that sends what the options read SPIFFE IDs from.
func ShapeFor(opts translator.Options) judge.Shape {
	if opts.Kuadrant.SPIFFEFrom == kuadrant.SPIFFEFromXFCC {
		return judge.ShapeWasmShim
	}
	return judge.ShapeEnvoy
}

// World is what the judge has to load for a Gateway: its AuthPolicies, other people's, the routes, and the tokens of some
// ServiceAccounts.
func World(gw *gwv1.Gateway, result *translator.GatewayResult, in translator.Input, opts translator.Options, accounts []string) judge.World {
	w := judge.World{Gateway: gw, AuthPolicies: slices.Clone(result.Kuadrant.Objects), Tokens: map[string]judge.Token{}}
	for i := range in.AuthPolicies {
		w.AuthPolicies = append(w.AuthPolicies, &in.AuthPolicies[i])
	}
	for i := range in.Routes {
		w.HTTPRoutes = append(w.HTTPRoutes, &in.Routes[i])
	}
	for _, sa := range accounts {
		review := requests.TokenReview(sa)
		w.Tokens[requests.Token(sa)] = judge.Token{Username: review.Username, UID: review.UID, Groups: review.Groups, Audiences: opts.Kuadrant.Audiences}
	}
	return w
}

// Ask sends requests through the real pipeline in the given shape and decides them by the plan as expressed.
func Ask(client *judge.Client, world string, gw *gwv1.Gateway, result *translator.GatewayResult, opts translator.Options, shape judge.Shape, list []requests.Request) ([]Judged, error) {
	wires := make([]judge.Request, len(list))
	out := make([]Judged, len(list))
	for i, r := range list {
		w := r.Wire(opts.Profile)
		wires[i] = judge.Request{Shape: shape, Method: w.Method, Host: w.Host, Path: w.Path, Headers: maps.Clone(w.Headers), Principal: w.Principal, Time: &w.Time}
		out[i].Request = r
		decided := r.Plan(opts.Profile, opts.Kuadrant.SPIFFEFrom == kuadrant.SPIFFEFromXFCC)
		if p := plan.Select(result.Kuadrant.Expressed, "", decided.Host); p != nil && routed(gw, decided.Host) {
			d := p.Decide(decided)
			out[i].Expressed = &d
		}
	}
	results, err := client.Check(world, wires...)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Real = results[i]
		if results[i].Crash {
			out[i].Expressed = nil // a path that Authorino itself cannot parse, whatever the policy (docs/security.md)
		}
	}
	return out, nil
}

// routed tells whether a request can be compared: some listener has its host name, as Kuadrant's plugin compares it. The
// plugin is case-sensitive where Envoy is not (docs/security.md), and the MCP router sets the host itself.
func routed(gw *gwv1.Gateway, host string) bool {
	hosts := make([]plan.Plan, len(gw.Spec.Listeners))
	for i, l := range gw.Spec.Listeners {
		hosts[i].Listener = string(l.Name)
		if l.Hostname != nil {
			hosts[i].Host = string(*l.Hostname)
		}
	}
	fit := plan.Select(hosts, "", host)
	return fit != nil && (fit.Host == "" || host == strings.ToLower(host))
}
