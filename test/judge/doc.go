// Package judge asks the real Authorino whether requests pass the AuthPolicies
// that this project writes.
//
// Authorino is built with older versions of Kubernetes and cel-go than the rest
// of the project, so it runs in a process of its own: test/authorino/cmd/judge, a
// nested module. This package starts that process and talks JSON lines with it.
// What the process imitates, and what it cannot see, is in test/authorino/README.md.
package judge
