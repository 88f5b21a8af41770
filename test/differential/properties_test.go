package differential

import (
	"encoding/json"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/test/generate"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock and prints it")
	pairs = flag.Int("pairs", 20000, "how many pairs of policies and requests the differential test compares")
)

func newGenerator(t testing.TB) generate.Generator {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with -args -seed=%d)", s, s)
	return generate.New(s)
}

// bytesOf is everything that a result shows, as text.
func bytesOf(t *testing.T, r *translator.Result) string {
	t.Helper()
	var view struct {
		Objects, Plans []any
		Verdicts       []translator.Verdict
		Findings       []plan.Finding
	}
	for _, gw := range r.Gateways {
		for _, ap := range gw.Kuadrant.Objects {
			view.Objects = append(view.Objects, ap)
		}
		for i := range gw.Plans {
			view.Plans = append(view.Plans, gw.Plans[i].String())
		}
	}
	view.Verdicts, view.Findings = r.Verdicts, r.Findings
	text, err := json.Marshal(view)
	require.NoError(t, err)
	return string(text)
}

// The same input in any order gives identical bytes.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	g := newGenerator(t)
	for range 300 {
		opts, err := g.Settings().Options()
		require.NoError(t, err)
		in := g.Input()
		first, err := translator.Translate(in, opts)
		require.NoError(t, err)
		for range 3 {
			g.Shuffle(len(in.Policies), func(i, j int) { in.Policies[i], in.Policies[j] = in.Policies[j], in.Policies[i] })
			again, err := translator.Translate(in, opts)
			require.NoError(t, err)
			require.Equal(t, bytesOf(t, first), bytesOf(t, again))
		}
	}
}

// What an emitter expresses never grants a request that the plan of a listener which the request can reach denies, and
// every request that is granted is granted by a rule of a policy that was accepted.
func TestExpressedIsNeverWiderThanThePlan(t *testing.T) {
	g := newGenerator(t)
	granted := 0
	for range 1500 {
		opts, err := g.Settings().Options()
		require.NoError(t, err)
		in := g.Input()
		result, err := translator.Translate(in, opts)
		require.NoError(t, err)
		gw := &result.Gateways[0]
		for range 30 {
			r := g.Request().Plan(opts.Profile, opts.Kuadrant.SPIFFEFrom == kuadrant.SPIFFEFromXFCC)
			expressed := plan.Select(gw.Kuadrant.Expressed, "", r.Host)
			if expressed == nil || !expressed.Decide(r).Allowed {
				continue
			}
			granted++
			checkGrant(t, result, gw, r, expressed.Decide(r))
		}
	}
	require.Greater(t, granted, 1000, "too few requests were granted for the test to mean anything")
}

// The same for Envoy Gateway, where a request meets the plan of the listener that it arrives on.
func TestEnvoyGatewayIsNeverWiderThanThePlan(t *testing.T) {
	g := newGenerator(t)
	granted, narrower := 0, 0
	for range 1500 {
		opts, in := generatedForEnvoyGateway(t, g)
		result, err := translator.Translate(in, opts)
		require.NoError(t, err)
		gw := &result.Gateways[0]
		for range 30 {
			r := g.Request().Plan(opts.Profile, false)
			for _, l := range in.Gateways[0].Spec.Listeners {
				expressed, full := plan.Select(gw.EnvoyGateway.Expressed, string(l.Name), r.Host), plan.Select(gw.Plans, string(l.Name), r.Host)
				switch has, should := expressed.Decide(r).Allowed, full.Decide(r).Allowed; {
				case has && !should:
					t.Fatalf("listener %s: granted by %s, and the plan denies: %+v", l.Name, expressed.Decide(r).By, r)
				case has:
					granted++
				case should:
					narrower++
				}
			}
		}
	}
	t.Logf("%d granted, %d granted by the plan and not by what a SecurityPolicy can express", granted, narrower)
	require.Greater(t, granted, 1000, "too few requests were granted for the test to mean anything")
}

// generatedForEnvoyGateway is a random world in which tokens and client certificates can be verified.
func generatedForEnvoyGateway(t *testing.T, g generate.Generator) (translator.Options, translator.Input) {
	t.Helper()
	opts, err := g.Settings().Options()
	require.NoError(t, err)
	opts.Enforcers = translator.Enforcers{EnvoyGateway: true}
	opts.EnvoyGateway.Issuer, opts.EnvoyGateway.JWKS = "https://issuer.example", `{"keys":[{"kty":"RSA"}]}`
	in := g.Input()
	in.ClientTraffic = generate.VerifiedCertificates(&in.Gateways[0])
	return opts, in
}

func checkGrant(t *testing.T, result *translator.Result, gw *translator.GatewayResult, r plan.Request, d plan.Decision) {
	t.Helper()
	for _, p := range gw.Plans {
		if full := plan.Select([]plan.Plan{p}, "", r.Host); full != nil && (p.Listener != "" || len(gw.Plans) == 1) {
			require.True(t, full.Decide(r).Allowed, "expressed grants by %s what the plan of listener %s denies: %+v", d.By, p.Listener, r)
		}
	}
	if d.By.Policy.Name == "" {
		return // an open listener
	}
	for _, v := range result.Verdicts {
		if v.Policy == d.By.Policy && v.Accepted {
			return
		}
	}
	t.Fatalf("granted by %s, which was not accepted", d.By)
}
