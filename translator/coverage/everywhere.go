package coverage

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
)

// everywhere returns what holds for the whole Gateway: an answer that takes back every covered line, nil for none, and the
// lines without a listener.
func (w *world) everywhere(gw *Gateway, enforcer string) (*answer, []answer) {
	if !w.ofEnvoyGateway(gw) {
		if enforcer == kuadrant.Enforcer {
			return nil, nil
		}
		other := answer{reason: OtherClass, why: fmt.Sprintf("Envoy Gateway does not look after class %s, so a SecurityPolicy has no effect here; enforce with Kuadrant", gw.Spec.GatewayClassName)}
		return &other, []answer{other}
	}
	var lacking *answer
	var notes []answer
	add := func(a answer) {
		if !a.covered && lacking == nil {
			lacking = &a
		}
		notes = append(notes, a)
	}
	if failing, ok := w.failing(gw); ok {
		add(failing)
	}
	for _, a := range w.filterOrder(gw, enforcer) {
		add(a)
	}
	for _, a := range w.patches(gw, enforcer) {
		add(a)
	}
	return lacking, notes
}

// ofEnvoyGateway reports whether Envoy Gateway looks after a Gateway, or may.
func (w *world) ofEnvoyGateway(gw *Gateway) bool {
	class := w.classOf(gw)
	return class == nil || w.in.IsEnvoyGateway(string(class.Spec.ControllerName))
}

// IsEnvoyGateway reports whether a controllerName is an Envoy Gateway's.
func (in *Input) IsEnvoyGateway(controller string) bool {
	return controller == egv1a1.Controller && len(in.EnvoyControllers) == 0 || slices.Contains(in.EnvoyControllers, controller)
}

func (w *world) classOf(gw *Gateway) *gwv1.GatewayClass {
	i := slices.IndexFunc(w.in.Classes, func(c gwv1.GatewayClass) bool { return c.Name == string(gw.Spec.GatewayClassName) })
	if i < 0 {
		return nil
	}
	return &w.in.Classes[i]
}

// proxies are the EnvoyProxies that configure the Gateway's Envoys: its own and its class's.
func (w *world) proxies(gw *Gateway) []*egv1a1.EnvoyProxy {
	var out []*egv1a1.EnvoyProxy
	own, ofClass := envoygateway.ProxyOfGateway(&gw.Gateway), envoygateway.ProxyOfClass(w.classOf(gw))
	for i := range w.in.EnvoyProxies {
		if name := nameOf(&w.in.EnvoyProxies[i].ObjectMeta); own != nil && *own == name || ofClass != nil && *ofClass == name {
			out = append(out, &w.in.EnvoyProxies[i])
		}
	}
	return out
}

const (
	kindEnvoyProxy   = "EnvoyProxy"
	kindEnvoyGateway = "EnvoyGateway"
)

// sharing are the Gateways that have their Envoys in common with this one, itself included.
func (w *world) sharing(gw *Gateway) []*Gateway {
	merged := slices.ContainsFunc(w.proxies(gw), func(p *egv1a1.EnvoyProxy) bool { return p.Spec.MergeGateways != nil && *p.Spec.MergeGateways })
	if !merged {
		return []*Gateway{gw}
	}
	var out []*Gateway
	for _, other := range w.gateways {
		if other.Spec.GatewayClassName == gw.Spec.GatewayClassName {
			out = append(out, other)
		}
	}
	return out
}

// failing finds the rule that Envoy Gateway cannot write down for a TCP connection: one that compares no client address gets an
// empty predicate, which is not valid; the error leaves the whole Gateway untranslated, and its Envoys keep the
// configuration from before. No status says so, our own object is Accepted.
// Envoy Gateway: internal/xds/translator/authorization.go, buildTCPPrincipalPredicate; internal/xds/runner/runner.go.
func (w *world) failing(gw *Gateway) (answer, bool) {
	for _, each := range w.sharing(gw) {
		for _, l := range w.listeners[nameOf(&each.ObjectMeta)] {
			if l.speaksHTTP() || l.Protocol == gwv1.UDPProtocolType {
				continue
			}
			for _, a := range w.attached[l] {
				for _, r := range a.route.linesOf() {
					winner, authorization := w.authorizing(a, r)
					if authorization == nil || !slices.ContainsFunc(authorization.Rules, withoutAddress) {
						continue
					}
					return answer{reason: TranslationFails, displacedBy: a.route.ID().String(), why: fmt.Sprintf(
						"%s applies to %s on listener %s, where Envoy Gateway cannot translate rules that compare more than client addresses: it leaves the whole Gateway as it was before, and no status tells; "+
							"give %s a Gateway of its own, or target the HTTP listeners by name in the XAccessPolicies", winner, a.route.ID(), l.Name, a.route.ID())}, true
				}
			}
		}
	}
	return answer{}, false
}

func withoutAddress(r egv1a1.AuthorizationRule) bool {
	return r.Principal == nil || len(r.Principal.ClientCIDRs) == 0
}

// filterOrder finds an EnvoyProxy that has requests checked before the token was verified or before the MCP router has set its
// headers: then what a client sends for them is believed.
func (w *world) filterOrder(gw *Gateway, enforcer string) []answer {
	checking, needed := envoygateway.FilterRBAC, []string{envoygateway.FilterExtProc, envoygateway.FilterJWT}
	if enforcer == kuadrant.Enforcer {
		checking, needed = envoygateway.FilterWasm, []string{envoygateway.FilterExtProc}
	} else if _, asks := w.forms(gw); asks {
		return w.askingOrder(gw)
	}
	var out []answer
	for _, proxy := range w.proxies(gw) {
		for _, position := range proxy.Spec.FilterOrder {
			other := ""
			switch {
			case position.Name == checking && position.Before != nil:
				other = *position.Before
			case position.After != nil && *position.After == checking:
				other = position.Name
			}
			if slices.Contains(needed, other) {
				out = append(out, answer{reason: FilterOrder, displacedBy: fmt.Sprintf("EnvoyProxy %s", nameOf(&proxy.ObjectMeta)), why: fmt.Sprintf(
					"its filterOrder puts %s before %s, so that rules are checked on what the client sent; take that entry out", checking, other)})
			}
		}
	}
	return out
}

// askingOrder is what is wrong with the order of filters where Authorino is asked: Envoy Gateway puts that before the MCP router by
// itself, so an order that is not certain counts as the wrong one.
func (w *world) askingOrder(gw *Gateway) []answer {
	why, proxy := envoygateway.Unordered(&gw.Gateway, w.classOf(gw), w.in.EnvoyProxies)
	if why == "" {
		return nil
	}
	out := answer{reason: FilterOrder, why: fmt.Sprintf("Authorino may be asked before the MCP router has set its headers, on what the client sent: %s", why)}
	if proxy != nil {
		out.displacedBy = fmt.Sprintf("EnvoyProxy %s", nameOf(&proxy.ObjectMeta))
	}
	return []answer{out}
}

// forms reports which forms the Gateway's SecurityPolicies have: rules that Envoy checks, and Authorino that it asks.
func (w *world) forms(gw *Gateway) (native, asks bool) {
	for _, b := range w.baselinesOf(gw, envoygateway.Enforcer) {
		native, asks = native || !asking(&b.Security.Spec), asks || asking(&b.Security.Spec)
	}
	return native, asks
}

// asking reports whether one of our objects has Authorino asked.
func asking(s *egv1a1.SecurityPolicySpec) bool { return s.ExtAuth != nil }

// filtersOf are the filters that the Gateway's SecurityPolicies need.
func (w *world) filtersOf(gw *Gateway) []string {
	native, asks := w.forms(gw)
	var out []string
	if native {
		out = append(out, envoygateway.FilterRBAC, envoygateway.FilterJWT)
	}
	if asks {
		out = append(out, envoygateway.FilterExtAuthz)
	}
	return out
}

// patches finds EnvoyPatchPolicies that change what ours needs, and ones that name what is not generated any more. What a patch
// makes of a configuration is not computed: that it takes hold of our filters is enough for a finding.
func (w *world) patches(gw *Gateway, enforcer string) []answer {
	needed := []string{envoygateway.FilterWasm}
	if enforcer == envoygateway.Enforcer {
		needed = w.filtersOf(gw)
	}
	var out []answer
	for _, p := range w.patchPolicies(gw) {
		name := "EnvoyPatchPolicy " + nameOf(&p.ObjectMeta).String()
		for _, patch := range p.Spec.JSONPatches {
			place := placeOf(patch.Operation)
			stale := staleLua.FindString(place)
			switch {
			case takesHold(patch, place, needed):
				out = append(out, answer{reason: PatchPolicy, displacedBy: name, why: fmt.Sprintf(
					"its patch (%s %s at %q) takes hold of the filters that ours needs, and what is left of them cannot be told from here; leave %s alone in it",
					patch.Operation.Op, patch.Name, place, strings.Join(needed, " and "))})
			case stale != "":
				out = append(out, answer{covered: true, reason: PatchStale, displacedBy: name, why: fmt.Sprintf(
					"its patch is for %s, which Envoy Gateway 1.9 does not generate any more, so that it does nothing or is refused; write it against what egctl shows", stale)})
			}
		}
	}
	return out
}

// staleLua are the names that Lua filters had in routes before 1.9; now they have that of their policy in place of a number.
// Envoy Gateway: release-notes/v1.9.0.yaml.
var staleLua = regexp.MustCompile(`envoy\.filters\.http\.lua/[0-9]+`)

// placeOf is where a patch changes something.
func placeOf(o egv1a1.JSONPatchOperation) string {
	place := ""
	if o.JSONPath != nil {
		place = *o.JSONPath
	}
	if o.Path != nil {
		place += unescaped.Replace(*o.Path)
	}
	return place
}

// unescaped undoes how a JSON pointer writes a slash in a name.
var unescaped = strings.NewReplacer("~1", "/", "~0", "~")

// takesHold reports whether a patch can take out or change one of the filters: it names one, or it takes out or puts anew
// something that filters are part of.
func takesHold(patch egv1a1.EnvoyJSONPatch, place string, filters []string) bool {
	if slices.ContainsFunc(filters, func(name string) bool { return strings.Contains(place, name) }) {
		return true
	}
	carries := strings.HasSuffix(patch.Type, ".Listener") || strings.HasSuffix(patch.Type, ".RouteConfiguration")
	if op := patch.Operation.Op; !carries || op != "remove" && op != "replace" && op != "move" {
		return false
	}
	last := strings.TrimRight(place, "/-0123456789[]*'\"")
	return last == "" || slices.ContainsFunc(carriers, func(name string) bool { return strings.HasSuffix(last, name) })
}

// carriers are the parts of listeners and routes that filters and their settings are in.
var carriers = []string{"filter_chains", "default_filter_chain", "filters", "typed_config", "http_filters", "virtual_hosts", "routes", "typed_per_filter_config"}

// patchPolicies are those of a Gateway, or of its class where Gateways share their Envoys.
func (w *world) patchPolicies(gw *Gateway) []*egv1a1.EnvoyPatchPolicy {
	var out []*egv1a1.EnvoyPatchPolicy
	for i := range w.in.PatchPolicies {
		p := &w.in.PatchPolicies[i]
		ref := p.Spec.TargetRef
		own := ref.Kind == kindGateway && p.Namespace == gw.Namespace && string(ref.Name) == gw.Name
		ofClass := ref.Kind == "GatewayClass" && ref.Name == gw.Spec.GatewayClassName && len(w.sharing(gw)) > 1
		if own || ofClass {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *egv1a1.EnvoyPatchPolicy) int { return ageOf(&a.ObjectMeta).compare(ageOf(&b.ObjectMeta)) })
	return out
}
