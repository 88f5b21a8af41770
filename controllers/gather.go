package controllers

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/owned"
)

// world is everything that concerns one Gateway, as the cache has it. Nothing in it may be changed: the cache's own objects
// are handed out without a copy.
type world struct {
	gateway gwv1.Gateway
	// policies target the Gateway.
	policies []Policy
	routes   []gwv1.HTTPRoute
	// authPolicies are those in the Gateway's namespace, and those on its routes.
	authPolicies []AuthPolicy
	// kuadrant says whether Kuadrant's AuthPolicy is installed.
	kuadrant bool
	// misconfigured is what is wrong with translator.AnnotationEnforcer, "" where nothing is.
	misconfigured string
}

// gather reads what concerns a Gateway. It returns nil where there is nothing to do: what is installed is not followed yet,
// the cache is not to be believed any more, or the Gateway is gone or not looked after. One that is being
// deleted serves until it is gone.
func (r *GatewayReconciler) gather(ctx context.Context, name types.NamespacedName) (*world, error) {
	if settled, err := r.enforcers.settled(ctx); err != nil || !settled || r.schema.stale() {
		return nil, err
	}
	w := &world{kuadrant: r.enforcers.kuadrantInstalled()}
	if err := r.client.Get(ctx, name, &w.gateway); err != nil {
		r.forget(name)
		return nil, client.IgnoreNotFound(err)
	}
	managed, err := r.managed(ctx, &w.gateway)
	if err != nil || !managed {
		r.forget(name)
		return nil, err
	}
	w.misconfigured = misconfigured(&w.gateway)
	var policies PolicyList
	if err := r.client.List(ctx, &policies, client.InNamespace(name.Namespace), client.MatchingFields{indexGateway: name.String()}); err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	w.policies = policies.Items
	if !w.kuadrant {
		return w, nil
	}
	return w, r.gatherAuthPolicies(ctx, w)
}

// managed reports whether the Gateway's class is one of those that are configured.
func (r *classReader) managed(ctx context.Context, gw *gwv1.Gateway) (bool, error) {
	var class gwv1.GatewayClass
	if err := r.client.Get(ctx, types.NamespacedName{Name: string(gw.Spec.GatewayClassName)}, &class); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return slices.Contains(r.controllers, string(class.Spec.ControllerName)), nil
}

// classReader tells which Gateways are looked after.
type classReader struct {
	client      client.Client
	controllers []string
}

func misconfigured(gw *gwv1.Gateway) string {
	value, set := gw.Annotations[translator.AnnotationEnforcer]
	if !set || knownEnforcer(value) {
		return ""
	}
	return fmt.Sprintf("the annotation %s has the value %q, and only %s and %s are known; what enforces the policies stays as it is",
		translator.AnnotationEnforcer, shorten(value), translator.EnforcerAuto, translator.EnforcerKuadrant)
}

// shorten keeps what somebody else wrote from filling a message.
func shorten(s string) string {
	const limit = 60
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return s
}

func (r *GatewayReconciler) gatherAuthPolicies(ctx context.Context, w *world) error {
	var near AuthPolicyList
	if err := r.client.List(ctx, &near, client.InNamespace(w.gateway.Namespace)); err != nil {
		return absent(fmt.Errorf("list AuthPolicies: %w", err))
	}
	w.authPolicies = near.Items
	var routes gwv1.HTTPRouteList
	name := types.NamespacedName{Namespace: w.gateway.Namespace, Name: w.gateway.Name}
	if err := r.client.List(ctx, &routes, client.MatchingFields{indexGateway: name.String()}); err != nil {
		return fmt.Errorf("list HTTPRoutes: %w", err)
	}
	w.routes = routes.Items
	for i := range w.routes {
		route := &w.routes[i]
		if route.Namespace == w.gateway.Namespace {
			continue
		}
		var far AuthPolicyList
		key := targetKey(kindHTTPRoute, route.Namespace, route.Name)
		if err := r.client.List(ctx, &far, client.InNamespace(route.Namespace), client.MatchingFields{indexTarget: key}); err != nil {
			return absent(fmt.Errorf("list AuthPolicies of HTTPRoute %s/%s: %w", route.Namespace, route.Name, err))
		}
		w.authPolicies = append(w.authPolicies, far.Items...)
	}
	return nil
}

// ours returns our AuthPolicies of the Gateway by name, as they were last seen: what a write of ours returned, where the
// cache has not caught up with it.
func (r *GatewayReconciler) ours(w *world) map[string]*AuthPolicy {
	out, seen := map[string]*AuthPolicy{}, map[types.UID]bool{}
	for i := range w.authPolicies {
		ap := &w.authPolicies[i]
		seen[ap.UID] = true
		if owned.Is(&w.gateway, &ap.ObjectMeta) {
			out[ap.Name] = r.written.newer(ap)
		}
	}
	for _, ap := range r.written.unseen(w.gateway.UID, seen) {
		out[ap.Name] = ap
	}
	return out
}

// absent explains an error that comes from Kuadrant's CRDs having been removed a moment ago.
func absent(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("Kuadrant's AuthPolicy is not installed any more: %w", err)
	}
	return err
}
