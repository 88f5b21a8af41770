package story

import (
	"context"
	"errors"
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

// Place is where the story can be told other than by local processes: a cluster in which
// the operator is deployed as `make deploy` does it, with the Gateway and the MCP server
// that quickstart/kind has.
type Place struct {
	// Kubeconfig is the path of one, whose user may do everything.
	Kubeconfig string
	// Gateway is the address that agents connect to.
	Gateway string
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

// Connect prepares the story in a cluster, in which it may have been told before. It
// ends nothing that it finds there.
func (p Place) Connect(t stack.T, checkout, enforcer string, note func(string)) *World {
	t.Helper()

	w := newWorld(t, checkout, enforcer)
	w.Cluster, w.steps = stack.Connect(t, p.Kubeconfig), clusterSteps
	w.reach = []string{"-url", "http://" + publicHost + "/mcp", "-dial", p.Gateway}
	w.operator = deployed{w.Cluster}

	w.forget()
	w.operator.Start(t)
	note("accesspolicy-operator")
	w.serving()
	note("the Gateway, with the MCP server behind it")

	return w
}

// forget removes what an earlier telling has left, whether it came to its end or not.
func (w *World) forget() {
	w.t.Helper()

	ctx := context.Background()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, translator.AnnotationDefaultDeny)

	if err := errors.Join(
		w.Client.DeleteAllOf(ctx, policy(""), client.InNamespace(namespace)),
		w.Client.Patch(ctx, stack.Gateway(namespace, gateway), client.RawPatch(types.MergePatchType, []byte(patch))),
	); err != nil {
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
