// Command mcpagent is an MCP client: it connects to a gateway as an agent does, makes
// calls, and prints what it got, a line of JSON for each call.
//
//	mcpagent -url https://mcp.example.test/mcp [-dial 127.0.0.1:8443] [-ca FILE]
//	    [-token FILE] [-cert FILE -key FILE] [-header 'NAME: VALUE']... CALL...
//
// A CALL is a method of MCP and its parameters, such as 'tools/call {"name":"add"}'.
// Each has a session of its own, since a refusal ends a session. The exit code is 0
// also where calls are refused.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const callTimeout = 20 * time.Second

// answer is what became of a call.
type answer struct {
	Call string `json:"call"`
	// Stage is the request that failed: initialize, or the call.
	Stage string `json:"stage,omitempty"`
	// Result is a text of what the call gave.
	Result string `json:"result,omitempty"`
	// Error is what the client library reports.
	Error string `json:"error,omitempty"`
	// Status is that of the HTTP response which refused the request, Message that of the JSON-RPC error in it.
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
}

// options are those of the command line.
type options struct {
	url, dial, ca, token, cert, key string

	headers headers
}

type headers []string

func (h *headers) String() string     { return strings.Join(*h, ", ") }
func (h *headers) Set(v string) error { *h = append(*h, v); return nil }

func main() {
	var o options
	flag.StringVar(&o.url, "url", "", "`URL` of the MCP gateway")
	flag.StringVar(&o.dial, "dial", "", "`address` to connect to, whatever host the URL names")
	flag.StringVar(&o.ca, "ca", "", "`file` with the authority of the gateway's certificate")
	flag.StringVar(&o.token, "token", "", "`file` with a bearer token")
	flag.StringVar(&o.cert, "cert", "", "`file` with a client certificate")
	flag.StringVar(&o.key, "key", "", "`file` with the certificate's key")
	flag.Var(&o.headers, "header", "a `header` to send as well, NAME: VALUE; can be repeated")
	flag.Parse()
	if err := run(o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mcpagent:", err)
		os.Exit(1)
	}
}

func run(o options, calls []string, out io.Writer) error {
	signed, err := newTransport(o)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	for _, call := range calls {
		if err := encoder.Encode(inSession(o.url, signed, call)); err != nil {
			return err
		}
	}
	return nil
}

// inSession makes one call in a session of its own.
func inSession(url string, signed *transport, call string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	out := answer{Call: call, Stage: "initialize"}
	signed.refusal = refusal{}
	client := mcp.NewClient(&mcp.Implementation{Name: "mcpagent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: signed}, MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	if err == nil {
		defer session.Close()
		out.Stage, _, _ = strings.Cut(call, " ")
		out.Result, err = do(ctx, session, call)
	}
	if err == nil {
		out.Stage = ""
		return out
	}
	out.Error, out.Status, out.Message = err.Error(), signed.refusal.status, signed.refusal.message
	return out
}

// do makes a call and returns its result as a text.
func do(ctx context.Context, session *mcp.ClientSession, call string) (string, error) {
	method, text, _ := strings.Cut(call, " ")
	params := []byte(text)
	if len(params) == 0 {
		params = []byte("{}")
	}
	switch method {
	case "initialize":
		return session.InitializeResult().ServerInfo.Name, nil
	case "tools/call":
		return callTool(ctx, session, params)
	case "tools/list":
		return listTools(ctx, session)
	case "prompts/get":
		var p mcp.GetPromptParams
		if err := json.Unmarshal(params, &p); err != nil {
			return "", err
		}
		result, err := session.GetPrompt(ctx, &p)
		if err != nil {
			return "", err
		}
		return contentText(result.Messages[0].Content), nil
	case "resources/read":
		var p mcp.ReadResourceParams
		if err := json.Unmarshal(params, &p); err != nil {
			return "", err
		}
		result, err := session.ReadResource(ctx, &p)
		if err != nil {
			return "", err
		}
		return result.Contents[0].Text, nil
	}
	return "", fmt.Errorf("no such call: %s", method)
}

func callTool(ctx context.Context, session *mcp.ClientSession, params []byte) (string, error) {
	var p mcp.CallToolParams
	if err := json.Unmarshal(params, &p); err != nil {
		return "", err
	}
	result, err := session.CallTool(ctx, &p)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, content := range result.Content {
		texts = append(texts, contentText(content))
	}
	text := strings.Join(texts, " ")
	if result.IsError {
		return "", fmt.Errorf("the tool failed: %s", text)
	}
	return text, nil
}

func listTools(ctx context.Context, session *mcp.ClientSession) (string, error) {
	result, err := session.ListTools(ctx, nil)
	if err != nil {
		return "", err
	}
	var names []string
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	return strings.Join(names, " "), nil
}

func contentText(content mcp.Content) string {
	switch content := content.(type) {
	case *mcp.TextContent:
		return content.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("%s of %d bytes", content.MIMEType, len(content.Data))
	}
	return fmt.Sprintf("%T", content)
}

// refusal is the last response that was no success.
type refusal struct {
	status  int
	message string
}

// transport sends requests as the agent and keeps how the last one was refused.
type transport struct {
	http.RoundTripper
	headers http.Header
	refusal refusal
}

func newTransport(o options) (*transport, error) {
	t := &transport{headers: http.Header{}}
	if o.token != "" {
		token, err := os.ReadFile(o.token)
		if err != nil {
			return nil, err
		}
		t.headers.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	for _, header := range o.headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			return nil, fmt.Errorf("header %q is not NAME: VALUE", header)
		}
		t.headers.Add(name, strings.TrimSpace(value))
	}
	config, err := tlsConfig(o)
	if err != nil {
		return nil, err
	}
	plain := &http.Transport{TLSClientConfig: config}
	if o.dial != "" {
		plain.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, o.dial)
		}
	}
	t.RoundTripper = plain
	return t, nil
}

func tlsConfig(o options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.ca != "" {
		pem, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", o.ca)
		}
	}
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// RoundTrip is that of http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for name, values := range t.headers {
		request.Header[name] = append(request.Header[name], values...)
	}
	response, err := t.RoundTripper.RoundTrip(request)
	// The end of a session is no call.
	if err != nil || response.StatusCode < http.StatusBadRequest || request.Method == http.MethodDelete {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	var message struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	t.refusal = refusal{status: response.StatusCode, message: strings.TrimSpace(string(body))}
	if json.Unmarshal(body, &message) == nil && message.Error.Message != "" {
		t.refusal.message = message.Error.Message
	}
	return response, nil
}
