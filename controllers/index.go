package controllers

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
)

// Names of the cache's indexes.
const (
	// indexGateway finds policies by a Gateway that they target, and HTTPRoutes by a Gateway that they are attached to.
	indexGateway = "gateway"
	// indexAncestor finds policies by a Gateway of which their status has an entry of ours.
	indexAncestor = "ancestor"
	// indexClass finds Gateways by their class.
	indexClass = "class"
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
		{&gwv1.HTTPRoute{}, indexGateway, func(o client.Object) []string { return keys(parentGateways(o.(*gwv1.HTTPRoute))) }},
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

// parentGateways returns the Gateways that a route is attached to or asks to be, once each.
func parentGateways(r *gwv1.HTTPRoute) []types.NamespacedName {
	var out []types.NamespacedName
	for _, ref := range r.Spec.ParentRefs {
		name := types.NamespacedName{Namespace: r.Namespace, Name: string(ref.Name)}
		if ref.Namespace != nil {
			name.Namespace = string(*ref.Namespace)
		}
		if (ref.Kind == nil || *ref.Kind == kindGateway) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func targetKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

func authPolicyTarget(o client.Object) []string {
	ref := o.(*AuthPolicy).Spec.TargetRef
	return []string{targetKey(string(ref.Kind), o.GetNamespace(), string(ref.Name))}
}
