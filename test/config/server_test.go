package config

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const assetsVariable = "KUBEBUILDER_ASSETS"

// cluster is an API server with the CRDs of others that the operator needs.
type cluster struct {
	client.Client
	env *envtest.Environment
}

func startServer(t *testing.T) *cluster {
	t.Helper()
	return startServerWith(t,
		filepath.Join(module(t, "sigs.k8s.io/gateway-api"), "config/crd/standard"),
		filepath.Join(module(t, "github.com/kuadrant/kuadrant-operator"), "config/crd/bases/kuadrant.io_authpolicies.yaml"))
}

// startServerWith starts an API server with CRDs.
func startServerWith(t *testing.T, crds ...string) *cluster {
	t.Helper()
	require.NotEmpty(t, os.Getenv(assetsVariable), "%s is not set, so there is no API server to ask; run `make test`, which builds one and sets it", assetsVariable)
	env := &envtest.Environment{ErrorIfCRDPathMissing: true, CRDDirectoryPaths: crds}
	// Without these two the API server looks for a default route, and there is
	// none in a network namespace that has only loopback.
	env.ControlPlane.GetAPIServer().Configure().
		Append("advertise-address", "127.0.0.1").
		Append("endpoint-reconciler-type", "none")
	config, err := env.Start()
	require.NoError(t, err, "start the API server in %s", os.Getenv(assetsVariable))
	t.Cleanup(func() { assert.NoError(t, env.Stop()) })
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &cluster{Client: c, env: env}
}

// module returns the folder of a module that go.mod requires.
func module(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// apply does what `kubectl apply --server-side` does, with strict validation.
func (c *cluster) apply(t *testing.T, stream []byte) {
	t.Helper()
	for _, object := range objects(t, stream) {
		c.applyObject(t, object)
		if object.GetObjectKind().GroupVersionKind().Kind == "CustomResourceDefinition" {
			c.waitForPolicies(t)
		}
	}
}

func (c *cluster) applyObject(t *testing.T, object client.Object) {
	t.Helper()
	strict := &client.PatchOptions{Raw: &metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}}
	body, err := json.Marshal(object)
	require.NoError(t, err)
	err = c.Patch(t.Context(), object, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner("test"), strict)
	require.NoError(t, err, "%T %s", object, object.GetName())
}

// TestServer asks a real API server about all of it.
func TestServer(t *testing.T) {
	c := startServer(t)
	c.apply(t, render(t, "default"))
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}))

	t.Run("every kustomization is accepted", func(t *testing.T) {
		for folder, stream := range everything(t) {
			if folder != "samples" { // the operator is to see these come
				c.apply(t, stream)
			}
		}
		// The last word is default's, because the operator runs with its arguments.
		c.apply(t, render(t, "default"))
	})
	t.Run("the pod is accepted in the namespace, another is not", func(t *testing.T) { c.askForPods(t) })
	t.Run("what the operator may do", func(t *testing.T) { c.reviewAccess(t) })
	t.Run("the operator works with these rights and arguments", func(t *testing.T) { c.runOperator(t) })
}

// askForPods: admission looks at pods, not at the Deployment that makes them.
func (c *cluster) askForPods(t *testing.T) {
	deployment := one[*appsv1.Deployment](t, objects(t, render(t, "default")))
	pod := func() *corev1.Pod {
		template := deployment.Spec.Template.DeepCopy()
		made := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		made.Namespace, made.GenerateName = namespace, "ask-"
		return made
	}
	require.NoError(t, c.Create(t.Context(), pod(), client.DryRunAll))

	for name, spoil := range map[string]func(*corev1.Pod){
		"root":       func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsNonRoot = nil },
		"seccomp":    func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile = nil },
		"privileges": func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
	} {
		spoilt := pod()
		spoil(spoilt)
		err := c.Create(t.Context(), spoilt, client.DryRunAll)
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, "PodSecurity", name)
	}
}

// reviewAccess asks for the operator's account what it may do and what not.
func (c *cluster) reviewAccess(t *testing.T) {
	for question, wanted := range map[authorizationv1.ResourceAttributes]bool{
		{Verb: "watch", Group: "agentic.networking.x-k8s.io", Resource: "xaccesspolicies"}:                                              true,
		{Verb: "patch", Group: "kuadrant.io", Resource: "authpolicies", Namespace: "demo"}:                                              true,
		{Verb: "patch", Group: "gateway.envoyproxy.io", Resource: "securitypolicies", Namespace: "demo"}:                                true,
		{Verb: "list", Group: "gateway.envoyproxy.io", Resource: "clienttrafficpolicies"}:                                               true,
		{Verb: "patch", Group: "gateway.envoyproxy.io", Resource: "clienttrafficpolicies", Namespace: "demo"}:                           false,
		{Verb: "list", Group: "gateway.envoyproxy.io", Resource: "backends"}:                                                            false,
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace, Name: operator}:                        true,
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace, Name: "other"}:                         false,
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: operator}:                    false,
		{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system"}:                                    false,
		{Verb: "get", Resource: "secrets", Namespace: namespace}:                                                                        false,
		{Verb: "update", Group: "agentic.networking.x-k8s.io", Resource: "xaccesspolicies", Namespace: "demo"}:                          false,
		{Verb: "get", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Name: "authpolicies.kuadrant.io"}:           true,
		{Verb: "get", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Name: "gateways.gateway.networking.k8s.io"}: false,
		{Verb: "list", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}:                                            false,
		{Verb: "update", Group: "gateway.networking.k8s.io", Resource: "gateways", Namespace: "demo"}:                                   false,
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: account, Groups: accountGroups, ResourceAttributes: &question}}
		require.NoError(t, c.Create(context.Background(), review))
		assert.Equal(t, wanted, review.Status.Allowed, "%+v", question)
	}
	// Without the groups of all accounts, which may read the issuer's keys by Kubernetes' own roles, and more of what has no resource.
	for path, wanted := range map[string]bool{"/.well-known/openid-configuration": true, "/openid/v1/jwks": true, "/metrics": false} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: account,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}}}
		require.NoError(t, c.Create(context.Background(), review))
		assert.Equal(t, wanted, review.Status.Allowed, path)
	}
}

// gatewayClass is the class of the Gateway in the samples.
func gatewayClass() *gwv1.GatewayClass {
	return &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "istio"}, Spec: gwv1.GatewayClassSpec{ControllerName: "istio.io/gateway-controller"}}
}
