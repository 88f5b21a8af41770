package manifest

import (
	"fmt"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// assumedListener is the listener of an assumed Gateway of which no policy names one.
const assumedListener = "http"

// AssumeGateways adds the Gateways that policies target and the set lacks, so that policies can be tried without them, and
// notes each. An assumed Gateway has the listeners that policies name, or else one: no other listener is made up beside
// them, because it would share their host name and so take part in what Kuadrant can express.
func (s *Set) AssumeGateways() {
	given := len(s.Gateways)
	index := map[string]int{}
	for i := range s.Gateways {
		index[s.Gateways[i].Namespace+"/"+s.Gateways[i].Name] = i
	}
	for i := range s.Policies {
		object := &s.Policies[i].Object
		for _, ref := range object.Spec.TargetRefs {
			name := object.Namespace + "/" + string(ref.Name)
			at, known := index[name]
			if ref.Group != gwv1.GroupName || ref.Kind != "Gateway" || ref.Name == "" || known && at < given {
				continue
			}
			if !known {
				at = len(s.Gateways)
				index[name] = at
				s.Gateways = append(s.Gateways, bareGateway(object.Namespace, string(ref.Name)))
			}
			if ref.SectionName != nil {
				addListener(&s.Gateways[at], *ref.SectionName)
			}
		}
	}
	for i := range s.Gateways[given:] {
		s.finishAssumed(&s.Gateways[given+i])
	}
}

func bareGateway(namespace, name string) gwv1.Gateway {
	var gw gwv1.Gateway
	gw.APIVersion, gw.Kind = gwv1.GroupVersion.String(), "Gateway"
	gw.Namespace, gw.Name = namespace, name
	return gw
}

func (s *Set) finishAssumed(gw *gwv1.Gateway) {
	why := "one listener, "
	if len(gw.Spec.Listeners) > 0 {
		why = "the listeners that policies name, "
	} else {
		addListener(gw, assumedListener)
	}
	names := make([]string, len(gw.Spec.Listeners))
	for i, l := range gw.Spec.Listeners {
		names[i] = string(l.Name)
	}
	s.Notes = append(s.Notes, fmt.Sprintf("Gateway %s/%s is not in the input; assumed with %s%s, on port 80 for every host",
		gw.Namespace, gw.Name, why, strings.Join(names, ", ")))
}

func addListener(gw *gwv1.Gateway, name gwv1.SectionName) {
	if !slices.ContainsFunc(gw.Spec.Listeners, func(l gwv1.Listener) bool { return l.Name == name }) {
		gw.Spec.Listeners = append(gw.Spec.Listeners, gwv1.Listener{Name: name, Port: 80, Protocol: gwv1.HTTPProtocolType})
	}
}
