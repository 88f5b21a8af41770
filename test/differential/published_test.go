package differential

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/test/judge"
	"accesspolicy-operator/translator/requests"
)

// TestPublishedAuthPolicyIsSeenToFailOpen gives the judge the AuthPolicy that the published controller generated, word for
// word: it must be seen to let a forbidden tool and a foreign ServiceAccount through, or the judge could not be trusted
// when it finds nothing. test/authorino has the same shape in own words, for where the document is not at hand.
func TestPublishedAuthPolicyIsSeenToFailOpen(t *testing.T) {
	cases := os.Getenv("ACCESSPOLICY_CASES")
	if cases == "" {
		t.Skip("ACCESSPOLICY_CASES is not set: the published document is not part of this repository")
	}
	text, err := os.ReadFile(filepath.Join(cases, "kuadrant", "real-generated-authpolicy-demo-gateway-auth.yaml"))
	require.NoError(t, err)
	var ap kuadrantv1.AuthPolicy
	require.NoError(t, yaml.Unmarshal(text, &ap))
	gw := benchGateway()
	gw.Namespace, gw.Name = ap.Namespace, string(ap.Spec.TargetRef.Name)
	const audience = "https://kubernetes.default.svc.cluster.local"
	world := judge.World{Gateway: &gw, AuthPolicies: []*kuadrantv1.AuthPolicy{&ap}, Tokens: map[string]judge.Token{}}
	for _, sa := range []string{"quickstart-ns/default", "other/agent"} {
		world.Tokens[requests.Token(sa)] = judge.Token{Username: requests.TokenReview(sa).Username, Audiences: []string{audience}}
	}
	client := startJudge(t)
	loaded, err := client.Load("published", world)
	require.NoError(t, err)
	require.True(t, loaded.Ready())
	for _, c := range []struct{ account, tool string }{{"quickstart-ns/default", "delete_database"}, {"other/agent", "get-sum"}} {
		results, err := client.Check("published", judge.Request{Shape: judge.ShapeWasmShim, Method: "POST", Host: "localhost", Path: "/mcp", Headers: map[string]string{
			"authorization": "Bearer " + requests.Token(c.account), "content-type": "application/json", "x-mcp-method": "tools/call", "x-mcp-toolname": c.tool}})
		require.NoError(t, err)
		require.True(t, results[0].Allowed, "%s, %s: %d %s", c.account, c.tool, results[0].Status, strings.TrimSpace(results[0].Reason))
	}
}
