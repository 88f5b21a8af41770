package controllers

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/coverage"
)

// Names of the cache's indexes.
const (
	// indexGateway finds policies by a Gateway that they target, and ListenerSets by the Gateway that they are for.
	indexGateway = "gateway"
	// indexAncestor finds policies by a Gateway of which their status has an entry of ours.
	indexAncestor = "ancestor"
	// indexClass finds Gateways by their class.
	indexClass = "class"
	// indexParent finds routes by a Gateway or ListenerSet that they are attached to, as "Kind/namespace/name".
	indexParent = "parent"
	// indexCrossing finds the policies that can choose targets in other namespaces, by crossesNamespaces.
	indexCrossing = "crossing"
	// indexTarget finds AuthPolicies by what they target, as "Kind/namespace/name".
	indexTarget = "target"
)

// addIndexes makes the indexes of what is there in every cluster that has Gateway API and our CRD.
func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		kind    client.Object
		name    string
		extract client.IndexerFunc
	}{
		{&Policy{}, indexGateway, func(o client.Object) []string { return keys(targetedGateways(&o.(*Policy).XAccessPolicy)) }},
		{&Policy{}, indexAncestor, func(o client.Object) []string { return keys(ancestorGateways(&o.(*Policy).XAccessPolicy)) }},
		{&gwv1.HTTPRoute{}, indexParent, parents},
		{&gwv1.Gateway{}, indexClass, func(o client.Object) []string { return []string{string(o.(*gwv1.Gateway).Spec.GatewayClassName)} }},
	} {
		if err := indexer.IndexField(ctx, index.kind, index.name, index.extract); err != nil {
			return err
		}
	}
	return nil
}

func keys(names []types.NamespacedName) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name.String()
	}
	return out
}

// targetedGateways returns the Gateways that a policy targets, once each.
func targetedGateways(p *v1alpha1.XAccessPolicy) []types.NamespacedName {
	var out []types.NamespacedName
	for _, ref := range p.Spec.TargetRefs {
		name := types.NamespacedName{Namespace: p.Namespace, Name: string(ref.Name)}
		if isGateway(ref.Group, ref.Kind) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func isGateway(group gwv1.Group, kind gwv1.Kind) bool {
	return group == gwv1.GroupName && kind == kindGateway
}

const (
	kindGateway   = "Gateway"
	kindHTTPRoute = "HTTPRoute"
)

// ancestorGateways returns the Gateways of which a policy's status has an entry of ours, once each.
func ancestorGateways(p *v1alpha1.XAccessPolicy) []types.NamespacedName {
	var out []types.NamespacedName
	for _, a := range p.Status.Ancestors {
		if name := ancestorName(p, a.AncestorRef); a.ControllerName == ControllerName && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func ancestorName(p *v1alpha1.XAccessPolicy, ref gwv1.ParentReference) types.NamespacedName {
	name := types.NamespacedName{Namespace: p.Namespace, Name: string(ref.Name)}
	if ref.Namespace != nil {
		name.Namespace = string(*ref.Namespace)
	}
	return name
}

// parentsOf returns the Gateways, or the ListenerSets, that a route is attached to or asks to be, once each.
func parentsOf(route client.Object, kind string) []types.NamespacedName {
	var refs []gwv1.ParentReference
	switch r := route.(type) {
	case *gwv1.HTTPRoute:
		refs = r.Spec.ParentRefs
	case *unstructured.Unstructured:
		if read, err := coverage.RouteFrom(r); err == nil { // the CRD has checked what it is
			refs = read.ParentRefs
		}
	}
	var out []types.NamespacedName
	for _, ref := range refs {
		name := types.NamespacedName{Namespace: route.GetNamespace(), Name: string(ref.Name)}
		if ref.Namespace != nil {
			name.Namespace = string(*ref.Namespace)
		}
		of := kindGateway
		if ref.Kind != nil {
			of = string(*ref.Kind)
		}
		if of == kind && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func parents(o client.Object) []string {
	var out []string
	for _, kind := range []string{kindGateway, kindListenerSet} {
		for _, name := range parentsOf(o, kind) {
			out = append(out, targetKey(kind, name.Namespace, name.Name))
		}
	}
	return out
}

// gatewayOfSet returns the Gateway that a ListenerSet is for.
func gatewayOfSet(o client.Object) []types.NamespacedName {
	var in coverage.Input
	if err := in.Add(o.(*unstructured.Unstructured)); err != nil || len(in.ListenerSets) == 0 {
		return nil
	}
	ref := in.ListenerSets[0].Spec.ParentRef
	name := types.NamespacedName{Namespace: o.GetNamespace(), Name: string(ref.Name)}
	if ref.Namespace != nil && *ref.Namespace != "" {
		name.Namespace = string(*ref.Namespace)
	}
	return []types.NamespacedName{name}
}

// targetsOf returns the targets of a SecurityPolicy or EnvoyExtensionPolicy.
func targetsOf(o client.Object) egv1a1.PolicyTargetReferences {
	if sp, ok := o.(*SecurityPolicy); ok {
		return sp.Spec.PolicyTargetReferences
	}
	var in coverage.Input
	if err := in.Add(o.(*unstructured.Unstructured)); err != nil || len(in.ExtensionPolicies) == 0 {
		return egv1a1.PolicyTargetReferences{}
	}
	return in.ExtensionPolicies[0].Spec.PolicyTargetReferences
}

// crossesNamespaces is the value of indexCrossing.
const crossesNamespaces = "true"

func crossing(o client.Object) []string {
	if crosses(targetsOf(o)) {
		return []string{crossesNamespaces}
	}
	return nil
}

func crosses(t egv1a1.PolicyTargetReferences) bool {
	return slices.ContainsFunc(t.TargetSelectors, func(s egv1a1.TargetSelector) bool {
		return s.Namespaces != nil && s.Namespaces.From != "" && s.Namespaces.From != "Same"
	})
}

func targetKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

func authPolicyTarget(o client.Object) []string {
	ref := o.(*AuthPolicy).Spec.TargetRef
	return []string{targetKey(string(ref.Kind), o.GetNamespace(), string(ref.Name))}
}
