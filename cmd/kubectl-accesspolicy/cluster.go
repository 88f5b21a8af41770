package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/cmd/internal/version"
	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/owned"
	"accesspolicy-operator/translator/plan"
)

const requestLimit = 30 * time.Second

var policyKind = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "XAccessPolicy"}

// clusterFlags say which cluster is asked, as kubectl's own flags do.
type clusterFlags struct{ kubeconfig, context, namespace string }

func (f *clusterFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that names the cluster to ask where there is no -f; else what kubectl takes")
	flags.StringVar(&f.context, "context", "", "`NAME` of a context in it")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of the route or Gateway in the cluster; else the context's")
}

// clusterReader reads everybody's objects from a cluster.
type clusterReader struct {
	client client.Client
	// namespace is the one of -n or of the context.
	namespace string
	// near are the namespaces that are read where a kind may not be listed in all of them.
	near sets.Set[string]
	in   *coverage.Input
	// targeted are the Gateways that policies target.
	targeted sets.Set[types.NamespacedName]
	warnings []string
}

func (f *clusterFlags) connect() (*clusterReader, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	overrides.Context.Namespace = f.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("name files with -f, or a cluster with --kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("the namespace of the kubeconfig: %w", err)
	}
	config.UserAgent = "kubectl-accesspolicy/" + version.Build()
	config.Timeout = requestLimit
	config.WarningHandler = rest.NoWarnings{} // about versions, which the API server chooses
	reads, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("the cluster at %s: %w", config.Host, err)
	}
	return &clusterReader{client: reads, namespace: namespace, near: sets.New(namespace), in: &coverage.Input{}, targeted: sets.New[types.NamespacedName]()}, nil
}

// read fills the input with what has a say in the subject, or in everything. The baselines are the objects that the operator
// has written: what it would write decides nothing.
func (r *clusterReader) read(ctx context.Context, about subject) error {
	if about.namespace != "" {
		r.near.Insert(about.namespace)
	}
	// Where not everything may be listed, a route leads to the namespaces that count.
	order := slices.Clone(coverage.Resources)
	slices.SortStableFunc(order, func(a, b schema.GroupKind) int { return rank(a) - rank(b) })
	for _, kind := range order {
		if err := r.list(ctx, kind, func(u *unstructured.Unstructured) { r.take(u, about) }); err != nil {
			return err
		}
	}
	if err := r.list(ctx, policyKind, r.target); err != nil {
		return err
	}
	for _, b := range r.in.Written() {
		if r.ours(&b) {
			r.in.Baselines = append(r.in.Baselines, b)
		}
	}
	return nil
}

// rank is the order in which kinds lead from one namespace to others.
func rank(kind schema.GroupKind) int {
	switch {
	case strings.HasSuffix(kind.Kind, "Route"):
		return 0
	case kind.Kind == "ListenerSet":
		return 1
	}
	return 2
}

// take adds an object, and the namespaces that it leads to where it is what is asked about.
func (r *clusterReader) take(u *unstructured.Unstructured, about subject) {
	if err := r.in.Add(u); err != nil {
		r.warn("%s; it is passed over", err)
		return
	}
	var parents []any
	switch kind := u.GroupVersionKind().GroupKind(); rank(kind) {
	case 0:
		if id := (coverage.RouteID{Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}); about.matches(&coverage.Line{Route: id}) {
			parents, _, _ = unstructured.NestedSlice(u.Object, "spec", "parentRefs")
		}
	case 1:
		if parent, found, _ := unstructured.NestedMap(u.Object, "spec", "parentRef"); found && r.near.Has(u.GetNamespace()) {
			parents = []any{parent}
		}
	}
	for _, parent := range parents {
		if ref, ok := parent.(map[string]any); ok {
			if namespace, _ := ref["namespace"].(string); namespace != "" {
				r.near.Insert(namespace)
			}
		}
	}
}

// target notes which Gateways a policy targets.
func (r *clusterReader) target(u *unstructured.Unstructured) {
	var policy v1alpha1.XAccessPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &policy); err != nil {
		r.warn("XAccessPolicy %s/%s: %s; it is passed over", u.GetNamespace(), u.GetName(), err)
		return
	}
	for _, ref := range policy.Spec.TargetRefs {
		if ref.Group == gwv1.GroupName && ref.Kind == "Gateway" {
			r.targeted.Insert(types.NamespacedName{Namespace: policy.Namespace, Name: string(ref.Name)})
		}
	}
}

// ours tells what the operator wrote from what merely has its label.
func (r *clusterReader) ours(b *coverage.Baseline) bool {
	var object *metav1.ObjectMeta
	if b.Security != nil {
		object = &b.Security.ObjectMeta
	} else {
		object = &b.Auth.ObjectMeta
	}
	return slices.ContainsFunc(r.in.Gateways, func(gw coverage.Gateway) bool { return owned.Is(&gw.Gateway, object) })
}

// bare are the Gateways among what is asked about that policies target and for which the operator has written nothing.
func (r *clusterReader) bare(about subject) []types.NamespacedName {
	of := sets.New[types.NamespacedName]()
	for _, b := range r.in.Baselines {
		of.Insert(b.Gateway)
	}
	var out []types.NamespacedName
	for gateway := range r.targeted.Difference(of) {
		if about.concerns(r.in, gateway) {
			out = append(out, gateway)
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (r *clusterReader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// list calls visit for every object of a kind: of all namespaces, or, where that is forbidden, of those that are near. What
// may not be read at all is a warning, and a kind that is not installed has no objects.
func (r *clusterReader) list(ctx context.Context, kind schema.GroupKind, visit func(*unstructured.Unstructured)) error {
	mapping, err := r.client.RESTMapper().RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask the cluster for the kind %s: %w", kind.Kind, err)
	}
	err = r.pages(ctx, mapping.GroupVersionKind, "", visit)
	if !apierrors.IsForbidden(err) {
		return err
	}
	plural := mapping.Resource.GroupResource().String()
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		r.warn("%s may not be listed and are not looked at", plural)
		return nil
	}
	var read, refused []string
	for _, namespace := range sets.List(r.near) {
		switch err := r.pages(ctx, mapping.GroupVersionKind, namespace, visit); {
		case apierrors.IsForbidden(err):
			refused = append(refused, namespace)
		case err != nil:
			return err
		default:
			read = append(read, namespace)
		}
	}
	text := "only those in " + strings.Join(read, ", ") + " are looked at"
	if len(read) == 0 {
		text = "none are looked at"
	}
	if len(refused) > 0 {
		text += ", nor may they be listed in " + strings.Join(refused, ", ")
	}
	r.warn("%s may not be listed in all namespaces; %s", plural, text)
	return nil
}

// pages lists the objects of a kind in a namespace, or in all.
func (r *clusterReader) pages(ctx context.Context, gvk schema.GroupVersionKind, namespace string, visit func(*unstructured.Unstructured)) error {
	lists := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		return list, r.client.List(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &opts, Limit: opts.Limit, Continue: opts.Continue})
	})
	err := lists.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		visit(o.(*unstructured.Unstructured))
		return nil
	})
	if err != nil {
		return fmt.Errorf("list objects of kind %s: %w", gvk.Kind, err)
	}
	return nil
}

// clusterInput reads what coverage looks at from a cluster, and says what is missing there.
func (a *app) clusterInput(ctx context.Context, flags *clusterFlags, controllers []string, about *subject) (*coverage.Input, int, error) {
	r, err := flags.connect()
	if err != nil {
		return nil, 0, err
	}
	r.in.EnvoyControllers = controllers
	if about.kind != "" && about.namespace == "" {
		about.namespace = r.namespace
	}
	if err := r.read(ctx, *about); err != nil {
		return nil, 0, err
	}
	for _, warning := range r.warnings {
		a.say(plan.Warning, warning)
	}
	bare := r.bare(*about)
	for _, gateway := range bare {
		a.say(plan.Error, fmt.Sprintf("policies target Gateway %s, and there is nothing for it that the operator wrote; see whether it is there, and the conditions of the policies", gateway))
	}
	if len(r.in.Baselines)+len(bare) == 0 && about.kind == "" {
		return nil, 0, errors.New("the cluster has no XAccessPolicy for a Gateway that may be listed, and no object that the operator wrote")
	}
	return r.in, len(bare), nil
}
