package judge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"
)

// pretend makes this test binary a judge that does one thing wrong.
const pretend = "ACCESSPOLICY_TEST_PRETEND"

func TestMain(m *testing.M) {
	if behaviour := os.Getenv(pretend); behaviour != "" {
		pretendJudge(behaviour)

		return
	}

	os.Exit(m.Run())
}

func pretendJudge(behaviour string) {
	input := bufio.NewReader(os.Stdin)

	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}

		var o order
		if err := json.Unmarshal(line, &o); err != nil {
			fmt.Println(`{"id":0,"error":"unreadable"}`)

			continue
		}

		switch behaviour {
		case "panic":
			panic("no boolean")
		case "refuse":
			fmt.Printf("{\"id\":%d,\"error\":\"world not loaded\"}\n", o.ID)
		case "short":
			fmt.Printf("{\"id\":%d,\"error\":\"\"}\n", o.ID)
		case "confused":
			fmt.Printf("{\"id\":%d,\"error\":\"\"}\n", o.ID+7)
		}
	}
}

func startPretending(t *testing.T, behaviour string) *Client {
	t.Helper()
	t.Setenv(pretend, behaviour)

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	return started(t, self)
}

func started(t *testing.T, path string) *Client {
	t.Helper()

	client, err := Start(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})

	return client
}

// A judge that dies must say why, at once and again at every later call.
func TestDeathOfTheJudge(t *testing.T) {
	client := startPretending(t, "panic")

	for range 2 {
		_, err := client.Check("", Request{})
		if err == nil || !strings.Contains(err.Error(), "no boolean") {
			t.Errorf("got %v, want the text of the panic", err)
		}
	}
}

func TestErrorsOfTheJudge(t *testing.T) {
	for behaviour, want := range map[string]string{
		"refuse": "world not loaded", "short": "0 results for 1 requests", "confused": "answer 8 to order 1",
	} {
		t.Run(behaviour, func(t *testing.T) {
			client := startPretending(t, behaviour)

			_, err := client.Check("", Request{})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		})
	}
}

func TestMissingBinary(t *testing.T) {
	t.Setenv(binaryVariable, filepath.Join(t.TempDir(), "none"))

	_, err := Start(context.Background(), "")
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v, want a missing file and how to make it", err)
	}
}

// realJudge starts the real one; without a build there is nothing to talk with.
func realJudge(t *testing.T) *Client {
	t.Helper()

	path, err := Binary()
	if err != nil && os.Getenv(binaryVariable) == "" {
		t.Skip(err)
	}

	if err != nil {
		t.Fatal(err)
	}

	return started(t, path)
}

// The types of the Kuadrant and Gateway API modules cross the border unharmed.
func TestRealJudge(t *testing.T) {
	client := realJudge(t)

	loaded, err := client.Load("a", smallWorld())
	if err != nil {
		t.Fatal(err)
	}

	if !loaded.Ready() || len(loaded.AuthConfigs) != 1 || !loaded.Policies[0].Accepted {
		t.Fatalf("got %+v", loaded)
	}

	request := Request{Shape: ShapeWasmShim, Method: "GET", Host: "tools.example.com", Path: "/open"}
	closed := request
	closed.Path = "/closed"

	results, err := client.Check("a", request, closed)
	if err != nil {
		t.Fatal(err)
	}

	if !results[0].Allowed || strings.Join(results[0].Granted, ",") != "open" || results[1].Allowed || results[1].Status != 403 {
		t.Errorf("got %+v", results)
	}

	measured, err := client.Bench("a", request, 20*time.Millisecond)
	if err != nil || measured.N == 0 || measured.AllocsPerOp == 0 {
		t.Errorf("got %+v, %v", measured, err)
	}

	if err := client.Drop("a"); err != nil {
		t.Error(err)
	}

	if _, err := client.Check("a", request); err == nil {
		t.Error("a dropped world answered")
	}
}

func smallWorld() World {
	rule := kuadrantv1.MergeableAuthorizationSpec{}
	rule.PatternMatching = &authorinov1beta3.PatternMatchingAuthorizationSpec{
		Patterns: []authorinov1beta3.PatternExpressionOrRef{
			{CelPredicate: authorinov1beta3.CelPredicate{Predicate: "request.path == '/open'"}},
		},
	}
	anyone := kuadrantv1.MergeableAuthenticationSpec{}
	anyone.AnonymousAccess = &authorinov1beta3.AnonymousAccessSpec{}

	policy := &kuadrantv1.AuthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge-auth"}}
	policy.Spec.TargetRef.LocalPolicyTargetReference = gwv1alpha2.LocalPolicyTargetReference{
		Group: gwv1.GroupName, Kind: "Gateway", Name: "edge",
	}
	policy.Spec.Overrides = &kuadrantv1.MergeableAuthPolicySpec{Strategy: kuadrantv1.AtomicMergeStrategy}
	policy.Spec.Overrides.AuthScheme = &kuadrantv1.AuthSchemeSpec{
		Authentication: map[string]kuadrantv1.MergeableAuthenticationSpec{"anyone": anyone},
		Authorization:  map[string]kuadrantv1.MergeableAuthorizationSpec{"open": rule},
	}

	return World{
		Gateway: &gwv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"},
			Spec:       gwv1.GatewaySpec{GatewayClassName: "mesh", Listeners: []gwv1.Listener{{Name: "web", Port: 80}}},
		},
		AuthPolicies: []*kuadrantv1.AuthPolicy{policy},
	}
}
