// Command kubectl-accesspolicy translates, explains and tests XAccessPolicies from files. It needs no cluster. Installed
// on the PATH it is the kubectl plugin `kubectl accesspolicy`.
package main

import (
	"io"
	"os"
	"time"
)

func main() {
	os.Exit(execute(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// execute runs a command line, the program's name included, and returns the exit code.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return newApp(stdin, stdout, stderr, time.Now).run(args)
}
