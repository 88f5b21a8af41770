package manifest

import (
	"strings"
	"unicode"
)

// Printable is a text from a manifest in one line: newlines and tabs become spaces, control characters and those that change
// the direction of writing the replacement character. A name must neither steer a terminal nor pass for a line of ours.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
