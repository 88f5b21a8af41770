// Package stack starts the real components that an AuthPolicy passes through, as
// local processes on loopback: etcd, kube-apiserver and the controllers of
// minikcm, and on top of them Authorino, Envoy Gateway and kuadrant-operator.
//
// The binaries and the CRDs come from hack/components/build; the environment
// variable ACCESSPOLICY_COMPONENTS names the folder. Some components listen on all
// interfaces and on fixed ports, therefore a test runs inside hack/loopback:
//
//	go test -c -o /tmp/stack.test ./test/stack
//	ACCESSPOLICY_COMPONENTS=$(hack/components/build etcd kube-apiserver minikcm \
//	    authorino kuadrant-operator envoy-gateway mcp-broker-router mcpserver stubregistry crds) \
//	    hack/loopback /tmp/stack.test -test.v
//
// No Envoy runs, no kubelet and no operator of Authorino or Limitador: what those
// would report is faked by one loop (fakes.go), and what Envoy would do with a
// request is left to the test: it asks for the action sets that
// kuadrant-operator wrote for the gateway, picks the one for the request, and asks
// Authorino with the scope found there.
package stack
