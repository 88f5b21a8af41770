package controllers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"accesspolicy-operator/translator"
)

// TestHandOver: the time begins when the new objects are in force, and anew when they were not for a moment.
func TestHandOver(t *testing.T) {
	const gateway = types.UID("prod")
	h := &handOvers{}
	require.Zero(t, h.wait(gateway, false))
	require.Positive(t, h.wait(gateway, true))
	h.since[gateway] = time.Now().Add(-handOver)
	require.Zero(t, h.wait(gateway, true))
	require.Zero(t, h.wait(gateway, false))
	require.Positive(t, h.wait(gateway, true))
	require.Len(t, h.since, 1)
}

func TestWhatIsLeft(t *testing.T) {
	k, e := translator.Enforcers{Kuadrant: true}, translator.Enforcers{EnvoyGateway: true}
	both, none := translator.Enforcers{Kuadrant: true, EnvoyGateway: true}, translator.Enforcers{}
	for name, test := range map[string]struct{ emitted, chosen, left, enforcing, reported translator.Enforcers }{
		"first":           {none, k, none, k, k},
		"as-before":       {e, e, none, e, e},
		"a-switch":        {k, e, k, both, e},
		"one-of-both":     {both, k, e, both, k},
		"one-more":        {k, both, none, both, both},
		"none-can-be":     {k, none, k, k, k},
		"nothing-at-all":  {none, none, none, none, none},
		"none-of-the-two": {both, none, both, both, both},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{emitted: test.emitted, chosen: test.chosen}
			require.Equal(t, test.left, w.left())
			require.Equal(t, test.enforcing, w.enforcing())
			require.Equal(t, test.reported, w.reported())
		})
	}
}
