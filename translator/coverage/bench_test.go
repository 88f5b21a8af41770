package coverage_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator/coverage"
)

// BenchmarkCompute has a Gateway with 1000 routes of three rules, and a policy on every second of them.
func BenchmarkCompute(b *testing.B) {
	const routes = 1000
	var gw coverage.Gateway
	gw.Namespace, gw.Name = "demo", "prod"
	gw.Spec.Listeners = []gwv1.Listener{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType}, {Name: "other", Port: 8080, Protocol: gwv1.HTTPProtocolType}}
	in := coverage.Input{Gateways: []coverage.Gateway{gw}}
	policy := func(kind, target, name string) egv1a1.SecurityPolicy {
		var sp egv1a1.SecurityPolicy
		sp.Namespace, sp.Name = "demo", name
		sp.Spec.TargetRefs = []egv1a1.TargetRef{{Group: gwv1.GroupName, Kind: gwv1.Kind(kind), Name: gwv1.ObjectName(target)}}
		return sp
	}
	for i := range routes {
		name := fmt.Sprintf("r%04d", i)
		in.Routes = append(in.Routes, coverage.Route{Kind: coverage.KindHTTPRoute, Namespace: "demo", Name: name,
			ParentRefs: []gwv1.ParentReference{{Name: "prod"}}, Rules: []string{"a", "b", ""}})
		if i%2 == 0 {
			in.SecurityPolicies = append(in.SecurityPolicies, policy(coverage.KindHTTPRoute, name, name))
		}
	}
	ours := policy("Gateway", "prod", "prod-auth")
	ours.Spec.Authorization = &egv1a1.Authorization{DefaultAction: egv1a1.ActionDeny}
	in.Generate(types.NamespacedName{Namespace: "demo", Name: "prod"}, []*egv1a1.SecurityPolicy{&ours}, nil)
	require.Len(b, coverage.Compute(in), 2*(3*routes+1))
	for b.Loop() {
		coverage.Compute(in)
	}
}
