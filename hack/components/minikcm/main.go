// Command minikcm runs the three controllers that tests need and that neither
// kube-apiserver nor envtest has: the garbage collector, which follows owner
// references; the namespace controller, which empties a namespace that is being
// deleted; and the ServiceAccount controller, which makes the account
// "default". It shares nearly all of its packages with kube-apiserver, so that
// building it after that takes seconds, unlike the full kube-controller-manager.
//
//	minikcm -kubeconfig FILE [-resync 5s]
//
// The kubeconfig has to be that of a cluster admin. It runs until it is
// interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

const (
	workers = 2

	// informerResync is long because nothing here relies on resyncs.
	informerResync = 12 * time.Hour

	namespaceResync    = 5 * time.Minute
	cacheSyncLimit     = 30 * time.Second
	clientQPS          = 400
	clientBurst        = 800
	defaultKindRefresh = 5 * time.Second
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a cluster admin")
	refresh := flag.Duration("resync", defaultKindRefresh, "how often the garbage collector looks for new kinds")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, *kubeconfig, *refresh); err != nil {
		fmt.Fprintln(os.Stderr, "minikcm:", err)
		os.Exit(1)
	}
}

// run starts the controllers and returns when ctx is done and all have stopped.
func run(ctx context.Context, kubeconfig string, refresh time.Duration) error {
	if kubeconfig == "" {
		return errors.New("-kubeconfig is required")
	}

	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", kubeconfig, err)
	}

	config.QPS, config.Burst = clientQPS, clientBurst

	m, err := newManager(config, refresh)
	if err != nil {
		return err
	}

	starts := []func(context.Context) (func(), error){m.garbageCollector, m.namespaces, m.serviceAccounts}
	runs := make([]func(), 0, len(starts))

	for _, start := range starts {
		run, err := start(ctx)
		if err != nil {
			return err
		}

		runs = append(runs, run)
	}

	// Informers start after every controller has asked for its own, otherwise
	// the late ones are never started.
	m.typed.Start(ctx.Done())
	m.meta.Start(ctx.Done())
	close(m.started)

	var all sync.WaitGroup
	for _, run := range runs {
		all.Go(run)
	}

	all.Wait()

	return nil
}

// manager is what the controllers share.
type manager struct {
	client   kubernetes.Interface
	metadata metadata.Interface
	typed    informers.SharedInformerFactory
	meta     metadatainformer.SharedInformerFactory
	started  chan struct{}
	refresh  time.Duration
}

func newManager(config *rest.Config, refresh time.Duration) (*manager, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}

	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("build metadata client: %w", err)
	}

	return &manager{
		client:   client,
		metadata: metadataClient,
		typed:    informers.NewSharedInformerFactory(client, informerResync),
		meta:     metadatainformer.NewSharedInformerFactory(metadataClient, informerResync),
		started:  make(chan struct{}),
		refresh:  refresh,
	}, nil
}

func (m *manager) garbageCollector(ctx context.Context) (func(), error) {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(m.client.Discovery()))

	collector, err := garbagecollector.NewGarbageCollector(ctx, m.client, m.metadata, mapper,
		garbagecollector.DefaultIgnoredResources(), informerfactory.NewInformerFactory(m.typed, m.meta), m.started)
	if err != nil {
		return nil, fmt.Errorf("build garbage collector: %w", err)
	}

	return func() {
		// Sync finds kinds that appear later, such as those of CRDs.
		go collector.Sync(ctx, m.client.Discovery(), m.refresh)
		collector.Run(ctx, workers, cacheSyncLimit)
	}, nil
}

func (m *manager) namespaces(ctx context.Context) (func(), error) {
	controller := namespace.NewNamespaceController(ctx, m.client, m.metadata,
		m.client.Discovery().ServerPreferredNamespacedResources,
		m.typed.Core().V1().Namespaces(), namespaceResync, corev1.FinalizerKubernetes)

	return func() { controller.Run(ctx, workers) }, nil
}

func (m *manager) serviceAccounts(ctx context.Context) (func(), error) {
	controller, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx),
		m.typed.Core().V1().ServiceAccounts(), m.typed.Core().V1().Namespaces(),
		m.client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, fmt.Errorf("build ServiceAccount controller: %w", err)
	}

	return func() { controller.Run(ctx, workers) }, nil
}
