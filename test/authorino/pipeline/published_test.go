package pipeline

import (
	"fmt"
	"strings"
	"testing"
)

// publishedShape is the shape of the published proof of concept: one OPA rule for
// each grant, each behind a guard that says "nothing was granted yet", and a last
// rule that denies behind the same guard.
func publishedShape(guard string) string {
	grant := `
  tell-%[2]s:
    priority: %[3]d
    opa: {rego: allow = true}
    when:
    - predicate: %[1]s
    - predicate: auth.identity.principal == 'system:serviceaccount:shop:teller'
    - predicate: request.headers['x-mcp-method'] == 'tools/call' && request.headers['x-mcp-toolname'] == '%[2]s'`

	return `
authentication:
  account:
    kubernetesTokenReview: {audiences: [tools]}
    overrides: {principal: {expression: auth.identity.user.username}}
authorization:` + fmt.Sprintf(grant, guard, "time", 0) + fmt.Sprintf(grant, guard, "weather", 1) + fmt.Sprintf(`
  otherwise:
    priority: 2
    opa: {rego: allow = false}
    when: [{predicate: %s}]`, guard)
}

const (
	guardThatErrs    = `size(auth.authorization) == 0`
	guardThatCannot  = `"!has(auth.authorization) || size(auth.authorization) == 0"`
	forbiddenTool    = "delete"
	permittedTool    = "weather"
	permittedAccount = "tok-teller"
	foreignAccount   = "tok-stranger"
)

// The published policy lets everything through: its guard errs while nothing is
// granted, and a rule whose condition errs is left out, the last one too. The judge is
// worth nothing if it does not see this.
func TestPublishedPolicyLetsEverythingThrough(t *testing.T) {
	judge := withRules(t, publishedShape(guardThatErrs))

	for _, request := range []Request{
		toolCall(permittedAccount, permittedTool), toolCall(permittedAccount, forbiddenTool),
		toolCall(foreignAccount, permittedTool), toolCall(foreignAccount, forbiddenTool),
	} {
		result := check(t, judge, request)
		wants(t, result, "allowed")

		if len(result.Granted) != 0 {
			t.Errorf("granted %v, although no rule ran", result.Granted)
		}
	}

	wants(t, check(t, judge, toolCall("", permittedTool)), "401")
}

func TestSameShapeWithAGuardThatCannotErr(t *testing.T) {
	judge := withRules(t, publishedShape(guardThatCannot))

	result := check(t, judge, toolCall(permittedAccount, permittedTool))
	wants(t, result, "allowed")

	if got := strings.Join(result.Granted, " "); got != "tell-weather" {
		t.Errorf("granted %q, want the one rule that matched", got)
	}

	wants(t, check(t, judge, toolCall(permittedAccount, forbiddenTool)), "403")
	wants(t, check(t, judge, toolCall(foreignAccount, permittedTool)), "403")
	wants(t, check(t, judge, post("authorization", "Bearer "+permittedAccount)), "403")
}
