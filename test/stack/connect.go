package stack

import (
	"k8s.io/client-go/tools/clientcmd"
)

// Connect is a cluster that runs already: the one of a kubeconfig's current context,
// whose user may do everything. It is not the test's, so nothing of it can be started or
// stopped, and what has been applied stays when the test ends.
func Connect(t T, kubeconfig string) *Cluster {
	t.Helper()

	admin, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)

	admin.QPS, admin.Burst = clientQPS, clientBurst
	c := &Cluster{folder: t.TempDir(), kubeconfig: kubeconfig, admin: admin}
	c.makeClients(t)

	return c
}
