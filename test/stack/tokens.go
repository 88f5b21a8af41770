package stack

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	tokenLifetime = 24 * time.Hour
	// A ServiceAccount "default" appears shortly after its namespace.
	accountLimit = 10 * time.Second
)

// Token returns a token of a ServiceAccount that exists or is about to, issued by
// the TokenRequest API. Without audiences it is one for the API server.
func (c *Cluster) Token(t T, namespace, name string, audiences ...string) string {
	t.Helper()

	var token string

	seconds := int64(tokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
	}

	Eventually(t, accountLimit, fmt.Sprintf("token of ServiceAccount %s/%s", namespace, name), func(ctx context.Context) error {
		issued, err := c.clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
		if err == nil {
			token = issued.Status.Token
		}

		return err
	})

	return token
}

// ConfigFor is the configuration of a client that acts as a ServiceAccount, with a
// real token and so with the rights that RBAC gives it.
func (c *Cluster) ConfigFor(t T, namespace, serviceAccount string) *rest.Config {
	t.Helper()

	return &rest.Config{
		Host:            c.admin.Host,
		BearerToken:     c.Token(t, namespace, serviceAccount),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.admin.CAData},
	}
}

// KubeconfigFor writes a kubeconfig with which a program acts as a ServiceAccount,
// and returns its path.
func (c *Cluster) KubeconfigFor(t T, namespace, serviceAccount string) string {
	t.Helper()

	path := c.path(fmt.Sprintf("%s.%s.kubeconfig", namespace, serviceAccount))
	must(t, writeKubeconfig(path, c.ConfigFor(t, namespace, serviceAccount)))

	return path
}
