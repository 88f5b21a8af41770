package plan

import (
	"slices"
	"strings"

	"accesspolicy-operator/translator/regex"
)

// delegated tells whether a rule of an ExternalAuth policy would have sent the request to the external authorizer. Every
// doubt counts as yes: a path or host that satisfies no condition, a header joined from several, a name that the router
// did not set. The raw MCP headers are read, because a forged one must not help a request out of the refusal.
func (e *evaluation) delegated(r Rule) bool {
	path, host := CleanPath(e.request.Path), CleanHost(e.request.Host)
	switch {
	case !r.Source.Any && !slices.ContainsFunc(e.callers, r.Source.has),
		len(r.Methods) > 0 && !slices.Contains(r.Methods, e.request.Method),
		len(r.Hosts) > 0 && host != "" && !matchHosts(r.Hosts, host),
		len(r.Paths) > 0 && path != "" && !regex.TooLong(path) && !matchPaths(r.Paths, path),
		slices.ContainsFunc(r.Headers, func(h HeaderMatch) bool { return !e.headerDelegated(h) }):
		return false
	}
	if r.CEL != nil {
		return e.celDelegated(&r) || r.MCP != nil && e.mcpDelegated(r.MCP)
	}
	return r.MCP == nil || e.mcpDelegated(r.MCP)
}

func joined(value string) bool { return strings.Contains(value, ",") }

func (e *evaluation) headerDelegated(h HeaderMatch) bool {
	value, sent := e.request.Headers[h.Name]
	return sent && (joined(value) || h.Regex && regex.TooLong(value) || h.matches(value))
}

func (e *evaluation) mcpDelegated(m *MCPMatch) bool {
	method := e.request.Headers[e.profile.MethodHeader]
	if joined(method) || m.Base && e.baseDelegated(method) {
		return true
	}
	return slices.ContainsFunc(m.Methods, func(want MCPMethod) bool {
		if method == "" || !want.names(method) {
			return false
		}
		name := e.request.Headers[e.profile.ParamHeader(method)]
		return len(want.Params) == 0 || name == "" || joined(name) || slices.Contains(want.Params, name)
	})
}

func (e *evaluation) baseDelegated(method string) bool {
	return e.request.Method == "GET" || e.request.Method == "DELETE" || isBase(method)
}

// celDelegated evaluates the expression both with the values that the profile believes and with those that were sent.
func (e *evaluation) celDelegated(r *Rule) bool {
	uses := r.CEL.Uses()
	method := e.request.Headers[e.profile.MethodHeader]
	switch {
	case !uses.MCPMethod && method != "tools/call" && !joined(method):
		return false
	case joined(method),
		uses.Path && CleanPath(e.request.Path) == "",
		uses.Host && CleanHost(e.request.Host) == "",
		e.tooLong(uses),
		slices.ContainsFunc(uses.Headers, func(name string) bool { return joined(e.request.Headers[name]) }):
		return true
	}
	raw := *e
	raw.call = call{method: method, tool: e.request.Headers[e.profile.ToolHeader], prompt: e.request.Headers[e.profile.PromptHeader],
		server: e.request.Headers[e.profile.ServerHeader], resource: e.request.Headers[e.profile.ResourceHeader]}
	return slices.ContainsFunc(e.subjects(r), func(principal string) bool {
		holds, err := r.CEL.Eval(e.input(principal))
		rawHolds, rawErr := r.CEL.Eval(raw.input(principal))
		return holds || rawHolds || err != nil || rawErr != nil
	})
}
