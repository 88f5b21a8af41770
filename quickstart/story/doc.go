// Package story is the quickstart's story: what it starts, its steps, and what it
// prints. A step returns what it saw, and what of that is not as it should be; the
// quickstart prints the one and fails for the other, and test/quickstart asserts both.
//
// Everything that it starts is real, and runs as local processes on loopback (see
// package stack, also for what is faked there), but for Kuadrant's plugin in Envoy:
// see plugin.go.
package story
