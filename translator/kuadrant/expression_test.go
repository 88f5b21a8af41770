package kuadrant

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	authorinocel "github.com/kuadrant/authorino/pkg/expressions/cel"
	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/plan"
)

// holds evaluates a predicate with Authorino's own CEL package (in the main module's version of cel-go).
func holds(t testing.TB, predicate string, attributes map[string]any) bool {
	t.Helper()
	p, err := authorinocel.NewPredicate(predicate)
	require.NoError(t, err, "%.300s", predicate)
	text, err := json.Marshal(attributes)
	require.NoError(t, err)
	ok, err := p.Matches(string(text))
	require.NoError(t, err, "%.300s", predicate)
	return ok
}

// words are close to each other: same beginnings, one the beginning of the other, other scripts, quotes.
func words(g *rand.Rand, n int) []string {
	parts := []string{"a", "b", "ab", "-", "'", `\`, "é", "\U0001f600", "e\u0301", " ", "0", "9", "tool", "\uffff", "z"}
	set := map[string]bool{}
	prefix := strings.Repeat(parts[g.IntN(len(parts))], g.IntN(8))
	for len(set) < n {
		var b strings.Builder
		b.WriteString(prefix)
		for range g.IntN(6) {
			b.WriteString(parts[g.IntN(len(parts))])
		}
		set[b.String()] = true
	}
	out := make([]string, 0, n)
	for w := range set {
		out = append(out, w)
	}
	slices.Sort(out)
	return out
}

// A decision tree answers as the set does, for members, for neighbours of members, and for everything else.
func TestMembersIsTheSet(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, bucket, bucket + 1, 40, 200, 700} {
		values := words(g, n)
		predicate := members(values, "request.headers['x']")
		for range 60 {
			probe := values[g.IntN(len(values))]
			switch g.IntN(4) {
			case 0:
				probe += "a"
			case 1:
				probe = string([]rune(probe)[:len([]rune(probe))/2])
			case 2:
				probe = words(g, 1)[0]
			}
			_, want := slices.BinarySearch(values, probe)
			got := holds(t, predicate, map[string]any{"request": map[string]any{"headers": map[string]any{"x": probe}}})
			require.Equal(t, want, got, "%q among %d values", probe, n)
		}
	}
}

func TestPivotDividesSortedValues(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		values := words(g, 2+g.IntN(30))
		i := 1 + g.IntN(len(values)-1)
		p := pivot(values, i)
		require.Less(t, values[i-1], p)
		require.LessOrEqual(t, p, values[i])
	}
}

// FuzzNames puts a hostile tool name and header value into a rule and makes sure that they grant themselves and nothing
// else, and that a neighbour's rule is not touched.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"add", "a'||true||''=='", `\`, `\'`, "bob's", "\n", "x,y", "", "é", "'] || true || ['"} {
		f.Add(s, s)
	}
	profile, _ := plan.ProfileNamed(plan.ProfileMCPGateway)
	f.Fuzz(func(t *testing.T, tool, value string) {
		if strings.ToValidUTF8(tool, "") != tool || strings.ToValidUTF8(value, "") != value || tool == "" || strings.Contains(tool, ",") {
			t.Skip()
		}
		call := func(name string) *plan.MCPMatch {
			return &plan.MCPMatch{Methods: []plan.MCPMethod{{Name: "tools/call", Params: []string{name}}}}
		}
		rules := []plan.Rule{
			{Source: plan.Source{Principals: []string{"system:serviceaccount:demo:a"}}, MCP: call(tool)},
			{Source: plan.Source{Principals: []string{"system:serviceaccount:demo:b"}}, MCP: call("innocent"), Headers: []plan.HeaderMatch{{Name: "x-team", Value: value}}},
		}
		predicate, err := grants(rules, profile)
		require.NoError(t, err)
		ask := func(principal, tool, team string) bool {
			return holds(t, predicate, map[string]any{
				"auth": map[string]any{"identity": map[string]any{"principals": []string{principal}}},
				"request": map[string]any{"method": "POST", "headers": map[string]any{"content-type": "application/json", "x-mcp-method": "tools/call",
					"x-mcp-servername": "demo/server", "x-mcp-toolname": tool, "x-team": team}}})
		}
		require.True(t, ask("system:serviceaccount:demo:a", tool, "x"))
		require.False(t, ask("system:serviceaccount:demo:a", tool+"x", "x"))
		require.False(t, ask("system:serviceaccount:demo:c", tool, value))
		require.True(t, ask("system:serviceaccount:demo:b", "innocent", value))
		require.False(t, ask("system:serviceaccount:demo:b", "innocent", value+"x"))
		require.Equal(t, tool == "innocent", ask("system:serviceaccount:demo:b", tool, value))
	})
}

// Two rules of different policies can never get the same key.
func TestEvaluatorKeysAreUnique(t *testing.T) {
	rules := make([]sized, 0, 40)
	for _, policy := range []string{"a", "a-b", "fail", "fail-close", "refuse", "policies-1"} {
		for i := range 3 {
			r := plan.Rule{Source: plan.Source{Any: true}, Origin: plan.Origin{Rule: fmt.Sprint(i)}}
			r.Origin.Policy.Namespace, r.Origin.Policy.Name = "demo", policy
			rules = append(rules, sized{r, 1})
		}
	}
	for _, bound := range []int{1, 6, 100} {
		evaluators, err := split(rules, plan.Profile{}, bound)
		require.NoError(t, err)
		seen := map[string]bool{KeyRefuse: true, KeyFailClose: true}
		for _, e := range evaluators {
			require.False(t, seen[e.key], e.key)
			seen[e.key] = true
		}
	}
}

// The two readers of a client-certificate header agree on random pieces of such headers.
func TestForwardedIdentityAgreesWithThePlan(t *testing.T) {
	opts := Options{SPIFFEFrom: SPIFFEFromXFCC}
	predicate, err := authorinocel.NewPredicate(opts.spiffePresent())
	require.NoError(t, err)
	read, err := authorinocel.NewExpression(opts.spiffeID())
	require.NoError(t, err)
	g := rand.New(rand.NewPCG(5, 6))
	parts := []string{"URI=", "URI=spiffe://td/a", "spiffe://td/b", ";", ";", ",", `"`, `\`, "Subject=", "By=", "Hash=00", "DNS=x", "=", "CN=x", "uri=", " "}
	found := 0
	for range 6000 {
		var b strings.Builder
		for range 1 + g.IntN(7) {
			b.WriteString(parts[g.IntN(len(parts))])
		}
		header := b.String()
		text, err := json.Marshal(map[string]any{"request": map[string]any{"headers": map[string]any{headerXFCC: header}}})
		require.NoError(t, err)
		want := plan.ForwardedID(header)
		present, err := predicate.Matches(string(text))
		require.NoError(t, err)
		require.Equal(t, want != "", present, header)
		if !present {
			continue
		}
		found++
		got, err := read.ResolveFor(string(text))
		require.NoError(t, err)
		require.Equal(t, want, got, header)
	}
	require.Greater(t, found, 30)
}
