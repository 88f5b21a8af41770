package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"accesspolicy-operator/cmd/internal/version"
	"accesspolicy-operator/controllers"
)

// leaseName is in the RBAC markers of package controllers as well.
const leaseName = "accesspolicy-operator"

func command() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "manager --token-audience AUDIENCE",
		Short: "Make XAccessPolicies be in force on their Gateways",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(c.Flags()); err != nil {
				return err
			}
			return run(c.Context(), o)
		},
	}
	o.register(c.Flags())
	return c
}

// run works until the context ends.
func run(ctx context.Context, o *options) error {
	handler, err := o.handler(os.Stderr)
	if err != nil {
		return err
	}
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w. Outside a cluster, set KUBECONFIG", err)
	}
	config.QPS, config.Burst = o.kubeQPS, o.kubeBurst
	mgr, err := ctrl.NewManager(config, o.managerOptions())
	if err != nil {
		return err
	}
	if err := addChecks(mgr); err != nil {
		return err
	}
	if err := controllers.Setup(ctx, mgr, o.controllers); err != nil {
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("%w. Install the CRDs of Gateway API, and of XAccessPolicy (make install), first", err)
		}
		return err
	}
	log.Info("starting", "version", version.Build(), "gatewayControllers", o.controllers.GatewayControllers, "enforcer", o.controllers.Enforcer,
		"audiences", o.controllers.Translation.Kuadrant.Audiences, "profile", o.controllers.Translation.Profile.Name)
	return mgr.Start(ctx)
}

func (o *options) managerOptions() manager.Options {
	renew, retry := o.leaseDuration*2/3, o.leaseDuration/10
	grace := 20 * time.Second
	return manager.Options{
		Scheme: controllers.NewScheme(), Cache: controllers.CacheOptions(),
		LeaderElection: o.leaderElection, LeaderElectionID: leaseName, LeaderElectionNamespace: o.leaderElectionNamespace,
		// The process ends right after it has given the lease back, so nothing is written without it.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.leaseDuration, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: metricsserver.Options{BindAddress: o.metricsAddress}, HealthProbeBindAddress: o.healthAddress, PprofBindAddress: o.pprofAddress,
		GracefulShutdownTimeout: &grace,
	}
}

// addChecks: alive while the process answers, ready when the cache is there.
func addChecks(mgr manager.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("cache", func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the cache is not filled yet")
		}
		return nil
	})
}
