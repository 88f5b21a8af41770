package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/api/v1alpha1"
)

// brokerAndServers is a Gateway as the MCP gateway lays it out: clients talk to the broker at one host; the router sends calls of
// tools to the servers' own hosts, on another listener.
type brokerAndServers struct {
	*trial
	gateway, broker, server string
}

func (tr *trial) brokerAndServers(t *testing.T, gateway string) *brokerAndServers {
	t.Helper()
	domain := gateway + "." + tr.host
	l := &brokerAndServers{trial: tr, gateway: gateway, broker: "mcp." + domain, server: "calc.mcps." + domain}
	tr.listeners(t, gateway, map[string]string{"mcp": l.broker, "mcps": "*.mcps." + domain}, map[string]string{l.broker: "mcp", l.server: "mcps"})
	return l
}

// routed is a request that the router sends to the server.
func (l *brokerAndServers) routed(method, name string) call {
	return call{host: l.server, headers: map[string]string{"x-mcp-method": method, "x-mcp-toolname": name, "x-mcp-servername": l.namespace + "/calc"}}
}

// handshake are the client's own messages, which the broker answers.
func (l *brokerAndServers) handshake(as caller, code int) []request {
	at := *l.trial
	at.host = l.broker
	return at.base(code, as)
}

// hairpin are the messages by which the router opens a session at a server, as the caller and with what it knows of the call
// that waits.
func (l *brokerAndServers) hairpin(as caller, code int) []request {
	return []request{
		{"the session at the server", as(l.routed("initialize", "sum")), code},
		{"which is confirmed", as(l.routed("notifications/initialized", "sum")), code},
	}
}

// calls are what has to be refused at the server if anything there is to be.
func (l *brokerAndServers) calls(as caller, sum, echo int) []request {
	return []request{
		{"a call of the tool at the server", as(l.routed("tools/call", "sum")), sum},
		{"a call of another tool at the server", as(l.routed("tools/call", "echo")), echo},
	}
}

func anybody(c call) call { return c }

// named puts who asks before what is asked.
func named(who string, lists ...[]request) []request {
	all := slices.Concat(lists...)
	for i := range all {
		all[i].name = who + ": " + all[i].name
	}
	return all
}

const (
	passed       = http.StatusOK
	refused      = http.StatusForbidden
	unidentified = http.StatusUnauthorized
)

// twoListeners: what a policy on the whole Gateway, or on one of its listeners, closes and leaves open.
func twoListeners(t *testing.T, tr *trial) {
	scenarios := []scenario{
		{"the-whole-gateway", wholeGateway},
		{"the-whole-gateway-without-base-protocol", wholeGatewaySkip},
		{"servers-only", serversOnly},
		{"broker-only", brokerOnly},
		{"each-its-own", eachItsOwn},
		{"each-its-own-without-base-protocol-at-servers", eachItsOwnSkip},
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			defer tr.clear(t)
			s.run(t, tr)
		})
	}
}

// wholeGateway: one policy with the base protocol carries the whole session, at the broker and at the servers.
func wholeGateway(t *testing.T, tr *trial) {
	l := tr.brokerAndServers(t, "whole")
	l.allow(t, "whole", "tester", sumBase, "whole")
	l.programmed(t, "whole", "whole")
	l.ask(t, "whole", named("tester", l.handshake(l.tester, passed), l.hairpin(l.tester, passed), l.calls(l.tester, passed, refused))...)
	l.ask(t, "whole", named("other", l.handshake(l.other, refused), l.hairpin(l.other, refused), l.calls(l.other, refused, refused))...)
	l.ask(t, "whole", named("nobody", l.handshake(anybody, unidentified), l.hairpin(anybody, unidentified),
		l.calls(anybody, unidentified, unidentified))...)
	l.ask(t, "whole", named("at the broker", forgeries(l.broker, l.tester, "sum"))...)
	l.ask(t, "whole", named("at the server", forgeries(l.server, l.tester, "sum"))...)
	require.Equal(t, []string{"whole-auth"}, l.objects(t))
	l.quiet(t, "whole")
}

// wholeGatewaySkip: without the base protocol a call would be passed, and there is no session to make it in.
func wholeGatewaySkip(t *testing.T, tr *trial) {
	l := tr.brokerAndServers(t, "skip")
	l.allow(t, "skip", "tester", sumSkip, "skip")
	l.programmed(t, "skip", "skip")
	l.ask(t, "skip", named("tester", l.handshake(l.tester, refused), l.hairpin(l.tester, refused), l.calls(l.tester, passed, refused))...)
}

// serversOnly: the broker answers everybody, and the finding says so; no tool can be called without the policy.
func serversOnly(t *testing.T, tr *trial) {
	l := tr.brokerAndServers(t, "servers")
	l.allow(t, "servers", "tester", sumBase, "servers/mcps")
	l.programmed(t, "servers", "servers/mcps")
	l.ask(t, "servers", named("tester", l.hairpin(l.tester, passed), l.calls(l.tester, passed, refused), l.handshake(l.tester, open))...)
	l.ask(t, "servers", named("other", l.hairpin(l.other, refused), l.calls(l.other, refused, refused), l.handshake(l.other, open))...)
	l.ask(t, "servers", named("nobody", l.hairpin(anybody, unidentified), l.calls(anybody, unidentified, unidentified), l.handshake(anybody, open))...)
	require.Contains(t, l.event(t, "servers", "ListenerOpen"), "no policy targets mcp:")
}

// brokerOnly: the handshake is checked, and every tool is open to whoever reaches the servers' listener.
func brokerOnly(t *testing.T, tr *trial) {
	l := tr.brokerAndServers(t, "broker")
	l.allow(t, "broker", "tester", sumBase, "broker/mcp")
	l.programmed(t, "broker", "broker/mcp")
	l.ask(t, "broker", named("tester", l.handshake(l.tester, passed), l.hairpin(l.tester, open), l.calls(l.tester, open, open))...)
	l.ask(t, "broker", named("other", l.handshake(l.other, refused), l.calls(l.other, open, open))...)
	l.ask(t, "broker", named("nobody", l.handshake(anybody, unidentified), l.hairpin(anybody, open), l.calls(anybody, open, open))...)
	require.Contains(t, l.event(t, "broker", "ListenerOpen"), "no policy targets mcps:")
}

// eachItsOwn: the base protocol on both listeners and the tool on the servers' one: a session works, and the broker's host has
// no tool, also for who forges that one is called.
func eachItsOwn(t *testing.T, tr *trial) {
	l := tr.brokerAndServers(t, "each")
	l.allow(t, "each-broker", "tester", baseOnly, "each/mcp")
	l.allow(t, "each-server", "tester", sumBase, "each/mcps")
	l.programmed(t, "each-broker", "each/mcp")
	l.programmed(t, "each-server", "each/mcps")
	l.ask(t, "each", named("tester", l.handshake(l.tester, passed), l.hairpin(l.tester, passed), l.calls(l.tester, passed, refused))...)
	l.ask(t, "each", request{"tester: the tool at the broker", l.tester(tool(l.broker, "", "sum")), refused})
	l.ask(t, "each", named("other", l.handshake(l.other, refused), l.calls(l.other, refused, refused))...)
	l.ask(t, "each", named("nobody", l.handshake(anybody, unidentified), l.calls(anybody, unidentified, unidentified))...)
}

// eachItsOwnSkip: the router cannot open the session at the server, so the first call fails although it is allowed.
func eachItsOwnSkip(t *testing.T, tr *trial) {
	l := tr.brokerAndServers(t, "half")
	l.allow(t, "half-broker", "tester", baseOnly, "half/mcp")
	l.allow(t, "half-server", "tester", sumSkip, "half/mcps")
	l.programmed(t, "half-broker", "half/mcp")
	l.programmed(t, "half-server", "half/mcps")
	l.ask(t, "half", named("tester", l.handshake(l.tester, passed), l.hairpin(l.tester, refused), l.calls(l.tester, passed, refused))...)
}

// objects are the names of the AuthPolicies of the namespace.
func (l *brokerAndServers) objects(t *testing.T) []string {
	t.Helper()
	all, err := l.authPolicies(t.Context())
	require.NoError(t, err)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	return names
}

// quiet expects that a policy that is in force has no finding about open listeners. Events come in order, so a finding would be
// there before.
func (l *brokerAndServers) quiet(t *testing.T, policy string) {
	t.Helper()
	l.event(t, policy, v1alpha1.PolicyReasonProgrammed)
	reasons, err := l.events(t.Context(), policy)
	require.NoError(t, err)
	require.NotContains(t, reasons, "ListenerOpen")
}
