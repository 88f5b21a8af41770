package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator/owned"
)

// The tests here stop, kill and restart things, or change what is installed, so each has a cluster of its own. Nothing
// enforces in them: what is looked at is what the operator writes.

// startCluster starts an API server with the CRDs that the operator works with.
func startCluster(t testing.TB, more ...string) *stack.Cluster {
	t.Helper()
	c := stack.Start(t)
	c.InstallCRDs(t, append([]string{stack.CRDsGatewayAPI}, more...)...)
	c.InstallOperator(t)
	c.Apply(t, stack.GatewayClass())
	return c
}

// granted waits until the AuthPolicy of a Gateway has a text in it and lacks another, if one is given.
func (k *kube) granted(t testing.TB, name, with, without string) {
	t.Helper()
	eventually(t, fmt.Sprintf("AuthPolicy %s/%s grants %q and not %q", k.namespace, name, with, without), func(ctx context.Context) error {
		object := authPolicy(k.namespace, name)
		if err := k.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		text := fmt.Sprint(object.Object["spec"])
		return want(strings.Contains(text, with) && (without == "" || !strings.Contains(text, without)), "it is %s", text)
	})
}

func TestTwoReplicasAndACrashWhileWriting(t *testing.T) {
	c := startCluster(t, stack.CRDsKuadrant)
	k := inNamespace(t, c, "replicas")
	first := startOperator(t, c)
	k.Apply(t, stack.Gateway("replicas", "warm", "w.example.test"), k.policy(t, "warm", allowing("reader", []string{"add"}, "warm")))
	k.granted(t, "warm-auth", "reader add", "")
	second := startOperator(t, c)

	const gateways = 40
	for i := range gateways {
		name := fmt.Sprintf("gw-%d", i)
		k.Apply(t, stack.Gateway("replicas", name, name+".example.test"), k.policy(t, name, allowing("reader", []string{fmt.Sprintf("tool-%d", i)}, name)))
		if i == gateways/2 {
			first.Kill(t) // between two writes, or in one
		}
	}
	for i := range gateways {
		k.granted(t, fmt.Sprintf("gw-%d-auth", i), fmt.Sprintf("reader tool-%d", i), "")
		k.expect(t, fmt.Sprintf("gw-%d", i), fmt.Sprintf("gw-%d", i), v1alpha1.PolicyConditionAccepted, metav1.ConditionTrue, v1alpha1.PolicyReasonAccepted)
	}
	all, err := k.authPolicies(t.Context())
	require.NoError(t, err)
	require.Len(t, all, gateways+1, "one object for each Gateway and no more")
	require.Positive(t, second.writes(t))

	// The first one comes back and waits; the second hands over in good order.
	first.Start(t)
	second.settled(t)
	require.Zero(t, first.writes(t), "a replica without the lease has written")
	second.Stop(t)
	k.Apply(t, k.policy(t, "warm", allowing("reader", []string{"echo"}, "warm")))
	k.granted(t, "warm-auth", "reader echo", "reader add")
	require.Positive(t, first.writes(t))
}

func TestTheAPIServerAndEtcdRestart(t *testing.T) {
	c := startCluster(t, stack.CRDsKuadrant)
	k := inNamespace(t, c, "restarts")
	o := startOperator(t, c, "--leader-election-lease=30s")
	k.Apply(t, stack.Gateway("restarts", "prod", "a.example.test"), k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.granted(t, "prod-auth", "reader add", "")
	o.settled(t)
	before := versions(t, c)

	for _, step := range []struct {
		name    string
		restart func()
		tool    string
	}{
		{"API server", func() { c.KillAPIServer(t); c.StartAPIServer(t) }, "echo"},
		{"etcd", func() { c.KillEtcd(t); c.StartEtcd(t) }, "subtract"},
		{"both", func() { c.StopAPIServer(t); c.KillEtcd(t); c.StartEtcd(t); c.StartAPIServer(t) }, "divide"},
	} {
		step.restart()
		o.settled(t)
		require.Equal(t, before, versions(t, c), "something was rewritten after the restart of %s", step.name)
		k.Apply(t, k.policy(t, "tools", allowing("reader", []string{step.tool}, "prod")))
		k.granted(t, "prod-auth", "reader "+step.tool, "")
		o.settled(t)
		before = versions(t, c)
	}
}

func TestKuadrantComesAndGoes(t *testing.T) {
	c := startCluster(t)
	k := inNamespace(t, c, "coming")
	o := startOperator(t, c)
	k.Apply(t, stack.Gateway("coming", "prod", "a.example.test"), k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	condition := k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonNoEnforcer)
	require.Contains(t, condition.Message, "install Kuadrant")
	for range 2 {
		c.InstallCRDs(t, stack.CRDsKuadrant)
		k.granted(t, "prod-auth", "reader add", "")
		condition = k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonPending)
		require.Contains(t, condition.Message, "kuadrant-operator", "the message says where to look")
		c.RemoveCRD(t, "authpolicies.kuadrant.io")
		k.expect(t, "tools", "prod", v1alpha1.PolicyConditionProgrammed, metav1.ConditionFalse, v1alpha1.PolicyReasonNoEnforcer)
	}
	o.settled(t)
}

func TestAThousandEditsInARow(t *testing.T) {
	c := startCluster(t, stack.CRDsKuadrant)
	k := inNamespace(t, c, "edits")
	// Somebody's object without a spec, which looks like ours: the CRD lets it pass, and it must not keep others from being read.
	odd := stack.Object("kuadrant.io/v1", "AuthPolicy", "edits", "odd", nil)
	odd.SetLabels(map[string]string{owned.LabelManagedBy: owned.ManagedBy})
	require.NoError(t, k.Client.Create(t.Context(), odd))
	o := startOperator(t, c)
	k.Apply(t, stack.Gateway("edits", "prod", "a.example.test"))
	const edits = 1000
	begin := time.Now()
	for i := range edits {
		k.Apply(t, k.policy(t, "tools", allowing("reader", []string{fmt.Sprintf("tool-%d", i)}, "prod")))
	}
	k.granted(t, "prod-auth", fmt.Sprintf("reader tool-%d'", edits-1), "")
	k.expect(t, "tools", "prod", v1alpha1.PolicyConditionAccepted, metav1.ConditionTrue, v1alpha1.PolicyReasonAccepted)
	o.settled(t)
	writes := o.value(t, "accesspolicy_writes_total", `object="AuthPolicy"`)
	t.Logf("%d edits in %s, %v writes of the AuthPolicy, %v in all", edits, time.Since(begin).Round(time.Second), writes, o.writes(t))
	require.LessOrEqual(t, writes, float64(edits))
	p, err := k.read(t.Context(), "tools")
	require.NoError(t, err)
	require.Len(t, p.Status.Ancestors, 1)
}

// TestEveryOrder creates what belongs together in every order; the result has to be the same.
func TestEveryOrder(t *testing.T) {
	c := startCluster(t, stack.CRDsKuadrant)
	startOperator(t, c)
	orders := permutations(4)
	rand.Shuffle(len(orders), func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
	var first any
	for i, order := range orders {
		k := inNamespace(t, c, fmt.Sprintf("order-%d", i))
		class := stack.GatewayClass()
		class.SetName(k.namespace)
		gateway := stack.Gateway(k.namespace, "prod", "a.example.test", "b.example.test")
		require.NoError(t, unstructured.SetNestedField(gateway.Object, class.GetName(), "spec", "gatewayClassName"))
		objects := []*unstructured.Unstructured{class, gateway,
			k.policy(t, "wide", strings.ReplaceAll(allowing("reader", []string{"add"}, "prod"), "name: reader", "name: reader, namespace: shared")),
			k.policy(t, "narrow", strings.ReplaceAll(allowing("reader", []string{"echo"}, "prod/listener-1"), "name: reader", "name: reader, namespace: shared")),
		}
		for _, at := range order {
			k.Apply(t, objects[at])
		}
		k.expect(t, "wide", "prod", v1alpha1.PolicyConditionAccepted, metav1.ConditionTrue, v1alpha1.PolicyReasonAccepted)
		k.expect(t, "narrow", "prod/listener-1", v1alpha1.PolicyConditionAccepted, metav1.ConditionTrue, v1alpha1.PolicyReasonAccepted)
		var specs map[string]any
		eventually(t, fmt.Sprintf("order %v: three objects", order), func(ctx context.Context) error {
			all, err := k.authPolicies(ctx)
			specs = map[string]any{}
			for name, object := range all {
				specs[name] = object.Object["spec"]
			}
			if err == nil {
				err = want(len(all) == 3, "there are %d", len(all))
			}
			return err
		})
		text := rulesIn(specs, k.namespace)
		if first == nil {
			first = text
		}
		require.Equal(t, first, text, "order %v", order)
	}
}

// rulesIn is what the objects grant, whatever the order of policies of the same second and the namespace's name.
func rulesIn(specs map[string]any, namespace string) []string {
	var out []string
	for name, spec := range specs {
		words := strings.FieldsFunc(strings.ReplaceAll(fmt.Sprint(spec), namespace, "ns"), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		slices.Sort(words)
		out = append(out, name+": "+strings.Join(slices.Compact(words), " "))
	}
	slices.Sort(out)
	return out
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var out [][]int
	for _, shorter := range permutations(n - 1) {
		for at := range n {
			out = append(out, slices.Insert(slices.Clone(shorter), at, n-1))
		}
	}
	return out
}

// TestANewerAPI: the CRD gets a field that this version does not know. What it would restrict cannot be told, so the policy is
// refused, and only that policy. The API server serves watches that are open with the former schema, so the operator has to
// end and start again.
func TestANewerAPI(t *testing.T) {
	c := startCluster(t, stack.CRDsKuadrant)
	k := inNamespace(t, c, "newer")
	o := startOperator(t, c)
	crd := stack.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "xaccesspolicies.agentic.networking.x-k8s.io", nil)
	patch := `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rules/items/properties/onlyOnWeekdays","value":{"type":"boolean"}}]`
	k.Apply(t, stack.Gateway("newer", "prod", "a.example.test"), k.policy(t, "old", allowing("reader", []string{"echo"}, "prod")))
	k.granted(t, "prod-auth", "reader echo", "")
	require.NoError(t, k.Client.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, []byte(patch))))
	newer := strings.Replace(allowing("reader", []string{"add"}, "prod"), "- name: tools", "- name: tools\n  onlyOnWeekdays: true", 1)
	eventually(t, "the API server keeps the field", func(ctx context.Context) error {
		object := k.policy(t, "new", newer)
		if err := k.Client.Create(ctx, object); err != nil {
			return err
		}
		if strings.Contains(fmt.Sprint(object.Object["spec"]), "onlyOnWeekdays") {
			return nil
		}
		return cmp.Or(k.Client.Delete(ctx, object), errors.New("it was dropped, so the former schema was used"))
	})
	eventually(t, "the operator ends", func(context.Context) error { return want(!o.Running(), "it runs") })
	require.Contains(t, o.Tail(), "has changed")
	o.Start(t)
	condition := k.expect(t, "new", "prod", v1alpha1.PolicyConditionAccepted, metav1.ConditionFalse, v1alpha1.PolicyReasonUnsupportedField)
	require.Contains(t, condition.Message, "spec.rules[0].onlyOnWeekdays")
	k.expect(t, "old", "prod", v1alpha1.PolicyConditionAccepted, metav1.ConditionTrue, v1alpha1.PolicyReasonAccepted)
	k.granted(t, "prod-auth", "reader echo", "reader add")
}

// TestTheCRDIsDeleted: with it go all policies. Nobody has said that the Gateways should open.
func TestTheCRDIsDeleted(t *testing.T) {
	c := startCluster(t, stack.CRDsKuadrant)
	k := inNamespace(t, c, "deleted")
	o := startOperator(t, c)
	k.Apply(t, stack.Gateway("deleted", "prod", "a.example.test"), k.policy(t, "tools", allowing("reader", []string{"add"}, "prod")))
	k.granted(t, "prod-auth", "reader add", "")
	o.settled(t)
	before := k.get(t, "prod-auth").GetResourceVersion()
	c.RemoveCRD(t, "xaccesspolicies.agentic.networking.x-k8s.io")
	eventually(t, "the operator ends", func(context.Context) error { return want(!o.Running(), "it runs") })
	require.Equal(t, before, k.get(t, "prod-auth").GetResourceVersion())
}
