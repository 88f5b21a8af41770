package config

import (
	"cmp"
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
)

// stage is a PATH for the script of the kind quickstart. What it would call for real
// effects writes down how it is called, and succeeds.
type stage struct {
	// script is the one to run, "" for that of the kind quickstart.
	script string
	// behaviour is of the stand-ins: clauses of a shell's case, by the call. The first that fits counts.
	behaviour string
	// absent are stand-ins that are not there.
	absent []string
}

// ordinary is what they print where all goes well.
const ordinary = `
"kind version") echo "kind v0.33.0 go1.26.4 linux/amd64" ;;
"kubectl version --client") echo "Client Version: v1.37.1"; echo "Kustomize Version: v5.8.1" ;;
"helm version --short") echo "v4.3.1+gabcdef0" ;;
"go env GOVERSION") echo go1.99.0 ;;
"docker image inspect"*/operator:dev) echo sha256:0123456789abcdef0123 ;;
"docker image inspect"*/mcpserver:dev) echo sha256:fedcba9876543210fedc ;;
"docker port"*) echo 127.0.0.1:40123; echo "[::1]:40123" ;;
`

// standIn is the program. As go it builds more of itself, so that what the script builds
// and then runs is a stand-in too.
const standIn = `#!/bin/sh
call="${0##*/} $*"
echo "$call" >>"$HOME/calls"
if [ "${0##*/}" = go ]; then
	previous=
	for word in "$@"; do
		if [ "$previous" = -o ]; then cp "$0" "$word"; chmod 755 "$word"; fi
		previous=$word
	done
fi
case "$call" in
%s
esac
`

// basics are the other programs that the script and what it calls of this checkout need.
var basics = []string{"sh", "bash", "env", "awk", "basename", "cat", "chmod", "cp", "cut", "dirname", "flock", "git", "grep", "head", "ln", "make",
	"mkdir", "mktemp", "mv", "rm", "sed", "sha256sum", "sort", "uname"}

// run runs the script in a home of its own, and returns what it says and the calls but
// those of go.
func (s stage) run(t *testing.T, environment []string, arguments ...string) (said string, calls []string, err error) {
	t.Helper()
	home, bin := t.TempDir(), onlyIn(t, basics...)
	for _, name := range []string{"docker", "kind", "kubectl", "helm", "go"} {
		if !slices.Contains(s.absent, name) {
			require.NoError(t, os.WriteFile(filepath.Join(bin, name), fmt.Appendf(nil, standIn, s.behaviour+ordinary), 0o700))
		}
	}
	command := exec.Command(filepath.Join(root, cmp.Or(s.script, kindFolder+"/quickstart")), arguments...)
	command.Env = append([]string{"PATH=" + bin, "HOME=" + home, "ACCESSPOLICY_CACHE=" + home + "/cache"}, environment...)
	out, err := command.CombinedOutput()
	text, readErr := os.ReadFile(filepath.Join(home, "calls"))
	if readErr != nil {
		require.ErrorIs(t, readErr, os.ErrNotExist)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "go ") {
			calls = append(calls, strings.ReplaceAll(line, home, "~"))
		}
	}
	return string(out), calls, err
}

// inOrder fails unless calls that match are there, in this order.
func inOrder(t *testing.T, calls []string, patterns ...string) {
	t.Helper()
	next := 0
	for _, call := range calls {
		if next < len(patterns) && regexp.MustCompile(patterns[next]).MatchString(call) {
			next++
		}
	}
	if next < len(patterns) {
		assert.Fail(t, "no call", "%q after those before it, in\n%s", patterns[next], strings.Join(calls, "\n"))
	}
}

func TestKindScriptKuadrant(t *testing.T) {
	said, calls, err := stage{}.run(t, nil)
	require.NoError(t, err, said)
	versions := kindVersions(t)
	inOrder(t, calls,
		`^docker info$`,
		`^kind create cluster --name accesspolicy-quickstart-kuadrant --image `+regexp.QuoteMeta(versions["KIND_NODE_IMAGE"])+` --config quickstart/kind/cluster.yaml --kubeconfig ~/cache/kind/`,
		`^kubectl apply --server-side --filename https://github.com/kubernetes-sigs/gateway-api/releases/download/`+versions["GATEWAY_API_VERSION"]+`/standard-install.yaml$`,
		`^helm upgrade --install istio-base base .*--repo https://istio-release.storage.googleapis.com/charts --version `+versions["ISTIO_VERSION"]+`$`,
		`^helm upgrade --install istiod istiod .*--version `+versions["ISTIO_VERSION"]+`$`,
		`^helm upgrade --install kuadrant-operator kuadrant-operator .*--repo https://kuadrant.io/helm-charts/ --version `+versions["KUADRANT_VERSION"]+`$`,
		`^kubectl apply --server-side --filename quickstart/kind/kuadrant.yaml$`,
		`^kubectl wait .*kuadrant/kuadrant$`,
		`^helm upgrade --install mcp-gateway oci://ghcr.io/kuadrant/charts/mcp-gateway .*--version `+versions["MCP_GATEWAY_VERSION"],
		`^docker build --file Containerfile --tag accesspolicy-quickstart/operator:dev`,
		`^docker tag accesspolicy-quickstart/operator:dev accesspolicy-quickstart/operator:0123456789ab$`,
		`^kind load docker-image accesspolicy-quickstart/operator:0123456789ab --name accesspolicy-quickstart-kuadrant$`,
		`^kubectl scale .*deployment/accesspolicy-operator --replicas=1$`,
		`^kustomize build config/overlays/kuadrant$`,
		`^kubectl rollout status .*deployment/accesspolicy-operator$`,
		`^docker build --file quickstart/kind/Containerfile --tag accesspolicy-quickstart/mcpserver:dev hack/components/mcpgateway$`,
		`^kind load docker-image accesspolicy-quickstart/mcpserver:fedcba987654 `,
		`^kustomize build quickstart/kind/kuadrant$`,
		`^kubectl wait --for=condition=Programmed .*gateway/prod$`,
		`^kubectl wait --for=condition=Ready .*mcpgatewayextension/prod mcpserverregistration/calc$`,
		`^docker port accesspolicy-quickstart-kuadrant-control-plane 30080/tcp$`,
		`^quickstart -enforcer kuadrant -kubeconfig ~/cache/kind/accesspolicy-quickstart-kuadrant.kubeconfig -gateway 127.0.0.1:40123$`,
	)
	assert.Regexp(t, `(?m)^quickstart: Kuadrant \S+: \d+ s$`, said, "no line with the time of a step")
	assert.NotContains(t, strings.Join(calls, "\n"), "envoy-gateway")
}

func TestKindScriptEnvoyGateway(t *testing.T) {
	said, calls, err := stage{}.run(t, []string{"ENFORCER=envoy-gateway"})
	require.NoError(t, err, said)
	version := kindVersions(t)["ENVOY_GATEWAY_VERSION"]
	inOrder(t, calls,
		`^kind create cluster --name accesspolicy-quickstart-envoy-gateway `,
		`^helm template eg-crds oci://docker.io/envoyproxy/gateway-crds-helm --version `+version+` --set crds.gatewayAPI.enabled=false`,
		`^helm upgrade --install eg oci://docker.io/envoyproxy/gateway-helm .*--version `+version+` --set crds.enabled=false --set config.envoyGateway.extensionApis.enableEnvoyPatchPolicy=true$`,
		`^kustomize build config/default$`,
		`^kustomize build quickstart/kind/envoy-gateway$`,
		`^quickstart -enforcer envoy-gateway -kubeconfig .*envoy-gateway.kubeconfig `,
	)
	assert.NotContains(t, strings.Join(calls, "\n"), "istio")
}

// TestKindScriptRunsAgain: a cluster that is there stays.
func TestKindScriptRunsAgain(t *testing.T) {
	said, calls, err := stage{behaviour: `"kind get clusters") echo other; echo accesspolicy-quickstart-kuadrant ;;`}.run(t, nil)
	require.NoError(t, err, said)
	inOrder(t, calls, `^kind export kubeconfig --name accesspolicy-quickstart-kuadrant --kubeconfig ~/cache/`, `^quickstart -enforcer kuadrant -kubeconfig`)
	assert.NotContains(t, strings.Join(calls, "\n"), "create cluster")
}

// TestKindScriptStops at what fails, also in the middle of a step, and says which step.
func TestKindScriptStops(t *testing.T) {
	for call, step := range map[string]string{
		`"kubectl apply"*standard-install.yaml`: "Gateway API",
		`"helm upgrade --install istio-base"*`:  "Istio",
		`"docker build --file Containerfile"*`:  "accesspolicy-operator, from this checkout",
		`"kustomize build quickstart"*`:         "Gateway, MCP server, and mcp-gateway's broker and router",
	} {
		t.Run(step, func(t *testing.T) {
			said, calls, err := stage{behaviour: call + ") echo no luck >&2; exit 1 ;;"}.run(t, nil)
			require.Error(t, err)
			assert.Regexp(t, `(?m)^quickstart: `+step+`[^:]*: failed, see above`, said)
			assert.Contains(t, said, "no luck")
			assert.NotContains(t, strings.Join(calls, "\n"), "quickstart -enforcer")
			// Nothing comes after what failed, but for the other end of a pipe.
			assert.NotContains(t, calls[len(calls)-1], "kubectl wait")
		})
	}
}

// TestKindScriptTellsOfFaults: what the story finds is the script's exit code.
func TestKindScriptTellsOfFaults(t *testing.T) {
	said, _, err := stage{behaviour: `"quickstart "*) exit 3 ;;`}.run(t, nil)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, said)
	assert.Equal(t, 3, exit.ExitCode())
}

// TestKindScriptPrerequisites: all that is missing is said at once, before anything is
// done.
func TestKindScriptPrerequisites(t *testing.T) {
	for name, test := range map[string]struct {
		stage
		says []string
	}{
		"nothing is there": {stage{absent: []string{"docker", "kind", "kubectl", "helm", "go"}},
			[]string{"docker is not on the PATH", "kind is not on the PATH", "kubectl is not on the PATH", "helm is not on the PATH", "go is not on the PATH"}},
		"docker does not answer": {stage{behaviour: `"docker info") exit 1 ;;`}, []string{"docker does not answer"}},
		"old versions": {stage{behaviour: `"kind version") echo "kind v0.29.0 go1.24.2 linux/amd64" ;; "helm version"*) echo v3.7.2+g663a896 ;; "go env GOVERSION") echo go1.9 ;;`},
			[]string{"kind is v0.29.0, and has to be v0.33.0 or newer", "helm is v3.7.2, and has to be v3.8", "go is 1.9, and has to be 1."}},
		"no version": {stage{behaviour: `"kubectl version"*) exit 1 ;;`}, []string{"kubectl is of an unknown version"}},
	} {
		t.Run(name, func(t *testing.T) {
			said, calls, err := test.run(t, nil)
			require.Error(t, err)
			for _, text := range test.says {
				assert.Contains(t, said, text)
			}
			assert.NotContains(t, strings.Join(calls, "\n"), "create")
		})
	}
	said, _, err := stage{}.run(t, []string{"ENFORCER=opa"})
	require.Error(t, err)
	assert.Contains(t, said, "ENFORCER is opa; it can be kuadrant or envoy-gateway")
}

// TestQuickstartChooses kind where there are kind and a docker that answers, and local
// processes elsewhere, which here lack programs.
func TestQuickstartChooses(t *testing.T) {
	const script = "quickstart/quickstart"
	for name, test := range map[string]struct {
		stage
		environment []string
		kind        bool
	}{
		"kind":                     {stage{script: script}, nil, true},
		"local, docker is silent":  {stage{script: script, behaviour: `"docker info") exit 1 ;;`}, nil, false},
		"local, kind is not there": {stage{script: script, absent: []string{"kind"}}, nil, false},
		"local, as asked for":      {stage{script: script}, []string{"QUICKSTART_MODE=local"}, false},
		"kind, as asked for":       {stage{script: script}, []string{"QUICKSTART_MODE=kind"}, true},
		"kind, asked for in vain":  {stage{script: script, absent: []string{"kind"}}, []string{"QUICKSTART_MODE=kind"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			said, calls, _ := test.run(t, test.environment)
			assert.Equal(t, test.kind, strings.Contains(said, "mode kind") || strings.Contains(said, "kind is not on the PATH"), said)
			assert.Equal(t, !test.kind, strings.Contains(said, "missing: unshare"), said)
			if !test.kind {
				assert.NotContains(t, strings.Join(calls, "\n"), "create")
			}
		})
	}
}

func TestKindScriptCleans(t *testing.T) {
	said, calls, err := stage{behaviour: `"docker image ls"*) echo accesspolicy-quickstart/operator:dev; echo accesspolicy-quickstart/mcpserver:dev ;;`}.run(t, nil, "clean")
	require.NoError(t, err, said)
	assert.Equal(t, []string{
		"kind delete cluster --name accesspolicy-quickstart-kuadrant --kubeconfig ~/cache/kind/accesspolicy-quickstart-kuadrant.kubeconfig",
		"kind delete cluster --name accesspolicy-quickstart-envoy-gateway --kubeconfig ~/cache/kind/accesspolicy-quickstart-envoy-gateway.kubeconfig",
		"docker image ls --format {{.Repository}}:{{.Tag}} accesspolicy-quickstart/*",
		"docker image rm accesspolicy-quickstart/operator:dev accesspolicy-quickstart/mcpserver:dev",
	}, calls)
}
