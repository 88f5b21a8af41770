package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"accesspolicy-operator/cmd/internal/settings"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// Exit codes, the same for every verb.
const (
	exitUsage   = 1
	exitRefused = 2
	exitDenied  = 3
)

const exitCodes = `Exit codes:
  0  all is well: everything is accepted, the call is allowed, all expectations hold
  1  the command line is wrong, or something cannot be read or written
  2  translate, explain: a policy is refused, or a rule is not in force as written;
     coverage: a policy is refused, and the baseline of the others holds
  3  can: the call is denied; test: an expectation does not hold; coverage: the baseline
     does not hold everywhere`

// exitCode ends a verb whose output has said all there is to say.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// app is one run of the program.
type app struct {
	stdin  io.Reader
	stdout *bufio.Writer
	stderr io.Writer
	now    func() time.Time
	// files are the values of -f.
	files  []string
	config settings.Flags
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, now func() time.Time) *app {
	return &app{stdin: stdin, stdout: bufio.NewWriter(stdout), stderr: stderr, now: now}
}

func (a *app) run(args []string) int {
	name := "kubectl-accesspolicy"
	if len(args) > 0 {
		name, args = strings.TrimSuffix(filepath.Base(args[0]), ".exe"), args[1:]
	}
	root := a.rootCommand(name)
	root.SetArgs(args)
	command, err := root.ExecuteC()
	var code exitCode
	if err != nil && !errors.As(err, &code) {
		a.fault(err)
		var usage *usageError
		if errors.As(err, &usage) {
			_, _ = fmt.Fprintf(a.stderr, "%s --help says what it takes\n", command.CommandPath())
		}
		code = exitUsage
	}
	if err := a.stdout.Flush(); err != nil {
		a.say(plan.Error, "the output could not be written: "+err.Error())
		return exitUsage
	}
	return int(code)
}

// usageError is a fault in the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func (a *app) rootCommand(name string) *cobra.Command {
	display := name
	if verb, plugin := strings.CutPrefix(name, "kubectl-"); plugin {
		display = "kubectl " + verb
	}
	root := &cobra.Command{
		Use:           name,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: display},
		Short:         "Translate, explain and test XAccessPolicies from files",
		Long:          "Translate, explain and test XAccessPolicies from files. Only coverage asks a cluster, and only where no file is named.\nResults are on stdout, notes and faults on stderr.\n\n" + exitCodes,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return exitCode(exitUsage)
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%s", err) })
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.StringArrayVarP(&a.files, "filename", "f", nil, "`FILE`, folder (*.yaml, *.yml and *.json in it and below) or - for stdin; can be repeated")
	a.config.Register(flags, requests.DefaultAudience)
	root.AddCommand(a.translateCommand(), a.explainCommand(), a.canCommand(display), a.testCommand(display), a.coverageCommand(display), a.versionCommand(name))
	for _, cmd := range append(root.Commands(), root) {
		cmd.Flags().SortFlags = false
	}
	return root
}

// noVerb refuses a verb that does not exist.
func noVerb(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("there is no verb %q", args[0])
	}
	return nil
}

// noArgs refuses arguments that would be ignored; a file without -f is the likely mistake.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%q is not a flag; files are given with -f", args[0])
	}
	return nil
}

// oneOf checks the value of a flag.
func oneOf(flag, value string, allowed ...string) error {
	for _, v := range allowed {
		if v == value {
			return nil
		}
	}
	return usage("--%s is %q; it can be %s", flag, value, strings.Join(allowed, " or "))
}
