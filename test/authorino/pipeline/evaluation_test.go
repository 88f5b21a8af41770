package pipeline

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const (
	anyone      = "authentication: {anyone: {anonymous: {}}}\n"
	account     = "authentication: {account: {kubernetesTokenReview: {audiences: [tools]}}}\n"
	showing     = "\nresponse: {success: {filters: {identity: {plain: {selector: auth.identity}}, granted: {plain: {selector: auth.authorization}}}}}\n"
	missingName = `request.headers['x-absent'] == 'a'`
)

// denying is a rule that denies, under a condition.
func denying(when string) string {
	return anyone + "authorization: {no: {opa: {rego: allow = false}, when: [{predicate: " + quoted(when) + "}]}}\n"
}

// matching is a rule that grants what the predicate says.
func matching(predicate string) string {
	return anyone + "authorization: {rule: {patternMatching: {patterns: [{predicate: " + quoted(predicate) + "}]}}}\n"
}

func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}

	return string(encoded)
}

func TestErrorsOfExpressions(t *testing.T) {
	for name, test := range map[string]struct{ rules, verdict string }{
		"a condition that is true runs the rule":     {denying("true"), "403"},
		"a condition that errs skips the rule":       {denying(missingName), "allowed"},
		"a pattern that errs denies":                 {matching(missingName), "403"},
		"an error beside something true is absorbed": {matching(missingName + " || true"), "allowed"},
		"an error beside something false denies":     {matching(missingName + " || false"), "403"},
		"no pattern at all grants":                   {anyone + "authorization: {rule: {patternMatching: {patterns: []}}}", "allowed"},
		"an identity whose condition errs is none":   {"authentication: {anyone: {anonymous: {}, when: [{predicate: " + quoted(missingName) + "}]}}", "401"},
		"no authentication means anonymous":          {"authorization: {rule: {patternMatching: {patterns: [{predicate: auth.identity.anonymous == true}]}}}", "allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			wants(t, check(t, withRules(t, test.rules), post()), test.verdict)
		})
	}
}

func TestErrorsOfThePatternAreShownToTheCaller(t *testing.T) {
	result := check(t, withRules(t, matching(missingName)), post())
	if result.Reason != "no such key: x-absent" {
		t.Errorf("got %q", result.Reason)
	}

	result = check(t, withRules(t, matching(missingName)+
		`response: {unauthorized: {message: {value: "denied"}, body: {value: "{}"}, headers: {content-type: {value: application/json}}}}`), post())
	if result.Reason != "denied" || result.Body != "{}" || result.Headers["content-type"] != "application/json" {
		t.Errorf("got %+v", result)
	}
}

func TestInvalidExpressionsAreRefused(t *testing.T) {
	for name, predicate := range map[string]string{
		"syntax": "request.", "undeclared name": "nobody == 1", "unknown function": "math.greatest(1, 2) == 2",
		"unsupported macro": "cel.bind(a, 1, a == 1)", "known other type": "'text'", "sets": "sets.contains([1], [1])",
	} {
		t.Run(name, func(t *testing.T) {
			judge := loaded(t, World{AuthPolicies: documents(t, gatewayPolicy(matching(predicate)))})

			config := judge.AuthConfigs()[0]
			if config.Ready || config.Reason != "Invalid" || config.Error == "" {
				t.Errorf("got %+v, want it refused", config)
			}

			result := check(t, judge, post())
			wants(t, result, "404")

			if result.Code != "NOT_FOUND" {
				t.Errorf("got %s", result.Code)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	judge := withRules(t, account+showing)

	for token, verdict := range map[string]string{
		"tok-teller":       "allowed",
		"tok-other":        "401", // issued for another audience
		"tok-nobody":       "401",
		"tok-teller again": "allowed", // the API server reads up to the blank
		"":                 "401",
	} {
		wants(t, check(t, judge, toolCall(token, "time")), verdict)
	}

	wants(t, check(t, judge, post("authorization", "bearer tok-teller")), "401") // the prefix is compared as it is
	wants(t, check(t, judge, post("authorization", "Bearer ")), "401")

	result := check(t, judge, toolCall("tok-teller", "time"))
	user := result.Metadata["identity"].(map[string]any)["user"].(map[string]any)

	if user["username"] != "system:serviceaccount:shop:teller" || user["uid"] != "teller" {
		t.Errorf("got %v", user)
	}
}

// Without audiences the host of the request is the audience, with its port.
func TestAudienceDefaultsToTheHost(t *testing.T) {
	judge := loaded(t, World{
		AuthPolicies: documents(t, gatewayPolicy("authentication: {account: {kubernetesTokenReview: {}}}")),
		Tokens:       map[string]Token{"tok": {Username: "a", Audiences: []string{"tools.example.com:8443"}}},
	})

	request := toolCall("tok", "time")
	wants(t, check(t, judge, request), "401")

	request.Host = "tools.example.com:8443"
	wants(t, check(t, judge, request), "allowed")
}

func TestPrioritiesOfIdentities(t *testing.T) {
	judge := withRules(t, `
authentication:
  anyone: {anonymous: {}, priority: 2, overrides: {principal: {value: nobody}}}
  account:
    priority: 0
    kubernetesTokenReview: {audiences: [tools]}
    overrides: {principal: {expression: auth.identity.user.username}}
response: {success: {filters: {principal: {plain: {selector: auth.identity.principal}}}}}`)

	for token, principal := range map[string]string{
		"tok-teller": "system:serviceaccount:shop:teller", "tok-other": "nobody", "": "nobody",
	} {
		result := check(t, judge, toolCall(token, "time"))
		wants(t, result, "allowed")

		if result.Metadata["principal"] != principal {
			t.Errorf("token %q: got %v, want %s", token, result.Metadata["principal"], principal)
		}
	}
}

func TestOverridesOfIdentities(t *testing.T) {
	list := "overrides: {principals: {expression: \"['a', 'b']\"}}"

	for name, test := range map[string]struct {
		identity string
		verdict  string
	}{
		"token":                   {"kubernetesTokenReview: {audiences: [tools]}, " + list, "allowed"},
		"anonymous":               {"anonymous: {}, " + list, "allowed"},
		"object":                  {"plain: {expression: \"{'k': 1}\"}, " + list, "allowed"},
		"object with the list":    {"plain: {expression: \"{'principals': ['b']}\"}", "allowed"},
		"string":                  {"plain: {expression: \"'k'\"}, " + list, "401"},
		"null":                    {"plain: {expression: \"null\"}", "401"},
		"nobody of these":         {"anonymous: {}, overrides: {principals: {expression: \"['c']\"}}", "403"},
		"override that errs":      {"anonymous: {}, overrides: {principals: {expression: request.nope}}", "401"},
		"list of nobody is empty": {"anonymous: {}, overrides: {principals: {expression: \"[]\"}}", "403"},
	} {
		t.Run(name, func(t *testing.T) {
			judge := withRules(t, "authentication: {identity: {"+test.identity+"}}\n"+
				"authorization: {rule: {patternMatching: {patterns: [{predicate: \"auth.identity.principals.exists(p, p == 'b')\"}]}}}"+showing)

			result := check(t, judge, toolCall("tok-teller", "time"))
			wants(t, result, test.verdict)
		})
	}
}

// The list is a list in a condition as well, where an error would skip the rule.
func TestListOfAnOverrideInACondition(t *testing.T) {
	rules := "authentication: {anyone: {anonymous: {}, overrides: {principals: {expression: \"['a', 'b']\"}}}}\n" +
		"authorization: {no: {opa: {rego: allow = false}, when: [{predicate: \"auth.identity.principals.exists(p, p == 'NAME')\"}]}}"

	wants(t, check(t, withRules(t, strings.ReplaceAll(rules, "NAME", "b")), post()), "403")
	wants(t, check(t, withRules(t, strings.ReplaceAll(rules, "NAME", "c")), post()), "allowed")
}

// An override that errs leaves the identity behind, and when a later one succeeds the
// rules see either of them, by the order of a map.
func TestIdentityIsLeftToChanceAfterAFailedOverride(t *testing.T) {
	judge := withRules(t, `
authentication:
  account: {kubernetesTokenReview: {audiences: [tools]}, overrides: {principal: {expression: auth.identity.nope}}}
  anyone: {anonymous: {}, priority: 1}`+showing)

	seen := map[bool]int{}

	for range 2000 {
		identity := check(t, judge, toolCall("tok-teller", "time")).Metadata["identity"].(map[string]any)
		_, anonymous := identity["anonymous"]
		seen[anonymous]++
	}

	if len(seen) != 2 {
		t.Errorf("anonymous or not: %v; Authorino has become predictable, so the advice against such overrides can go", seen)
	}
}

func TestWhatIsStoredOfARule(t *testing.T) {
	result := check(t, withRules(t, anyone+`
authorization:
  demo/access-policy: {patternMatching: {patterns: []}}
  opa: {opa: {rego: allow = true}}
  opa-all: {opa: {rego: "allow = true\nlevel = 3", allValues: true}}
  skipped: {patternMatching: {patterns: []}, when: [{predicate: "false"}]}`+showing), post())

	want := map[string]any{
		"demo/access-policy": true, "opa": map[string]any{"allow": true}, "opa-all": map[string]any{"allow": true, "level": 3.0},
	}
	if got := result.Metadata["granted"]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	if got := strings.Join(result.Granted, " "); got != "demo/access-policy opa opa-all" {
		t.Errorf("granted %q", got)
	}
}

// Nobody's verdict may depend on the observer.
func TestObserverChangesNothing(t *testing.T) {
	for _, rules := range []string{
		matching("true"), matching("false"), matching(missingName), account, anyone, publishedShape(guardThatErrs), publishedShape(guardThatCannot),
		anyone + "response: {success: {headers: {x-broken: {plain: {expression: request.nope}}, x-whole: {plain: {value: a}, priority: 2147483647}}}}",
	} {
		for _, request := range []Request{post(), toolCall("tok-teller", "weather"), toolCall("tok-teller", "delete")} {
			world := World{AuthPolicies: documents(t, gatewayPolicy(rules)), Tokens: tokens()}
			seen := check(t, loaded(t, world), request)

			world.Unobserved = true
			alone := check(t, loaded(t, world), request)

			if alone.Granted != nil {
				t.Errorf("an unobserved world shows %v", alone.Granted)
			}

			seen.Granted = nil
			if !reflect.DeepEqual(emptyAsNil(seen), emptyAsNil(alone)) {
				t.Errorf("with the observer %+v, without %+v, for\n%s", seen, alone, rules)
			}
		}
	}
}

func emptyAsNil(r Result) Result {
	if len(r.Metadata) == 0 {
		r.Metadata = nil
	}

	return r
}

// The challenge of a plain identity shows its expression to whoever is refused.
func TestChallengeShowsTheExpression(t *testing.T) {
	expression := "request.headers['x-secret-name']"
	rules := "authentication: {plain: {plain: {expression: " + quoted(expression) + "}}}"

	if got := check(t, withRules(t, rules), post()).Headers["WWW-Authenticate"]; got != expression+` realm="plain"` {
		t.Errorf("got %q", got)
	}

	own := "\nresponse: {unauthenticated: {headers: {www-authenticate: {value: Bearer}}}}"
	if got := check(t, withRules(t, rules+own), post()).Headers; got["WWW-Authenticate"] != "" || got["www-authenticate"] != "Bearer" {
		t.Errorf("got %v", got)
	}
}

func TestDenials(t *testing.T) {
	result := check(t, withRules(t, account+`response: {unauthenticated: {code: 302, headers: {location: {value: /login}}}}`), post())
	wants(t, result, "302")

	if result.Code != "UNAUTHENTICATED" || result.Headers["location"] != "/login" || result.Reason != "credential not found" {
		t.Errorf("got %+v", result)
	}

	result = check(t, withRules(t, matching("false")), post())
	if result.Status != http.StatusForbidden || result.Code != "PERMISSION_DENIED" || result.Reason != "Unauthorized" {
		t.Errorf("got %+v", result)
	}
}
