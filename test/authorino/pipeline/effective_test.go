package pipeline

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// policy is an AuthPolicy. Its verdict shows in the status of a denial: each policy
// denies with a status of its own, so the status tells whose rules are in force.
type policy struct {
	name    string
	created string
	// form is "", "defaults" or "overrides".
	form     string
	strategy string
	// target is "Gateway/edge", "Gateway/edge#web" or "HTTPRoute/tools".
	target string
	rules  string
}

func (p policy) yaml() string {
	kindAndName, section, _ := strings.Cut(p.target, "#")
	kind, name, _ := strings.Cut(kindAndName, "/")

	var text strings.Builder

	text.WriteString("metadata: {namespace: shop, name: " + p.name + ", creationTimestamp: '" + p.created + "'}\nspec:\n")
	text.WriteString("  targetRef: {group: gateway.networking.k8s.io, kind: " + kind + ", name: " + name)

	if section != "" {
		text.WriteString(", sectionName: " + section)
	}

	text.WriteString("}\n")

	indent := 2
	if p.form != "" {
		text.WriteString("  " + p.form + ":\n")

		indent = 4
		if p.strategy != "" {
			text.WriteString("    strategy: " + p.strategy + "\n")
		}
	}

	prefix := strings.Repeat(" ", indent)
	text.WriteString(prefix + "rules:\n" + indented(p.rules, indent+2))

	return text.String()
}

const (
	older = "2030-01-01T00:00:00Z"
	newer = "2030-06-01T00:00:00Z"
)

// closing denies everybody with this HTTP status.
func closing(key, status string) string {
	return anyone + "authorization: {" + key + ": {patternMatching: {patterns: [{predicate: \"false\"}]}}}\n" +
		"response: {unauthorized: {code: " + status + "}}"
}

const toolsRoute = `
metadata: {namespace: shop, name: tools}
spec: {parentRefs: [{name: edge}], hostnames: [tools.example.com]}
`

func TestWhichPolicyIsInForce(t *testing.T) {
	gatewayBare := policy{name: "g", created: older, target: "Gateway/edge", rules: closing("g", "451")}
	gatewayOverrides := policy{name: "g", created: older, form: "overrides", target: "Gateway/edge", rules: closing("g", "451")}
	gatewayDefaults := policy{name: "g", created: older, form: "defaults", strategy: "atomic", target: "Gateway/edge", rules: closing("g", "451")}
	route := policy{name: "r", created: newer, target: "HTTPRoute/tools", rules: closing("r", "452")}
	listenerOverrides := policy{name: "l", created: newer, form: "overrides", target: "Gateway/edge#web", rules: closing("l", "453")}
	second := policy{name: "h", created: newer, target: "Gateway/edge", rules: closing("h", "454")}

	withForm := func(p policy, form, strategy string) policy {
		p.form, p.strategy = form, strategy

		return p
	}

	for name, test := range map[string]struct {
		policies []policy
		verdict  string
	}{
		"a bare Gateway policy alone":                            {[]policy{gatewayBare}, "451"},
		"a route's policy replaces a bare one of the Gateway":    {[]policy{gatewayBare, route}, "452"},
		"overrides of the Gateway replace a route's policy":      {[]policy{gatewayOverrides, route}, "451"},
		"overrides are atomic unless they say merge":             {[]policy{withForm(gatewayBare, "overrides", "atomic"), route}, "451"},
		"listener overrides replace Gateway defaults":            {[]policy{gatewayDefaults, listenerOverrides}, "453"},
		"and a route's policy below both":                        {[]policy{gatewayDefaults, listenerOverrides, route}, "453"},
		"overrides of the Gateway replace those of a listener":   {[]policy{gatewayOverrides, listenerOverrides}, "451"},
		"of two bare ones on a Gateway the newer":                {[]policy{gatewayBare, second}, "454"},
		"in whatever order they are given":                       {[]policy{second, gatewayBare}, "454"},
		"of two overrides on a Gateway the older":                {[]policy{gatewayOverrides, withForm(second, "overrides", "")}, "451"},
		"older overrides against a newer bare one":               {[]policy{gatewayOverrides, second}, "451"},
		"newer overrides against an older bare one":              {[]policy{gatewayBare, withForm(second, "overrides", "")}, "454"},
		"merged defaults: the route's response wins":             {[]policy{withForm(gatewayBare, "defaults", "merge"), route}, "452"},
		"merged overrides: the Gateway's response wins":          {[]policy{withForm(gatewayBare, "overrides", "merge"), route}, "451"},
		"at the same age the name decides, as if h were newer":   {[]policy{gatewayBare, {name: "h", created: older, target: "Gateway/edge", rules: closing("h", "454")}}, "454"},
		"a section that does not exist has no effect":            {[]policy{gatewayBare, {name: "x", created: newer, form: "overrides", target: "Gateway/edge#none", rules: closing("x", "455")}}, "451"},
		"a policy on a rule of the route is the most specific":   {[]policy{route, {name: "s", created: older, target: "HTTPRoute/tools#rule-1", rules: closing("s", "456")}}, "456"},
		"no policy at all leaves the path open":                  {nil, "allowed"},
		"a policy for another Gateway leaves the path open, too": {[]policy{{name: "o", created: older, target: "Gateway/other", rules: closing("o", "457")}}, "allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			judge := loaded(t, World{HTTPRoutes: documents(t, toolsRoute), AuthPolicies: policyDocuments(t, test.policies...)})
			wants(t, check(t, judge, post()), test.verdict)
		})
	}
}

func policyDocuments(t *testing.T, policies ...policy) (all []json.RawMessage) {
	t.Helper()

	for _, p := range policies {
		all = append(all, document(t, p.yaml()))
	}

	return all
}

// granting grants under a key, with a header that names it.
func granting(key string) string {
	return anyone + "authorization: {" + key + ": {patternMatching: {patterns: []}}}"
}

// Merging works by the name of a rule. Rules of both policies must then hold.
func TestMergedRules(t *testing.T) {
	for name, test := range map[string]struct {
		strategy       string
		form           string
		gateway, route string
		verdict        string
		granted        string
		sources        string
	}{
		"rules of both":                       {"merge", "overrides", granting("g"), granting("r"), "allowed", "g r", "shop/g shop/r"},
		"overrides win the same name":         {"merge", "overrides", closing("same", "403"), granting("same"), "403", "", "shop/g"},
		"defaults lose the same name":         {"merge", "defaults", closing("same", "403"), granting("same"), "allowed", "same", "shop/g shop/r"},
		"a denying rule of the route is kept": {"merge", "overrides", granting("g"), closing("r", "403"), "403", "", "shop/g shop/r"},
		"atomic overrides drop the route's":   {"atomic", "overrides", granting("g"), closing("r", "403"), "allowed", "g", "shop/g"},
	} {
		t.Run(name, func(t *testing.T) {
			judge := loaded(t, World{HTTPRoutes: documents(t, toolsRoute), AuthPolicies: policyDocuments(t,
				policy{name: "g", created: older, form: test.form, strategy: test.strategy, target: "Gateway/edge", rules: test.gateway},
				policy{name: "r", created: newer, target: "HTTPRoute/tools", rules: test.route})})

			result := check(t, judge, post())
			wants(t, result, test.verdict)

			if got := strings.Join(result.Granted, " "); got != test.granted {
				t.Errorf("granted %q, want %q", got, test.granted)
			}

			if got := strings.Join(judge.AuthConfigs()[0].Policies, " "); got != test.sources {
				t.Errorf("rules come from %q, want %q", got, test.sources)
			}
		})
	}
}

func TestPoliciesAreReported(t *testing.T) {
	judge := loaded(t, World{AuthPolicies: policyDocuments(t,
		policy{name: "here", created: newer, target: "Gateway/edge", rules: granting("g")},
		policy{name: "nowhere", created: older, target: "Gateway/edge#none", rules: granting("g")})})

	got := judge.Policies()
	if len(got) != 2 || got[0].Name != "shop/nowhere" || got[0].Accepted || !strings.Contains(got[0].Error, "TargetNotFound") || !got[1].Accepted {
		t.Errorf("got %+v", got)
	}
}

func TestWorldsThatCannotBeRead(t *testing.T) {
	good := policy{name: "g", created: older, target: "Gateway/edge", rules: granting("g")}.yaml()

	for name, test := range map[string]struct{ policy, message string }{
		"unknown field":     {good + "  nobody: 1\n", "unknown field"},
		"two forms":         {good + "  overrides: {rules: {authorization: {}}}\n", "give one of"},
		"unknown strategy":  {strings.Replace(good, "  rules:", "  defaults: {strategy: union, rules: {}}\n  x:", 1), "unknown field"},
		"no rules":          {"metadata: {name: g}\nspec: {targetRef: {kind: Gateway, name: edge}}", "no rules"},
		"bad strategy":      {"metadata: {name: g}\nspec: {targetRef: {kind: Gateway, name: edge}, defaults: {strategy: union, rules: {}}}", "strategy"},
		"neither name":      {"spec: {}", "needs a name"},
		"wrong type inside": {strings.Replace(good, "patterns: []", "patterns: 1", 1), "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(World{Gateway: document(t, oneListener), AuthPolicies: documents(t, test.policy)})
			if err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v, want %q in it", err, test.message)
			}
		})
	}
}

// Named patterns and conditions are merged like rules.
func TestNamedPatterns(t *testing.T) {
	text := policy{name: "g", created: older, target: "Gateway/edge", rules: anyone +
		"authorization: {rule: {patternMatching: {patterns: [{patternRef: read-only}]}}}"}.yaml() +
		"  patterns: {read-only: {allOf: [{selector: request.method, operator: eq, value: GET}]}}\n"

	judge := loaded(t, World{AuthPolicies: documents(t, text)})
	wants(t, check(t, judge, post()), "403")

	reading := post()
	reading.Method = "GET"
	wants(t, check(t, judge, reading), "allowed")
}

// The conditions of a whole policy are the shim's: what they leave out passes.
func TestConditionsOfAPolicy(t *testing.T) {
	text := policy{name: "g", created: older, target: "Gateway/edge", rules: closing("g", "403")}.yaml()

	for when, verdict := range map[string]string{
		"request.method == 'POST'":           "403",
		"request.method == 'GET'":            "allowed",
		"request.headers['x-absent'] == 'a'": "500",
		"request.method":                     "500",
		"request.":                           "allowed", // the operator leaves the action out
	} {
		judge := loaded(t, World{AuthPolicies: documents(t, text+"  when: [{predicate: "+quoted(when)+"}]\n")})
		wants(t, check(t, judge, post()), verdict)

		if warned := slices.ContainsFunc(judge.AuthConfigs()[0].Warnings, func(w string) bool { return strings.Contains(w, "the path is open") }); warned != (when == "request.") {
			t.Errorf("%s: warnings %q", when, judge.AuthConfigs()[0].Warnings)
		}
	}
}
