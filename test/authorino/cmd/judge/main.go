// Command judge says whether Authorino lets a request through. It reads one JSON
// object per line from standard input and writes one per line to standard output;
// notes go to standard error. The objects are described in protocol.go and in the
// README.md of this module.
//
// Flags: -v writes Authorino's own log to standard error.
package main

import (
	"flag"
	"fmt"
	"os"

	authorinolog "github.com/kuadrant/authorino/pkg/log"
)

func main() {
	flags := flag.NewFlagSet("judge", flag.ExitOnError)
	verbose := flags.Bool("v", false, "write Authorino's own log to standard error")
	// With ExitOnError Parse never returns an error.
	_ = flags.Parse(os.Args[1:])

	authorinolog.SetLogger(logger(*verbose), authorinolog.Options{})

	if err := newServer().serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}
