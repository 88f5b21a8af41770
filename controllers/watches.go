package controllers

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
)

// specChanged passes what a user changed. The status of Gateways, routes and classes is written often, by others, and says
// nothing that is looked at here.
var specChanged = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// policyChanged passes edits of a policy, and changes of our entries in its status by anybody but us.
func policyChanged(w *written) predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*Policy), e.ObjectNew.(*Policy)
			if before.Generation != after.Generation || before.UID != after.UID {
				return true
			}
			return !w.isOurStatus(after) && !equality.Semantic.DeepEqual(ourEntries(before), ourEntries(after))
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			w.forgetPolicy(e.Object.GetUID())
			return true
		},
	}
}

func ourEntries(p *Policy) []v1alpha1.PolicyAncestorStatus {
	var out []v1alpha1.PolicyAncestorStatus
	for _, a := range p.Status.Ancestors {
		if a.ControllerName == ControllerName {
			out = append(out, a)
		}
	}
	return out
}

// generatedChanged passes changes of the spec, of who owns what, and of what is reported about being in force; not what our
// own write has done, which is known.
func generatedChanged(w *written) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !w.isOurWrite(e.Object.(generated)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(generated), e.ObjectNew.(generated)
			if w.isOurWrite(after) {
				return false
			}
			return before.GetGeneration() != after.GetGeneration() || before.GetUID() != after.GetUID() || !before.sameReport(after) ||
				!equality.Semantic.DeepEqual(before.GetLabels(), after.GetLabels()) ||
				!equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) ||
				!slices.EqualFunc(before.GetManagedFields(), after.GetManagedFields(), func(a, b metav1.ManagedFieldsEntry) bool {
					return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource
				})
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			w.forget(e.Object.(generated))
			return true
		},
	}
}

// mapper maps objects to the Gateways, or policies, that have to be looked at because of them.
type mapper struct {
	client    client.Client
	enforcers *enforcers
}

func requests(names []types.NamespacedName) []reconcile.Request {
	out := make([]reconcile.Request, len(names))
	for i, name := range names {
		out[i] = reconcile.Request{NamespacedName: name}
	}
	return out
}

// ofPolicy: a policy concerns the Gateways that it targets. On an update it is called for the former and for the new version,
// so a policy that moves away is missed by neither.
func (m *mapper) ofPolicy(_ context.Context, o client.Object) []reconcile.Request {
	return requests(targetedGateways(&o.(*Policy).XAccessPolicy))
}

// ofAuthPolicy: one of ours concerns its owner, any other the Gateway that it targets or whose route it targets.
func (m *mapper) ofAuthPolicy(ctx context.Context, o client.Object) []reconcile.Request {
	ap := o.(*AuthPolicy)
	out := owningGateways(ap)
	target := types.NamespacedName{Namespace: ap.Namespace, Name: string(ap.Spec.TargetRef.Name)}
	switch ap.Spec.TargetRef.Kind {
	case kindGateway:
		out = append(out, target)
	case kindHTTPRoute:
		var route gwv1.HTTPRoute
		if err := m.client.Get(ctx, target, &route); err == nil {
			out = append(out, parentGateways(&route)...)
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return compareNames(a, b) })
	return requests(slices.Compact(out))
}

func owningGateways(o client.Object) []types.NamespacedName {
	var out []types.NamespacedName
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == kindGateway {
			out = append(out, types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name})
		}
	}
	return out
}

// ofSecurityPolicy: one of ours concerns its owner, any other the Gateways beside it, whose objects' name it may have.
func (m *mapper) ofSecurityPolicy(ctx context.Context, o client.Object) []reconcile.Request {
	if owners := owningGateways(o); len(owners) > 0 {
		return requests(owners)
	}
	return m.gatewaysBeside(ctx, o)
}

// gatewaysBeside are the Gateways in the namespace of an object.
func (m *mapper) gatewaysBeside(ctx context.Context, o client.Object) []reconcile.Request {
	var list gwv1.GatewayList
	if err := m.client.List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
		logf.FromContext(ctx).Error(err, "list Gateways", "namespace", o.GetNamespace())
	}
	return requests(gatewayNames(&list))
}

func gatewayNames(list *gwv1.GatewayList) []types.NamespacedName {
	out := make([]types.NamespacedName, len(list.Items))
	for i := range list.Items {
		out[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	return out
}

// ofRoute: a route concerns its Gateways only where somebody's AuthPolicy is attached to it.
func (m *mapper) ofRoute(ctx context.Context, o client.Object) []reconcile.Request {
	if !m.enforcers.installed().Kuadrant {
		return nil
	}
	var attached AuthPolicyList
	key := targetKey(kindHTTPRoute, o.GetNamespace(), o.GetName())
	if err := m.client.List(ctx, &attached, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexTarget: key}); err != nil {
		logf.FromContext(ctx).Error(err, "list AuthPolicies", "route", client.ObjectKeyFromObject(o))
		return nil
	}
	if len(attached.Items) == 0 {
		return nil
	}
	return requests(parentGateways(o.(*gwv1.HTTPRoute)))
}

// ofClass: a class concerns its Gateways.
func (m *mapper) ofClass(ctx context.Context, o client.Object) []reconcile.Request {
	return requests(m.gatewaysOfClass(ctx, o.GetName()))
}

func (m *mapper) gatewaysOfClass(ctx context.Context, class string) []types.NamespacedName {
	var list gwv1.GatewayList
	if err := m.client.List(ctx, &list, client.MatchingFields{indexClass: class}); err != nil {
		logf.FromContext(ctx).Error(err, "list Gateways", "class", class)
	}
	return gatewayNames(&list)
}

// policiesOfGateway: a Gateway that comes or goes concerns the policies that target it, and those whose status speaks of it.
func (m *mapper) policiesOfGateway(ctx context.Context, o client.Object) []reconcile.Request {
	return requests(m.policiesOf(ctx, client.ObjectKeyFromObject(o)))
}

// policiesOfClass: a class that comes or goes decides whether its Gateways are looked after.
func (m *mapper) policiesOfClass(ctx context.Context, o client.Object) []reconcile.Request {
	var out []types.NamespacedName
	for _, gateway := range m.gatewaysOfClass(ctx, o.GetName()) {
		out = append(out, m.policiesOf(ctx, gateway)...)
	}
	return requests(out)
}

func (m *mapper) policiesOf(ctx context.Context, gateway types.NamespacedName) []types.NamespacedName {
	var out []types.NamespacedName
	for _, index := range []string{indexGateway, indexAncestor} {
		var list PolicyList
		if err := m.client.List(ctx, &list, client.InNamespace(gateway.Namespace), client.MatchingFields{index: gateway.String()}); err != nil {
			logf.FromContext(ctx).Error(err, "list policies", "gateway", gateway)
		}
		for i := range list.Items {
			out = append(out, client.ObjectKeyFromObject(&list.Items[i]))
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return compareNames(a, b) })
	return slices.Compact(out)
}
