package controllers

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// kuadrantCRD is the CRD whose presence means that Kuadrant can be asked to enforce.
const kuadrantCRD = "authpolicies.kuadrant.io"

// crdKind is read as metadata only.
var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

func crdMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(crdKind)
	return object
}

// enforcers follows what is installed that can enforce policies. Kuadrant may come after the operator, or go before it.
type enforcers struct {
	client client.Client
	cache  cache.Cache
	mapper meta.RESTMapper
	// watch makes the Gateway controller follow AuthPolicies from now on.
	watch func() error
	// gateways gets every Gateway when what is installed has changed.
	gateways chan event.TypedGenericEvent[*gwv1.Gateway]
	// kuadrant is set while AuthPolicies are followed, unserved while the CRD is there and the API server does not serve it.
	kuadrant, unserved atomic.Bool
}

func (e *enforcers) kuadrantInstalled() bool { return e.kuadrant.Load() }

// settled reports whether what is installed is followed already. Right after a start it is not, and what is written then
// would be wrong for a moment; every Gateway has a turn when it is.
func (e *enforcers) settled(ctx context.Context) (bool, error) {
	err := e.client.Get(ctx, types.NamespacedName{Name: kuadrantCRD}, crdMetadata())
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	return (err == nil) == e.kuadrant.Load() || e.unserved.Load(), nil
}

// Reconcile is called when Kuadrant's CRD comes, changes or goes.
func (e *enforcers) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	err := e.client.Get(ctx, request.NamespacedName, crdMetadata())
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	switch there := err == nil; {
	case there == e.kuadrant.Load():
		e.unserved.Store(false)
		return ctrl.Result{}, nil
	case !there:
		logf.FromContext(ctx).Info("Kuadrant's AuthPolicy is not installed any more")
		e.kuadrant.Store(false)
		e.unserved.Store(false)
		if err := e.cache.RemoveInformer(ctx, &AuthPolicy{}); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, e.all(ctx)
	}
	if _, err := e.mapper.RESTMapping(authPolicyKind.GroupKind(), authPolicyKind.Version); err != nil {
		logf.FromContext(ctx).Info("Kuadrant's AuthPolicy is there and not served yet", "error", err.Error())
		if !e.unserved.Swap(true) {
			return ctrl.Result{RequeueAfter: time.Second}, e.all(ctx)
		}
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if err := e.cache.IndexField(ctx, &AuthPolicy{}, indexTarget, authPolicyTarget); err != nil {
		return ctrl.Result{}, fmt.Errorf("index AuthPolicies: %w", err)
	}
	if err := e.watch(); err != nil {
		return ctrl.Result{}, fmt.Errorf("watch AuthPolicies: %w", err)
	}
	// The first list has to be there before anything is decided by what is in it.
	if _, err := e.cache.GetInformer(ctx, &AuthPolicy{}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list AuthPolicies: %w", err)
	}
	logf.FromContext(ctx).Info("Kuadrant's AuthPolicy is installed")
	e.kuadrant.Store(true)
	e.unserved.Store(false)
	return ctrl.Result{}, e.all(ctx)
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
