package controllers

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/translator"
)

// crdKind is read as metadata only.
var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

func crdMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(crdKind)
	return object
}

// newCRDCache returns a cache that follows one CRD by its name, which is all that the roles allow.
func newCRDCache(mgr ctrl.Manager, name string) (cache.Cache, error) {
	only, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{crdMetadata(): {Field: fields.OneTermEqualSelector("metadata.name", name)}}})
	if err != nil {
		return nil, err
	}
	return only, mgr.Add(only)
}

// crdRequests makes a CRD's name the request.
func crdRequests(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// enforcers follows what is installed that can enforce policies, and what can stand in place of it. It may come after the
// operator, or go before it.
type enforcers struct {
	client client.Client
	// gateways gets every Gateway when what is installed has changed.
	gateways chan event.TypedGenericEvent[*gwv1.Gateway]

	kuadrant, envoyGateway *follower
	// authorino is what SecurityPolicies can have asked.
	authorino *follower
	// optional are the kinds that only coverage looks at.
	optional optionalKinds
}

// follower follows kinds while they are installed.
type follower struct {
	// crd tells whether they are, and title names them, for messages.
	crd, title string
	crds       client.Reader
	cache      cache.Cache
	mapper     meta.RESTMapper
	kinds      []*followed
	// optional are kinds that need not be known for policies to be enforced. live reads past the cache, to tell why they cannot be
	// listed; only optional ones have it.
	optional bool
	live     client.Reader
	// there is set while the kinds are followed, unserved while the CRD is there and the API server does not serve them all.
	there, unserved atomic.Bool
	// unreadable says why optional kinds cannot be listed, nil while they can.
	unreadable atomic.Pointer[string]
}

// listPatience is how long the first list of optional kinds may take before Gateways go on without. unreadableRetry is the time
// to the next try.
const (
	listPatience    = 15 * time.Second
	unreadableRetry = time.Minute
)

// followed is a kind that is watched while it is installed.
type followed struct {
	// gvk without a version stands for the one that the API server prefers.
	gvk schema.GroupVersionKind
	// object is one of the kind; an Unstructured has the version that was found.
	object client.Object
	// found is the kind with that version, nil before it was found.
	found atomic.Pointer[schema.GroupVersionKind]
	// index makes the indexes of the kind; nil for none.
	index func(context.Context, client.Object) error
	// watch makes the Gateway controller follow the kind from now on.
	watch func(client.Object) error
}

// find returns an error where the API server does not serve the kind.
func (k *followed) find(mapper meta.RESTMapper) error {
	var versions []string
	if k.gvk.Version != "" {
		versions = []string{k.gvk.Version}
	}
	mapping, err := mapper.RESTMapping(k.gvk.GroupKind(), versions...)
	if err != nil {
		return err
	}
	if k.gvk.Version == "" {
		k.object = ofKind(mapping.GroupVersionKind)
	}
	k.found.Store(&mapping.GroupVersionKind)
	return nil
}

// installed returns whose kinds are followed.
func (e *enforcers) installed() translator.Enforcers {
	return translator.Enforcers{Kuadrant: e.kuadrant.there.Load(), EnvoyGateway: e.envoyGateway.there.Load()}
}

func (e *enforcers) followers() []*follower {
	out := []*follower{e.kuadrant, e.envoyGateway, e.authorino}
	for _, k := range e.optional {
		out = append(out, k.follower)
	}
	return out
}

// settled reports whether what is installed is followed already. Right after a start it is not, and what is written then
// would be wrong for a moment; every Gateway has a turn when it is.
func (e *enforcers) settled(ctx context.Context) (bool, error) {
	for _, f := range e.followers() {
		if settled, err := f.settled(ctx); err != nil || !settled {
			return false, err
		}
	}
	return true, nil
}

func (f *follower) installed(ctx context.Context) (bool, error) {
	err := f.crds.Get(ctx, types.NamespacedName{Name: f.crd}, crdMetadata())
	return err == nil, client.IgnoreNotFound(err)
}

func (f *follower) settled(ctx context.Context) (bool, error) {
	there, err := f.installed(ctx)
	return there == f.there.Load() || f.unserved.Load() || f.unreadable.Load() != nil, err
}

// setup makes a controller of the CRDs.
func (e *enforcers) setup(ctx context.Context, mgr ctrl.Manager) error {
	followers := e.followers()
	// The first list of each kind is waited for; one after the other would add up at each start.
	b := builder.ControllerManagedBy(mgr).Named("enforcer").WithOptions(controller.Options{MaxConcurrentReconciles: len(followers)})
	for _, f := range followers {
		crds, err := newCRDCache(mgr, f.crd)
		if err != nil {
			return err
		}
		if _, err := crds.GetInformer(ctx, crdMetadata(), cache.BlockUntilSynced(false)); err != nil { // read before anybody watches it
			return fmt.Errorf("follow the CRD %s: %w", f.crd, err)
		}
		f.crds = crds
		b = b.WatchesRawSource(source.Kind(crds, client.Object(crdMetadata()), handler.EnqueueRequestsFromMapFunc(crdRequests)))
	}
	return b.Complete(e)
}

// Reconcile is called when a CRD that is followed comes, changes or goes.
func (e *enforcers) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	for _, f := range e.followers() {
		if f.crd != request.Name {
			continue
		}
		changed, again, err := f.follow(ctx)
		if err != nil {
			return ctrl.Result{}, err
		}
		if changed {
			err = e.all(ctx)
		}
		return ctrl.Result{RequeueAfter: again}, err
	}
	return ctrl.Result{}, nil
}

// follow begins or ends to follow the kinds. It returns whether every Gateway has to have a turn, and when to look again.
func (f *follower) follow(ctx context.Context) (changed bool, again time.Duration, err error) {
	there, err := f.installed(ctx)
	switch {
	case err != nil:
		return false, 0, err
	case there == f.there.Load():
		f.unserved.Store(false)
		return f.unreadable.Swap(nil) != nil, 0, nil
	case !there:
		logf.FromContext(ctx).Info(f.title + " is not installed any more")
		f.there.Store(false)
		f.unserved.Store(false)
		return true, 0, f.end(ctx)
	}
	for _, k := range f.kinds {
		if err := k.find(f.mapper); err != nil {
			logf.FromContext(ctx).Info(f.title+" is there and not served yet", "kind", k.gvk.Kind, "error", err.Error())
			return !f.unserved.Swap(true), time.Second, nil
		}
	}
	if err := f.begin(ctx); err != nil {
		_ = f.end(ctx) // the next try begins anew
		if !f.optional {
			return false, 0, err
		}
		why := err.Error()
		logf.FromContext(ctx).Error(err, "objects of this kind are left out", "kind", f.title)
		return f.unreadable.Swap(&why) == nil, unreadableRetry, nil
	}
	logf.FromContext(ctx).Info(f.title + " is installed")
	f.there.Store(true)
	f.unserved.Store(false)
	f.unreadable.Store(nil)
	return true, 0, nil
}

func (f *follower) begin(ctx context.Context) error {
	for _, k := range f.kinds {
		if k.index != nil {
			if err := k.index(ctx, k.object); err != nil {
				return fmt.Errorf("index %s: %w", k.gvk.Kind, err)
			}
		}
		// The first list has to be there before anything is decided by what is in it.
		if err := f.list(ctx, k); err != nil {
			return fmt.Errorf("list %s: %w", k.gvk.Kind, err)
		}
		if err := k.watch(k.object); err != nil {
			return fmt.Errorf("watch %s: %w", k.gvk.Kind, err)
		}
	}
	return nil
}

// list waits for the first list of a kind, of an optional one not for ever.
func (f *follower) list(ctx context.Context, k *followed) error {
	if !f.optional {
		_, err := f.cache.GetInformer(ctx, k.object)
		return err
	}
	waiting, done := context.WithTimeout(ctx, listPatience)
	defer done()
	_, err := f.cache.GetInformer(waiting, k.object)
	if err == nil {
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(*k.found.Load())
	return cmp.Or(f.live.List(ctx, list, client.Limit(1)), err)
}

func (f *follower) end(ctx context.Context) error {
	for _, k := range f.kinds {
		if err := f.cache.RemoveInformer(ctx, k.object); err != nil {
			return err
		}
	}
	return nil
}

// all gives every Gateway a turn.
func (e *enforcers) all(ctx context.Context) error {
	var list gwv1.GatewayList
	if err := e.client.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		select {
		case e.gateways <- event.TypedGenericEvent[*gwv1.Gateway]{Object: &list.Items[i]}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
