package controllers

import (
	"encoding/json"
	"fmt"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/envoygateway"
)

// objectKind is a kind that we write and that somebody else's controller puts in force.
type objectKind struct {
	gvk schema.GroupVersionKind
	// crd is what has to be installed.
	crd string
	// title names the kind and whose it is, for messages.
	title string
	// empty makes an object to read into.
	empty func() generated
	// works reports whether the kind is that of an enforcer that works.
	works func(translator.Enforcers) bool
}

func (k *objectKind) String() string { return k.gvk.Kind }

// absent explains an error that comes from the kind having been removed a moment ago.
func (k *objectKind) absent(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s is not installed any more: %w", k.title, err)
	}
	return err
}

// The kinds that are written, and one that is read beside them.
var (
	authPolicies = &objectKind{gvk: kuadrantv1.GroupVersion.WithKind("AuthPolicy"), crd: "authpolicies.kuadrant.io", title: "Kuadrant's AuthPolicy",
		empty: func() generated { return &AuthPolicy{} }, works: func(e translator.Enforcers) bool { return e.Kuadrant }}
	securityPolicies = &objectKind{gvk: egv1a1.GroupVersion.WithKind(egv1a1.KindSecurityPolicy), crd: "securitypolicies.gateway.envoyproxy.io",
		title: "Envoy Gateway's SecurityPolicy", empty: func() generated { return &SecurityPolicy{} }, works: func(e translator.Enforcers) bool { return e.EnvoyGateway }}
	// authConfigs are what SecurityPolicies have Authorino asked about. They come and go by themselves.
	authConfigs = &objectKind{gvk: authorinov1beta3.GroupVersion.WithKind(envoygateway.KindAuthConfig), crd: "authconfigs.authorino.kuadrant.io",
		title: "Authorino's AuthConfig", empty: func() generated { return &AuthConfig{} }, works: func(e translator.Enforcers) bool { return e.EnvoyGateway }}

	clientTrafficKind = egv1a1.GroupVersion.WithKind("ClientTrafficPolicy")
)

// kindNamed returns one of the kinds that we write.
func kindNamed(name string) *objectKind {
	switch name {
	case securityPolicies.gvk.Kind:
		return securityPolicies
	case authConfigs.gvk.Kind:
		return authConfigs
	}
	return authPolicies
}

// generated is an object of a kind that we write, as it was last seen: ours or somebody else's.
type generated interface {
	client.Object
	json.Unmarshaler
	kind() *objectKind
	// liveSpec is the spec of one of ours as JSON values, nil for others.
	liveSpec() map[string]any
	// force is what its controller reports about being in force, for one that is wanted like this.
	force(want *wanted) objectForce
	// sameReport reports whether another version of it says the same about that.
	sameReport(other generated) bool
}

func (a *AuthPolicy) kind() *objectKind        { return authPolicies }
func (a *AuthPolicy) liveSpec() map[string]any { return a.Live }

func (a *AuthConfig) kind() *objectKind        { return authConfigs }
func (a *AuthConfig) liveSpec() map[string]any { return a.Live }

func (s *SecurityPolicy) kind() *objectKind        { return securityPolicies }
func (s *SecurityPolicy) liveSpec() map[string]any { return s.Live }

// objectName tells our objects of one Gateway apart.
type objectName struct {
	kind *objectKind
	name string
}

func (n objectName) String() string { return n.kind.String() + " " + n.name }

func nameOf(o generated) objectName { return objectName{o.kind(), o.GetName()} }

// wanted is an object as it is to be.
type wanted struct {
	objectName
	content *unstructured.Unstructured
	// section is the listener that it is for, "" for the whole Gateway.
	section string
	// beneath is set for the denial under the objects of single listeners.
	beneath bool
	// controller is the one of the Gateway's class: of an object of Envoy Gateway, only what that one reports counts.
	controller string
	// baseline is the same object for package coverage; zero for what is asked, which covers nothing by itself.
	baseline coverage.Baseline
}
