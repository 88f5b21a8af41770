package controllers

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// server answers like an API server.
type server struct {
	answers map[string]string
	asked   []string
}

func (s *server) read(_ context.Context, path string) ([]byte, error) {
	s.asked = append(s.asked, path)
	if text, there := s.answers[path]; there {
		return []byte(text), nil
	}
	return nil, errors.New("it does not answer")
}

const (
	discovered = `{"issuer":"https://cluster.example.test","jwks_uri":"https://x/openid/v1/jwks"}`
	oneKey     = `{"keys":[{"use":"sig","kty":"RSA","kid":"one","alg":"RS256","n":"n1","e":"AQAB"}]}`
	twoKeys    = `{"keys":[{"kty":"RSA","kid":"two","e":"AQAB","n":"n2"},{"e":"AQAB","use":"sig","kty":"RSA","kid":"one","alg":"RS256","n":"n1"}]}`
)

func TestIssuer(t *testing.T) {
	s := &server{answers: map[string]string{}}
	turns := 0
	i := &issuer{read: s.read, changed: func(context.Context) error { turns++; return nil }}
	known := func() string {
		_, keys := i.known()
		return keys
	}
	require.False(t, i.turn(t.Context(), false))
	require.False(t, i.settled(), "Gateways wait for the first read")
	require.Zero(t, turns)

	s.answers[discoveryPath], s.answers[keysPath] = discovered, oneKey
	require.True(t, i.turn(t.Context(), false))
	require.True(t, i.settled())
	name, _ := i.known()
	require.Equal(t, "https://cluster.example.test", name)
	require.Equal(t, []string{"one"}, keyIDs(known()))
	require.Equal(t, 1, turns)
	i.turn(t.Context(), false)
	require.Equal(t, 1, turns, "nothing has changed")

	s.answers[keysPath] = twoKeys
	i.turn(t.Context(), false)
	require.ElementsMatch(t, []string{"one", "two"}, keyIDs(known()))
	require.Equal(t, 2, turns)

	for name, answer := range map[string]string{"no-set": `not found`, "no-keys": `{"keys":[]}`, "another-thing": `{"kind":"Status"}`, "a-key-of-no-type": `{"keys":[{"kid":"x"}]}`} {
		t.Run(name, func(t *testing.T) {
			s.answers[keysPath] = answer
			require.True(t, i.turn(t.Context(), true))
			require.Len(t, keyIDs(known()), 2, "what was read last stays")
		})
	}
	require.Equal(t, 2, turns)

	s.answers[keysPath] = `{"keys":[{"kty":"RSA","kid":"two","e":"AQAB","n":"n2"}]}`
	i.turn(t.Context(), false)
	require.Equal(t, []string{"two"}, keyIDs(known()), "a key that is dropped is not trusted any more")
	require.Equal(t, 3, turns)
}

// TestIssuerThatIsSilent: after a while Gateways go on without keys.
func TestIssuerThatIsSilent(t *testing.T) {
	turns := 0
	i := &issuer{read: (&server{}).read, changed: func(context.Context) error { turns++; return nil }}
	require.False(t, i.turn(t.Context(), true))
	require.True(t, i.settled())
	require.Equal(t, 1, turns)
	i.turn(t.Context(), true)
	require.Equal(t, 1, turns)
}

func TestIssuerWithAName(t *testing.T) {
	s := &server{answers: map[string]string{keysPath: oneKey}}
	i := &issuer{read: s.read, name: "https://configured.example.test", changed: func(context.Context) error { return nil }}
	require.True(t, i.turn(t.Context(), false))
	name, _ := i.known()
	require.Equal(t, "https://configured.example.test", name)
	require.Equal(t, []string{keysPath}, s.asked)
}

// TestKeySet: one form, whatever the order, and nothing that is not needed to verify.
func TestKeySet(t *testing.T) {
	a, err := keySet([]byte(`{"keys":[{"kty":"RSA","kid":"b","n":"2","e":"AQAB"},{"kid":"a","kty":"RSA","n":"1","e":"AQAB","d":"secret"}]}`))
	require.NoError(t, err)
	b, err := keySet([]byte(`{"keys":[{"e":"AQAB","kid":"a","kty":"RSA","n":"1"},{"kty":"RSA","kid":"b","n":"2","e":"AQAB"},{"kty":"RSA","kid":"b","n":"2","e":"AQAB"}]}`))
	require.NoError(t, err)
	require.Equal(t, a, b)
	require.NotContains(t, a, "secret")
}
