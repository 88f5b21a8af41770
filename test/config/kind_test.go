package config

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const kindFolder = "quickstart/kind"

// variants are those of the kind quickstart. Each has a kustomization.
var variants = map[string]struct {
	// files are what the script applies besides.
	files []string
	// crds are groups of the component crds that the charts bring.
	crds []string
	// lacks are kinds in quickstart/policies that are for the other variant, or the local one.
	lacks []string
}{
	"kuadrant":      {[]string{"kuadrant.yaml"}, []string{"kuadrant", "mcp-gateway", "istio"}, []string{"EnvoyExtensionPolicy", "SecurityPolicy"}},
	"envoy-gateway": {nil, []string{"envoy-gateway"}, []string{"EnvoyExtensionPolicy", "AuthPolicy"}},
}

// unstructuredObjects decodes without knowing the kinds.
func unstructuredObjects(t *testing.T, stream []byte) []*unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, document := range documents(t, stream) {
		object := &unstructured.Unstructured{}
		// Strict: no key twice.
		require.NoError(t, yaml.UnmarshalStrict(document, &object.Object), "%s", document)
		found = append(found, object)
	}
	require.NotEmpty(t, found)
	return found
}

// ofVariant is all that a variant applies itself, charts apart.
func ofVariant(t *testing.T, variant string) []*unstructured.Unstructured {
	t.Helper()
	found := unstructuredObjects(t, renderFolder(t, filepath.Join(root, kindFolder, variant)))
	for _, file := range variants[variant].files {
		text, err := os.ReadFile(filepath.Join(root, kindFolder, file))
		require.NoError(t, err)
		found = append(found, unstructuredObjects(t, text)...)
	}
	return found
}

// ofKind returns the objects of a kind.
func ofKind(all []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(all), func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// printed runs a command in a folder of the checkout and returns what it prints.
func printed(t *testing.T, folder string, command ...string) string {
	t.Helper()
	run := exec.Command(command[0], command[1:]...)
	run.Dir = filepath.Join(root, folder)
	out, err := run.Output()
	require.NoError(t, err, "%q", command)
	return strings.TrimSpace(string(out))
}

// pinned is the version of a module that a component is built from.
func pinned(t *testing.T, component, module string) string {
	t.Helper()
	return printed(t, filepath.Join("hack/components", component), "go", "list", "-m", "-f", "{{.Version}}", module)
}

// kindVersions reads quickstart/kind/versions.env.
func kindVersions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, kindFolder, "versions.env"))
	require.NoError(t, err)
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		require.True(t, ok && regexp.MustCompile(`^[A-Z_]+$`).MatchString(name) && !strings.ContainsAny(value, " \"'$"), line)
		found[name] = value
	}
	return found
}

// TestKindVersions: where the other tests run the same thing, it is the same version.
func TestKindVersions(t *testing.T) {
	have := kindVersions(t)
	bare := func(version string) string { return strings.TrimPrefix(version, "v") }
	mcpGateway := pinned(t, "mcpgateway", "github.com/Kuadrant/mcp-gateway")
	for name, want := range map[string]string{
		"GATEWAY_API_VERSION":   pinned(t, "envoygateway", "sigs.k8s.io/gateway-api"),
		"ENVOY_GATEWAY_VERSION": pinned(t, "envoygateway", "github.com/envoyproxy/gateway"),
		"KUADRANT_VERSION":      bare(pinned(t, "kuadrant", "github.com/kuadrant/kuadrant-operator")),
		"MCP_GATEWAY_VERSION":   bare(mcpGateway),
		"ISTIO_VERSION":         bare(pinned(t, "mcpgateway", "istio.io/api")),
	} {
		assert.Equal(t, want, have[name], name)
		delete(have, name)
	}

	server := regexp.MustCompile(`(?m)^kube_version=(v1\.\d+)\.\d+$`).FindStringSubmatch(printed(t, "hack/components", "cat", "build"))
	require.NotNil(t, server)
	assert.Regexp(t, `^kindest/node:`+regexp.QuoteMeta(server[1])+`\.\d+@sha256:[0-9a-f]{64}$`, have["KIND_NODE_IMAGE"])
	assert.Regexp(t, `^v\d+\.\d+\.\d+$`, have["KIND_VERSION"])
	delete(have, "KIND_NODE_IMAGE")
	delete(have, "KIND_VERSION")
	assert.Empty(t, have, "a version that nothing here looks at")

	// The broker and router that no controller deploys have the version in a manifest.
	for _, deployment := range ofKind(ofVariant(t, "envoy-gateway"), "Deployment") {
		if deployment.GetName() == "mcp-gateway" {
			assert.Equal(t, "ghcr.io/kuadrant/mcp-gateway:"+mcpGateway, container(t, deployment)["image"])
		}
	}
}

// container is the only one of a Deployment.
func container(t *testing.T, deployment *unstructured.Unstructured) map[string]any {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	require.Len(t, containers, 1)
	found, ok := containers[0].(map[string]any)
	require.True(t, ok)
	return found
}

// TestKindManifests has a real API server take all that the variants apply, each after
// the CRDs that its charts bring, with strict validation.
func TestKindManifests(t *testing.T) {
	crds := filepath.Join(printed(t, ".", "hack/components/build", "crds"), "crds")
	for name, variant := range variants {
		t.Run(name, func(t *testing.T) {
			folders := []string{filepath.Join(crds, "gateway-api"), filepath.Join(root, "config/crd/bases")}
			for _, group := range variant.crds {
				folders = append(folders, filepath.Join(crds, group))
			}
			c := startServerWith(t, folders...)
			for _, name := range []string{"kuadrant-system", "envoy-gateway-system"} { // which charts make
				require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
			}
			for range 2 { // the second time as a second run does
				for _, object := range ofVariant(t, name) {
					c.applyObject(t, object)
				}
			}

			for _, policy := range storyPolicies(t) {
				if !slices.Contains(variant.lacks, policy.GetKind()) && policy.GetName() != "malformed" { // which has to be refused
					c.applyObject(t, policy)
				}
			}
		})
	}
}

// storyPolicies are what is in quickstart/policies, for all variants.
func storyPolicies(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "quickstart/policies/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var found []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found = append(found, unstructuredObjects(t, text)...)
	}
	return found
}

// TestKindFitsTheStory: the names on which quickstart/story and the policies rely.
func TestKindFitsTheStory(t *testing.T) {
	for variant := range variants {
		t.Run(variant, func(t *testing.T) {
			all := ofVariant(t, variant)
			gateways := ofKind(all, "Gateway")
			require.Len(t, gateways, 1)
			for _, policy := range storyPolicies(t) {
				targets, _, err := unstructured.NestedSlice(policy.Object, "spec", "targetRefs")
				require.NoError(t, err)
				if policy.GetKind() == "XAccessPolicy" {
					require.Len(t, targets, 1)
					assert.Equal(t, gateways[0].GetName(), targets[0].(map[string]any)["name"])
					assert.Equal(t, gateways[0].GetNamespace(), policy.GetNamespace())
				}
			}

			// From cluster.yaml's port to Envoy.
			cluster, err := os.ReadFile(filepath.Join(root, kindFolder, "cluster.yaml"))
			require.NoError(t, err)
			for _, service := range ofKind(all, "Service") {
				if service.GetName() == "gateway-port" {
					ports, _, err := unstructured.NestedSlice(service.Object, "spec", "ports")
					require.NoError(t, err)
					require.Len(t, ports, 1)
					assert.Contains(t, string(cluster), fmt.Sprintf("containerPort: %v\n", ports[0].(map[string]any)["nodePort"]))
					listeners, _, err := unstructured.NestedSlice(gateways[0].Object, "spec", "listeners")
					require.NoError(t, err)
					assert.Equal(t, listeners[0].(map[string]any)["port"], ports[0].(map[string]any)["targetPort"])
				}
			}
			assert.Contains(t, string(cluster), "listenAddress: 127.0.0.1\n", "others could reach it")
		})
	}
}

// TestKindStripsHeaders: both variants remove what docs/headers.md removes.
func TestKindStripsHeaders(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/headers.md"))
	require.NoError(t, err)
	var want []string
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, object := range ofKind(unstructuredObjects(t, []byte(block)), "ClientTrafficPolicy") {
			want, _, err = unstructured.NestedStringSlice(object.Object, "spec", "headers", "earlyRequestHeaders", "remove")
			require.NoError(t, err)
		}
	}
	require.NotEmpty(t, want)

	policies := ofKind(ofVariant(t, "envoy-gateway"), "ClientTrafficPolicy")
	require.Len(t, policies, 1)
	removed, _, err := unstructured.NestedStringSlice(policies[0].Object, "spec", "headers", "earlyRequestHeaders", "remove")
	require.NoError(t, err)
	assert.Equal(t, want, removed)

	filters := ofKind(ofVariant(t, "kuadrant"), "EnvoyFilter")
	require.Len(t, filters, 1)
	text, err := yaml.Marshal(filters[0].Object)
	require.NoError(t, err)
	removed = nil
	for _, match := range regexp.MustCompile(`(?m)- remove: (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		removed = append(removed, match[1])
	}
	assert.Equal(t, want, removed)
}

// TestKindImages: every image is one that the script builds, or pinned by a tag.
func TestKindImages(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, kindFolder, "quickstart"))
	require.NoError(t, err)
	for variant := range variants {
		for _, deployment := range ofKind(ofVariant(t, variant), "Deployment") {
			image, ok := container(t, deployment)["image"].(string)
			require.True(t, ok)
			if image == "mcpserver:dev" {
				assert.Contains(t, string(script), `sed "s|image: mcpserver:dev\$|`)
				assert.Equal(t, "Never", container(t, deployment)["imagePullPolicy"], "nobody publishes it")
				continue
			}
			assert.Regexp(t, `^[a-z0-9.]+/[a-z0-9./-]+:v\d+\.\d+\.\d+$`, image)
		}
	}
}

// TestKindServerImage builds the MCP server as its Containerfile says, from what is in
// the build's context.
func TestKindServerImage(t *testing.T) {
	const context = "hack/components/mcpgateway"
	script, err := os.ReadFile(filepath.Join(root, kindFolder, "quickstart"))
	require.NoError(t, err)
	require.Contains(t, string(script), `docker build --file "$here/Containerfile" --tag "$prefix/mcpserver:dev" `+context+"\n")

	stages, err := containerfile(kindFolder)
	require.NoError(t, err)
	imageIsConfined(t, stages, "mcpserver")
	folder := t.TempDir()
	require.NoError(t, copySources(stages[0], context, filepath.Join(folder, "src"), func(string) bool { return true }))
	binary, err := buildAsContainerfile(stages, "mcpserver", folder)
	require.NoError(t, err)
	out, err := exec.Command(binary, "-help").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "-listen")
}

// TestKindPage: the versions on the page are those that are installed.
func TestKindPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, kindFolder, "README.md"))
	require.NoError(t, err)
	_, installs, ok := strings.Cut(string(page), "\n## What it installs\n")
	require.True(t, ok)
	installs, _, _ = strings.Cut(installs, "\n## ")
	for name, version := range kindVersions(t) {
		if name == "KIND_VERSION" {
			assert.Contains(t, string(page), " "+version+" or newer")
			continue
		}
		// Of an image the tag.
		version = version[strings.LastIndexByte(strings.Split(version, "@")[0], ':')+1:]
		version, _, _ = strings.Cut(version, "@")
		assert.Regexp(t, `(?m)^\|.* `+regexp.QuoteMeta(version)+`\b.*\|$`, installs, name)
	}
}
