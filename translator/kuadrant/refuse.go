package kuadrant

import (
	"fmt"
	"slices"
	"strings"

	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/regex"
)

// refuse renders the conditions under which a request is refused because an ExternalAuth policy would have delegated it, in
// as many parts as the size of an expression needs. Each stands negated in a patternMatching evaluator of its own, where an
// error denies; they lean as plan's Refusal does. The second result is the policy of which one rule alone is too large.
func refuse(refusals []plan.Refusal, profile plan.Profile) ([]string, *plan.Origin, error) {
	if slices.ContainsFunc(refusals, func(r plan.Refusal) bool { return r.All }) {
		return []string{"true"}, nil, nil
	}
	var out, some []string
	b, size := newBuilder(profile), 0
	flush := func() {
		if len(some) > 0 {
			out = append(out, b.wrap(either(some)))
		}
		b, some, size = newBuilder(profile), nil, 0
	}
	for _, refusal := range refusals {
		for i := range refusal.Rules {
			text, err := newBuilder(profile).delegated(&refusal.Rules[i])
			if err != nil {
				return nil, nil, err
			}
			if len(text) > maxRefusal {
				return nil, &refusal.Rules[i].Origin, nil
			}
			if size+len(text) > maxRefusal {
				flush()
			}
			if text, err = b.delegated(&refusal.Rules[i]); err != nil { // marks the bindings it uses
				return nil, nil, err
			}
			some, size = append(some, text), size+len(text)
		}
	}
	flush()
	return out, nil, nil
}

// maxRefusal leaves room for the bindings.
const maxRefusal = MaxExpression - 10_000

func (b *builder) delegated(r *plan.Rule) (string, error) {
	all := []string{}
	if !r.Source.Any {
		all = append(all, fmt.Sprintf("%s.exists(%s, %[2]s in %[3]s)", b.use(varCallers), varPrincipal, cel.QuoteList(r.Source.Principals)))
	}
	if len(r.Methods) > 0 {
		all = append(all, "(!has(request.method) || request.method in "+cel.QuoteList(r.Methods)+")")
	}
	if len(r.Hosts) > 0 {
		all = append(all, fmt.Sprintf("(%s == '' || %s)", b.use(varHost), b.hosts(r.Hosts)))
	}
	if len(r.Paths) > 0 {
		all = append(all, fmt.Sprintf("(%[1]s == '' || size(%[1]s) > %[2]d || %[3]s)", b.use(varPath), regex.MaxValue, b.paths(r.Paths)))
	}
	for _, h := range r.Headers {
		doubt := hasComma(b.value(h.Name))
		if h.Regex {
			doubt += fmt.Sprintf(" || size(%s) > %d", b.value(h.Name), regex.MaxValue)
		}
		all = append(all, fmt.Sprintf("%s && (%s || %s)", b.sent(h.Name), doubt, b.headerCondition(h)))
	}
	var what []string
	if r.CEL != nil {
		text, err := b.celDelegated(r)
		if err != nil {
			return "", err
		}
		what = append(what, text)
	}
	if r.MCP != nil {
		what = append(what, b.mcpDelegated(r.MCP)...)
	}
	if r.CEL != nil || r.MCP != nil {
		all = append(all, either(what))
	}
	if len(all) == 0 {
		return "true", nil
	}
	return strings.Join(all, " && "), nil
}

// hasComma is the condition that a header was joined from several.
func hasComma(value string) string { return value + ".contains(',')" }

func (b *builder) mcpDelegated(m *plan.MCPMatch) []string {
	method := b.value(b.profile.MethodHeader)
	some := []string{hasComma(method)}
	if m.Base {
		some = append(some, "has(request.method) && request.method in ['GET','DELETE']", baseMethods(method))
	}
	for _, want := range m.Methods {
		switch header := b.profile.ParamHeader(want.Name); {
		case want.Category:
			some = append(some, method+".startsWith("+cel.Quote(want.Name+"/")+")")
		case len(want.Params) == 0 || header == "":
			some = append(some, method+" == "+cel.Quote(want.Name))
		default:
			name := b.value(header)
			some = append(some, fmt.Sprintf("%s == %s && (%[3]s == '' || %[4]s || %[3]s in %[5]s)", method, cel.Quote(want.Name),
				name, hasComma(name), cel.QuoteList(want.Params)))
		}
	}
	return some
}

// celDelegated refuses where the expression holds with the values that the profile believes or with those that were sent.
func (b *builder) celDelegated(r *plan.Rule) (string, error) {
	uses := r.CEL.Uses()
	believed := b.engine(uses)
	text, err := r.CEL.Render(believed)
	if err != nil {
		return "", fmt.Errorf("%s: %w", r.Origin, err)
	}
	raw := believed
	sent := func(header string) string {
		if header == "" {
			return "''"
		}
		return b.value(header)
	}
	raw.MCPMethod, raw.Tool, raw.Prompt = sent(b.profile.MethodHeader), sent(b.profile.ToolHeader), sent(b.profile.PromptHeader)
	raw.Server, raw.ResourceURI = sent(b.profile.ServerHeader), sent(b.profile.ResourceHeader)
	rawText, err := r.CEL.Render(raw)
	if err != nil {
		return "", fmt.Errorf("%s: %w", r.Origin, err)
	}
	holds := "(" + text + " || " + rawText + ")"
	if uses.Principal {
		if r.Source.Any {
			holds = b.forEachCaller(holds)
		} else {
			holds = fmt.Sprintf("%s.exists(%s, %[2]s in %[3]s && %[4]s)", b.use(varCallers), varPrincipal, cel.QuoteList(r.Source.Principals), holds)
		}
	}
	method := b.value(b.profile.MethodHeader)
	some := []string{hasComma(method), b.tooLong(uses), holds}
	if uses.Path {
		some = append(some, b.use(varPath)+" == ''")
	}
	if uses.Host {
		some = append(some, b.use(varHost)+" == ''")
	}
	for _, name := range uses.Headers {
		some = append(some, hasComma(b.value(name)))
	}
	if uses.MCPMethod {
		return either(some), nil
	}
	return fmt.Sprintf("(%s == 'tools/call' || %s) && %s", method, hasComma(method), either(some)), nil
}
