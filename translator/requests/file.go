// Package requests reads request files: calls with the verdict that is expected of them. The same file is run against a
// plan, against what an emitter expresses, and against real enforcers.
package requests

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"accesspolicy-operator/translator/plan"
)

// File is one request file.
type File struct {
	// Gateway is namespace/name; it may be left out when the input has only one.
	Gateway string `json:"gateway,omitempty"`
	// Policies are paths relative to the file; left out, in.yaml beside it.
	Policies []string  `json:"policies,omitempty"`
	Requests []Request `json:"requests"`
}

// Request is one call and what is expected of it.
type Request struct {
	Name     string `json:"name"`
	Caller   Caller `json:"caller,omitempty"`
	Listener string `json:"listener,omitempty"`
	HTTP     HTTP   `json:"http,omitempty"`
	MCP      *MCP   `json:"mcp,omitempty"`
	// Time is the start of the request; left out, a fixed day.
	Time *time.Time `json:"time,omitempty"`
	// Expect is allow or deny.
	Expect string `json:"expect"`
	// By is the rule that grants, namespace/policy/rule.
	By string `json:"by,omitempty"`
	// Status is the expected status of a denial.
	Status int    `json:"status,omitempty"`
	Why    string `json:"why,omitempty"`
	// Kuadrant is what the Kuadrant emission gives where it cannot express the plan; only deny is possible.
	Kuadrant string `json:"kuadrant,omitempty"`
	// EnvoyGateway is the same for the Envoy Gateway emission.
	EnvoyGateway string `json:"envoyGateway,omitempty"`
}

// Caller says with which credentials the request comes. None: anonymous.
type Caller struct {
	// ServiceAccount is namespace/name.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	SPIFFE         string `json:"spiffe,omitempty"`
	// BadToken sends a bearer token that does not verify.
	BadToken bool `json:"badToken,omitempty"`
}

// HTTP is what the client itself sends.
type HTTP struct {
	Method  string            `json:"method,omitempty"`
	Host    *string           `json:"host,omitempty"`
	Path    *string           `json:"path,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// MCP stands for what the profile's router sets for a call.
type MCP struct {
	Method string `json:"method"`
	// Name is the tool, prompt or resource URI.
	Name string `json:"name,omitempty"`
	// Server is the upstream server that the router found; left out, one for calls of tools and prompts, else the broker.
	Server string `json:"server,omitempty"`
}

// Values of expect.
const (
	Allow = "allow"
	Deny  = "deny"
)

// What a request has when its file says nothing.
const (
	defaultHost   = "mcp.example.com"
	defaultPath   = "/mcp"
	defaultServer = "demo/server"
	methodPost    = "POST"
)

var defaultTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Parse reads a request file. The error names the request and what is wrong.
func Parse(data []byte) (*File, error) {
	var f File
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, err
	}
	if len(f.Requests) == 0 {
		return nil, fmt.Errorf("requests: the file has none")
	}
	for i, r := range f.Requests {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("requests[%d] (%s): %w", i, r.Name, err)
		}
	}
	return &f, nil
}

func (r Request) check() error {
	switch {
	case r.Name == "":
		return errors.New("name is missing")
	case r.Expect != Allow && r.Expect != Deny:
		return fmt.Errorf("expect is %q, it must be allow or deny", r.Expect)
	case r.By != "" && r.Expect != Allow:
		return errors.New("by needs expect: allow")
	case r.Status != 0 && r.Expect != Deny:
		return errors.New("status needs expect: deny")
	case r.Status != 0 && r.Status != plan.StatusUnauthorized && r.Status != plan.StatusForbidden:
		return fmt.Errorf("status is %d; a plan denies with 401 or 403", r.Status)
	case r.MCP != nil && r.MCP.Method == "":
		return errors.New("mcp.method is missing")
	}
	for name, verdict := range map[string]string{"kuadrant": r.Kuadrant, "envoyGateway": r.EnvoyGateway} {
		if verdict != "" && verdict != Deny {
			return fmt.Errorf("%s is %q; an emitter can only be narrower than the plan: deny", name, verdict)
		}
	}
	return r.Caller.check()
}

// check finds callers that could never be who they are meant to be, so that a denial which is expected proves nothing.
func (c Caller) check() error {
	namespace, name, _ := strings.Cut(c.ServiceAccount, "/")
	switch {
	case c.ServiceAccount != "" && (namespace == "" || name == "" || strings.Contains(name, "/")):
		return fmt.Errorf("caller.serviceAccount is %q, it must be namespace/name", c.ServiceAccount)
	case c.ServiceAccount != "" && c.BadToken:
		return errors.New("caller has serviceAccount and badToken, but a request has one token")
	case c.SPIFFE != "" && plan.PeerID(c.SPIFFE) == "":
		return fmt.Errorf("caller.spiffe is %q, which is no SPIFFE ID", c.SPIFFE)
	}
	return nil
}

// Wire is a request as the data plane sees it behind the MCP router.
type Wire struct {
	Method, Host, Path string
	// Headers have lower-case names and hold the credentials that travel as headers.
	Headers map[string]string
	// Principal is the SPIFFE ID of the client certificate.
	Principal string
	Time      time.Time
}

// BadToken is a bearer token that never verifies.
const BadToken = "not-a-token"

// Token is the bearer token that stands for a ServiceAccount (namespace/name) in tests with a TokenReview of their own.
func Token(serviceAccount string) string { return "token-of/" + serviceAccount }

// TokenReview is what the API server says of a ServiceAccount's token.
func TokenReview(serviceAccount string) plan.Token {
	namespace, name, _ := strings.Cut(serviceAccount, "/")
	return plan.Token{Username: plan.TokenPrefix + namespace + ":" + name, UID: "uid-" + namespace + "-" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
}

// ForwardedClientCert is the header that a sanitising gateway sets for a client certificate.
func ForwardedClientCert(id string) string {
	return `By=spiffe://cluster.local/ns/gateway/sa/gateway;Hash=` + strings.Repeat("0f", 32) + `;Subject="CN=agent,O=Example";URI=` + id
}

// Wire builds what the data plane sees under a profile.
func (r Request) Wire(profile plan.Profile) Wire {
	w := Wire{Method: r.HTTP.Method, Host: defaultHost, Path: defaultPath, Headers: map[string]string{}, Principal: r.Caller.SPIFFE, Time: defaultTime}
	if w.Method == "" {
		w.Method = methodPost
	}
	if r.HTTP.Host != nil {
		w.Host = *r.HTTP.Host
	}
	if r.HTTP.Path != nil {
		w.Path = *r.HTTP.Path
	}
	if r.Time != nil {
		w.Time = *r.Time
	}
	if w.Method == methodPost || r.MCP != nil {
		w.Headers[plan.HeaderContentType] = "application/json"
	}
	if r.Caller.SPIFFE != "" {
		w.Headers[headerXFCC] = ForwardedClientCert(r.Caller.SPIFFE)
	}
	switch {
	case r.Caller.ServiceAccount != "":
		w.Headers["authorization"] = "Bearer " + Token(r.Caller.ServiceAccount)
	case r.Caller.BadToken:
		w.Headers["authorization"] = "Bearer " + BadToken
	}
	for name, value := range r.HTTP.Headers {
		w.Headers[strings.ToLower(name)] = value
	}
	if w.Headers[plan.HeaderContentType] == "" {
		delete(w.Headers, plan.HeaderContentType)
	}
	if r.MCP != nil {
		r.MCP.route(profile, w.Headers)
	}
	return w
}

const headerXFCC = "x-forwarded-client-cert"

// route sets the headers that the profile's router sets. A tool of the broker itself leaves the client's tool header as it
// is (docs/decisions/0006-which-mcp-headers-are-believed.md).
func (m MCP) route(profile plan.Profile, headers map[string]string) {
	headers[profile.MethodHeader] = m.Method
	server := m.Server
	if server == "" && profile.NeedsServer(m.Method) {
		server = defaultServer
	}
	if server == "" {
		server = profile.BrokerServer
	}
	if profile.ServerHeader != "" {
		headers[profile.ServerHeader] = server
	}
	if header := profile.ParamHeader(m.Method); header != "" && m.Name != "" && (server != profile.BrokerServer || profile.ServerHeader == "") {
		headers[header] = m.Name
	}
}

// Plan builds the request that a plan decides on. forwarded tells that SPIFFE IDs come from the client-certificate header
// instead of the peer.
func (r Request) Plan(profile plan.Profile, forwarded bool) plan.Request {
	w := r.Wire(profile)
	out := plan.Request{Method: w.Method, Host: w.Host, Path: w.Path, Headers: w.Headers, SPIFFE: plan.PeerID(w.Principal), Time: w.Time}
	if forwarded {
		out.SPIFFE = plan.ForwardedID(w.Headers[headerXFCC])
	}
	if r.Caller.ServiceAccount != "" {
		token := TokenReview(r.Caller.ServiceAccount)
		out.Token = &token
	}
	return out
}

// ServiceAccounts returns the distinct ServiceAccounts that a file's callers use.
func (f *File) ServiceAccounts() []string {
	var out []string
	for _, r := range f.Requests {
		if sa := r.Caller.ServiceAccount; sa != "" {
			out = append(out, sa)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
