package envoy_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

const cases = "../../translator/testdata"

// TestGolden sends the requests of every golden case through a real Envoy with the SecurityPolicies of the case. Each
// must be decided as the plan decides that the emission expresses.
func TestGolden(t *testing.T) { newWorld(t).golden(t) }

// TestGoldenAsking does the same where Envoy asks Authorino, which verifies the tokens at the API server.
func TestGoldenAsking(t *testing.T) {
	w := newWorld(t)
	w.asking = true
	w.golden(t)
}

func (w *world) golden(t *testing.T) {
	var sites []*site
	require.NoError(t, filepath.WalkDir(cases, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "in.yaml" {
			return err
		}
		name, _ := filepath.Rel(cases, filepath.Dir(path))
		c, err := requests.LoadCase(os.DirFS(filepath.Dir(path)))
		if err != nil {
			return err
		}
		sites = append(sites, w.add(t, filepath.ToSlash(name), c))
		return nil
	}))
	w.serve(t, sites)
	time.Sleep(3 * time.Second) // the last routes may still be on their way
	count := map[string]int{}
	for _, s := range sites {
		t.Run(s.name, func(t *testing.T) {
			for _, r := range s.file.Requests {
				if problem := w.judge(t, s, r, count); problem != "" {
					t.Errorf("%s: %s", r.Name, problem)
				}
			}
		})
	}
	w.notRejected(t)
	t.Logf("%d cases: %v", len(sites), count)
	require.Greater(t, count["allowed"], len(sites), "too few requests were allowed for the test to mean anything")
}

// judge compares Envoy's verdict with that of the plan as it is expressed, and says what is wrong.
func (w *world) judge(t *testing.T, s *site, r requests.Request, count map[string]int) string {
	t.Helper()
	request := r.Plan(s.opts.Profile, false)
	p := plan.Select(s.result.EnvoyGateway.Expressed, r.Listener, request.Host)
	if p == nil {
		count["no such listener"]++
		return ""
	}
	request.Time = time.Now() // Envoy has no other
	for _, listener := range s.listenersOf(p, r.Listener, request.Host) {
		got, err := w.send(t, s, listener, r)
		if err != nil {
			return err.Error()
		}
		if problem := compare(p, request, got, count); problem != "" {
			return fmt.Sprintf("on listener %s: %s", listener, problem)
		}
	}
	return ""
}

// listenersOf returns the listeners on which a request meets a plan.
func (s *site) listenersOf(p *plan.Plan, named, host string) []string {
	if p.Listener != "" {
		return []string{p.Listener}
	}
	var out []string
	for listener := range s.ports {
		own := slices.ContainsFunc(s.result.EnvoyGateway.Expressed, func(q plan.Plan) bool { return q.Listener == listener })
		here := plan.Select([]plan.Plan{{Listener: listener, Host: s.hosts[listener]}}, "", host) != nil
		if !own && (listener == named || named == "" && here) {
			out = append(out, listener)
		}
	}
	slices.Sort(out)
	return out
}

// compare says what is wrong with Envoy's verdict, and counts what is right.
func compare(p *plan.Plan, request plan.Request, got answer, count map[string]int) string {
	want := p.Decide(request)
	switch {
	case got.status >= http.StatusInternalServerError:
		return fmt.Sprintf("Envoy answers %d %s, which says nothing about the rules", got.status, got.body)
	case got.allowed() && want.Allowed:
		count["allowed"]++
	case got.denied() && !want.Allowed:
		count["denied"]++
	case got.allowed():
		// Envoy tidies paths and header values before it looks at rules. What the upstream gets must be allowed.
		request.Method, request.Host, request.Path, request.Headers = got.seen.Method, got.seen.Host, got.seen.Path, got.seen.Headers
		if d := p.Decide(request); !d.Allowed {
			return fmt.Sprintf("Envoy allows %s %s, the plan denies: %s", request.Method, request.Path, d.Reason)
		}
		count["allowed as Envoy tidied it"]++
	case want.Allowed && (tidied(request) || !p.Decide(trimmed(request)).Allowed):
		count["not allowed as Envoy tidied it"]++
	case want.Allowed:
		return fmt.Sprintf("the plan allows (%s), Envoy answers %d %s", want.Reason, got.status, got.body)
	default:
		count[fmt.Sprintf("not allowed, status %d", got.status)]++
	}
	return ""
}

// plainPath is what RFC 3986 lets stand in a path as it is. Everything else Envoy encodes, decodes or refuses.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9/._~!$&'()*+,;=:@-]*(%[0-9A-Fa-f]{2})*$`)

// trimmed is a request as any HTTP server reads it: blanks around a header's value are no part of it (RFC 9110, 5.5).
func trimmed(r plan.Request) plan.Request {
	headers := map[string]string{}
	for name, value := range r.Headers {
		headers[name] = strings.Trim(value, " \t")
	}
	r.Headers = headers
	return r
}

// tidied requests reach no rule as they were sent.
func tidied(r plan.Request) bool {
	path, _, _ := strings.Cut(r.Path, "?")
	if r.Method == http.MethodConnect || plan.CleanPath(r.Path) == "" || plan.CleanHost(r.Host) == "" || !plainPath.MatchString(path) {
		return true
	}
	for _, value := range r.Headers {
		if strings.ContainsAny(value, "\r\n\x00") {
			return true
		}
	}
	return false
}
