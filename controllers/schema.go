package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// policyCRD is the CRD of what is read.
const policyCRD = "xaccesspolicies.agentic.networking.x-k8s.io"

// schemaGuard ends the process when the CRD of XAccessPolicy changes or goes.
//
// A watch that is open while the schema changes is served with the former one: fields that only the new one has are dropped
// before they reach us, and a policy looks wider than it is written, until it is listed again. So nothing is decided any
// more from the moment the change is seen, and a new process lists everything anew. When the CRD is deleted, all policies
// are; to take that for a wish to open every Gateway would be wrong, and what is in force stays.
type schemaGuard struct {
	cache cache.Cache
	live  client.Reader
	uid   types.UID
	// generation is that of the schema under which the cache was filled.
	generation int64

	once    sync.Once
	changed chan struct{}
}

// swapTime is for API servers to take up a new schema: they follow CRDs by a watch of their own.
const swapTime = 5 * time.Second

// newSchemaGuard reads the present schema's generation. It has to be called before the cache is filled.
func newSchemaGuard(ctx context.Context, mgr ctrl.Manager) (*schemaGuard, error) {
	crd := crdMetadata()
	if err := mgr.GetAPIReader().Get(ctx, types.NamespacedName{Name: policyCRD}, crd); err != nil {
		return nil, fmt.Errorf("read the CRD of XAccessPolicy: %w; install it first (make install)", err)
	}
	only, err := newCRDCache(mgr, policyCRD)
	if err != nil {
		return nil, err
	}
	g := &schemaGuard{cache: only, live: mgr.GetAPIReader(), uid: crd.UID, generation: crd.Generation, changed: make(chan struct{})}
	return g, mgr.Add(g)
}

// setup follows the CRD, on every replica: the cache of one without the lease has to be right as well.
func (g *schemaGuard) setup(mgr ctrl.Manager) error {
	everywhere := false
	return builder.ControllerManagedBy(mgr).Named("schema").
		WatchesRawSource(source.Kind(g.cache, client.Object(crdMetadata()), handler.EnqueueRequestsFromMapFunc(crdRequests))).
		WithOptions(controller.Options{NeedLeaderElection: &everywhere}).
		Complete(g)
}

// Reconcile looks at the CRD.
func (g *schemaGuard) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	crd := crdMetadata()
	err := g.cache.Get(ctx, request.NamespacedName, crd)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	g.judge(crd, err)
	return ctrl.Result{}, nil
}

// judge compares the CRD, or the error of reading it, with what the cache was filled under.
func (g *schemaGuard) judge(crd *metav1.PartialObjectMetadata, err error) {
	if err != nil || crd.UID != g.uid || crd.Generation != g.generation || !crd.DeletionTimestamp.IsZero() {
		g.once.Do(func() { close(g.changed) })
	}
}

// verify asks the API server, right before something is written, whether the schema is still the same: what comes by two
// watches comes in no order.
func (g *schemaGuard) verify(ctx context.Context) error {
	crd := crdMetadata()
	err := g.live.Get(ctx, types.NamespacedName{Name: policyCRD}, crd)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the CRD of XAccessPolicy: %w", err)
	}
	g.judge(crd, err)
	if g.stale() {
		return errSchemaChanged
	}
	return nil
}

// errSchemaChanged is why nothing is written any more.
var errSchemaChanged = fmt.Errorf("the CRD %s has changed; what is in force stays, and policies have to be read anew by a new process", policyCRD)

// stale reports whether the cache may not be believed any more.
func (g *schemaGuard) stale() bool {
	select {
	case <-g.changed:
		return true
	default:
		return false
	}
}

// Start ends, and the manager with it, when the schema has changed.
func (g *schemaGuard) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-g.changed:
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(swapTime):
		return errSchemaChanged
	}
}

// NeedLeaderElection is for the manager.
func (g *schemaGuard) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = &schemaGuard{}
