// Command cmd tells the story of the quickstart, in the checkout: see package story.
//
//	cmd [-enforcer kuadrant|envoy-gateway] [-stay]
//	cmd [-enforcer kuadrant|envoy-gateway] -kubeconfig FILE -gateway ADDRESS
//
// The first starts local processes, inside hack/loopback, which quickstart/quickstart
// prepares. The second is for a cluster that quickstart/kind/quickstart has prepared.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"accesspolicy-operator/quickstart/story"
	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
)

func main() {
	enforcer := flag.String("enforcer", translator.EnforcerKuadrant, "what enforces the policies")
	stay := flag.Bool("stay", false, "leave the local processes running after the story, until it is interrupted")

	kubeconfig := flag.String("kubeconfig", "", "`file` of the cluster to tell the story in")
	gateway := flag.String("gateway", "", "`address` of the Gateway of that cluster")
	flag.Parse()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)

	interrupted := make(chan struct{})

	go func() {
		<-signals
		close(interrupted)
	}()

	start := story.Start
	if *kubeconfig != "" {
		start = story.Kind(*kubeconfig, *gateway).Connect
	}

	os.Exit(run(start, *enforcer, *stay, interrupted))
}

// Exit codes: 0, the story has been told and all was well; 1, it has not or it was not;
// exitInterrupted, it was not told to its end because of an interruption.
const exitInterrupted = 130

// run returns the exit code. start prepares the world of the story.
func run(start func(t stack.T, checkout, enforcer string, note func(string)) *story.World, enforcer string, stay bool, interrupted <-chan struct{}) int {
	checkout, err := os.Getwd()
	if err != nil {
		return failed(err)
	}

	details, err := os.CreateTemp("", "accesspolicy-quickstart-*.log")
	if err != nil {
		return failed(err)
	}
	defer details.Close()

	// After an interruption the story may still be at it.
	var (
		told   atomic.Bool
		faults atomic.Int64
	)

	done := story.Run(os.Stderr, details, interrupted, func(t stack.T) {
		printer := story.NewPrinter(os.Stdout, interrupted)
		printer.Starting()
		world := start(t, checkout, enforcer, printer.Started)

		for _, o := range story.Tell(world, printer) {
			faults.Add(int64(len(o.Faults)))
		}

		told.Store(true)

		printer.Told(faults.Load() == 0)

		if stay {
			printer.Staying(world)
			<-interrupted
		}
	})

	select {
	case <-interrupted:
		fmt.Fprintln(os.Stderr, "quickstart: interrupted; everything that this has started is stopped")
	default:
		if !done {
			return failed(fmt.Errorf("not told to its end; the ends of all logs are in %s", details.Name()))
		}
	}

	if err := os.Remove(details.Name()); err != nil {
		return failed(err)
	}

	switch {
	case !told.Load():
		return exitInterrupted
	case faults.Load() > 0:
		return failed(fmt.Errorf("%d things are not as they should be, see above", faults.Load()))
	default:
		return 0
	}
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "quickstart:", err)

	return 1
}
