// Package regex bounds users' regular expressions (RE2 syntax). The engines run them in time proportional to the product
// of the expression's compiled size and the value's length, on every request of everybody on the Gateway, so both are
// limited.
package regex

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

const (
	// MaxSize is the greatest compiled size of one expression, in instructions of the RE2 program.
	MaxSize = 500
	// MaxPolicySize is the greatest sum of a policy's expressions.
	MaxPolicySize = 2000
	// MaxValue is the greatest number of characters of a value that is matched; a longer one matches nothing.
	MaxValue = 1024
)

// Size returns the compiled size of an expression; an error for one that is no RE2 expression or larger than MaxSize.
func Size(expr string) (int, error) {
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("not an RE2 expression: %w", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, fmt.Errorf("not an RE2 expression: %w", err)
	}
	if n := len(program.Inst); n > MaxSize {
		return 0, fmt.Errorf("the regular expression compiles to %d instructions, %d are allowed; shorten it or its repetitions", n, MaxSize)
	}
	return len(program.Inst), nil
}

// Whole returns the expression that matches exactly the values which expr matches as a whole. Both the user's text and the
// wrapped one must compile: an expression such as \Qx would otherwise swallow the end of the wrapper.
func Whole(expr string) (string, error) {
	if _, err := Size(expr); err != nil {
		return "", err
	}
	whole := "^(?:" + expr + ")$"
	if _, err := regexp.Compile(whole); err != nil {
		return "", fmt.Errorf("not usable as an expression for a whole value: %w", err)
	}
	return whole, nil
}

// Matches reports whether expr matches the whole value. An expression that Whole refuses, or a value longer than MaxValue,
// does not match.
func Matches(expr, value string) bool {
	if TooLong(value) {
		return false
	}
	whole, err := Whole(expr)
	return err == nil && regexp.MustCompile(whole).MatchString(value)
}

// TooLong reports whether a value is longer than what is matched.
func TooLong(value string) bool { return utf8.RuneCountInString(value) > MaxValue }
