package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// conversation gives lines to a server and returns its answers.
func conversation(t *testing.T, lines ...string) []answer {
	t.Helper()

	var output strings.Builder
	if err := newServer().serve(strings.NewReader(strings.Join(lines, "\n")), &output); err != nil {
		t.Fatal(err)
	}

	var answers []answer

	for line := range strings.Lines(output.String()) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%v in %s", err, line)
		}

		answers = append(answers, a)
	}

	return answers
}

const (
	emptyWorld = `{"gateway":{"metadata":{"name":"g"},"spec":{"listeners":[{"name":"web"}]}},"authPolicies":[]}`
	openWorld  = `{"gateway":{"metadata":{"name":"g"},"spec":{"listeners":[{"name":"web"}]}},"authPolicies":[{"metadata":{"name":"p"},` +
		`"spec":{"targetRef":{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"g"},"rules":{"authentication":{"anyone":{"anonymous":{}}}}}}]}`
	aRequest = `{"shape":"envoy","method":"GET","host":"a","path":"/"}`
)

func TestConversation(t *testing.T) {
	answers := conversation(t,
		`{"id":1,"world":"a","load":`+emptyWorld+`}`,
		`{"id":2,"world":"b","load":`+openWorld+`}`,
		`{"id":3,"world":"a","checks":[`+aRequest+`]}`,
		``,
		`{"id":4,"world":"b","checks":[`+aRequest+`,`+aRequest+`]}`,
		`{"id":5,"world":"b","bench":{"request":`+aRequest+`,"benchtime":"1ns"}}`,
		`{"id":6,"world":"b","drop":true}`,
		`{"id":7,"world":"b","checks":[`+aRequest+`]}`,
		`{"id":8,"world":"b","drop":true}`,
		`{"id":9,"world":"a","checks":[`+aRequest+`]}`)

	if len(answers) != 9 {
		t.Fatalf("got %d answers", len(answers))
	}

	for i, a := range answers {
		if a.ID != int64(i+1) || (a.Error != "") != (a.ID == 7) {
			t.Errorf("got %+v", a)
		}
	}

	if got := answers[2].Results[0].Reason; got != "no action set" {
		t.Errorf("world a: got %q", got)
	}

	if len(answers[1].AuthConfigs) != 1 || len(answers[3].Results) != 2 || answers[3].Results[1].AuthConfig == "" || answers[4].Bench.N == 0 {
		t.Errorf("world b: got %+v", answers[1:5])
	}
}

// Whatever stands in a line, the next one is answered.
func TestMalformedLines(t *testing.T) {
	for _, line := range []string{
		`{`, `null`, `[]`, `7`, `"text"`, `{"id":1}`, `{"id":1,"id":"x"}`, `{"id":1,"unknown":1}`, `{"id":1,"load":{},"drop":true}`,
		`{"id":1,"load":{}}`, `{"id":1,"load":{"gateway":{}}}`, `{"id":1,"load":{"gateway":7}}`, `{"id":1,"load":` + emptyWorld + `} {"id":2}`,
		`{"id":1,"load":{"gateway":{"metadata":{"name":"g"},"spec":{"listeners":[{"name":"w"}]}},"authPolicies":[null]}}`,
		`{"id":1,"load":{"gateway":{"metadata":{"name":"g"},"spec":{"listeners":[{"name":"w"}]}},"httpRoutes":[null]}}`,
		`{"id":1,"world":"none","checks":[]}`, `{"id":1,"world":"a","checks":[{}]}`, `{"id":1,"world":"a","checks":[{"shape":"x"}]}`,
		`{"id":1,"world":"a","bench":{"request":` + aRequest + `,"benchtime":"long"}}`, `{"id":1,"world":"a","bench":{"request":` + aRequest + `}}`,
		"\x00\xff", strings.Repeat("[", 100_000),
	} {
		answers := conversation(t, `{"id":1,"world":"a","load":`+emptyWorld+`}`, line, `{"id":3,"world":"a","checks":[`+aRequest+`]}`)
		if len(answers) != 3 || answers[1].Error == "" || answers[2].Error != "" {
			t.Errorf("%.80q: got %+v", line, answers)
		}
	}
}

func TestLineThatIsTooLong(t *testing.T) {
	answers := conversation(t, strings.Repeat(" ", lineLimit+1), `{"id":2,"drop":true}`)
	if len(answers) != 2 || !strings.Contains(answers[0].Error, "line of more than") || answers[1].ID != 2 {
		t.Errorf("got %+v", answers)
	}
}

// A world that cannot be read leaves the one of its name as it was.
func TestFailedLoadKeepsTheWorld(t *testing.T) {
	answers := conversation(t,
		`{"id":1,"world":"a","load":`+openWorld+`}`, `{"id":2,"world":"a","load":{"gateway":{}}}`, `{"id":3,"world":"a","checks":[`+aRequest+`]}`)
	if answers[1].Error == "" || len(answers[2].Results) != 1 || answers[2].Results[0].AuthConfig == "" {
		t.Errorf("got %+v", answers)
	}
}
