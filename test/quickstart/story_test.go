// Package quickstart asserts the story that `make quickstart` tells without Docker, and
// of the kind variant what can be had without Docker.
package quickstart

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"accesspolicy-operator/quickstart/story"
	"accesspolicy-operator/translator"
)

// written passes what the story prints to the test's log.
type written struct{ t *testing.T }

func (w written) Write(p []byte) (int, error) {
	w.t.Log(string(p))
	return len(p), nil
}

func TestStory(t *testing.T) {
	t.Run(translator.EnforcerKuadrant, func(t *testing.T) {
		outcomes, again := told(t, translator.EnforcerKuadrant)
		require.Len(t, outcomes, 10)
		asserted(t, outcomes)
		byCertificate(t, outcomes[7])
		byCertificate(t, outcomes[8])
		require.Len(t, again, 8)
		asserted(t, again)
		asks := outcomes[1].Verdicts[0].Cell("nobody", "initialize").Message
		assert.Contains(t, asks, "token for the audience mcp-gateway")
	})
	t.Run(translator.EnforcerEnvoyGateway, func(t *testing.T) {
		outcomes, again := told(t, translator.EnforcerEnvoyGateway)
		require.Len(t, outcomes, 9)
		asserted(t, outcomes)
		byCertificate(t, outcomes[7])
		require.Len(t, again, 8)
		asserted(t, again)
	})
}

// told has the story told by local processes, and then again as it is told in a kind
// cluster, with the same processes for the cluster.
func told(t *testing.T, enforcer string) (local, inCluster []*story.Outcome) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	printer := story.NewPrinter(written{t}, nil)
	world := story.Start(t, root, enforcer, printer.Started)
	local = story.Tell(world, printer)
	return local, story.Tell(world.Place().Connect(t, root, enforcer, printer.Started), printer)
}

func asserted(t *testing.T, outcomes []*story.Outcome) {
	t.Helper()
	// What the story itself expects of each step.
	for _, o := range outcomes {
		assert.Empty(t, o.Faults, o.Title)
	}
	// And some of it said here as well, so that a story that expects too little is found out.
	const (
		reader, writer, stranger, nobody = "team-a/agent", "team-b/agent", "team-c/agent", "nobody"
		destructive                      = "delete_database"
	)
	open, teams, edited, hostile := outcomes[0].Verdicts[0], outcomes[1].Verdicts[0], outcomes[3].Verdicts[0], outcomes[4].Verdicts[0]
	assert.Equal(t, "database deleted", open.Cell(nobody, destructive).Result)
	assert.Equal(t, "5", teams.Cell(reader, "add").Result)
	assert.Equal(t, "-1", teams.Cell(writer, "subtract").Result)
	for _, caller := range []string{reader, writer, stranger} {
		assert.Equal(t, http.StatusForbidden, teams.Cell(caller, destructive).Status, caller)
	}
	assert.Equal(t, http.StatusUnauthorized, teams.Cell(nobody, "initialize").Status)
	assert.True(t, teams.Cell(writer, "echo").Allowed)
	assert.False(t, edited.Cell(writer, "echo").Allowed)
	assert.Equal(t, "image/gif of 43 bytes", edited.Cell(writer, "get-tiny-image").Result)
	for _, call := range hostile.Calls {
		assert.False(t, hostile.Cell(stranger, call).Allowed, call)
	}
	last := outcomes[len(outcomes)-1].Verdicts
	assert.True(t, last[0].Cell(nobody, destructive).Allowed)
	assert.False(t, last[1].Cell(reader, "add").Allowed)
}

// byCertificate is a step in which a workload signs in.
func byCertificate(t *testing.T, o *story.Outcome) {
	t.Helper()
	v := o.Verdicts[0]
	assert.Equal(t, "5", v.Cell("workload, by certificate", "add").Result, o.Title)
	for _, caller := range []string{"impostor, by certificate", "forger, by a header", "nobody"} {
		assert.False(t, v.Cell(caller, "add").Allowed, "%s: %s", o.Title, caller)
	}
}
