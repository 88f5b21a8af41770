package envoy_test

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"accesspolicy-operator/test/stack"
)

// allowing is a policy that allows what one rule allows.
func allowing(rule string) string {
	return "authorization: {defaultAction: Deny, rules: [{action: Allow, " + rule + "}]}"
}

const (
	passes  = http.StatusOK
	denied  = http.StatusForbidden
	refuses = http.StatusBadRequest // before any rule
)

// TestBehaviour holds Envoy, as Envoy Gateway configures it, to what the emitter takes for granted. Where it fails, what is
// emitted has to be thought over.
func TestBehaviour(t *testing.T) {
	w := newWorld(t)
	plain := w.listen(t, "plain", false, map[string]string{
		"open":      allowing("cel: 'true'"),
		"team":      allowing("principal: {headers: [{name: x-team, values: [blue]}]}"),
		"joined":    allowing("principal: {headers: [{name: x-team, values: ['blue,red']}]}"),
		"cel":       allowing(`cel: "request.headers['x-team'] == 'blue'"`),
		"post":      allowing("principal: {headers: [{name: ':method', values: [POST]}]}"),
		"operation": allowing("operation: {methods: [POST]}, principal: {clientCIDRs: [0.0.0.0/0]}"),
		"authority": allowing("principal: {headers: [{name: ':authority', values: ['A.example:80']}]}"),
		"said":      allowing(`cel: "request.headers['x-said'] == request.path"`),
	})
	secure := w.listen(t, "secure", true, map[string]string{
		"open":   allowing("cel: 'true'"),
		"mtls":   allowing("cel: connection.mtls"),
		"one":    allowing(`cel: "connection.uri_san_peer_certificate == 'spiffe://example.test/one'"`),
		"two":    allowing(`cel: "connection.uri_san_peer_certificate == 'spiffe://example.test/two'"`),
		"notone": allowing(`cel: "!(connection.uri_san_peer_certificate == 'spiffe://example.test/one')"`),
	})
	w.envoy = w.StartEnvoyOfClass(t, class)
	w.listening(t, plain)
	w.listening(t, secure)
	time.Sleep(3 * time.Second) // the last routes may still be on their way
	w.notRejected(t)
	t.Run("requests", func(t *testing.T) { requestsAsRulesSeeThem(t, plain) })
	t.Run("paths", func(t *testing.T) { pathsAsRulesSeeThem(t, plain["open"], plain["said"]) })
	t.Run("certificates", func(t *testing.T) { w.clientCertificates(t, secure) })
}

func requestsAsRulesSeeThem(t *testing.T, ports map[string]string) {
	h := func(headers ...string) []string { return headers }
	for _, c := range []struct {
		rule string
		call
		want int
	}{
		// Names in any case, values as they are, without the blanks around them.
		{"team", call{line: "GET /", headers: h("x-team: blue")}, passes},
		{"team", call{line: "GET /", headers: h("X-TEAM:   blue   ")}, passes},
		{"cel", call{line: "GET /", headers: h("X-Team: blue")}, passes},
		{"team", call{line: "GET /", headers: h("x-team: BLUE")}, denied},
		{"team", call{line: "GET /", headers: h("x_team: blue")}, refuses},
		// One sent twice is one value, also for the same value and for an empty one.
		{"team", call{line: "GET /", headers: h("x-team: blue", "x-team: blue")}, denied},
		{"team", call{line: "GET /", headers: h("x-team: blue", "x-team: red")}, denied},
		{"team", call{line: "GET /", headers: h("x-team: blue", "x-team:")}, denied},
		{"team", call{line: "GET /", headers: h("x-team:", "x-team: blue")}, denied},
		{"cel", call{line: "GET /", headers: h("x-team: blue", "x-team: blue")}, denied},
		{"joined", call{line: "GET /", headers: h("x-team: blue", "x-team: red")}, passes},
		// What a client declares a matter of the connection is gone before rules look.
		{"team", call{line: "GET /", headers: h("x-team: blue", "connection: x-team")}, denied},

		{"post", call{line: "POST /"}, passes},
		{"post", call{line: "GET /"}, denied},
		{"post", call{line: "GET /", headers: h("x-http-method-override: POST")}, denied},
		{"open", call{line: "post /"}, refuses},
		{"open", call{line: "post /", h2: true}, passes},
		{"post", call{line: "post /", h2: true}, denied},
		// Why methods are compared as a header.
		{"operation", call{line: "POST /"}, passes},
		{"operation", call{line: "post /", h2: true}, passes},
		{"operation", call{line: "GET /"}, denied},

		{"authority", call{line: "GET /", headers: h("host: A.example:80")}, passes},
		{"authority", call{line: "GET /", headers: h("host: a.example:80")}, denied},
		{"authority", call{line: "GET /", headers: h("host: A.example")}, denied},
		{"authority", call{line: "GET http://A.example:80/", headers: h("host: b.example")}, passes},
		{"authority", call{line: "GET /", headers: h("host: A.example:80", "host: b.example")}, denied},
		{"open", call{line: "CONNECT a.example:80"}, http.StatusNotFound},
	} {
		got, err := c.write(ports[c.rule], nil)
		require.NoError(t, err, "%s: %q %q", c.rule, c.line, c.headers)
		assert.Equal(t, c.want, got.status, "%s: %q %q", c.rule, c.line, c.headers)
	}
	forged, err := call{line: "GET /", headers: h("x-forwarded-client-cert: URI=spiffe://a/b")}.write(ports["open"], nil)
	require.NoError(t, err)
	require.NotNil(t, forged.seen)
	assert.NotContains(t, forged.seen.Headers, "x-forwarded-client-cert")
}

// pathsAsRulesSeeThem checks that the path which a rule sees is the one that the upstream gets, and what Envoy makes of it.
func pathsAsRulesSeeThem(t *testing.T, open, said string) {
	const redirected, refused = "redirected", "refused"
	for target, want := range map[string]string{
		"/a?": "/a?", "/a;b": "/a;b", "/a/...": "/a/...", "/a?x=/../b": "/a?x=/../b", "/a?x=//b": "/a?x=//b",
		"http://h.example": "/", "http://h.example/a/../b": "/b",
		// Slashes are merged, pair by pair.
		"//x": "/x", "/a//b": "/a/b", "///": "//", "/a//../b": "/a/b",
		"/a/../b": "/b", "/a/./b": "/a/b", "/a/..": "/", "/..": "/", "/../a": "/a", "/a/b/../../../c": "/c", "/a/b/.": "/a/b/",
		"/a/%2e%2e/b": "/b", "/a/%2E%2e/b": "/b", "/a/.%2e/b": "/b", "/a/%2e/b": "/a/b", "/a;/../b": "/b", "/a/..;/b": "/b", `/a\b`: "/a/b",
		// Decoded where it makes no difference, encoded where RFC 3986 asks for it, nothing decoded twice.
		"/%61": "/a", "/~%7E": "/~~", "/%C3%A9": "/%C3%A9", "/%c3%a9": "/%c3%a9", "/a%3bb": "/a%3bb", "/a%252fb": "/a%252fb", "/a%0ab": "/a%0ab",
		"/a|b": "/a%7Cb", `/a"b`: "/a%22b", "/a{b}": "/a%7Bb%7D", "/a^b": "/a%5Eb",
		"/a%2fb": redirected, "/a%2Fb": redirected, "/a%5cb": redirected, "/a/%2e%2e%2fb": redirected,
		"/a%00b": refused, "/a\x00b": refused, `\a`: refused, "/a#b": refused, "/a%": refused, "/a%zz": refused, "/a b": refused, "/\xc3\xa9": refused,
		"a": refused, "*": refused, "?x": refused,
	} {
		got, err := call{line: "GET " + target}.write(open, nil)
		require.NoError(t, err, "%q", target)
		if got.seen == nil {
			assert.Equal(t, map[string]int{redirected: http.StatusTemporaryRedirect, refused: refuses}[want], got.status, "%q", target)
			continue
		}
		assert.Equal(t, want, got.seen.Path, "%q", target)
		ruled, err := call{line: "GET " + target, headers: []string{"x-said: " + got.seen.Path}}.write(said, nil)
		require.NoError(t, err, "%q", target)
		assert.Equal(t, passes, ruled.status, "%q: the rule sees another path than %q", target, got.seen.Path)
	}
}

func (w *world) clientCertificates(t *testing.T, ports map[string]string) {
	const one, two = "spiffe://example.test/one", "spiffe://example.test/two"
	certificate := func(ca *stack.Authority, ids ...string) *tls.Certificate {
		chain, key := ca.Workload(t, ids...)
		pair, err := tls.X509KeyPair(chain, key)
		require.NoError(t, err)
		return &pair
	}
	none, nameless, both := (*tls.Certificate)(nil), certificate(w.ca), certificate(w.ca, one, two)
	for _, c := range []struct {
		rule        string
		certificate *tls.Certificate
		want        int
	}{
		{"open", none, passes},
		{"mtls", none, denied},
		{"mtls", nameless, passes},
		{"mtls", certificate(w.ca, one), passes},
		{"one", none, denied},
		{"one", nameless, denied},
		{"one", certificate(w.ca, one), passes},
		{"one", certificate(w.ca, two), denied},
		// The first ID counts.
		{"one", both, passes},
		{"two", both, denied},
		// Without an ID there is nothing to compare, which is an error and not an empty text.
		{"notone", none, denied},
		{"notone", nameless, denied},
		{"notone", certificate(w.ca, two), passes},
	} {
		got, err := call{line: "GET /"}.write(ports[c.rule], clientTLS(c.certificate))
		require.NoError(t, err, c.rule)
		assert.Equal(t, c.want, got.status, "%s", c.rule)
	}
	stranger := clientTLS(certificate(stack.NewAuthority(t), one))
	stranger.MaxVersion = tls.VersionTLS12 // with 1.3 the refusal comes after the handshake, and a request sent meanwhile can lose it
	_, err := call{line: "GET /"}.write(ports["open"], stranger)
	assert.ErrorContains(t, err, "unknown certificate authority")
	forged, err := call{line: "GET /", headers: []string{"x-forwarded-client-cert: URI=" + one}}.write(ports["open"], clientTLS(certificate(w.ca, two)))
	require.NoError(t, err)
	require.NotNil(t, forged.seen)
	assert.NotContains(t, forged.seen.Headers["x-forwarded-client-cert"], one)
}

// clientTLS presents a certificate also where the server asks for another authority's.
func clientTLS(certificate *tls.Certificate) *tls.Config {
	config := &tls.Config{ServerName: "gateway.example.test", InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // the client is who is tried
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return config
}
