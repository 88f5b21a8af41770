package pipeline

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The Gateway API types below have only the fields that take part in choosing an
// AuthConfig. The real Go module would raise this module's Kubernetes version
// above the one Authorino is built with.

const gatewayAPIGroup = "gateway.networking.k8s.io"

type gateway struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		GatewayClassName string     `json:"gatewayClassName"`
		Listeners        []listener `json:"listeners"`
	} `json:"spec"`
}

type listener struct {
	Name     string  `json:"name"`
	Hostname *string `json:"hostname"`
}

// hostname is the listener's host name, "*" when it has none.
func (l listener) hostname() string {
	if l.Hostname == nil || *l.Hostname == "" {
		return "*"
	}

	return *l.Hostname
}

type httpRoute struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ParentRefs []parentRef     `json:"parentRefs"`
		Hostnames  []string        `json:"hostnames"`
		Rules      []httpRouteRule `json:"rules"`
	} `json:"spec"`
}

type parentRef struct {
	Group       *string `json:"group"`
	Kind        *string `json:"kind"`
	Namespace   *string `json:"namespace"`
	Name        string  `json:"name"`
	SectionName *string `json:"sectionName"`
}

type httpRouteRule struct {
	Name    *string          `json:"name"`
	Matches []httpRouteMatch `json:"matches"`
}

type httpRouteMatch struct {
	Path        *pathMatch   `json:"path"`
	Method      *string      `json:"method"`
	Headers     []valueMatch `json:"headers"`
	QueryParams []valueMatch `json:"queryParams"`
}

type pathMatch struct {
	Type  *string `json:"type"`
	Value *string `json:"value"`
}

type valueMatch struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

const (
	pathPrefix            = "PathPrefix"
	pathExact             = "Exact"
	pathRegularExpression = "RegularExpression"
)

// decodeGateway reads a Gateway in its JSON form.
func decodeGateway(raw json.RawMessage) (*gateway, error) {
	if len(raw) == 0 {
		return nil, fmt.Errorf("gateway: missing; a world needs one Gateway")
	}

	gw := &gateway{}
	if err := json.Unmarshal(raw, gw); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}

	if gw.Name == "" || len(gw.Spec.Listeners) == 0 {
		return nil, fmt.Errorf("gateway %q: needs a name and at least one listener", gw.Name)
	}

	return gw, nil
}

// decodeRoutes reads HTTPRoutes in their JSON form, with the defaults that the
// CRD of Gateway API v1.2.1 writes into them. Without any route the result is one
// route for every path, attached to each listener of the Gateway.
func decodeRoutes(raw []json.RawMessage, gw *gateway) ([]*httpRoute, error) {
	if len(raw) == 0 {
		return []*httpRoute{catchAllRoute(gw)}, nil
	}

	routes := make([]*httpRoute, 0, len(raw))

	for i, document := range raw {
		route := &httpRoute{}
		if err := json.Unmarshal(document, route); err != nil {
			return nil, fmt.Errorf("httpRoutes[%d]: %w", i, err)
		}

		if route.Name == "" {
			return nil, fmt.Errorf("httpRoutes[%d]: needs a name", i)
		}

		route.setDefaults()
		routes = append(routes, route)
	}

	return routes, nil
}

func catchAllRoute(gw *gateway) *httpRoute {
	route := &httpRoute{}
	route.Name = "catch-all"
	route.Namespace = gw.Namespace
	route.Spec.ParentRefs = []parentRef{{Name: gw.Name}}
	route.setDefaults()

	return route
}

func (r *httpRoute) setDefaults() {
	if len(r.Spec.Rules) == 0 {
		r.Spec.Rules = []httpRouteRule{{}}
	}

	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		if len(rule.Matches) == 0 {
			rule.Matches = []httpRouteMatch{{}}
		}

		for j := range rule.Matches {
			rule.Matches[j].setDefaults()
		}
	}
}

func (m *httpRouteMatch) setDefaults() {
	if m.Path == nil {
		m.Path = &pathMatch{}
	}

	if m.Path.Type == nil {
		m.Path.Type = pointer(pathPrefix)
	}

	if m.Path.Value == nil {
		m.Path.Value = pointer("/")
	}
}

func pointer[T any](value T) *T { return &value }

// attachedTo tells the listeners of the Gateway that carry the route, in the
// Gateway's order. Only parentRefs count: policy-machinery looks neither at
// allowedRoutes nor at the route's status.
// Read in: policy-machinery v0.8.0 machinery/gateway_api_topology.go,
// findListenerFromParentRefFunc.
func (r *httpRoute) attachedTo(gw *gateway) []listener {
	var attached []listener

	for _, candidate := range gw.Spec.Listeners {
		for _, ref := range r.Spec.ParentRefs {
			if r.refersTo(ref, gw, candidate) {
				attached = append(attached, candidate)

				break
			}
		}
	}

	return attached
}

func (r *httpRoute) refersTo(ref parentRef, gw *gateway, l listener) bool {
	return valueOr(ref.Group, gatewayAPIGroup) == gatewayAPIGroup &&
		valueOr(ref.Kind, "Gateway") == "Gateway" &&
		valueOr(ref.Namespace, r.Namespace) == gw.Namespace &&
		ref.Name == gw.Name &&
		valueOr(ref.SectionName, l.Name) == l.Name
}

// ruleName is the name of a rule, given or counted from 1.
// Read in: policy-machinery v0.8.0 machinery/gateway_api_topology.go,
// HTTPRouteRulesFromHTTPRouteFunc.
func (r *httpRoute) ruleName(index int) string {
	return valueOr(r.Spec.Rules[index].Name, fmt.Sprintf("rule-%d", index+1))
}

func valueOr(value *string, fallback string) string {
	if value == nil {
		return fallback
	}

	return *value
}
