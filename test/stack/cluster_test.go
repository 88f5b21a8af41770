package stack

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const ourCRD = "xaccesspolicies.agentic.networking.x-k8s.io"

// TestClustersAtOnce has the clusters side by side: they must not meet on a port.
func TestClustersAtOnce(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := Start(t, APIServerFlags("--anonymous-auth=false"))
			checkAnonymous(t, c)
			c.InstallCRDs(t, CRDsOurs)
			c.Apply(t, Namespace(name), ServiceAccount(name, "operator"))
			checkAccount(t, c, name)

			c.KillEtcd(t)
			c.StartEtcd(t)
			must(t, c.Client.Get(t.Context(), client.ObjectKey{Name: name}, Namespace(name)))

			c.KillAPIServer(t)
			c.StartAPIServer(t)
			checkAccount(t, c, name)

			c.RemoveCRD(t, ourCRD)

			if err := c.established(t.Context(), ourCRD); !apierrors.IsNotFound(err) {
				t.Errorf("the CRD is to be gone: %v", err)
			}
		})
	}
}

// checkAnonymous checks that the API server has got the flag of Start.
func checkAnonymous(t *testing.T, c *Cluster) {
	t.Helper()

	anonymous, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(c.Admin()))
	must(t, err)

	if _, err := anonymous.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("an anonymous request is to be refused as such: %v", err)
	}
}

// checkAccount checks that a ServiceAccount's configuration is that of the account:
// it may ask who it is and nothing else.
func checkAccount(t *testing.T, c *Cluster, namespace string) {
	t.Helper()

	config, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigFor(t, namespace, "operator"))
	must(t, err)
	acting, err := kubernetes.NewForConfig(config)
	must(t, err)

	// Rights become known to the API server shortly after its start.
	Eventually(t, accountLimit, "the account may be seen to be forbidden", func(ctx context.Context) error {
		_, err := acting.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			return nil
		}

		t.Logf("list of Secrets: %v", err)

		return err
	})
}
