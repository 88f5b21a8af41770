package coverage

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"accesspolicy-operator/translator/manifest"
)

// Write prints lines as a table.
func Write(w io.Writer, lines []Line) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, strings.Join([]string{"GATEWAY", "LISTENER", "ROUTE", "RULE", "ENFORCER", "HOLDS", "BY", "WHY"}, "\t")) // Flush says what is wrong
	for i := range lines {
		l := &lines[i]
		cells := []string{l.Gateway.String(), l.ListenerName(), l.Route.String(), l.ruleText(), l.Enforcer, l.Holds(), cmp.Or(l.DisplacedBy, l.By), l.explanation()}
		for c := range cells {
			cells[c] = cmp.Or(manifest.Printable(cells[c]), "-")
		}
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}

// Holds is yes, no, or open where no baseline is meant to hold.
func (l *Line) Holds() string {
	switch {
	case l.Covered:
		return "yes"
	case l.Lacking():
		return "no"
	default:
		return "open"
	}
}

// ListenerName is the listener, behind its ListenerSet if it has one, or "" for the whole Gateway.
func (l *Line) ListenerName() string {
	if l.ListenerSet.Name == "" {
		return l.Listener
	}
	return l.ListenerSet.String() + "/" + l.Listener
}

func (l *Line) ruleText() string {
	if l.Rule < 0 {
		return l.RuleName
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", l.Rule, l.RuleName))
}

func (l *Line) explanation() string {
	text := l.Why
	if l.Reason != "" {
		text = l.Reason + ": " + text
	}
	if l.Reported != "" {
		text += " (" + l.Reported + ")"
	}
	return text
}
