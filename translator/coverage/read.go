package coverage

import (
	"encoding/json"
	"fmt"
	"slices"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator/owned"
)

// DefaultNamespace is where an object without one goes.
const DefaultNamespace = "default"

// Resources are the kinds of objects in a cluster that Add takes.
var Resources = slices.Concat(
	ofGroup(gwv1.GroupName, kindGateway, "GatewayClass", kindListenerSet, "ReferenceGrant", KindHTTPRoute, KindGRPCRoute, KindTCPRoute, KindTLSRoute, KindUDPRoute),
	ofGroup(egv1a1.GroupVersion.Group, egv1a1.KindSecurityPolicy, "EnvoyExtensionPolicy", "EnvoyPatchPolicy", kindEnvoyProxy),
	ofGroup(kuadrantv1.GroupVersion.Group, "AuthPolicy"),
	ofGroup("", "Namespace"))

func ofGroup(group string, kinds ...string) []schema.GroupKind {
	out := make([]schema.GroupKind, len(kinds))
	for i, kind := range kinds {
		out[i] = schema.GroupKind{Group: group, Kind: kind}
	}
	return out
}

// Kinds are those of all objects that Add takes: beside those of a cluster there is Envoy Gateway's own configuration file.
var Kinds = func() []string {
	out := []string{kindEnvoyGateway}
	for _, resource := range Resources {
		out = append(out, resource.Kind)
	}
	return out
}()

// Add takes an object of any kind. One of a kind that has no say is passed over, and the same object twice counts once. Fields
// that are not known are other people's and are passed over, too.
func (in *Input) Add(u *unstructured.Unstructured) error {
	group, kind := u.GroupVersionKind().Group, u.GetKind()
	if u.GetNamespace() == "" && kind != "GatewayClass" && kind != "Namespace" {
		u = u.DeepCopy()
		u.SetNamespace(DefaultNamespace)
	}
	switch group {
	case gwv1.GroupName:
		return in.addGatewayAPI(u)
	case egv1a1.GroupVersion.Group:
		return in.addEnvoyGateway(u)
	case kuadrantv1.GroupVersion.Group:
		if kind == "AuthPolicy" {
			return add(&in.AuthPolicies, u)
		}
	case "":
		if kind == "Namespace" {
			in.addNamespace(u)
		}
	}
	return nil
}

func (in *Input) addGatewayAPI(u *unstructured.Unstructured) error {
	switch u.GetKind() {
	case "GatewayClass":
		return add(&in.Classes, u)
	case kindGateway:
		gw, err := GatewayFrom(u)
		if err == nil {
			in.Gateways = append(in.Gateways, gw)
		}
		return err
	case kindListenerSet:
		return add(&in.ListenerSets, u)
	case KindHTTPRoute, KindGRPCRoute, KindTCPRoute, KindTLSRoute, KindUDPRoute:
		r, err := RouteFrom(u)
		if err == nil {
			in.Routes = append(in.Routes, r)
		}
		return err
	case "ReferenceGrant":
		var grant struct{ Spec Grant }
		if err := into(u, &grant); err != nil {
			return err
		}
		grant.Spec.Namespace = u.GetNamespace()
		in.Grants = append(in.Grants, grant.Spec)
	}
	return nil
}

func (in *Input) addEnvoyGateway(u *unstructured.Unstructured) error {
	switch u.GetKind() {
	case egv1a1.KindSecurityPolicy:
		return add(&in.SecurityPolicies, u)
	case "EnvoyExtensionPolicy":
		return add(&in.ExtensionPolicies, u)
	case "EnvoyPatchPolicy":
		return add(&in.PatchPolicies, u)
	case kindEnvoyProxy:
		return add(&in.EnvoyProxies, u)
	case kindEnvoyGateway:
		return in.addGates(u)
	}
	return nil
}

// addGates reads Envoy Gateway's own configuration file. Both switches are off unless it sets them.
// Envoy Gateway: api/v1alpha1/envoygateway_helpers.go, LuaDisabled.
func (in *Input) addGates(u *unstructured.Unstructured) error {
	var file struct {
		ExtensionAPIs struct {
			EnableEnvoyPatchPolicy bool  `json:"enableEnvoyPatchPolicy"`
			EnableLua              bool  `json:"enableLua"`
			DisableLua             *bool `json:"disableLua"`
		} `json:"extensionApis"`
	}
	if err := into(u, &file); err != nil {
		return err
	}
	apis := file.ExtensionAPIs
	lua := apis.EnableLua || apis.DisableLua != nil && !*apis.DisableLua
	in.Gates = Gates{Lua: &lua, PatchPolicies: &apis.EnableEnvoyPatchPolicy}
	return nil
}

func (in *Input) addNamespace(u *unstructured.Unstructured) {
	if in.Namespaces == nil {
		in.Namespaces = map[string]map[string]string{}
	}
	labels := map[string]string{"kubernetes.io/metadata.name": u.GetName()}
	for name, value := range u.GetLabels() {
		labels[name] = value
	}
	in.Namespaces[u.GetName()] = labels
}

// GatewayFrom reads a Gateway with the ListenerSets that it takes.
func GatewayFrom(u *unstructured.Unstructured) (Gateway, error) {
	var gw Gateway
	if err := into(u, &gw.Gateway); err != nil {
		return gw, err
	}
	var more struct {
		Spec struct {
			AllowedListeners egv1a1.AllowedListeners `json:"allowedListeners"`
		} `json:"spec"`
	}
	if err := into(u, &more); err != nil {
		return gw, err
	}
	gw.AllowedListeners = &more.Spec.AllowedListeners
	return gw, nil
}

func add[T any](list *[]T, u *unstructured.Unstructured) error {
	var object T
	if err := into(u, &object); err != nil {
		return err
	}
	*list = append(*list, object)
	return nil
}

func into(u *unstructured.Unstructured, object any) error {
	raw, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(raw, object)
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// Written gives the baselines that the input has, told by our label: in files no owner can be checked.
func (in *Input) Written() []Baseline {
	var out []Baseline
	for i := range in.SecurityPolicies {
		sp := &in.SecurityPolicies[i]
		if refs := refsOf(&sp.Spec.PolicyTargetReferences); sp.Labels[owned.LabelManagedBy] == owned.ManagedBy && len(refs) == 1 && refs[0].Kind == kindGateway {
			out = append(out, securityBaseline(sp))
		}
	}
	for i := range in.AuthPolicies {
		ap := &in.AuthPolicies[i]
		if ap.Labels[owned.LabelManagedBy] == owned.ManagedBy && ap.Spec.TargetRef.Kind == kindGateway {
			out = append(out, authBaseline(ap))
		}
	}
	return out
}

// Generate makes the objects that the emitters made for a Gateway its baselines, with the age and status of the ones that are
// there already. Those of ours that are not made any more count no longer: the operator deletes them.
func (in *Input) Generate(gateway types.NamespacedName, security []*egv1a1.SecurityPolicy, auth []*kuadrantv1.AuthPolicy) {
	before := map[string]Baseline{}
	for _, b := range in.Written() {
		if b.Gateway == gateway {
			before[b.key()] = b
		}
	}
	for _, sp := range security {
		b := securityBaseline(sp.DeepCopy())
		if old := before[b.key()].Security; old != nil {
			b.Security.CreationTimestamp, b.Security.Generation, b.Security.Status = old.CreationTimestamp, old.Generation, old.Status
		}
		in.Baselines = append(in.Baselines, b)
	}
	for _, ap := range auth {
		b := authBaseline(ap.DeepCopy())
		if old := before[b.key()].Auth; old != nil {
			b.Auth.CreationTimestamp = old.CreationTimestamp
		}
		in.Baselines = append(in.Baselines, b)
	}
	in.SecurityPolicies = slices.DeleteFunc(slices.Clone(in.SecurityPolicies), func(sp egv1a1.SecurityPolicy) bool {
		return before["SecurityPolicy "+nameOf(&sp.ObjectMeta).String()].Security != nil
	})
	in.AuthPolicies = slices.DeleteFunc(slices.Clone(in.AuthPolicies), func(ap kuadrantv1.AuthPolicy) bool {
		return before["AuthPolicy "+nameOf(&ap.ObjectMeta).String()].Auth != nil
	})
}

// key names the object.
func (b *Baseline) key() string {
	if b.Security != nil {
		return "SecurityPolicy " + nameOf(&b.Security.ObjectMeta).String()
	}
	return "AuthPolicy " + nameOf(&b.Auth.ObjectMeta).String()
}

func securityBaseline(sp *egv1a1.SecurityPolicy) Baseline {
	ref := refsOf(&sp.Spec.PolicyTargetReferences)[0]
	return Baseline{Gateway: types.NamespacedName{Namespace: sp.Namespace, Name: string(ref.Name)}, Listener: section(ref.SectionName), Security: sp}
}

func authBaseline(ap *kuadrantv1.AuthPolicy) Baseline {
	ref := ap.Spec.TargetRef
	return Baseline{Gateway: types.NamespacedName{Namespace: ap.Namespace, Name: string(ref.Name)}, Listener: section(ref.SectionName), Auth: ap}
}

func section(name *gwv1.SectionName) string {
	if name == nil {
		return ""
	}
	return string(*name)
}
