package story

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
)

// Names in quickstart/local and quickstart/policies.
const (
	namespace = "demo"
	gateway   = "prod"

	publicHost = "mcp.example.test"
	serverHost = "calc.mcp.local"
	serverName = "demo/calc"
	toolPrefix = "calc_"

	audience = "mcp-gateway"

	// upstreamAddress is one that hack/loopback adds: Envoy Gateway takes none in
	// 127.0.0.0/8.
	upstreamAddress = "192.0.2.1"

	// settles is how long anything may take: a busy machine is not a failure.
	settles = 90 * time.Second
)

// World is the cluster, the gateway and the agents of the story.
type World struct {
	*stack.Cluster
	t stack.T
	// checkout is the folder of this project, folder one for files of the story.
	checkout, folder string
	enforcer         string

	steps []step

	operator operator
	// These three are nil where the gateway is no local process.
	envoy     *stack.Envoy
	authority *stack.Authority
	plugin    *plugin // with Kuadrant
	// reach are the arguments of mcpagent that say where the gateway is.
	reach   []string
	callers map[string]*caller
}

// operator is this project's, wherever it runs.
type operator interface {
	Start(t stack.T)
	// Kill ends it without giving it time.
	Kill(t stack.T)
}

// Start starts everything but policies, for the enforcer kuadrant or envoy-gateway, and
// tells note what it has started. Its end is that of t.
func Start(t stack.T, checkout, enforcer string, note func(string)) *World {
	t.Helper()

	w := newWorld(t, checkout, enforcer)
	w.steps, w.authority = steps, stack.NewAuthority(t)
	w.Cluster = stack.Start(t)
	note("etcd, kube-apiserver, controllers")
	w.StartEnvoyGateway(t)
	note("Envoy Gateway")
	w.Apply(t, stack.Namespace(namespace))

	values := map[string]string{"ADDRESS": upstreamAddress}

	switch enforcer {
	case translator.EnforcerKuadrant:
		values["AUTHORINO"] = w.StartAuthorino(t).Port
		note("Authorino")
		w.StartKuadrant(t)
		note("kuadrant-operator")
	case translator.EnforcerEnvoyGateway:
	default:
		t.Fatalf("ENFORCER is %q; it can be %s or %s", enforcer, translator.EnforcerKuadrant, translator.EnforcerEnvoyGateway)
	}

	w.InstallOperator(t)
	w.startPolicyOperator()
	note("accesspolicy-operator, from this checkout")

	server := onUpstreamAddress(stack.FreeAddress(t))
	w.StartMCPServer(t, server)
	note("MCP server")

	https, authority := stack.FreeAddress(t), w.certificates()
	w.reach = []string{"-url", "https://" + publicHost + "/mcp", "-dial", https, "-ca", authority}
	router := w.StartMCPGateway(t, upstreamAddress, publicHost, "https://"+https, authority,
		stack.MCPServer{Name: serverName, URL: "http://" + server + "/mcp", Hostname: serverHost, Prefix: toolPrefix, State: "Enabled"})
	note("broker and router of mcp-gateway")

	values["HTTPS"], values["SERVER"], values["BROKER"], values["ROUTER"] = port(https), port(server), port(router.Broker), port(router.Router)
	w.applyLocal(enforcer+".yaml", values)
	w.applyLocal("gateway.yaml", values)
	w.envoy = w.StartEnvoyOf(t, gateway)

	if enforcer == translator.EnforcerKuadrant {
		w.applyLocal("plugin.yaml", map[string]string{"CERTIFICATES": w.envoy.Certificates})
		w.plugin = w.startPlugin()
	}

	w.serving()
	note("Envoy, with the Gateway programmed")

	return w
}

func newWorld(t stack.T, checkout, enforcer string) *World {
	t.Helper()

	return &World{t: t, checkout: checkout, folder: t.TempDir(), enforcer: enforcer, callers: map[string]*caller{}}
}

// startPolicyOperator starts the operator with more flags, in place of one that runs.
func (w *World) startPolicyOperator(flags ...string) {
	w.t.Helper()

	if running, ok := w.operator.(*stack.Operator); ok {
		running.Stop(w.t)
	}

	w.operator = w.StartOperator(w.t, append([]string{"--token-audience=" + audience}, flags...)...)
}

// certificates makes the Gateway's own, has it know the authority of its clients', and
// returns a file with that authority. The router checks the certificate for the name of
// the server that it wants a session with.
func (w *World) certificates() string {
	w.t.Helper()

	chain, key := w.authority.Server(w.t, publicHost, serverHost)
	secret := stack.Object("v1", "Secret", namespace, "gateway-certificate", nil)
	secret.Object["type"] = "kubernetes.io/tls"
	secret.Object["stringData"] = map[string]any{"tls.crt": string(chain), "tls.key": string(key)}
	agents := stack.Object("v1", "ConfigMap", namespace, "agents-ca", nil)
	agents.Object["data"] = map[string]any{"ca.crt": string(w.authority.PEM())}
	w.Apply(w.t, secret, agents)

	return w.write("ca.crt", w.authority.PEM())
}

// serving waits until the Gateway is programmed and Envoy answers an agent.
func (w *World) serving() {
	w.t.Helper()
	w.WaitFor(w.t, settles, stack.Gateway(namespace, gateway), "Programmed")

	nobody := w.caller(nobody)
	stack.Eventually(w.t, settles, "an agent reaches the broker", func(context.Context) error {
		answers, err := w.call(nobody, "tools/list", callOf("add").text())
		if err != nil {
			return err
		}

		return errors.Join(answers[0].failure(), answers[1].failure())
	})
	w.envoyTakesAll()
}

// envoyTakesAll fails where Envoy has refused something that Envoy Gateway sent it, or
// that the router wanted to change in a request.
func (w *World) envoyTakesAll() {
	w.t.Helper()

	if w.envoy == nil {
		return
	}

	rejected, why, err := w.envoy.Rejected(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}

	if rejected > 0 {
		w.t.Fatalf("Envoy refuses configuration: %s", why)
	}

	mutations, err := w.envoy.RejectedMutations(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}

	if mutations > 0 {
		w.t.Fatalf("Envoy refuses %d changes of requests by the router", mutations)
	}
}

// applyLocal applies manifests of quickstart/local.
func (w *World) applyLocal(name string, values map[string]string) {
	w.t.Helper()

	text, err := os.ReadFile(filepath.Join(w.checkout, "quickstart", "local", name))
	if err != nil {
		w.t.Fatal(err)
	}

	filled := os.Expand(string(text), func(word string) string {
		value, known := values[word]
		if !known {
			w.t.Fatalf("%s: nothing is known as ${%s}", name, word)
		}

		return value
	})

	for _, document := range strings.Split(filled, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}

		w.Apply(w.t, object)
	}
}

// manifest is the path of a file of quickstart/policies.
func (w *World) manifest(name string) string {
	return filepath.Join(w.checkout, "quickstart", "policies", name)
}

// write writes a file of the story and returns its path.
func (w *World) write(name string, content []byte) string {
	w.t.Helper()

	path := filepath.Join(w.folder, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		w.t.Fatal(err)
	}

	return path
}

func onUpstreamAddress(address string) string {
	return net.JoinHostPort(upstreamAddress, port(address))
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// unmet is an error that says what does not hold, nil if it does.
func unmet(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}

	return fmt.Errorf(format, args...)
}
