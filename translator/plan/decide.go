package plan

import (
	"fmt"
	"slices"
	"strings"

	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/regex"
)

// Statuses of a denial.
const (
	StatusUnauthorized = 401
	StatusForbidden    = 403
)

// Decision is the answer of a plan to one request. Its zero value denies.
type Decision struct {
	Allowed bool
	// Status is the HTTP status of a denial: 401 for an unidentified caller where an identity could help, else 403.
	Status int
	// By is the rule that granted, or the policy that refused; zero when nothing did.
	By Origin
	// NearMiss is the rule that came closest to granting, with the first condition that failed; nil when there are no
	// rules or the request was granted.
	NearMiss *NearMiss
	// Reason is one sentence for a person.
	Reason string
}

// NearMiss explains a denial.
type NearMiss struct {
	Origin Origin
	// Why names the first condition that did not hold.
	Why string
}

// Decide is the reference evaluator: refusals first, then the first rule that matches grants, then denied. It reads only
// the kinds of identity that the plan has in use.
func (p *Plan) Decide(r Request) Decision {
	if p.Open {
		return Decision{Allowed: true, Reason: "no XAccessPolicy targets this listener: the request is as the Gateway's owner left it"}
	}
	ids := p.Identities()
	e := evaluation{profile: p.Profile, request: &r, call: p.Profile.read(&r), callers: r.callers(ids), identity: r.identity(ids)}
	if len(e.callers) == 0 && !ids.Anonymous {
		return Decision{Status: StatusUnauthorized, Reason: "no credential that a rule asks for was verified"}
	}
	for _, refusal := range p.Refusals {
		if refusal.All || slices.ContainsFunc(refusal.Rules, e.delegated) {
			return Decision{Status: StatusForbidden, By: refusal.Origin,
				Reason: "refused: policy " + refusal.Origin.String() + " delegates this request to an external authorizer, which is not supported yet"}
		}
	}
	denied := Decision{Status: StatusForbidden, Reason: "no rule grants this request"}
	best := -1
	for i := range p.Rules {
		passed, why := e.match(&p.Rules[i])
		if why == "" {
			return Decision{Allowed: true, By: p.Rules[i].Origin, Reason: "granted by " + p.Rules[i].Origin.String()}
		}
		if passed > best {
			best, denied.NearMiss = passed, &NearMiss{Origin: p.Rules[i].Origin, Why: why}
		}
	}
	return denied
}

// evaluation is one request under one plan.
type evaluation struct {
	profile  Profile
	request  *Request
	call     call
	callers  []string
	identity map[string]any
}

// match returns "" when all parts of the rule hold; else how many held and the first one that did not.
func (e *evaluation) match(r *Rule) (passed int, why string) {
	parts := []struct {
		holds bool
		why   string
	}{
		{r.Source.Any || slices.ContainsFunc(e.callers, r.Source.has), "the caller is not in its source"},
		{len(r.Methods) == 0 || slices.Contains(r.Methods, e.request.Method), "the HTTP method is not in its methods"},
		{len(r.Hosts) == 0 || matchHosts(r.Hosts, CleanHost(e.request.Host)), "the host is not in its hosts"},
		{len(r.Paths) == 0 || matchPaths(r.Paths, CleanPath(e.request.Path)), "the path matches none of its paths"},
		{e.matchHeaders(r.Headers), "a header does not match its headers"},
	}
	for _, part := range parts {
		if !part.holds {
			return passed, part.why
		}
		passed++
	}
	switch {
	case r.CEL == nil && r.MCP != nil && !e.matchMCP(r.MCP):
		return passed, e.whyNotMCP()
	case r.CEL != nil && !e.matchCEL(r) && (r.MCP == nil || !e.matchMCP(r.MCP)):
		return passed, "its CEL expression does not hold"
	}
	return passed, ""
}

func (e *evaluation) whyNotMCP() string {
	if e.call.method == "" {
		return "the request is no MCP call that the profile believes"
	}
	what := e.call.method
	if name := e.call.param(what); name != "" {
		what += fmt.Sprintf(" on %q", name)
	} else if e.profile.ParamHeader(what) != "" {
		what += " on a name that cannot be believed"
	}
	return fmt.Sprintf("the MCP call %s is not in its mcp section", what)
}

func (s Source) has(principal string) bool {
	_, found := slices.BinarySearch(s.Principals, principal)
	return found
}

// matchHosts compares a clean host with exact names and *.suffix wildcards.
func matchHosts(hosts []string, host string) bool {
	if host == "" {
		return false
	}
	return slices.ContainsFunc(hosts, func(want string) bool {
		if suffix, wild := strings.CutPrefix(want, "*"); wild {
			return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
		}
		return host == want
	})
}

func matchPaths(paths []PathMatch, path string) bool {
	return path != "" && slices.ContainsFunc(paths, func(m PathMatch) bool {
		switch m.Type {
		case PathExact:
			return path == m.Value
		case PathPrefix:
			return path == m.Value || strings.HasPrefix(path, m.Value+"/")
		case PathRegex:
			return regex.Matches(m.Value, path)
		}
		return false
	})
}

func (e *evaluation) matchHeaders(headers []HeaderMatch) bool {
	for _, h := range headers {
		value, sent := e.request.Headers[h.Name]
		if !sent || !h.matches(value) {
			return false
		}
	}
	return true
}

func (h HeaderMatch) matches(value string) bool {
	if h.Regex {
		return regex.Matches(h.Value, value)
	}
	return value == h.Value
}

func (e *evaluation) matchMCP(m *MCPMatch) bool {
	return m.Base && e.call.base || slices.ContainsFunc(m.Methods, func(want MCPMethod) bool {
		if e.call.method == "" || !want.names(e.call.method) {
			return false
		}
		param := e.call.param(e.call.method)
		return len(want.Params) == 0 || param != "" && slices.Contains(want.Params, param)
	})
}

func (m MCPMethod) names(method string) bool {
	if m.Category {
		return strings.HasPrefix(method, m.Name+"/")
	}
	return method == m.Name
}

// matchCEL evaluates the expression for each principal of the rule's source that the caller has: presenting a second
// credential never takes access away that the first alone would give.
func (e *evaluation) matchCEL(r *Rule) bool {
	uses := r.CEL.Uses()
	if uses.Path && CleanPath(e.request.Path) == "" || uses.Host && CleanHost(e.request.Host) == "" || !e.believed(uses) ||
		uses.Identity && len(e.callers) == 0 || e.tooLong(uses) {
		return false
	}
	return slices.ContainsFunc(e.subjects(r), func(principal string) bool {
		holds, err := r.CEL.Eval(e.input(principal))
		return err == nil && holds
	})
}

// tooLong tells whether an expression would read a longer value than what it is allowed to cost.
func (e *evaluation) tooLong(uses cel.Uses) bool {
	return uses.Path && regex.TooLong(e.request.Path) || uses.Host && regex.TooLong(e.request.Host) ||
		slices.ContainsFunc(slices.Concat(e.profile.NameHeaders(), uses.Headers), func(name string) bool { return regex.TooLong(e.request.Headers[name]) })
}

// believed keeps an expression to MCP calls that the profile vouches for, because a name that cannot be believed reads as
// empty and a negated comparison would hold there. An expression that does not speak of the method is bound to tools/call;
// one that speaks of a tool, prompt, server or resource does not apply to calls that name one which cannot be believed.
func (e *evaluation) believed(uses cel.Uses) bool {
	c := e.call
	switch {
	case c.method == "",
		!uses.MCPMethod && c.method != "tools/call",
		uses.Tool && c.method == "tools/call" && c.tool == "",
		uses.Prompt && c.method == "prompts/get" && c.prompt == "",
		uses.Server && (c.method == "tools/call" || c.method == "prompts/get") && c.server == "",
		uses.Resource && strings.HasPrefix(c.method, "resources/") && c.resource == "":
		return false
	}
	return true
}

// subjects are the values that source.principal takes for a rule, one after the other.
func (e *evaluation) subjects(r *Rule) []string {
	if len(e.callers) == 0 {
		return []string{""}
	}
	if r.Source.Any {
		return e.callers
	}
	return slices.DeleteFunc(slices.Clone(e.callers), func(p string) bool { return !r.Source.has(p) })
}

func (e *evaluation) input(principal string) cel.Input {
	path, _, _ := strings.Cut(e.request.Path, "?")
	return cel.Input{
		Method: e.request.Method, Path: e.request.Path, URLPath: path, Host: CleanHost(e.request.Host),
		MCPMethod: e.call.method, Tool: e.call.tool, Prompt: e.call.prompt, Server: e.call.server, URI: e.call.resource,
		Principal: principal, Identity: e.identity, Headers: e.request.Headers, Time: e.request.Time,
	}
}
