package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	envoyStarts = 30 * time.Second

	// xdsPort of Envoy Gateway is fixed.
	xdsPort = 18000

	// owningClass and owningGateway are the labels of the Deployments that Envoy
	// Gateway wants for the Gateways of a class that share an Envoy, and for a Gateway
	// of its own.
	owningClass   = "gateway.envoyproxy.io/owning-gatewayclass"
	owningGateway = "gateway.envoyproxy.io/owning-gateway-name"
)

// Envoy is a real Envoy that serves what Envoy Gateway tells it.
type Envoy struct {
	// Certificates is the folder of its files tls.crt, tls.key and ca.crt, for
	// connections to Envoy Gateway.
	Certificates string

	process *process
	admin   string
}

// StartEnvoyOfClass starts the Envoy of the Gateways of a class whose EnvoyProxy has
// mergeGateways.
func (c *Cluster) StartEnvoyOfClass(t T, class string) *Envoy {
	t.Helper()

	return c.startEnvoy(t, owningClass+"="+class)
}

// StartEnvoyOf starts the Envoy of a Gateway.
func (c *Cluster) StartEnvoyOf(t T, gateway string) *Envoy {
	t.Helper()

	return c.startEnvoy(t, owningGateway+"="+gateway)
}

// startEnvoy runs Envoy with the arguments that stand in the Deployment which Envoy
// Gateway made for it. Only addresses and the place of the certificates are changed.
func (c *Cluster) startEnvoy(t T, selector string) *Envoy {
	t.Helper()

	var args []string

	Eventually(t, envoyStarts, "Envoy Gateway's Deployment", func(ctx context.Context) error {
		list, err := c.clientset.AppsV1().Deployments(envoyNamespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}

		if len(list.Items) != 1 {
			return fmt.Errorf("%d Deployments with %s", len(list.Items), selector)
		}

		args = list.Items[0].Spec.Template.Spec.Containers[0].Args

		return nil
	})

	secret, err := c.clientset.CoreV1().Secrets(envoyNamespace).Get(context.Background(), "envoy", metav1.GetOptions{})
	must(t, err)

	folder := c.path("envoy-" + strings.ReplaceAll(selector[strings.LastIndex(selector, "=")+1:], "/", "-"))
	must(t, writeFiles(folder, secret.Data))
	must(t, writeFiles(folder, sdsFiles(folder)))

	at := slices.Index(args, "--config-yaml")
	if at < 0 || at+1 >= len(args) {
		t.Fatalf("Envoy Gateway's Deployment has no --config-yaml: %q", args)
	}

	admin := FreeAddress(t)
	bootstrap, err := localBootstrap(args[at+1], folder, admin)
	must(t, err)

	envoy := newProcess(t, c.folder, Component(t, "envoy"), "--config-yaml", bootstrap, "--service-cluster", argument(args, "--service-cluster"),
		"--service-node", "local", "--log-level", "warn", "--concurrency", "1", "--drain-strategy", "immediate", "--disable-hot-restart",
		// Tests read access logs, which Envoy otherwise writes every ten seconds.
		"--file-flush-interval-msec", "200")
	envoy.mustStart(t, answers("http://"+admin+"/ready"))

	return &Envoy{Certificates: folder, process: envoy, admin: admin}
}

func argument(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}

	return ""
}

// sdsFiles are what Envoy Gateway mounts in a ConfigMap.
func sdsFiles(folder string) map[string][]byte {
	const secret = `{"resources":[{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",%s}]}`

	certificate := fmt.Sprintf(`"name":"xds_certificate","tls_certificate":{"certificate_chain":{"filename":"%[1]s/tls.crt"},"private_key":{"filename":"%[1]s/tls.key"}}`, folder)
	trusted := fmt.Sprintf(`"name":"xds_trusted_ca","validation_context":{"trusted_ca":{"filename":"%s/ca.crt"},"match_typed_subject_alt_names":[{"san_type":"DNS","matcher":{"exact":"envoy-gateway"}}]}`, folder)

	return map[string][]byte{
		"xds-certificate.json": fmt.Appendf(nil, secret, certificate),
		"xds-trusted-ca.json":  fmt.Appendf(nil, secret, trusted),
	}
}

// localBootstrap changes what is different without containers: where Envoy Gateway
// is, where the certificates are, and the ports for people and for metrics.
func localBootstrap(text, folder, admin string) (string, error) {
	var bootstrap map[string]any
	if err := yaml.Unmarshal([]byte(text), &bootstrap); err != nil {
		return "", fmt.Errorf("Envoy Gateway's bootstrap: %w", err)
	}

	host, port, _ := strings.Cut(admin, ":")
	bootstrap["admin"] = map[string]any{"address": map[string]any{"socket_address": map[string]any{"address": host, "port_value": json.Number(port)}}}

	static, _ := bootstrap["static_resources"].(map[string]any)
	delete(static, "listeners")

	raw, err := json.Marshal(bootstrap)
	if err != nil {
		return "", err
	}

	local := regexp.MustCompile(`"address":"envoy-gateway\.[^"]*"`).ReplaceAllString(string(raw), `"address":"`+loopback+`"`)
	local = regexp.MustCompile(`"path":"/sds/([^"]*)"`).ReplaceAllString(local, `"path":"`+folder+`/$1"`)

	if !strings.Contains(local, fmt.Sprintf(`"port_value":%d`, xdsPort)) || strings.Contains(local, "/sds/") {
		return "", errors.New("Envoy Gateway's bootstrap is not as it is known: " + local)
	}

	return local, nil
}

// Admin returns the answer of a path of Envoy's admin interface.
func (e *Envoy) Admin(ctx context.Context, path string) (string, error) {
	return get(ctx, "http://"+e.admin+path)
}

// rejection is how Envoy logs a configuration that it refuses.
var rejection = regexp.MustCompile(`(?m)^.*(?:rejected|Error adding/updating|Proto constraint validation failed|failed to).*$`)

// Rejected returns how often Envoy has refused a configuration, and what it said about
// that. Envoy Gateway's status of the policy does not tell.
func (e *Envoy) Rejected(ctx context.Context) (int, string, error) {
	sum, err := e.sum(ctx, "update_rejected$")
	if err != nil {
		return 0, "", err
	}

	if sum == 0 {
		return 0, "", nil
	}

	return sum, strings.Join(rejection.FindAllString(e.process.tail(), -1), "\n"), nil
}

// RejectedMutations returns how many changes of requests Envoy has refused to the MCP
// router, or another service that it asks by ext_proc.
func (e *Envoy) RejectedMutations(ctx context.Context) (int, error) {
	return e.sum(ctx, "ext_proc.*rejected_header_mutations$")
}

// sum adds the counters whose names match, of which there has to be one.
func (e *Envoy) sum(ctx context.Context, filter string) (int, error) {
	stats, err := e.Admin(ctx, "/stats?filter="+url.QueryEscape(filter))
	if err != nil {
		return 0, err
	}

	if stats == "" {
		return 0, fmt.Errorf("Envoy has no statistic %s", filter)
	}

	sum := 0

	for line := range strings.Lines(stats) {
		_, count, _ := strings.Cut(strings.TrimSpace(line), ": ")

		n, err := strconv.Atoi(count)
		if err != nil {
			return 0, fmt.Errorf("Envoy's statistic %q: %w", line, err)
		}

		sum += n
	}

	return sum, nil
}

// Kill ends Envoy as a crash would.
func (e *Envoy) Kill(t T) { t.Helper(); must(t, e.process.kill()) }

// Log is the end of what Envoy wrote.
func (e *Envoy) Log() string { return e.process.tail() }
