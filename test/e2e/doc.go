// Package e2e has the tests of the operator as a whole: its own binary, with its own ServiceAccount and roles, on a real API
// server, and behind it the real kuadrant-operator, Envoy Gateway and Authorino. `make test-e2e` runs them.
package e2e
