// Package ledger says, for each kind of condition that a rule can have, what each emitter makes of it. The emitters look
// here before they write a rule, so the table in docs/enforcers.md is what they do.
package ledger

import (
	"fmt"
	"slices"

	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/plan"
)

// How is the way in which an enforcer checks a condition.
type How string

// The ways. An unsupported condition drops the whole rule that has it, so that access gets smaller and never larger.
const (
	Native      How = "native"
	CEL         How = "CEL"
	Unsupported How = "unsupported"
)

// Entry is what one emitter does with a condition. Note says with what, or why not.
type Entry struct {
	How  How
	Note string
}

func native(note string) Entry     { return Entry{Native, note} }
func expression(note string) Entry { return Entry{CEL, note} }
func unsupported(why string) Entry { return Entry{Unsupported, why} }

// Condition is a row of the ledger. There is no way to make one without an entry for every emitter.
type Condition struct {
	// Name is what the user wrote: fields of XAccessPolicy, or what an expression reads.
	Name                   string
	Kuadrant, EnvoyGateway Entry
}

// All are the conditions in the order of the documentation.
var All []*Condition

func condition(name string, kuadrant, envoyGateway Entry) *Condition {
	c := &Condition{Name: name, Kuadrant: kuadrant, EnvoyGateway: envoyGateway}
	All = append(All, c)
	return c
}

// The conditions of a rule. Kuadrant's entries speak of Authorino, Envoy Gateway's of a SecurityPolicy with authorization.
var (
	AnyCaller = condition("source left out: any caller",
		native("an anonymous identity beside the others"), native("no principal.jwt; jwt.failOpen where tokens are read at all"))
	ServiceAccount = condition("source.serviceAccount",
		native("kubernetesTokenReview, or jwt"), native("principal.jwt: the claim sub of a token that the API server's keys verify"))
	SPIFFE = condition("source.spiffe",
		expression("source.principal, or x-forwarded-client-cert"),
		expression("connection.uri_san_peer_certificate, where a ClientTrafficPolicy verifies client certificates"))
	Methods = condition("methods",
		expression("request.method"), native("principal.headers on :method, since operation.methods ignores the case"))
	PathExact = condition("paths of type Exact",
		expression("the path without its query"), expression("request.url_path; the guard against hostile paths has no native field"))
	PathPrefix = condition("paths of type PathPrefix",
		expression("the path without its query"), expression("request.url_path; the guard against hostile paths has no native field"))
	PathRegex = condition("paths of type RegularExpression",
		expression("matches()"), expression("matches(), for expressions that Envoy takes (100 instructions)"))
	HeaderExact = condition("headers of type Exact",
		expression("request.headers"), native("principal.headers"))
	HeaderRegex = condition("headers of type RegularExpression",
		expression("matches()"), expression("matches(), for expressions that Envoy takes (100 instructions)"))
	HostExact = condition("hosts",
		expression("request.host, lower-cased, without its port"), expression("request.host.matches(), in any case and with any port"))
	HostWildcard = condition("hosts with *.",
		expression("request.host, lower-cased, without its port"), expression("request.host.matches(), in any case and with any port"))
	MCPMethod = condition("mcp.methods",
		expression("the method header, guarded"), native("principal.headers, with a CEL guard for content type and protocol version"))
	MCPCategory = condition("mcp.methods with a category (tools, prompts, resources)",
		expression("the method header, guarded"), expression("startsWith() on the method header, guarded"))
	MCPParams = condition("mcp.methods[].params",
		expression("the name header, guarded"), native("principal.headers, with a CEL guard for the server, content type and protocol version"))
	MCPBase = condition("mcp.mcpBaseProtocolMethodsOption: MATCH_BASE_PROTOCOL_METHODS",
		expression("the method header, guarded"), expression("the method header, guarded"))
)

// What a CEL rule reads.
var (
	CELMethod = condition("cel: request.method", expression("request.method"), expression("request.method"))
	CELPath   = condition("cel: request.path, request.url_path", expression("request.path"), expression("request.path, request.url_path"))
	CELHost   = condition("cel: request.host", expression("lower-cased, without its port"),
		unsupported("Envoy's CEL has no lowerAscii(), so the case and the port of the host cannot be taken off; use hosts"))
	CELHeaders      = condition("cel: request.headers", expression("request.headers"), expression("request.headers"))
	CELTime         = condition("cel: request.time", expression("whole seconds"), expression("with fractions of a second"))
	CELMCP          = condition("cel: request.mcp.*", expression("headers, guarded"), expression("headers, guarded"))
	CELPrincipal    = condition("cel: source.principal beside a source", expression("the identity's principals"), expression("the source's own text, written in"))
	CELAnyPrincipal = condition("cel: source.principal without a source", expression("the identity's principals"),
		unsupported("Envoy has no one name for the callers that a token and a certificate prove; name them in source, one rule each"))
	CELIdentity = condition("cel: auth.identity", expression("Authorino's identity object"),
		unsupported("only Authorino knows groups and other facts about the caller; name callers in source, or use the enforcer kuadrant"))
)

// What a CEL rule does with it.
var (
	celFeatures = map[cel.Feature]*Condition{
		cel.FeatureLogic:         same(cel.FeatureLogic),
		cel.FeatureComparison:    same(cel.FeatureComparison),
		cel.FeatureMembership:    same(cel.FeatureMembership),
		cel.FeatureSize:          same(cel.FeatureSize),
		cel.FeatureSearch:        same(cel.FeatureSearch),
		cel.FeatureMatches:       feature(cel.FeatureMatches, expression("for expressions that Envoy takes (100 instructions)")),
		cel.FeatureArithmetic:    same(cel.FeatureArithmetic),
		cel.FeatureConversion:    same(cel.FeatureConversion),
		cel.FeatureTimeParts:     same(cel.FeatureTimeParts),
		cel.FeatureMilliseconds:  feature(cel.FeatureMilliseconds, unsupported("request.time has whole seconds for Authorino and fractions for Envoy")),
		cel.FeatureTimeZone:      feature(cel.FeatureTimeZone, unsupported("whether Envoy knows the zone depends on its image; use UTC")),
		cel.FeatureConcatenation: feature(cel.FeatureConcatenation, unsupported("Envoy's CEL has no + of strings or lists; compare the parts")),
		cel.FeatureToString:      feature(cel.FeatureToString, unsupported("Envoy's CEL has no string(); compare values of one type")),
		cel.FeatureStrings:       feature(cel.FeatureStrings, unsupported("Envoy's CEL has none of them; use startsWith(), endsWith(), contains() or matches()")),
		cel.FeatureComprehension: feature(cel.FeatureComprehension, unsupported("Envoy's CEL has no comprehensions; write the cases out, or use in")),
		cel.FeaturePresence:      feature(cel.FeaturePresence, unsupported("it is only of use on auth.identity, which Envoy does not have")),
	}
)

func feature(f cel.Feature, envoyGateway Entry) *Condition {
	return condition("cel: "+string(f), expression(""), envoyGateway)
}

func same(f cel.Feature) *Condition { return feature(f, expression("")) }

// Use is a condition that a rule has, with the place in the user's policy.
type Use struct {
	*Condition
	Field string
}

// Of lists what a rule asks for. An operation of CEL that is in no group is listed as unsupported everywhere.
func Of(r *plan.Rule) []Use {
	field := r.Origin.Field
	at := field + ".authorization"
	var out []Use
	add := func(c *Condition, field string) {
		if !slices.ContainsFunc(out, func(u Use) bool { return u.Condition == c }) {
			out = append(out, Use{c, field})
		}
	}
	if r.Source.Any {
		add(AnyCaller, field+".source")
	}
	for _, principal := range r.Source.Principals {
		add(ofPrincipal(principal), field+".source")
	}
	if len(r.Methods) > 0 {
		add(Methods, at+".methods")
	}
	for i, m := range r.Paths {
		add(map[plan.PathType]*Condition{plan.PathExact: PathExact, plan.PathPrefix: PathPrefix, plan.PathRegex: PathRegex}[m.Type], index(at+".paths", i))
	}
	for _, h := range r.Headers {
		add(choose(h.Regex, HeaderRegex, HeaderExact), at+".headers")
	}
	for i, h := range r.Hosts {
		add(choose(h[0] == '*', HostWildcard, HostExact), index(at+".hosts", i))
	}
	if r.MCP != nil {
		if r.MCP.Base {
			add(MCPBase, at+".mcp.mcpBaseProtocolMethodsOption")
		}
		for _, m := range r.MCP.Methods {
			add(choose(m.Category, MCPCategory, MCPMethod), at+".mcp.methods")
			if len(m.Params) > 0 {
				add(MCPParams, at+".mcp.methods")
			}
		}
	}
	if r.CEL != nil {
		for _, c := range ofExpression(r) {
			add(c, at+".cel.expression")
		}
	}
	return out
}

func ofPrincipal(principal string) *Condition {
	return choose(len(principal) > len(plan.SPIFFEPrefix) && principal[:len(plan.SPIFFEPrefix)] == plan.SPIFFEPrefix, SPIFFE, ServiceAccount)
}

func ofExpression(r *plan.Rule) []*Condition {
	uses := r.CEL.Uses()
	var out []*Condition
	for _, u := range []struct {
		used bool
		c    *Condition
	}{
		{uses.Method, CELMethod},
		{uses.Path, CELPath},
		{uses.Host, CELHost},
		{len(uses.Headers) > 0, CELHeaders},
		{uses.Time, CELTime},
		{uses.MCPMethod || uses.Tool || uses.Prompt || uses.Server || uses.Resource, CELMCP},
		{uses.Principal, choose(r.Source.Any, CELAnyPrincipal, CELPrincipal)},
		{uses.Identity, CELIdentity},
	} {
		if u.used {
			out = append(out, u.c)
		}
	}
	for _, f := range uses.Features {
		c := celFeatures[f]
		if c == nil {
			unknown := unsupported("this operation is not known to work in Envoy")
			c = &Condition{Name: "cel: " + string(f), Kuadrant: expression(""), EnvoyGateway: unknown}
		}
		out = append(out, c)
	}
	return out
}

func choose(first bool, a, b *Condition) *Condition {
	if first {
		return a
	}
	return b
}

func index(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
