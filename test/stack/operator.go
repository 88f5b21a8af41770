package stack

import (
	"context"
	"os"
	"path/filepath"
)

const (
	managerVariable = "ACCESSPOLICY_MANAGER"

	operatorNamespace = "accesspolicy-system"
)

// OperatorName is the name of the operator's ServiceAccount and ClusterRole.
const OperatorName = "accesspolicy-operator"

// Operator is this project's manager, running as its ServiceAccount.
type Operator struct {
	*Program
	metrics string
}

// InstallOperator installs what `make deploy` does, but for the Deployment: the CRD
// and the generated roles.
func (c *Cluster) InstallOperator(t T) {
	t.Helper()
	c.InstallCRDs(t, CRDsOurs)
	c.Apply(t, Namespace(operatorNamespace))

	root, err := moduleRoot()
	must(t, err)
	files, err := filepath.Glob(filepath.Join(root, "config", "rbac", "*.yaml"))
	must(t, err)

	for _, file := range files {
		if filepath.Base(file) != "kustomization.yaml" {
			c.ApplyFiles(t, file)
		}
	}
}

// StartOperator starts one replica of the manager that ACCESSPOLICY_MANAGER names,
// with more flags, and returns when it is ready. InstallOperator comes before. It
// ends with the test.
func (c *Cluster) StartOperator(t T, flags ...string) *Operator {
	t.Helper()

	binary := os.Getenv(managerVariable)
	if binary == "" {
		t.Fatalf("%s is not set; it has to name the manager's binary, which `make build` writes to bin/manager", managerVariable)
	}

	health, metrics := FreeAddress(t), FreeAddress(t)
	args := append([]string{
		"--leader-election-namespace=" + operatorNamespace, "--leader-election-lease=3s",
		"--health-probe-bind-address=" + health, "--metrics-bind-address=" + metrics, "--log-format=text",
	}, flags...)
	program := c.Program(t, binary, "http://"+health+"/readyz", args, "KUBECONFIG="+c.KubeconfigFor(t, operatorNamespace, OperatorName))
	program.Start(t)

	return &Operator{Program: program, metrics: "http://" + metrics + "/metrics"}
}

// Scrape returns its metrics, as Prometheus would read them.
func (o *Operator) Scrape(ctx context.Context) (string, error) { return get(ctx, o.metrics) }
