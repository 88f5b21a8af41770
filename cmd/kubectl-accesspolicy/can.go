package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

func (a *app) canCommand(display string) *cobra.Command {
	var c call
	cmd := &cobra.Command{
		Use:   "can -f FILE [--as WHO | --anonymous] (--tool NAME | --prompt NAME | --resource URI | --mcp-method METHOD | HTTP flags)",
		Short: "Say whether a call is allowed, by which rule, or what it came closest to",
		Long: `Say whether a call is allowed, by which policy and rule, or which rule it came closest to and why
that one does not hold. A denial says whether the caller gets 401 (no credential that a rule asks
for) or 403.

With --tool, --prompt, --resource or --mcp-method the call has the headers that the MCP router of
the profile sets; tools and prompts are named without the prefix of their server. Without them it
is a plain HTTP request. Path and method are /mcp and POST unless given; the host is that of the
listener, or mcp.example.com. Without --as the caller has no credentials.

` + exitCodes,
		Example: fmt.Sprintf(`  %[1]s can -f policies/ --as demo/reader --tool add
  %[1]s can -f policies/ --as demo/reader --as spiffe://example.org/agent --mcp-method tools/list
  %[1]s can -f policies/ --anonymous --method GET --path /health --header x-team=blue`, display),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.can(cmd, &c) },
	}
	c.register(cmd.Flags())
	return cmd
}

func (a *app) can(cmd *cobra.Command, c *call) error {
	request, err := c.request(cmd)
	if err != nil {
		return err
	}
	t, err := a.translation(cmd, func(opts *translator.Options) error {
		decideFor(opts, requests.Against(c.enforcer))
		return nil
	})
	if err != nil {
		return err
	}
	gw, err := c.choose(t, &request)
	if err != nil {
		return err
	}
	a.remark(c, t)
	byEnvoy := c.enforcer == string(requests.AgainstEnvoyGateway)
	wire := request.Plan(t.opts.Profile, !byEnvoy && t.opts.Kuadrant.SPIFFEFrom == kuadrant.SPIFFEFromXFCC)
	said, expressed := plan.Select(gw.Plans, c.listener, wire.Host), plan.Select(gw.Kuadrant.Expressed, "", wire.Host) // Kuadrant chooses by host name
	if byEnvoy {
		expressed = plan.Select(gw.EnvoyGateway.Expressed, c.listener, wire.Host)
	}
	p := said
	if c.enforcer != string(requests.AgainstPlan) {
		p = expressed
	}
	if p == nil {
		return fmt.Errorf("no listener of Gateway %s takes the host %q; ask with --host or --listener", gw.Gateway, wire.Host)
	}
	d := p.Decide(wire)
	if p == said && d.Allowed && expressed != nil {
		if e := expressed.Decide(wire); !e.Allowed {
			a.say(plan.Warning, "the generated AuthPolicy denies this call all the same: "+e.Reason+"; --enforcer kuadrant says more")
		}
	}
	if err := a.answer(c, p, d); err != nil {
		return err
	}
	if !d.Allowed {
		return exitCode(exitDenied)
	}
	return nil
}

// remark notes what of the input does not count in the answer, and who asks when nobody was named.
func (a *app) remark(c *call, t *translation) {
	for _, d := range t.faults {
		if d.Severity == plan.Error {
			a.say(plan.Note, "refused: "+d.String())
		}
	}
	if len(c.as) == 0 && !c.anonymous {
		a.say(plan.Note, "no --as was given; the caller has no credentials")
	}
}

// choose finds the Gateway that is asked about, and gives the request the host of its listener when no other was given.
func (c *call) choose(t *translation, r *requests.Request) (*translator.GatewayResult, error) {
	var names []string
	for i := range t.result.Gateways {
		names = append(names, t.result.Gateways[i].Gateway.String())
	}
	gw, err := requests.Gateway(&requests.File{Gateway: c.gateway}, t.result)
	switch {
	case len(names) == 0:
		return nil, errors.New("no policy of the input targets a Gateway, so nothing decides the call")
	case err != nil && c.gateway == "":
		return nil, usage("policies target several Gateways; name one of them with --gateway: %s", strings.Join(names, ", "))
	case err != nil:
		return nil, usage("--gateway %s: no policy targets it, only %s", c.gateway, strings.Join(names, ", "))
	}
	listener, err := c.listenerOf(t, gw)
	if err == nil && r.HTTP.Host == nil && listener != nil && listener.Hostname != nil {
		host := strings.Replace(string(*listener.Hostname), "*", "mcp", 1)
		r.HTTP.Host = &host
	}
	return gw, err
}

// listenerOf returns the named listener, or the only one; nil where the host decides.
func (c *call) listenerOf(t *translation, gw *translator.GatewayResult) (*gwv1.Listener, error) {
	at := slices.IndexFunc(t.set.Gateways, func(g gwv1.Gateway) bool { return g.Namespace == gw.Gateway.Namespace && g.Name == gw.Gateway.Name })
	listeners := t.set.Gateways[at].Spec.Listeners
	if c.listener == "" && len(listeners) == 1 {
		return &listeners[0], nil
	}
	var names []string
	for i := range listeners {
		if string(listeners[i].Name) == c.listener {
			return &listeners[i], nil
		}
		names = append(names, string(listeners[i].Name))
	}
	if c.listener != "" {
		return nil, usage("--listener %s: Gateway %s has no such listener, only %s", c.listener, gw.Gateway, strings.Join(names, ", "))
	}
	return nil, nil //nolint:nilnil // no listener is an answer, not a fault
}
