package coverage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
)

// program returns the path of the program of the asker, from the variable that names it or the folder that holds it. A test
// that has nobody to ask fails.
func (a asker) program(t *testing.T) string {
	t.Helper()
	path := os.Getenv(a.variable)
	if path == "" {
		t.Fatalf("%s is not set, and names the %s to ask; see doc.go", a.variable, a.name)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, a.name)
	}
	require.FileExists(t, path, "%s has to name or to hold %s", a.variable, a.name)
	return path
}

// asker is somebody who translates objects.
type asker struct {
	name string
	// variable is the environment variable by which the program is found.
	variable string
	// sees gives the objects as the program takes them.
	sees func([]*unstructured.Unstructured) []*unstructured.Unstructured
	// ask has lists of objects translated, each for itself.
	ask func(t *testing.T, program string, lists [][]*unstructured.Unstructured) []translated
	// plugins is set where WebAssembly plugins are taken, by which Kuadrant works.
	plugins bool
	// ages is set where it is known which object is older.
	ages bool
}

var (
	egtranslate = asker{name: "egtranslate", variable: "EGTRANSLATE", sees: known, ask: askTranslators, plugins: true, ages: true}
	egctl       = asker{name: "egctl", variable: "ACCESSPOLICY_COMPONENTS", sees: simplified, ask: askEgctl}
)

// known leaves out the kinds that are not Envoy Gateway's business.
func known(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, u := range objects {
		if group := u.GroupVersionKind().Group; group == "" || group == "gateway.networking.k8s.io" || group == egv1a1.GroupVersion.Group {
			out = append(out, u)
		}
	}
	return out
}

// simplified are the objects as egctl reads them: all of one age, without labels, ListenerSets and the settings that it has
// fixed.
// Envoy Gateway: internal/gatewayapi/resource/load.go, internal/cmd/egctl/translate.go.
func simplified(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, u := range known(objects) {
		if kind := u.GetKind(); kind == "ListenerSet" || kind == "EnvoyGateway" {
			continue
		}
		u = u.DeepCopy()
		u.SetLabels(nil)
		unstructured.RemoveNestedField(u.Object, "spec", "mergeGateways")
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		out = append(out, u)
	}
	return out
}

// translated is what becomes of objects.
type translated struct {
	XDS map[string]struct {
		Configs []struct {
			DynamicListeners []struct {
				ActiveState struct {
					Listener xdsListener `json:"listener"`
				} `json:"activeState"`
			} `json:"dynamicListeners"`
			DynamicRouteConfigs []struct {
				RouteConfig xdsRoutes `json:"routeConfig"`
			} `json:"dynamicRouteConfigs"`
		} `json:"configs"`
	} `json:"xds"`
	// Failed has the Gateways (or classes) that are not translated, and why. egctl gives up at the first, with the key "".
	Failed map[string]string `json:"failed"`
	// Error is set where the objects are not taken.
	Error string `json:"error"`
}

type xdsListener struct {
	Name               string        `json:"name"`
	FilterChains       []filterChain `json:"filterChains"`
	DefaultFilterChain *filterChain  `json:"defaultFilterChain"`
}

type filterChain struct {
	Name    string      `json:"name"`
	Filters []xdsFilter `json:"filters"`
}

type xdsFilter struct {
	Name        string `json:"name"`
	TypedConfig struct {
		HTTPFilters []httpFilter `json:"httpFilters"`
		RDS         struct {
			RouteConfigName string `json:"routeConfigName"`
		} `json:"rds"`
		Matcher *matcher `json:"matcher"`
	} `json:"typedConfig"`
}

type httpFilter struct {
	Name        string          `json:"name"`
	TypedConfig json.RawMessage `json:"typedConfig"`
}

type xdsRoutes struct {
	Name         string `json:"name"`
	VirtualHosts []struct {
		Name   string     `json:"name"`
		Routes []xdsRoute `json:"routes"`
	} `json:"virtualHosts"`
}

type xdsRoute struct {
	Name           string                     `json:"name"`
	DirectResponse *struct{ Status int }      `json:"directResponse"`
	PerFilter      map[string]json.RawMessage `json:"typedPerFilterConfig"`
}

// matcher is the authorization of a route or connection.
type matcher struct {
	MatcherList struct {
		Matchers []struct{ OnMatch onMatch }
	}
	OnNoMatch onMatch
}

type onMatch struct {
	Action struct {
		Name        string
		TypedConfig struct{ Name string }
	}
}

// askTranslators runs egtranslate, which takes many lists at once.
func askTranslators(t *testing.T, program string, lists [][]*unstructured.Unstructured) []translated {
	t.Helper()
	out := make([]translated, 0, len(lists))
	for some := range slices.Chunk(lists, 100) {
		var in bytes.Buffer
		for _, list := range some {
			require.NoError(t, json.NewEncoder(&in).Encode(list))
		}
		text, err := output(t, &in, program)
		require.NoError(t, err, "%s", text)
		decoder := json.NewDecoder(bytes.NewReader(text))
		for range some {
			var answer translated
			require.NoError(t, decoder.Decode(&answer))
			out = append(out, answer)
		}
	}
	return out
}

// askEgctl runs egctl for each list. Where it fails to translate one, it says so for the first Gateway it comes to.
func askEgctl(t *testing.T, program string, lists [][]*unstructured.Unstructured) []translated {
	t.Helper()
	out := make([]translated, len(lists))
	for i, list := range lists {
		var manifest bytes.Buffer
		for _, u := range list {
			raw, err := u.MarshalJSON()
			require.NoError(t, err)
			manifest.Write(append(raw, "\n---\n"...))
		}
		file := filepath.Join(t.TempDir(), "in.yaml")
		require.NoError(t, os.WriteFile(file, manifest.Bytes(), 0o600))
		text, _ := output(t, nil, program, "x", "translate", "--from", "gateway-api", "--to", "gateway-api,xds", "-t", "all", "-o", "json", "--add-missing-resources", "-f", file)
		if cause, fails := bytes.CutPrefix(text, []byte("Error: failed to translate xds ir")); fails {
			line, _, _ := strings.Cut(string(cause), "\n")
			_, why, _ := strings.Cut(line, "error:")
			out[i].Failed = map[string]string{"": why}
			continue
		}
		if json.Unmarshal(text, &out[i]) != nil {
			out[i].Error = string(text)
		}
	}
	return out
}

// output runs a program. Where it fails, what it complains of is the output.
func output(t *testing.T, in io.Reader, program string, arguments ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = in, &stdout, &stderr
	if err := command.Run(); err != nil {
		return stderr.Bytes(), err
	}
	return stdout.Bytes(), nil
}
