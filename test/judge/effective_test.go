package judge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	"github.com/kuadrant/policy-machinery/machinery"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"
)

// The judge merges policies by code of its own. Kuadrant's merging is public, so
// here both merge every pair of forms, targets and ages, and must agree on whose
// rules are in force and on the name of the AuthConfig.
func TestMergingAgreesWithKuadrant(t *testing.T) {
	client := realJudge(t)
	forms := []string{"", "defaults atomic", "defaults merge", "overrides atomic", "overrides merge"}
	targets := []string{"Gateway/edge", "Gateway/edge#web", "HTTPRoute/tools", "HTTPRoute/tools#rule-1"}

	compared := 0

	for _, firstForm := range forms {
		for _, secondForm := range forms {
			for _, thirdForm := range forms {
				for i := range targets {
					third := targets[len(targets)-1-i]
					for _, target := range targets {
						policies := []*kuadrantv1.AuthPolicy{
							newPolicy("a", "Gateway/edge", firstForm, 0), newPolicy("b", target, secondForm, 1), newPolicy("c", third, thirdForm, 2),
						}
						compareMerging(t, client, policies)
						compared++
					}
				}
			}
		}
	}

	t.Logf("%d worlds", compared)
}

func compareMerging(t *testing.T, client *Client, policies []*kuadrantv1.AuthPolicy) {
	t.Helper()

	world := smallWorld()
	world.AuthPolicies = policies
	world.HTTPRoutes = []*gwv1.HTTPRoute{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tools"},
		Spec: gwv1.HTTPRouteSpec{
			CommonRouteSpec: gwv1.CommonRouteSpec{ParentRefs: []gwv1.ParentReference{{Name: "edge"}}},
			Rules:           []gwv1.HTTPRouteRule{{}},
		},
	}}

	loaded, err := client.Load("merge", world)
	if err != nil {
		t.Fatal(err)
	}

	name, sources := kuadrantsVerdict(world)
	if got := loaded.AuthConfigs[0]; got.Name != name || !slices.Equal(got.Policies, sources) {
		t.Errorf("%s: the judge has rules of %v in %.8s, Kuadrant those of %v in %.8s", describe(policies), got.Policies, got.Name, sources, name)
	}
}

// kuadrantsVerdict merges with Kuadrant's own code. It tells the AuthConfig's name
// and whose rules are in it.
func kuadrantsVerdict(world World) (string, []string) {
	class := &machinery.GatewayClass{GatewayClass: &gwv1.GatewayClass{}}
	class.Name = string(world.Gateway.Spec.GatewayClassName)
	gateway := &machinery.Gateway{Gateway: world.Gateway}
	route := &machinery.HTTPRoute{HTTPRoute: world.HTTPRoutes[0]}

	// Policy-machinery tells objects apart by the kind written in them.
	class.SetGroupVersionKind(gwv1.SchemeGroupVersion.WithKind("GatewayClass"))
	gateway.SetGroupVersionKind(gwv1.SchemeGroupVersion.WithKind("Gateway"))
	route.SetGroupVersionKind(gwv1.SchemeGroupVersion.WithKind("HTTPRoute"))

	path := []machinery.Targetable{
		class,
		gateway,
		&machinery.Listener{Listener: &world.Gateway.Spec.Listeners[0], Gateway: gateway},
		route,
		&machinery.HTTPRouteRule{HTTPRouteRule: &route.Spec.Rules[0], HTTPRoute: route, Name: "rule-1"},
	}

	for _, targetable := range path {
		var attached []machinery.Policy

		for _, policy := range world.AuthPolicies {
			if policy.GetTargetRefs()[0].GetLocator() == targetable.GetLocator() {
				attached = append(attached, policy)
			}
		}

		targetable.SetPolicies(attached)
	}

	effective := kuadrantv1.EffectivePolicyForPath[*kuadrantv1.AuthPolicy](path, func(machinery.Policy) bool { return true })

	var sources []string
	for _, locator := range kuadrantv1.SourcePoliciesFromEffectivePolicy(*effective) {
		sources = append(sources, strings.TrimPrefix(locator, "authpolicy.kuadrant.io:"))
	}

	sum := sha256.Sum256([]byte(kuadrantv1.PathID(path)))

	return hex.EncodeToString(sum[:]), sources
}

// newPolicy has one rule of its own and one that every policy has, so that merging
// shows both what is kept and what is replaced.
func newPolicy(name, target, form string, age int) *kuadrantv1.AuthPolicy {
	kindAndName, section, _ := strings.Cut(target, "#")
	kind, object, _ := strings.Cut(kindAndName, "/")

	policy := &kuadrantv1.AuthPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(time.Date(2030, 1, 1, age, 0, 0, 0, time.UTC)),
	}}
	policy.TypeMeta = metav1.TypeMeta{APIVersion: kuadrantv1.GroupVersion.String(), Kind: "AuthPolicy"}
	policy.Spec.TargetRef.LocalPolicyTargetReference = gwv1alpha2.LocalPolicyTargetReference{
		Group: gwv1.GroupName, Kind: gwv1.Kind(kind), Name: gwv1.ObjectName(object),
	}

	if section != "" {
		policy.Spec.TargetRef.SectionName = (*gwv1.SectionName)(&section)
	}

	kindOfForm, strategy, _ := strings.Cut(form, " ")
	switch kindOfForm {
	case "defaults":
		policy.Spec.Defaults = &kuadrantv1.MergeableAuthPolicySpec{Strategy: strategy}
	case "overrides":
		policy.Spec.Overrides = &kuadrantv1.MergeableAuthPolicySpec{Strategy: strategy}
	}

	rule := kuadrantv1.MergeableAuthorizationSpec{}
	rule.PatternMatching = &authorinov1beta3.PatternMatchingAuthorizationSpec{Patterns: []authorinov1beta3.PatternExpressionOrRef{}}
	policy.Spec.Proper().AuthScheme = &kuadrantv1.AuthSchemeSpec{
		Authorization: map[string]kuadrantv1.MergeableAuthorizationSpec{"of-" + name: rule, "shared": rule},
	}

	return policy
}

func describe(policies []*kuadrantv1.AuthPolicy) string {
	var text []string

	for _, policy := range policies {
		form := "bare"
		if policy.Spec.Defaults != nil {
			form = "defaults " + policy.Spec.Defaults.Strategy
		} else if policy.Spec.Overrides != nil {
			form = "overrides " + policy.Spec.Overrides.Strategy
		}

		text = append(text, fmt.Sprintf("%s on %s (%s)", policy.Name, policy.GetTargetRefs()[0].GetLocator(), form))
	}

	return strings.Join(text, ", ")
}
