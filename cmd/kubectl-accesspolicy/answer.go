package main

import (
	"fmt"
	"net/http"

	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/plan"
)

// answer is the output of can.
type answer struct {
	Allowed  bool        `json:"allowed"`
	Status   int         `json:"status,omitempty"`
	Gateway  string      `json:"gateway"`
	Listener string      `json:"listener,omitempty"`
	By       *originView `json:"by,omitempty"`
	Reason   string      `json:"reason"`
	Nearest  *nearView   `json:"nearest,omitempty"`
}

type originView struct {
	Policy string `json:"policy"`
	Rule   string `json:"rule,omitempty"`
	Field  string `json:"field,omitempty"`
}

type nearView struct {
	originView
	Why string `json:"why"`
}

func viewOrigin(o plan.Origin) originView {
	return originView{Policy: o.Policy.String(), Rule: o.Rule, Field: o.Field}
}

func (a *app) answer(c *call, p *plan.Plan, d plan.Decision) error {
	if c.output == "json" {
		out := answer{Allowed: d.Allowed, Status: d.Status, Gateway: p.Gateway.String(), Listener: p.Listener, Reason: d.Reason}
		if d.By.Policy.Name != "" {
			by := viewOrigin(d.By)
			out.By = &by
		}
		if d.NearMiss != nil {
			out.Nearest = &nearView{originView: viewOrigin(d.NearMiss.Origin), Why: d.NearMiss.Why}
		}
		return writeJSON(a.stdout, out)
	}
	verdict := "allow"
	if !d.Allowed {
		verdict = fmt.Sprintf("deny (%d %s)", d.Status, http.StatusText(d.Status))
	}
	text := fmt.Sprintf("%s: %s\n  at %s\n", verdict, manifest.Printable(d.Reason), manifest.Printable(p.Where()))
	if d.By.Field != "" {
		text += fmt.Sprintf("  field %s\n", d.By.Field)
	}
	if d.NearMiss != nil {
		text += fmt.Sprintf("  nearest is %s (%s): %s\n", manifest.Printable(d.NearMiss.Origin.String()), d.NearMiss.Origin.Field, manifest.Printable(d.NearMiss.Why))
	}
	_, err := fmt.Fprint(a.stdout, text)
	return err
}
