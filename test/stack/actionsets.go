package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// authService is the name under which kuadrant-operator configures Authorino.
const authService = "auth-service"

// ActionSet is what Kuadrant's plugin does with the requests that match a route
// rule.
type ActionSet struct {
	Name string
	// Hostnames are exact or begin with "*.".
	Hostnames []string
	// Predicates are CEL; all have to hold.
	Predicates []string
	// Auth are the questions to Authorino, in their order.
	Auth []AuthAction
}

// AuthAction is one question to Authorino.
type AuthAction struct {
	// Scope is the host of an AuthConfig.
	Scope string
	// Predicates are CEL; Authorino is asked if all hold.
	Predicates []string
}

// Request is what an action set is picked by.
type Request struct {
	// Host may have a port, Path a query.
	Host, Method, Path string
	// Headers have lower-case names.
	Headers map[string]string
}

// pluginConfig is the part of the plugin's configuration that is read here.
type pluginConfig struct {
	ActionSets []struct {
		Name                string `json:"name"`
		RouteRuleConditions struct {
			Hostnames  []string `json:"hostnames"`
			Predicates []string `json:"predicates"`
		} `json:"routeRuleConditions"`
		Actions []struct {
			Service    string   `json:"service"`
			Scope      string   `json:"scope"`
			Predicates []string `json:"predicates"`
		} `json:"actions"`
	} `json:"actionSets"`
}

// ActionSets returns what kuadrant-operator configured for a Gateway in its
// EnvoyExtensionPolicy, in the plugin's order. An error that says NotFound means
// that no policy is enforced on the Gateway.
func (c *Cluster) ActionSets(ctx context.Context, gatewayNamespace, gatewayName string) ([]ActionSet, error) {
	policy := Object("gateway.envoyproxy.io/v1alpha1", "EnvoyExtensionPolicy", gatewayNamespace, "kuadrant-"+gatewayName, nil)
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
		return nil, err
	}

	plugins, _, err := unstructured.NestedSlice(policy.Object, "spec", "wasm")
	if err != nil {
		return nil, err
	}

	if len(plugins) != 1 {
		return nil, fmt.Errorf("EnvoyExtensionPolicy %s has %d plugins, not one", policy.GetName(), len(plugins))
	}

	plugin, _ := plugins[0].(map[string]any)

	raw, err := json.Marshal(plugin["config"])
	if err != nil {
		return nil, err
	}

	var config pluginConfig
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("read the plugin's configuration: %w", err)
	}

	return config.sets()
}

func (p pluginConfig) sets() ([]ActionSet, error) {
	sets := make([]ActionSet, 0, len(p.ActionSets))

	for _, read := range p.ActionSets {
		set := ActionSet{
			Name:       read.Name,
			Hostnames:  read.RouteRuleConditions.Hostnames,
			Predicates: read.RouteRuleConditions.Predicates,
		}

		for _, action := range read.Actions {
			if action.Service == authService {
				set.Auth = append(set.Auth, AuthAction{Scope: action.Scope, Predicates: action.Predicates})
			}
		}

		if len(set.Auth) == 0 {
			return nil, fmt.Errorf("action set %s has no question to %s: %+v", read.Name, authService, read.Actions)
		}

		sets = append(sets, set)
	}

	return sets, nil
}

// Scopes picks the action set for a request as Kuadrant's plugin does and returns
// the scopes under which it asks Authorino. None means that the request passes
// without a question. An error means that the plugin would fail, or that a
// predicate uses something that is not known here.
//
// Read in: wasm-shim src/kuadrant/pipeline/factory.rs (commit 0174b42554f8),
// select_blueprint: only the sets of the longest matching host name are tried.
func Scopes(sets []ActionSet, request Request) ([]string, error) {
	for _, set := range candidates(sets, request.Host) {
		holds, err := request.holds(set.Predicates)
		if err != nil {
			return nil, fmt.Errorf("action set %s: %w", set.Name, err)
		}

		if holds {
			return set.scopes(request)
		}
	}

	return nil, nil
}

func (s ActionSet) scopes(request Request) ([]string, error) {
	var scopes []string

	for _, action := range s.Auth {
		holds, err := request.holds(action.Predicates)
		if err != nil {
			return nil, fmt.Errorf("action set %s: %w", s.Name, err)
		}

		if holds {
			scopes = append(scopes, action.Scope)
		}
	}

	return scopes, nil
}

// candidates are the sets of the longest host name that matches, in their order.
// The plugin compares host names as they are, in upper or lower case.
func candidates(sets []ActionSet, host string) []ActionSet {
	host, _, _ = strings.Cut(host, ":")

	var (
		best   []ActionSet
		length = -1
	)

	for _, set := range sets {
		for _, hostname := range set.Hostnames {
			switch n := matchLength(hostname, host); {
			case n < 0 || n < length:
			case n == length:
				best = append(best, set)
			default:
				best, length = []ActionSet{set}, n
			}
		}
	}

	return best
}

// matchLength is how much of the host a host name pins down, -1 if it does not
// match. An exact one pins down more than any that begins with "*".
func matchLength(hostname, host string) int {
	suffix, wildcard := strings.CutPrefix(hostname, "*")

	switch {
	case !wildcard && hostname == host:
		return len(host) + 1
	case wildcard && strings.HasSuffix(host, suffix):
		return len(suffix)
	default:
		return -1
	}
}

// holds says whether all predicates hold for the request.
func (r Request) holds(predicates []string) (bool, error) {
	if len(predicates) == 0 {
		return true, nil
	}

	// The plugin's attributes as far as they are known here; what is not declared
	// does not compile, and so is an error instead of a wrong answer.
	env, err := cel.NewEnv(ext.Strings(), cel.Variable("request", cel.MapType(cel.StringType, cel.DynType)))
	if err != nil {
		return false, err
	}

	variables, err := r.variables()
	if err != nil {
		return false, err
	}

	for _, predicate := range predicates {
		ast, issues := env.Compile(predicate)
		if issues.Err() != nil {
			return false, fmt.Errorf("predicate %q: %w", predicate, issues.Err())
		}

		program, err := env.Program(ast)
		if err != nil {
			return false, fmt.Errorf("predicate %q: %w", predicate, err)
		}

		value, _, err := program.Eval(variables)
		if err != nil {
			return false, fmt.Errorf("predicate %q: %w", predicate, err)
		}

		holds, isBool := value.Value().(bool)
		if !isBool {
			return false, fmt.Errorf("predicate %q is no yes or no: %w", predicate, errors.ErrUnsupported)
		}

		if !holds {
			return false, nil
		}
	}

	return true, nil
}

func (r Request) variables() (map[string]any, error) {
	parsed, err := url.ParseRequestURI(r.Path)
	if err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}

	return map[string]any{"request": map[string]any{
		"method": r.Method, "path": r.Path, "url_path": parsed.EscapedPath(), "query": parsed.RawQuery,
		"host": r.Host, "headers": r.Headers,
	}}, nil
}
