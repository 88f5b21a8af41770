package coverage

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
)

const (
	kindGateway     = "Gateway"
	kindListenerSet = "ListenerSet"
)

// listener is one of a Gateway's own, or one that a ListenerSet adds.
type listener struct {
	*gwv1.Listener
	gateway *Gateway
	// set is nil for the Gateway's own.
	set *egv1a1.ListenerSet
	// conflicted is set where another listener has the port, protocol or host name, so that this one serves nothing.
	conflicted bool
	// lostHostname is set where that is because of the host name, and another listener has it.
	lostHostname bool
}

// attachment is a route on a listener.
type attachment struct {
	route    *Route
	listener *listener
	// hosts are the host names that are served there; empty outside HTTP and TLS.
	hosts []string
}

// speaksHTTP reports whether HTTP policies have a meaning on the listener.
func (l *listener) speaksHTTP() bool {
	return l.Protocol == gwv1.HTTPProtocolType || l.Protocol == gwv1.HTTPSProtocolType
}

func (l *listener) namespace() string {
	if l.set != nil {
		return l.set.Namespace
	}
	return l.gateway.Namespace
}

func (l *listener) hostname() string {
	if l.Hostname == nil {
		return ""
	}
	return string(*l.Hostname)
}

// listenersOf are the Gateway's own in their order, then those of ListenerSets by age.
// Envoy Gateway: internal/gatewayapi/listenerset.go, processListenerSet.
func (w *world) listenersOf(gw *Gateway) []*listener {
	var out []*listener
	for i := range gw.Spec.Listeners {
		out = append(out, &listener{Listener: &gw.Spec.Listeners[i], gateway: gw})
	}
	sets := make([]*egv1a1.ListenerSet, 0, len(w.in.ListenerSets))
	for i := range w.in.ListenerSets {
		sets = append(sets, &w.in.ListenerSets[i])
	}
	slices.SortFunc(sets, func(a, b *egv1a1.ListenerSet) int { return ageOf(&a.ObjectMeta).compare(ageOf(&b.ObjectMeta)) })
	for _, set := range sets {
		namespace := set.Namespace
		if set.Spec.ParentRef.Namespace != nil && *set.Spec.ParentRef.Namespace != "" {
			namespace = string(*set.Spec.ParentRef.Namespace)
		}
		if namespace != gw.Namespace || string(set.Spec.ParentRef.Name) != gw.Name || !w.takes(gw, set) {
			continue
		}
		for i := range set.Spec.Listeners {
			out = append(out, &listener{Listener: &set.Spec.Listeners[i], gateway: gw, set: set})
		}
	}
	markConflicts(out)
	return out
}

// takes reports whether a Gateway lets a ListenerSet add listeners. By default it does not.
// Envoy Gateway: internal/gatewayapi/listenerset.go, isListenerSetAllowed.
func (w *world) takes(gw *Gateway, set *egv1a1.ListenerSet) bool {
	if gw.AllowedListeners == nil {
		return true
	}
	from := gw.AllowedListeners.Namespaces
	if from == nil || from.From == nil {
		return false
	}
	switch *from.From {
	case gwv1.NamespacesFromAll:
		return true
	case gwv1.NamespacesFromSame:
		return set.Namespace == gw.Namespace
	case gwv1.NamespacesFromSelector:
		return w.namespaceMatches(from.Selector, set.Namespace)
	default:
		return false
	}
}

// namespaceMatches compares the labels of a namespace; no selector, or one that cannot be read, matches none.
func (w *world) namespaceMatches(selector *metav1.LabelSelector, namespace string) bool {
	return matches(selector, w.labelsOf(namespace))
}

func matches(selector *metav1.LabelSelector, of map[string]string) bool {
	if selector == nil {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of))
}

func (w *world) labelsOf(namespace string) map[string]string {
	if known, ok := w.in.Namespaces[namespace]; ok {
		return known
	}
	return map[string]string{"kubernetes.io/metadata.name": namespace}
}

// markConflicts finds listeners that serve nothing because of others on their port.
// Envoy Gateway: internal/gatewayapi/validate.go, validateConflicted*.
func markConflicts(all []*listener) {
	ports := map[gwv1.PortNumber][]*listener{}
	for _, l := range all {
		ports[l.Port] = append(ports[l.Port], l)
	}
	for _, here := range ports {
		markProtocols(here)
		hosts := map[string][]*listener{}
		for _, l := range here {
			if !l.conflicted && l.Protocol != gwv1.UDPProtocolType && l.Protocol != gwv1.TCPProtocolType {
				hosts[l.hostname()] = append(hosts[l.hostname()], l)
			}
		}
		for _, same := range hosts {
			markHosts(same)
		}
		for _, protocol := range []gwv1.ProtocolType{gwv1.TCPProtocolType, gwv1.UDPProtocolType} {
			first := true
			for _, l := range here {
				if l.Protocol == protocol {
					l.conflicted = l.conflicted || !first
					first = false
				}
			}
		}
	}
}

// transport is what listeners of one port have to agree on; HTTPS and TLS can share one, and UDP is apart.
func (l *listener) transport() string {
	switch l.Protocol {
	case gwv1.HTTPSProtocolType, gwv1.TLSProtocolType:
		return "https/tls"
	case gwv1.UDPProtocolType:
		return ""
	default:
		return string(l.Protocol)
	}
}

// markProtocols marks listeners whose protocol does not go with those on their port. The Gateway's own win if they agree; of
// ListenerSets that agree in themselves, the oldest.
func markProtocols(here []*listener) {
	own, inSet := map[string]bool{}, map[*egv1a1.ListenerSet]map[string]bool{}
	for _, l := range here {
		switch protocol := l.transport(); {
		case protocol == "":
		case l.set == nil:
			own[protocol] = true
		default:
			if inSet[l.set] == nil {
				inSet[l.set] = map[string]bool{}
			}
			inSet[l.set][protocol] = true
		}
	}
	winner := ""
	for protocol := range own {
		winner = protocol
	}
	for _, l := range here {
		switch protocol := l.transport(); {
		case protocol == "":
		case len(own) > 1, len(own) == 0 && len(inSet[l.set]) > 1:
			l.conflicted = true
		case winner == "":
			winner = protocol
		case protocol != winner:
			l.conflicted = true
		}
	}
}

// markHosts marks all but the winner of listeners with one port and host name. The Gateway's own wins if it is one; of
// ListenerSets that do not contradict themselves, the oldest.
func markHosts(same []*listener) {
	own, ofSet := 0, map[*egv1a1.ListenerSet]int{}
	contradictory := false
	for _, l := range same {
		if l.set == nil {
			own++
			continue
		}
		ofSet[l.set]++
		contradictory = contradictory || ofSet[l.set] > 1
	}
	var winner *listener
	for _, l := range same {
		switch {
		case own > 1, contradictory && l.set != nil:
		case winner == nil, winner.set != nil && l.set == nil:
			winner = l
		}
	}
	for _, l := range same {
		if len(same) > 1 && l != winner {
			l.conflicted, l.lostHostname = true, winner != nil
		}
	}
}

// attachedTo gives the routes on a listener, HTTP before others, by kind, namespace and name.
func (w *world) attachedTo(l *listener) []*attachment { return w.attached[l] }

func (w *world) attach(l *listener) []*attachment {
	if l.conflicted {
		return nil
	}
	var out []*attachment
	for _, r := range w.routes { // by age
		a := &attachment{route: r, listener: l, hosts: r.Hostnames}
		if !w.admits(l, r) {
			continue
		}
		switch r.Kind {
		case KindTCPRoute, KindUDPRoute:
			// Only the oldest has the listener, and only with one rule.
			if len(r.Rules) != 1 || len(out) > 0 {
				continue
			}
		default:
			if a.hosts = servedHosts(r.Hostnames, l, w.listeners[nameOf(&l.gateway.ObjectMeta)]); len(a.hosts) == 0 {
				continue
			}
		}
		out = append(out, a)
	}
	slices.SortStableFunc(out, func(a, b *attachment) int { return compareIDs(a.route.ID(), b.route.ID()) })
	return out
}

func compareIDs(a, b RouteID) int {
	order := []string{KindHTTPRoute, KindGRPCRoute, KindTLSRoute, KindTCPRoute, KindUDPRoute}
	return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// admits reports whether a parent reference of the route names the listener, and the listener allows it.
// Envoy Gateway: internal/gatewayapi/helpers.go, GetReferencedListeners; route.go, processAllowedListenersForParentRefs.
func (w *world) admits(l *listener, r *Route) bool {
	named := slices.ContainsFunc(r.ParentRefs, func(ref gwv1.ParentReference) bool {
		return refersTo(ref, r.Namespace, l) && (ref.SectionName == nil || *ref.SectionName == l.Name) && (ref.Port == nil || *ref.Port == l.Port)
	})
	return named && allowsKind(l, r.Kind) && w.allowsNamespace(l, r.Namespace)
}

func refersTo(ref gwv1.ParentReference, namespace string, l *listener) bool {
	kind, name := kindGateway, l.gateway.Name
	if l.set != nil {
		kind, name = kindListenerSet, l.set.Name
	}
	wanted := kindGateway
	if ref.Kind != nil {
		wanted = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	group := ref.Group == nil || string(*ref.Group) == gwv1.GroupName
	return group && wanted == kind && string(ref.Name) == name && namespace == l.namespace()
}

// allowsKind reports whether routes of the kind go with the listener's protocol and allowedRoutes.
// Envoy Gateway: internal/gatewayapi/listener.go, allowedRouteKindsForProtocol.
func allowsKind(l *listener, kind string) bool {
	var possible []string
	switch l.Protocol {
	case gwv1.HTTPProtocolType, gwv1.HTTPSProtocolType:
		possible = []string{KindHTTPRoute, KindGRPCRoute}
	case gwv1.TLSProtocolType:
		possible = []string{KindTLSRoute}
		if l.TLS == nil || l.TLS.Mode == nil || *l.TLS.Mode != gwv1.TLSModePassthrough {
			possible = append(possible, KindTCPRoute)
		}
	case gwv1.TCPProtocolType:
		possible = []string{KindTCPRoute}
	case gwv1.UDPProtocolType:
		possible = []string{KindUDPRoute}
	default:
	}
	if !slices.Contains(possible, kind) {
		return false
	}
	return l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 ||
		slices.ContainsFunc(l.AllowedRoutes.Kinds, func(k gwv1.RouteGroupKind) bool {
			return string(k.Kind) == kind && (k.Group == nil || *k.Group == "" || string(*k.Group) == gwv1.GroupName)
		})
}

func (w *world) allowsNamespace(l *listener, namespace string) bool {
	from := gwv1.NamespacesFromSame
	var selector *metav1.LabelSelector
	if allowed := l.AllowedRoutes; allowed != nil && allowed.Namespaces != nil && allowed.Namespaces.From != nil {
		from, selector = *allowed.Namespaces.From, allowed.Namespaces.Selector
	}
	switch from {
	case gwv1.NamespacesFromAll:
		return true
	case gwv1.NamespacesFromSelector:
		return w.namespaceMatches(selector, namespace)
	default:
		return namespace == l.namespace()
	}
}

// servedHosts is the intersection of a route's host names with a listener's, less what another listener of the port has for
// itself. Empty means that the route does not attach.
// Envoy Gateway: internal/gatewayapi/helpers.go, computeHosts.
func servedHosts(ofRoute []string, l *listener, all []*listener) []string {
	if len(ofRoute) == 0 {
		return []string{cmp.Or(l.hostname(), "*")}
	}
	found := map[string]bool{}
	for _, host := range ofRoute {
		for _, common := range intersection(host, l.hostname()) {
			found[common] = true
		}
	}
	for _, other := range all {
		if other != l && !other.lostHostname && other.Port == l.Port && other.Hostname != nil {
			delete(found, string(*other.Hostname))
		}
	}
	out := make([]string, 0, len(found))
	for host := range found {
		out = append(out, host)
	}
	slices.Sort(out)
	return out
}

func intersection(route, listener string) []string {
	switch {
	case listener == "", listener == route, wider(listener, route):
		return []string{route}
	case wider(route, listener):
		return []string{listener}
	}
	return nil
}

// wider reports whether a wildcard takes in the other host name, which may be one, too. A wildcard takes in any number of
// labels, and not its own apex.
func wider(wildcard, host string) bool {
	suffix, wild := strings.CutPrefix(wildcard, "*")
	if !wild {
		return false
	}
	inner, alsoWild := strings.CutPrefix(host, "*")
	rest, within := strings.CutSuffix(inner, suffix)
	if alsoWild {
		return within && strings.HasPrefix(rest, ".")
	}
	return within && rest != ""
}
