package kuadrant

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/regex"
)

// The lines that expressions are broken into are for people who read the object; YAML shows them as a block.
//
// CEL has no let, so a value that many conditions need is bound by a one-element comprehension:
// [value].exists(name, body). The names below are one letter long because they stand in every rule of a large object.
const (
	varHeaders   = "h" // request.headers, or {}
	varMethod    = "m" // MCP method that the profile believes, or ''
	varTool      = "t"
	varPrompt    = "q"
	varResource  = "r"
	varServer    = "s"
	varBase      = "b" // whether the request belongs to the base protocol
	varPath      = "u" // clean path, or ''
	varHost      = "d" // clean host, or ''
	varCallers   = "c" // list of the caller's principals, empty for an unidentified caller
	varPrincipal = "p" // one of them
	varKey       = "k" // a string that is looked up in a set
	varLong      = "l" // whether a header that names a call is longer than what CEL rules may read
)

// builder writes the conditions of one evaluator and remembers which bindings they use.
type builder struct {
	profile plan.Profile
	used    map[string]bool
	// headers are the names of the headers that are read; the value of headers[i] is bound as g<i>.
	headers []string
}

func newBuilder(profile plan.Profile) *builder {
	return &builder{profile: profile, used: map[string]bool{}}
}

func (b *builder) use(name string) string {
	b.used[name] = true
	return name
}

// binding is a bound variable: its value may use the names that stand before it in bindings.
type binding struct {
	name  string
	value func(*builder) string
}

// bindings, outermost first.
var bindings = []binding{
	{varLong, (*builder).longValue},
	{varCallers, func(*builder) string { return "has(auth.identity.principals) ? auth.identity.principals : []" }},
	{varMethod, (*builder).methodValue},
	{varServer, (*builder).serverValue},
	{varTool, func(b *builder) string { return b.namedValue("tools/call") }},
	{varPrompt, func(b *builder) string { return b.namedValue("prompts/get") }},
	{varResource, (*builder).resourceValue},
	{varBase, (*builder).baseValue},
	{varPath, (*builder).pathValue},
	{varHost, (*builder).hostValue},
}

// wrap puts the bindings that body uses around it.
func (b *builder) wrap(body string) string {
	bind := func(name, value string) { body = fmt.Sprintf("[%s].exists(%s,\n%s)", value, name, body) }
	for i := len(bindings) - 1; i >= 0; i-- {
		if b.used[bindings[i].name] {
			bind(bindings[i].name, bindings[i].value(b))
		}
	}
	for i := len(b.headers) - 1; i >= 0; i-- {
		bind(headerVariable(i), fmt.Sprintf("%s ? %s[%s] : ''", b.sent(b.headers[i]), varHeaders, cel.Quote(b.headers[i])))
	}
	if b.used[varHeaders] {
		bind(varHeaders, "has(request.headers) ? request.headers : {}")
	}
	return body
}

func headerVariable(i int) string { return fmt.Sprintf("g%d", i) }

// sent tells whether a header is there, value reads it, empty for a missing one. Neither can fail. A value is bound once:
// cel-go's type checker takes time in proportion to the square of the number of generic operators (==, in, [], ?:).
func (b *builder) sent(header string) string { return cel.Quote(header) + " in " + b.use(varHeaders) }

func (b *builder) value(header string) string {
	i := slices.Index(b.headers, header)
	if i < 0 {
		i = len(b.headers)
		b.headers = append(b.headers, header)
	}
	return headerVariable(i)
}

func (b *builder) versionOK() string {
	if len(b.profile.ProtocolVersions) == 0 {
		return "true"
	}
	return fmt.Sprintf("(!(%s) || %s[%s] in %s)", b.sent(plan.HeaderProtocolVersion), varHeaders,
		cel.Quote(plan.HeaderProtocolVersion), cel.QuoteList(b.profile.ProtocolVersions))
}

// methodValue is the MCP method of a POST with a JSON content type: elsewhere the router sets no header.
func (b *builder) methodValue() string {
	contentType := b.value(plan.HeaderContentType) + ".lowerAscii()"
	return fmt.Sprintf("has(request.method) && request.method == 'POST' && "+
		"(%[1]s == 'application/json' || %[1]s.startsWith('application/json;') && !%[1]s.contains(',')) && %[2]s && !%[4]s ? %[3]s : ''",
		contentType, b.versionOK(), b.value(b.profile.MethodHeader), hasComma(b.value(b.profile.MethodHeader)))
}

func (b *builder) serverValue() string {
	server := b.value(b.profile.ServerHeader)
	return fmt.Sprintf("%s != '' && %s != %s && !%s ? %s : ''", b.use(varMethod), server, cel.Quote(b.profile.BrokerServer), hasComma(server), server)
}

func (b *builder) namedValue(method string) string {
	server := ""
	if b.profile.NeedsServer(method) {
		server = b.use(varServer) + " != '' && "
	}
	name := b.value(b.profile.ParamHeader(method))
	return fmt.Sprintf("%s%s == %s && !%s ? %s : ''", server, b.use(varMethod), cel.Quote(method), hasComma(name), name)
}

func (b *builder) resourceValue() string {
	return fmt.Sprintf("%s in %s ? %s : ''", b.use(varMethod),
		cel.QuoteList([]string{"resources/read", "resources/subscribe", "resources/unsubscribe"}), b.value(b.profile.ResourceHeader))
}

func (b *builder) baseValue() string {
	return fmt.Sprintf("%s || has(request.method) && !(%s) && %s && (request.method == 'GET' || request.method == 'DELETE' && %s != '')",
		baseMethods(b.use(varMethod)), b.sent(b.profile.MethodHeader), b.versionOK(), b.value(plan.HeaderSession))
}

func baseMethods(method string) string {
	parts := []string{method + " in " + cel.QuoteList(plan.BaseMethods)}
	for _, prefix := range plan.BasePrefixes {
		parts = append(parts, method+".startsWith("+cel.Quote(prefix)+")")
	}
	return strings.Join(parts, " || ")
}

// pathValue is plan.CleanPath.
func (b *builder) pathValue() string {
	path := "(has(request.path) ? request.path.split('?', 2)[0] : '')"
	return fmt.Sprintf("%[1]s.startsWith('/') && !%[1]s.lowerAscii().matches(%[2]s) ? %[1]s : ''", path, cel.Quote(plan.HostilePath))
}

// hostValue is plan.CleanHost.
func (b *builder) hostValue() string {
	host := "(has(request.host) ? request.host.lowerAscii() : '')"
	bare := fmt.Sprintf("(%[1]s.matches(':[0-9]+$') ? %[1]s.substring(0, %[1]s.lastIndexOf(':')) : %[1]s)", host)
	return fmt.Sprintf("%[1]s.endsWith('.') ? '' : %[1]s", bare)
}

// httpConditions are the conditions of a rule besides source, mcp and cel.
func (b *builder) httpConditions(r *plan.Rule) []string {
	var all []string
	if len(r.Methods) > 0 {
		all = append(all, "has(request.method) && request.method in "+cel.QuoteList(r.Methods))
	}
	if len(r.Hosts) > 0 {
		all = append(all, b.hosts(r.Hosts))
	}
	if len(r.Paths) > 0 {
		all = append(all, b.paths(r.Paths))
	}
	for _, h := range r.Headers {
		all = append(all, b.headerCondition(h))
	}
	return all
}

// headerCondition compares a header that has to be there; a missing one is equal to no value that is not empty.
func (b *builder) headerCondition(h plan.HeaderMatch) string {
	if h.Regex {
		return b.sent(h.Name) + " && " + regexCondition(b.value(h.Name), h.Value)
	}
	same := b.value(h.Name) + " == " + cel.Quote(h.Value)
	if h.Value == "" {
		return b.sent(h.Name) + " && " + same
	}
	return same
}

// regexCondition is never for an expression that does not compile: those policies are refused before they get here.
func regexCondition(value, expr string) string {
	whole, err := regex.Whole(expr)
	if err != nil {
		return nothing
	}
	return fmt.Sprintf("size(%[1]s) <= %[2]d && %[1]s.matches(%[3]s)", value, regex.MaxValue, cel.Quote(whole))
}

func (b *builder) hosts(hosts []string) string {
	host := b.use(varHost)
	var some []string
	for _, h := range hosts {
		if suffix, wild := strings.CutPrefix(h, "*"); wild {
			some = append(some, fmt.Sprintf("%s.endsWith(%s) && size(%s) > %d", host, cel.Quote(suffix), host, len(suffix)))
		} else {
			some = append(some, host+" == "+cel.Quote(h))
		}
	}
	return host + " != '' && " + either(some)
}

func (b *builder) paths(paths []plan.PathMatch) string {
	path := b.use(varPath)
	var some []string
	for _, m := range paths {
		switch m.Type {
		case plan.PathExact:
			some = append(some, path+" == "+cel.Quote(m.Value))
		case plan.PathPrefix:
			some = append(some, fmt.Sprintf("(%s == %s || %s.startsWith(%s))", path, cel.Quote(m.Value), path, cel.Quote(m.Value+"/")))
		case plan.PathRegex:
			some = append(some, regexCondition(path, m.Value))
		}
	}
	return path + " != '' && " + either(some)
}

// nothing is the condition that never holds.
const nothing = "false"

// either is an OR in parentheses; of nothing it is false.
func either(parts []string) string {
	switch len(parts) {
	case 0:
		return nothing
	case 1:
		return "(" + parts[0] + ")"
	}
	for len(parts) > chain { // cel-go compiles a chain in time proportional to the square of its length
		var groups []string
		for group := range slices.Chunk(parts, chain) {
			groups = append(groups, "("+strings.Join(group, " || ")+")")
		}
		parts = groups
	}
	return "(" + strings.Join(parts, " || ") + ")"
}

// chain is how many terms of an OR stand beside each other.
const chain = 16

// leaf collects what one principal may do. Plain MCP rules melt into its sets; everything else is kept as a condition.
type leaf struct {
	everything          bool
	base                bool
	methods, categories map[string]bool
	tools, prompts      map[string]bool
	resources           map[string]map[string]bool
	conditions          []string
}

func newLeaf() *leaf {
	return &leaf{methods: map[string]bool{}, categories: map[string]bool{}, tools: map[string]bool{}, prompts: map[string]bool{},
		resources: map[string]map[string]bool{}}
}

func (l *leaf) add(b *builder, r *plan.Rule) error {
	http := b.httpConditions(r)
	switch {
	case r.CEL != nil:
		expr, err := b.expression(r)
		if err != nil {
			return err
		}
		l.condition(append(http, expr))
	case len(http) > 0 && r.MCP != nil:
		inner := newLeaf()
		inner.mcp(r.MCP)
		l.condition(append(http, inner.render(b)))
	case len(http) > 0:
		l.condition(http)
	case r.MCP != nil:
		l.mcp(r.MCP)
	default:
		l.everything = true
	}
	return nil
}

func (l *leaf) condition(all []string) {
	l.conditions = append(l.conditions, strings.Join(all, " && "))
}

func (l *leaf) mcp(m *plan.MCPMatch) {
	l.base = l.base || m.Base
	for _, method := range m.Methods {
		set := l.methods
		switch {
		case method.Category:
			set = l.categories
		case len(method.Params) == 0:
		case method.Name == "tools/call":
			set = l.tools
		case method.Name == "prompts/get":
			set = l.prompts
		default:
			if l.resources[method.Name] == nil {
				l.resources[method.Name] = map[string]bool{}
			}
			set = l.resources[method.Name]
		}
		for _, param := range method.Params {
			set[param] = true
		}
		if len(method.Params) == 0 {
			set[method.Name] = true
		}
	}
}

// render gives the leaf as one condition. The tool of a request is empty where it cannot be believed, and no set holds that.
func (l *leaf) render(b *builder) string {
	if l.everything {
		return "true"
	}
	var some []string
	if len(l.tools) > 0 {
		some = append(some, members(slices.Sorted(maps.Keys(l.tools)), b.use(varTool)))
	}
	if len(l.prompts) > 0 {
		some = append(some, members(slices.Sorted(maps.Keys(l.prompts)), b.use(varPrompt)))
	}
	if len(l.methods) > 0 {
		some = append(some, members(slices.Sorted(maps.Keys(l.methods)), b.use(varMethod)))
	}
	for _, category := range slices.Sorted(maps.Keys(l.categories)) {
		some = append(some, b.use(varMethod)+".startsWith("+cel.Quote(category+"/")+")")
	}
	for _, method := range slices.Sorted(maps.Keys(l.resources)) {
		some = append(some, b.use(varMethod)+" == "+cel.Quote(method)+" && "+members(slices.Sorted(maps.Keys(l.resources[method])), b.use(varResource)))
	}
	if l.base {
		some = append(some, b.use(varBase))
	}
	slices.Sort(l.conditions)
	return either(append(some, slices.Compact(l.conditions)...))
}

// expression renders a CEL rule with the guards of plan's reference evaluator: kept to MCP calls that can be believed, and
// bound to tools/call unless it speaks of the method.
func (b *builder) expression(r *plan.Rule) (string, error) {
	uses := r.CEL.Uses()
	text, err := r.CEL.Render(b.engine(uses))
	if err != nil {
		return "", fmt.Errorf("%s: %w", r.Origin, err)
	}
	all := []string{b.use(varMethod) + " != ''"}
	switch {
	case !uses.MCPMethod && uses.Tool: // a tool is there for tools/call only
		all[0] = b.use(varTool) + " != ''"
	case !uses.MCPMethod:
		all[0] = varMethod + " == 'tools/call'"
	}
	named := func(uses bool, methods []string, name string) {
		if uses {
			all = append(all, fmt.Sprintf("(!(%s in %s) || %s != '')", b.use(varMethod), cel.QuoteList(methods), name))
		}
	}
	named(uses.Tool && uses.MCPMethod, []string{"tools/call"}, varTool)
	named(uses.Prompt, []string{"prompts/get"}, varPrompt)
	named(uses.Server, []string{"tools/call", "prompts/get"}, varServer)
	if uses.Resource {
		all = append(all, fmt.Sprintf("(!%s.startsWith('resources/') || %s != '')", b.use(varMethod), varResource))
	}
	if uses.Path {
		all = append(all, b.use(varPath)+" != ''")
	}
	if uses.Host {
		all = append(all, varHost+" != ''")
	}
	if uses.Identity {
		all = append(all, "size("+b.use(varCallers)+") > 0")
	}
	all = append(all, "!"+b.tooLong(uses))
	text = "(" + text + ")"
	if uses.Principal && r.Source.Any {
		text = b.forEachCaller(text)
	}
	condition := strings.Join(append(all, text), " && ")
	if r.MCP != nil {
		base := newLeaf()
		base.mcp(r.MCP)
		condition = "(" + condition + " || " + base.render(b) + ")"
	}
	return condition, nil
}

// tooLong is the condition that the expression would read a longer value than what it is allowed to cost.
func (b *builder) tooLong(uses cel.Uses) string {
	var values []string
	if uses.Path {
		values = append(values, "(has(request.path) ? request.path : '')")
	}
	if uses.Host {
		values = append(values, "(has(request.host) ? request.host : '')")
	}
	for _, name := range uses.Headers {
		values = append(values, b.value(name))
	}
	return either(append([]string{b.use(varLong)}, longer(values)...))
}

func (b *builder) longValue() string {
	var values []string
	for _, name := range b.profile.NameHeaders() {
		values = append(values, b.value(name))
	}
	return strings.Join(longer(values), " || ")
}

func longer(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprintf("size(%s) > %d", v, regex.MaxValue)
	}
	return out
}

// forEachCaller binds p to each principal of the caller, or to an empty string for an unidentified one.
func (b *builder) forEachCaller(body string) string {
	return fmt.Sprintf("(size(%[1]s) == 0 ? [''] : %[1]s).exists(%[2]s, %[3]s)", b.use(varCallers), varPrincipal, body)
}

// engine says how Authorino's CEL spells the vocabulary, and marks the bindings used.
func (b *builder) engine(uses cel.Uses) cel.Engine {
	mark := func(used bool, name string) string {
		if used {
			b.use(name)
		}
		return name
	}
	e := cel.Engine{
		Method: "(has(request.method) ? request.method : '')",
		Path:   "(has(request.path) ? request.path : '')", URLPath: "(has(request.path) ? request.path.split('?', 2)[0] : '')",
		Host: mark(uses.Host, varHost), Time: "timestamp(int(request.time.seconds))",
		MCPMethod: mark(uses.MCPMethod, varMethod), Tool: mark(uses.Tool, varTool), Prompt: mark(uses.Prompt, varPrompt),
		Server: mark(uses.Server, varServer), ResourceURI: mark(uses.Resource, varResource),
		Principal: varPrincipal, Identity: "auth.identity",
		HeaderValue: b.value, HeaderPresent: b.sent,
	}
	return e
}

// grants renders the condition under which an evaluator with these rules grants. Its cost must not grow with the number of
// rules: grants of tools, which are most of them, become one set of "principal tool" strings; principals of which many may
// do the same become a set per what they may do; the rest is a decision tree over principals.
func grants(rules []plan.Rule, profile plan.Profile) (string, error) {
	b := newBuilder(profile)
	anyone := newLeaf()
	byPrincipal := map[string]*leaf{}
	for i := range rules {
		r := &rules[i]
		if r.Source.Any {
			if err := anyone.add(b, r); err != nil {
				return "", err
			}
			continue
		}
		for _, p := range r.Source.Principals {
			if byPrincipal[p] == nil {
				byPrincipal[p] = newLeaf()
			}
			if err := byPrincipal[p].add(b, r); err != nil {
				return "", err
			}
		}
	}
	var parts []string
	if text := anyone.render(b); text != nothing {
		parts = append(parts, text)
	}
	for _, text := range b.perPrincipal(byPrincipal) {
		parts = append(parts, fmt.Sprintf("%s.exists(%s,\n%s)", b.use(varCallers), varPrincipal, text))
	}
	return b.wrap(either(parts)), nil
}

// perPrincipal returns conditions on p, one of which must hold.
func (b *builder) perPrincipal(leaves map[string]*leaf) []string {
	var out, calls []string
	alike := map[string][]string{}
	for p, l := range leaves {
		if l.everything {
			l.tools = nil
		}
		for tool := range l.tools {
			calls = append(calls, p+" "+tool)
		}
		l.tools = nil
		if text := l.render(b); text != nothing {
			alike[text] = append(alike[text], p)
		}
	}
	if len(calls) > 0 {
		slices.Sort(calls)
		// A principal has no blank, so the pair cannot be read in two ways; nor is any tool empty.
		out = append(out, fmt.Sprintf("[%s + ' ' + %s].exists(%s,\n%s)", varPrincipal, b.use(varTool), varKey, members(calls, varKey)))
	}
	rest := map[string]string{}
	for _, text := range slices.Sorted(maps.Keys(alike)) {
		principals := alike[text]
		slices.Sort(principals)
		if len(principals) > bucket {
			out = append(out, members(principals, varPrincipal)+" && "+text)
			continue
		}
		for _, p := range principals {
			rest[p] = text
		}
	}
	if len(rest) > 0 {
		out = append(out, tree(slices.Sorted(maps.Keys(rest)), rest))
	}
	return out
}

// bucket is how many strings are compared one after the other at the end of a tree.
const bucket = 16

// tree renders what the principals may do as a balanced decision tree over their names: the cost of a lookup grows with
// the logarithm of their number.
func tree(principals []string, leaves map[string]string) string {
	first := leaves[principals[0]]
	if len(principals) <= bucket && !slices.ContainsFunc(principals, func(p string) bool { return leaves[p] != first }) {
		return among(principals, varPrincipal) + " && " + first
	}
	half := len(principals) / 2
	return fmt.Sprintf("(%s < %s ?\n%s :\n%s)", varPrincipal, cel.Quote(pivot(principals, half)),
		tree(principals[:half], leaves), tree(principals[half:], leaves))
}

// members renders whether a variable is one of the sorted values, as a decision tree with small lists at its ends. What
// all values of a branch begin with is compared once and cut off.
func members(values []string, variable string) string {
	if len(values) <= bucket {
		return among(values, variable)
	}
	if prefix := commonPrefix(values[0], values[len(values)-1]); len(prefix)*len(values) > minSaving {
		rest := make([]string, len(values))
		for i, v := range values {
			rest[i] = v[len(prefix):]
		}
		return fmt.Sprintf("(%s.startsWith(%s) && [%s.substring(%d)].exists(%s,\n%s))", variable, cel.Quote(prefix),
			variable, utf8.RuneCountInString(prefix), varKey, members(rest, varKey))
	}
	half := len(values) / 2
	return fmt.Sprintf("(%s < %s ?\n%s :\n%s)", variable, cel.Quote(pivot(values, half)), members(values[:half], variable), members(values[half:], variable))
}

// minSaving is how many characters cutting a prefix off must save to pay for the text that does it.
const minSaving = 120

func among(values []string, variable string) string {
	if len(values) == 1 {
		return variable + " == " + cel.Quote(values[0])
	}
	return variable + " in " + cel.QuoteList(values)
}

// commonPrefix is the longest text, in whole characters, with which both begin; of the first and the last of sorted values
// it is that of all.
func commonPrefix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n--
	}
	return a[:n]
}

// pivot is the shortest text that divides sorted values before an index: all before it are less, the rest are not.
func pivot(values []string, index int) string {
	n := len(commonPrefix(values[index-1], values[index]))
	_, size := utf8.DecodeRuneInString(values[index][n:])
	return values[index][:n+size]
}
