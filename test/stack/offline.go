package stack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Offline is what Envoy Gateway makes of objects, without a cluster and without an
// Envoy that runs.
type Offline struct {
	// Policies are the SecurityPolicies with the status that Envoy Gateway gives them.
	Policies []*unstructured.Unstructured `json:"securityPolicies"`
	// Envoys are the configurations by Gateway, namespace/name.
	Envoys map[string]EnvoyConfig `json:"xds"`
}

// EnvoyConfig is the configuration of an Envoy.
type EnvoyConfig struct {
	Configs []struct {
		Bootstrap           map[string]any `json:"bootstrap"`
		DynamicRouteConfigs []struct {
			RouteConfig map[string]any `json:"routeConfig"`
		} `json:"dynamicRouteConfigs"`
		DynamicListeners []struct {
			ActiveState struct {
				Listener map[string]any `json:"listener"`
			} `json:"activeState"`
		} `json:"dynamicListeners"`
	} `json:"configs"`
}

// TranslateOffline asks egctl. The objects are a GatewayClass, its Gateways, routes and
// policies; the Services of routes need not exist.
func TranslateOffline(t T, objects ...*unstructured.Unstructured) *Offline {
	t.Helper()

	var input bytes.Buffer

	for _, object := range objects {
		raw, err := json.Marshal(object)
		must(t, err)
		fmt.Fprintf(&input, "---\n%s\n", raw)
	}

	file := filepath.Join(t.TempDir(), "objects.yaml")
	must(t, os.WriteFile(file, input.Bytes(), 0o600))

	command := exec.Command(Component(t, "egctl"), "x", "translate", "--from", "gateway-api", "--to", "gateway-api,xds", "--type", "all",
		"--output", "json", "--add-missing-resources", "--file", file)

	var complaint bytes.Buffer

	command.Stderr = &complaint

	printed, err := command.Output()
	if err != nil {
		t.Fatalf("egctl: %v: %s", err, complaint.String())
	}

	out := &Offline{}
	if err := json.Unmarshal(printed, out); err != nil || len(out.Envoys) == 0 {
		t.Fatalf("egctl printed nothing that is known (%v): %s", err, printed)
	}

	return out
}

// Refusal asks Envoy whether it takes a configuration: "", or what it says against it.
func (c EnvoyConfig) Refusal(t T) string {
	t.Helper()

	bootstrap, err := c.static()
	must(t, err)

	file := filepath.Join(t.TempDir(), "bootstrap.json")
	must(t, os.WriteFile(file, bootstrap, 0o600))

	output, err := exec.Command(Component(t, "envoy"), "--mode", "validate", "--log-level", "error",
		"--service-node", "local", "--service-cluster", "local", "--config-path", file).CombinedOutput()

	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		must(t, err)

		return ""
	}

	// Before it stands where in its source Envoy says so.
	if _, why, ok := strings.Cut(string(output), "error initializing configuration"); ok {
		return strings.TrimSpace(why)
	}

	return strings.TrimSpace(string(output))
}

var sdsPath = regexp.MustCompile(`"path":"/sds/[^"]*"`)

// static is a bootstrap that has in itself what Envoy would be told by Envoy Gateway:
// listeners with their routes. Clusters are left out: no policy here changes them.
func (c EnvoyConfig) static() ([]byte, error) {
	var bootstrap map[string]any

	routes, listeners := map[string]any{}, []any{}

	for _, config := range c.Configs {
		if config.Bootstrap != nil {
			bootstrap = config.Bootstrap
		}

		for _, route := range config.DynamicRouteConfigs {
			// There are no clusters to look for.
			route.RouteConfig["validateClusters"] = false
			routes[fmt.Sprint(route.RouteConfig["name"])] = untyped(route.RouteConfig)
		}
	}

	for _, config := range c.Configs {
		for _, listener := range config.DynamicListeners {
			listeners = append(listeners, inline(untyped(listener.ActiveState.Listener), routes))
		}
	}

	static, _ := bootstrap["staticResources"].(map[string]any)
	if static == nil || len(listeners) == 0 || len(routes) == 0 {
		return nil, errors.New("egctl printed no bootstrap, no listeners or no routes")
	}

	static["listeners"] = listeners

	raw, err := json.Marshal(bootstrap)

	// Envoy would look for the certificates of the connection to Envoy Gateway, which
	// this one does not make.
	return sdsPath.ReplaceAll(raw, []byte(`"path":"/dev/null"`)), err
}

// untyped takes away the type of a resource, which stands in a dump and not in a
// bootstrap.
func untyped(resource map[string]any) map[string]any {
	delete(resource, "@type")

	return resource
}

// inline puts route configurations in the place of their names.
func inline(value any, routes map[string]any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = inline(value[i], routes)
		}
	case map[string]any:
		if rds, ok := value["rds"].(map[string]any); ok {
			delete(value, "rds")
			value["routeConfig"] = routes[fmt.Sprint(rds["routeConfigName"])]
		}

		for name := range value {
			value[name] = inline(value[name], routes)
		}
	}

	return value
}
