package envoy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/plan"
)

// Callers of testdata/router.
const (
	reader   = "demo/reader"
	writer   = "demo/writer"
	stranger = "demo/stranger"
)

// TestMCPRouter has the real router of mcp-gateway set the headers that the rules look at. Its program is also the broker, which
// federates a real MCP server; the router opens sessions with that server through Envoy.
func TestMCPRouter(t *testing.T) {
	w := newRoutedWorld(t)
	plain, stripping := w.addBehindRouter(t, "router", false), w.addBehindRouter(t, "router-stripping", true)
	w.serveRouted(t, plain, stripping)
	for _, s := range []*routedSite{plain, stripping} {
		t.Run(s.name, func(t *testing.T) { w.verdicts(t, s, breaksRefusal) })
	}
	t.Run("forged headers", func(t *testing.T) { w.forged(t, plain, stripping) })
	require.Zero(t, w.rejectedMutations(t), "Envoy does not let the router set what it wants")
	w.notRejected(t)
	t.Run("without the EnvoyPatchPolicy", func(t *testing.T) { w.unpatched(t, plain) })
}

// unpatched shows what the EnvoyPatchPolicy is for, and that the statistic tells.
func (w *routedWorld) unpatched(t *testing.T, s *routedSite) {
	require.NoError(t, w.Client.Delete(t.Context(), s.objects["EnvoyPatchPolicy"]))
	eventually(t, "Envoy refuses changes of the router", func(context.Context) error {
		w.made(t, s, reader, attempt{name: "a call", call: post(toolsCall("add"))})
		if w.rejectedMutations(t) == 0 {
			return errors.New("none so far")
		}
		return nil
	})
}

// verdicts sends what MCP clients send. Each request must be decided as the plan decides it with the headers that the router set.
// nobody is what a call without a token comes to.
func (w *routedWorld) verdicts(t *testing.T, s *routedSite, nobody string) {
	for _, c := range []struct {
		caller, body string
		want         string
	}{
		{reader, toolsCall("add"), allows},
		{reader, toolsCall("subtract"), denies},
		{reader, method("tools/list", ""), allows},
		{reader, method("ping", ""), allows},
		{reader, method("prompts/list", ""), denies},
		{reader, method("prompts/get", `"name":"calc_greeting"`), denies},
		{reader, method("resources/read", `"uri":"file:///a"`), denies},
		{reader, toolsCall("unknown"), answersItself},
		{reader, method("tools/call", `"name":"discover_tools"`), denies},
		{reader, `[` + toolsCall("add") + `]`, answersItself},
		{writer, method("prompts/get", `"name":"calc_greeting"`), allows},
		{writer, method("prompts/list", ""), allows},
		{writer, method("tools/list", ""), allows},
		{writer, toolsCall("add"), denies},
		{stranger, toolsCall("add"), denies},
		{stranger, method("tools/list", ""), denies},
		{"", toolsCall("add"), nobody},
	} {
		name := c.caller + " " + c.body
		got, hairpins := w.made(t, s, c.caller, attempt{name: name, call: post(c.body)})
		assert.Equal(t, c.want, got.verdict(), name)
		for _, l := range append(hairpins, got) {
			w.asPlanned(t, s, c.caller, l, name)
		}
	}
}

// asPlanned compares a verdict of Envoy with that of the plan.
func (w *routedWorld) asPlanned(t *testing.T, s *routedSite, caller string, l logged, name string) {
	t.Helper()
	want := s.decide(l, caller)
	switch l.verdict() {
	case allows:
		assert.True(t, want.Allowed, "%s: Envoy allows %s, the plan denies: %s", name, l.mcpHeaders(), want.Reason)
	case denies:
		assert.False(t, want.Allowed, "%s: Envoy denies %s, the plan allows: %s", name, l.mcpHeaders(), want.Reason)
		assert.Equal(t, want.Status, l.status, name)
	}
}

// forgery is what a client adds that wants to pass for a call of the allowed tool.
var forgery = []string{"x-mcp-method: tools/call", "x-mcp-toolname: add", "x-mcp-promptname: greeting", "x-mcp-resourceuri: file:///a", "x-mcp-servername: " + serverName}

// row is an attempt of the reader and what came out.
type row struct {
	attempt
	// router is what the rules see of x-mcp-* where the client sends nothing of it, and verdict what they say.
	router, verdict string
	// stays are the forged headers that the rules see as well where nothing is stripped, and forged what they then say.
	stays, forged string
}

// line is the row as it stands in docs/headers.md.
func (r row) line() string {
	forged := r.forged
	if forged != r.verdict {
		forged = "**" + forged + "**"
	}
	router := "nothing"
	if r.router != "" {
		router = "`" + r.router + "`"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", r.name, router, r.verdict, r.stays, forged)
}

// forged tries each row without and with forged headers. Where they are stripped, forging changes nothing.
func (w *routedWorld) forged(t *testing.T, plain, stripping *routedSite) {
	page, err := os.ReadFile(headersPage)
	require.NoError(t, err)
	for _, want := range rows {
		a := want.attempt
		clean, _ := w.made(t, plain, reader, a)
		open, _ := w.made(t, plain, reader, a, forgery...)
		stripped, _ := w.made(t, stripping, reader, a, forgery...)
		got := row{attempt: a, router: clean.mcpHeaders(), verdict: clean.verdict(), stays: open.beside(t, clean), forged: open.verdict()}
		assert.Equal(t, want.line(), got.line())
		assert.True(t, strings.Contains(string(page), got.line()), "%s does not say\n%s", headersPage, got.line())
		assert.Equal(t, clean.mcpHeaders(), stripped.mcpHeaders(), a.name)
		assert.Equal(t, clean.verdict(), stripped.verdict(), a.name)
		w.asPlanned(t, plain, reader, clean, a.name)
		w.asPlanned(t, plain, reader, open, a.name)
		w.asPlanned(t, stripping, reader, stripped, a.name)
	}
}

const (
	toTool    = "method=tools/call toolname=subtract servername=" + serverName
	allForged = "method, toolname, promptname, resourceuri, servername"
	forBroker = "toolname, promptname, resourceuri"
)

// rows are what docs/headers.md says.
var rows = []row{
	{attempt{name: "`tools/call` of the allowed tool", call: post(toolsCall("add"))},
		"method=tools/call toolname=add servername=demo/calc", allows, "promptname, resourceuri", allows},
	{attempt{name: "`tools/call` of another tool", call: post(toolsCall("subtract"))}, toTool, denies, "promptname, resourceuri", denies},
	{attempt{name: "`tools/call` of a tool of the broker", call: post(method("tools/call", `"name":"discover_tools"`))},
		"method=tools/call servername=mcpBroker", denies, forBroker, denies},
	{attempt{name: "`tools/list`", call: post(method("tools/list", ""))}, "method=tools/list servername=mcpBroker", allows, forBroker, allows},
	{attempt{name: "`prompts/get`", call: post(method("prompts/get", `"name":"calc_greeting"`))},
		"method=prompts/get promptname=greeting servername=demo/calc", denies, "toolname, resourceuri", denies},
	{attempt{name: "`resources/read`", call: post(method("resources/read", `"uri":"file:///a"`))},
		"method=resources/read servername=mcpBroker", denies, forBroker, denies},
	{attempt{name: "answer to a tool's question (elicitation)", answers: true, alone: true,
		call: post(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`)},
		"servername=demo/calc", denies, "method, toolname, promptname, resourceuri", allows},
	{attempt{name: "GET", call: call{line: "GET /mcp", headers: []string{"accept: text/event-stream"}}}, "", allows, allForged, denies},
	{attempt{name: "DELETE", alone: true, call: call{line: "DELETE /mcp"}}, "", allows, allForged, denies},
	{attempt{name: "GET with the body of a `tools/call`", call: call{line: "GET /mcp", body: toolsCall("subtract"),
		headers: []string{"content-type: application/json", "accept: text/event-stream"}}}, toTool, denies, "promptname, resourceuri", denies},
	{attempt{name: "POST of `text/plain`", call: call{line: "POST /mcp", body: toolsCall("subtract"), headers: []string{"content-type: text/plain"}}},
		"", denies, allForged, denies},
	{attempt{name: "POST with a second content type", call: post(toolsCall("subtract"), "content-type: text/plain")},
		toTool, denies, "promptname, resourceuri", denies},
	{attempt{name: "POST of JSON with an empty body", call: post("")}, "", denies, allForged, allows},
	{attempt{name: "`tools/call` of another tool with `Mcp-Method: tools/list`", call: post(toolsCall("subtract"), "mcp-method: tools/list")},
		toTool, denies, "promptname, resourceuri", denies},
	{attempt{name: "`tools/call` of another tool with the allowed one in `Mcp-Name`",
		call: post(toolsCall("subtract"), "mcp-method: tools/call", "mcp-name: calc_add")}, toTool, denies, "promptname, resourceuri", denies},
	{attempt{name: "the same with `MCP-Protocol-Version: 2026-07-28`",
		call: post(toolsCall("subtract"), "mcp-method: tools/call", "mcp-name: calc_add", version2026)}, "", answersItself, allForged, answersItself},
	{attempt{name: "`tools/call` of another tool with that version and `Mcp-Method: tools/list`",
		call: post(toolsCall("subtract"), "mcp-method: tools/list", version2026)}, "method=tools/list servername=mcpBroker", denies, forBroker, denies},
	{attempt{name: "`tools/call` of the allowed tool with that version, as headers and body say",
		call: post(toolsCall("add"), "mcp-method: tools/call", "mcp-name: calc_add", version2026)},
		"method=tools/call toolname=add servername=demo/calc", denies, "promptname, resourceuri", denies},
}

const version2026 = plan.HeaderProtocolVersion + ": " + plan.Version2026

// attempt is a request of an MCP client.
type attempt struct {
	name string
	call
	// answers is set for the answer to a question of a tool. The request's body then has %s for the number of the question.
	answers bool
	// alone is set where the request needs a session of its own, because it ends it or leaves a call in it.
	alone bool
}

// made sends an attempt and returns what the rules saw of it, and of the requests that the router made for it.
func (w *routedWorld) made(t *testing.T, s *routedSite, caller string, a attempt, headers ...string) (logged, []logged) {
	t.Helper()
	session := s.session
	if a.alone {
		session = w.newSession(t, s)
	}
	w.sent++
	try := fmt.Sprint(w.sent)
	a.headers = append(append([]string{headerTry + ": " + try, plan.HeaderSession + ": " + session}, a.headers...), headers...)
	if caller != "" {
		a.headers = append(a.headers, "authorization: Bearer "+w.token(t, caller, audience))
	}
	if a.answers {
		question, asking := w.question(t, s, session)
		defer asking.Close()
		a.body = fmt.Sprintf(a.body, question)
	}
	response, err := a.open(s.address, nil)
	require.NoError(t, err, a.name)
	if !strings.HasPrefix(a.line, http.MethodGet) { // whose answer has no end
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err, a.name)
	}
	require.NoError(t, response.Body.Close())
	return w.logOf(t, try)
}

// question calls the tool that asks, and returns the number of the question and the call, which waits for the answer.
func (w *routedWorld) question(t *testing.T, s *routedSite, session string) (string, io.Closer) {
	t.Helper()
	response, err := post(toolsCall("ask"), "authorization: Bearer "+w.token(t, reader, audience), plan.HeaderSession+": "+session).open(s.address, nil)
	require.NoError(t, err)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		var message struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		require.NoError(t, json.Unmarshal([]byte(data), &message), data)
		if message.Method == "elicitation/create" {
			return string(message.ID), response.Body
		}
	}
	t.Fatalf("the tool does not ask: %s", response.Status)
	return "", nil
}

func toolsCall(tool string) string {
	return method("tools/call", `"name":"`+toolPrefix+tool+`","arguments":{"a":1,"b":2}`)
}

func method(name, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + name + `","params":{` + params + `}}`
}
