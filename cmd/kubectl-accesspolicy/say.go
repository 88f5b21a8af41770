package main

import (
	"errors"
	"fmt"
	"strings"

	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/plan"
)

// say writes one line to stderr.
func (a *app) say(severity plan.Severity, text string) {
	_, _ = fmt.Fprintf(a.stderr, "%s: %s\n", severity, manifest.Printable(text)) // there is nowhere left to complain
}

// tell writes faults and remarks.
func (a *app) tell(list []diagnostic) {
	for _, d := range list {
		a.say(d.Severity, d.String())
	}
}

func (a *app) notes(list []string) {
	for _, note := range list {
		a.say(plan.Note, note)
	}
}

// fault writes an error, each of several on a line of its own.
func (a *app) fault(err error) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		a.say(plan.Error, err.Error())
		return
	}
	for _, e := range joined.Unwrap() {
		a.fault(e)
	}
}

// printableLines is manifest.Printable for a text of several lines.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = manifest.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
