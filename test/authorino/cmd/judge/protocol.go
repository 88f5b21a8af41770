package main

import (
	"accesspolicy-operator/test/authorino/pipeline"
)

// order is one line of input. It asks for exactly one of load, checks, bench and
// drop, in the world of the given name ("" is a name too).
type order struct {
	ID    int64  `json:"id"`
	World string `json:"world"`
	// Load fills the world, in place of what was in it.
	Load *pipeline.World `json:"load"`
	// Checks are answered in their order.
	Checks []pipeline.Request `json:"checks"`
	Bench  *benchOrder        `json:"bench"`
	// Drop forgets the world; one that does not exist is no error.
	Drop bool `json:"drop"`
}

type benchOrder struct {
	Request pipeline.Request `json:"request"`
	// Benchtime is a Go duration, "1s" when empty.
	Benchtime string `json:"benchtime"`
}

// answer is one line of output. Error is "" on success.
type answer struct {
	ID          int64                       `json:"id"`
	Error       string                      `json:"error"`
	Policies    []pipeline.PolicyReport     `json:"policies,omitempty"`
	AuthConfigs []pipeline.AuthConfigReport `json:"authConfigs,omitempty"`
	Results     []pipeline.Result           `json:"results,omitempty"`
	Bench       *pipeline.Measurement       `json:"bench,omitempty"`
}
