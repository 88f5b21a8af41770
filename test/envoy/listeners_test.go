package envoy_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/test/stack"
)

// listen makes a Gateway with a listener for each policy (its spec as YAML), and returns their addresses. Where secure, clients'
// certificates are verified if there are any.
func (w *world) listen(t *testing.T, gateway string, secure bool, policies map[string]string) map[string]string {
	t.Helper()
	w.Apply(t, stack.Namespace(gateway))
	ports := map[string]string{}
	var listeners []any
	for name, text := range policies {
		var spec map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &spec), name)
		spec["targetRefs"] = []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway, "sectionName": name}}
		w.Apply(t, stack.Object("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", gateway, name, spec))
		ports[name] = stack.FreeAddress(t)
		listener := map[string]any{"name": name, "port": port(ports[name]), "protocol": "HTTP"}
		if secure {
			listener["protocol"] = "HTTPS"
			listener["tls"] = map[string]any{"mode": "Terminate", "certificateRefs": []any{map[string]any{"name": tlsName}}}
		}
		listeners = append(listeners, listener)
	}
	if secure {
		w.certificates(t, &site{namespace: gateway}, gateway)
	}
	w.routes(t, gateway, gateway)
	w.Apply(t, stack.Object("gateway.networking.k8s.io/v1", "Gateway", gateway, gateway, map[string]any{"gatewayClassName": class, "listeners": listeners}))
	return ports
}

// call is a request as it is written.
type call struct {
	// line is a method and a target.
	line    string
	headers []string
	body    string
	// h2 is set for HTTP/2, which a client library writes, without the headers.
	h2 bool
}

// write sends a call in clear text, or with TLS where config is not nil.
func (c call) write(address string, config *tls.Config) (answer, error) {
	if c.h2 {
		method, target, _ := strings.Cut(c.line, " ")
		return overHTTP2(address, method, target)
	}
	response, err := c.open(address, config)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response)
}

// open does the same and leaves the answer's body to be read. Closing it closes the connection.
func (c call) open(address string, config *tls.Config) (*http.Response, error) {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return nil, err
	}
	_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
	if config != nil {
		connection = tls.Client(connection, config)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s HTTP/1.1\r\n", c.line)
	if !slices.ContainsFunc(c.headers, func(h string) bool { return strings.HasPrefix(h, "host:") }) {
		b.WriteString("host: h.example\r\n")
	}
	for _, header := range c.headers {
		b.WriteString(header + "\r\n")
	}
	fmt.Fprintf(&b, "content-length: %d\r\n\r\n%s", len(c.body), c.body)
	if _, err := io.WriteString(connection, b.String()); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	method, _, _ := strings.Cut(c.line, " ")
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: method})
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{response.Body, connection}
	return response, nil
}

func overHTTP2(address, method, target string) (answer, error) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(method, "http://"+address+target, nil)
	if err != nil {
		return answer{}, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response)
}
