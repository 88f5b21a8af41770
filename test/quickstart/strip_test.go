package quickstart

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/test/stack"
)

// firstFilter refuses requests with a header that is to be removed, so it is refused
// itself what comes before all HTTP filters.
const firstFilter = `{
	"name": "envoy.filters.http.rbac",
	"typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
		"rules": {"action": "DENY", "policies": {"forged": {
			"principals": [{"any": true}],
			"permissions": [{"header": {"name": "x-mcp-toolname", "present_match": true}}]}}}}}`

// TestKindStripping has a real Envoy take what quickstart/kind/kuadrant/mcp-headers.yaml
// merges into its configuration. Istio, which would do that, does not run here.
func TestKindStripping(t *testing.T) {
	c := stack.Start(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var arrived []string
		for name := range r.Header {
			if name = strings.ToLower(name); strings.HasPrefix(name, "x-mcp-") {
				arrived = append(arrived, name)
			}
		}
		slices.Sort(arrived)
		fmt.Fprint(w, strings.Join(arrived, " "))
	}))
	t.Cleanup(upstream.Close)

	stripped := []string{"x-mcp-annotation-hints", "x-mcp-method", "x-mcp-promptname", "x-mcp-resourceuri", "x-mcp-servername", "x-mcp-toolname", "x-mcp-verified-sub"}
	for _, test := range []struct {
		name    string
		merged  map[string]any
		send    []string
		status  int
		arrives string
	}{
		{"without", nil, stripped, http.StatusForbidden, "RBAC: access denied"},
		{"with", patch(t), append(stripped, "x-mcp-virtualserver", "x-mcp-authorized"), http.StatusOK, "x-mcp-authorized x-mcp-virtualserver"},
	} {
		t.Run(test.name, func(t *testing.T) {
			address := startEnvoyWith(t, c, upstream.Listener.Addr().String(), test.merged)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/mcp", http.NoBody)
			require.NoError(t, err)
			for _, name := range test.send {
				request.Header.Add(name, "forged")
				request.Header.Add(name, "twice")
			}
			response, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			defer response.Body.Close()
			body := make([]byte, 256)
			n, _ := response.Body.Read(body)
			assert.Equal(t, test.status, response.StatusCode)
			assert.Equal(t, test.arrives, string(body[:n]))
		})
	}
}

// patch is what the EnvoyFilter merges into the HTTP connection manager.
func patch(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "quickstart", "kind", "kuadrant", "mcp-headers.yaml"))
	require.NoError(t, err)
	filter := map[string]any{}
	require.NoError(t, yaml.Unmarshal(text, &filter))
	patches, _, err := unstructured.NestedSlice(filter, "spec", "configPatches")
	require.NoError(t, err)
	require.Len(t, patches, 1)
	merged, _, err := unstructured.NestedMap(patches[0].(map[string]any), "patch", "value", "typed_config")
	require.NoError(t, err)
	require.NotEmpty(t, merged)
	return merged
}

// startEnvoyWith starts an Envoy that passes everything on to upstream, and returns where
// it listens.
func startEnvoyWith(t *testing.T, c *stack.Cluster, upstream string, merged map[string]any) string {
	t.Helper()
	manager := map[string]any{
		"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "test",
		"http_filters": []any{json.RawMessage(firstFilter), map[string]any{"name": "envoy.filters.http.router",
			"typed_config": map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}},
		"route_config": map[string]any{"virtual_hosts": []any{map[string]any{"name": "all", "domains": []any{"*"},
			"routes": []any{map[string]any{"match": map[string]any{"prefix": "/"}, "route": map[string]any{"cluster": "upstream"}}}}}},
	}
	for key, value := range merged {
		if key == "@type" {
			assert.Equal(t, manager[key], value)
			continue
		}
		require.NotContains(t, manager, key)
		manager[key] = value
	}
	listen, admin := stack.FreeAddress(t), stack.FreeAddress(t)
	config, err := json.Marshal(map[string]any{
		"admin": map[string]any{"address": socket(t, admin)},
		"static_resources": map[string]any{
			"listeners": []any{map[string]any{"name": "test", "address": socket(t, listen), "filter_chains": []any{map[string]any{
				"filters": []any{map[string]any{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}}}}}},
			"clusters": []any{map[string]any{"name": "upstream", "load_assignment": map[string]any{"cluster_name": "upstream", "endpoints": []any{
				map[string]any{"lb_endpoints": []any{map[string]any{"endpoint": map[string]any{"address": socket(t, upstream)}}}}}}}},
		},
	})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "envoy.json")
	require.NoError(t, os.WriteFile(file, config, 0o600))
	c.Program(t, stack.Component(t, "envoy"), "http://"+admin+"/ready", []string{"--config-path", file, "--disable-hot-restart", "--concurrency", "1"}).Start(t)
	return listen
}

// socket is an address as Envoy's configuration has it.
func socket(t *testing.T, address string) map[string]any {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return map[string]any{"socket_address": map[string]any{"address": host, "port_value": json.Number(port)}}
}
