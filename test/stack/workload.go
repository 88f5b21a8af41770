package stack

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
)

// Authority signs the certificates of workloads and of the gateway that they call.
type Authority struct{ authority *authority }

// NewAuthority makes one that nobody else has.
func NewAuthority(t T) *Authority {
	t.Helper()

	a, err := newAuthority()
	must(t, err)

	return &Authority{a}
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return a.authority.pem() }

// Server issues a certificate for a server of this name, and others that it has.
func (a *Authority) Server(t T, name string, others ...string) (certificate, key []byte) {
	t.Helper()

	issued, err := a.authority.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: append([]string{name}, others...),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	must(t, err)

	return issued.certificate, issued.key
}

// Workload issues a client certificate with SPIFFE IDs; the specification allows one.
func (a *Authority) Workload(t T, ids ...string) (certificate, key []byte) {
	t.Helper()

	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "agent"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}

	for _, id := range ids {
		uri, err := url.Parse(id)
		must(t, err)

		template.URIs = append(template.URIs, uri)
	}

	issued, err := a.authority.issue(template)
	must(t, err)

	return issued.certificate, issued.key
}

// Issuer is the issuer of the tokens of ServiceAccounts, and the keys that it signs
// with as a JSON Web Key Set.
func (c *Cluster) Issuer(t T) (issuer, keys string) {
	t.Helper()

	var discovery struct {
		Issuer string `json:"issuer"`
	}

	must(t, c.Raw(context.Background(), "/.well-known/openid-configuration", "application/json", &discovery))

	body, err := c.clientset.RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(context.Background())
	must(t, err)

	return discovery.Issuer, string(body)
}
