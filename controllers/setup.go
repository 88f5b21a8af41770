package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// CacheOptions keeps the cache to the fields and objects that are read. Kinds are not named here: naming one that is not
// installed, as Kuadrant's may not be, keeps the manager from starting.
func CacheOptions() cache.Options {
	shared := true // thousands of policies are listed, and nothing that is read is changed
	return cache.Options{
		DefaultTransform: slim,
		// A read of what is not followed any more would wait for ever.
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: &shared,
	}
}

// slim drops what is not read. What is kept of the kinds with types of our own is decided when they are decoded.
func slim(o any) (any, error) {
	switch o := o.(type) {
	case *Policy, *AuthPolicy, *SecurityPolicy, *AuthConfig, *ClientTrafficPolicy:
		return o, nil
	case *unstructured.Unstructured:
		return slimOptional(o), nil
	case *gwv1.HTTPRoute: // only where it is attached, the names that policies can have for it and its rules, and how many matches it has
		route := &gwv1.HTTPRoute{TypeMeta: o.TypeMeta}
		route.Namespace, route.Name, route.UID = o.Namespace, o.Name, o.UID
		route.ResourceVersion, route.Generation = o.ResourceVersion, o.Generation
		route.CreationTimestamp, route.Labels = o.CreationTimestamp, o.Labels
		route.Annotations = marksOfTheWatch(o.Annotations)
		route.Spec.ParentRefs, route.Spec.Hostnames = o.Spec.ParentRefs, o.Spec.Hostnames
		route.Spec.Rules = make([]gwv1.HTTPRouteRule, len(o.Spec.Rules))
		for i := range o.Spec.Rules {
			route.Spec.Rules[i].Name = o.Spec.Rules[i].Name
			route.Spec.Rules[i].Matches = make([]gwv1.HTTPRouteMatch, len(o.Spec.Rules[i].Matches))
		}
		return route, nil
	case *gwv1.Gateway:
		o.ManagedFields = nil // labels stay: ClientTrafficPolicies can choose Gateways by them
		delete(o.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
		o.Status = gwv1.GatewayStatus{}
		return o, nil
	}
	return cache.TransformStripManagedFields()(o)
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Setup adds the controllers to a manager whose scheme is NewScheme and whose cache has CacheOptions.
func Setup(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	schema, err := newSchemaGuard(ctx, mgr)
	if err != nil {
		return err
	}
	if err := schema.setup(mgr); err != nil {
		return err
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("index the cache: %w", err)
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &gwv1.GatewayClass{}, cache.BlockUntilSynced(false)); err != nil { // read before anybody watches it
		return fmt.Errorf("follow GatewayClasses: %w", err)
	}
	recorder := mgr.GetEventRecorder("accesspolicy-operator")
	written := newWritten()
	classes := &classReader{client: mgr.GetClient(), controllers: slices.Concat(config.GatewayControllers, config.EnvoyGatewayControllers)}
	status := &statusWriter{client: mgr.GetClient(), live: mgr.GetAPIReader(), events: recorder, written: written}
	enforcers := &enforcers{client: mgr.GetClient(), gateways: make(chan event.TypedGenericEvent[*gwv1.Gateway]),
		kuadrant:     &follower{crd: authPolicies.crd, title: authPolicies.title, cache: mgr.GetCache(), mapper: mgr.GetRESTMapper()},
		envoyGateway: &follower{crd: securityPolicies.crd, title: securityPolicies.title, cache: mgr.GetCache(), mapper: mgr.GetRESTMapper()},
		// Optional: Gateways that do not have Authorino asked are not held up.
		authorino: &follower{crd: authConfigs.crd, title: authConfigs.title, cache: mgr.GetCache(), mapper: mgr.GetRESTMapper(), optional: true, live: mgr.GetAPIReader()}}
	issuer, err := newIssuer(mgr, config, enforcers)
	if err != nil {
		return err
	}
	gateways := &GatewayReconciler{classReader: classes, config: config, status: status, events: recorder, enforcers: enforcers, issuer: issuer, schema: schema, written: written, started: time.Now()}
	policies := &PolicyReconciler{classReader: classes, status: status, events: recorder, schema: schema}
	m := &mapper{client: mgr.GetClient(), enforcers: enforcers}

	running, err := setupGateways(mgr, gateways, m)
	if err != nil {
		return err
	}
	watch := func(object client.Object, requests handler.MapFunc, changed predicate.Predicate) error {
		return running.Watch(source.Kind(mgr.GetCache(), object, handler.EnqueueRequestsFromMapFunc(requests), changed))
	}
	watching := func(requests handler.MapFunc, changed predicate.Predicate) func(client.Object) error {
		return func(object client.Object) error { return watch(object, requests, changed) }
	}
	indexing := func(name string, extract client.IndexerFunc) func(context.Context, client.Object) error {
		return func(ctx context.Context, object client.Object) error {
			return mgr.GetCache().IndexField(ctx, object, name, extract)
		}
	}
	enforcers.kuadrant.kinds = []*followed{{gvk: authPolicies.gvk, object: &AuthPolicy{}, index: indexing(indexTarget, authPolicyTarget),
		watch: watching(m.ofAuthPolicy, generatedChanged(written))}}
	enforcers.envoyGateway.kinds = []*followed{
		{gvk: securityPolicies.gvk, object: &SecurityPolicy{}, index: indexing(indexCrossing, crossing), watch: watching(m.ofSecurityPolicy, generatedChanged(written))},
		{gvk: clientTrafficKind, object: &ClientTrafficPolicy{}, watch: watching(m.gatewaysBeside, predicate.GenerationChangedPredicate{})}}
	enforcers.authorino.kinds = []*followed{{gvk: authConfigs.gvk, object: &AuthConfig{}, watch: watching(m.ofOwned, generatedChanged(written))}}
	enforcers.optional = newOptionalKinds(mgr, m, watch)
	if err := setupPolicies(mgr, policies, m); err != nil {
		return err
	}
	return enforcers.setup(ctx, mgr)
}

// newIssuer adds what reads the keys of ServiceAccount tokens, with the operator's own account.
func newIssuer(mgr ctrl.Manager, config Config, enforcers *enforcers) (*issuer, error) {
	server, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	i := &issuer{name: config.Translation.EnvoyGateway.Issuer, refresh: config.KeysRefresh, changed: enforcers.all,
		wanted: func() bool { return enforcers.installed().EnvoyGateway },
		read: func(ctx context.Context, path string) ([]byte, error) {
			return server.RESTClient().Get().AbsPath(path).DoRaw(ctx)
		}}
	return i, mgr.Add(i)
}

// maxDelay is the longest wait between two tries of what fails.
const maxDelay = time.Minute

func options(concurrency int) controller.Options {
	return controller.Options{MaxConcurrentReconciles: concurrency,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, maxDelay)}
}

func setupGateways(mgr ctrl.Manager, r *GatewayReconciler, m *mapper) (controller.Controller, error) {
	all := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, gateway *gwv1.Gateway) []reconcile.Request {
		return requests([]types.NamespacedName{client.ObjectKeyFromObject(gateway)})
	})
	return builder.ControllerManagedBy(mgr).Named("gateway").
		For(&gwv1.Gateway{}, builder.WithPredicates(predicate.Or(specChanged, predicate.LabelChangedPredicate{}))).
		Watches(&Policy{}, handler.EnqueueRequestsFromMapFunc(m.ofPolicy), builder.WithPredicates(policyChanged(r.written))).
		Watches(&gwv1.GatewayClass{}, handler.EnqueueRequestsFromMapFunc(m.ofClass), builder.WithPredicates(specChanged)).
		Watches(&gwv1.HTTPRoute{}, handler.EnqueueRequestsFromMapFunc(m.ofRoute), builder.WithPredicates(specChangedOrChosen)).
		Watches(namespaceMetadata(), handler.EnqueueRequestsFromMapFunc(m.ofNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesRawSource(source.Channel(r.enforcers.gateways, all)).
		WithOptions(options(r.config.Concurrency)).
		Build(r)
}

func setupPolicies(mgr ctrl.Manager, r *PolicyReconciler, m *mapper) error {
	return builder.ControllerManagedBy(mgr).Named("policy").
		For(&Policy{}, builder.WithPredicates(policyChanged(r.status.written))).
		Watches(&gwv1.Gateway{}, handler.EnqueueRequestsFromMapFunc(m.policiesOfGateway), builder.WithPredicates(specChanged)).
		Watches(&gwv1.GatewayClass{}, handler.EnqueueRequestsFromMapFunc(m.policiesOfClass), builder.WithPredicates(specChanged)).
		WithOptions(options(1)).
		Complete(r)
}
