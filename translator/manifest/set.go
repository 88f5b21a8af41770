// Package manifest reads Kubernetes manifests into what the translator takes. Bytes go in; nothing is opened or fetched.
// XAccessPolicies are read strictly: one that cannot be read exactly is kept with its faults, because a policy that got
// lost would no longer close its target.
package manifest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/envoygateway"
)

// DefaultNamespace is the namespace of an object that names none, as with kubectl.
const DefaultNamespace = "default"

// Set is what was read so far. Its zero value is empty and ready.
type Set struct {
	Policies     []translator.Policy
	Gateways     []gwv1.Gateway
	Routes       []gwv1.HTTPRoute
	AuthPolicies []kuadrantv1.AuthPolicy
	// SecurityPolicies and ClientTraffic are Envoy Gateway's.
	SecurityPolicies []egv1a1.SecurityPolicy
	ClientTraffic    []egv1a1.ClientTrafficPolicy
	// Classes, EnvoyProxies and AuthConfigs say whether Authorino can be asked on Envoy Gateway.
	Classes      []gwv1.GatewayClass
	EnvoyProxies []egv1a1.EnvoyProxy
	AuthConfigs  []authorinov1beta3.AuthConfig
	// Notes say what was skipped or assumed, one sentence each.
	Notes []string

	skipped map[schema.GroupKind]bool
}

// Input is the set as the translator takes it.
func (s *Set) Input() translator.Input {
	return translator.Input{Policies: s.Policies, Gateways: s.Gateways, Routes: s.Routes, AuthPolicies: s.AuthPolicies,
		SecurityPolicies: s.SecurityPolicies, ClientTraffic: s.ClientTraffic, Classes: s.Classes, EnvoyProxies: s.EnvoyProxies, AuthConfigs: s.AuthConfigs}
}

// Add reads all documents of a source: YAML documents, JSON objects one after the other, and Lists. The error names the
// source, the document and, where the syntax is wrong, the line; what stands before that document stays in the set.
func (s *Set) Add(source string, data []byte) error {
	err := eachDocument(data, func(number int, raw []byte) error {
		if err := s.document(source, raw); err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	return nil
}

// header is what tells one kind of object from another.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   *named `json:"metadata"`
	Items      items  `json:"items"`
	Spec       *any   `json:"spec"`
}

type named struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// items keeps the members of a List as they are written.
type items []rawJSON

func (s *Set) document(source string, raw []byte) error {
	h, err := readHeader(raw)
	if err != nil {
		return err
	}
	switch {
	case h.Kind != "" && h.APIVersion != "":
	case h.Metadata == nil && h.Spec == nil && h.Items == nil:
		s.Notes = append(s.Notes, source+": a document without apiVersion and kind is no Kubernetes object and was skipped")
		return nil
	case h.Kind == "":
		return errors.New("kind is missing; add it, for instance kind: XAccessPolicy")
	default:
		return fmt.Errorf("apiVersion is missing; add it, for instance apiVersion: %s", v1alpha1.GroupVersion)
	}
	if !isList(h) {
		return s.object(source, h, raw)
	}
	for i, item := range h.Items {
		if err := s.item(source, h, item); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

func readHeader(raw []byte) (header, error) {
	var h header
	if trimmed := strings.TrimLeft(string(raw[:min(len(raw), 64)]), " \t\r\n"); !strings.HasPrefix(trimmed, "{") {
		return h, errors.New("an object with apiVersion and kind is expected, not a list or a single value")
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &h)
	var wrong *typeError
	if errors.As(err, &wrong) && wrong.Field != "" && !strings.HasPrefix(wrong.Field, "apiVersion") && !strings.HasPrefix(wrong.Field, "kind") &&
		!strings.HasPrefix(wrong.Field, "items") {
		err = nil // faults of metadata are for the reader of the kind
	}
	if err != nil {
		return h, describe(raw, err)
	}
	return h, nil
}

func isList(h header) bool {
	group, _, _ := strings.Cut(h.APIVersion, "/")
	own := group == v1alpha1.GroupName || group == gwv1.GroupName || group == kuadrantv1.GroupVersion.Group || group == egv1a1.GroupVersion.Group ||
		group == authorinov1beta3.GroupVersion.Group
	return h.Kind == "List" && h.APIVersion == "v1" || own && strings.HasSuffix(h.Kind, "List")
}

// item reads a member of a List. Lists of one kind may leave kind and apiVersion out in their members.
func (s *Set) item(source string, list header, raw []byte) error {
	h, err := readHeader(raw)
	switch {
	case err != nil:
		return err
	case isList(h):
		return errors.New("a List inside a List is not read; write its members out")
	case h.Kind == "" && h.APIVersion == "" && list.Kind != "List":
		h.APIVersion, h.Kind = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
	case h.Kind == "" || h.APIVersion == "":
		return errors.New("apiVersion or kind is missing")
	}
	return s.object(source, h, raw)
}

// object takes the object if its kind is one that the translator looks at.
func (s *Set) object(source string, h header, raw []byte) error {
	gv, err := schema.ParseGroupVersion(h.APIVersion)
	if err != nil {
		return fmt.Errorf("apiVersion: %w", err)
	}
	switch {
	case gv.Group == v1alpha1.GroupName && (h.Kind == kindPolicy || h.Kind == kindProofOfConcept):
		s.Policies = append(s.Policies, decodePolicy(h, raw))
		return nil
	case gv.Group == gwv1.GroupName && s.gatewayAPI(source, gv.WithKind(h.Kind), raw, &err):
		return err
	case gv == authorinov1beta3.GroupVersion && h.Kind == envoygateway.KindAuthConfig:
		var config authorinov1beta3.AuthConfig
		err = about(h, decodeNamed(raw, &config, &config.Name, &config.Namespace))
		s.AuthConfigs = append(s.AuthConfigs, config)
		return err
	case gv == kuadrantv1.GroupVersion && h.Kind == "AuthPolicy":
		return s.authPolicy(raw)
	case gv == egv1a1.GroupVersion && s.envoyGateway(h, raw, &err):
		return err
	}
	s.skip(source, gv.WithKind(h.Kind))
	return nil
}

// gatewayAPI takes an object of Gateway API, if its kind is one that the translator looks at.
func (s *Set) gatewayAPI(source string, gvk schema.GroupVersionKind, raw []byte, err *error) bool {
	switch {
	case gvk.Kind == "Gateway" && (gvk.Version == "v1" || gvk.Version == "v1beta1"):
		*err = s.gateway(source, raw)
	case gvk.Kind == "GatewayClass":
		*err = s.class(raw)
	case gvk.Kind == "HTTPRoute":
		*err = s.route(raw)
	default:
		return false
	}
	return true
}

// envoyGateway takes an object of Envoy Gateway's, if its kind is one that the translator looks at.
func (s *Set) envoyGateway(h header, raw []byte, err *error) bool {
	switch h.Kind {
	case egv1a1.KindSecurityPolicy:
		var sp egv1a1.SecurityPolicy
		*err = about(h, decodeNamed(raw, &sp, &sp.Name, &sp.Namespace))
		s.SecurityPolicies = append(s.SecurityPolicies, sp)
	case "ClientTrafficPolicy":
		var traffic egv1a1.ClientTrafficPolicy
		*err = about(h, decodeNamed(raw, &traffic, &traffic.Name, &traffic.Namespace))
		s.ClientTraffic = append(s.ClientTraffic, traffic)
	case "EnvoyProxy":
		var proxy egv1a1.EnvoyProxy
		*err = about(h, decodeNamed(raw, &proxy, &proxy.Name, &proxy.Namespace))
		s.EnvoyProxies = append(s.EnvoyProxies, proxy)
	default:
		return false
	}
	return true
}

// about says of which object an error is.
func about(h header, err error) error {
	if err == nil {
		return nil
	}
	name := ""
	if h.Metadata != nil {
		name = h.Metadata.Name
	}
	return fmt.Errorf("%s %s: %w", h.Kind, name, err)
}

// skip notes an object that is not looked at, once per kind.
func (s *Set) skip(source string, gvk schema.GroupVersionKind) {
	if s.skipped[gvk.GroupKind()] {
		return
	}
	if s.skipped == nil {
		s.skipped = map[schema.GroupKind]bool{}
	}
	s.skipped[gvk.GroupKind()] = true
	s.Notes = append(s.Notes, fmt.Sprintf("%s: objects of kind %s (%s) are not looked at and were skipped", source, gvk.Kind, gvk.GroupVersion()))
}

// gateway adds a Gateway. The same one twice is fine when both say the same; else which is meant cannot be told.
func (s *Set) gateway(source string, raw []byte) error {
	var gw gwv1.Gateway
	if err := decodeNamed(raw, &gw, &gw.Name, &gw.Namespace); err != nil {
		return fmt.Errorf("Gateway %s: %w", gw.Name, err)
	}
	for i := range s.Gateways {
		have := &s.Gateways[i]
		if have.Name != gw.Name || have.Namespace != gw.Namespace {
			continue
		}
		if !reflect.DeepEqual(have.Spec, gw.Spec) || !reflect.DeepEqual(have.ObjectMeta, gw.ObjectMeta) {
			return fmt.Errorf("Gateway %s/%s stands in the input twice, and the two differ; keep one", gw.Namespace, gw.Name)
		}
		s.Notes = append(s.Notes, fmt.Sprintf("%s: Gateway %s/%s stands in the input twice, with the same content", source, gw.Namespace, gw.Name))
		return nil
	}
	s.Gateways = append(s.Gateways, gw)
	return nil
}

func (s *Set) class(raw []byte) error {
	var class gwv1.GatewayClass
	none := "" // a class has no namespace
	if err := decodeNamed(raw, &class, &class.Name, &none); err != nil {
		return fmt.Errorf("GatewayClass %s: %w", class.Name, err)
	}
	s.Classes = append(s.Classes, class)
	return nil
}

func (s *Set) route(raw []byte) error {
	var route gwv1.HTTPRoute
	if err := decodeNamed(raw, &route, &route.Name, &route.Namespace); err != nil {
		return fmt.Errorf("HTTPRoute %s: %w", route.Name, err)
	}
	s.Routes = append(s.Routes, route)
	return nil
}

func (s *Set) authPolicy(raw []byte) error {
	var ap kuadrantv1.AuthPolicy
	if err := decodeNamed(raw, &ap, &ap.Name, &ap.Namespace); err != nil {
		return fmt.Errorf("AuthPolicy %s: %w", ap.Name, err)
	}
	s.AuthPolicies = append(s.AuthPolicies, ap)
	return nil
}

// decodeNamed reads an object that others define: unknown fields are theirs and are passed over.
func decodeNamed(raw []byte, into any, name, namespace *string) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		return describe(raw, err)
	}
	if *name == "" {
		return errors.New("metadata.name: the name is missing")
	}
	if *namespace == "" {
		*namespace = DefaultNamespace
	}
	return nil
}
