package envoy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator/requests"
)

// TestGoldenOffline takes the golden SecurityPolicies as they stand in their files through egctl, which must accept them, and what
// comes out through `envoy --mode validate`, which must take it.
func TestGoldenOffline(t *testing.T) {
	objects := append(authorinoEndpoints(t, "50051"), stack.GatewayClass())
	var policies []*unstructured.Unstructured
	require.NoError(t, filepath.WalkDir(cases, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "envoygateway.yaml" {
			return err
		}
		of := slices.DeleteFunc(policiesOf(t, path), func(u *unstructured.Unstructured) bool { return u.GetKind() != "SecurityPolicy" })
		if len(of) == 0 {
			return nil
		}
		c, err := requests.LoadCase(os.DirFS(filepath.Dir(path)))
		if err != nil {
			return err
		}
		// egctl translates all cases at once; names that cases share are told apart by the namespace.
		prefix := fmt.Sprintf("case-%d-", len(policies))
		objects = append(objects, gatewaysOf(prefix, c, of)...)
		for _, u := range of {
			u.SetNamespace(prefix + u.GetNamespace())
			if _, asks, _ := unstructured.NestedMap(u.Object, "spec", "extAuth"); asks {
				objects = append(objects, grantFrom(u.GetNamespace()))
			}
		}
		policies = append(policies, of...)
		return nil
	}))
	translated := stack.TranslateOffline(t, append(objects, policies...)...)
	require.NotEmpty(t, policies)
	require.Len(t, translated.Policies, len(policies))
	for _, u := range translated.Policies {
		assert.NoError(t, undisputed(u, policies), "%s/%s", u.GetNamespace(), u.GetName())
	}
	for gateway, config := range translated.Envoys {
		assert.Empty(t, config.Refusal(t), gateway)
	}
	t.Logf("%d SecurityPolicies on %d Gateways", len(policies), len(translated.Envoys))
}

// TestOfflineFindsFaults has the judges of TestGoldenOffline find what they are for.
func TestOfflineFindsFaults(t *testing.T) {
	objects := []*unstructured.Unstructured{stack.GatewayClass()}
	for namespace, cel := range map[string]string{"taken": "true", "refused": "string(5) == '5'", "unreadable": "true ||"} {
		objects = append(objects, offlineGateway(namespace, facts, map[string]any{"name": "l", "port": int64(8080), "protocol": "HTTP"})...)
		objects = append(objects, inNamespace(namespace, expressionPolicy("l", cel)))
	}
	// Nothing is in the way of this policy but another that is older or of the same age.
	second := inNamespace("taken", expressionPolicy("l", "true"))
	second.SetName("second")
	whole := inNamespace("taken", expressionPolicy("l", "true"))
	whole.SetName("whole")
	whole.Object["spec"].(map[string]any)["targetRefs"] = []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": facts}}
	translated := stack.TranslateOffline(t, append(objects, second, whole)...)
	disputed := map[string]error{}
	for _, u := range translated.Policies {
		disputed[u.GetNamespace()+"/"+u.GetName()] = undisputed(u, nil)
	}
	require.Len(t, disputed, 5)
	assert.NoError(t, disputed["taken/l"])
	assert.NoError(t, disputed["refused/l"], "Envoy Gateway does not look at functions")
	assert.ErrorContains(t, disputed["unreadable/l"], "not accepted")
	assert.ErrorContains(t, disputed["taken/second"], "not accepted")
	assert.ErrorContains(t, disputed["taken/whole"], "Overridden", "by a policy that is not ours")
	assert.Empty(t, translated.Envoys["taken/"+facts].Refusal(t))
	assert.Contains(t, translated.Envoys["refused/"+facts].Refusal(t), "string")
}

func inNamespace(namespace string, u *unstructured.Unstructured) *unstructured.Unstructured {
	u.SetNamespace(namespace)
	return u
}

func policiesOf(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)+1); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}

// gatewaysOf are the Gateways that the policies of a case are for, with a route on every listener.
func gatewaysOf(prefix string, c *requests.Case, policies []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for i := range c.Set.Gateways {
		gw := &c.Set.Gateways[i]
		if !slices.ContainsFunc(policies, func(u *unstructured.Unstructured) bool {
			return u.GetNamespace() == gw.Namespace && targetOf(u)["name"] == gw.Name
		}) {
			continue
		}
		var listeners []any
		for i, l := range gw.Spec.Listeners {
			if l.Protocol != gwv1.HTTPProtocolType && l.Protocol != gwv1.HTTPSProtocolType {
				continue
			}
			// Without TLS, because there are no certificates. The rules are the same.
			listener := map[string]any{"name": string(l.Name), "port": int64(8080 + i), "protocol": "HTTP"}
			if l.Hostname != nil {
				listener["hostname"] = string(*l.Hostname)
			}
			listeners = append(listeners, listener)
		}
		out = append(out, offlineGateway(prefix+gw.Namespace, gw.Name, listeners...)...)
	}
	return out
}

func offlineGateway(namespace, name string, listeners ...any) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		stack.Object("gateway.networking.k8s.io/v1", "Gateway", namespace, name, map[string]any{"gatewayClassName": stack.GatewayClass().GetName(), "listeners": listeners}),
		stack.Object("gateway.networking.k8s.io/v1", "HTTPRoute", namespace, name, map[string]any{
			"parentRefs": []any{map[string]any{"name": name}},
			"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": backend, "port": int64(80)}}}},
		}),
	}
}

func targetOf(policy *unstructured.Unstructured) map[string]any {
	refs, _, _ := unstructured.NestedSlice(policy.Object, "spec", "targetRefs")
	if len(refs) != 1 {
		return nil
	}
	target, _ := refs[0].(map[string]any)
	return target
}

// undisputed returns nil if Envoy Gateway accepts a policy and says nothing else about it. Only the denial beneath listeners
// may be overridden, by our policies of exactly these listeners.
func undisputed(u *unstructured.Unstructured, all []*unstructured.Unstructured) error {
	if err := acceptedBy(u); err != nil {
		return err
	}
	var own []string
	for _, other := range all {
		if target := targetOf(other); other.GetNamespace() == u.GetNamespace() && target["name"] == targetOf(u)["name"] && target["sectionName"] != nil {
			own = append(own, fmt.Sprintf("%s/%s/%s", u.GetNamespace(), target["name"], target["sectionName"]))
		}
	}
	ancestors, _, _ := unstructured.NestedSlice(u.Object, "status", "ancestors")
	for _, a := range ancestors {
		conditions, _, _ := unstructured.NestedSlice(a.(map[string]any), "conditions")
		for _, item := range conditions {
			condition, _ := item.(map[string]any)
			message := fmt.Sprint(condition["message"])
			_, listeners, _ := strings.Cut(strings.TrimSuffix(message, "]"), "other securityPolicies for these gateway listeners: [")
			overridden := condition["type"] == "Overridden" && targetOf(u)["sectionName"] == nil && listeners != "" &&
				equalSets(own, strings.Fields(listeners))
			if condition["type"] != "Accepted" && !overridden {
				return fmt.Errorf("%v=%v: %s", condition["type"], condition["status"], message)
			}
		}
	}
	return nil
}

func equalSets(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
