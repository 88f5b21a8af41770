package story

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/test/stack"
)

const lookEvery = 200 * time.Millisecond

// plugin stands in for Kuadrant's plugin, which is published as an image only. The
// plugin would read its configuration, which kuadrant-operator writes into an
// EnvoyExtensionPolicy, find the AuthConfig for a request in it, and ask Authorino with
// that name. Here Envoy's own ext_authz filter asks, through a SecurityPolicy that this
// writes, with the name that stands in the same configuration. As long as there is no
// such configuration there is no SecurityPolicy, and nothing is asked.
//
// What the plugin does and this does not: choose by host name and path. That makes no
// difference while all AuthConfigs of the Gateway have the same rules, as those have
// that come from one AuthPolicy on it; where they have not, this reports an error and
// leaves what is there.
type plugin struct {
	w *World

	mu sync.Mutex
	// scope is what Authorino is asked with, "" while nothing is asked.
	scope string
	err   error
}

func (w *World) startPlugin() *plugin {
	p := &plugin{w: w}
	ctx, cancel := context.WithCancel(context.Background())

	var loop sync.WaitGroup

	loop.Go(func() {
		for ctx.Err() == nil {
			p.once(ctx)

			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
		}
	})
	w.t.Cleanup(func() {
		cancel()
		loop.Wait()
	})

	return p
}

// failure is what was wrong when it last looked.
func (p *plugin) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.err
}

func (p *plugin) once(ctx context.Context) {
	scope, err := p.configured(ctx)
	if err == nil {
		err = p.ask(ctx, scope)
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.err = err
	if err == nil {
		p.scope = scope
	}
}

// configured is the AuthConfig by which the broker's requests are judged, "" if none
// is.
func (p *plugin) configured(ctx context.Context) (string, error) {
	sets, err := p.w.ActionSets(ctx, namespace, gateway)
	if apierrors.IsNotFound(err) {
		return "", nil
	}

	if err != nil {
		return "", err
	}

	scopes, err := stack.Scopes(sets, stack.Request{Host: publicHost, Method: http.MethodPost, Path: "/mcp"})
	if err != nil || len(scopes) != 1 {
		return "", fmt.Errorf("%d AuthConfigs for %s, not one: %w", len(scopes), publicHost, errors.Join(err))
	}

	return scopes[0], p.sameRules(ctx)
}

// sameRules is an error where the AuthConfigs differ in more than their names.
func (p *plugin) sameRules(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "authorino.kuadrant.io", Version: "v1beta3", Kind: "AuthConfigList"})

	if err := p.w.Client.List(ctx, list); err != nil {
		return err
	}

	for i := range list.Items {
		unstructured.RemoveNestedField(list.Items[i].Object, "spec", "hosts")

		if !reflect.DeepEqual(list.Items[i].Object["spec"], list.Items[0].Object["spec"]) {
			return fmt.Errorf("the AuthConfigs %s and %s have different rules", list.Items[0].GetName(), list.Items[i].GetName())
		}
	}

	return nil
}

// ask has Envoy ask Authorino with a scope, or not at all.
func (p *plugin) ask(ctx context.Context, scope string) error {
	policy := stack.Object("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", namespace, "in-place-of-the-plugin", map[string]any{
		"targetRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway}},
		"extAuth": map[string]any{
			"failOpen":          false,
			"contextExtensions": []any{map[string]any{"name": "host", "type": "Value", "value": scope}},
			"grpc": map[string]any{"backendRefs": []any{
				map[string]any{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "authorino"},
			}},
		},
	})

	switch scope {
	case p.scope:
		return nil
	case "":
		return client.IgnoreNotFound(p.w.Client.Delete(ctx, policy))
	default:
		return p.w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(policy), client.ForceOwnership, client.FieldOwner("quickstart"))
	}
}
