package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// Authorino is a running Authorino that serves the AuthConfigs of all namespaces.
type Authorino struct {
	*Program

	// Port is that of its gRPC service, on every address.
	Port string

	client authv3.AuthorizationClient
}

// CheckInput is a request that a data plane asks Authorino about.
type CheckInput struct {
	// Scope is the host of the AuthConfig that decides, as an action set names it.
	Scope string
	// Method, Path (with its query) and Host are those of the HTTP request.
	Method, Path, Host string
	// Headers have names in any case.
	Headers map[string]string
	// Principal is the identity in the client's verified certificate, if it has one.
	Principal string
}

// Verdict is Authorino's answer.
type Verdict struct {
	// Code is the HTTP status for the client, 200 when the request may pass.
	Code int
	// Headers are added to the response if the request is denied, otherwise to
	// the request.
	Headers map[string]string
	// Body is that of the response to a denied request.
	Body string
}

// StartAuthorino starts Authorino, with these further arguments, installs its CRD,
// and returns when it is healthy. It ends with the test.
func (c *Cluster) StartAuthorino(t T, args ...string) *Authorino {
	t.Helper()
	c.InstallCRDs(t, CRDsAuthorino)

	grpcAddress, healthAddress := FreeAddress(t), FreeAddress(t)
	program := c.Program(t, Component(t, "authorino"), "http://"+healthAddress+"/healthz", append([]string{
		"server", "--log-level=info", "--log-mode=production",
		"--ext-auth-grpc-port=" + portOf(grpcAddress),
		"--health-probe-addr=" + healthAddress,
		// What the tests do not use is off.
		"--ext-auth-http-port=0", "--oidc-http-port=0", "--metrics-addr=0", "--pprof-bind-address=0",
		"--webhook-service-port=" + portOf(FreeAddress(t)),
		"--auth-config-label-selector=", "--watch-namespace=",
	}, args...), "KUBECONFIG="+c.kubeconfig)

	connection, err := grpc.NewClient(grpcAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { connection.Close() })
	program.Start(t)

	return &Authorino{Program: program, Port: portOf(grpcAddress), client: authv3.NewAuthorizationClient(connection)}
}

// Check asks Authorino, over gRPC as a data plane does, whether a request may
// pass. An error means that there is no answer, not that the request is denied.
func (a *Authorino) Check(ctx context.Context, input CheckInput) (Verdict, error) {
	response, err := a.client.Check(ctx, input.request(), grpc.WaitForReady(true))
	if err != nil {
		return Verdict{}, fmt.Errorf("ask Authorino: %w", err)
	}

	if codes.Code(response.GetStatus().GetCode()) == codes.OK {
		return Verdict{Code: http.StatusOK, Headers: headerMap(response.GetOkResponse().GetHeaders())}, nil
	}

	denied := response.GetDeniedResponse()
	if denied.GetStatus().GetCode() == 0 {
		return Verdict{}, errors.New("ask Authorino: a denial without an HTTP status: " + response.String())
	}

	return Verdict{
		Code:    int(denied.GetStatus().GetCode()),
		Headers: headerMap(denied.GetHeaders()),
		Body:    denied.GetBody(),
	}, nil
}

// request is the call that Kuadrant's plugin makes: it names the AuthConfig in the
// context extension "host", and its headers include the pseudo headers.
func (i CheckInput) request() *authv3.CheckRequest {
	headers := map[string]string{":method": i.Method, ":path": i.Path, ":authority": i.Host, ":scheme": "http"}
	for name, value := range i.Headers {
		headers[strings.ToLower(name)] = value
	}

	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{
			Principal: i.Principal,
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: loopback},
			}},
		},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: i.Method, Path: i.Path, Host: i.Host, Scheme: "http", Protocol: "HTTP/1.1", Headers: headers,
		}},
		ContextExtensions: map[string]string{"host": i.Scope},
	}}
}

func headerMap(options []*corev3.HeaderValueOption) map[string]string {
	headers := make(map[string]string, len(options))
	for _, option := range options {
		headers[option.GetHeader().GetKey()] = option.GetHeader().GetValue()
	}

	return headers
}
