package translator

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/regex"
)

// Limits and patterns of the CRD (api/v1alpha1 markers), checked again because input does not always come through an API
// server that knows the same CRD.
const (
	maxTargetRefs = 10
	maxRules      = 10
	maxList       = 10
	maxPath       = 1024
	maxHeader     = 4096
	maxParam      = 20
	maxRuleName   = 63
	maxSPIFFE     = 2048 // SPIFFE ID specification, 2.3
)

var (
	ruleNamePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	spiffePattern   = regexp.MustCompile(`^spiffe://[a-z0-9._-]+(?:/[A-Za-z0-9._-]+)*$`)
	httpMethods     = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}
	mcpCategories   = []string{"tools", "prompts", "resources"}
	mcpMethods      = []string{"prompts/list", "tools/list", "resources/list", "resources/templates/list", "prompts/get",
		"tools/call", "resources/subscribe", "resources/unsubscribe", "resources/read"}
	mcpParamMethods = []string{"prompts/get", "tools/call", "resources/subscribe", "resources/unsubscribe", "resources/read"}
)

// compiledRule is a rule before it is known on which listener it stands.
type compiledRule struct {
	plan.Rule
	// ports chooses listeners; empty for all.
	ports []int32
}

// compiled is what a policy says, independent of its targets.
type compiled struct {
	name     types.NamespacedName
	action   v1alpha1.AccessPolicyActionType
	rules    []compiledRule
	problems []Problem
	findings []plan.Finding
}

// compiler turns one policy into rules. Every field of the API is read here and nowhere else. A condition that grants
// nothing leaves its rule out; it never becomes the absence of a condition.
type compiler struct {
	opts   Options
	vocab  cel.Vocabulary
	out    compiled
	issues problems
	// regexSize is the sum over the policy.
	regexSize int
	// lenient is set for ExternalAuth: a condition that is not supported is left out, so that more is refused.
	lenient bool
}

func compile(p Policy, opts Options) compiled {
	name := types.NamespacedName{Namespace: p.Object.Namespace, Name: p.Object.Name}
	spec := p.Object.Spec
	c := compiler{opts: opts, vocab: vocabulary(opts.Profile), lenient: spec.Action == v1alpha1.ActionTypeExternalAuth}
	c.out = compiled{name: name, action: spec.Action}
	c.issues = append(c.issues, p.Problems...)
	c.names(name)
	c.shape(spec)
	for i, rule := range spec.Rules {
		c.rule(rule, fmt.Sprintf("spec.rules[%d]", i))
	}
	if c.regexSize > regex.MaxPolicySize {
		c.issues.invalid("spec.rules", "the regular expressions compile to %d instructions together, %d are allowed in a policy; shorten them", c.regexSize, regex.MaxPolicySize)
	}
	switch {
	case len(c.issues) > 0:
	case spec.Rules == nil && spec.Action == v1alpha1.ActionTypeAllow:
		c.out.rules = []compiledRule{{Rule: plan.Rule{Origin: plan.Origin{Policy: name, Field: "spec.rules"}, Source: plan.Source{Any: true}}}}
		c.warn("", "spec.rules", "AllowsEverything", "rules are left out, so every request of every caller is allowed; write rules, or rules: [] to allow none")
	case spec.Rules != nil && len(spec.Rules) == 0 && c.lenient:
		c.warn("", "spec.rules", "DelegatesNothing", "rules is an empty list, so the policy delegates nothing; add a rule")
	case spec.Rules != nil && len(spec.Rules) == 0:
		c.warn("", "spec.rules", "GrantsNothing", "rules is an empty list, so the policy grants nothing; add a rule")
	}
	c.out.problems = c.issues
	return c.out
}

func (c *compiler) names(name types.NamespacedName) {
	for _, msg := range validation.IsDNS1123Subdomain(name.Name) {
		c.issues.invalid("metadata.name", "%s is not a name: %s", shorten(name.Name), msg)
	}
	for _, msg := range validation.IsDNS1123Label(name.Namespace) {
		c.issues.invalid("metadata.namespace", "%s is not a namespace: %s", shorten(name.Namespace), msg)
	}
}

// shape checks what concerns the policy as a whole.
func (c *compiler) shape(spec v1alpha1.AccessPolicySpec) {
	switch n := len(spec.TargetRefs); {
	case n == 0:
		c.issues.invalid("spec.targetRefs", "the policy targets nothing; name a Gateway")
	case n > maxTargetRefs:
		c.issues.invalid("spec.targetRefs", "%d targets, at most %d are allowed", n, maxTargetRefs)
	}
	for i, ref := range spec.TargetRefs {
		if ref.Kind != spec.TargetRefs[0].Kind {
			c.issues.invalid(fmt.Sprintf("spec.targetRefs[%d].kind", i), "all targetRefs must have the same kind")
		}
		c.target(ref, fmt.Sprintf("spec.targetRefs[%d]", i))
	}
	switch {
	case spec.Action == v1alpha1.ActionTypeExternalAuth && spec.ExternalAuth == nil:
		c.issues.invalid("spec.externalAuth", "externalAuth must be set when action is ExternalAuth")
	case spec.Action == v1alpha1.ActionTypeAllow && spec.ExternalAuth != nil:
		c.issues.invalid("spec.externalAuth", "externalAuth has no meaning with action Allow; remove it, or use action ExternalAuth in a policy of its own")
	}
	if n := len(spec.Rules); n > maxRules {
		c.issues.invalid("spec.rules", "%d rules, at most %d are allowed; split the policy", n, maxRules)
	}
	seen := map[string]bool{}
	for i, rule := range spec.Rules {
		if seen[rule.Name] {
			c.issues.invalid(fmt.Sprintf("spec.rules[%d].name", i), "the name %s stands twice; rule names must be unique in a policy", shorten(rule.Name))
		}
		seen[rule.Name] = true
	}
}

// target checks the names of a target; whether it exists is for later.
func (c *compiler) target(ref v1alpha1.LocalPolicyTargetReferenceWithSectionName, field string) {
	for _, msg := range validation.IsDNS1123Subdomain(string(ref.Name)) {
		c.issues.invalid(field+".name", "%s is not the name of an object: %s", shorten(string(ref.Name)), msg)
	}
	if ref.SectionName != nil {
		for _, msg := range validation.IsDNS1123Subdomain(string(*ref.SectionName)) {
			c.issues.invalid(field+".sectionName", "%s is not the name of a listener: %s", shorten(string(*ref.SectionName)), msg)
		}
	}
}

func (c *compiler) rule(rule v1alpha1.AccessRule, field string) {
	if len(rule.Name) > maxRuleName || !ruleNamePattern.MatchString(rule.Name) {
		c.issues.invalid(field+".name", "%s is not a rule name: 1 to %d of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit", shorten(rule.Name), maxRuleName)
	}
	out := compiledRule{Rule: plan.Rule{Origin: plan.Origin{Policy: c.out.name, Rule: rule.Name, Field: field}}}
	out.Source = c.source(rule.Source, field+".source")
	grants := true
	if a := rule.Authorization; a != nil {
		grants = c.authorization(a, &out, field+".authorization")
	}
	if grants {
		c.out.rules = append(c.out.rules, out)
	}
}

func (c *compiler) source(s *v1alpha1.AccessRuleSource, field string) plan.Source {
	if s == nil {
		return plan.Source{Any: true}
	}
	switch s.Type {
	case v1alpha1.AuthorizationSourceTypeServiceAccount:
		if s.SPIFFE != nil {
			c.issues.invalid(field+".spiffe", "spiffe is set although type is ServiceAccount; use one of them")
		}
		if s.ServiceAccount == nil {
			c.issues.invalid(field+".serviceAccount", "type is ServiceAccount but serviceAccount is missing")
			return plan.Source{}
		}
		return c.serviceAccount(*s.ServiceAccount, field+".serviceAccount")
	case v1alpha1.AuthorizationSourceTypeSPIFFE:
		if s.ServiceAccount != nil {
			c.issues.invalid(field+".serviceAccount", "serviceAccount is set although type is SPIFFE; use one of them")
		}
		if s.SPIFFE == nil {
			c.issues.invalid(field+".spiffe", "type is SPIFFE but spiffe is missing")
			return plan.Source{}
		}
		return c.spiffe(string(*s.SPIFFE), field+".spiffe")
	case "":
		c.issues.invalid(field+".type", "a source needs a type, ServiceAccount or SPIFFE; leave source out to mean any caller")
	default:
		c.issues.unsupported(field+".type", "the source type %s is not known", shorten(string(s.Type)))
	}
	return plan.Source{}
}

func (c *compiler) serviceAccount(sa v1alpha1.AuthorizationSourceServiceAccount, field string) plan.Source {
	namespace := sa.Namespace
	if namespace == "" {
		namespace = c.out.name.Namespace
	}
	bad := false
	for _, msg := range validation.IsDNS1123Subdomain(sa.Name) {
		bad = true
		c.issues.invalid(field+".name", "%s is not the name of a ServiceAccount: %s", shorten(sa.Name), msg)
	}
	for _, msg := range validation.IsDNS1123Label(namespace) {
		bad = true
		c.issues.invalid(field+".namespace", "%s is not a namespace: %s", shorten(namespace), msg)
	}
	if bad {
		return plan.Source{}
	}
	principals := []string{plan.TokenPrefix + namespace + ":" + sa.Name}
	if td := c.opts.TrustDomain; td != "" {
		principals = append(principals, plan.SPIFFEPrefix+td+"/ns/"+namespace+"/sa/"+sa.Name)
	}
	return plan.Source{Principals: plan.SortedPrincipals(principals...)}
}

func (c *compiler) spiffe(id string, field string) plan.Source {
	if _, err := spiffeid.FromString(id); err != nil || !spiffePattern.MatchString(id) || len(id) > maxSPIFFE {
		why := "it does not have the form spiffe://trust-domain/path"
		if err != nil {
			why = err.Error()
		}
		c.issues.invalid(field, "%s is not a SPIFFE ID: %s", shorten(id), why)
		return plan.Source{}
	}
	return plan.Source{Principals: []string{id}}
}

// authorization returns false where the rule can grant nothing although it is valid.
func (c *compiler) authorization(a *v1alpha1.AuthorizationRule, out *compiledRule, field string) bool {
	out.Methods = c.methods(a.Methods, field+".methods")
	out.Paths = c.paths(a.Paths, field+".paths")
	out.Headers = c.headers(a.Headers, field+".headers")
	out.Hosts = c.hosts(a.Hosts, field+".hosts")
	out.ports = c.ports(a.Ports, field+".ports")
	grants := true
	switch a.Type {
	case v1alpha1.AuthorizationRuleTypeInline:
		if a.CEL != nil {
			c.issues.invalid(field+".cel", "cel is set although type is Inline; use type CEL")
		}
		out.MCP, grants = c.mcp(a.MCP, out.Origin, field+".mcp")
	case v1alpha1.AuthorizationRuleTypeCEL:
		if a.CEL == nil {
			c.issues.invalid(field+".cel", "type is CEL but cel is missing")
			return false
		}
		grants = c.celRule(a, out, field)
	case "":
		c.issues.invalid(field+".type", "the type is missing: Inline or CEL")
	default:
		c.issues.unsupported(field+".type", "the authorization type %s is not known", shorten(string(a.Type)))
	}
	if out.MCP != nil && (len(out.Hosts) > 0 || len(out.Paths) > 0) {
		c.warn(out.Origin.Rule, field, "HostOfUpstream", "mcp stands beside hosts or paths: for calls that the MCP router sends on, host and path are those of the upstream server, not of the address that the agent called")
	}
	return grants
}

// celRule returns false where the rule can grant nothing.
func (c *compiler) celRule(a *v1alpha1.AuthorizationRule, out *compiledRule, field string) bool {
	expression, err := cel.Compile(a.CEL.Expression, c.vocab)
	if err != nil {
		c.issues.add(v1alpha1.PolicyReasonInvalidCEL, field+".cel.expression", "%s", err.Error())
		return false
	}
	if a.MCP != nil && len(a.MCP.Methods) > 0 {
		c.issues.invalid(field+".mcp.methods", "methods beside a CEL expression are ambiguous; compare request.mcp.method in the expression, or write a rule of its own")
	}
	if a.MCP != nil && c.baseOption(a.MCP, field+".mcp") {
		out.MCP = &plan.MCPMatch{Base: true}
	}
	if uses := expression.Uses(); !uses.MCPMethod && (uses.Prompt || uses.Resource) && !c.lenient {
		c.warn(out.Origin.Rule, field+".cel.expression", "GrantsNothing", "without request.mcp.method the expression is about tools/call, which names no prompt or resource, so it matches nothing; "+
			"add a comparison such as request.mcp.method == 'prompts/get'")
		return out.MCP != nil
	}
	c.regexSize += expression.Uses().RegexSize
	out.CEL = expression
	// What cannot be rendered is this policy's fault, never an error for everybody.
	if err := kuadrant.Expressible(out.Rule, c.opts.Profile, c.lenient); err != nil {
		c.issues.add(v1alpha1.PolicyReasonInvalidCEL, field+".cel.expression", "%s", err.Error())
	}
	return true
}

func (c *compiler) methods(list []v1alpha1.HTTPMethod, field string) []string {
	out := make([]string, 0, len(list))
	for i, m := range list {
		if !slices.Contains(httpMethods, string(m)) {
			c.issues.unsupported(index(field, i), "%s is not an HTTP method that the API knows", shorten(string(m)))
		}
		out = append(out, string(m))
	}
	return c.set(out, field)
}

func (c *compiler) paths(list []v1alpha1.HTTPPathMatch, field string) []plan.PathMatch {
	c.length(len(list), field)
	var out []plan.PathMatch
	for i, m := range list {
		kind, value := v1alpha1.PathMatchPathPrefix, ""
		if m.Type != nil {
			kind = *m.Type
		}
		if m.Value != nil {
			value = *m.Value
		}
		at := index(field, i) + ".value"
		if utf8.RuneCountInString(value) > maxPath {
			c.issues.invalid(at, "longer than %d characters", maxPath)
		}
		switch kind {
		case v1alpha1.PathMatchExact:
			if !strings.HasPrefix(value, "/") {
				c.issues.invalid(at, "%s must begin with /", shorten(value))
			}
		case v1alpha1.PathMatchPathPrefix:
			if value != "" && !strings.HasPrefix(value, "/") {
				c.issues.invalid(at, "%s must begin with /", shorten(value))
			}
			value = strings.TrimRight(value, "/")
		case v1alpha1.PathMatchRegularExpression:
			c.regex(value, at)
		default:
			c.issues.unsupported(index(field, i)+".type", "the path match type %s is not known", shorten(string(kind)))
		}
		out = append(out, plan.PathMatch{Type: plan.PathType(kind), Value: value})
	}
	return out
}

func (c *compiler) regex(value, field string) {
	if size, err := regex.Size(value); err == nil {
		c.regexSize += size
	}
	if _, err := regex.Whole(value); err != nil {
		c.issues.invalid(field, "%s: %s", shorten(value), err.Error())
	}
}

func (c *compiler) headers(list []v1alpha1.HTTPHeaderMatch, field string) []plan.HeaderMatch {
	c.length(len(list), field)
	var out []plan.HeaderMatch
	for i, m := range list {
		name := strings.ToLower(string(m.Name))
		if !cel.ValidHeaderName(name) {
			c.issues.invalid(index(field, i)+".name", "%s is not a header name", shorten(string(m.Name)))
		}
		if why := c.vocab.ForbiddenHeader(name); why != "" {
			if !c.lenient {
				c.issues.unsupported(index(field, i)+".name", "%s cannot be matched: %s", shorten(name), why)
			}
			continue
		}
		at := index(field, i) + ".value"
		if n := utf8.RuneCountInString(m.Value); n == 0 || n > maxHeader {
			c.issues.invalid(at, "a header value has 1 to %d characters, this one %d", maxHeader, n)
		}
		match := plan.HeaderMatch{Name: name, Value: m.Value}
		switch {
		case m.Type == nil || *m.Type == v1alpha1.HeaderMatchExact:
		case *m.Type == v1alpha1.HeaderMatchRegularExpression:
			match.Regex = true
			c.regex(m.Value, at)
		default:
			c.issues.unsupported(index(field, i)+".type", "the header match type %s is not known", shorten(string(*m.Type)))
		}
		out = append(out, match)
	}
	return out
}

func (c *compiler) hosts(list []v1alpha1.Hostname, field string) []string {
	out := make([]string, 0, len(list))
	for i, h := range list {
		host := string(h)
		if errs := validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*.")); len(errs) > 0 {
			c.issues.invalid(index(field, i), "%s is not a host name, with or without *. before it", shorten(host))
		}
		out = append(out, host)
	}
	return c.set(out, field)
}

func (c *compiler) ports(list []v1alpha1.PortNumber, field string) []int32 {
	c.length(len(list), field)
	var out []int32
	for i, p := range list {
		if p < 1 || p > 65535 {
			c.issues.invalid(index(field, i), "%d is not a port", p)
		}
		if slices.Contains(out, int32(p)) {
			c.issues.invalid(index(field, i), "%d stands twice", p)
		}
		out = append(out, int32(p))
	}
	return out
}

// mcp returns nil for no MCP condition, and false where nothing can match.
func (c *compiler) mcp(m *v1alpha1.MCPAttributes, origin plan.Origin, field string) (*plan.MCPMatch, bool) {
	if m == nil {
		return nil, true
	}
	base := c.baseOption(m, field)
	if len(m.Methods) == 0 && !base {
		c.warn(origin.Rule, field, "NoMCPCondition", "mcp names no method and no base protocol, so it restricts nothing: every request is allowed, GET too; name methods, or leave mcp out if that is what you mean")
		return nil, true
	}
	c.length(len(m.Methods), field+".methods")
	out := &plan.MCPMatch{Base: base}
	seen := map[v1alpha1.MCPMethodName]bool{}
	for i, method := range m.Methods {
		at := index(field+".methods", i)
		if seen[method.Name] {
			c.issues.invalid(at+".name", "%s stands twice", shorten(string(method.Name)))
		}
		seen[method.Name] = true
		if entry, grants := c.mcpMethod(method, origin, at); grants {
			out.Methods = append(out.Methods, entry)
		}
	}
	return out, base || len(out.Methods) > 0
}

func (c *compiler) baseOption(m *v1alpha1.MCPAttributes, field string) bool {
	switch m.MCPBaseProtocolMethodsOption {
	case v1alpha1.MCPBaseProtocolMethodsOptionMatch:
		return true
	case v1alpha1.MCPBaseProtocolMethodsOptionSkip, "":
	default:
		c.issues.unsupported(field+".mcpBaseProtocolMethodsOption", "%s is not known", shorten(string(m.MCPBaseProtocolMethodsOption)))
	}
	return false
}

func (c *compiler) mcpMethod(m v1alpha1.MCPMethod, origin plan.Origin, field string) (plan.MCPMethod, bool) {
	name := string(m.Name)
	out := plan.MCPMethod{Name: name, Category: slices.Contains(mcpCategories, name)}
	if !out.Category && !slices.Contains(mcpMethods, name) {
		c.issues.unsupported(field+".name", "the MCP method %s is not known", shorten(name))
		return out, false
	}
	if len(m.Params) == 0 {
		return out, true
	}
	if !slices.Contains(mcpParamMethods, name) {
		c.issues.invalid(field+".params", "%s takes no params", name)
		return out, false
	}
	if c.opts.Profile.ParamHeader(name) == "" {
		if c.lenient {
			return out, true // which one is asked for cannot be told, so all are refused
		}
		c.issues.unsupported(field+".params", "the profile %s has no header that tells what %s names; leave params out, or use a gateway that sets one", c.opts.Profile.Name, name)
		return out, false
	}
	params := make([]string, 0, len(m.Params))
	for i, p := range m.Params {
		param := string(p)
		switch n := utf8.RuneCountInString(param); {
		case n > maxParam:
			c.issues.invalid(index(field+".params", i), "%s is longer than %d characters, which the API does not allow; use a CEL rule: request.mcp.tool_name == …", shorten(param), maxParam)
		case n == 0 && !c.lenient:
			c.warn(origin.Rule, index(field+".params", i), "GrantsNothing", "an empty name matches no call; remove it")
			continue
		case strings.Contains(param, ",") && !strings.HasPrefix(name, "resources/") && !c.lenient:
			c.warn(origin.Rule, index(field+".params", i), "GrantsNothing", "a name with a comma is never believed, because two headers arrive joined by one; rename the tool or prompt")
			continue
		}
		params = append(params, param)
	}
	out.Params = c.set(params, field+".params")
	return out, len(out.Params) > 0
}

// set checks a list that the API declares a set and returns it, nil when empty.
func (c *compiler) set(list []string, field string) []string {
	c.length(len(list), field)
	seen := map[string]bool{}
	for i, v := range list {
		if seen[v] {
			c.issues.invalid(index(field, i), "%s stands twice", shorten(v))
		}
		seen[v] = true
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

func (c *compiler) length(n int, field string) {
	if n > maxList {
		c.issues.invalid(field, "%d entries, at most %d are allowed", n, maxList)
	}
}

func (c *compiler) warn(rule, field, reason, message string) {
	c.out.findings = append(c.out.findings, plan.Finding{Severity: plan.Warning, Reason: reason, Message: message,
		Origin: plan.Origin{Policy: c.out.name, Rule: rule, Field: field}})
}

func index(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// vocabulary says what CEL and header matches may read under a profile.
func vocabulary(p plan.Profile) cel.Vocabulary {
	v := cel.Vocabulary{Unavailable: map[string]string{}}
	if p.ServerHeader == "" {
		v.Unavailable["request.mcp.server_name"] = "the profile " + p.Name + " has no header for it"
	}
	if p.ResourceHeader == "" {
		v.Unavailable["request.mcp.resource_uri"] = "the profile " + p.Name + " has no header for it"
	}
	own := []string{p.MethodHeader, p.ToolHeader, p.PromptHeader, p.ResourceHeader, p.ServerHeader, "mcp-method", "mcp-name"}
	v.ForbiddenHeader = func(name string) string {
		switch {
		case strings.HasPrefix(name, "x-mcp-") || slices.Contains(own, name):
			return "a client can send it; use mcp.methods, or request.mcp.* in CEL, which also check that the router set it"
		case name == "authorization" || name == "proxy-authorization" || name == "cookie":
			return "it carries a credential; use source"
		case name == "x-forwarded-client-cert":
			return "it carries an identity; use source"
		case name == "host":
			return "it reaches no policy as a header; use hosts, or request.host in CEL"
		}
		return ""
	}
	return v
}
