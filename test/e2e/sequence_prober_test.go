package e2e

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

const (
	probers = 3
	// pause between two requests of a prober: the operator and Kuadrant need the machine as well.
	pause = 10 * time.Millisecond
)

// probe is a request, and the same request as a plan decides it.
type probe struct {
	index   int
	name    string
	call    call
	request plan.Request
}

// newProbe makes the probe of a call by a ServiceAccount, "" for nobody.
func newProbe(namespace, account, token, what string, c call) *probe {
	c.token = token
	headers := map[string]string{"content-type": "application/json"}
	for name, value := range c.headers {
		headers[name] = value
	}
	p := &probe{name: account + " " + what + " on " + c.host, call: c,
		request: plan.Request{Method: http.MethodPost, Host: c.host, Path: "/mcp", Headers: headers}}
	if account != "" {
		review := requests.TokenReview(namespace + "/" + account)
		p.request.Token = &review
	}
	return p
}

// allProbes are all tools and a base protocol method, for everybody and on every host.
func allProbes(namespace string, tokens map[string]string, hosts, tools []string) []*probe {
	var out []*probe
	for _, host := range hosts {
		for _, account := range slices.Concat(sequenceAccounts, []string{""}) {
			for _, name := range tools {
				out = append(out, newProbe(namespace, account, tokens[account], name, tool(host, "", name)))
			}
			for _, method := range []string{"tools/list"} {
				out = append(out, newProbe(namespace, account, tokens[account], method, mcp(host, "", method)))
			}
		}
	}
	for i, p := range out {
		p.index = i
	}
	return out
}

// observation is an answer to a probe.
type observation struct {
	probe          *probe
	sent, answered time.Time
	code           int
}

// prober sends requests all the time.
//
// Every request looks up by itself which action set is there. A data plane has them from a stream that lags behind the API
// server, and its routes and listeners from the same; this lag is not modelled: what is looked at is what the operator and
// kuadrant-operator write, and what Authorino makes of it, at each moment.
type prober struct {
	kube      *kube
	authorino *stack.Authorino

	mu       sync.Mutex
	observed []observation
	failures []error
	// version is that of the action sets from which the scopes of the probes were taken.
	version string
	scopes  map[int][]string
}

// ask does what verdict does. It picks a request's action set only once for each version of the action sets, because that
// takes longer than everything else together.
func (r *prober) ask(ctx context.Context, p *probe) (int, error) {
	policy := &metav1.PartialObjectMetadata{}
	policy.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyExtensionPolicy"})
	err := r.kube.Client.Get(ctx, client.ObjectKey{Namespace: r.kube.namespace, Name: "kuadrant-prod"}, policy)
	if apierrors.IsNotFound(err) {
		return open, nil
	}
	if err != nil {
		return 0, err
	}
	headers := p.headers()
	scopes, err := r.scopesOf(ctx, string(policy.UID)+policy.ResourceVersion, p, headers)
	if err != nil || len(scopes) == 0 {
		return open, err
	}
	for _, scope := range scopes {
		v, err := r.authorino.Check(ctx, stack.CheckInput{Scope: scope, Method: http.MethodPost, Path: "/mcp", Host: p.call.host, Headers: headers})
		if err != nil || v.Code != http.StatusOK {
			return v.Code, err
		}
	}
	return http.StatusOK, nil
}

func (r *prober) scopesOf(ctx context.Context, version string, p *probe, headers map[string]string) ([]string, error) {
	r.mu.Lock()
	known := r.scopes
	if r.version != version {
		known = map[int][]string{}
		r.version, r.scopes = version, known
	}
	scopes, ok := known[p.index]
	r.mu.Unlock()
	if ok {
		return scopes, nil
	}
	// These may be newer than the version says, which then is not asked for again.
	sets, err := r.kube.ActionSets(ctx, r.kube.namespace, "prod")
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	scopes, err = stack.Scopes(sets, stack.Request{Host: p.call.host, Method: http.MethodPost, Path: "/mcp", Headers: headers})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known[p.index] = scopes
	return scopes, nil
}

// headers are those of the request as it is sent.
func (p *probe) headers() map[string]string {
	headers := maps.Clone(p.request.Headers)
	if p.call.token != "" {
		headers["authorization"] = "Bearer " + p.call.token
	}
	return headers
}

// run sends the probes in random order, round after round, until the context ends.
func (r *prober) run(ctx context.Context, random *rand.Rand, probes []*probe) {
	for ctx.Err() == nil {
		for _, i := range random.Perm(len(probes)) {
			sent := time.Now()
			code, err := r.ask(ctx, probes[i])
			if ctx.Err() != nil {
				return
			}
			r.keep(observation{probe: probes[i], sent: sent, answered: time.Now(), code: code}, err)
			time.Sleep(pause)
		}
	}
}

func (r *prober) keep(o observation, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failures = append(r.failures, err)
		return
	}
	r.observed = append(r.observed, o)
}

// take hands over what has been observed since the last time.
func (r *prober) take() ([]observation, []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	observed, failures := r.observed, r.failures
	r.observed, r.failures = nil, nil
	return observed, failures
}
