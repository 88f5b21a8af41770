package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	envoyNamespace = "envoy-gateway-system"

	// The port of its health check is fixed, like its other ports.
	envoyReady = "http://" + loopback + ":8081/readyz"

	envoyConfig = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway:
  controllerName: ` + gatewayController + `
provider:
  type: Kubernetes
  kubernetes:
    leaderElection:
      disable: true
    proxyTopologyInjector:
      disabled: true
extensionApis:
  enableEnvoyPatchPolicy: true
  enableBackend: true
`

	// localHosts is all that name resolution needs: the stub registry is called
	// localhost.
	localHosts = loopback + " localhost\n"
)

// envoyGatewayStarted guards Envoy Gateway's fixed ports.
var envoyGatewayStarted atomic.Bool

// StartEnvoyGateway starts Envoy Gateway with its Kubernetes provider, installs
// the CRDs of Gateway API and its own, and returns when it is ready. It ends with
// the test. Its ports are fixed (8080, 8081, 18000 to 18002, 19000, 19001): one at
// a time in a network namespace.
//
// The Envoys that it wants to deploy do not run; see fakeInfrastructure.
func (c *Cluster) StartEnvoyGateway(t T) {
	t.Helper()

	if envoyGatewayStarted.Swap(true) {
		t.Fatal("an Envoy Gateway runs already, and its ports are fixed; start the next when that test has ended")
	}

	t.Cleanup(func() { envoyGatewayStarted.Store(false) })

	c.InstallCRDs(t, CRDsGatewayAPI, CRDsEnvoyGateway)
	c.Apply(t, Namespace(envoyNamespace))

	env := []string{"KUBECONFIG=" + c.kubeconfig, "ENVOY_GATEWAY_NAMESPACE=" + envoyNamespace, "KUBERNETES_CLUSTER_DOMAIN=cluster.local"}
	c.makeEnvoyCertificates(t, env)

	gateway := newProcess(t, c.folder, Component(t, "envoy-gateway"), "server", "--config-path=/config.yaml")
	gateway.root = c.envoyRoot(t, gateway.path)
	gateway.path = "/envoy-gateway"
	gateway.env = append(env, "KUBECONFIG=/kubeconfig")
	gateway.mustStart(t, answers(envoyReady))
	c.fakeInfrastructure(t)
}

// makeEnvoyCertificates has Envoy Gateway write the Secrets with its certificates.
func (c *Cluster) makeEnvoyCertificates(t T, env []string) {
	t.Helper()

	generator := newProcess(t, c.folder, Component(t, "envoy-gateway"), "certgen", "--disable-topology-injector")
	generator.env = env
	must(t, generator.start())
	<-generator.ended

	if !generator.command.ProcessState.Success() {
		t.Fatalf("make Envoy Gateway's certificates: %s", generator.command.ProcessState)
	}
}

// envoyRoot makes the folder that Envoy Gateway sees as /. It reads its
// certificates from /certs, with no way to say otherwise, and this spares the test
// from making that folder on the machine. Everything in it is a plain file, so that
// removing it removes nothing else.
func (c *Cluster) envoyRoot(t T, binary string) string {
	t.Helper()

	root := c.path("envoy-gateway-root")
	secret, err := c.clientset.CoreV1().Secrets(envoyNamespace).Get(context.Background(), "envoy-gateway", metav1.GetOptions{})
	must(t, err)
	kubeconfig, err := os.ReadFile(c.kubeconfig)
	must(t, err)

	must(t, writeFiles(root, map[string][]byte{"config.yaml": []byte(envoyConfig), "kubeconfig": kubeconfig}))
	must(t, writeFiles(filepath.Join(root, "certs"), secret.Data))
	must(t, writeFiles(filepath.Join(root, "etc"), map[string][]byte{"hosts": []byte(localHosts)}))
	must(t, writeFiles(filepath.Join(root, "tmp"), nil))
	must(t, linkOrCopy(binary, filepath.Join(root, "envoy-gateway")))

	return root
}

// linkOrCopy makes a file appear under a second name; as a copy where the two are
// on different file systems.
func linkOrCopy(from, to string) error {
	// A link to a symbolic link would point nowhere below another root.
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}

	err = os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}

	if !errors.Is(err, syscall.EXDEV) && !errors.Is(err, fs.ErrPermission) {
		return err
	}

	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()

	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}

	if _, err := io.Copy(target, source); err != nil {
		return fmt.Errorf("copy %s: %w", from, errors.Join(err, target.Close()))
	}

	return target.Close()
}
