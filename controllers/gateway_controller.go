package controllers

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
)

// GatewayReconciler makes what the policies of a Gateway say be in force on it, and reports.
type GatewayReconciler struct {
	*classReader
	config    Config
	status    *statusWriter
	events    events.EventRecorder
	enforcers *enforcers
	issuer    *issuer
	schema    *schemaGuard
	written   *written
	known     knownFindings
	handOvers handOvers
	// started is when the process began: a Gateway that is younger has nothing that was announced before.
	started time.Time
}

// Reconcile works on one Gateway: gather, translate, apply, report.
func (r *GatewayReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	world, err := r.gather(ctx, request.NamespacedName)
	if err != nil || world == nil {
		return ctrl.Result{}, err
	}
	translated, err := r.translate(world)
	if err != nil {
		return ctrl.Result{}, err
	}
	live, wait, failure := r.apply(ctx, world, translated)
	more, err := r.report(ctx, world, translated, live, failure)
	if err = errors.Join(failure, err); err == nil && more {
		return ctrl.Result{RequeueAfter: cacheDelay}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// cacheDelay is for the cache to see what was just written.
const cacheDelay = 50 * time.Millisecond
