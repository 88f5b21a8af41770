package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/ledger"
	"accesspolicy-operator/translator/plan"
)

func TestEveryConditionHasAnEntryAndAReason(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range ledger.All {
		require.False(t, seen[c.Name], c.Name)
		seen[c.Name] = true
		for _, e := range []ledger.Entry{c.Kuadrant, c.EnvoyGateway} {
			require.Contains(t, []ledger.How{ledger.Native, ledger.CEL, ledger.Unsupported}, e.How, c.Name)
			require.False(t, e.How == ledger.Unsupported && e.Note == "", "%s: unsupported without a reason", c.Name)
		}
	}
	for _, f := range cel.Features() {
		require.True(t, seen["cel: "+string(f)], "no row for %s", f)
	}
}

// Each part of a rule that can restrict it is seen.
func TestEveryPartOfARuleIsACondition(t *testing.T) {
	expression, err := cel.Compile(`request.path == 'x'`, cel.Vocabulary{})
	require.NoError(t, err)
	none := len(ledger.Of(&plan.Rule{}))
	for name, r := range map[string]plan.Rule{
		"any caller": {Source: plan.Source{Any: true}},
		"principals": {Source: plan.Source{Principals: []string{"spiffe://a/b"}}},
		"methods":    {Methods: []string{"GET"}},
		"paths":      {Paths: []plan.PathMatch{{Type: plan.PathExact, Value: "/"}}},
		"headers":    {Headers: []plan.HeaderMatch{{Name: "x", Value: "y"}}},
		"hosts":      {Hosts: []string{"example.com"}},
		"base":       {MCP: &plan.MCPMatch{Base: true}},
		"mcp":        {MCP: &plan.MCPMatch{Methods: []plan.MCPMethod{{Name: "tools/call"}}}},
		"cel":        {CEL: expression},
	} {
		require.Greater(t, len(ledger.Of(&r)), none, name)
	}
}
