package envoy_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/test/stack"
)

// TestSigningKeysAreRotated: the API server gets another key to sign tokens with, in the steps that Kubernetes asks for: it
// publishes the new key, then signs with it, then forgets the former one. The operator brings the keys into the SecurityPolicy,
// and what counts is what Envoy does with tokens: those of either key pass all the time, and those of the former one stop to.
func TestSigningKeysAreRotated(t *testing.T) {
	w := newWorld(t)
	w.InstallOperator(t)
	start := func() *stack.Operator { // with a lease that outlasts a start of the API server
		return w.StartOperator(t, "--token-audience="+audience, "--jwks-refresh=10s", "--leader-election-lease=60s")
	}
	operator := start()
	const namespace = "demo"
	w.Apply(t, stack.Namespace(namespace))
	address := stack.FreeAddress(t)
	w.routes(t, namespace, "prod")
	w.Apply(t, stack.Object("gateway.networking.k8s.io/v1", "Gateway", namespace, "prod", map[string]any{"gatewayClassName": class,
		"listeners": []any{map[string]any{"name": "http", "port": port(address), "protocol": "HTTP"}}}),
		stack.Object(v1alpha1.GroupVersion.String(), "XAccessPolicy", namespace, "tools", map[string]any{
			"targetRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "prod"}},
			"action":     "Allow",
			"rules": []any{map[string]any{"name": "reader",
				"source":        map[string]any{"type": "ServiceAccount", "serviceAccount": map[string]any{"name": "reader"}},
				"authorization": map[string]any{"type": "Inline", "mcp": map[string]any{"methods": []any{map[string]any{"name": "tools/call", "params": []any{"add"}}}}}}}}))
	w.envoy = w.StartEnvoyOfClass(t, class)
	w.listening(t, map[string]string{"http": address})
	send := func(token string) int {
		c := toolCall("add")
		c.headers = append(c.headers, "authorization: Bearer "+token)
		got, err := c.write(address, nil)
		if err != nil {
			return 0
		}
		return got.status
	}
	answers := func(token string, status int) {
		t.Helper()
		eventually(t, fmt.Sprintf("Envoy answers %d", status), func(context.Context) error {
			if got := send(token); got != status {
				return fmt.Errorf("it answers %d", got)
			}
			return nil
		})
	}
	keysAre := func(count int) {
		t.Helper()
		eventually(t, fmt.Sprintf("the SecurityPolicy has %d keys", count), func(ctx context.Context) error {
			sp := stack.Object("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", namespace, "prod-auth", nil)
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(sp), sp); err != nil {
				return err
			}
			var spec struct {
				JWT struct {
					Providers []struct{ LocalJWKS struct{ Inline string } }
				}
			}
			text, err := json.Marshal(sp.Object["spec"])
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &spec))
			if have := strings.Count(spec.JWT.Providers[0].LocalJWKS.Inline, `"kid"`); have != count {
				return fmt.Errorf("it has %d", have)
			}
			return nil
		})
	}
	restarted := func() {
		t.Helper()
		w.KillAPIServer(t)
		w.StartAPIServer(t)
	}

	w.Apply(t, stack.ServiceAccount(namespace, "reader"))
	former := w.Token(t, namespace, "reader", audience)
	answers(w.Token(t, namespace, "default", audience), denied) // from then on the rules are there
	answers(former, passes)
	steady := &steady{send: send, tokens: []string{former}}
	go steady.run(t.Context())

	rotation := w.RotateTokenKey(t)
	restarted()
	keysAre(2)
	time.Sleep(2 * time.Second) // Envoy has them a moment later
	rotation.Sign(t)
	restarted()
	latter := w.Token(t, namespace, "reader", audience)
	require.NotEqual(t, keyOf(t, former), keyOf(t, latter))
	steady.add(latter)
	time.Sleep(12 * time.Second) // the operator reads the keys again
	sent, refused := steady.end()
	t.Logf("%d requests while the keys changed", sent)
	require.Greater(t, sent, 100)
	require.Empty(t, refused, "tokens of both keys pass throughout")

	// The operator's own token is of the former key. In a Pod the kubelet has replaced it by now.
	operator.Stop(t)
	start()
	rotation.Retire(t)
	restarted()
	begin := time.Now()
	answers(former, http.StatusUnauthorized)
	t.Logf("a token of the former key is refused %s after the API server has forgotten that key", time.Since(begin).Round(100*time.Millisecond))
	require.Equal(t, passes, send(latter))
	w.notRejected(t)
}

// steady sends requests with tokens all the time.
type steady struct {
	send func(token string) int

	mu      sync.Mutex
	tokens  []string
	sent    int
	refused []int
	over    bool
}

func (s *steady) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		tokens, over := slices.Clone(s.tokens), s.over
		s.mu.Unlock()
		if over {
			return
		}
		for _, token := range tokens {
			status := s.send(token)
			s.mu.Lock()
			s.sent++
			if status != passes && !s.over {
				s.refused = append(s.refused, status)
			}
			s.mu.Unlock()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *steady) add(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, token)
}

// end returns how many requests were sent, and the status of those that did not pass.
func (s *steady) end() (int, []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.sent, s.refused
}

// keyOf is the ID of the key that a token is signed with.
func keyOf(t *testing.T, token string) string {
	t.Helper()
	var header struct{ Kid string }
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &header))
	require.NotEmpty(t, header.Kid)
	return header.Kid
}
