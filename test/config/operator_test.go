package config

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"accesspolicy-operator/api/v1alpha1"
)

const (
	account  = "system:serviceaccount:" + namespace + ":" + operator
	patience = 60 * time.Second
	often    = 100 * time.Millisecond
)

var accountGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}

// waitForPolicies waits until the API server serves the CRD.
func (c *cluster) waitForPolicies(t *testing.T) {
	t.Helper()
	eventually(t, "XAccessPolicies are served", func(ctx context.Context) error {
		return c.List(ctx, &v1alpha1.XAccessPolicyList{})
	})
}

func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			require.NoError(t, err, "not within %s: %s", patience, what)
		case <-time.After(often):
		}
	}
}

// runOperator starts the binary of the Containerfile's command as the operator's
// account, with the arguments of the Deployment, and gives it the samples.
func (c *cluster) runOperator(t *testing.T) {
	binary, err := firstBuild()
	require.NoError(t, err)
	user, err := c.env.AddUser(envtest.User{Name: account, Groups: accountGroups}, nil)
	require.NoError(t, err)
	credentials, err := user.KubeConfig()
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, credentials, 0o600))

	container := one[*appsv1.Deployment](t, objects(t, render(t, "default"))).Spec.Template.Spec.Containers[0]
	health := freeAddress(t)
	// In a pod the namespace is known, and the addresses are free.
	command := exec.Command(binary, append(container.Args, "--leader-election-namespace="+namespace,
		"--metrics-bind-address=0", "--health-probe-bind-address="+health)...)
	command.Env = []string{"KUBECONFIG=" + kubeconfig}
	for _, variable := range container.Env {
		command.Env = append(command.Env, variable.Name+"="+variable.Value)
	}
	var log bytes.Buffer
	command.Stderr = &log
	require.NoError(t, command.Start())
	stopped := make(chan error, 1)
	go func() { stopped <- command.Wait() }()
	stop := func() error {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		select {
		case err := <-stopped:
			return err
		case <-time.After(30 * time.Second):
			return fmt.Errorf("runs for longer than terminationGracePeriodSeconds: %w", command.Process.Kill())
		}
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			assert.NoError(t, stop())
		}
		if t.Failed() {
			t.Logf("log of the operator:\n%s", &log)
		}
	})

	for _, probe := range []string{container.LivenessProbe.HTTPGet.Path, container.ReadinessProbe.HTTPGet.Path} {
		eventually(t, probe, func(ctx context.Context) error { return get(ctx, "http://"+health+probe) })
	}
	lease := types.NamespacedName{Namespace: namespace, Name: operator}
	eventually(t, "the lease is held", func(ctx context.Context) error {
		held := &coordinationv1.Lease{}
		if err := c.Get(ctx, lease, held); err != nil {
			return err
		}
		if held.Spec.HolderIdentity == nil || *held.Spec.HolderIdentity == "" {
			return fmt.Errorf("nobody holds it")
		}
		return nil
	})

	require.NoError(t, c.Create(t.Context(), gatewayClass()))
	c.apply(t, render(t, "samples"))
	c.seesWork(t)

	ended = true
	require.NoError(t, stop())
	held := &coordinationv1.Lease{}
	require.NoError(t, c.Get(t.Context(), lease, held))
	assert.Empty(t, held.Spec.HolderIdentity, "the lease is not given back")
	for line := range strings.Lines(log.String()) {
		assert.NotContains(t, line, " is forbidden: ", "a right is missing in controllers/doc.go")
	}
}

// seesWork waits for each kind of write that the operator has a right for.
func (c *cluster) seesWork(t *testing.T) {
	t.Helper()
	eventually(t, "an AuthPolicy is written", func(ctx context.Context) error {
		written := &unstructured.UnstructuredList{}
		written.SetGroupVersionKind(schema.GroupVersionKind{Group: "kuadrant.io", Version: "v1", Kind: "AuthPolicyList"})
		if err := c.List(ctx, written, client.InNamespace("demo"), client.MatchingLabels{"app.kubernetes.io/managed-by": operator}); err != nil {
			return err
		}
		if len(written.Items) == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
	eventually(t, "every policy has a status", func(ctx context.Context) error {
		policies := &v1alpha1.XAccessPolicyList{}
		if err := c.List(ctx, policies); err != nil {
			return err
		}
		for _, policy := range policies.Items {
			if len(policy.Status.Ancestors) == 0 {
				return fmt.Errorf("%s has none", policy.Name)
			}
		}
		return nil
	})
	eventually(t, "an event is recorded", func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := c.List(ctx, events, client.InNamespace("demo")); err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	return listener.Addr().String()
}
