package envoygateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
)

// KindAuthConfig is the kind of AuthConfig.
const KindAuthConfig = "AuthConfig"

// ContextHost is the context extension by which Authorino finds an AuthConfig in place of the request's host
// (Authorino: pkg/service/auth.go, X_LOOKUP_KEY_NAME).
const ContextHost = "host"

// statusOnError is what callers get while nobody answers for Authorino.
const statusOnError = 503

// grantedKey is where Authorino leaves the host of the AuthConfig that has let a request pass, among Envoy's dynamic metadata of
// ext_authz.
const grantedKey = "accesspolicy-operator"

// delegate makes the objects of one plan in the form that asks Authorino: a SecurityPolicy that asks, and the AuthConfig that
// answers. Where Authorino might be asked before the MCP router has set its headers, nothing passes; and for what grants nothing
// nobody is asked.
func (e *emission) delegate(p *plan.Plan) error {
	if e.unordered != "" {
		return e.addClosed(p)
	}
	known := e.recognised(p)
	scheme, err := kuadrant.NewScheme(&known, e.opts.scheme())
	if err != nil {
		return err
	}
	host := e.host(p.Listener)
	config := authConfig(host, scheme)
	size, err := sizeOf(config)
	if err != nil {
		return err
	}
	if size > MaxObject {
		if err := scheme.Close(fmt.Sprintf("the AuthConfig would have %d bytes, %d fit", size, MaxObject)); err != nil {
			return err
		}
	}
	for _, f := range scheme.Findings {
		f.Enforcer = Enforcer
		e.out.Findings = append(e.out.Findings, f)
	}
	if len(scheme.Expressed.Rules) == 0 {
		return e.addClosed(p)
	}
	config.ObjectMeta = owned.Meta(e.Gateway, e.configName(p.Listener))
	e.out.Bytes = max(e.out.Bytes, size)
	e.out.AuthConfigs = append(e.out.AuthConfigs, config)
	return e.add(&scheme.Expressed, e.asking(p.Listener, host))
}

// addClosed adds an object that asks nobody and denies everything.
func (e *emission) addClosed(p *plan.Plan) error {
	closed := *p
	closed.Rules, closed.Refusals = nil, nil
	return e.add(&closed, e.native(&closed, nil))
}

// orderFinding tells that the Gateway is closed because of the order of filters.
func (e *emission) orderFinding() {
	e.finding(plan.Error, "", v1alpha1.PolicyReasonFilterOrder, fmt.Sprintf(
		"Authorino must be asked behind the MCP router (%s), and that is not certain here: %s. Until then every request is denied", FilterExtProc, e.unordered))
}

// recognised is a plan with the callers that can be recognised. A refusal whose callers cannot be is one for everybody.
func (e *emission) recognised(p *plan.Plan) plan.Plan {
	out := *p
	out.Rules, out.Refusals = nil, nil
	for _, r := range p.Rules {
		kept, why := e.recognise(r, p.Listener)
		if why != "" {
			e.dropped(r.Origin, p.Listener, why)
			continue
		}
		out.Rules = append(out.Rules, kept)
	}
	for _, refusal := range p.Refusals {
		kept := plan.Refusal{Origin: refusal.Origin, All: refusal.All}
		for _, r := range refusal.Rules {
			if _, why := e.verifiable(r.Source, p.Listener); why != "" {
				r.Source = plan.Source{Any: true}
				e.refusesMore(r.Origin, p.Listener, "what the ExternalAuth rule would delegate is refused for every caller, because its callers cannot be told: "+why)
			}
			kept.Rules = append(kept.Rules, r)
		}
		out.Refusals = append(out.Refusals, kept)
	}
	return out
}

// host is what Authorino finds the AuthConfig of a listener by. Nobody sends requests for it; the Gateway's UID makes it differ
// from that of a Gateway of the same name before.
func (e *emission) host(listener string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", e.Gateway.Namespace, e.Gateway.Name, listener, e.Gateway.UID))
	return hex.EncodeToString(sum[:24]) // a DNS label has 63 characters
}

// authConfig is what Authorino evaluates, without a name yet. What it lets pass it marks with its host.
func authConfig(host string, scheme *kuadrant.Scheme) *authorinov1beta3.AuthConfig {
	config := &authorinov1beta3.AuthConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: authorinov1beta3.GroupVersion.String(), Kind: KindAuthConfig},
		Spec:     scheme.AuthConfigSpec(host),
	}
	var granted authorinov1beta3.SuccessResponseSpec
	granted.Plain = &authorinov1beta3.PlainAuthResponseSpec{Value: runtime.RawExtension{Raw: []byte(`"` + host + `"`)}}
	config.Spec.Response.Success.DynamicMetadata = map[string]authorinov1beta3.SuccessResponseSpec{grantedKey: granted}
	return config
}

// asking is the SecurityPolicy that asks Authorino.
//
// Its one rule lets pass what Authorino has let pass. It says nothing new as long as Envoy asks. Envoy takes filters and routes
// one after the other, though, and keeps the former filters for connections that are open: for them a change from one form to the
// other puts rules in place of those whose filter they have, and without a rule in both forms nothing would be left that denies.
func (e *emission) asking(listener, host string) *egv1a1.SecurityPolicy {
	object := e.object(listener)
	namespace, port := gwv1.Namespace(e.opts.Authorino.Namespace), gwv1.PortNumber(e.opts.Authorino.Port)
	no, status := false, int32(statusOnError)
	group, kind := gwv1.Group(""), gwv1.Kind("Service")
	object.Spec.ExtAuth = &egv1a1.ExtAuth{
		GRPC: &egv1a1.GRPCExtAuthService{BackendRefs: []gwv1.BackendObjectReference{{
			Group: &group, Kind: &kind, Namespace: &namespace, Name: gwv1.ObjectName(e.opts.Authorino.Name), Port: &port}}},
		FailOpen: &no, StatusOnError: &status,
		ContextExtensions: []egv1a1.ContextExtension{{Name: ContextHost, Type: "Value", Value: &host}},
	}
	object.Spec.Authorization = &egv1a1.Authorization{DefaultAction: egv1a1.ActionDeny, Rules: []egv1a1.AuthorizationRule{{
		Name: "granted-by-authorino", Action: egv1a1.ActionAllow,
		CEL: fmt.Sprintf("metadata.filter_metadata[%s][%s] == %s", cel.Quote(FilterExtAuthz), cel.Quote(grantedKey), cel.Quote(host)),
	}}}
	return object
}

// configName gives the AuthConfig its name. An object of that name that is not ours is never touched.
func (e *emission) configName(listener string) string {
	return e.name(KindAuthConfig, listener, func(name string) bool {
		for i := range e.AuthConfigs {
			if meta := &e.AuthConfigs[i].ObjectMeta; meta.Namespace == e.Gateway.Namespace && meta.Name == name && !owned.Is(e.Gateway, meta) {
				return true
			}
		}
		return false
	})
}

// scheme configures what Authorino evaluates. Envoy's own ext_authz filter sends the certificate's identity, and a header would
// be the client's.
func (o Options) scheme() kuadrant.Options {
	s := o.Scheme
	s.Audiences, s.SPIFFEFrom = o.Audiences, kuadrant.SPIFFEFromPeer
	return s
}

func sizeOf(object any) (int, error) {
	raw, err := json.Marshal(object)
	return len(raw), err
}
