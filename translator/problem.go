package translator

import (
	"fmt"
	"strings"

	"accesspolicy-operator/api/v1alpha1"
)

// Problem is a fault in a policy, as its author has to see it. It is data, not an error: the policy is refused and
// everything else goes on.
type Problem struct {
	// Field is the path, for instance spec.rules[0].source.type.
	Field string
	// Reason is a reason of the Accepted condition.
	Reason string
	// Message is one sentence: what is wrong, then what to do.
	Message string
}

// String gives field and message.
func (p Problem) String() string {
	if p.Field == "" {
		return p.Message
	}
	return p.Field + ": " + p.Message
}

// problems collects the faults of one policy.
type problems []Problem

func (ps *problems) add(reason, field, format string, args ...any) {
	*ps = append(*ps, Problem{Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (ps *problems) invalid(field, format string, args ...any) {
	ps.add(v1alpha1.PolicyReasonInvalid, field, format, args...)
}

func (ps *problems) unsupported(field, format string, args ...any) {
	ps.add(v1alpha1.PolicyReasonUnsupportedField, field, format, args...)
}

// shownProblems is how many faults a condition spells out; its message has a limit of 32,768 characters.
const shownProblems = 4

func summary(ps []Problem) string {
	var parts []string
	for i, p := range ps {
		if i == shownProblems {
			parts = append(parts, fmt.Sprintf("and %d more", len(ps)-i))
			break
		}
		parts = append(parts, p.String())
	}
	return strings.Join(parts, "; ")
}

// shorten keeps a user's text readable inside a message.
func shorten(s string) string {
	const limit = 80
	if r := []rune(s); len(r) > limit {
		return fmt.Sprintf("%q…", string(r[:limit]))
	}
	return fmt.Sprintf("%q", s)
}
