package differential

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/test/judge"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/requests"
)

const goldenRoot = "../../translator/testdata"

// goldenCase is a case folder, loaded.
type goldenCase struct{ *requests.Case }

// TestGoldenRequestsInAuthorino runs the requests of every golden case through the real pipeline. Cases that say nothing
// of where SPIFFE IDs come from run twice: with source.principal as Envoy sends it, and with only the client-certificate
// header, as Kuadrant's plugin does.
func TestGoldenRequestsInAuthorino(t *testing.T) {
	client := startJudge(t)
	cases, asked := 0, 0
	require.NoError(t, filepath.WalkDir(goldenRoot, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "requests.yaml" {
			return err
		}
		cases++
		dir := filepath.Dir(path)
		t.Run(strings.TrimPrefix(dir, goldenRoot+"/"), func(t *testing.T) {
			loaded, err := requests.LoadCase(os.DirFS(dir))
			require.NoError(t, err)
			c := goldenCase{loaded}
			asked += c.run(t, client)
			// A forged client-certificate header is only part of the story where it is not read.
			c.File.Requests = slices.DeleteFunc(c.File.Requests, func(r requests.Request) bool { return r.HTTP.Headers["x-forwarded-client-cert"] != "" })
			if c.Options.Kuadrant.SPIFFEFrom == "" {
				c.Options.Kuadrant.SPIFFEFrom = kuadrant.SPIFFEFromXFCC
				asked += c.run(t, client)
			}
		})
		return nil
	}))
	require.GreaterOrEqual(t, cases, 40)
	t.Logf("%d cases, %d requests answered by Authorino", cases, asked)
}

func (c goldenCase) run(t *testing.T, client *judge.Client) int {
	t.Helper()
	result, err := translator.Translate(c.Set.Input(), c.Options)
	require.NoError(t, err)
	gw, err := requests.Gateway(c.File, result)
	require.NoError(t, err)
	i := slices.IndexFunc(c.Set.Gateways, func(g gwv1.Gateway) bool { return g.Namespace == gw.Gateway.Namespace && g.Name == gw.Gateway.Name })
	object := &c.Set.Gateways[i]
	loaded, err := client.Load("golden", World(object, gw, c.Set.Input(), c.Options, c.File.ServiceAccounts()))
	require.NoError(t, err)
	require.True(t, loaded.Ready(), "Authorino refused what was emitted: %+v", loaded.AuthConfigs)
	judged, err := Ask(client, "golden", object, gw, c.Options, ShapeFor(c.Options), c.File.Requests)
	require.NoError(t, err)
	named := !slices.ContainsFunc(gw.Kuadrant.Objects, kuadrant.Shared)
	asked := 0
	for _, j := range judged {
		if j.Expressed == nil {
			t.Logf("%s: reaches no route (%s)", j.Request.Name, j.Real.Reason)
			continue
		}
		asked++
		// With merge, other people's rules have a say in status and keys.
		if what := j.Disagreement(named); what != "" && c.Options.Kuadrant.Strategy != kuadrant.StrategyMerge {
			t.Errorf("%s: %s", j.Request.Name, what)
		}
		want := j.Request.Expect
		if j.Request.Kuadrant != "" {
			want = j.Request.Kuadrant
		}
		if (want == requests.Allow) != j.Real.Allowed {
			t.Errorf("%s: want %s, Authorino: allowed=%v (%d %s)", j.Request.Name, want, j.Real.Allowed, j.Real.Status, j.Real.Reason)
		}
	}
	return asked
}
