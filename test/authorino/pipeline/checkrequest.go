package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Shape says which data plane fills the CheckRequest.
type Shape string

const (
	// ShapeEnvoy is Envoy's own ext_authz filter.
	ShapeEnvoy Shape = "envoy"
	// ShapeWasmShim is Kuadrant's plugin.
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
	Path   string `json:"path"`
	Scheme string `json:"scheme,omitempty"`
	// Protocol is "HTTP/1.1" when empty.
	Protocol string `json:"protocol,omitempty"`
	// Headers have one value per name; a header that was sent twice is given joined
	// by a comma, as both data planes send it. Names are lower-cased on the way.
	Headers map[string]string `json:"headers,omitempty"`
	// Principal is the URI of the peer's verified certificate.
	Principal string `json:"principal,omitempty"`
	// SourceAddress and DestinationAddress are IP addresses.
	SourceAddress      string     `json:"sourceAddress,omitempty"`
	SourcePort         uint32     `json:"sourcePort,omitempty"`
	DestinationAddress string     `json:"destinationAddress,omitempty"`
	DestinationPort    uint32     `json:"destinationPort,omitempty"`
	Time               *time.Time `json:"time,omitempty"`
}

func (r Request) validate() error {
	if r.Shape != ShapeEnvoy && r.Shape != ShapeWasmShim {
		return fmt.Errorf("request.shape %q: use %s or %s", r.Shape, ShapeEnvoy, ShapeWasmShim)
	}

	if r.Method == "" {
		return errors.New("request.method: missing")
	}

	for name := range r.Headers {
		if strings.HasPrefix(name, ":") || strings.EqualFold(name, "host") {
			return fmt.Errorf("request.headers[%q]: give method, host, path and scheme in their own fields", name)
		}
	}

	return nil
}

func (r Request) scheme() string {
	if r.Scheme == "" {
		return "http"
	}

	return r.Scheme
}

func (r Request) protocol() string {
	if r.Protocol == "" {
		return "HTTP/1.1"
	}

	return r.Protocol
}

func (r Request) time() time.Time {
	if r.Time == nil {
		return time.Now()
	}

	return *r.Time
}

// headers is the header map that both data planes see: lower-case names, the
// pseudo headers among them, no "host". An empty pseudo header is an absent one.
func (r Request) headers() map[string]string {
	headers := map[string]string{}

	for name, value := range map[string]string{
		":method": r.Method, ":authority": r.Host, ":path": r.Path, ":scheme": r.scheme(),
	} {
		if value != "" {
			headers[name] = value
		}
	}

	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		key := strings.ToLower(name)
		if earlier, repeated := headers[key]; repeated {
			headers[key] = earlier + "," + r.Headers[name]
		} else {
			headers[key] = r.Headers[name]
		}
	}

	return headers
}

// checkRequest is the call that the data plane makes for an action set.
func (r Request) checkRequest(authConfigName string) *authv3.CheckRequest {
	http := &authv3.AttributeContext_HttpRequest{
		Method: r.Method, Host: r.Host, Path: r.Path, Scheme: r.scheme(), Protocol: r.protocol(), Headers: r.headers(),
	}

	attributes := &authv3.AttributeContext{
		Request:     &authv3.AttributeContext_Request{Time: timestamppb.New(r.time()), Http: http},
		Source:      r.peer(r.SourceAddress, r.SourcePort),
		Destination: r.peer(r.DestinationAddress, r.DestinationPort),
		// Kuadrant's shim always sends the AuthConfig's name here. For Envoy's own
		// filter it stands in for the per-route configuration that names it.
		ContextExtensions: map[string]string{"host": authConfigName},
		MetadataContext:   &corev3.Metadata{},
	}

	if r.Shape == ShapeEnvoy {
		// Read in: Envoy source/extensions/filters/common/ext_authz/
		// check_request_utils.cc, setAttrContextPeer and setHttpRequest.
		attributes.Source.Principal = r.Principal
		attributes.Source.Service = http.Headers["x-envoy-downstream-service-cluster"]
		http.Id = "1"
		delete(http.Headers, "x-envoy-auth-partial-body")
	}

	return &authv3.CheckRequest{Attributes: attributes}
}

// peer differs in the address: Envoy's attribute source.address, which the shim
// copies, is address and port together.
// Read in: wasm-shim src/configuration/legacy_translation.rs (commit 0c51e7f5),
// build_auth_message_builder; it sends neither principal nor certificate.
func (r Request) peer(address string, port uint32) *authv3.AttributeContext_Peer {
	if r.Shape == ShapeWasmShim && address != "" {
		address = net.JoinHostPort(address, strconv.FormatUint(uint64(port), 10))
	}

	return &authv3.AttributeContext_Peer{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address:       address,
			PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}},
	}
}

// shimAttributes are the request attributes that the shim's own predicates see.
// Unlike Authorino it knows the certificate, as an attribute of the connection.
func (r Request) shimAttributes() shimAttributes {
	urlPath, query, _ := strings.Cut(r.Path, "?")
	headers := r.headers()

	return shimAttributes{
		"request": map[string]any{
			"method": r.Method, "host": r.Host, "path": r.Path, "url_path": urlPath, "query": query,
			"scheme": r.scheme(), "protocol": r.protocol(), "headers": headers,
			"time": r.time(), "useragent": headers["user-agent"], "referer": headers["referer"], "id": headers["x-request-id"],
		},
		"source": map[string]any{
			"address": net.JoinHostPort(r.SourceAddress, strconv.FormatUint(uint64(r.SourcePort), 10)),
			"port":    int64(r.SourcePort), "remote_address": r.SourceAddress,
		},
		"destination": map[string]any{
			"address": net.JoinHostPort(r.DestinationAddress, strconv.FormatUint(uint64(r.DestinationPort), 10)),
			"port":    int64(r.DestinationPort),
		},
		"connection": map[string]any{"uri_san_peer_certificate": r.Principal, "mtls": r.Principal != ""},
		"auth":       nil,
		"metadata":   nil,
	}
}
