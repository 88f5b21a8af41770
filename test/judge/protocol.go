package judge

import (
	"time"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// World is what a cluster holds.
type World struct {
	Gateway *gwv1.Gateway `json:"gateway"`
	// HTTPRoutes attached to the Gateway. Without any, one route with the path
	// prefix "/" is attached to every listener.
	HTTPRoutes []*gwv1.HTTPRoute `json:"httpRoutes,omitempty"`
	// AuthPolicies on the Gateway, its listeners and the routes. Their creation
	// timestamps decide which of two wins.
	AuthPolicies []*kuadrantv1.AuthPolicy `json:"authPolicies"`
	// Tokens are the bearer tokens that the API server accepts.
	Tokens map[string]Token `json:"tokens,omitempty"`
	// Unobserved loads the AuthConfigs without the response item that shows what
	// was granted; results then have no Granted. Bench does so by itself.
	Unobserved bool `json:"unobserved,omitempty"`
}

// Token is what the API server knows of one bearer token.
type Token struct {
	Username string              `json:"username"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
	// Audiences the token was issued for. With none it is good for nobody.
	Audiences []string `json:"audiences"`
}

// Shape says which data plane asks Authorino.
type Shape string

const (
	// ShapeEnvoy is Envoy's own ext_authz filter.
	ShapeEnvoy Shape = "envoy"
	// ShapeWasmShim is Kuadrant's plugin, which does not send the peer's identity.
	ShapeWasmShim Shape = "wasm-shim"
)

// Request is an HTTP request as it stands behind the MCP router, before
// authorization.
type Request struct {
	Shape  Shape  `json:"shape"`
	Method string `json:"method"`
	// Host is the :authority, with its port if the client sent one.
	Host string `json:"host"`
	// Path is the :path, with its query.
	Path string `json:"path"`
	// Scheme is "http" when empty.
	Scheme string `json:"scheme,omitempty"`
	// Protocol is "HTTP/1.1" when empty.
	Protocol string `json:"protocol,omitempty"`
	// Headers have one value per name; one that was sent twice is joined by a comma.
	Headers map[string]string `json:"headers,omitempty"`
	// Principal is the URI of the peer's verified certificate.
	Principal          string `json:"principal,omitempty"`
	SourceAddress      string `json:"sourceAddress,omitempty"`
	SourcePort         uint32 `json:"sourcePort,omitempty"`
	DestinationAddress string `json:"destinationAddress,omitempty"`
	DestinationPort    uint32 `json:"destinationPort,omitempty"`
	// Time is now when nil.
	Time *time.Time `json:"time,omitempty"`
}

// Loaded says what became of the policies of a world.
type Loaded struct {
	Policies    []Policy
	AuthConfigs []AuthConfig
}

// Ready tells whether Authorino took every AuthConfig.
func (l Loaded) Ready() bool {
	for _, config := range l.AuthConfigs {
		if !config.Ready {
			return false
		}
	}

	return true
}

// Policy says what became of an AuthPolicy.
type Policy struct {
	// Name is namespace/name.
	Name     string `json:"name"`
	Accepted bool   `json:"accepted"`
	Error    string `json:"error"`
}

// AuthConfig is what one path from the Gateway to a route rule got.
type AuthConfig struct {
	Name string `json:"name"`
	// Path names gateway, listener, route and rule.
	Path      string   `json:"path"`
	Listener  string   `json:"listener"`
	Hostnames []string `json:"hostnames"`
	// Policies, as namespace/name, whose rules are in it.
	Policies []string `json:"policies"`
	Ready    bool     `json:"ready"`
	// Reason is that of the AuthConfig's Ready condition, and Error its message.
	Reason string `json:"reason"`
	Error  string `json:"error"`
	// Warnings tell of what can go wrong at a request.
	Warnings []string `json:"warnings"`
}

// Result is the answer to a request.
type Result struct {
	// Allowed says that the request reaches its upstream.
	Allowed bool `json:"allowed"`
	// Status is the HTTP status of the denial, 200 when allowed.
	Status int `json:"status"`
	// Code is Authorino's gRPC code, such as PERMISSION_DENIED.
	Code string `json:"code"`
	// Reason is X-Ext-Auth-Reason, or why Authorino was not asked or would not answer.
	Reason string `json:"reason"`
	// Headers and Body are those of the denial.
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	// RequestHeaders are what Authorino adds for the upstream.
	RequestHeaders map[string]string `json:"requestHeaders"`
	// Metadata are the policy's own response filters.
	Metadata map[string]any `json:"metadata"`
	// AuthConfig and Path say which AuthConfig answered; empty without one.
	AuthConfig string `json:"authConfig"`
	Path       string `json:"path"`
	// Granted are the keys of auth.authorization after a successful authorization
	// phase, sorted.
	Granted []string `json:"granted"`
	// Tied are all AuthConfigs that Kuadrant may equally well have put first.
	// Allowed is true when any of them allows.
	Tied []Tied `json:"tied"`
	// Crash says that this request ends Authorino's process.
	Crash bool `json:"crash"`
}

// Tied is one of several AuthConfigs of equal rank.
type Tied struct {
	AuthConfig string `json:"authConfig"`
	Path       string `json:"path"`
	Allowed    bool   `json:"allowed"`
}

// Measurement is the cost of one call of Authorino's Check.
type Measurement struct {
	N           int     `json:"n"`
	NsPerOp     float64 `json:"nsPerOp"`
	AllocsPerOp int64   `json:"allocsPerOp"`
	BytesPerOp  int64   `json:"bytesPerOp"`
	// Result is the verdict of the measured request.
	Result Result `json:"result"`
}

type order struct {
	ID     int64       `json:"id"`
	World  string      `json:"world"`
	Load   *World      `json:"load,omitempty"`
	Checks []Request   `json:"checks,omitempty"`
	Bench  *benchOrder `json:"bench,omitempty"`
	Drop   bool        `json:"drop,omitempty"`
}

type benchOrder struct {
	Request   Request `json:"request"`
	Benchtime string  `json:"benchtime,omitempty"`
}

type answer struct {
	ID          int64        `json:"id"`
	Error       string       `json:"error"`
	Policies    []Policy     `json:"policies"`
	AuthConfigs []AuthConfig `json:"authConfigs"`
	Results     []Result     `json:"results"`
	Bench       *Measurement `json:"bench"`
}
