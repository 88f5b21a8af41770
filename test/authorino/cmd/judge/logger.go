package main

import (
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// logger is Authorino's log: standard error, or nowhere. Standard output belongs to
// the answers.
func logger(verbose bool) logr.Logger {
	if !verbose {
		return logr.Discard()
	}

	return funcr.New(func(prefix, arguments string) {
		fmt.Fprintln(os.Stderr, prefix, arguments)
	}, funcr.Options{Verbosity: 1})
}
