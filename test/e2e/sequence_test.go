package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/manifest"
)

var (
	sequenceBursts = flag.Int("sequence.bursts", 25, "`number` of bursts of changes in TestSequence")
	sequenceSeed   = flag.Uint64("sequence.seed", 0, "`seed` of TestSequence's changes; 0 takes the time")
)

const (
	// basis is the policy for the whole Gateway that is always there, so that listeners that nobody has thought of are closed.
	basis = "basis"
)

// sequence is a run of random changes under constant requests.
type sequence struct {
	*kube
	chain   *chain
	random  random
	history *history
	trail   *trail
	prober  *prober
	probes  []*probe

	writers   []*writer
	listeners *writer

	kills    int
	lag      []time.Duration
	rulings  map[ruling]int
	answered map[string]int
	// unasked counts requests that nobody authorized although the last acknowledged configuration closes their listener, and
	// how long after its acknowledgement the last of them was sent.
	unasked     int
	unaskedLast time.Duration
}

// TestSequence changes policies and listeners at random while requests are sent all the time, and judges each answer.
//
// By design a Gateway with a policy for the whole of it is closed on listeners that come later; so the first and longer part
// has one always, and changes listeners. The second part has none that stays, and leaves the listeners alone.
//
// Somebody's edit of our AuthPolicy is not among the changes: it is in force until it is undone, whatever we do.
func TestSequence(t *testing.T) {
	seed := *sequenceSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-sequence.seed=%d -sequence.bursts=%d", seed, *sequenceBursts)
	s := startSequence(t, seed)
	stop := s.probe(t, seed)
	defer stop()
	begin := time.Now()
	defer func() { s.report(t, time.Since(begin)) }()

	bursts := max(4, *sequenceBursts)
	second := bursts * 3 / 4
	for burst := range bursts {
		if burst == second {
			require.NoError(t, s.writers[0].remove(t.Context(), basis))
			s.converge(t)
		}
		killing := burst%5 == 3 // at least one in each part
		s.burst(t, burst < second, killing)
		s.converge(t)
		if t.Failed() {
			return
		}
	}
}

func startSequence(t *testing.T, seed uint64) *sequence {
	t.Helper()
	c := startChain(t)
	k := inNamespace(t, c.Cluster, "sequence")
	tokens := map[string]string{}
	for _, account := range append([]string{"nobody"}, sequenceAccounts...) {
		k.Apply(t, stack.ServiceAccount(k.namespace, account))
		tokens[account] = k.Token(t, k.namespace, account, audience)
	}
	gateway := stack.Gateway(k.namespace, "prod", sequenceHosts[:2]...)
	listeners, _, _ := unstructured.NestedSlice(gateway.Object, "spec", "listeners")
	for i := range listeners {
		listeners[i].(map[string]any)["name"] = sequenceListeners[i]
	}
	require.NoError(t, unstructured.SetNestedSlice(gateway.Object, listeners, "spec", "listeners"))
	base := k.policy(t, basis, allowing("nobody", []string{"nothing"}, "prod"))
	k.Apply(t, gateway, stack.Service(k.namespace, "tools"), base)
	for i, host := range sequenceHosts { // those without a listener wait for one
		k.Apply(t, stack.HTTPRoute(k.namespace, fmt.Sprintf("route-%d", i), "prod", host, "/", "tools"))
	}
	k.WaitFor(t, limit, gateway, "Programmed")
	k.programmed(t, basis, "prod")

	typed := &gwv1.Gateway{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(gateway.Object, typed))
	raw, err := base.MarshalJSON()
	require.NoError(t, err)
	s := &sequence{kube: k, chain: c, random: random{rand.New(rand.NewPCG(seed, 0))}, trail: follow(t, k), prober: &prober{kube: k, authorino: c.authorino},
		history: newHistory(t, configuration{policies: map[string]translator.Policy{basis: manifest.DecodePolicy(raw)}, gateway: typed}),
		probes:  allProbes(k.namespace, tokens, sequenceHosts, sequenceTools),
		rulings: map[ruling]int{}, answered: map[string]int{}}
	// Few policies, so that all listeners often have the same rules and share an object.
	for i, owns := range [][]string{{"red-1", "red-2"}, {"green"}, {"blue"}} {
		s.writers = append(s.writers, s.writer(seed, i+1, owns...))
	}
	s.listeners = s.writer(seed, len(s.writers)+1)
	s.converge(t)
	return s
}

func (s *sequence) writer(seed uint64, stream int, owns ...string) *writer {
	return &writer{kube: s.kube, history: s.history, owns: owns, done: map[string]int{}, random: random{rand.New(rand.NewPCG(seed, uint64(stream)))}}
}

// probe starts the probers and returns what ends them.
func (s *sequence) probe(t *testing.T, seed uint64) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range probers {
		running.Go(func() { s.prober.run(ctx, rand.New(rand.NewPCG(seed, uint64(100+i))), s.probes) })
	}
	return func() { cancel(); running.Wait() }
}

// burst makes one to three changes, each by a writer of its own, at nearly the same time.
func (s *sequence) burst(t *testing.T, listeners, killing bool) {
	t.Helper()
	free := slices.Clone(s.writers)
	if listeners {
		free = append(free, s.listeners)
	}
	s.random.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	failures := make(chan error, len(free))
	busy := free[:1+s.random.IntN(3)]
	if listeners && (killing || s.random.chance(40)) && !slices.Contains(busy, s.listeners) {
		busy[0] = s.listeners
	}
	s.listeners.eager = killing
	for _, w := range busy {
		wait := time.Duration(s.random.IntN(300)) * time.Millisecond
		go func() {
			time.Sleep(wait)
			failures <- w.change(t.Context())
		}()
	}
	if killing {
		time.Sleep(time.Duration(s.random.IntN(500)) * time.Millisecond)
		s.chain.operator.Kill(t)
		s.kills++
		s.chain.operator.Start(t)
	}
	for range busy {
		require.NoError(t, <-failures)
	}
}

// converge waits until the chain has come to the last configuration, judges all answers until then, and makes that
// configuration the first one that may be the reason for answers from then on.
func (s *sequence) converge(t *testing.T) {
	t.Helper()
	last := len(s.history.writes) - 1
	since := s.history.writes[last].acked
	if last == 0 {
		since = time.Now()
	}
	deadline := time.Now().Add(limit)
	var begun time.Time
	for rounds := 0; rounds < 2; {
		begin := time.Now()
		// A second look at some of the answers finds what is still on its way through Authorino.
		err := s.caughtUp(t.Context(), 1+3*rounds)
		switch {
		case err == nil && rounds == 0:
			begun = begin
			rounds++
		case err == nil:
			rounds++
		case time.Now().After(deadline):
			s.judge(t)
			t.Logf("the last configuration:\n%s", s.history.now())
			t.Fatalf("the chain does not come to it within %s: %v\nthe operator:\n%s", limit, err, s.chain.operator.Tail())
		default:
			rounds = 0
			time.Sleep(50 * time.Millisecond)
		}
	}
	s.lag = append(s.lag, begun.Sub(since))
	s.history.converged = append(s.history.converged, mark{last, time.Now()})
	s.judge(t)
}

// caughtUp is an error while anything between the API server and Authorino is not as the last configuration has it.
func (s *sequence) caughtUp(ctx context.Context, every int) error {
	last := &s.history.writes[len(s.history.writes)-1]
	result, err := s.history.translated(last, last)
	if err != nil {
		return err
	}
	if err := s.objectsCaughtUp(ctx, result); err != nil {
		return err
	}
	for _, v := range result.Verdicts {
		target := strings.TrimSuffix("prod/"+v.Section, "/")
		accepted, err := s.condition(ctx, v.Policy.Name, target, v1alpha1.PolicyConditionAccepted)
		if err != nil {
			return err
		}
		programmed, err := s.condition(ctx, v.Policy.Name, target, v1alpha1.PolicyConditionProgrammed)
		if err != nil {
			return err
		}
		if (accepted.Status == metav1.ConditionTrue) != v.Accepted || (programmed.Status == metav1.ConditionTrue) != v.Accepted {
			return fmt.Errorf("policy %s on %s: %+v, %+v", v.Policy.Name, target, accepted, programmed)
		}
	}
	return s.verdictsCaughtUp(ctx, last, every)
}

// objectsCaughtUp compares the AuthPolicies with those that the translation gives, and wants Kuadrant's word on each.
func (s *sequence) objectsCaughtUp(ctx context.Context, result *translator.Result) error {
	live, err := s.authPolicies(ctx)
	if err != nil {
		return err
	}
	var wanted kuadrant.Output
	if len(result.Gateways) > 0 {
		wanted = result.Gateways[0].Kuadrant
	}
	if len(live) != len(wanted.Objects) {
		return fmt.Errorf("there are %d AuthPolicies, not %d", len(live), len(wanted.Objects))
	}
	for _, object := range wanted.Objects {
		content, err := kuadrant.Unstructured(object)
		if err != nil {
			return err
		}
		found := live[object.Name]
		if found == nil || !within(found.Object["spec"], content.Object["spec"]) {
			return fmt.Errorf("AuthPolicy %s is not as it should be", object.Name)
		}
		err = stack.Condition(found, "Enforced")
		// Beneath the objects of listeners a default is not in force, as it should be.
		if err != nil && (object.Spec.Defaults == nil || !strings.Contains(err.Error(), "Overridden")) {
			return fmt.Errorf("AuthPolicy %s: %w", object.Name, err)
		}
	}
	return nil
}

// within says whether all of a JSON value is in another, which may have defaults besides.
func within(all, part any) bool {
	switch part := part.(type) {
	case map[string]any:
		m, ok := all.(map[string]any)
		for key, value := range part {
			if !ok || !within(m[key], value) {
				return false
			}
		}
		return ok
	case []any:
		list, ok := all.([]any)
		return ok && slices.EqualFunc(list, part, within)
	}
	return reflect.DeepEqual(all, part) || fmt.Sprint(all) == fmt.Sprint(part)
}

// verdictsCaughtUp sends every probe, or every so many: what the configuration grants gets through, and nothing else does.
func (s *sequence) verdictsCaughtUp(ctx context.Context, last *write, every int) error {
	for _, p := range s.probes {
		if p.index%every != 0 {
			continue
		}
		d, err := s.history.decide(last, last, p)
		if err != nil {
			return err
		}
		expected := d.status
		switch d.outcome {
		case denied:
		case allowed:
			expected = http.StatusOK
		case unrouted, unprotected:
			expected = open
		}
		sent := time.Now()
		code, err := s.prober.ask(ctx, p)
		if err != nil {
			return err
		}
		s.prober.keep(observation{probe: p, sent: sent, answered: time.Now(), code: code}, nil)
		if code != expected {
			return fmt.Errorf("%s is answered with %d, not %d", p.name, code, expected)
		}
	}
	return nil
}

// judge judges all answers so far. No write may be on its way.
func (s *sequence) judge(t *testing.T) {
	t.Helper()
	observed, failures := s.prober.take()
	for _, err := range failures {
		t.Errorf("a probe failed: %v", err)
	}
	shown := map[ruling]int{}
	for _, o := range observed {
		s.count(t, o)
		ruled, err := s.history.judge(o)
		require.NoError(t, err)
		s.rulings[ruled]++
		shown[ruled]++
		if shown[ruled] > 3 && ruled != lawful { // they are all of the same kind
			continue
		}
		switch ruled {
		case lawful:
		case skewed:
			t.Logf("by policies and a Gateway of different moments only: %s", s.history.explain(o))
		case violation:
			t.Errorf("VIOLATION: %swhat was written from two seconds before:\n%s", s.history.explain(o), s.trail.between(o.sent.Add(-2*time.Second), o.answered.Add(200*time.Millisecond)))
		}
	}
}

func (s *sequence) count(t *testing.T, o observation) {
	t.Helper()
	switch o.code {
	case http.StatusOK:
		s.answered["allowed"]++
	case open:
		s.answered["open"]++
		list := s.history.candidates(o.sent, o.sent)
		last := &list[len(list)-1]
		d, err := s.history.decide(last, last, o.probe)
		require.NoError(t, err)
		if d.outcome == denied && last.acked.Before(o.sent) {
			s.unasked++
			s.unaskedLast = max(s.unaskedLast, o.sent.Sub(last.acked))
		}
	default:
		s.answered["denied"]++
	}
}

func (s *sequence) report(t *testing.T, took time.Duration) {
	t.Helper()
	changes := map[string]int{}
	for _, w := range append(slices.Clone(s.writers), s.listeners) {
		for what, n := range w.done {
			changes[what] += n
		}
	}
	var kinds []string
	for _, what := range slices.Sorted(maps.Keys(changes)) {
		kinds = append(kinds, fmt.Sprintf("%s: %d", what, changes[what]))
	}
	slices.Sort(s.lag)
	total := s.answered["allowed"] + s.answered["denied"] + s.answered["open"]
	t.Logf("%d bursts in %s, %d writes (%s), %d kills", len(s.lag)-1, took.Round(time.Second), len(s.history.writes)-1, strings.Join(kinds, ", "), s.kills)
	t.Logf("%d probes: %d allowed, %d denied, %d open; %d violations, %d lawful by policies and a Gateway of different moments only",
		total, s.answered["allowed"], s.answered["denied"], s.answered["open"], s.rulings[violation], s.rulings[skewed])
	t.Logf("%d probes were open, %s at the longest, on a listener that had just come and that Kuadrant had no action set for yet", s.unasked, s.unaskedLast.Round(time.Millisecond))
	t.Logf("the chain caught up in %s (p50), %s (p95)", s.lag[len(s.lag)/2].Round(10*time.Millisecond), s.lag[len(s.lag)*95/100].Round(10*time.Millisecond))
	require.Greater(t, total, 50*(len(s.lag)-1), "too few probes to find anything")
}
