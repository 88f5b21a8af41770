package kuadrant

import (
	"fmt"
	"slices"
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

// sized is a rule with the size of its condition.
type sized struct {
	plan.Rule
	size int
}

func measure(r plan.Rule, profile plan.Profile) (sized, error) {
	b, l := newBuilder(profile), newLeaf()
	if err := l.add(b, &r); err != nil {
		return sized{}, err
	}
	return sized{r, len(l.render(b)) * max(1, len(r.Source.Principals))}, nil
}

// Expressible returns why a rule cannot be written for Authorino; a user's expression can grow past what can be nested.
// refusal tells that it is a rule of an ExternalAuth policy.
func Expressible(r plan.Rule, profile plan.Profile, refusal bool) error {
	b := newBuilder(profile)
	if refusal {
		_, err := b.delegated(&r)
		return err
	}
	return newLeaf().add(b, &r)
}

// split divides the rules of a plan into evaluators and renders them: one per policy while they are few, so that
// Authorino's own evaluator key names who granted; past the bound as few as hold them, in the plan's order.
func split(rules []sized, profile plan.Profile, bound int) ([]evaluator, error) {
	named := len((&plan.Plan{Rules: plain(rules)}).Policies()) <= bound
	var out []evaluator
	for len(rules) > 0 {
		n := len(rules)
		if named {
			n = slices.IndexFunc(rules, func(r sized) bool { return r.Origin.Policy != rules[0].Origin.Policy })
			if n < 0 {
				n = len(rules)
			}
		}
		group, err := pack(rules[:n], profile)
		if err != nil {
			return nil, err
		}
		for i := range group {
			group[i].key = evaluatorKey(named, rules[0].Origin, i+1)
		}
		out, rules = append(out, group...), rules[n:]
	}
	return out, nil
}

// budget is what one evaluator's condition may take of MaxExpression; the rest is for its guard.
const budget = MaxExpression - 4_000

// pack puts rules into as few evaluators as hold them, of about equal size. A single rule fits: see maxRule.
func pack(rules []sized, profile plan.Profile) ([]evaluator, error) {
	for parts := 1; ; {
		out, largest, total, err := renderParts(rules, parts, profile)
		if err != nil || largest <= budget || parts >= len(rules) {
			return out, err
		}
		parts = min(len(rules), max(parts+1, (total+budget-1)/budget))
	}
}

func renderParts(rules []sized, parts int, profile plan.Profile) (out []evaluator, largest, total int, err error) {
	weight := 0
	for _, r := range rules {
		weight += r.size
	}
	for done, used := 0, 0; done < len(rules); {
		end, limit := done, weight*(len(out)+1)/parts
		for end < len(rules) && (end == done || used+rules[end].size <= limit) {
			used += rules[end].size
			end++
		}
		e := evaluator{rules: plain(rules[done:end])}
		if e.condition, err = grants(e.rules, profile); err != nil {
			return nil, 0, 0, err
		}
		largest, total = max(largest, len(e.condition)), total+len(e.condition)
		out, done = append(out, e), end
	}
	return out, largest, total, nil
}

// keyShared begins the keys of evaluators that policies share.
const keyShared = "policies"

// Shared reports whether the policies of an AuthPolicy share evaluators, so that no key names who granted.
func Shared(ap *kuadrantv1.AuthPolicy) bool {
	_, shared := ap.Spec.Proper().AuthScheme.Authorization[keyShared+"-1"]
	return shared
}

// evaluatorKey is unique: a namespace and a name have no slash, so the number of slashes tells the forms apart.
func evaluatorKey(named bool, origin plan.Origin, part int) string {
	switch {
	case !named:
		return fmt.Sprintf("%s-%d", keyShared, part)
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
	parts, large, err := refuse(p.Refusals, p.Profile)
	if err != nil {
		return nil, "", err
	}
	if large != nil {
		return nil, fmt.Sprintf("rule %s, which refuses requests, is longer than the %d code points that Authorino takes", large, MaxExpression), nil
	}
	for i, text := range parts {
		key := KeyRefuse
		if i > 0 {
			key = fmt.Sprintf("%s-%d", KeyRefuse, i+1)
		}
		if limit := exceeds(key, text); limit != "" {
			return nil, limit, nil
		}
		out[key] = patternMatching(0, "!("+text+")")
	}
	var keys []string
	for i := range evaluators {
		e := &evaluators[i]
		if len(keys) > 0 {
			e.condition = "!(" + granted(keys) + ") &&\n" + e.condition
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
