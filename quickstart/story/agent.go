package story

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"accesspolicy-operator/test/stack"
)

// answer is what became of a call; hack/components/mcpagent explains the fields.
type answer struct {
	Stage, Result, Error, Message string
	Status                        int
}

// failure is an error unless the call was answered.
func (a answer) failure() error {
	if a.Error == "" {
		return nil
	}

	return errors.New(a.Error)
}

// caller is somebody who makes calls, and with what.
type caller struct {
	name string
	// args are those of mcpagent that say with what it signs in.
	args []string
}

// Callers. Those with a slash are ServiceAccounts, and send a token.
const (
	teamA    = "team-a/agent"
	teamB    = "team-b/agent"
	stranger = "team-c/agent"
	nobody   = "nobody"
	// cheat is team A's agent, and says in headers that each call is one that it may
	// make.
	cheat = "team-a/agent, forging x-mcp-*"
	// misled has a token of team A's agent that is not for this gateway.
	misled = "team-a, token for another audience"
	// workload has a client certificate and no token.
	workload   = "workload, by certificate"
	workloadID = "spiffe://example.test/ns/batch/sa/worker"
	// impostor has a certificate of another ID.
	impostor   = "impostor, by certificate"
	impostorID = "spiffe://example.test/ns/batch/sa/worker2"
	// forger says in a header that the gateway has seen the workload's certificate.
	forger = "forger, by a header"
)

// caller makes a caller ready to call.
func (w *World) caller(name string) *caller {
	w.t.Helper()

	if known := w.callers[name]; known != nil {
		return known
	}

	c := &caller{name: name}

	switch name {
	case nobody:
	case misled:
		c.args = w.token(teamA, "somebody-else")
	case cheat:
		c.args = append(w.token(teamA, audience), "-header", "x-mcp-method: tools/call", "-header", "x-mcp-toolname: add", "-header", "x-mcp-servername: "+serverName)
	case workload:
		c.args = w.certificate("workload", workloadID)
	case impostor:
		c.args = w.certificate("impostor", impostorID)
	case forger:
		c.args = []string{"-header", "x-forwarded-client-cert: URI=" + workloadID}
	default:
		c.args = w.token(name, audience)
	}

	w.callers[name] = c

	return c
}

func (w *World) token(account, audience string) []string {
	w.t.Helper()

	team, name, _ := strings.Cut(account, "/")
	w.Apply(w.t, stack.Namespace(team), stack.ServiceAccount(team, name))

	return []string{"-token", w.write(team+"."+audience+".token", []byte(w.Token(w.t, team, name, audience)))}
}

func (w *World) certificate(name, id string) []string {
	w.t.Helper()

	certificate, key := w.authority.Workload(w.t, id)

	return []string{"-cert", w.write(name+".crt", certificate), "-key", w.write(name+".key", key)}
}

// command is how the agent is run to make calls as somebody.
func (w *World) command(c *caller, calls ...string) []string {
	return slices.Concat([]string{stack.Component(w.t, "mcpagent")}, w.reach, c.args, calls)
}

// call has the agent make calls as somebody.
func (w *World) call(c *caller, calls ...string) ([]answer, error) {
	args := w.command(c, calls...)
	command := exec.Command(args[0], args[1:]...)

	var complaint bytes.Buffer

	command.Stderr = &complaint

	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("mcpagent: %w: %s", err, complaint.String())
	}

	var answers []answer

	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); {
		var a answer
		if err := decoder.Decode(&a); err != nil {
			return nil, fmt.Errorf("mcpagent: %w", err)
		}

		answers = append(answers, a)
	}

	if len(answers) != len(calls) {
		return nil, fmt.Errorf("mcpagent: %d answers to %d calls: %s", len(answers), len(calls), complaint.String())
	}

	return answers, nil
}
