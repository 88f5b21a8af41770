package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"accesspolicy-operator/test/stack"
)

// call is a request as it reaches authorization behind the MCP router.
type call struct {
	host string
	// method, path and headers default to those of a JSON POST to /mcp.
	method, path string
	headers      map[string]string
	// token is sent as a bearer token, principal is what the connection's certificate says.
	token, principal string
}

// tool is a call of a tool that the router has routed.
func tool(host, token, name string) call {
	return call{host: host, token: token, headers: map[string]string{"x-mcp-method": "tools/call", "x-mcp-toolname": name, "x-mcp-servername": "default/tools"}}
}

// mcp is any other MCP message.
func mcp(host, token, method string) call {
	return call{host: host, token: token, headers: map[string]string{"x-mcp-method": method, "x-mcp-servername": "mcpBroker"}}
}

// open stands for a request that nothing authorizes.
const open = 0

// verdict asks the real Authorino as Kuadrant's plugin would: only where an action set says so, in the scope that it names.
// It returns the HTTP status, 200 for allowed, or open.
func verdict(ctx context.Context, k *kube, authorino *stack.Authorino, gateway string, c call) (int, error) {
	headers := map[string]string{"content-type": "application/json"}
	maps.Copy(headers, c.headers)
	if c.token != "" {
		headers["authorization"] = "Bearer " + c.token
	}
	request := stack.Request{Host: c.host, Method: http.MethodPost, Path: "/mcp", Headers: headers}
	if c.method != "" {
		request.Method = c.method
	}
	if c.path != "" {
		request.Path = c.path
	}
	sets, err := k.ActionSets(ctx, k.namespace, gateway)
	if apierrors.IsNotFound(err) {
		return open, nil // Kuadrant has nothing to do with this Gateway
	}
	if err != nil {
		return 0, err
	}
	scopes, err := stack.Scopes(sets, request)
	if err != nil || len(scopes) == 0 {
		return open, err
	}
	for _, scope := range scopes {
		v, err := authorino.Check(ctx, stack.CheckInput{Scope: scope, Method: request.Method, Path: request.Path, Host: request.Host, Headers: headers, Principal: c.principal})
		if err != nil || v.Code != http.StatusOK {
			return v.Code, err
		}
	}
	return http.StatusOK, nil
}

// answers waits until a request gets a verdict.
func answers(t testing.TB, k *kube, authorino *stack.Authorino, gateway string, c call, code int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%+v is answered with %d", c.headers, code), func(ctx context.Context) error {
		got, err := verdict(ctx, k, authorino, gateway, c)
		if err != nil {
			return err
		}
		return want(got == code, "answered with %d", got)
	})
}
