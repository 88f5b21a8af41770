package pipeline

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A path that Go cannot parse ends Authorino's process, before any rule is looked at.
func TestPathThatEndsAuthorino(t *testing.T) {
	judge := withRules(t, anyone)

	for path, crash := range map[string]bool{"/%zz": true, "/a%": true, "/a%2f": false, "/a?b=%zz": false, "//x:y/": true} {
		request := post()
		request.Path = path

		result := check(t, judge, request)
		if result.Crash != crash || result.Allowed == crash {
			t.Errorf("path %s: got %+v, want crash %v", path, result, crash)
		}
	}
}

const childVariable = "ACCESSPOLICY_TEST_CHILD"

// A predicate without a static type ends the process when its value is no boolean. It
// does so in a goroutine of Authorino, so a second process has to show it.
func TestPredicateThatEndsAuthorino(t *testing.T) {
	judge := withRules(t, matching("request.method"))

	warnings := judge.AuthConfigs()[0].Warnings
	if len(warnings) != 1 || !strings.Contains(warnings[0], "no static type") {
		t.Errorf("warnings %q, want one of the predicate's type", warnings)
	}

	if os.Getenv(childVariable) != "" {
		check(t, judge, post())

		return
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	child := exec.Command(self, "-test.run=^TestPredicateThatEndsAuthorino$")
	child.Env = append(os.Environ(), childVariable+"=1")

	output, err := child.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "interface {} is string, not bool") {
		t.Errorf("the process went on: %v\n%.500s", err, output)
	}
}

func TestPredicatesOfAKnownTypeAreNotWarnedOf(t *testing.T) {
	for predicate, verdict := range map[string]string{
		"(request.method) == true": "403", "!request.method": "403", "request.method || true": "allowed", "request.nope || true": "allowed",
		"request.method && false": "403", "[request.method].exists(x, x)": "403",
	} {
		judge := withRules(t, matching(predicate))
		if warnings := judge.AuthConfigs()[0].Warnings; warnings != nil {
			t.Errorf("%s: warnings %q", predicate, warnings)
		}

		wants(t, check(t, judge, post()), verdict)
	}
}
