package envoy_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/requests"
)

// TestFailedTokenLeavesNoClaims sends tokens of every kind to what is generated, with jwt.failOpen and without, and to rules that
// look for claims by other ways. A token that failed must be no more than none.
func TestFailedTokenLeavesNoClaims(t *testing.T) {
	w := newWorld(t)
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	w.keys = withKey(t, w.keys, own)
	// With a rule for anybody, and so with jwt.failOpen; and without.
	open := w.addGolden(t, "source/a-rule-for-anybody-beside-rules-for-serviceaccounts")
	strict := w.addGolden(t, "mcp/one-tool-for-one-service-account")
	require.True(t, *open.result.EnvoyGateway.Objects[0].Spec.JWT.FailOpen)
	require.Nil(t, strict.result.EnvoyGateway.Objects[0].Spec.JWT.FailOpen)
	ports := w.listen(t, "claims", false, w.claimPolicies(t))
	w.serve(t, []*site{open, strict})
	w.listening(t, ports)
	time.Sleep(3 * time.Second) // the last routes may still be on their way
	w.notRejected(t)

	const cashier, reader = "payments/cashier", "demo/reader"
	charge, echo, add := toolCall("charge"), toolCall("echo"), toolCall("add")
	send := func(address string, c call, authorization ...string) int {
		for _, value := range authorization {
			c.headers = append(c.headers, "authorization: "+value)
		}
		got, err := c.write(address, nil)
		require.NoError(t, err, "%q", authorization)
		return got.status
	}
	for name, valid := range w.goodTokens(t, own, cashier) {
		assert.Equal(t, passes, send(open.ports["mcp"], charge, "Bearer "+valid), name)
		for rule, want := range map[string]int{"sub": passes, "unless": denied, "metadata": passes, "any": passes} {
			assert.Equal(t, want, send(ports[rule], call{line: "GET /"}, "Bearer "+valid), "%s: %s", rule, name)
		}
	}
	for name, valid := range w.goodTokens(t, own, reader) {
		assert.Equal(t, passes, send(strict.ports["http"], add, "Bearer "+valid), name)
		assert.Equal(t, denied, send(open.ports["mcp"], charge, "Bearer "+valid), name)
	}
	for name, values := range w.failingTokens(t, own, cashier) {
		assert.Equal(t, denied, send(open.ports["mcp"], charge, values...), name)
		assert.Equal(t, passes, send(open.ports["mcp"], echo, values...), "the rule for anybody: %s", name)
		for rule, want := range map[string]int{"sub": denied, "unless": passes, "metadata": denied, "any": denied} {
			assert.Equal(t, want, send(ports[rule], call{line: "GET /"}, values...), "%s: %s", rule, name)
		}
	}
	for name, values := range w.failingTokens(t, own, reader) {
		assert.Contains(t, []int{http.StatusUnauthorized, denied}, send(strict.ports["http"], add, values...), name)
	}
	// The token is read from the header alone, which is not Envoy Gateway's default.
	inQuery := charge
	inQuery.line += "?access_token=" + w.token(t, cashier, audience)
	assert.Equal(t, denied, send(open.ports["mcp"], inQuery))
}

func (w *world) addGolden(t *testing.T, name string) *site {
	t.Helper()
	c, err := requests.LoadCase(os.DirFS(filepath.Join(cases, filepath.FromSlash(name))))
	require.NoError(t, err)
	return w.add(t, name, c)
}

// claimPolicies look for claims of payments/cashier in each way that Envoy has, with the jwt that is generated.
func (w *world) claimPolicies(t *testing.T) map[string]string {
	t.Helper()
	const subject = "system:serviceaccount:payments:cashier"
	keys, err := json.Marshal(w.keys)
	require.NoError(t, err)
	jwt := fmt.Sprintf("jwt: {failOpen: true, providers: [{name: service-account, issuer: %s, audiences: [%s], localJWKS: {type: Inline, inline: %s}, "+
		"extractFrom: {headers: [{name: Authorization, valuePrefix: 'Bearer '}]}}]}\n", w.issuer, audience, keys)
	claim := "principal: {jwt: {provider: service-account, claims: [{name: sub, values: ['" + subject + "']}]}}"
	const found = "metadata.filter_metadata['envoy.filters.http.jwt_authn']"
	return map[string]string{
		"sub":      jwt + allowing(claim),
		"unless":   jwt + "authorization: {defaultAction: Allow, rules: [{action: Deny, " + claim + "}]}",
		"metadata": jwt + allowing(`cel: "`+found+`['service-account'].sub == '`+subject+`'"`),
		"any":      jwt + allowing(`cel: "'envoy.filters.http.jwt_authn' in metadata.filter_metadata"`),
	}
}

func toolCall(tool string) call {
	return call{line: "POST /mcp", headers: []string{"content-type: application/json", "x-mcp-method: tools/call", "x-mcp-toolname: " + tool, "x-mcp-servername: demo/tools"}}
}

func claims(issuer, account string, more map[string]any) map[string]any {
	now := time.Now().Unix()
	out := map[string]any{"iss": issuer, "aud": []string{audience}, "sub": "system:serviceaccount:" + strings.ReplaceAll(account, "/", ":"), "exp": now + 3600, "iat": now, "nbf": now}
	maps.Copy(out, more)
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	return out
}

// goodTokens verify. Two of them are worth knowing: Envoy allows clocks a minute, and does not ask for an end. No token that
// the API server makes for an audience is without one.
func (w *world) goodTokens(t *testing.T, own *rsa.PrivateKey, account string) map[string]string {
	t.Helper()
	return map[string]string{
		"of the API server":             w.token(t, account, audience),
		"of a second key":               sign(t, own, "RS256", claims(w.issuer, account, nil)),
		"ended less than a minute ago":  sign(t, own, "RS256", claims(w.issuer, account, map[string]any{"exp": time.Now().Unix() - 20})),
		"without an end":                sign(t, own, "RS256", claims(w.issuer, account, map[string]any{"exp": nil})),
		"for several, ours among them":  sign(t, own, "RS256", claims(w.issuer, account, map[string]any{"aud": []string{"other", audience}})),
		"issued later than now, by iat": sign(t, own, "RS256", claims(w.issuer, account, map[string]any{"iat": time.Now().Unix() + 3600})),
	}
}

// failingTokens are values of the header Authorization that prove nothing, by what is wrong with them.
func (w *world) failingTokens(t *testing.T, own *rsa.PrivateKey, account string) map[string][]string {
	t.Helper()
	good, now := w.token(t, account, audience), time.Now().Unix()
	broken := good[:len(good)-8] + "AAAAAAAA"
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	signed := func(more map[string]any) []string {
		return []string{"Bearer " + sign(t, own, "RS256", claims(w.issuer, account, more))}
	}
	return map[string][]string{
		"none":                 nil,
		"signature":            {"Bearer " + broken},
		"of an unknown key":    {"Bearer " + sign(t, stranger, "RS256", claims(w.issuer, account, nil))},
		"unsigned":             {"Bearer " + sign(t, nil, "none", claims(w.issuer, account, nil))},
		"algorithm of no key":  {"Bearer " + sign(t, own, "HS256", claims(w.issuer, account, nil))},
		"audience":             {"Bearer " + w.token(t, account, "elsewhere")},
		"audience of the API":  {"Bearer " + w.token(t, account)},
		"audience missing":     signed(map[string]any{"aud": nil}),
		"issuer":               signed(map[string]any{"iss": "https://elsewhere.test"}),
		"ended":                signed(map[string]any{"exp": now - 3600}),
		"not begun":            signed(map[string]any{"nbf": now + 3600}),
		"no token":             {"Bearer not-a-token"},
		"no scheme":            {good},
		"scheme in lower case": {"bearer " + good},
		"another scheme":       {"Basic " + good},
		"more behind it":       {"Bearer " + good + ",x"},
		"a bad one behind it":  {"Bearer " + good, "Bearer " + broken},
		"a bad one before it":  {"Bearer " + broken, "Bearer " + good},
	}
}

func withKey(t *testing.T, set string, key *rsa.PrivateKey) string {
	t.Helper()
	var keys map[string][]any
	require.NoError(t, json.Unmarshal([]byte(set), &keys))
	keys["keys"] = append(keys["keys"], map[string]any{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "own",
		"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes())})
	out, err := json.Marshal(keys)
	require.NoError(t, err)
	return string(out)
}

// sign makes a token, without a signature where there is no key.
func sign(t *testing.T, key *rsa.PrivateKey, algorithm string, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	text := part(map[string]any{"alg": algorithm, "kid": "own", "typ": "JWT"}) + "." + part(claims)
	if key == nil {
		return text + "."
	}
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	require.NoError(t, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}
