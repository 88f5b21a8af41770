package e2e

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/test/stack"
)

const (
	audience = "mcp-gateway"

	// cliVariable names the command line's binary.
	cliVariable = "ACCESSPOLICY_CLI"

	// limit is how long a test waits for what should take a moment; a busy machine is not a failure.
	limit = 90 * time.Second
	// calm is how long nothing may happen for a test to call it calm.
	calm = 3 * time.Second
)

// operator is the manager's binary, running as its ServiceAccount.
type operator struct{ *stack.Operator }

// startOperator starts one replica and waits until it is ready.
func startOperator(t testing.TB, c *stack.Cluster, flags ...string) *operator {
	t.Helper()
	return &operator{c.StartOperator(t, append([]string{"--token-audience=" + audience}, flags...)...)}
}

// value returns the sum of a metric over all its labels that contain each of the given texts.
func (o *operator) value(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
	scanner := bufio.NewScanner(strings.NewReader(o.scrape(t)))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if matches := func() bool {
			for _, label := range labels {
				if !strings.Contains(rest, label) {
					return false
				}
			}
			return true
		}(); !matches {
			continue
		}
		number, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		require.NoError(t, err)
		sum += number
	}
	return sum
}

func (o *operator) scrape(t testing.TB) string {
	t.Helper()
	text, err := o.Scrape(t.Context())
	require.NoError(t, err)
	return text
}

// writes is how many writes the operator has made since it started.
func (o *operator) writes(t testing.TB) float64 {
	t.Helper()
	return o.value(t, "accesspolicy_writes_total")
}

// settled waits until the operator has not written for a while.
func (o *operator) settled(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(limit)
	last, since := o.writes(t), time.Now()
	for time.Since(since) < calm {
		require.True(t, time.Now().Before(deadline), "the operator does not stop writing:\n%s", o.Tail())
		time.Sleep(200 * time.Millisecond)
		if now := o.writes(t); now != last {
			last, since = now, time.Now()
		}
	}
}

// eventually repeats try until it returns no error.
func eventually(t testing.TB, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// want is an error unless a condition holds.
func want(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}
