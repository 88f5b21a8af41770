package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// call is the question of can.
type call struct {
	as                     []string
	anonymous              bool
	tool, prompt, resource string
	mcpMethod, server      string
	method, host, path     string
	headers                []string
	gateway, listener      string
	enforcer, output       string
}

func (c *call) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringArrayVar(&c.as, "as", nil, "`CALLER`: namespace/name of a ServiceAccount, or a SPIFFE ID; twice for a caller that has both")
	flags.BoolVar(&c.anonymous, "anonymous", false, "a caller without credentials; the same as no --as")
	flags.StringVar(&c.tool, "tool", "", "tools/call of the tool `NAME`")
	flags.StringVar(&c.prompt, "prompt", "", "prompts/get of the prompt `NAME`")
	flags.StringVar(&c.resource, "resource", "", "resources/read of the resource `URI`, or another method given with --mcp-method")
	flags.StringVar(&c.mcpMethod, "mcp-method", "", "MCP `METHOD`, for instance initialize or tools/list")
	flags.StringVar(&c.server, "server", "", "upstream MCP `SERVER` that the router found (request.mcp.server_name)")
	flags.StringVar(&c.method, "method", "", "HTTP `METHOD`")
	flags.StringVar(&c.host, "host", "", "HTTP `HOST`")
	flags.StringVar(&c.path, "path", "", "HTTP `PATH`, with its query")
	flags.StringArrayVar(&c.headers, "header", nil, "header that the client sends, `NAME=VALUE`; can be repeated")
	flags.StringVar(&c.gateway, "gateway", "", "Gateway as `NAMESPACE/NAME`; needed when policies target several")
	flags.StringVar(&c.listener, "listener", "", "listener `NAME`; else the one whose host name fits best")
	flags.StringVar(&c.enforcer, flagEnforcer, string(requests.AgainstPlan), againstHelp)
	flags.StringVarP(&c.output, "output", "o", "text", "`FORMAT`: text or json")
}

// request builds the call as a request file would have it.
func (c *call) request(cmd *cobra.Command) (requests.Request, error) {
	r := requests.Request{Listener: c.listener}
	if err := oneOf("output", c.output, "text", "json"); err != nil {
		return r, err
	}
	if err := oneOf(flagEnforcer, c.enforcer, against()...); err != nil {
		return r, err
	}
	if err := c.caller(&r.Caller); err != nil {
		return r, err
	}
	given := cmd.Flags().Changed
	if err := c.consistent(given); err != nil {
		return r, err
	}
	switch {
	case given("tool"):
		r.MCP = &requests.MCP{Method: "tools/call", Name: c.tool}
	case given("prompt"):
		r.MCP = &requests.MCP{Method: "prompts/get", Name: c.prompt}
	case given("resource"):
		r.MCP = &requests.MCP{Method: "resources/read", Name: c.resource}
		if c.mcpMethod != "" {
			r.MCP.Method = c.mcpMethod
		}
	case given("mcp-method"):
		r.MCP = &requests.MCP{Method: c.mcpMethod}
	case !given("method") && !given("host") && !given("path") && !given("header"):
		return r, usage("say what is called: --tool, --prompt, --resource or --mcp-method, or a plain request by --method, --host, --path or --header")
	case given("server"):
		return r, usage("--server belongs to an MCP call; add --tool, --prompt, --resource or --mcp-method")
	}
	if r.MCP != nil {
		r.MCP.Server = c.server
	}
	return r, c.http(cmd, &r.HTTP)
}

// consistent refuses flags that say two things at once, or nothing.
func (c *call) consistent(given func(flag string) bool) error {
	for _, pair := range [][2]string{{"tool", "prompt"}, {"tool", "resource"}, {"prompt", "resource"}, {"tool", "mcp-method"}, {"prompt", "mcp-method"}} {
		if given(pair[0]) && given(pair[1]) {
			return usage("--%s and --%s are two calls; ask for one", pair[0], pair[1])
		}
	}
	for _, flag := range []struct{ name, value string }{{"tool", c.tool}, {"prompt", c.prompt}, {"resource", c.resource}, {"mcp-method", c.mcpMethod}} {
		if given(flag.name) && flag.value == "" {
			return usage("--%s is empty", flag.name)
		}
	}
	if given("resource") && given("mcp-method") && !strings.HasPrefix(c.mcpMethod, "resources/") {
		return usage("--resource does not go with --mcp-method %s, only with methods of resources/", c.mcpMethod)
	}
	return nil
}

func (c *call) http(cmd *cobra.Command, h *requests.HTTP) error {
	h.Method = strings.ToUpper(c.method)
	if cmd.Flags().Changed("host") {
		h.Host = &c.host
	}
	if cmd.Flags().Changed("path") {
		h.Path = &c.path
	}
	for _, header := range c.headers {
		name, value, ok := strings.Cut(header, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || name == "" {
			return usage("--header %q is not name=value", header)
		}
		if h.Headers == nil {
			h.Headers = map[string]string{}
		}
		if before, twice := h.Headers[name]; twice {
			value = before + "," + value // how the data plane shows a header that is sent twice
		}
		h.Headers[name] = value
	}
	return nil
}

func (c *call) caller(out *requests.Caller) error {
	if c.anonymous && len(c.as) > 0 {
		return usage("--anonymous and --as are two callers; ask for one")
	}
	for _, who := range c.as {
		if strings.HasPrefix(who, plan.SPIFFEPrefix) {
			if plan.PeerID(who) == "" {
				return usage("--as %q is not a SPIFFE ID", who)
			}
			if out.SPIFFE != "" {
				return usage("--as: a caller has one SPIFFE ID, not %s and %s", out.SPIFFE, who)
			}
			out.SPIFFE = who
			continue
		}
		if long, ok := strings.CutPrefix(who, plan.TokenPrefix); ok {
			who = strings.Replace(long, ":", "/", 1)
		}
		namespace, name, _ := strings.Cut(who, "/")
		if namespace == "" || name == "" || strings.ContainsAny(name, "/:") {
			return usage("--as %q is neither namespace/name of a ServiceAccount nor a SPIFFE ID that begins with spiffe://", who)
		}
		if out.ServiceAccount != "" {
			return usage("--as: a caller has one token, not those of %s and %s", out.ServiceAccount, who)
		}
		out.ServiceAccount = who
	}
	return nil
}
