package kuadrant

import (
	"fmt"
	"strings"
	"unicode/utf8"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"

	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/plan"
)

// evaluator is one Allow evaluator: it grants when one of its rules does.
type evaluator struct {
	key       string
	rules     []plan.Rule
	condition string
}

// budget is what the rules of one evaluator may take of MaxExpression; the rest is for bindings and guard.
const budget = MaxExpression - 12_000

// sized is a rule with an upper bound of what it adds to an expression.
type sized struct {
	plan.Rule
	size int
}

func measure(r plan.Rule, profile plan.Profile) (sized, error) {
	b, l := newBuilder(profile), newLeaf()
	if err := l.add(b, &r); err != nil {
		return sized{}, err
	}
	body := len(l.render(b)) + len(" || ")
	size := 0
	for _, p := range r.Source.Principals {
		// once in the leaf, once as the pivot of the tree, with the operators around
		size += body + 2*len(cel.Quote(p)) + len("(p <  ?  : )p ==  && ")
	}
	return sized{r, max(size, body)}, nil
}

// split divides the rules of a plan into evaluators: one per policy while they are few, so that Authorino's own evaluator
// key names who granted; past the bound as few as hold them, in the plan's order.
func split(rules []sized, bound int) []evaluator {
	var out []evaluator
	named := len((&plan.Plan{Rules: plain(rules)}).Policies()) <= bound
	size, parts := 0, 0
	for i, r := range rules {
		samePolicy := i > 0 && r.Origin.Policy == rules[i-1].Origin.Policy
		if len(out) == 0 || size+r.size > budget || named && !samePolicy {
			if !samePolicy {
				parts = 0
			}
			parts++
			size = 0
			out = append(out, evaluator{key: evaluatorKey(named, r.Origin, parts, len(out)+1)})
		}
		last := &out[len(out)-1]
		last.rules = append(last.rules, r.Rule)
		size += r.size
	}
	return out
}

// evaluatorKey is unique: a namespace and a name have no slash, so the number of slashes tells the forms apart.
func evaluatorKey(named bool, origin plan.Origin, part, number int) string {
	switch {
	case !named:
		return fmt.Sprintf("policies-%d", number)
	case part > 1:
		return fmt.Sprintf("%s/%d", origin.Policy, part)
	}
	return origin.Policy.String()
}

func plain(rules []sized) []plan.Rule {
	out := make([]plan.Rule, len(rules))
	for i, r := range rules {
		out[i] = r.Rule
	}
	return out
}

// authorization renders the evaluators of a plan. Order and priorities: refuse, then the Allow evaluators, then
// fail-close. The string is a limit that was exceeded, with its figure.
func authorization(p *plan.Plan, evaluators []evaluator) (map[string]kuadrantv1.MergeableAuthorizationSpec, string, error) {
	out := map[string]kuadrantv1.MergeableAuthorizationSpec{}
	if len(p.Refusals) > 0 {
		text, err := refuses(p.Refusals, p.Profile)
		if err != nil {
			return nil, "", err
		}
		out[KeyRefuse] = patternMatching(0, "!("+text+")")
		if limit := exceeds(KeyRefuse, text); limit != "" {
			return nil, limit, nil
		}
	}
	var keys []string
	for i := range evaluators {
		e := &evaluators[i]
		text, err := grants(e.rules, p.Profile)
		if err != nil {
			return nil, "", err
		}
		if e.condition = text; len(keys) > 0 {
			e.condition = "!(" + granted(keys) + ") && " + text
		}
		if limit := exceeds(e.key, e.condition); limit != "" {
			return nil, limit, nil
		}
		out[e.key] = allow(i+1, e.condition)
		keys = append(keys, e.key)
	}
	out[KeyFailClose] = patternMatching(len(evaluators)+1, granted(keys))
	return out, "", nil
}

// granted tells whether one of our own evaluators has granted. It cannot fail: Authorino leaves auth.authorization out
// while nothing has been granted, and has() on it is false then. Only own keys count, because another policy can be merged
// into the same AuthConfig.
func granted(keys []string) string {
	if len(keys) == 0 {
		return "false"
	}
	in := make([]string, len(keys))
	for i, k := range keys {
		in[i] = cel.Quote(k) + " in auth.authorization"
	}
	return "has(auth.authorization) && (" + strings.Join(in, " || ") + ")"
}

// allow is an evaluator that grants when its condition holds. Authorino skips an evaluator whose when fails to evaluate,
// so an error grants nothing here, and fail-close denies.
func allow(priority int, condition string) kuadrantv1.MergeableAuthorizationSpec {
	spec := patternMatching(priority)
	spec.Conditions = predicates(condition)
	return spec
}

// patternMatching denies unless all predicates hold; an error denies.
func patternMatching(priority int, all ...string) kuadrantv1.MergeableAuthorizationSpec {
	var spec kuadrantv1.MergeableAuthorizationSpec
	spec.Priority = priority
	spec.PatternMatching = &authorinov1beta3.PatternMatchingAuthorizationSpec{Patterns: []authorinov1beta3.PatternExpressionOrRef{}}
	for _, text := range all {
		spec.PatternMatching.Patterns = append(spec.PatternMatching.Patterns, predicates(text)...)
	}
	return spec
}

func exceeds(key, text string) string {
	if n := utf8.RuneCountInString(text); n > MaxExpression {
		return fmt.Sprintf("the expression of evaluator %s has %d code points, Authorino takes %d", key, n, MaxExpression)
	}
	return ""
}
