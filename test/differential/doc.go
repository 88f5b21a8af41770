// Package differential compares three answers to the same request: the reference evaluator (plan.Decide), what the
// emitted AuthPolicy expresses, and the real Authorino pipeline (test/authorino). Policies and requests are random, from a
// small universe, so that they meet often; the seed is printed.
package differential
