package story

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"accesspolicy-operator/test/stack"
)

func TestRunEndsWhatWasStarted(t *testing.T) {
	for name, c := range map[string]struct {
		f       func(stack.T)
		done    bool
		errors  string
		details string
	}{
		"to its end":          {f: func(t stack.T) { t.Logf("hint") }, done: true, details: "hint\n"},
		"an error":            {f: func(t stack.T) { t.Errorf("broken %d", 1) }, errors: "broken 1\n", details: "broken 1\n"},
		"a fatal error":       {f: func(t stack.T) { t.Fatal("no", "way") }, errors: "no way\n", details: "no way\n"},
		"a formatted one":     {f: func(t stack.T) { t.Fatalf("no %s", "way") }, errors: "no way\n", details: "no way\n"},
		"an error at its end": {f: func(t stack.T) { t.Cleanup(func() { t.Errorf("stuck") }) }, errors: "stuck\n", details: "stuck\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var (
				errors, details bytes.Buffer
				order           []int
				folder          string
			)

			done := Run(&errors, &details, nil, func(t stack.T) {
				folder = t.TempDir()
				t.Cleanup(func() { order = append(order, 1) })
				t.Cleanup(func() {
					order = append(order, 2)
					t.Cleanup(func() { order = append(order, 3) })
				})
				c.f(t)
			})
			assert.Equal(t, c.done, done)
			assert.Equal(t, c.errors, errors.String())
			assert.Equal(t, c.details, details.String())
			assert.Equal(t, []int{2, 3, 1}, order)
			assert.NoDirExists(t, folder)
		})
	}
}

func TestRunIsInterrupted(t *testing.T) {
	var errors, details bytes.Buffer

	interrupted, started, release := make(chan struct{}), make(chan string, 1), make(chan struct{})
	t.Cleanup(func() { close(release) })

	go func() {
		folder := <-started
		started <- folder
		close(interrupted)
	}()

	done := Run(&errors, &details, interrupted, func(t stack.T) {
		folder := t.TempDir()
		t.Cleanup(func() { t.Errorf("what goes wrong now is no failure") })
		started <- folder
		<-release
	})
	require.False(t, done)
	assert.Empty(t, errors.String())

	_, err := os.Stat(<-started)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
