package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/test/stack"
)

const (
	operatorNamespace = "accesspolicy-system"
	operatorAccount   = "accesspolicy-operator"

	audience = "mcp-gateway"

	managerVariable = "ACCESSPOLICY_MANAGER"
	cliVariable     = "ACCESSPOLICY_CLI"

	// limit is how long a test waits for what should take a moment; a busy machine is not a failure.
	limit = 90 * time.Second
	// calm is how long nothing may happen for a test to call it calm.
	calm = 3 * time.Second
)

// operator is the manager's binary, running as its ServiceAccount.
type operator struct {
	*stack.Program
	metrics string
}

// prepare installs what `make deploy` does, but for the Deployment: the CRD and the generated roles.
func prepare(t testing.TB, c *stack.Cluster) {
	t.Helper()
	c.InstallCRDs(t, "ours")
	c.Apply(t, stack.Namespace(operatorNamespace))
	files, err := filepath.Glob(filepath.Join(root(t), "config", "rbac", "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		if filepath.Base(file) != "kustomization.yaml" {
			c.ApplyFiles(t, file)
		}
	}
}

// root is the checkout.
func root(t testing.TB) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(folder, "go.mod"), "run the tests in their folder")
	return folder
}

// startOperator starts one replica and waits until it is ready.
func startOperator(t testing.TB, c *stack.Cluster, flags ...string) *operator {
	t.Helper()
	binary := os.Getenv(managerVariable)
	require.NotEmpty(t, binary, "%s has to name the manager's binary; `make test-e2e` builds it", managerVariable)
	health, metrics := stack.FreeAddress(t), stack.FreeAddress(t)
	args := append([]string{"--token-audience=" + audience, "--leader-election-namespace=" + operatorNamespace, "--leader-election-lease=3s",
		"--health-probe-bind-address=" + health, "--metrics-bind-address=" + metrics, "--log-format=text"}, flags...)
	o := &operator{metrics: "http://" + metrics + "/metrics"}
	o.Program = c.Program(t, binary, "http://"+health+"/readyz", args, "KUBECONFIG="+c.KubeconfigFor(t, operatorNamespace, operatorAccount))
	o.Start(t)
	return o
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
	response, err := http.Get(o.metrics)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
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
