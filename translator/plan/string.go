package plan

import (
	"fmt"
	"strings"
)

// String explains the plan to a person: who may do what, under which conditions, and what is refused first.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", p.Where())
	if p.Open {
		b.WriteString("  no policy targets it: every request passes as the Gateway's owner left it\n")
		return b.String()
	}
	if len(p.Refusals) > 0 {
		b.WriteString("  refused before any rule is looked at\n")
	}
	for _, r := range p.Refusals {
		r.explain(&b)
	}
	if len(p.Rules) > 0 {
		b.WriteString("  allowed by the first rule that matches\n")
	}
	for i := range p.Rules {
		p.Rules[i].explain(&b, fmt.Sprintf("%d. ", i+1), "may")
	}
	if len(p.Rules) == 0 {
		b.WriteString("  nothing is allowed\n")
	} else {
		fmt.Fprintf(&b, "  everything else is denied%s\n", p.anonymously())
	}
	return b.String()
}

// Where names the attachment point.
func (p *Plan) Where() string {
	if p.Listener == "" {
		return fmt.Sprintf("Gateway %s", p.Gateway)
	}
	where := fmt.Sprintf("Gateway %s, listener %s", p.Gateway, p.Listener)
	if p.Host != "" {
		where += " (" + p.Host + ")"
	}
	return where
}

func (p *Plan) anonymously() string {
	if p.Identities().Anonymous {
		return " (403)"
	}
	return " (403; 401 for a caller without a credential that a rule asks for)"
}

func (r Refusal) explain(b *strings.Builder) {
	if r.All {
		fmt.Fprintf(b, "    %s: every request\n", r.Origin)
		return
	}
	if len(r.Rules) == 0 {
		fmt.Fprintf(b, "    %s: no request\n", r.Origin)
	}
	for i := range r.Rules {
		r.Rules[i].explain(b, "", "not")
	}
}

// explain writes a rule; verb says whether it is about what is allowed (may) or refused (not).
func (r *Rule) explain(b *strings.Builder, number, verb string) {
	fmt.Fprintf(b, "    %s%s (%s)\n", number, r.Origin, r.Origin.Field)
	line := func(label, text string) { fmt.Fprintf(b, "         %-6s %s\n", label, text) }
	line("who", r.Source.String())
	for _, may := range r.may() {
		line(verb, may)
	}
	for _, when := range r.when() {
		line("when", when)
	}
}

// String names the callers.
func (s Source) String() string {
	if s.Any {
		return "anybody, also without credentials"
	}
	names := make([]string, len(s.Principals))
	for i, p := range s.Principals {
		names[i] = p
		if sa, ok := strings.CutPrefix(p, TokenPrefix); ok {
			names[i] = "ServiceAccount " + strings.Replace(sa, ":", "/", 1)
		}
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, " or ")
}

func (r *Rule) may() []string {
	var out []string
	if r.CEL != nil {
		out = append(out, "what this expression holds for: "+strings.Join(strings.Fields(r.CEL.String()), " "))
		if !r.CEL.Uses().MCPMethod {
			out[0] += " (only tools/call, because it does not read request.mcp.method)"
		}
	}
	if r.MCP == nil {
		if r.CEL == nil {
			out = append(out, "send any request")
		}
		return out
	}
	for _, m := range r.MCP.Methods {
		switch {
		case m.Category:
			out = append(out, "call every MCP method of "+m.Name+"/")
		case len(m.Params) > 0:
			out = append(out, "call "+m.Name+" on "+quoted(m.Params))
		default:
			out = append(out, "call "+m.Name)
		}
	}
	if r.MCP.Base {
		out = append(out, "use the base protocol (initialize, ping, tools/list, completion/, logging/, notifications/, GET, DELETE of a session)")
	}
	return out
}

func (r *Rule) when() []string {
	var out []string
	if len(r.Methods) > 0 {
		out = append(out, "HTTP method is "+strings.Join(r.Methods, " or "))
	}
	if len(r.Hosts) > 0 {
		out = append(out, "host is "+strings.Join(r.Hosts, " or "))
	}
	if len(r.Paths) > 0 {
		paths := make([]string, len(r.Paths))
		for i, m := range r.Paths {
			paths[i] = fmt.Sprintf("%s %q", m.Type, m.Value)
		}
		out = append(out, "path matches "+strings.Join(paths, " or "))
	}
	for _, h := range r.Headers {
		verb := "is"
		if h.Regex {
			verb = "matches"
		}
		out = append(out, fmt.Sprintf("header %s %s %q", h.Name, verb, h.Value))
	}
	return out
}

func quoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}
