package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator/coverage"
)

// Kinds that a cluster need not have. They are read only to tell where our objects have effect, so each is followed for
// itself, in the version that the API server prefers, and cached as it comes, less what coverage does not look at.
const (
	kindListenerSet     = "ListenerSet"
	kindReferenceGrant  = "ReferenceGrant"
	kindExtensionPolicy = "EnvoyExtensionPolicy"
	kindPatchPolicy     = "EnvoyPatchPolicy"
	kindEnvoyProxy      = "EnvoyProxy"
)

// optionalRoutes are the kinds of routes beside HTTPRoute.
var optionalRoutes = []string{coverage.KindGRPCRoute, coverage.KindTCPRoute, coverage.KindTLSRoute, coverage.KindUDPRoute}

// specChangedOrChosen passes what a user changed, and labels, by which policies choose their targets.
var specChangedOrChosen = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})

// optionalKinds are followed by kind.
type optionalKinds map[string]*optionalKind

type optionalKind struct {
	*follower
	followed *followed
}

func ofKind(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// newOptionalKinds makes the followers; watch makes the Gateway controller follow an object's kind.
func newOptionalKinds(mgr ctrl.Manager, m *mapper, watch func(client.Object, handler.MapFunc, predicate.Predicate) error) optionalKinds {
	out := optionalKinds{}
	add := func(group, plural, kind string, gateways handler.MapFunc, changed predicate.Predicate, indexes map[string]client.IndexerFunc) {
		f := &followed{gvk: schema.GroupVersionKind{Group: group, Kind: kind},
			index: func(ctx context.Context, object client.Object) error {
				for name, extract := range indexes {
					if err := mgr.GetCache().IndexField(ctx, object, name, extract); err != nil {
						return err
					}
				}
				return nil
			},
			watch: func(object client.Object) error { return watch(object, gateways, changed) }}
		out[kind] = &optionalKind{followed: f,
			follower: &follower{crd: plural + "." + group, title: kind, cache: mgr.GetCache(), mapper: mgr.GetRESTMapper(), kinds: []*followed{f},
				optional: true, live: mgr.GetAPIReader()}}
	}
	for _, kind := range optionalRoutes {
		add(gwv1.GroupName, strings.ToLower(kind)+"s", kind, m.ofRoute, specChangedOrChosen, map[string]client.IndexerFunc{indexParent: parents})
	}
	add(gwv1.GroupName, "listenersets", kindListenerSet, m.ofListenerSet, specChangedOrChosen, map[string]client.IndexerFunc{
		indexGateway: func(o client.Object) []string { return keys(gatewayOfSet(o)) }})
	add(gwv1.GroupName, "referencegrants", kindReferenceGrant, m.gatewaysOfNamespace, predicate.GenerationChangedPredicate{}, nil)
	group := egv1a1.GroupVersion.Group
	add(group, "envoyextensionpolicies", kindExtensionPolicy, m.ofAttached, predicate.GenerationChangedPredicate{}, map[string]client.IndexerFunc{indexCrossing: crossing})
	// Whether patches are off stands in the status only.
	add(group, "envoypatchpolicies", kindPatchPolicy, m.ofPatchPolicy, predicate.ResourceVersionChangedPredicate{}, nil)
	add(group, "envoyproxies", kindEnvoyProxy, m.ofEnvoyProxy, predicate.GenerationChangedPredicate{}, nil)

	// The Gateway type in use does not have the field by which a Gateway takes ListenerSets.
	sets := out[kindListenerSet]
	sets.kinds = append(sets.kinds, &followed{gvk: schema.GroupVersionKind{Group: gwv1.GroupName, Kind: kindGateway},
		watch: func(object client.Object) error { return watch(object, itself, predicate.GenerationChangedPredicate{}) }})
	return out
}

// unreadable are the kinds that are installed and cannot be listed, each with the reason.
func (k optionalKinds) unreadable() []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(k)) {
		if why := k[kind].unreadable.Load(); why != nil {
			out = append(out, shortenMessage(*why))
		}
	}
	return out
}

// list returns the objects of a kind, none while it is not installed.
func (k optionalKinds) list(ctx context.Context, kind string, opts ...client.ListOption) ([]unstructured.Unstructured, error) {
	of := k[kind]
	if !of.there.Load() {
		return nil, nil
	}
	gvk := *of.followed.found.Load()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(kind + "List"))
	if err := of.cache.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}
	return list.Items, nil
}

// get returns an object of a kind, nil where there is none.
func (k optionalKinds) get(ctx context.Context, kind string, name types.NamespacedName) (*unstructured.Unstructured, error) {
	of := k[kind]
	if !of.there.Load() {
		return nil, nil
	}
	return read(ctx, of.follower, of.followed, name)
}

// gateway returns a Gateway with the field that says which ListenerSets it takes, nil where there is no such Gateway or
// ListenerSets are not installed.
func (k optionalKinds) gateway(ctx context.Context, name types.NamespacedName) (*unstructured.Unstructured, error) {
	sets := k[kindListenerSet]
	if !sets.there.Load() {
		return nil, nil
	}
	return read(ctx, sets.follower, sets.kinds[len(sets.kinds)-1], name)
}

func read(ctx context.Context, f *follower, k *followed, name types.NamespacedName) (*unstructured.Unstructured, error) {
	u := ofKind(*k.found.Load())
	if err := f.cache.Get(ctx, name, u); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return u, nil
}

// slimOptional keeps what coverage looks at.
func slimOptional(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := ofKind(u.GroupVersionKind())
	out.SetNamespace(u.GetNamespace())
	out.SetName(u.GetName())
	out.SetUID(u.GetUID())
	out.SetResourceVersion(u.GetResourceVersion())
	out.SetGeneration(u.GetGeneration())
	out.SetCreationTimestamp(u.GetCreationTimestamp())
	out.SetLabels(u.GetLabels())
	out.SetAnnotations(marksOfTheWatch(u.GetAnnotations()))
	spec, _ := u.Object["spec"].(map[string]any)
	switch u.GetKind() {
	case kindGateway:
		spec = only(spec, "allowedListeners")
	case kindExtensionPolicy: // that there are filters of a kind counts, not what they do
		spec = only(spec, "targetRef", "targetRefs", "targetSelectors", "mergeType", "wasm", "lua")
		each(spec["wasm"], func(item map[string]any) { clear(item) })
		each(spec["lua"], func(item map[string]any) { clear(item) })
	case kindPatchPolicy:
		each(spec["jsonPatches"], func(item map[string]any) {
			if operation, ok := item["operation"].(map[string]any); ok {
				delete(operation, "value")
			}
		})
		if status, ok := u.Object["status"]; ok {
			out.Object["status"] = status
		}
	case kindEnvoyProxy:
		spec = only(spec, "mergeGateways", "filterOrder", "mergeType")
	case kindListenerSet, kindReferenceGrant:
	default: // routes
		spec = only(spec, "parentRefs", "hostnames", "rules")
		each(spec["rules"], func(item map[string]any) {
			for field := range item {
				if field != "name" {
					delete(item, field)
				}
			}
		})
	}
	if spec != nil {
		out.Object["spec"] = spec
	}
	return out
}

func only(spec map[string]any, fields ...string) map[string]any {
	out := map[string]any{}
	for _, field := range fields {
		if value, ok := spec[field]; ok {
			out[field] = value
		}
	}
	return out
}

func each(list any, do func(map[string]any)) {
	items, _ := list.([]any)
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			do(object)
		}
	}
}

// namespaceMetadata is read for its labels, by which listeners and policies choose.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	return object
}
