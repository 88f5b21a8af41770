package differential

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/test/generate"
	"accesspolicy-operator/test/judge"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

func startJudge(t testing.TB) *judge.Client {
	t.Helper()
	client, err := judge.Start(context.Background(), "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// TestPlanAndAuthorinoAgree is the judge of the translator: random policies, random requests, zero disagreements.
func TestPlanAndAuthorinoAgree(t *testing.T) {
	g, client := newGenerator(t), startJudge(t)
	var done, allowed, unauthenticated, named int
	const perWorld = 60
	for done < *pairs {
		opts, err := g.Settings().Options()
		require.NoError(t, err)
		in := g.Input()
		result, err := translator.Translate(in, opts)
		require.NoError(t, err)
		gw := &result.Gateways[0]
		loaded, err := client.Load("random", World(&in.Gateways[0], gw, in, opts, generate.Accounts()))
		require.NoError(t, err)
		require.True(t, loaded.Ready(), "Authorino refused what was emitted: %+v", loaded.AuthConfigs)
		list := make([]requests.Request, perWorld)
		for i := range list {
			list[i] = g.Request()
		}
		judged, err := Ask(client, "random", &in.Gateways[0], gw, opts, ShapeFor(opts), list)
		require.NoError(t, err)
		for _, j := range judged {
			if j.Expressed == nil {
				continue
			}
			done++
			evaluatorsNamed := isNamed(gw, j)
			if what := j.Disagreement(evaluatorsNamed); what != "" {
				t.Fatalf("%s\nrequest: %s\n%s", what, show(j.Request), bytesOf(t, result))
			}
			if j.Expressed.Allowed {
				allowed++
				checkGrant(t, result, gw, j.Request.Plan(opts.Profile, opts.Kuadrant.SPIFFEFrom == "xfcc"), *j.Expressed)
				if evaluatorsNamed {
					named++
				}
			} else if j.Expressed.Status == 401 {
				unauthenticated++
			}
		}
	}
	t.Logf("%d pairs, %d allowed (%d by an evaluator that names its policy), %d unauthenticated, 0 disagreements", done, allowed, named, unauthenticated)
	require.Greater(t, allowed, done/50, "too few requests were granted for the test to mean anything")
	require.Greater(t, unauthenticated, 0)
}

// isNamed tells whether the evaluators that a request meets have the names of policies: below the bound.
func isNamed(gw *translator.GatewayResult, j Judged) bool {
	p := plan.Select(gw.Kuadrant.Expressed, "", j.Request.Plan(plan.Profile{}, false).Host)
	for _, ap := range gw.Kuadrant.Objects {
		section := ""
		if ap.Spec.TargetRef.SectionName != nil {
			section = string(*ap.Spec.TargetRef.SectionName)
		}
		if p == nil || section != p.Listener {
			continue
		}
		return !kuadrant.Shared(ap)
	}
	return false
}

func show(r requests.Request) string {
	return fmt.Sprintf("%+v http=%+v mcp=%+v host=%q path=%q", r.Caller, r.HTTP, r.MCP, *r.HTTP.Host, *r.HTTP.Path)
}
