// Package envoy asks a real Envoy, which the real Envoy Gateway configures over
// ADS, what it does with the requests of the golden cases. Tokens are those of a
// real API server, client certificates are made by the test, and the upstream
// answers with what it was sent. The golden files as they are also go through
// egctl and `envoy --mode validate`, and what the emitter takes for granted of
// Envoy is tried by itself. `make bench-envoy` measures what rules cost.
//
// It is run by hack/e2e.sh, in a network namespace that has only loopback; see
// test/stack.
package envoy
