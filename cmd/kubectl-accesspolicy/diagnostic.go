package main

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/plan"
)

// diagnostic is a fault or a remark, as it is shown.
type diagnostic struct {
	Severity  plan.Severity `json:"severity"`
	Policy    string        `json:"policy,omitempty"`
	Gateway   string        `json:"gateway,omitempty"`
	Listeners []string      `json:"listeners,omitempty"`
	Enforcer  string        `json:"enforcer,omitempty"`
	Field     string        `json:"field,omitempty"`
	Reason    string        `json:"reason"`
	Message   string        `json:"message"`
}

// String gives one line without the severity.
func (d diagnostic) String() string {
	where := d.Policy
	switch {
	case where == "" && d.Gateway == "":
		return d.Message
	case where == "":
		where = "Gateway " + d.Gateway
	}
	if d.Field != "" {
		where += ": " + d.Field
	}
	line := where + ": " + d.Message
	if d.Enforcer != "" {
		line += " [" + d.Enforcer + "]"
	}
	return line
}

// diagnose lists faults first and then remarks, each once: a policy with several Gateways has the same fault on each.
func diagnose(l *loader, result *translator.Result) []diagnostic {
	var out []diagnostic
	shown := map[string]bool{}
	add := func(d diagnostic) {
		if key := string(d.Severity) + d.String(); !shown[key] {
			shown[key] = true
			out = append(out, d)
		}
	}
	refusals(l, result, add)
	for _, f := range result.Findings {
		add(fromFinding(f))
	}
	if len(result.Gateways) == 0 {
		add(diagnostic{Severity: plan.Warning, Reason: "NothingEnforced", Message: "no policy of the input targets a Gateway that is known, so nothing is generated"})
	}
	copies(l, add)
	order := []plan.Severity{plan.Error, plan.Warning, plan.Note}
	slices.SortStableFunc(out, func(x, y diagnostic) int { return slices.Index(order, x.Severity) - slices.Index(order, y.Severity) })
	return out
}

// refusals lists the faults behind verdicts, and those of policies that reach no Gateway and so have no verdict.
func refusals(l *loader, result *translator.Result, add func(diagnostic)) {
	attached := map[types.NamespacedName]bool{}
	for _, v := range result.Verdicts {
		attached[v.Policy] = true
		if !v.Accepted {
			refusal(v.Policy, v.Problems, add)
		}
	}
	for i := range l.set.Policies {
		p := &l.set.Policies[i]
		name := types.NamespacedName{Namespace: p.Object.Namespace, Name: p.Object.Name}
		if attached[name] {
			continue
		}
		refusal(name, p.Problems, add)
		if len(p.Object.Spec.TargetRefs) == 0 {
			refusal(name, []translator.Problem{{Field: "spec.targetRefs", Reason: "Invalid", Message: "the policy targets nothing; name a Gateway"}}, add)
		}
	}
}

// copies says where the copies are of policies that stand in the input more than once.
func copies(l *loader, add func(diagnostic)) {
	where := map[string][]string{}
	var twice []string
	for i, source := range l.from {
		name := l.set.Policies[i].Object.Namespace + "/" + l.set.Policies[i].Object.Name
		if len(where[name]) == 1 {
			twice = append(twice, name)
		}
		where[name] = append(where[name], source)
	}
	for _, name := range twice {
		add(diagnostic{Severity: plan.Note, Policy: name, Reason: "Duplicate", Message: "the copies stand in " + strings.Join(where[name], ", ")})
	}
}

func refusal(policy types.NamespacedName, problems []translator.Problem, add func(diagnostic)) {
	for _, p := range problems {
		add(diagnostic{Severity: plan.Error, Policy: policy.String(), Field: p.Field, Reason: p.Reason, Message: p.Message})
	}
}

func fromFinding(f plan.Finding) diagnostic {
	d := diagnostic{Severity: f.Severity, Field: f.Origin.Field, Reason: f.Reason, Message: f.Message, Enforcer: f.Enforcer, Listeners: f.Listeners}
	if f.Origin.Policy.Name != "" {
		d.Policy = f.Origin.Policy.String()
	}
	if f.Gateway.Name != "" {
		d.Gateway = f.Gateway.String()
	}
	return d
}

// failed reports whether something the user wrote is not in force.
func (t *translation) failed() bool {
	return slices.ContainsFunc(t.faults, func(d diagnostic) bool { return d.Severity == plan.Error })
}

// exit is the exit code of a verb that has written everything.
func (t *translation) exit() error {
	if t.failed() {
		return exitCode(exitRefused)
	}
	return nil
}
