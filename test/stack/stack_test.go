package stack

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	audience = "tools.example.test"

	gatewayHost = "a.example.test"
	otherHost   = "b.example.test"

	reconcileLimit = 60 * time.Second
)

// handWrittenPolicy lets service accounts pass that send x-tool: add.
func handWrittenPolicy() *unstructured.Unstructured {
	return Object("kuadrant.io/v1", "AuthPolicy", "default", "policy", map[string]any{
		"targetRef": map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gateway"},
		"overrides": map[string]any{"rules": map[string]any{
			"authentication": map[string]any{"account": map[string]any{
				"kubernetesTokenReview": map[string]any{"audiences": []any{audience}},
			}},
			"authorization": map[string]any{"tool": map[string]any{"patternMatching": map[string]any{
				"patterns": []any{map[string]any{"predicate": `request.headers["x-tool"] == "add"`}},
			}}},
		}},
	})
}

// stopwatch logs how long each step took.
type stopwatch struct {
	t    *testing.T
	last time.Time
}

func (s *stopwatch) lap(step string) {
	s.t.Helper()
	s.t.Logf("%6.1f s  %s", time.Since(s.last).Seconds(), step)
	s.last = time.Now()
}

func TestRealStackEnforcesAnAuthPolicy(t *testing.T) {
	watch := &stopwatch{t: t, last: time.Now()}

	c := Start(t)
	watch.lap("etcd, kube-apiserver, minikcm")

	authorino := c.StartAuthorino(t)
	watch.lap("Authorino")

	c.StartEnvoyGateway(t)
	watch.lap("Envoy Gateway")

	kuadrant := c.StartKuadrant(t)
	watch.lap("kuadrant-operator")

	gateway, policy := Gateway("default", "gateway", gatewayHost, otherHost), handWrittenPolicy()
	c.Apply(t, GatewayClass(), gateway, Service("default", "tools"), ServiceAccount("default", "agent"),
		HTTPRoute("default", "a", "gateway", gatewayHost, "/mcp", "tools"),
		HTTPRoute("default", "b", "gateway", otherHost, "/", "tools"),
		policy)
	c.WaitFor(t, reconcileLimit, gateway, "Programmed")
	watch.lap("Gateway programmed")
	c.WaitFor(t, reconcileLimit, policy, "Enforced")
	watch.lap("AuthPolicy enforced")

	sets, err := c.ActionSets(t.Context(), "default", "gateway")
	must(t, err)
	t.Logf("action sets: %+v", sets)

	token := c.Token(t, "default", "agent", audience)
	checkVerdicts(t, c, authorino, token)
	watch.lap("verdicts")

	c.StopAPIServer(t)
	c.KillEtcd(t)
	watch.lap("API server stopped, etcd killed")
	c.StartEtcd(t)
	c.StartAPIServer(t)
	watch.lap("etcd and API server started again")
	c.WaitFor(t, reconcileLimit, policy, "Enforced")
	checkVerdicts(t, c, authorino, token)
	watch.lap("verdicts")

	kuadrant.Kill(t)
	kuadrant.Start(t)
	authorino.Kill(t)
	authorino.Start(t)
	checkVerdicts(t, c, authorino, token)
	watch.lap("kuadrant-operator and Authorino started again, verdicts")
}

// checkVerdicts asks for requests to both hosts. It allows for the time that a
// component needs to notice that another one is back.
func checkVerdicts(t *testing.T, c *Cluster, authorino *Authorino, token string) {
	t.Helper()

	bearer := "Bearer " + token
	for _, request := range []struct {
		host, path string
		headers    map[string]string
		code       int
	}{
		{gatewayHost, "/mcp", map[string]string{"authorization": bearer, "x-tool": "add"}, http.StatusOK},
		{gatewayHost, "/mcp/x?y=1", map[string]string{"authorization": bearer, "x-tool": "drop"}, http.StatusForbidden},
		{gatewayHost, "/mcp", map[string]string{"authorization": bearer}, http.StatusForbidden},
		{gatewayHost, "/mcp", map[string]string{"x-tool": "add"}, http.StatusUnauthorized},
		{otherHost, "/any", map[string]string{"authorization": bearer, "x-tool": "add"}, http.StatusOK},
		{otherHost, "/any", map[string]string{"authorization": "Bearer x", "x-tool": "add"}, http.StatusUnauthorized},
	} {
		what := fmt.Sprintf("%s%s with %d headers is answered with %d", request.host, request.path, len(request.headers), request.code)
		Eventually(t, reconcileLimit, what, func(ctx context.Context) error {
			sets, err := c.ActionSets(ctx, "default", "gateway")
			if err != nil {
				return err
			}

			scopes, err := Scopes(sets, Request{Host: request.host, Method: http.MethodPost, Path: request.path, Headers: request.headers})
			if err != nil {
				return err
			}

			if len(scopes) != 1 {
				return fmt.Errorf("scopes %q from %+v", scopes, sets)
			}

			verdict, err := authorino.Check(ctx, CheckInput{
				Scope: scopes[0], Method: http.MethodPost, Path: request.path, Host: request.host, Headers: request.headers,
			})
			if err == nil && verdict.Code != request.code {
				err = fmt.Errorf("answered with %+v", verdict)
			}

			return err
		})
	}
}
