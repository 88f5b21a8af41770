package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/plan"
)

func (a *app) explainCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "explain -f FILE",
		Short: "Say who may do what on each Gateway, and what is not in force and why",
		Long:  "Say who may do what on each Gateway or listener, under which conditions, and what is not in\nforce and why.\n\n" + exitCodes,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			t, err := a.translation(cmd, asConfigured)
			if err != nil {
				return err
			}
			if output == "json" {
				err = writeJSON(a.stdout, t.view())
			} else {
				err = a.explain(t)
			}
			if err != nil {
				return err
			}
			return t.exit()
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT`: text or json")
	return cmd
}

func (a *app) explain(t *translation) error {
	for _, gw := range t.result.Gateways {
		for i := range gw.Plans {
			if _, err := fmt.Fprintln(a.stdout, printableLines(heading(&gw, &gw.Plans[i]))); err != nil {
				return err
			}
		}
	}
	for _, part := range []struct {
		severity plan.Severity
		title    string
	}{{plan.Error, "refused, or not in force as written"}, {plan.Warning, "in force, but probably not as meant"}, {plan.Note, "worth knowing"}} {
		first := true
		for _, d := range t.faults {
			if d.Severity != part.severity {
				continue
			}
			if first {
				_, _ = fmt.Fprintln(a.stdout, part.title) // the next write says what is wrong
				first = false
			}
			if _, err := fmt.Fprintf(a.stdout, "  %s\n", manifest.Printable(d.String())); err != nil {
				return err
			}
		}
	}
	return nil
}

// heading is the plan's text. Beside plans of single listeners, the one without a name speaks of listeners to come.
func heading(gw *translator.GatewayResult, p *plan.Plan) string {
	text := p.String()
	if p.Listener == "" && len(gw.Plans) > 1 {
		text = strings.Replace(text, p.Where(), p.Where()+", listeners that are added later", 1)
	}
	return text
}
