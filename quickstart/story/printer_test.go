package story

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVerdictsArePrinted(t *testing.T) {
	var out bytes.Buffer

	denied := Cell{Status: 403, Message: "no", Error: "Forbidden"}
	v := Verdicts{Calls: []string{"add", "delete_database"}, Rows: []Row{
		{Caller: "team-a/agent", Cells: []Cell{{Allowed: true, Result: "5"}, denied}},
		{Caller: "nobody", Cells: []Cell{{Status: 401, Message: "who?", Error: "Unauthorized"}, denied}},
	}}
	NewPrinter(&out, nil).verdicts(v)
	// No colours, and each kind of refusal once.
	assert.Equal(t, `   caller        add  delete_database
   team-a/agent  yes  403
   nobody        401  403
   403: "no"
        to an MCP client, such as team-a/agent, delete_database: Forbidden
   401: "who?"
        to an MCP client, such as nobody, add: Unauthorized
`, out.String())

	over := make(chan struct{})
	close(over)
	out.Reset()
	NewPrinter(&out, over).verdicts(v)
	assert.Empty(t, out.String())
}

func TestACellIsAsExpected(t *testing.T) {
	want := expected{caller: "a", allowed: "add echo", status: 403}
	for _, c := range []struct {
		cell  Cell
		label string
		holds bool
	}{
		{Cell{Allowed: true}, "add", true},
		{Cell{Allowed: true}, "ad", false},
		{Cell{Status: 403, Message: "no"}, "ad", true},
		{Cell{Status: 403}, "ad", false},
		{Cell{Status: 401, Message: "no"}, "ad", false},
		{Cell{Message: "no connection"}, "ad", false},
		{Cell{Status: 403, Message: "no"}, "add", false},
	} {
		assert.Equal(t, c.holds, c.cell.asExpected(want, c.label), "%+v", c)
	}
}
