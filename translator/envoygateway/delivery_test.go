package envoygateway

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/translator/plan"
)

// route has a rule with so many matches.
func route(matches int, refs ...gwv1.ParentReference) gwv1.HTTPRoute {
	r := gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "r"}}
	r.Spec.ParentRefs = refs
	r.Spec.Rules = []gwv1.HTTPRouteRule{{Matches: make([]gwv1.HTTPRouteMatch, matches)}}
	return r
}

func TestCopies(t *testing.T) {
	section, port := gwv1.SectionName("a"), gwv1.PortNumber(8080)
	gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod"}}
	gw.Spec.Listeners = []gwv1.Listener{{Name: "a", Port: 80, Protocol: gwv1.HTTPProtocolType}, {Name: "b", Port: 8080, Protocol: gwv1.HTTPProtocolType},
		{Name: "c", Port: 9000, Protocol: gwv1.TCPProtocolType}}
	hosts := route(2, gwv1.ParentReference{Name: "prod"})
	hosts.Spec.Hostnames = []gwv1.Hostname{"a.example", "b.example", "c.example"}
	for name, test := range map[string]struct {
		route       gwv1.HTTPRoute
		whole, a, b int
	}{
		"a rule without a match":             {route(0, gwv1.ParentReference{Name: "prod"}), 2, 1, 1},
		"each match":                         {route(3, gwv1.ParentReference{Name: "prod"}), 6, 3, 3},
		"each match on each host":            {hosts, 12, 6, 6},
		"one listener":                       {route(1, gwv1.ParentReference{Name: "prod", SectionName: &section}), 1, 1, 0},
		"one port":                           {route(1, gwv1.ParentReference{Name: "prod", Port: &port}), 1, 0, 1},
		"two references are no second route": {route(1, gwv1.ParentReference{Name: "prod"}, gwv1.ParentReference{Name: "prod", SectionName: &section}), 2, 1, 1},
		"another Gateway":                    {route(1, gwv1.ParentReference{Name: "other"}), 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := emission{Input: Input{Gateway: gw, Routes: []gwv1.HTTPRoute{test.route}}}
			require.Equal(t, []int{test.whole, test.a, test.b}, []int{e.copies(""), e.copies("a"), e.copies("b")})
		})
	}
}

func TestLargeDelivery(t *testing.T) {
	in := wide()
	for i := range 100 {
		in.Plans[0].Rules = append(in.Plans[0].Rules, rule(fmt.Sprintf("system:serviceaccount:demo:reader-%d", i)))
	}
	found := func(matches int) []plan.Finding {
		in.Routes = []gwv1.HTTPRoute{route(matches, gwv1.ParentReference{Name: gwv1.ObjectName(in.Gateway.Name)})}
		var large []plan.Finding
		for _, f := range emitted(t, in, testOptions).Findings {
			if f.Reason == ReasonLargeDelivery {
				large = append(large, f)
			}
		}
		return large
	}
	enough := WarnDelivery*2/5/emitted(t, in, testOptions).Bytes + 1
	require.Empty(t, found(enough-2))
	at := found(enough)
	require.Len(t, at, 1)
	require.Equal(t, plan.Warning, at[0].Severity)
	require.Contains(t, at[0].Message, "more than 16 MiB")
	require.Equal(t, at, found(enough*3/2), "the figure changes rarely, so that not each edit is news")
	require.Contains(t, found(enough * 4)[0].Message, "more than 64 MiB")
}
