package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	componentsVariable = "ACCESSPOLICY_COMPONENTS"

	// issuer names the API server in tokens; a token that is asked for without an
	// audience has it as audience.
	issuer = "https://kubernetes.default.svc.cluster.local"

	// kindRefresh is how often the garbage collector looks for new kinds; it is also
	// how long it waits for their lists, so that less would often be too short.
	kindRefresh = "2s"

	// Tests poll a lot and want no client of their own to slow them down.
	clientQPS   = 400
	clientBurst = 800
)

// Cluster is etcd, kube-apiserver and the controllers of minikcm, with RBAC on.
type Cluster struct {
	// Client acts as the admin.
	Client client.Client

	folder     string
	kubeconfig string
	admin      *rest.Config
	clientset  *kubernetes.Clientset

	etcdURL   string
	etcd      *process
	apiServer *process
	manager   *process

	faking sync.Once
}

// Option changes what Start starts.
type Option func(*settings)

type settings struct{ apiServerFlags []string }

// APIServerFlags gives kube-apiserver more flags, such as
// "--audit-log-path=/tmp/audit.log".
func APIServerFlags(flags ...string) Option {
	return func(s *settings) { s.apiServerFlags = append(s.apiServerFlags, flags...) }
}

// Start starts a cluster on free ports of loopback and returns when it is ready to
// use. It ends with the test. The test fails if ACCESSPOLICY_COMPONENTS does not
// name a folder made by hack/components/build.
func Start(t T, options ...Option) *Cluster {
	t.Helper()
	components(t)

	var chosen settings
	for _, option := range options {
		option(&chosen)
	}

	c := &Cluster{folder: t.TempDir()}
	c.makeCredentials(t, FreeAddress(t))
	c.prepareEtcd(t)
	c.prepareAPIServer(t, chosen.apiServerFlags)
	c.manager = newProcess(t, c.folder, Component(t, "minikcm"), "-kubeconfig", c.kubeconfig, "-resync", kindRefresh)

	c.StartEtcd(t)
	c.StartAPIServer(t)
	c.manager.mustStart(t, func(ctx context.Context) error {
		return c.Client.Get(ctx, types.NamespacedName{Namespace: "default", Name: "default"}, ServiceAccount("default", "default"))
	})

	return c
}

// components returns the folder of binaries.
func components(t T) string {
	t.Helper()

	folder := os.Getenv(componentsVariable)
	if folder == "" {
		t.Fatalf("%s is not set, so there is nothing to start; set it to the folder that `hack/components/build "+
			"etcd kube-apiserver minikcm authorino kuadrant-operator envoy-gateway mcp-broker-router mcpserver stubregistry crds` prints", componentsVariable)
	}

	return folder
}

// Component returns the path of a binary in that folder.
func Component(t T, name string) string {
	t.Helper()

	path := filepath.Join(components(t), name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; name it in hack/components/build", err)
	}

	return path
}

// Admin is the configuration of a client that may do everything; a copy, free to
// change.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// Kubeconfig is the path of a kubeconfig of the same admin.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// makeCredentials writes the keys, certificates and the kubeconfig, and makes the admin's
// clients.
func (c *Cluster) makeCredentials(t T, served string) {
	t.Helper()

	issuing, err := newAuthority()
	must(t, err)
	server, err := issuing.server("kube-apiserver")
	must(t, err)
	admin, err := issuing.client("admin", "system:masters")
	must(t, err)
	tokens, err := tokenKeys()
	must(t, err)

	must(t, writeFiles(c.path("pki"), map[string][]byte{
		"ca.crt":     issuing.pem(),
		"server.crt": server.certificate,
		"server.key": server.key,
		"tokens.pub": tokens.certificate,
		"tokens.key": tokens.key,
	}))

	c.admin = &rest.Config{
		Host: "https://" + served,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: issuing.pem(), CertData: admin.certificate, KeyData: admin.key,
		},
		QPS:   clientQPS,
		Burst: clientBurst,
	}
	c.kubeconfig = c.path("admin.kubeconfig")
	must(t, writeKubeconfig(c.kubeconfig, c.admin))
	c.makeClients(t)
}

// makeClients builds the admin's clients.
func (c *Cluster) makeClients(t T) {
	t.Helper()

	var err error

	c.clientset, err = kubernetes.NewForConfig(c.admin)
	must(t, err)
	c.Client, err = client.New(c.admin, client.Options{})
	must(t, err)
	c.Client = client.WithFieldValidation(c.Client, "Strict")
}

func (c *Cluster) prepareEtcd(t T) {
	t.Helper()

	c.etcdURL = "http://" + FreeAddress(t)
	peer := "http://" + FreeAddress(t)
	c.etcd = newProcess(t, c.folder, Component(t, "etcd"),
		"--name=stack", "--data-dir="+c.path("etcd"), "--log-level=warn",
		"--listen-client-urls="+c.etcdURL, "--advertise-client-urls="+c.etcdURL,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=stack="+peer,
		// What the kernel has in its page cache outlives a killed process; only a
		// crash of the whole machine would lose it.
		"--unsafe-no-fsync")
}

func (c *Cluster) prepareAPIServer(t T, more []string) {
	t.Helper()

	flags := []string{
		"--etcd-servers=" + c.etcdURL,
		"--bind-address=" + loopback,
		"--secure-port=" + portOf(strings.TrimPrefix(c.admin.Host, "https://")),
		"--tls-cert-file=" + c.path("pki/server.crt"),
		"--tls-private-key-file=" + c.path("pki/server.key"),
		"--client-ca-file=" + c.path("pki/ca.crt"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=" + issuer,
		"--api-audiences=" + issuer,
		"--service-account-key-file=" + c.path("pki/tokens.pub"),
		"--service-account-signing-key-file=" + c.path("pki/tokens.key"),
		"--service-cluster-ip-range=" + serviceRange,
		// Otherwise it looks for a default route, and where there is only loopback
		// there is none.
		"--advertise-address=" + loopback,
		"--endpoint-reconciler-type=none",
		// The tests' clients are few and trusted.
		"--enable-priority-and-fairness=false",
		"--profiling=false",
	}
	c.apiServer = newProcess(t, c.folder, Component(t, "kube-apiserver"), append(flags, more...)...)
}

// StartEtcd starts etcd, again after StopEtcd or KillEtcd: same port, same data. It
// returns when etcd answers and, if the API server runs, that too.
func (c *Cluster) StartEtcd(t T) {
	t.Helper()
	c.etcd.mustStart(t, answers(c.etcdURL+"/health"))

	if c.apiServer.running() {
		Eventually(t, startLimit, "the API server has etcd again", c.ready)
	}
}

// StopEtcd ends etcd in good order.
func (c *Cluster) StopEtcd(t T) { t.Helper(); must(t, c.etcd.stop()) }

// KillEtcd ends etcd as a crash would.
func (c *Cluster) KillEtcd(t T) { t.Helper(); must(t, c.etcd.kill()) }

// StartAPIServer starts the API server, again after StopAPIServer or
// KillAPIServer, on the same port, and returns when it is ready.
func (c *Cluster) StartAPIServer(t T) {
	t.Helper()
	c.apiServer.mustStart(t, c.ready)
}

// StopAPIServer asks the API server to end, and kills it if it is still there after
// stopLimit.
func (c *Cluster) StopAPIServer(t T) { t.Helper(); must(t, c.apiServer.stop()) }

// KillAPIServer ends the API server as a crash would.
func (c *Cluster) KillAPIServer(t T) { t.Helper(); must(t, c.apiServer.kill()) }

// ready says whether the API server calls itself ready.
func (c *Cluster) ready(ctx context.Context) error {
	return c.clientset.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// Raw gets a path of the API server as this media type and reads the answer, which
// is JSON, into a value.
func (c *Cluster) Raw(ctx context.Context, path, mediaType string, into any) error {
	body, err := c.clientset.RESTClient().Get().AbsPath(path).SetHeader("Accept", mediaType).DoRaw(ctx)
	if err != nil {
		return err
	}

	return json.Unmarshal(body, into)
}

func (c *Cluster) path(name string) string { return filepath.Join(c.folder, filepath.FromSlash(name)) }

// writeKubeconfig writes the file that makes a program act as config says.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "stack"

	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		Token: config.BearerToken, ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name

	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	return nil
}

// must fails the test on an error that no test expects.
func must(t T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}
