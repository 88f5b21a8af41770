package controllers

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/owned"
)

// world is everything that concerns one Gateway, as the cache has it. Nothing in it may be changed: the cache's own objects
// are handed out without a copy.
type world struct {
	gateway gwv1.Gateway
	// policies target the Gateway.
	policies []Policy
	// routes are attached to it.
	routes []gwv1.HTTPRoute
	// authPolicies are those in the Gateway's namespace, and those on its routes.
	authPolicies []AuthPolicy
	// securityPolicies and clientTraffic are those in the Gateway's namespace.
	securityPolicies []SecurityPolicy
	clientTraffic    []ClientTrafficPolicy
	// class is the Gateway's, proxies are all EnvoyProxies, and authConfigs are those in the Gateway's namespace; asked is set
	// where there can be any.
	class       *gwv1.GatewayClass
	proxies     []egv1a1.EnvoyProxy
	authConfigs []AuthConfig
	asked       bool
	// installed says whose kinds are followed.
	installed translator.Enforcers
	// controller is the one of the Gateway's class, and ofEnvoyGateway is set where that is an Envoy Gateway.
	controller     string
	ofEnvoyGateway bool
	// ours are our objects of the Gateway as they were last seen.
	ours map[objectName]generated
	// emitted are the enforcers that have objects of ours, chosen those that should.
	emitted, chosen translator.Enforcers
	// misconfigured is what is wrong with the choice, "" where nothing is.
	misconfigured string
}

// left returns the enforcers that are not chosen any more and still have objects.
func (w *world) left() translator.Enforcers {
	return translator.Enforcers{Kuadrant: w.emitted.Kuadrant && !w.chosen.Kuadrant, EnvoyGateway: w.emitted.EnvoyGateway && !w.chosen.EnvoyGateway}
}

// enforcing returns the enforcers that have objects or should have.
func (w *world) enforcing() translator.Enforcers {
	return translator.Enforcers{Kuadrant: w.emitted.Kuadrant || w.chosen.Kuadrant, EnvoyGateway: w.emitted.EnvoyGateway || w.chosen.EnvoyGateway}
}

// reported returns the enforcers whose word on being in force counts: those that are chosen, or where none can be, those
// that have objects all the same.
func (w *world) reported() translator.Enforcers {
	if w.chosen.None() {
		return w.left()
	}
	return w.chosen
}

// gather reads what concerns a Gateway. It returns nil where there is nothing to do: what is installed is not followed yet,
// the cache is not to be believed any more, the issuer's keys are still being read, or the Gateway is gone or not looked
// after. One that is being deleted serves until it is gone.
func (r *GatewayReconciler) gather(ctx context.Context, name types.NamespacedName) (*world, error) {
	if settled, err := r.enforcers.settled(ctx); err != nil || !settled || r.schema.stale() {
		return nil, err
	}
	w := &world{installed: r.enforcers.installed()}
	if err := r.client.Get(ctx, name, &w.gateway); err != nil {
		r.forget(name)
		return nil, client.IgnoreNotFound(err)
	}
	class, managed, err := r.classOf(ctx, &w.gateway)
	if err != nil || !managed {
		r.forget(name)
		return nil, err
	}
	w.class, w.controller = class, string(class.Spec.ControllerName)
	w.ofEnvoyGateway = slices.Contains(r.config.EnvoyGatewayControllers, w.controller)
	var policies PolicyList
	if err := r.client.List(ctx, &policies, client.InNamespace(name.Namespace), client.MatchingFields{indexGateway: name.String()}); err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	w.policies = policies.Items
	for i := range w.policies {
		r.written.catchUp(&w.policies[i])
	}
	var routes gwv1.HTTPRouteList
	if err := r.client.List(ctx, &routes, client.MatchingFields{indexParent: targetKey(kindGateway, name.Namespace, name.Name)}); err != nil {
		return nil, fmt.Errorf("list HTTPRoutes: %w", err)
	}
	w.routes = routes.Items
	if w.installed.Kuadrant {
		if err := r.gatherAuthPolicies(ctx, w); err != nil {
			return nil, authPolicies.absent(err)
		}
	}
	if w.installed.EnvoyGateway {
		if err := r.gatherSecurityPolicies(ctx, w); err != nil {
			return nil, err
		}
	}
	r.choose(w)
	if w.enforcing().EnvoyGateway && !r.issuer.settled() {
		// Without keys the rules for ServiceAccounts would be taken out of what is in force, and put in again a moment later.
		return nil, nil
	}
	return w, nil
}

// choose says what is to enforce the policies of a Gateway.
func (r *GatewayReconciler) choose(w *world) {
	w.ours = r.ours(w)
	for name := range w.ours {
		w.emitted.Kuadrant = w.emitted.Kuadrant || name.kind == authPolicies
		w.emitted.EnvoyGateway = w.emitted.EnvoyGateway || name.kind == securityPolicies
	}
	s := translator.Situation{Default: r.config.Enforcer, Installed: w.installed, OfEnvoyGateway: w.ofEnvoyGateway, Emitted: w.emitted}
	if value, set := w.gateway.Annotations[translator.AnnotationEnforcer]; set {
		s.Annotation = &value
	}
	w.chosen, w.misconfigured = translator.Choose(s)
}

// classOf returns the Gateway's class, and whether its controller is one of those that are configured.
func (r *classReader) classOf(ctx context.Context, gw *gwv1.Gateway) (*gwv1.GatewayClass, bool, error) {
	var class gwv1.GatewayClass
	if err := r.client.Get(ctx, types.NamespacedName{Name: string(gw.Spec.GatewayClassName)}, &class); err != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	return &class, slices.Contains(r.controllers, string(class.Spec.ControllerName)), nil
}

// classReader tells which Gateways are looked after.
type classReader struct {
	client      client.Client
	controllers []string
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
		return fmt.Errorf("list AuthPolicies: %w", err)
	}
	w.authPolicies = near.Items
	for i := range w.routes {
		route := &w.routes[i]
		if route.Namespace == w.gateway.Namespace {
			continue
		}
		var far AuthPolicyList
		key := targetKey(kindHTTPRoute, route.Namespace, route.Name)
		if err := r.client.List(ctx, &far, client.InNamespace(route.Namespace), client.MatchingFields{indexTarget: key}); err != nil {
			return fmt.Errorf("list AuthPolicies of HTTPRoute %s/%s: %w", route.Namespace, route.Name, err)
		}
		w.authPolicies = append(w.authPolicies, far.Items...)
	}
	return nil
}

func (r *GatewayReconciler) gatherSecurityPolicies(ctx context.Context, w *world) error {
	var near SecurityPolicyList
	if err := r.client.List(ctx, &near, client.InNamespace(w.gateway.Namespace)); err != nil {
		return fmt.Errorf("list SecurityPolicies: %w", securityPolicies.absent(err))
	}
	w.securityPolicies = near.Items
	var traffic ClientTrafficPolicyList
	if err := r.client.List(ctx, &traffic, client.InNamespace(w.gateway.Namespace)); err != nil {
		return fmt.Errorf("list ClientTrafficPolicies: %w", securityPolicies.absent(err))
	}
	w.clientTraffic = traffic.Items
	return r.gatherAsked(ctx, w)
}

// gatherAsked reads what having Authorino asked depends on.
func (r *GatewayReconciler) gatherAsked(ctx context.Context, w *world) error {
	proxies, err := r.enforcers.optional.list(ctx, kindEnvoyProxy)
	if err != nil {
		return err
	}
	var in coverage.Input
	for i := range proxies {
		if err := in.Add(&proxies[i]); err != nil { // it counts as one that is not there
			logf.FromContext(ctx).Error(err, "passed over in telling the order of filters")
		}
	}
	w.proxies = in.EnvoyProxies
	if w.asked = r.enforcers.authorino.there.Load(); !w.asked {
		return nil
	}
	var near AuthConfigList
	if err := r.client.List(ctx, &near, client.InNamespace(w.gateway.Namespace)); err != nil {
		return fmt.Errorf("list AuthConfigs: %w", authConfigs.absent(err))
	}
	w.authConfigs = near.Items
	return nil
}

// ours returns our objects of the Gateway as they were last seen: what a write of ours returned, where the cache has not
// caught up with it.
func (r *GatewayReconciler) ours(w *world) map[objectName]generated {
	out, seen := map[objectName]generated{}, map[types.UID]bool{}
	add := func(o generated, meta *metav1.ObjectMeta) {
		seen[meta.UID] = true
		if owned.Is(&w.gateway, meta) {
			out[nameOf(o)] = r.written.newer(o)
		}
	}
	for i := range w.authPolicies {
		add(&w.authPolicies[i], &w.authPolicies[i].ObjectMeta)
	}
	for i := range w.securityPolicies {
		add(&w.securityPolicies[i], &w.securityPolicies[i].ObjectMeta)
	}
	for i := range w.authConfigs {
		add(&w.authConfigs[i], &w.authConfigs[i].ObjectMeta)
	}
	for _, o := range r.written.unseen(w.gateway.UID, seen) {
		if o.kind().works(w.installed) && (o.kind() != authConfigs || w.asked) { // with the kind its objects have gone
			out[nameOf(o)] = o
		}
	}
	return out
}
