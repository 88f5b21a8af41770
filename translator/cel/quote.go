// Package cel holds everything that touches CEL text: the one quoting function, and the user's expressions with their
// parsing, type checking, reference evaluation and rewriting. See docs/cel.md for the vocabulary.
package cel

import (
	"fmt"
	"strings"
)

// Quote returns s as a CEL string literal in single quotes. It is the only way in which a user's text enters a generated
// expression. Everything outside printable ASCII is escaped, so that the literal looks the same to every CEL parser,
// editor and log, whatever direction marks or line separators s holds. Bytes that are not UTF-8 become U+FFFD: such a
// value cannot come out of a JSON document, and the literal then equals no header that a client could send.
//
// Escapes: CEL specification, "String and Bytes Values".
func Quote(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('\'')
	for _, r := range s {
		switch {
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= 0x20 && r <= 0x7e:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// QuoteList returns a CEL list literal of the quoted values, in the order given.
func QuoteList(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = Quote(v)
	}
	return "[" + strings.Join(quoted, ",") + "]"
}
