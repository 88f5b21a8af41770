package envoy_test

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// answer is what became of a request.
type answer struct {
	status int
	// seen is the request as the upstream got it, nil where it did not.
	seen *echo
	body string
}

func (a answer) allowed() bool { return a.seen != nil }

// denied is set for the answers of Envoy's own filters for tokens and rules.
func (a answer) denied() bool {
	return a.seen == nil && (a.status == http.StatusUnauthorized || a.status == http.StatusForbidden)
}

// credentials are what a caller of a request file presents here.
func (w *world) credentials(t *testing.T, s *site, c requests.Caller) (bearer string, certificate *tls.Certificate) {
	t.Helper()
	switch {
	case c.ServiceAccount != "":
		bearer = w.token(t, c.ServiceAccount, s.opts.EnvoyGateway.Audiences[0])
	case c.BadToken:
		token := w.token(t, "tokens/somebody", s.opts.EnvoyGateway.Audiences[0])
		bearer = token[:len(token)-8] + "AAAAAAAA" // the signature is wrong
	}
	if c.SPIFFE == "" {
		return bearer, nil
	}
	if w.workloads[c.SPIFFE] == nil {
		chain, key := w.ca.Workload(t, c.SPIFFE)
		pair, err := tls.X509KeyPair(chain, key)
		require.NoError(t, err)
		w.workloads[c.SPIFFE] = &pair
	}
	return bearer, w.workloads[c.SPIFFE]
}

// send writes a request byte for byte, because a client library would tidy what is to be tried.
func (w *world) send(t *testing.T, s *site, listener string, r requests.Request) (answer, error) {
	t.Helper()
	wire := r.Wire(s.opts.Profile)
	bearer, certificate := w.credentials(t, s, r.Caller)
	if bearer != "" && wire.Headers["authorization"] != "" {
		wire.Headers["authorization"] = "Bearer " + bearer
	}
	delete(wire.Headers, "x-forwarded-client-cert") // Envoy's own business; SPIFFE IDs come from the connection
	connection, err := net.DialTimeout("tcp", s.ports[listener], time.Second)
	if err != nil {
		return answer{}, err
	}
	defer connection.Close()
	if s.secure {
		config := &tls.Config{ServerName: strings.Replace(s.hosts[listener], "*", "any", 1), InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // the client is who is tried
		if certificate != nil {
			config.Certificates = []tls.Certificate{*certificate}
		}
		connection = tls.Client(connection, config)
	}
	_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
	return exchange(connection, wire)
}

// dial sends a request of no caller in clear text.
func dial(address string, r requests.Request) (answer, error) {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return answer{}, err
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
	return exchange(connection, r.Wire(plan.Profile{}))
}

func exchange(connection net.Conn, wire requests.Wire) (answer, error) {
	body := ""
	if wire.Method == http.MethodPost {
		body = "{}"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", wire.Method, wire.Path, wire.Host)
	for _, name := range slices.Sorted(maps.Keys(wire.Headers)) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, wire.Headers[name])
	}
	fmt.Fprintf(&b, "content-length: %d\r\nconnection: close\r\n\r\n%s", len(body), body)
	if _, err := io.WriteString(connection, b.String()); err != nil {
		return answer{}, err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: wire.Method})
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response)
}

func readAnswer(response *http.Response) (answer, error) {
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: response.StatusCode, body: string(text)}
	if encoded := response.Header.Get(headerEcho); encoded != "" {
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return a, err
		}
		a.seen = &echo{}
		return a, json.Unmarshal(raw, a.seen)
	}
	return a, nil
}
