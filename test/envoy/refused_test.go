package envoy_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"accesspolicy-operator/test/stack"
)

// bystanders is how many Gateways share an Envoy with one whose rule Envoy refuses.
const bystanders = 10

// TestRefusedConfiguration is about what one refused expression does to others: Envoy gives up a delivery in the middle, and the
// order in it is chance. This is why the emitter keeps away from everything that Envoy might refuse.
func TestRefusedConfiguration(t *testing.T) {
	w := newWorld(t)
	names, ports := []string{"bad"}, map[string]string{}
	for i := range bystanders {
		names = append(names, fmt.Sprintf("bystander-%d", i))
	}
	for _, name := range names {
		w.Apply(t, stack.Namespace(name), ruleOf(name, "true"))
		ports[name] = stack.FreeAddress(t)
		w.routes(t, name, name)
		w.Apply(t, stack.Object("gateway.networking.k8s.io/v1", "Gateway", name, name, map[string]any{"gatewayClassName": class,
			"listeners": []any{map[string]any{"name": "l", "port": port(ports[name]), "protocol": "HTTP"}}}))
	}
	w.envoy = w.StartEnvoyOfClass(t, class)
	w.listening(t, ports)
	for _, name := range names {
		require.Equal(t, holds, w.firstAnswer(t, ports[name]))
	}
	w.notRejected(t)

	w.Apply(t, ruleOf("bad", "string(5) == '5'"))
	eventually(t, "Envoy refuses the expression", func(ctx context.Context) error {
		rejected, _, err := w.envoy.Rejected(ctx)
		if err == nil && rejected == 0 {
			err = fmt.Errorf("it has refused nothing")
		}
		return err
	})
	assert.Equal(t, holds, try(ports["bad"]), "what was in force stays")

	missed := w.missed(t, names[1:], ports)
	require.NotEmpty(t, missed, "every change of the others takes effect; what docs/enforcers.md says is not true any more")
	t.Logf("%d of %d Gateways keep old rules", len(missed), bystanders)

	w.Apply(t, ruleOf("bad", "true"))
	time.Sleep(settlesQuietly)
	for name, old := range missed {
		assert.Equal(t, old, try(ports[name]), "%s: taking the expression away does not bring what was missed", name)
	}
	w.restart(t, ports)
	for name, old := range missed {
		assert.NotEqual(t, old, w.firstAnswer(t, ports[name]), "%s: a new Envoy gets everything", name)
	}
	w.notRejected(t)

	// An Envoy that has never had anything else serves nothing there.
	w.Apply(t, ruleOf("bad", "string(5) == '5'"))
	w.restart(t, ports)
	time.Sleep(settlesQuietly)
	assert.Equal(t, fmt.Sprintf("status %d", http.StatusNotFound), try(ports["bad"]))
}

// settlesQuietly is how long a change takes that nothing waits for.
const settlesQuietly = 3 * time.Second

func ruleOf(gateway, text string) *unstructured.Unstructured {
	return stack.Object("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", gateway, gateway, map[string]any{
		"targetRefs":    []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway}},
		"authorization": map[string]any{"defaultAction": "Deny", "rules": []any{map[string]any{"action": "Allow", "cel": text}}},
	})
}

// missed changes the rules of Gateways back and forth until some change does not take effect, and returns what these Gateways
// answer instead.
func (w *world) missed(t *testing.T, names []string, ports map[string]string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for round := 0; round < 10 && len(out) == 0; round++ {
		text, want := "false", fails
		if round%2 == 1 {
			text, want = "true", holds
		}
		for _, name := range names {
			w.Apply(t, ruleOf(name, text))
		}
		time.Sleep(settlesQuietly)
		for _, name := range names {
			if got := try(ports[name]); got != want {
				out[name] = got
			}
		}
	}
	return out
}

// restart replaces Envoy.
func (w *world) restart(t *testing.T, ports map[string]string) {
	t.Helper()
	w.envoy.Kill(t)
	w.envoy = w.StartEnvoyOfClass(t, class)
	w.listening(t, ports)
}

// firstAnswer waits until there are rules, and returns what they say to the request that the expressions speak of.
func (w *world) firstAnswer(t *testing.T, address string) string {
	t.Helper()
	var got string
	eventually(t, "the answer of "+address, func(context.Context) error {
		if got = try(address); strings.HasPrefix(got, "status") {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	return got
}
