package story

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
)

// Place is a cluster with a Gateway, where the story can be told but for what only local
// processes can show.
type Place struct {
	kubeconfig string
	reach      []string
	// operator is nil where it is a Deployment.
	operator operator
}

// Kind is the place that quickstart/kind has prepared, with the operator deployed as
// `make deploy` does it. The user of the kubeconfig may do everything; gateway is the
// address that agents connect to.
func Kind(kubeconfig, gateway string) Place {
	return Place{kubeconfig: kubeconfig, reach: []string{"-url", "http://" + publicHost + "/mcp", "-dial", gateway}}
}

// Place is where a world is.
func (w *World) Place() Place {
	return Place{kubeconfig: w.Kubeconfig(), reach: w.reach, operator: w.operator}
}

// clusterSteps are the steps that need nothing of the machine. Those with client
// certificates are not among them: the Gateway of quickstart/kind is without TLS.
var clusterSteps = []step{
	{title: "No policy: the Gateway is as its owner left it, and everybody can call everything", run: open},
	{title: "Two teams apply their policies", run: twoTeams},
	{title: "What kubectl shows", run: status},
	{title: "Team B edits its policy: get-tiny-image instead of echo", run: edit},
	{title: "Policies that are hostile or malformed", run: hostile},
	// Kuadrant's way into Istio's Envoy is none that the owner of a route can be in.
	{title: "The owner of a route attaches an AuthPolicy of their own", run: routeOwnersAuthPolicy, only: translator.EnforcerKuadrant},
	{title: "The owner of a route attaches policies of their own", run: routeOwner, only: translator.EnforcerEnvoyGateway},
	{title: "The operator is killed, and started again", run: killed},
	{title: "The last policy goes", run: lastPolicy},
}

// Connect prepares the story at a place, where it may have been told before. It ends
// nothing that it finds there.
func (p Place) Connect(t stack.T, checkout, enforcer string, note func(string)) *World {
	t.Helper()

	w := newWorld(t, checkout, enforcer)
	w.Cluster, w.steps, w.reach, w.operator = stack.Connect(t, p.kubeconfig), clusterSteps, p.reach, p.operator
	w.forget()

	if w.operator == nil {
		w.operator = deployed{w.Cluster}
		w.operator.Start(t)
		note("accesspolicy-operator")
	}

	w.serving()
	note("the Gateway, with the MCP server behind it")

	return w
}

// forget removes what an earlier telling has left, whether it came to its end or not.
func (w *World) forget() {
	w.t.Helper()

	ctx := context.Background()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, translator.AnnotationDefaultDeny)

	w.removePolicies()

	if err := w.Client.Patch(ctx, stack.Gateway(namespace, gateway), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.t.Fatal(err)
	}

	for _, of := range []struct{ apiVersion, kind, name string }{
		{"gateway.networking.k8s.io/v1", "HTTPRoute", route},
		{"kuadrant.io/v1", "AuthPolicy", routesPolicy},
		{"gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", routesSecurityPolicy},
	} {
		err := w.Client.Delete(ctx, stack.Object(of.apiVersion, of.kind, namespace, of.name, nil))
		// Each variant lacks kinds of the other.
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			w.t.Fatal(err)
		}
	}
}

func routeOwnersAuthPolicy(w *World, o *Outcome) {
	w.apply("route.yaml")
	overridden(w, o)
}

// What config/manager calls the operator, and the operator its lease.
const (
	deploymentNamespace = "accesspolicy-system"
	deploymentName      = "accesspolicy-operator"
)

// deployed is the operator as a Deployment.
type deployed struct{ cluster *stack.Cluster }

// Start returns when the operator works: it is not enough that it is ready, since a
// killed one leaves a lease that has to run out.
func (d deployed) Start(t stack.T) {
	t.Helper()
	d.scale(t, 1)
	stack.Eventually(t, settles, "the operator holds the lease", func(ctx context.Context) error {
		pods, err := d.pods(ctx)
		if err != nil {
			return err
		}

		lease := stack.Object("coordination.k8s.io/v1", "Lease", deploymentNamespace, deploymentName, nil)
		if err := d.cluster.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
			return err
		}

		holder, _, err := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
		if err != nil {
			return err
		}

		// The rest of it is chosen by the process.
		name, _, _ := strings.Cut(holder, "_")

		return unmet(len(pods) == 1 && pods[0].Name == name, "there are %d pods of it, and the lease is %q's", len(pods), holder)
	})
}

func (d deployed) Kill(t stack.T) {
	t.Helper()

	// First the wish for none, so that nobody replaces the pods.
	d.scale(t, 0)

	pods, err := d.pods(context.Background())
	if err != nil {
		t.Fatal(err)
	}

	for i := range pods {
		if err := client.IgnoreNotFound(d.cluster.Client.Delete(context.Background(), &pods[i], client.GracePeriodSeconds(0))); err != nil {
			t.Fatal(err)
		}
	}

	d.gone(t)
}

func (d deployed) scale(t stack.T, replicas int) {
	t.Helper()

	deployment := stack.Object("apps/v1", "Deployment", deploymentNamespace, deploymentName, nil)
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)

	if err := d.cluster.Client.Patch(context.Background(), deployment, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func (d deployed) pods(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := d.cluster.Client.List(ctx, list, client.InNamespace(deploymentNamespace), client.MatchingLabels{"app.kubernetes.io/name": deploymentName})

	return list.Items, err
}

func (d deployed) gone(t stack.T) {
	t.Helper()
	stack.Eventually(t, settles, "the operator is gone", func(ctx context.Context) error {
		pods, err := d.pods(ctx)
		if err != nil {
			return err
		}

		return unmet(len(pods) == 0, "there are %d pods of it", len(pods))
	})
}
