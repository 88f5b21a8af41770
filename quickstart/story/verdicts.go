package story

import (
	"fmt"
	"slices"
	"strings"
)

// call is one that an agent makes.
type call struct {
	label string
	// method and params are those of MCP.
	method, params string
}

func tool(name, arguments string) call {
	return call{label: name, method: "tools/call", params: fmt.Sprintf(`{"name":%q,"arguments":%s}`, toolPrefix+name, arguments)}
}

// calls are all that the story makes. Agents see tools and prompts under names with a
// prefix; rules see them without.
var calls = []call{
	{label: "initialize", method: "initialize"},
	{label: "tools/list", method: "tools/list"},
	tool("add", `{"a":2,"b":3}`),
	tool("subtract", `{"a":2,"b":3}`),
	tool("get-sum", `{"a":2,"b":3}`),
	tool("echo", `{"text":"hello"}`),
	tool("get-tiny-image", `{}`),
	tool("send_email", `{"text":"hello"}`),
	tool("delete_database", `{}`),
	{label: "prompts/get", method: "prompts/get", params: fmt.Sprintf(`{"name":%q}`, toolPrefix+"greeting")},
}

// text is the call as mcpagent takes it.
func (c call) text() string { return strings.TrimSpace(c.method + " " + c.params) }

func callOf(label string) call {
	i := slices.IndexFunc(calls, func(c call) bool { return c.label == label })
	if i < 0 {
		panic("story: no call " + label)
	}

	return calls[i]
}

func labelled(labels ...string) []call {
	out := make([]call, 0, len(labels))
	for _, label := range labels {
		out = append(out, callOf(label))
	}

	return out
}

// Verdicts are what callers got for calls.
type Verdicts struct {
	Calls []string
	Rows  []Row
}

// Row is what one caller got.
type Row struct {
	Caller string
	Cells  []Cell
}

// Cell is what became of a call.
type Cell struct {
	Allowed bool
	// Result is what an allowed call gave.
	Result string
	// Status is that of the response which refused a call, Message what it says, and
	// Error what the client library makes of it.
	Status         int
	Message, Error string
}

// Cell returns what a caller got for a call; both have to be there.
func (v Verdicts) Cell(caller, call string) Cell {
	column := slices.Index(v.Calls, call)
	for _, row := range v.Rows {
		if row.Caller == caller && column >= 0 {
			return row.Cells[column]
		}
	}

	panic(fmt.Sprintf("story: no verdict for %s of %s", call, caller))
}

// expected is what a caller may call, and the status of the refusal of everything else.
type expected struct {
	caller  string
	allowed string // labels
	status  int
}

// everything is for callers that may call everything.
const everything = "*"

func (e expected) allows(label string) bool {
	return e.allowed == everything || slices.Contains(strings.Fields(e.allowed), label)
}

// verdicts makes calls as each caller. What is not as expected is a fault.
func (w *World) verdicts(o *Outcome, of []call, rows ...expected) Verdicts {
	w.t.Helper()

	out := Verdicts{}
	texts := make([]string, 0, len(of))

	for _, c := range of {
		out.Calls = append(out.Calls, c.label)
		texts = append(texts, c.text())
	}

	for _, want := range rows {
		answers, err := w.call(w.caller(want.caller), texts...)
		if err != nil {
			w.t.Fatal(err)
		}

		row := Row{Caller: want.caller}

		for i, a := range answers {
			cell := Cell{Allowed: a.Error == "", Result: a.Result, Status: a.Status, Message: a.Message, Error: a.Error}
			row.Cells = append(row.Cells, cell)
			o.check(cell.asExpected(want, of[i].label), "%s, %s: %s", want.caller, of[i].label, cell)
		}

		out.Rows = append(out.Rows, row)
	}

	o.show(out)

	return out
}

func (c Cell) asExpected(want expected, label string) bool {
	if want.allows(label) {
		return c.Allowed
	}

	// A refusal has a text that the operator wrote, whatever else it is.
	return !c.Allowed && c.Status == want.status && c.Message != ""
}

func (c Cell) String() string {
	if c.Allowed {
		return fmt.Sprintf("allowed, with %q", c.Result)
	}

	return fmt.Sprintf("refused with %d %q (%s)", c.Status, c.Message, c.Error)
}
