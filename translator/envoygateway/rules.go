package envoygateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/ledger"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/regex"
)

// part is one way in which a request can satisfy a rule. The parts of a rule are alternatives, and become one
// authorization rule each; the conditions of a part must all hold.
type part struct {
	headers []egv1a1.AuthorizationHeaderMatch
	cel     []string
	// early repeats one of headers as CEL, "" for none.
	early string
}

func (p part) and(conditions ...string) part {
	p.cel = append(slices.Clone(p.cel), some(conditions...)...)
	return p
}

func (p part) header(name string, values ...string) part {
	p.headers = append(slices.Clone(p.headers), egv1a1.AuthorizationHeaderMatch{Name: name, Values: values})
	return p
}

// names repeats a comparison of a header as CEL. Envoy evaluates the CEL of a rule before it compares headers and claims, and
// stops at the first condition that does not hold: most rules of a large Gateway are about other tools than the one called.
func (p part) names(header string, values []string) part {
	p.early = value(header) + " in " + cel.QuoteList(values)
	if len(values) == 1 {
		p.early = value(header) + " == " + cel.Quote(values[0])
	}
	if len(p.early) > maxNames {
		p.early = ""
	}
	return p
}

// maxNames is how long a repeated comparison may be, in bytes: with many names it costs more than it saves.
const maxNames = 512

// headerMethod is the pseudo-header of the HTTP method. operation.methods would ignore the case.
const headerMethod = ":method"

// caller is one credential that satisfies a rule's source.
type caller struct {
	principal string // "" for any caller
	jwt       *egv1a1.JWTPrincipal
	cel       string
}

// callers returns the credentials that a source names.
func callers(s plan.Source) []caller {
	if s.Any {
		return []caller{{}}
	}
	out := make([]caller, 0, len(s.Principals))
	for _, p := range s.Principals {
		if strings.HasPrefix(p, plan.SPIFFEPrefix) {
			out = append(out, caller{principal: p, cel: "connection.mtls && connection.uri_san_peer_certificate == " + cel.Quote(p)})
			continue
		}
		out = append(out, caller{principal: p, jwt: &egv1a1.JWTPrincipal{Provider: Provider, Claims: []egv1a1.JWTClaim{{Name: "sub", Values: []string{p}}}}})
	}
	return out
}

// allow renders a rule as authorization rules. The second result says why it cannot be, or is empty; an error is a fault of
// ours.
func allow(r *plan.Rule, p plan.Profile) ([]egv1a1.AuthorizationRule, string, error) {
	if why := unsupported(r); why != "" {
		return nil, why, nil
	}
	var out []egv1a1.AuthorizationRule
	for _, c := range callers(r.Source) {
		alternatives, err := parts(r, p, c.principal)
		if err != nil {
			return nil, "", err
		}
		for _, alternative := range alternatives {
			rule := c.rule(alternative)
			if why, err := tooMuch(rule.CEL, r.CEL != nil); why != "" || err != nil {
				return nil, why, err
			}
			rule.Name, rule.Action = ruleName(r.Origin.String(), len(out)), egv1a1.ActionAllow
			out = append(out, rule)
		}
	}
	return out, "", nil
}

// tooMuch returns which limit an expression exceeds, or "". Envoy Gateway would accept one that is nested too deep, and Envoy
// refuse it together with everybody's rules; only what a user has written can be. An error is a fault of ours.
func tooMuch(text string, written bool) (string, error) {
	if size := utf8.RuneCountInString(text); size > MaxExpression {
		return fmt.Sprintf("it needs %d characters of CEL in a SecurityPolicy, %d are allowed; shorten its paths, headers or expression, or split it", size, MaxExpression), nil
	}
	if !written {
		return "", nil
	}
	depth, err := cel.Nesting(text)
	if err == nil && depth > MaxNesting {
		return fmt.Sprintf("its CEL is nested %d deep, %d are allowed; write it flatter", depth, MaxNesting), nil
	}
	return "", err
}

// rule joins a caller and a part.
func (c caller) rule(p part) egv1a1.AuthorizationRule {
	var rule egv1a1.AuthorizationRule
	if c.jwt != nil || len(p.headers) > 0 {
		rule.Principal = &egv1a1.Principal{JWT: c.jwt, Headers: p.headers}
	}
	rule.CEL = all(append([]string{c.cel}, p.cel...)...)
	if early := all(p.early, rule.CEL); utf8.RuneCountInString(early) <= MaxExpression {
		rule.CEL = early
	}
	if rule.Principal == nil && rule.CEL == "" {
		rule.CEL = "true" // the CRD asks for one of them
	}
	return rule
}

// parts returns the alternatives of a rule; none where no request can satisfy it.
func parts(r *plan.Rule, p plan.Profile, principal string) ([]part, error) {
	var base part
	for _, h := range r.Headers {
		if !h.Regex {
			base = base.header(h.Name, h.Value)
		}
	}
	base = base.and(hosts(r.Hosts), paths(r.Paths)).and(headerPatterns(r.Headers)...)
	var out []part
	if r.CEL != nil && takes(r.Methods, "POST") {
		text, err := expression(r, p, principal)
		if err != nil {
			return nil, err
		}
		out = append(out, base.and(text))
	}
	switch {
	case r.MCP != nil:
		out = append(out, mcpParts(base, r, p)...)
	case r.CEL == nil && len(r.Methods) > 0:
		out = append(out, base.header(headerMethod, r.Methods...))
	case r.CEL == nil:
		out = append(out, base)
	}
	return out, nil
}

// takes reports whether a rule for some HTTP methods matches one of them.
func takes(methods []string, method string) bool {
	return len(methods) == 0 || slices.Contains(methods, method)
}

func mcpParts(base part, r *plan.Rule, p plan.Profile) []part {
	var out []part
	if takes(r.Methods, "POST") {
		out = calls(base.header(headerMethod, "POST").and(call(p)...), r.MCP, p)
	}
	if !r.MCP.Base {
		return out
	}
	// GET opens a stream, DELETE ends a session; neither is a call, so the router sets no method for them.
	var streams []string
	if takes(r.Methods, "GET") {
		streams = append(streams, "request.method == 'GET'")
	}
	if takes(r.Methods, "DELETE") {
		streams = append(streams, fmt.Sprintf("request.method == 'DELETE' && %s && %s != ''", sent(plan.HeaderSession), value(plan.HeaderSession)))
	}
	if len(streams) > 0 {
		out = append(out, base.and(either(streams), "!("+sent(p.MethodHeader)+")", version(p)))
	}
	return out
}

// calls are the alternatives of MCP calls: those of whole methods, those by the beginning of a method, and one for each
// method whose params are compared.
func calls(base part, m *plan.MCPMatch, p plan.Profile) []part {
	var whole, prefixes []string
	var named []part
	if m.Base {
		whole, prefixes = slices.Clone(plan.BaseMethods), slices.Clone(plan.BasePrefixes)
	}
	for _, method := range m.Methods {
		switch {
		case method.Category:
			prefixes = append(prefixes, method.Name+"/")
		case len(method.Params) == 0:
			whole = append(whole, method.Name)
		default:
			call := base.header(p.MethodHeader, method.Name).header(p.ParamHeader(method.Name), method.Params...).names(p.ParamHeader(method.Name), method.Params)
			if p.NeedsServer(method.Name) {
				call = call.and(server(p))
			}
			named = append(named, call)
		}
	}
	var out []part
	if len(whole) > 0 {
		slices.Sort(whole)
		out = append(out, base.header(p.MethodHeader, slices.Compact(whole)...))
	}
	if len(prefixes) > 0 {
		var begin []string
		for _, prefix := range prefixes {
			begin = append(begin, value(p.MethodHeader)+".startsWith("+cel.Quote(prefix)+")")
		}
		out = append(out, base.and(sent(p.MethodHeader), single(p.MethodHeader), either(begin)))
	}
	return append(out, named...)
}

// unsupported returns why a rule cannot be written, from the ledger and from the limits of regular expressions.
func unsupported(r *plan.Rule) string {
	for _, use := range ledger.Of(r) {
		if use.EnvoyGateway.How == ledger.Unsupported {
			return fmt.Sprintf("%s has %s, which Envoy cannot check: %s", use.Field, use.Name, use.EnvoyGateway.Note)
		}
	}
	for _, h := range r.Headers {
		if len(h.Name) > MaxHeaderName {
			return fmt.Sprintf("%s.authorization.headers has a name of %d characters, a SecurityPolicy takes %d", r.Origin.Field, len(h.Name), MaxHeaderName)
		}
	}
	for _, expr := range patterns(r) {
		if size, err := regex.ProgramSize(expr); err != nil || size > MaxProgram {
			return fmt.Sprintf("%s has a host or regular expression that compiles to up to %d instructions, Envoy takes %d; shorten it", r.Origin.Field, size, MaxProgram)
		}
	}
	return ""
}

// ruleName is the name of a rule, with #2 and so on for the further authorization rules of one, cut to the length that fits
// with a hash of the whole in its place.
func ruleName(name string, n int) string {
	if n > 0 {
		name = fmt.Sprintf("%s#%d", name, n+1)
	}
	if len(name) <= MaxRuleName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "#" + hex.EncodeToString(sum[:])[:16]
	return name[:MaxRuleName-len(suffix)] + suffix
}
