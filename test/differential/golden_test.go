package differential

import (
	"io/fs"
	"maps"
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
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/requests"
)

const goldenRoot = "../../translator/testdata"

// goldenCase is a case folder, loaded.
type goldenCase struct {
	set     manifest.Set
	file    *requests.File
	options translator.Options
}

func loadGolden(t testing.TB, dir string) goldenCase {
	t.Helper()
	var c goldenCase
	in, err := os.ReadFile(filepath.Join(dir, "in.yaml"))
	require.NoError(t, err)
	require.NoError(t, c.set.Add("in.yaml", in))
	text, err := os.ReadFile(filepath.Join(dir, "requests.yaml"))
	require.NoError(t, err)
	c.file, err = requests.Parse(text)
	require.NoError(t, err)
	options, err := os.ReadFile(filepath.Join(dir, "options.yaml"))
	require.True(t, err == nil || os.IsNotExist(err), "%v", err)
	settings, err := requests.ParseSettings(options)
	require.NoError(t, err)
	c.options, err = settings.Options()
	require.NoError(t, err)
	return c
}

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
			c := loadGolden(t, dir)
			asked += c.run(t, client)
			// A forged client-certificate header is only part of the story where it is not read.
			c.file.Requests = slices.DeleteFunc(c.file.Requests, func(r requests.Request) bool { return r.HTTP.Headers["x-forwarded-client-cert"] != "" })
			if c.options.Kuadrant.SPIFFEFrom == "" {
				c.options.Kuadrant.SPIFFEFrom = kuadrant.SPIFFEFromXFCC
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
	result, err := translator.Translate(c.set.Input(), c.options)
	require.NoError(t, err)
	gw, err := requests.Gateway(c.file, result)
	require.NoError(t, err)
	i := slices.IndexFunc(c.set.Gateways, func(g gwv1.Gateway) bool { return g.Namespace == gw.Gateway.Namespace && g.Name == gw.Gateway.Name })
	object := &c.set.Gateways[i]
	loaded, err := client.Load("golden", World(object, gw, c.set.Input(), c.options, c.file.ServiceAccounts()))
	require.NoError(t, err)
	require.True(t, loaded.Ready(), "Authorino refused what was emitted: %+v", loaded.AuthConfigs)
	judged, err := Ask(client, "golden", object, gw, c.options, ShapeFor(c.options), c.file.Requests)
	require.NoError(t, err)
	asked := 0
	for _, j := range judged {
		if j.Expressed == nil {
			t.Logf("%s: reaches no route (%s)", j.Request.Name, j.Real.Reason)
			continue
		}
		asked++
		// With merge, other people's rules have a say in status and keys.
		if what := j.Disagreement(c.named(gw)); what != "" && c.options.Kuadrant.Strategy != kuadrant.StrategyMerge {
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

// named tells whether every evaluator has a policy's name.
func (c goldenCase) named(gw *translator.GatewayResult) bool {
	for _, ap := range gw.Kuadrant.Objects {
		if slices.ContainsFunc(slices.Collect(maps.Keys(ap.Spec.Proper().AuthScheme.Authorization)), func(k string) bool { return strings.HasPrefix(k, "policies-") }) {
			return false
		}
	}
	return true
}
