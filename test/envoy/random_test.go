package envoy_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/test/generate"
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/requests"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the random test; 0 takes one from the clock and prints it")
	pairs = flag.Int("pairs", 2400, "how many random requests the real Envoy decides")
)

// requestsPerWorld is how many requests are sent to one random Gateway.
const requestsPerWorld = 60

// TestRandom sends random requests through a real Envoy with the SecurityPolicies of random policies.
func TestRandom(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with -seed=%d)", s, s)
	g := generate.New(s)
	w := newWorld(t)
	var sites []*site
	for i := range (*pairs + requestsPerWorld - 1) / requestsPerWorld {
		opts, err := g.Settings().Options()
		require.NoError(t, err)
		in := g.Input()
		c := &requests.Case{Options: opts, File: &requests.File{},
			Set: manifest.Set{Gateways: in.Gateways, Policies: in.Policies, ClientTraffic: generate.VerifiedCertificates(&in.Gateways[0])}}
		for range requestsPerWorld {
			c.File.Requests = append(c.File.Requests, g.Request())
		}
		sites = append(sites, w.add(t, fmt.Sprintf("random-%d", i), c))
	}
	w.serve(t, sites)
	time.Sleep(3 * time.Second) // the last routes may still be on their way
	count := map[string]int{}
	for _, site := range sites {
		for _, r := range site.file.Requests {
			if problem := w.judge(t, site, r, count); problem != "" {
				t.Errorf("%s: %+v: %s", site.name, r.Wire(site.opts.Profile), problem)
			}
		}
	}
	w.notRejected(t)
	t.Logf("%d Gateways: %v", len(sites), count)
	require.Greater(t, count["allowed"], *pairs/50, "too few requests were allowed for the test to mean anything")
}
