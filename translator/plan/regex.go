package plan

import (
	"fmt"
	"regexp"
)

// WholeRegex returns the RE2 expression that matches exactly the values which expr matches as a whole. Both the user's
// text and the wrapped one must compile: an expression such as \Qx would otherwise swallow the end of the wrapper.
func WholeRegex(expr string) (string, error) {
	if _, err := regexp.Compile(expr); err != nil {
		return "", fmt.Errorf("not an RE2 expression: %w", err)
	}
	whole := "^(?:" + expr + ")$"
	if _, err := regexp.Compile(whole); err != nil {
		return "", fmt.Errorf("not usable as an expression for a whole value: %w", err)
	}
	return whole, nil
}

// WholeMatch reports whether expr matches the whole value. An expression that does not compile matches nothing.
func WholeMatch(expr, value string) bool {
	whole, err := WholeRegex(expr)
	return err == nil && regexp.MustCompile(whole).MatchString(value)
}
