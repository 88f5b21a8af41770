package plan

import "slices"

// Names of the profiles that ProfileNamed knows.
const (
	ProfileMCPGateway = "mcp-gateway-0.9"
	ProfileGeneric    = "generic"
)

// Profile says what a gateway's MCP router vouches for: which header carries what, and what else must hold so that the
// header is the router's and not the client's.
type Profile struct {
	Name string
	// MethodHeader carries the JSON-RPC method, the others what the call names. An empty name: the router never sets such
	// a header, and a rule that needs it is refused as unsupported.
	MethodHeader, ToolHeader, PromptHeader, ResourceHeader string
	// ServerHeader carries the upstream server. When it is not empty, a tool or a prompt is believed only while this
	// header is there, is not empty and is not BrokerServer: the broker answers calls whose tool header is the client's.
	ServerHeader, BrokerServer string
	// ProtocolVersions are the values of mcp-protocol-version under which the router reads method and name from the body.
	// Empty: any. An absent header is always fine.
	ProtocolVersions []string
}

// Headers of the MCP streamable HTTP transport that the base protocol option and the version check read.
const (
	HeaderSession         = "mcp-session-id"
	HeaderProtocolVersion = "mcp-protocol-version"
	HeaderContentType     = "content-type"
)

// bodyVersions are the protocol versions in which method and name live in the JSON body only. From 2026-07-28 on the
// router of mcp-gateway 0.9 believes the client's own Mcp-Method and Mcp-Name headers.
var bodyVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// Version2026 is the protocol version that is only believed by explicit choice (WithVersion).
const Version2026 = "2026-07-28"

// ProfileNamed returns a profile by its name; false when there is none.
func ProfileNamed(name string) (Profile, bool) {
	p := Profile{Name: name, MethodHeader: "x-mcp-method", ToolHeader: "x-mcp-toolname", PromptHeader: "x-mcp-promptname"}
	switch name {
	case ProfileMCPGateway:
		p.ServerHeader, p.BrokerServer = "x-mcp-servername", "mcpBroker"
		p.ProtocolVersions = slices.Clone(bodyVersions)
	case ProfileGeneric:
		p.ResourceHeader = "x-mcp-resourceuri"
	default:
		return Profile{}, false
	}
	return p, true
}

// WithVersion returns the profile with one more protocol version believed. Only right for Version2026 where every
// registered server has a prefix, because the router rewrites the body only then.
func (p Profile) WithVersion(version string) Profile {
	if len(p.ProtocolVersions) > 0 {
		p.ProtocolVersions = append(slices.Clone(p.ProtocolVersions), version)
	}
	return p
}

// ParamHeader returns the header that carries what a method names, "" where the profile has none.
func (p Profile) ParamHeader(method string) string {
	switch method {
	case "tools/call":
		return p.ToolHeader
	case "prompts/get":
		return p.PromptHeader
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return p.ResourceHeader
	}
	return ""
}

// NameHeaders are the headers that MCP conditions read.
func (p Profile) NameHeaders() []string {
	return slices.DeleteFunc([]string{p.MethodHeader, p.ToolHeader, p.PromptHeader, p.ResourceHeader, p.ServerHeader}, func(h string) bool { return h == "" })
}

// NeedsServer reports whether the value of ParamHeader(method) is believed only beside a server header.
func (p Profile) NeedsServer(method string) bool {
	return p.ServerHeader != "" && (method == "tools/call" || method == "prompts/get")
}

// Methods of the base protocol option (MATCH_BASE_PROTOCOL_METHODS), as upstream's reference implementation has them.
// HTTP GET and DELETE belong to it as well; see matchBase.
var (
	BaseMethods  = []string{"initialize", "ping", "tools/list"}
	BasePrefixes = []string{"completion/", "logging/", "notifications/"}
)
