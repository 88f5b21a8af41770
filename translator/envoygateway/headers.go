package envoygateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator/plan"
)

// ReasonHeadersNotStripped is the finding that clients can send the headers which MCP conditions read.
const ReasonHeadersNotStripped = "HeadersNotStripped"

// headerFinding tells where clients can send the headers that MCP conditions read. The rules do not depend on it where
// the profile says so (design of the guards: docs/security.md); it closes what remains.
func (e *emission) headerFinding(plans []plan.Plan) {
	left, where := map[string]bool{}, []string{}
	for _, p := range plans {
		if !slices.ContainsFunc(p.Rules, func(r plan.Rule) bool { return r.MCP != nil || r.CEL != nil }) {
			continue
		}
		traffic := e.clientTraffic(p.Listener)
		open := slices.DeleteFunc(p.Profile.NameHeaders(), func(h string) bool { return traffic != nil && removes(traffic, h) })
		for _, header := range open {
			left[header] = true
		}
		if len(open) > 0 && p.Listener != "" {
			where = append(where, p.Listener)
		}
	}
	if len(left) > 0 {
		e.out.Findings = append(e.out.Findings, plan.Finding{Severity: plan.Warning, Enforcer: Enforcer, Gateway: e.gateway, Listeners: where, Reason: ReasonHeadersNotStripped,
			Message: fmt.Sprintf("no ClientTrafficPolicy removes %s from what clients send, before the MCP router sets them; add them to headers.earlyRequestHeaders.remove of one that targets the Gateway",
				strings.Join(slices.Sorted(maps.Keys(left)), ", "))})
	}
}

// removes reports whether a policy removes a header that clients sent.
func removes(p *egv1a1.ClientTrafficPolicy, header string) bool {
	if p.Spec.Headers == nil || p.Spec.Headers.EarlyRequestHeaders == nil {
		return false
	}
	filter := p.Spec.Headers.EarlyRequestHeaders
	return slices.ContainsFunc(filter.Remove, func(name string) bool { return strings.EqualFold(name, header) }) ||
		slices.ContainsFunc(filter.RemoveOnMatch, func(m egv1a1.StringMatch) bool {
			return m.Type != nil && *m.Type == "Prefix" && strings.HasPrefix(header, strings.ToLower(m.Value))
		})
}
