// Package pipeline answers, for AuthPolicies of Kuadrant and an HTTP request,
// whether Authorino lets the request through.
//
// The deciding part is the real one: Authorino's AuthConfigReconciler, index,
// evaluators and Check service, of the version in go.mod, run in this process.
// What stands before it in a cluster is imitated, because it cannot be imported
// (internal packages, a plugin in Rust, a proxy in C++): kuadrant-operator, which
// makes AuthConfigs of AuthPolicies, its wasm-shim, which selects one of them for
// a request, and the data plane, which fills the CheckRequest. Each imitation
// names the file it was read in. README.md of the module has the whole list.
//
// The package is a judge, so it leans to neither side: a request that passes by
// an evaluation error, by a missing action set or by an order that the real
// operator leaves to chance is reported as allowed.
package pipeline
