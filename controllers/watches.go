package controllers

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
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
	ref := o.(*AuthPolicy).Spec.TargetRef
	return distinct(append(owningGateways(o), m.gatewaysOfTarget(ctx, string(ref.Kind), types.NamespacedName{Namespace: o.GetNamespace(), Name: string(ref.Name)})...))
}

// ofOwned: an object that only we look at concerns its owner.
func (m *mapper) ofOwned(_ context.Context, o client.Object) []reconcile.Request {
	return requests(owningGateways(o))
}

// distinct are requests for names, once each.
func distinct(names []types.NamespacedName) []reconcile.Request {
	slices.SortFunc(names, compareNames)
	return requests(slices.Compact(names))
}

// gatewaysOfTarget are the Gateways that something attached to an object concerns.
func (m *mapper) gatewaysOfTarget(ctx context.Context, kind string, name types.NamespacedName) []types.NamespacedName {
	switch kind {
	case kindGateway:
		return []types.NamespacedName{name}
	case kindHTTPRoute:
		var route gwv1.HTTPRoute
		if err := m.client.Get(ctx, name, &route); err != nil {
			return nil // it has a turn when it comes
		}
		return m.gatewaysOfRoute(ctx, &route)
	case kindListenerSet:
		return m.gatewaysOfSet(ctx, name)
	}
	if !slices.Contains(optionalRoutes, kind) {
		return nil
	}
	route, err := m.enforcers.optional.get(ctx, kind, name)
	if err != nil || route == nil {
		return nil
	}
	return m.gatewaysOfRoute(ctx, route)
}

// gatewaysOfRoute are those that the route is attached to, directly or by a ListenerSet.
func (m *mapper) gatewaysOfRoute(ctx context.Context, route client.Object) []types.NamespacedName {
	out := parentsOf(route, kindGateway)
	for _, set := range parentsOf(route, kindListenerSet) {
		out = append(out, m.gatewaysOfSet(ctx, set)...)
	}
	return m.withSharing(ctx, out)
}

func (m *mapper) gatewaysOfSet(ctx context.Context, name types.NamespacedName) []types.NamespacedName {
	set, err := m.enforcers.optional.get(ctx, kindListenerSet, name)
	if err != nil || set == nil {
		return nil
	}
	return gatewayOfSet(set)
}

// withSharing adds the Gateways that may share their Envoys with some: what keeps the one from being translated keeps the
// others as they were.
func (m *mapper) withSharing(ctx context.Context, names []types.NamespacedName) []types.NamespacedName {
	proxies, err := m.enforcers.optional.list(ctx, kindEnvoyProxy)
	if err != nil || !slices.ContainsFunc(proxies, merges) {
		return names
	}
	for _, name := range slices.Clone(names) {
		var gateway gwv1.Gateway
		if err := m.client.Get(ctx, name, &gateway); err == nil {
			names = append(names, m.gatewaysOfClass(ctx, string(gateway.Spec.GatewayClassName))...)
		}
	}
	return names
}

// merges reports whether an EnvoyProxy lets Gateways share their Envoys.
func merges(proxy unstructured.Unstructured) bool {
	value, _, _ := unstructured.NestedBool(proxy.Object, "spec", "mergeGateways")
	return value
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

// ofSecurityPolicy: one of ours concerns its owner, any other the Gateways beside it, whose objects' name it may have, and
// those in whose routes and listeners it may stand in place of ours.
func (m *mapper) ofSecurityPolicy(ctx context.Context, o client.Object) []reconcile.Request {
	if owners := owningGateways(o); len(owners) > 0 {
		return requests(owners)
	}
	return append(m.gatewaysBeside(ctx, o), m.ofAttached(ctx, o)...)
}

// ofAttached: a policy of Envoy Gateway concerns the Gateways of its targets. One that chooses them by labels may concern any
// in its namespace, or everywhere.
func (m *mapper) ofAttached(ctx context.Context, o client.Object) []reconcile.Request {
	targets := targetsOf(o)
	if crosses(targets) {
		return requests(m.gateways(ctx))
	}
	if len(targets.TargetSelectors) > 0 {
		return m.gatewaysOfNamespace(ctx, o)
	}
	refs := targets.TargetRefs
	if targets.TargetRef != nil {
		refs = []egv1a1.TargetRef{*targets.TargetRef}
	}
	var out []types.NamespacedName
	for _, ref := range refs {
		out = append(out, m.gatewaysOfTarget(ctx, string(ref.Kind), types.NamespacedName{Namespace: o.GetNamespace(), Name: string(ref.Name)})...)
	}
	return distinct(out)
}

// gatewaysOfNamespace are the Gateways in the namespace of an object, and those of the routes and ListenerSets in it.
func (m *mapper) gatewaysOfNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	var routes gwv1.HTTPRouteList
	if err := m.client.List(ctx, &routes, client.InNamespace(o.GetNamespace())); err != nil {
		logf.FromContext(ctx).Error(err, "list HTTPRoutes", "namespace", o.GetNamespace())
	}
	var out []types.NamespacedName
	for i := range routes.Items {
		out = append(out, m.gatewaysOfRoute(ctx, &routes.Items[i])...)
	}
	for _, kind := range append(slices.Clone(optionalRoutes), kindListenerSet) {
		objects, err := m.enforcers.optional.list(ctx, kind, client.InNamespace(o.GetNamespace()))
		if err != nil {
			logf.FromContext(ctx).Error(err, "follow a change", "namespace", o.GetNamespace())
		}
		for i := range objects {
			if kind == kindListenerSet {
				out = append(out, gatewayOfSet(&objects[i])...)
				continue
			}
			out = append(out, m.gatewaysOfRoute(ctx, &objects[i])...)
		}
	}
	return append(m.gatewaysBeside(ctx, o), distinct(out)...)
}

// ofListenerSet: a ListenerSet concerns the Gateway that it is for.
func (m *mapper) ofListenerSet(ctx context.Context, o client.Object) []reconcile.Request {
	return requests(m.withSharing(ctx, gatewayOfSet(o)))
}

// ofPatchPolicy: a patch concerns the Gateway, or the Gateways of the class, that it targets.
func (m *mapper) ofPatchPolicy(ctx context.Context, o client.Object) []reconcile.Request {
	u := o.(*unstructured.Unstructured)
	name, _, _ := unstructured.NestedString(u.Object, "spec", "targetRef", "name")
	if kind, _, _ := unstructured.NestedString(u.Object, "spec", "targetRef", "kind"); kind != kindGateway {
		return requests(m.gatewaysOfClass(ctx, name))
	}
	return requests([]types.NamespacedName{{Namespace: o.GetNamespace(), Name: name}})
}

// ofEnvoyProxy: the settings of Envoys concern the Gateways of the classes that name them, and Gateways beside them may do so
// themselves.
func (m *mapper) ofEnvoyProxy(ctx context.Context, o client.Object) []reconcile.Request {
	out := m.gatewaysBeside(ctx, o)
	var classes gwv1.GatewayClassList
	if err := m.client.List(ctx, &classes); err != nil {
		logf.FromContext(ctx).Error(err, "list GatewayClasses")
	}
	for i := range classes.Items {
		if ref := classes.Items[i].Spec.ParametersRef; ref != nil && string(ref.Kind) == kindEnvoyProxy && ref.Name == o.GetName() {
			out = append(out, requests(m.gatewaysOfClass(ctx, classes.Items[i].Name))...)
		}
	}
	return out
}

// ofNamespace: the labels of a namespace concern the Gateways whose listeners choose routes by them.
func (m *mapper) ofNamespace(ctx context.Context, _ client.Object) []reconcile.Request {
	var list gwv1.GatewayList
	if err := m.client.List(ctx, &list); err != nil {
		logf.FromContext(ctx).Error(err, "list Gateways")
	}
	list.Items = slices.DeleteFunc(list.Items, func(gateway gwv1.Gateway) bool {
		return !slices.ContainsFunc(gateway.Spec.Listeners, func(l gwv1.Listener) bool {
			allowed := l.AllowedRoutes
			return allowed != nil && allowed.Namespaces != nil && allowed.Namespaces.From != nil && *allowed.Namespaces.From == gwv1.NamespacesFromSelector
		})
	})
	return requests(gatewayNames(&list))
}

// itself is for Gateways.
func itself(_ context.Context, o client.Object) []reconcile.Request {
	return requests([]types.NamespacedName{client.ObjectKeyFromObject(o)})
}

// gateways are all of them.
func (m *mapper) gateways(ctx context.Context) []types.NamespacedName {
	var list gwv1.GatewayList
	if err := m.client.List(ctx, &list); err != nil {
		logf.FromContext(ctx).Error(err, "list Gateways")
	}
	return gatewayNames(&list)
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

// ofRoute: a route concerns its Gateways.
func (m *mapper) ofRoute(ctx context.Context, o client.Object) []reconcile.Request {
	return distinct(m.gatewaysOfRoute(ctx, o))
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
	slices.SortFunc(out, compareNames)
	return slices.Compact(out)
}
