package stack

import (
	"net"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// MCPServer is a server as the broker of mcp-gateway knows it. The JSON names are
// those of the broker's configuration file.
type MCPServer struct {
	// Name is what the router puts in x-mcp-servername.
	Name string `json:"name"`
	// URL is where the broker reaches the server.
	URL string `json:"url"`
	// Hostname is what the router sets as the host of a call for the server.
	Hostname string `json:"hostname"`
	// Prefix is put before the names of the server's tools and prompts.
	Prefix string `json:"prefix"`
	State  string `json:"state"`
}

// MCPGateway is the broker and the router of an mcp-gateway, which are one program.
type MCPGateway struct {
	*Program
	// Broker is the address of the broker, Router that of the router (ext_proc).
	Broker, Router string
}

// StartMCPServer starts an MCP server with a few tools and a prompt on an address,
// below /mcp. It ends with the test.
func (c *Cluster) StartMCPServer(t T, address string) {
	t.Helper()
	c.Program(t, Component(t, "mcpserver"), "http://"+address+"/healthz", []string{"-listen", address}).Start(t)
}

// StartMCPGateway starts an mcp-gateway on ports of an IP address and returns when it
// has looked at its servers. It ends with the test. The router opens sessions with
// servers by requests through the Gateway at the address private, over TLS if it
// begins with https://; publicHost is the host that clients use. Its servers are given
// to it in a file, as its controller would write it. authority is a file with the
// authority of the Gateway's certificate, "" without TLS.
func (c *Cluster) StartMCPGateway(t T, ip, publicHost, private, authority string, servers ...MCPServer) *MCPGateway {
	t.Helper()

	config, err := yaml.Marshal(map[string]any{"servers": servers})
	must(t, err)

	broker, router := net.JoinHostPort(ip, portOf(FreeAddress(t))), net.JoinHostPort(ip, portOf(FreeAddress(t)))
	folder := c.path("mcp-gateway-" + router[strings.LastIndexByte(router, ':')+1:])
	must(t, writeFiles(folder, map[string][]byte{"config.yaml": config}))

	program := c.Program(t, Component(t, "mcp-broker-router"), "http://"+broker+"/readyz", []string{
		"--mcp-gateway-config=" + filepath.Join(folder, "config.yaml"),
		"--mcp-gateway-public-host=" + publicHost,
		"--mcp-gateway-private-host=" + private,
		"--mcp-broker-public-address=" + broker,
		"--mcp-router-address=" + router,
		"--metrics-addr=" + FreeAddress(t),
		"--gateway-ca-cert=" + authority,
	}, "GATEWAY_SIGNING_KEY=a key that signs nothing outside this test")
	program.Start(t)

	return &MCPGateway{Program: program, Broker: broker, Router: router}
}
