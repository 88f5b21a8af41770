package coverage

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Kinds of routes.
const (
	KindHTTPRoute = "HTTPRoute"
	KindGRPCRoute = "GRPCRoute"
	KindTCPRoute  = "TCPRoute"
	KindTLSRoute  = "TLSRoute"
	KindUDPRoute  = "UDPRoute"
)

// RouteID names a route. Routes of several kinds may have one name.
type RouteID struct{ Kind, Namespace, Name string }

// String is KIND NAMESPACE/NAME, or "" for none.
func (id RouteID) String() string {
	if id == (RouteID{}) {
		return ""
	}
	return id.Kind + " " + id.Namespace + "/" + id.Name
}

// Route is what matters here of a route of any kind.
type Route struct {
	Kind, Namespace, Name string
	Created               time.Time
	Labels                map[string]string
	ParentRefs            []gwv1.ParentReference
	Hostnames             []string
	// Rules are the names of the rules, "" for one without a name.
	Rules []string
	// Affected are the AuthPolicies that Kuadrant's status names, by Gateway. A Gateway is a key if there is such a status.
	Affected map[types.NamespacedName][]string
}

// ID names the route.
func (r *Route) ID() RouteID { return RouteID{r.Kind, r.Namespace, r.Name} }

// rule is what a line is about; index -1 stands for the whole route.
type rule struct {
	index int
	name  string
}

// linesOf are the rules that get a line of their own. Outside HTTP a route is decided as a whole: a TCPRoute has one rule, the
// rules of a TLSRoute are one (Envoy Gateway, internal/gatewayapi/route.go).
func (r *Route) linesOf() []rule {
	if r.Kind != KindHTTPRoute && r.Kind != KindGRPCRoute {
		whole := rule{index: -1}
		if r.Kind == KindTCPRoute && len(r.Rules) == 1 {
			whole.name = r.Rules[0]
		}
		return []rule{whole}
	}
	out := make([]rule, len(r.Rules))
	for i, name := range r.Rules {
		out[i] = rule{i, name}
	}
	return out
}

// routeObject is a route of any kind as it is written.
type routeObject struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ParentRefs []gwv1.ParentReference `json:"parentRefs"`
		Hostnames  []string               `json:"hostnames"`
		Rules      []struct {
			Name string `json:"name"`
		} `json:"rules"`
	} `json:"spec"`
	Status struct {
		Parents []gwv1.RouteParentStatus `json:"parents"`
	} `json:"status"`
}

// RouteFrom reads a route of any kind.
func RouteFrom(u *unstructured.Unstructured) (Route, error) {
	raw, err := u.MarshalJSON()
	if err != nil {
		return Route{}, err
	}
	var o routeObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return Route{}, fmt.Errorf("%s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	r := Route{Kind: u.GetKind(), Namespace: o.Namespace, Name: o.Name, Created: o.CreationTimestamp.Time, Labels: o.Labels,
		ParentRefs: o.Spec.ParentRefs, Hostnames: o.Spec.Hostnames}
	for _, each := range o.Spec.Rules {
		r.Rules = append(r.Rules, each.Name)
	}
	return r.finished(o.Status.Parents), nil
}

// RouteFromHTTP takes an HTTPRoute.
func RouteFromHTTP(h *gwv1.HTTPRoute) Route {
	r := Route{Kind: KindHTTPRoute, Namespace: h.Namespace, Name: h.Name, Created: h.CreationTimestamp.Time, Labels: h.Labels, ParentRefs: h.Spec.ParentRefs}
	for _, name := range h.Spec.Hostnames {
		r.Hostnames = append(r.Hostnames, string(name))
	}
	for _, each := range h.Spec.Rules {
		name := ""
		if each.Name != nil {
			name = string(*each.Name)
		}
		r.Rules = append(r.Rules, name)
	}
	return r.finished(h.Status.Parents)
}

// finished adds what the API server would, and what the status says.
func (r Route) finished(parents []gwv1.RouteParentStatus) Route {
	if r.Kind == KindHTTPRoute && len(r.Rules) == 0 {
		r.Rules = []string{""} // the CRD's default: one rule for every path
	}
	for _, p := range parents {
		if string(p.ControllerName) != kuadrantController {
			continue
		}
		if r.Affected == nil {
			r.Affected = map[types.NamespacedName][]string{}
		}
		gateway := types.NamespacedName{Namespace: r.Namespace, Name: string(p.ParentRef.Name)}
		if p.ParentRef.Namespace != nil {
			gateway.Namespace = string(*p.ParentRef.Namespace)
		}
		r.Affected[gateway] = affecting(p.Conditions)
	}
	return r
}
