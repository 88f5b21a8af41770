package envoygateway

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/regex"
)

// Envoy evaluates CEL without comprehensions, without functions on strings beyond a few, and without a way to bind a value
// to a name. An error is no match, so what may be missing is only read behind a test that it is there, and everything that
// is read twice is written twice.

// sent tells whether a header is there, value reads it; a missing one is an error.
func sent(header string) string  { return cel.Quote(header) + " in request.headers" }
func value(header string) string { return "request.headers[" + cel.Quote(header) + "]" }

// valueOrEmpty reads a header that may be missing.
func valueOrEmpty(header string) string {
	return "(" + sent(header) + " ? " + value(header) + " : '')"
}

// jsonType is plan.JSONContentType. The s stands apart because RE2 also takes U+017F for it when the case is ignored.
func jsonType() string {
	return sent(plan.HeaderContentType) + " && " + value(plan.HeaderContentType) + `.matches('^(?i:application/j)[sS](?i:on)(;[^,]*)?$')`
}

// version is the condition that the router takes method and name from the body; "" for none.
func version(p plan.Profile) string {
	if len(p.ProtocolVersions) == 0 {
		return ""
	}
	return fmt.Sprintf("(!(%s) || %s in %s)", sent(plan.HeaderProtocolVersion), value(plan.HeaderProtocolVersion), cel.QuoteList(p.ProtocolVersions))
}

// call is the condition of every MCP call beside its method: a JSON body of a version that the router reads.
func call(p plan.Profile) []string { return some(jsonType(), version(p)) }

// server is the condition that the call was sent on to a server, so that the router has set the name that it carries.
func server(p plan.Profile) string {
	h := p.ServerHeader
	return fmt.Sprintf("%s && !(%s in %s) && %s", sent(h), value(h), cel.QuoteList([]string{"", p.BrokerServer}), single(h))
}

// single is the condition that a header was not joined from several.
func single(header string) string { return "!" + value(header) + ".contains(',')" }

// some leaves out what is empty.
func some(conditions ...string) []string {
	return slices.DeleteFunc(conditions, func(c string) bool { return c == "" })
}

func all(conditions ...string) string { return strings.Join(some(conditions...), " && ") }

func either(conditions []string) string {
	if len(conditions) == 1 {
		return conditions[0]
	}
	return "(" + strings.Join(conditions, " || ") + ")"
}

func paths(list []plan.PathMatch) string {
	if len(list) == 0 {
		return ""
	}
	var alternatives []string
	for _, m := range list {
		switch m.Type {
		case plan.PathExact:
			alternatives = append(alternatives, "request.url_path == "+cel.Quote(m.Value))
		case plan.PathPrefix:
			alternatives = append(alternatives, fmt.Sprintf("request.url_path == %s || request.url_path.startsWith(%s)", cel.Quote(m.Value), cel.Quote(m.Value+"/")))
		case plan.PathRegex:
			alternatives = append(alternatives, matches("request.url_path", m.Value))
		}
	}
	return clean() + " && (" + strings.Join(alternatives, " || ") + ")"
}

// clean is the condition that plan.CleanPath is not empty. request.url_path is the path without its query.
func clean() string {
	return "request.url_path.startsWith('/') && !request.url_path.matches(" + cel.Quote("(?i)"+plan.HostilePath) + ")"
}

// matches is regex.Matches.
func matches(of, expr string) string {
	whole, err := regex.Whole(expr)
	if err != nil {
		return "false" // such policies are refused before they get here
	}
	return fmt.Sprintf("(size(%s) <= %d && %[1]s.matches(%[3]s))", of, regex.MaxValue, cel.Quote(whole))
}

// hosts compares in any case and with any port, as plan.CleanHost makes it.
func hosts(list []string) string {
	if len(list) == 0 {
		return ""
	}
	var alternatives []string
	for _, h := range list {
		alternatives = append(alternatives, "request.host.matches("+cel.Quote(hostPattern(h))+")")
	}
	// RE2 takes two characters beyond ASCII for a k and an s when the case is ignored.
	return "request.host.matches('^[!-~]+$') && " + either(alternatives)
}

// hostPattern matches what matchHosts of plan does: a wildcard is one or more labels, and one port is taken off.
func hostPattern(host string) string {
	begin, rest := "(?i)^", host
	if suffix, wild := strings.CutPrefix(host, "*"); wild {
		begin, rest = "(?i)[!-~]", suffix
	}
	return begin + regexp.QuoteMeta(rest) + "(:[0-9]+)?$"
}

// headerPatterns are the headers with a regular expression.
func headerPatterns(list []plan.HeaderMatch) []string {
	var out []string
	for _, h := range list {
		if h.Regex {
			out = append(out, sent(h.Name)+" && "+matches(value(h.Name), h.Value))
		}
	}
	return out
}

// patterns are the regular expressions that a rule makes Envoy run.
func patterns(r *plan.Rule) []string {
	var out []string
	whole := func(expr string) {
		if w, err := regex.Whole(expr); err == nil {
			out = append(out, w)
		}
	}
	for _, m := range r.Paths {
		if m.Type == plan.PathRegex {
			whole(m.Value)
		}
	}
	for _, h := range r.Headers {
		if h.Regex {
			whole(h.Value)
		}
	}
	for _, h := range r.Hosts {
		out = append(out, hostPattern(h))
	}
	if r.CEL != nil {
		out = append(out, r.CEL.Uses().Patterns...)
	}
	return out
}

// expression renders a CEL rule for a caller who is known to be principal, or for anybody. Its guards are those of plan's
// reference evaluator: kept to MCP calls that can be believed, and bound to tools/call unless it speaks of the method.
func expression(r *plan.Rule, p plan.Profile, principal string) (string, error) {
	uses := r.CEL.Uses()
	text, err := r.CEL.Render(engine(p, principal, uses))
	if err != nil {
		return "", fmt.Errorf("%s: %w", r.Origin, err)
	}
	method := value(p.MethodHeader)
	guards := append([]string{"request.method == 'POST'"}, call(p)...)
	guards = append(guards, sent(p.MethodHeader))
	if uses.MCPMethod {
		guards = append(guards, method+" != ''", single(p.MethodHeader))
	} else {
		guards = append(guards, method+" == 'tools/call'")
	}
	named := func(used bool, believed string, methods ...string) {
		switch {
		case !used:
		case !uses.MCPMethod && slices.Contains(methods, "tools/call"):
			guards = append(guards, believed)
		case uses.MCPMethod:
			guards = append(guards, fmt.Sprintf("(!(%s in %s) || %s)", method, cel.QuoteList(methods), believed))
		}
	}
	named(uses.Tool, believedName(p, "tools/call"), "tools/call")
	named(uses.Prompt, believedName(p, "prompts/get"), "prompts/get")
	if p.ServerHeader != "" {
		named(uses.Server, server(p), "tools/call", "prompts/get")
	}
	if uses.Resource && uses.MCPMethod {
		guards = append(guards, fmt.Sprintf("(!%s.startsWith('resources/') || %s != '')", method, resource(p)))
	}
	if uses.Path {
		guards = append(guards, clean())
	}
	guards = append(guards, short(p, uses)...)
	return all(append(guards, "("+text+")")...), nil
}

// believedName is the condition that the router set the name which a call of a method carries.
func believedName(p plan.Profile, method string) string {
	guard := ""
	if p.NeedsServer(method) {
		guard = server(p)
	}
	h := p.ParamHeader(method)
	return all(guard, sent(h), value(h)+" != ''", single(h))
}

// resource reads the resource that a call names, ” for other calls.
func resource(p plan.Profile) string {
	return fmt.Sprintf("(%s in %s ? %s : '')", value(p.MethodHeader),
		cel.QuoteList([]string{"resources/read", "resources/subscribe", "resources/unsubscribe"}), valueOrEmpty(p.ResourceHeader))
}

// short is the condition that nothing the expression reads is longer than what it is allowed to cost.
func short(p plan.Profile, uses cel.Uses) []string {
	var out []string
	if uses.Path {
		out = append(out, fmt.Sprintf("size(request.path) <= %d", regex.MaxValue))
	}
	for _, h := range slices.Concat(p.NameHeaders(), uses.Headers) {
		out = append(out, fmt.Sprintf("(!(%s) || size(%s) <= %d)", sent(h), value(h), regex.MaxValue))
	}
	return out
}

// engine says how Envoy's CEL spells the vocabulary behind the guards of expression.
func engine(p plan.Profile, principal string, uses cel.Uses) cel.Engine {
	name := func(method string) string {
		h := p.ParamHeader(method)
		if !uses.MCPMethod {
			return value(h)
		}
		return fmt.Sprintf("(%s == %s ? %s : '')", value(p.MethodHeader), cel.Quote(method), value(h))
	}
	e := cel.Engine{
		Method: "request.method", Path: "request.path", URLPath: "request.url_path", Time: "request.time",
		MCPMethod: value(p.MethodHeader), Tool: name("tools/call"), Prompt: name("prompts/get"),
		Principal: cel.Quote(principal), HeaderValue: valueOrEmpty, HeaderPresent: sent,
	}
	if p.ResourceHeader != "" {
		e.ResourceURI = resource(p)
	}
	if h := p.ServerHeader; h != "" {
		e.Server = fmt.Sprintf("(%s && %s != %s && %s ? %s : '')", sent(h), value(h), cel.Quote(p.BrokerServer), single(h), value(h))
	}
	return e
}
