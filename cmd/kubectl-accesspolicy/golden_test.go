package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the expected outputs in testdata/golden")

// goldenRuns are command lines whose whole output stands in testdata/golden, under the name.
var goldenRuns = []struct{ name, args string }{
	{"help", "--help"},
	{"help-translate", "translate --help"},
	{"help-explain", "explain --help"},
	{"help-can", "can --help"},
	{"help-test", "test --help"},
	{"version", "version"},
	{"translate", "translate -f team"},
	{"translate-json", "translate -f team -o json --token-audience agents"},
	{"translate-refused", "translate -f refused.yaml"},
	{"translate-listeners", "translate -f listeners/in.yaml"},
	{"translate-duplicates", "translate -f refused.yaml -f team/in.yaml -f -"},
	{"translate-generic", "translate -f team --profile generic --spiffe-from xfcc --overrides-strategy merge --token-verification jwt --token-issuer https://issuer.example.com --trust-domain example.com"},
	{"explain", "explain -f team"},
	{"explain-refused", "explain -f refused.yaml"},
	{"explain-listeners", "explain -f listeners"},
	{"explain-json", "explain -f listeners -f refused.yaml -o json"},
	{"can-allow", "can -f team --as demo/reader --tool add"},
	{"can-allow-json", "can -f team --as system:serviceaccount:demo:reader --tool add -o json"},
	{"can-both", "can -f team --as demo/reader --as spiffe://example.com/planner --tool plan_trip"},
	{"can-deny", "can -f team --as demo/reader --tool drop_database"},
	{"can-deny-json", "can -f team --as demo/reader --tool drop_database -o json"},
	{"can-nobody-named", "can -f team --tool add"},
	{"can-anonymous", "can -f team --anonymous --tool add"},
	{"can-prompt", "can -f team --as demo/reader --prompt greet"},
	{"can-resource", "can -f listeners --listener inner --as demo/reader --resource file:///notes"},
	{"can-subscribe", "can -f listeners --listener inner --as demo/reader --mcp-method resources/subscribe --resource file:///notes"},
	{"can-delegated", "can -f listeners --listener inner --as demo/reader --tool add"},
	{"can-open", "can -f listeners --host www.example.com --method GET --path /"},
	{"can-several", "can -f two.yaml --as spiffe://example.com/agent --tool add"},
	{"can-other-gateway", "can -f two.yaml --gateway demo/other --tool add"},
	{"can-other-listener", "can -f listeners --listener outer --tool add"},
	{"can-kuadrant", "can -f team --as demo/reader --tool add --enforcer kuadrant"},
	{"can-envoy-gateway", "can -f team --as demo/reader --tool add --enforcer envoy-gateway"},
	{"translate-envoy-gateway-without-keys", "translate -f team --enforcer envoy-gateway"},
	{"translate-ext-auth", "translate -f extauth.yaml --enforcer envoy-gateway --envoy-gateway-form ext-auth --authorino-service authorino/authorino:50051"},
	{"translate-ext-auth-nowhere", "translate -f extauth.yaml --enforcer envoy-gateway --envoy-gateway-form ext-auth"},
	{"translate-ext-auth-misspelt", "translate -f extauth.yaml --enforcer envoy-gateway --authorino-service authorino.authorino:50051"},
	{"translate-ext-auth-unordered", "translate -f team --enforcer envoy-gateway --envoy-gateway-form ext-auth --authorino-service authorino/authorino:50051"},
	{"can-host", "can -f listeners --host elsewhere.example.com --tool add"},
	{"can-xfcc", "can -f two.yaml --gateway demo/stage --as spiffe://example.com/agent --tool add --path /v/12 --spiffe-from xfcc -o json"},
	{"can-http", "can -f refused.yaml --gateway demo/prod --method GET --host tools.example.com --path /health --header X-Team=blue"},
	{"can-http-deny", "can -f refused.yaml --method GET --host tools.example.com --path /health --header x-team=red"},
	{"test", "test team"},
	{"test-verbose", "test team/requests.yaml -v --enforcer kuadrant"},
	{"test-envoy-gateway", "test team/requests.yaml -v --enforcer envoy-gateway"},
	{"test-failing", "test failing team"},
	{"test-broken", "test ./..."},
	{"test-json", "test failing -o json"},
	{"test-junit", "test failing broken -o junit"},
	{"test-options", "test options -v"},
	{"test-options-flag", "test options -v --spiffe-from peer --trust-domain other.example.com"},
	{"test-more-policies", "test more -f team/in.yaml"},
	{"test-no-policies", "test more"},
	{"test-missing", "test missing"},
	{"help-coverage", "coverage --help"},
	{"coverage", "coverage -f coverage"},
	{"coverage-json", "coverage -f coverage gateway/prod -o json"},
	{"coverage-yaml", "coverage -f coverage route/demo/tools -o yaml"},
	{"coverage-route", "coverage -f coverage/policy.yaml -f coverage/cluster.yaml httproute/tools"},
	{"coverage-kuadrant", "coverage -f coverage --enforcer kuadrant"},
	{"coverage-written-only", "coverage -f coverage/cluster.yaml"},
	{"coverage-policies-only", "coverage -f coverage/policy.yaml"},
	{"coverage-refused", "coverage -f refused.yaml"},
	{"coverage-elsewhere", "coverage -f coverage route/elsewhere"},
	{"coverage-unknown", "coverage -f coverage grpcroute/tools"},
	{"coverage-not-a-subject", "coverage -f coverage tools"},
	{"coverage-nothing", "coverage -f more"},
}

func TestGolden(t *testing.T) {
	golden, err := filepath.Abs(filepath.Join("testdata", "golden"))
	require.NoError(t, err)
	t.Chdir(filepath.Join("testdata", "input"))
	for _, run := range goldenRuns {
		t.Run(run.name, func(t *testing.T) {
			compare(t, filepath.Join(golden, run.name+".txt"), transcript(run.args))
		})
	}
}

// transcript runs a command line and writes it down with everything that it gives.
func transcript(args string) []byte {
	var stdout, stderr, out bytes.Buffer
	code := newApp(strings.NewReader(onStdin), &stdout, &stderr, clock()).run(append([]string{"/somewhere/kubectl-accesspolicy"}, strings.Fields(args)...))
	fmt.Fprintf(&out, "$ kubectl accesspolicy %s\nexit code %d\n-- stdout --\n%s-- stderr --\n%s", args, code, &stdout, &stderr)
	return builtWith.ReplaceAll(out.Bytes(), []byte("kubectl-accesspolicy VERSION (GO, PLATFORM)"))
}

// onStdin repeats the name of a policy that is in a file.
const onStdin = `{"apiVersion":"agentic.networking.x-k8s.io/v1alpha1","kind":"XAccessPolicy","metadata":{"name":"good","namespace":"demo"},
"spec":{"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"prod"}],"action":"Allow"}}`

// clock moves on by three milliseconds whenever it is read.
func clock() func() time.Time {
	now := time.Unix(0, 0)
	return func() time.Time {
		now = now.Add(3 * time.Millisecond)
		return now
	}
}

// builtWith is what differs from build to build.
var builtWith = regexp.MustCompile(`(?m)^kubectl-accesspolicy \S+ \(.*\)$`)

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "go test ./cmd/kubectl-accesspolicy -update writes it")
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (go test ./cmd/kubectl-accesspolicy -update rewrites it):\n%s", filepath.Base(path), diff)
	}
}
