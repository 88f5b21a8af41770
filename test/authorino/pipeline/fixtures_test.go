package pipeline

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// oneListener is a Gateway with one listener for every host.
const oneListener = `
metadata: {namespace: shop, name: edge}
spec: {gatewayClassName: mesh, listeners: [{name: web, port: 80, protocol: HTTP}]}
`

// document turns YAML into the JSON that the judge reads.
func document(t *testing.T, text string) json.RawMessage {
	t.Helper()

	converted, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}

	return converted
}

func documents(t *testing.T, texts ...string) []json.RawMessage {
	t.Helper()

	var all []json.RawMessage
	for _, text := range texts {
		all = append(all, document(t, text))
	}

	return all
}

// gatewayPolicy is a policy with bare rules on the Gateway of oneListener.
func gatewayPolicy(rules string) string {
	return "metadata: {namespace: shop, name: edge-auth, creationTimestamp: '2030-01-01T00:00:00Z'}\nspec:\n" +
		"  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: edge}\n  rules:\n" + indented(rules, 4)
}

func indented(text string, by int) string {
	prefix := strings.Repeat(" ", by)

	return prefix + strings.ReplaceAll(strings.Trim(text, "\n"), "\n", "\n"+prefix) + "\n"
}

// loaded loads a world with the Gateway of oneListener, or the given one.
func loaded(t *testing.T, world World) *Judge {
	t.Helper()

	if world.Gateway == nil {
		world.Gateway = document(t, oneListener)
	}

	judge, err := Load(world)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(judge.Close)

	return judge
}

// withRules loads one bare policy and fails the test when Authorino refuses it.
func withRules(t *testing.T, rules string) *Judge {
	t.Helper()

	judge := loaded(t, World{AuthPolicies: documents(t, gatewayPolicy(rules)), Tokens: tokens()})
	for _, config := range judge.AuthConfigs() {
		if !config.Ready {
			t.Fatalf("%s: %s: %s", config.Path, config.Reason, config.Error)
		}
	}

	return judge
}

// tokens of three callers: two for the tools, one for another audience.
func tokens() map[string]Token {
	account := func(name string, audience string) Token {
		return Token{
			Username: "system:serviceaccount:shop:" + name, UID: name, Groups: []string{"system:serviceaccounts"},
			Audiences: []string{audience},
		}
	}

	return map[string]Token{
		"tok-teller": account("teller", "tools"), "tok-stranger": account("stranger", "tools"), "tok-other": account("teller", "billing"),
	}
}

// post is a JSON-RPC call that carries the headers of the MCP router.
func post(headers ...string) Request {
	request := Request{
		Shape: ShapeWasmShim, Method: "POST", Host: "tools.example.com", Path: "/mcp",
		SourceAddress: "192.0.2.7", SourcePort: 40001, DestinationAddress: "192.0.2.1", DestinationPort: 8080,
		Headers: map[string]string{"content-type": "application/json"},
	}
	for i := 0; i < len(headers); i += 2 {
		request.Headers[headers[i]] = headers[i+1]
	}

	return request
}

func toolCall(token, tool string) Request {
	request := post("x-mcp-method", "tools/call", "x-mcp-toolname", tool)
	if token != "" {
		request.Headers["authorization"] = "Bearer " + token
	}

	return request
}

func check(t *testing.T, judge *Judge, request Request) Result {
	t.Helper()

	result, err := judge.Check(request)
	if err != nil {
		t.Fatal(err)
	}

	return result
}

// wants compares a verdict with "allowed" or an HTTP status.
func wants(t *testing.T, result Result, verdict string) {
	t.Helper()

	got := fmt.Sprint(result.Status)
	if result.Allowed {
		got = "allowed"
	}

	if got != verdict {
		t.Errorf("got %s, want %s; %+v", got, verdict, result)
	}
}
