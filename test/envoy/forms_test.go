package envoy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator/requests"
)

// formsSite is a Gateway on which demo/reader may call add, and the objects of both forms for it.
type formsSite struct {
	*site
	address        string
	native, asking *unstructured.Unstructured // SecurityPolicies of one name
	// may is a request that a rule grants, mayNot one of the same caller that none does.
	may, mayNot []byte
}

// How the forms refuse.
const (
	refusesNatively = "RBAC: access denied"
	refusesByAsking = "Access to this tool is forbidden."
)

// addForms serves a Gateway in the form that asks.
func (w *world) addForms(t *testing.T) *formsSite {
	t.Helper()
	const name = "mcp/one-tool-for-one-service-account"
	c, err := requests.LoadCase(os.DirFS(filepath.Join(cases, filepath.FromSlash(name))))
	require.NoError(t, err)
	w.asking = true
	s := &formsSite{site: w.add(t, name, c)}
	w.asking = false
	native := w.translate(t, name, c)
	native.namespace = s.namespace
	s.asking, s.native = securityPolicy(t, s.manifests(t)), securityPolicy(t, native.manifests(t))
	require.Equal(t, s.asking.GetName(), s.native.GetName())
	w.serve(t, []*site{s.site})
	s.address = s.ports["http"]
	token := w.token(t, reader, audience)
	s.may, s.mayNot = callOf(token, "add"), callOf(token, "subtract")
	w.answersTo(t, s, s.mayNot, refusesByAsking)
	w.answersTo(t, s, s.may, "200")
	return s
}

func securityPolicy(t *testing.T, objects []*unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "SecurityPolicy" })
	require.GreaterOrEqual(t, i, 0)
	return objects[i]
}

// answersTo waits until a request on a connection of its own gets an answer with such a status or body.
func (w *world) answersTo(t *testing.T, s *formsSite, request []byte, want string) {
	t.Helper()
	eventually(t, "Envoy answers "+want, func(context.Context) error {
		c, err := keep(s.address)
		if err != nil {
			return err
		}
		defer c.connection.Close()
		got, err := c.ask(request)
		if err != nil {
			return err
		}
		if text := fmt.Sprintf("%d %s", got.status, got.body); !strings.Contains(text, want) {
			return fmt.Errorf("it answers %s", text)
		}
		return nil
	})
}

func keep(address string) (*caller, error) {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return nil, err
	}
	return &caller{connection, bufio.NewReader(connection)}, nil
}

// ask sends a request and reads the answer.
func (c *caller) ask(request []byte) (answer, error) {
	if err := c.connection.SetDeadline(time.Now().Add(settles)); err != nil {
		return answer{}, err
	}
	if _, err := c.connection.Write(request); err != nil {
		return answer{}, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response)
}

// keptConnections are so many that Envoy has served before a change, and so with the filters from before it.
func (s *formsSite) keptConnections(t *testing.T) []*caller {
	t.Helper()
	var out []*caller
	for range 20 {
		c, err := keep(s.address)
		require.NoError(t, err)
		t.Cleanup(func() { c.connection.Close() })
		got, err := c.ask(s.may)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, got.status, got.body)
		out = append(out, c)
	}
	return out
}

// opened counts what passes of a forbidden call on connections from before a change; asked is how many got an answer.
func (s *formsSite) opened(kept []*caller) (passed, asked int) {
	for _, c := range kept {
		got, err := c.ask(s.mayNot)
		if err != nil {
			continue // Envoy has closed it
		}
		asked++
		if got.status == http.StatusOK {
			passed++
		}
	}
	return passed, asked
}

// watch sends the forbidden call all the time on new connections, until it is told to stop. It returns how often, and how often it
// passed.
func (s *formsSite) watch() (stop func() (sent, passed int64)) {
	var sent, passed atomic.Int64
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
			}
			c, err := keep(s.address)
			if err != nil {
				continue
			}
			if got, err := c.ask(s.mayNot); err == nil {
				sent.Add(1)
				if got.status == http.StatusOK {
					passed.Add(1)
				}
			}
			_ = c.connection.Close()
		}
	}()
	return func() (int64, int64) {
		close(end)
		<-ended
		return sent.Load(), passed.Load()
	}
}

// TestChangeOfTheFormNeverOpens changes a Gateway between the forms while forbidden calls are made, on new connections and on
// those that Envoy still serves with the filters from before.
func TestChangeOfTheFormNeverOpens(t *testing.T) {
	w := newWorld(t)
	s := w.addForms(t)
	stop := s.watch()
	asked := 0
	for range 3 {
		for _, to := range []struct {
			policy  *unstructured.Unstructured
			refuses string
		}{{s.native, refusesNatively}, {s.asking, refusesByAsking}} {
			kept := s.keptConnections(t)
			w.Apply(t, to.policy.DeepCopy())
			w.answersTo(t, s, s.mayNot, to.refuses)
			w.answersTo(t, s, s.may, "200")
			passed, n := s.opened(kept)
			assert.Zero(t, passed, "of %d, when the form became that which answers %s", n, to.refuses)
			asked += n
		}
	}
	sent, passed := stop()
	assert.Zero(t, passed, "of %d on new connections", sent)
	require.NotZero(t, asked, "no connection from before was left to ask on")
	require.Greater(t, sent, int64(50))
	w.notRejected(t)
	t.Logf("%d forbidden calls on new connections, %d on connections from before", sent, asked)

	// What the one rule is for: without it, the same change opens.
	without := s.asking.DeepCopy()
	unstructured.RemoveNestedField(without.Object, "spec", "authorization")
	w.Apply(t, s.native.DeepCopy())
	w.answersTo(t, s, s.mayNot, refusesNatively)
	kept := s.keptConnections(t)
	w.Apply(t, without)
	w.answersTo(t, s, s.mayNot, refusesByAsking)
	passed2, n := s.opened(kept)
	assert.NotZero(t, passed2, "of %d", n)
}

// TestAuthorinoCannotBeAsked closes the Gateway: while Authorino is down, and while Envoy Gateway is not allowed to refer to it.
func TestAuthorinoCannotBeAsked(t *testing.T) {
	w := newWorld(t)
	s := w.addForms(t)
	w.authorino.Stop(t)
	w.answersTo(t, s, s.may, "503")
	stop := s.watch()
	w.authorino.Start(t)
	w.answersTo(t, s, s.may, "200")
	sent, passed := stop()
	assert.Zero(t, passed, "of %d", sent)

	require.NoError(t, w.Client.Delete(t.Context(), grantFrom(s.namespace)))
	w.answersTo(t, s, s.may, refusesNatively) // what nobody was asked about
	policy := s.asking.DeepCopy()
	eventually(t, "the status says why", func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		if why := fmt.Sprint(acceptedBy(policy)); !strings.Contains(why, "not permitted by any ReferenceGrant") {
			return errors.New(why)
		}
		return nil
	})
	w.Apply(t, grantFrom(s.namespace))
	w.answersTo(t, s, s.may, "200")

	// Its AuthConfig gone, Authorino knows nothing of the host and denies.
	config := s.result.EnvoyGateway.AuthConfigs[0]
	require.NoError(t, w.Client.Delete(t.Context(), stack.Object(config.APIVersion, config.Kind, s.namespace, config.Name, nil)))
	w.answersTo(t, s, s.may, "404")
}
