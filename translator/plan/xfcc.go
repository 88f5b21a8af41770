package plan

import (
	"regexp"
	"strings"
)

var spiffeID = regexp.MustCompile(`^spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

// PeerID returns the SPIFFE ID that a peer name (the first URI of a verified client certificate) is, or "".
func PeerID(name string) string {
	if spiffeID.MatchString(name) {
		return name
	}
	return ""
}

// ForwardedID returns the SPIFFE ID in an x-forwarded-client-cert header that a gateway sanitised, or "". It is stricter
// than Envoy's format: one element, one URI, known keys only, nothing escaped, and no quoted value that could be taken for
// a URI by a reader without respect for quotes.
func ForwardedID(header string) string {
	if strings.Contains(header, `\`) {
		return ""
	}
	id, count := "", 0
	for _, pair := range outsideQuotes(header, ';') {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return ""
		}
		switch key {
		case "URI":
			id, count = PeerID(value), count+1
		case "By", "Hash", "Cert", "Chain", "Subject", "DNS":
			if !wellQuoted(value) {
				return ""
			}
		default:
			return ""
		}
	}
	// Counted without respect for quotes, there must be one URI as well.
	if count != 1 || strings.Count(";"+header, ";URI=") != 1 {
		return ""
	}
	return id
}

// outsideQuotes splits at a separator that does not stand between double quotes.
func outsideQuotes(s string, separator byte) []string {
	var out []string
	quoted, start := false, 0
	for i := range len(s) {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == separator && !quoted:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// wellQuoted accepts a quoted string, or a value with none of the characters that separate.
func wellQuoted(value string) bool {
	if inner, ok := strings.CutPrefix(value, `"`); ok {
		inner, ok = strings.CutSuffix(inner, `"`)
		return ok && !strings.Contains(inner, `"`)
	}
	return !strings.ContainsAny(value, `",;=`)
}
