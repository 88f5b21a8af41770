package stack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	validity = 24 * time.Hour
	// Clocks of one machine do not differ, but certificates are compared by the
	// second.
	backdate = time.Minute
	// kube-apiserver signs tokens of service accounts with RSA.
	tokenKeyBits = 2048

	// serviceRange is where the API server takes cluster IPs from; its own Service
	// gets the first one.
	serviceRange = "10.96.0.0/16"
	firstService = "10.96.0.1"
)

// authority is a certificate authority that lives for one test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

// pair is a certificate and its key, PEM.
type pair struct {
	certificate []byte
	key         []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the CA's key: %w", err)
	}

	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "stack"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(validity),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the CA's certificate: %w", err)
	}

	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the CA's certificate: %w", err)
	}

	return &authority{certificate: certificate, key: key, serial: 1}, nil
}

// pem is the authority's certificate.
func (a *authority) pem() []byte { return encode("CERTIFICATE", a.certificate.Raw) }

// server issues a certificate for a server on loopback.
func (a *authority) server(name string) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.ParseIP(loopback), net.ParseIP(firstService)},
	})
}

// client issues a certificate with which its holder is this user in this group.
func (a *authority) client(user, group string) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: []string{group}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make the key of %s: %w", template.Subject, err)
	}

	a.serial++
	now := time.Now()
	template.SerialNumber = big.NewInt(a.serial)
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(validity)
	template.KeyUsage = x509.KeyUsageDigitalSignature

	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject, err)
	}

	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode the key of %s: %w", template.Subject, err)
	}

	return pair{certificate: encode("CERTIFICATE", der), key: encode("PRIVATE KEY", keyDER)}, nil
}

// tokenKeys makes the pair with which the API server signs the tokens of service
// accounts; certificate holds the public key.
func tokenKeys() (pair, error) {
	key, err := rsa.GenerateKey(rand.Reader, tokenKeyBits)
	if err != nil {
		return pair{}, fmt.Errorf("make the token key: %w", err)
	}

	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return pair{}, fmt.Errorf("encode the token key: %w", err)
	}

	return pair{
		certificate: encode("PUBLIC KEY", public),
		key:         encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)),
	}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writeFiles writes files into a folder that it makes.
func writeFiles(folder string, files map[string][]byte) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return err
		}
	}

	return nil
}
