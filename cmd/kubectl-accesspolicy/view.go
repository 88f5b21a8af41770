package main

import (
	"accesspolicy-operator/translator/plan"
)

// explanation is the output of explain -o json.
type explanation struct {
	Gateways []gatewayView `json:"gateways"`
	Policies []policyView  `json:"policies"`
	Faults   []diagnostic  `json:"faults"`
}

type gatewayView struct {
	Gateway string     `json:"gateway"`
	Plans   []planView `json:"plans"`
	// Kuadrant are the plans as the generated AuthPolicies express them.
	Kuadrant []planView `json:"kuadrant"`
}

type planView struct {
	Listener string        `json:"listener,omitempty"`
	Host     string        `json:"host,omitempty"`
	Open     bool          `json:"open"`
	Refusals []refusalView `json:"refusals,omitempty"`
	Rules    []ruleView    `json:"rules,omitempty"`
}

type refusalView struct {
	Policy string     `json:"policy"`
	All    bool       `json:"all"`
	Rules  []ruleView `json:"rules,omitempty"`
}

type ruleView struct {
	Policy     string       `json:"policy"`
	Rule       string       `json:"rule,omitempty"`
	Field      string       `json:"field"`
	Anybody    bool         `json:"anybody"`
	Principals []string     `json:"principals,omitempty"`
	Methods    []string     `json:"methods,omitempty"`
	Hosts      []string     `json:"hosts,omitempty"`
	Paths      []pathView   `json:"paths,omitempty"`
	Headers    []headerView `json:"headers,omitempty"`
	MCP        *mcpView     `json:"mcp,omitempty"`
	CEL        string       `json:"cel,omitempty"`
}

type pathView struct {
	Type  plan.PathType `json:"type"`
	Value string        `json:"value"`
}

type headerView struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Regex bool   `json:"regex,omitempty"`
}

type mcpView struct {
	BaseProtocol bool            `json:"baseProtocol"`
	Methods      []mcpMethodView `json:"methods,omitempty"`
}

type mcpMethodView struct {
	Name     string   `json:"name"`
	Category bool     `json:"category,omitempty"`
	Params   []string `json:"params,omitempty"`
}

type policyView struct {
	Policy   string `json:"policy"`
	Gateway  string `json:"gateway"`
	Listener string `json:"listener,omitempty"`
	Accepted bool   `json:"accepted"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
}

func (t *translation) view() explanation {
	out := explanation{Gateways: []gatewayView{}, Policies: []policyView{}, Faults: t.faults}
	if out.Faults == nil {
		out.Faults = []diagnostic{}
	}
	for _, gw := range t.result.Gateways {
		out.Gateways = append(out.Gateways, gatewayView{Gateway: gw.Gateway.String(), Plans: viewPlans(gw.Plans), Kuadrant: viewPlans(gw.Kuadrant.Expressed)})
	}
	for _, v := range t.result.Verdicts {
		out.Policies = append(out.Policies, policyView{Policy: v.Policy.String(), Gateway: v.Gateway.String(), Listener: v.Section,
			Accepted: v.Accepted, Reason: v.Reason, Message: v.Message})
	}
	return out
}

func viewPlans(plans []plan.Plan) []planView {
	out := make([]planView, len(plans))
	for i, p := range plans {
		out[i] = planView{Listener: p.Listener, Host: p.Host, Open: p.Open, Rules: viewRules(p.Rules)}
		for _, r := range p.Refusals {
			out[i].Refusals = append(out[i].Refusals, refusalView{Policy: r.Origin.Policy.String(), All: r.All, Rules: viewRules(r.Rules)})
		}
	}
	return out
}

func viewRules(rules []plan.Rule) []ruleView {
	var out []ruleView
	for _, r := range rules {
		v := ruleView{Policy: r.Origin.Policy.String(), Rule: r.Origin.Rule, Field: r.Origin.Field, Anybody: r.Source.Any,
			Principals: r.Source.Principals, Methods: r.Methods, Hosts: r.Hosts}
		for _, m := range r.Paths {
			v.Paths = append(v.Paths, pathView(m))
		}
		for _, h := range r.Headers {
			v.Headers = append(v.Headers, headerView(h))
		}
		if r.MCP != nil {
			v.MCP = &mcpView{BaseProtocol: r.MCP.Base}
			for _, m := range r.MCP.Methods {
				v.MCP.Methods = append(v.MCP.Methods, mcpMethodView(m))
			}
		}
		if r.CEL != nil {
			v.CEL = r.CEL.String()
		}
		out = append(out, v)
	}
	return out
}
