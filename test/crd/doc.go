// Package crd has only tests. They hold the CRD that is generated from
// api/v1alpha1 against the CRD of kubernetes-sigs/kube-agentic-networking, in
// two ways:
//
//   - schema against schema: every difference is in a list with its reason, and
//     the list has nothing in it that is not a difference;
//   - verdict against verdict: a real API server answers the same for both, for
//     manifests that go to both sides of every limit.
//
// The comparison with release v0.1.0 always runs. The comparison with commit
// c7e4194, which the Go types mirror, runs when ACCESSPOLICY_CASES names a
// folder with xaccesspolicy/upstream-crd-c7e4194.yaml, and is reported as
// skipped otherwise.
package crd
