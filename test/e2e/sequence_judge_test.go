package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// configuration is what the API server has after some write: the policies, and the Gateway.
type configuration struct {
	policies map[string]translator.Policy
	gateway  *gwv1.Gateway
}

// write is a change that the API server has acknowledged, and what it has led to.
type write struct {
	what        string
	sent, acked time.Time
	after       configuration
	// The configuration's policies are those after so many changes of policies, its Gateway is that after so many changes of
	// the Gateway.
	policies, gateway int
}

// mark says that everything between the API server and Authorino was known at a time to be as a write has left it.
type mark struct {
	write int
	at    time.Time
}

// outcome is what a configuration says of a request.
type outcome int

const (
	denied outcome = iota
	// unrouted: no listener has the host, so the gateway itself answers 404.
	unrouted
	// unprotected: the listener is nobody's target.
	unprotected
	allowed
)

// decision is an outcome and, for a denial, its status.
type decision struct {
	outcome outcome
	status  int
}

// history is all writes in the order in which the API server took them, and when the chain had caught up.
type history struct {
	options translator.Options
	// order makes the writers' order a total one: each holds it from sending a write until it is acknowledged.
	order sync.Mutex

	writes    []write
	converged []mark
	decisions map[[3]int]decision
	results   map[[2]int]*translator.Result
}

func newHistory(t *testing.T, start configuration) *history {
	t.Helper()
	options, err := requests.Settings{Audiences: []string{audience}}.Options()
	require.NoError(t, err)
	return &history{options: options, writes: []write{{what: "start", after: start}},
		decisions: map[[3]int]decision{}, results: map[[2]int]*translator.Result{}}
}

// record takes down a write; the caller holds order. A policy is nil where the write is of the Gateway, and has no name
// where it was deleted.
func (h *history) record(what string, sent time.Time, name string, policy *translator.Policy, gateway *gwv1.Gateway) {
	last := h.writes[len(h.writes)-1]
	next := write{what: what, sent: sent, acked: time.Now(), policies: last.policies, gateway: last.gateway,
		after: configuration{policies: last.after.policies, gateway: last.after.gateway}}
	if gateway != nil {
		next.gateway++
		next.after.gateway = gateway
	} else {
		next.policies++
		next.after.policies = maps.Clone(last.after.policies)
		delete(next.after.policies, name)
		if policy != nil {
			next.after.policies[name] = *policy
		}
	}
	h.writes = append(h.writes, next)
}

// now is the configuration that was acknowledged last.
func (h *history) now() configuration { return h.writes[len(h.writes)-1].after }

// translated is what the policies after one write come to on the Gateway after another.
func (h *history) translated(policies, gateway *write) (*translator.Result, error) {
	key := [2]int{policies.policies, gateway.gateway}
	if result, ok := h.results[key]; ok {
		return result, nil
	}
	in := translator.Input{Gateways: []gwv1.Gateway{*gateway.after.gateway}}
	for _, name := range slices.Sorted(maps.Keys(policies.after.policies)) {
		in.Policies = append(in.Policies, policies.after.policies[name])
	}
	result, err := translator.Translate(in, h.options)
	if err == nil {
		h.results[key] = result
	}
	return result, err
}

// decide is the truth: what the policies after one write say of a request on the Gateway after another.
func (h *history) decide(policies, gateway *write, p *probe) (decision, error) {
	key := [3]int{policies.policies, gateway.gateway, p.index}
	if d, ok := h.decisions[key]; ok {
		return d, nil
	}
	result, err := h.translated(policies, gateway)
	if err != nil {
		return decision{}, err
	}
	d := decision{outcome: unprotected}
	switch {
	case listenerOf(gateway.after.gateway, p.call.host) == "":
		d.outcome = unrouted
	case len(result.Gateways) > 0:
		if selected := plan.Select(result.Gateways[0].Kuadrant.Expressed, "", p.call.host); selected != nil && !selected.Open {
			d = decision{outcome: allowed}
			if said := selected.Decide(p.request); !said.Allowed {
				d = decision{outcome: denied, status: said.Status}
			}
		}
	}
	h.decisions[key] = d
	return d, nil
}

// listenerOf is the name of the listener that has a host, "" where none has.
func listenerOf(gateway *gwv1.Gateway, host string) string {
	for _, l := range gateway.Spec.Listeners {
		if l.Hostname != nil && string(*l.Hostname) == host {
			return string(l.Name)
		}
	}
	return ""
}

// candidates are the writes whose configurations may have decided a request that was sent and answered at these times: from
// the one that the chain was last known to have come to when the request was sent, to the last one that was on its way to the
// API server when the answer came.
func (h *history) candidates(sent, answered time.Time) []write {
	from := 0
	for _, m := range h.converged {
		if !m.at.After(sent) {
			from = m.write
		}
	}
	to := from
	for i := from + 1; i < len(h.writes) && !h.writes[i].sent.After(answered); i++ {
		to = i
	}
	return h.writes[from : to+1]
}

// ruling is what the judge says of an answer.
type ruling int

const (
	lawful ruling = iota
	// skewed: lawful for policies and a Gateway that were both current, but not at one moment. The operator and Kuadrant
	// follow them through two watches, between which Kubernetes promises no order, and Kuadrant applies what was written for
	// the Gateway as it was to the Gateway as it is: nobody can keep this from happening, and nobody gets what the policies
	// before the change would not have given on this Gateway.
	skewed
	violation
)

// judge says whether an answer is one that some candidate would have given. Denials are always lawful here: that what is
// granted gets through is looked at when the chain has caught up.
func (h *history) judge(o observation) (ruling, error) {
	if o.code != http.StatusOK && o.code != open {
		return lawful, nil
	}
	list := h.candidates(o.sent, o.answered)
	for i := range list {
		if d, err := h.decide(&list[i], &list[i], o.probe); err != nil || permits(d, o.code) {
			return lawful, err
		}
	}
	for i := range list {
		for j := range list {
			if d, err := h.decide(&list[i], &list[j], o.probe); err != nil || permits(d, o.code) {
				return skewed, err
			}
		}
	}
	return violation, nil
}

// permits says whether a request that a configuration decides like this may get through with this code. Where no listener has
// the host, that nobody asks Authorino lets nothing through; but where Authorino is asked and says yes, there is a listener,
// and so another configuration has to be the reason.
func permits(d decision, code int) bool {
	return d.outcome == allowed || d.outcome == unprotected || d.outcome == unrouted && code == open
}

// explain tells what each candidate says of a request.
func (h *history) explain(o observation) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s was answered with %d, sent %s, answered %s; what was current at some moment says:\n", o.probe.name, o.code, clock(o.sent), clock(o.answered))
	list := h.candidates(o.sent, o.answered)
	for i := range list {
		d, err := h.decide(&list[i], &list[i], o.probe)
		fmt.Fprintf(&out, "  sent %s, acknowledged %s: %s: outcome %d, status %d, %v\n", clock(list[i].sent), clock(list[i].acked), list[i].what, d.outcome, d.status, err)
	}
	fmt.Fprintf(&out, "the first candidate:\n%s", list[0].after)
	return out.String()
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// String shows listeners and policies.
func (c configuration) String() string {
	var out strings.Builder
	for _, l := range c.gateway.Spec.Listeners {
		fmt.Fprintf(&out, "  listener %s: %s\n", l.Name, *l.Hostname)
	}
	for _, name := range slices.Sorted(maps.Keys(c.policies)) {
		text, err := yaml.Marshal(c.policies[name].Object.Spec)
		fmt.Fprintf(&out, "  policy %s: %v\n    %s\n", name, err, strings.ReplaceAll(string(text), "\n", "\n    "))
	}
	return out.String()
}

// made is a policy as the API server would hand it out.
func made(t *testing.T, name, spec string) translator.Policy {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("apiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: XAccessPolicy\nmetadata: {namespace: ns, name: " + name +
		"}\nspec:\n  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ")))
	require.NoError(t, err)
	policy := manifest.DecodePolicy(text)
	require.Empty(t, policy.Problems)
	return policy
}

func madeGateway(listeners ...string) *gwv1.Gateway {
	gateway := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod", UID: "u"}}
	for _, l := range listeners {
		name, host, _ := strings.Cut(l, "/")
		hostname := gwv1.Hostname(host)
		gateway.Spec.Listeners = append(gateway.Spec.Listeners, gwv1.Listener{Name: gwv1.SectionName(name), Port: 8080, Protocol: gwv1.HTTPProtocolType, Hostname: &hostname})
	}
	return gateway
}

// TestSequenceJudge: a judge that finds nothing proves nothing.
func TestSequenceJudge(t *testing.T) {
	start := configuration{policies: map[string]translator.Policy{"base": made(t, "base", allowing("base", []string{"none"}, "prod"))}, gateway: madeGateway("one/a", "two/b")}
	h := newHistory(t, start)
	second := func(n int) time.Time { return time.Unix(1_800_000_000, 0).Add(time.Duration(n) * time.Second) }
	step := func(n int, name string, policy *translator.Policy, gateway *gwv1.Gateway) {
		h.record(name, second(n), name, policy, gateway)
		h.writes[len(h.writes)-1].acked = second(n + 1)
	}
	add, echo := made(t, "p", allowing("reader", []string{"add"}, "prod")), made(t, "p", allowing("reader", []string{"echo"}, "prod/two"))
	h.converged = append(h.converged, mark{0, second(5)})
	step(10, "p", &add, nil)
	h.converged = append(h.converged, mark{1, second(15)})
	step(20, "p", &echo, nil)
	step(30, "", nil, madeGateway("one/a", "two/c"))
	h.converged = append(h.converged, mark{3, second(35)})

	index := 0
	for _, c := range []struct {
		name           string
		host, tool     string
		sent, answered int
		code           int
		want           ruling
	}{
		{"before it is granted", "a", "add", 6, 9, http.StatusOK, violation},
		{"the grant is on its way", "a", "add", 6, 10, http.StatusOK, lawful},
		{"granted", "a", "add", 16, 17, http.StatusOK, lawful},
		{"granted by nobody", "a", "echo", 16, 17, http.StatusOK, violation},
		{"a denial", "a", "add", 16, 17, http.StatusForbidden, lawful},
		{"nobody asks", "a", "add", 16, 17, open, lawful},
		{"nobody asks about what is denied", "a", "echo", 16, 17, open, violation},
		{"taken away, but perhaps not everywhere yet", "a", "add", 34, 34, http.StatusOK, lawful},
		{"taken away everywhere", "a", "add", 35, 35, http.StatusOK, violation},
		{"on another listener than granted", "a", "echo", 21, 29, http.StatusOK, violation},
		{"on the listener", "b", "echo", 21, 29, http.StatusOK, lawful},
		{"the listener has another host", "c", "echo", 31, 32, http.StatusOK, lawful},
		{"former policies, present Gateway", "c", "add", 31, 32, http.StatusOK, skewed},
		{"no listener has the host", "b", "echo", 36, 37, open, lawful},
		{"no listener had the host", "c", "none", 16, 17, open, lawful},
		{"the host is closed", "c", "none", 36, 37, open, violation},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProbe("ns", "reader", "", c.tool, tool(c.host, "", c.tool))
			p.index = index
			index++
			got, err := h.judge(observation{probe: p, sent: second(c.sent), answered: second(c.answered), code: c.code})
			require.NoError(t, err)
			require.Equal(t, c.want, got, h.explain(observation{probe: p, sent: second(c.sent), answered: second(c.answered), code: c.code}))
		})
	}
}
