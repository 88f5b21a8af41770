package plan

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Request is one HTTP request as it is behind the MCP router, with the credentials that verified.
type Request struct {
	Method string
	// Host is the authority, with or without a port.
	Host string
	// Path is the request target with its query.
	Path string
	// Headers have lower-case names; a header sent twice is one value, joined by commas.
	Headers map[string]string
	// Token is what a verified bearer token says; nil without one.
	Token *Token
	// SPIFFE is the ID in a verified client certificate, or "".
	SPIFFE string
	// Time is the start of the request; only request.time in CEL reads it.
	Time time.Time
}

// Token is the part of a TokenReview status that rules can read.
type Token struct {
	Username string
	UID      string
	Groups   []string
}

// callers returns the principals of the request among the kinds in use. None: an unidentified caller.
func (r *Request) callers(ids Identities) []string {
	var out []string
	// The kinds of principal never mix, and no principal has a blank.
	if ids.Token && r.Token != nil && !strings.HasPrefix(r.Token.Username, SPIFFEPrefix) && !strings.Contains(r.Token.Username, " ") {
		out = append(out, r.Token.Username)
	}
	if ids.SPIFFE && r.SPIFFE != "" {
		out = append(out, r.SPIFFE)
	}
	return out
}

// identity is auth.identity as Authorino has it for the identity that wins: the token's, else the certificate's.
func (r *Request) identity(ids Identities) map[string]any {
	callers := r.callers(ids)
	object := map[string]any{"principal": "", "principals": callers}
	if len(callers) > 0 {
		object["principal"] = callers[0]
	}
	switch {
	case ids.Token && r.Token != nil:
		object["authenticated"] = true
		object["user"] = map[string]any{"username": r.Token.Username, "uid": r.Token.UID, "groups": r.Token.Groups}
	case len(callers) == 0:
		object["anonymous"] = true
	}
	return object
}

// HostilePath is an RE2 expression that finds, in a lower-cased path, what servers and proxies read differently: an
// encoded slash, backslash or NUL, a backslash, an empty segment, a dot segment, also encoded or with a ; behind it. Both Decide and the
// emitters that can use a regular expression share it.
const HostilePath = `%2f|%5c|%00|\\|//|/(\.|%2e){1,2}(;|%3b|/|$)`

var hostilePath = regexp.MustCompile(HostilePath)

// CleanPath returns the path without its query, or "" for one that satisfies no path condition: not beginning with a
// slash (CONNECT, OPTIONS *), or hostile. Nothing is decoded.
func CleanPath(target string) string {
	path, _, _ := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") || hostilePath.MatchString(asciiLower(path)) {
		return ""
	}
	return path
}

// CleanHost returns the lower-cased host with one trailing port removed, or "" for one that satisfies no host condition:
// empty, or with a trailing dot.
func CleanHost(authority string) string {
	host := asciiLower(authority)
	if i := strings.LastIndex(host, ":"); i >= 0 && i+1 < len(host) && strings.Trim(host[i+1:], "0123456789") == "" {
		host = host[:i]
	}
	if strings.HasSuffix(host, ".") {
		return ""
	}
	return host
}

// JSONContentType reports whether a content-type value is JSON for an MCP condition: exactly application/json, or that
// followed by parameters, in any case; never a value joined from two headers.
func JSONContentType(value string) bool {
	lower := asciiLower(value)
	return lower == "application/json" || strings.HasPrefix(lower, "application/json;") && !strings.Contains(lower, ",")
}

// asciiLower is CEL's lowerAscii: other letters stay as they are.
func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

// call is what an MCP condition may believe of a request under a profile. Values that cannot be believed are "".
type call struct {
	method, tool, prompt, server, resource string
	base                                   bool
}

func (p Profile) read(r *Request) call {
	var c call
	versionOK := p.versionOK(r)
	method, sent := r.Headers[p.MethodHeader]
	c.base = versionOK && !sent && (r.Method == "GET" || r.Method == "DELETE" && r.Headers[HeaderSession] != "")
	if r.Method != "POST" || !versionOK || !JSONContentType(r.Headers[HeaderContentType]) {
		return c
	}
	c.method = single(method)
	c.base = isBase(c.method)
	if server := single(r.Headers[p.ServerHeader]); p.ServerHeader != "" && server != p.BrokerServer {
		c.server = server
	}
	if p.NeedsServer(c.method) && c.server == "" {
		return c
	}
	name := r.Headers[p.ParamHeader(c.method)]
	switch c.method {
	case "tools/call":
		c.tool = single(name)
	case "prompts/get":
		c.prompt = single(name)
	default:
		c.resource = name
	}
	return c
}

// isBase tells whether a method belongs to the base protocol.
func isBase(method string) bool {
	return slices.Contains(BaseMethods, method) ||
		slices.ContainsFunc(BasePrefixes, func(prefix string) bool { return strings.HasPrefix(method, prefix) })
}

// single returns a value that one header carried. Two headers of a name arrive joined by a comma, and which of them the
// server reads cannot be told, so a value with a comma is not believed. Resource URIs are the exception: a comma is
// ordinary there, and the profiles that have a resource header promise to set it themselves.
func single(value string) string {
	if joined(value) {
		return ""
	}
	return value
}

func (p Profile) versionOK(r *Request) bool {
	version, sent := r.Headers[HeaderProtocolVersion]
	return !sent || len(p.ProtocolVersions) == 0 || slices.Contains(p.ProtocolVersions, version)
}

// param returns what the call names for a method.
func (c call) param(method string) string {
	switch method {
	case "tools/call":
		return c.tool
	case "prompts/get":
		return c.prompt
	}
	return c.resource
}
