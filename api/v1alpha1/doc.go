// Package v1alpha1 holds the Go types of XAccessPolicy, version v1alpha1 of the
// API group agentic.networking.x-k8s.io.
//
// The API belongs to kubernetes-sigs/kube-agentic-networking; this package
// mirrors its commit c7e4194 (2026-07-01). It is a mirror and not an import
// because the last importable release, v0.1.0, does not know the HTTP matchers
// (methods, paths, headers, hosts, ports): read through its types, a rule that
// is limited to one path arrives as a rule without limits.
//
// JSON and validation are those of upstream, with three deliberate differences
// in Go, all for the same reason: what a user left out and what a user wrote as
// empty mean different things, and the Go value has to show which it was.
//
//   - AccessRule.Source is a pointer. nil is "any caller"; a source without a
//     type is no caller.
//   - AuthorizationRule.MCP is a pointer. nil is "no MCP condition"; `mcp: {}`
//     gets the default base protocol option from the API server.
//   - AccessPolicySpec.Rules is written with omitzero. nil is "all traffic";
//     an empty list grants nothing, and stays an empty list when it is written
//     back.
//
// test/crd compares the generated CRD with upstream's, marker by marker and
// verdict by verdict, and lists every difference with its reason.
//
// +kubebuilder:object:generate=true
// +groupName=agentic.networking.x-k8s.io
package v1alpha1
