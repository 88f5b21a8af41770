package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/manifest"
)

var (
	sequenceAccounts  = []string{"reader", "writer", "auditor"}
	sequenceTools     = []string{"add", "echo", "delete_database"}
	sequenceHosts     = []string{"a.example.test", "b.example.test", "c.example.test", "d.example.test"}
	sequenceListeners = []string{"main", "second", "third", "fourth", "fifth"}

	// Some need an identity, some hold for nobody in particular.
	sequenceExpressions = []string{
		`request.mcp.tool_name == 'add'`,
		`request.mcp.tool_name.startsWith('e')`,
		`request.mcp.tool_name != 'delete_database'`,
		`request.mcp.method == 'tools/list'`,
		`source.principal.endsWith(':writer')`,
		`request.host.startsWith('a.')`,
	}
)

// random chooses what is changed.
type random struct{ *rand.Rand }

func (r random) chance(percent int) bool { return r.IntN(100) < percent }

func pickOne[T any](r random, list []T) T { return list[r.IntN(len(list))] }

// targets are names of the Gateway, or of it and a listener.
func (r random) targets(gateway *gwv1.Gateway) []string {
	switch n := r.IntN(100); {
	case n < 30:
		return []string{"prod"}
	case n < 60:
		return []string{"prod/" + string(pickOne(r, gateway.Spec.Listeners).Name)}
	case n < 80: // every listener by its name, which is not the same as the Gateway
		var out []string
		for _, l := range gateway.Spec.Listeners {
			out = append(out, "prod/"+string(l.Name))
		}
		return out
	case n < 90: // perhaps there, perhaps not
		order := r.Perm(len(sequenceListeners))
		return []string{"prod/" + sequenceListeners[order[0]], "prod/" + sequenceListeners[order[1]]}
	}
	return []string{"prod/nowhere"}
}

// spec is that of a policy.
func (r random) spec(gateway *gwv1.Gateway) string {
	targets := r.targets(gateway)
	rules := ""
	for i := range 1 + r.IntN(2) {
		rules += r.rule(i)
	}
	head, _, _ := strings.Cut(allowing("", nil, targets...), "rules:")
	return head + "rules:\n" + rules
}

func (r random) rule(i int) string {
	rule := fmt.Sprintf("- name: rule-%d\n", i)
	anybody := r.chance(20)
	if !anybody {
		rule += "  source: {type: ServiceAccount, serviceAccount: {name: " + pickOne(r, sequenceAccounts) + "}}\n"
	}
	switch n := r.IntN(100); {
	case n < 55:
		order := r.Perm(len(sequenceTools))
		names := sequenceTools[order[0]]
		if r.chance(40) {
			names += ", " + sequenceTools[order[1]]
		}
		rule += "  authorization: {type: Inline, mcp: {methods: [{name: tools/call, params: [" + names + "]}]}}\n"
	case n < 75:
		rule += "  authorization: {type: CEL, cel: {expression: \"" + pickOne(r, sequenceExpressions) + "\"}}\n"
	case n < 90:
		rule += "  authorization: {type: Inline, mcp: {mcpBaseProtocolMethodsOption: MATCH_BASE_PROTOCOL_METHODS}}\n"
	default:
		if anybody { // without this everybody could do everything, and nothing would be left to find
			rule += "  authorization: {type: Inline, methods: [POST], hosts: [" + pickOne(r, sequenceHosts) + "]}\n"
		}
	}
	return rule
}

// listeners changes one listener of the Gateway, and says in what way. An eager one adds a listener if it can.
func (r random) listeners(gateway *gwv1.Gateway, eager bool) (string, *gwv1.Gateway) {
	changed := gateway.DeepCopy()
	var names, hosts []string
	for _, name := range sequenceListeners {
		if !slices.ContainsFunc(gateway.Spec.Listeners, func(l gwv1.Listener) bool { return string(l.Name) == name }) {
			names = append(names, name)
		}
	}
	for _, host := range sequenceHosts {
		if listenerOf(gateway, host) == "" {
			hosts = append(hosts, host)
		}
	}
	list := changed.Spec.Listeners
	at := r.IntN(len(list))
	switch n := r.IntN(100); {
	case (n < 40 || eager) && len(hosts) > 0:
		added := *list[at].DeepCopy()
		host := gwv1.Hostname(pickOne(r, hosts))
		added.Name, added.Hostname = gwv1.SectionName(pickOne(r, names)), &host
		changed.Spec.Listeners = slices.Insert(list, r.IntN(len(list)+1), added)
		return "add a listener", changed
	case n < 60 && len(list) > 1:
		changed.Spec.Listeners = slices.Delete(list, at, at+1)
		return "remove a listener", changed
	case n < 75 && len(hosts) > 0:
		host := gwv1.Hostname(pickOne(r, hosts))
		list[at].Hostname = &host
		return "give a listener another host", changed
	}
	list[at].Name = gwv1.SectionName(pickOne(r, names))
	return "rename a listener", changed
}

// writer changes what it owns, and nothing else does.
type writer struct {
	*kube
	history *history
	random  random
	// owns are the names of its policies; without any it owns the Gateway's listeners.
	owns  []string
	eager bool
	done  map[string]int
}

// change makes one change, which may be two writes.
func (w *writer) change(ctx context.Context) error {
	if len(w.owns) == 0 {
		return w.write(ctx, func(now configuration) (string, *unstructured.Unstructured, error) {
			what, changed := w.random.listeners(now.gateway, w.eager)
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&gwv1.Gateway{Spec: changed.Spec})
			if err != nil {
				return "", nil, err
			}
			spec, _ := object["spec"].(map[string]any)
			return what, stack.Object("gateway.networking.k8s.io/v1", "Gateway", w.namespace, "prod", spec), nil
		})
	}
	name := pickOne(w.random, w.owns)
	kind := w.random.IntN(100)
	return w.policy(ctx, name, kind)
}

func (w *writer) policy(ctx context.Context, name string, kind int) error {
	_, exists := w.present(name)
	switch {
	case !exists:
		return w.put(ctx, "create a policy", name)
	case kind < 25:
		return w.remove(ctx, name)
	case kind < 40:
		if err := w.remove(ctx, name); err != nil {
			return err
		}
		return w.put(ctx, "create it again", name)
	}
	return w.put(ctx, "edit a policy", name)
}

func (w *writer) present(name string) (translator.Policy, bool) {
	w.history.order.Lock()
	defer w.history.order.Unlock()
	p, ok := w.history.now().policies[name]
	return p, ok
}

func (w *writer) put(ctx context.Context, what, name string) error {
	return w.write(ctx, func(now configuration) (string, *unstructured.Unstructured, error) {
		var spec map[string]any
		text := w.random.spec(now.gateway)
		err := yaml.Unmarshal([]byte(text), &spec)
		return what, stack.Object(v1alpha1.GroupVersion.String(), "XAccessPolicy", w.namespace, name, spec), err
	})
}

// write applies an object that is made from the configuration as it is at that moment.
func (w *writer) write(ctx context.Context, build func(configuration) (string, *unstructured.Unstructured, error)) error {
	w.history.order.Lock()
	defer w.history.order.Unlock()
	what, object, err := build(w.history.now())
	if err != nil {
		return err
	}
	w.done[what]++
	sent := time.Now()
	if err := w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership, client.FieldOwner("stack")); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	raw, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	if object.GetKind() == "Gateway" {
		gateway := &gwv1.Gateway{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, gateway); err != nil {
			return err
		}
		w.history.record(what+": "+fmt.Sprint(sections(gateway)), sent, "", nil, gateway)
		return nil
	}
	policy := manifest.DecodePolicy(raw)
	text, err := json.Marshal(object.Object["spec"])
	if err != nil {
		return err
	}
	w.history.record(fmt.Sprintf("%s: %s %s", what, object.GetName(), text), sent, object.GetName(), &policy, nil)
	return nil
}

func sections(gateway *gwv1.Gateway) []string {
	var out []string
	for _, l := range gateway.Spec.Listeners {
		out = append(out, string(l.Name)+"="+string(*l.Hostname))
	}
	return out
}

func (w *writer) remove(ctx context.Context, name string) error {
	w.history.order.Lock()
	defer w.history.order.Unlock()
	w.done["delete a policy"]++
	sent := time.Now()
	object := stack.Object(v1alpha1.GroupVersion.String(), "XAccessPolicy", w.namespace, name, nil)
	if err := w.Client.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	w.history.record("delete a policy: "+name, sent, name, nil, nil)
	return nil
}
