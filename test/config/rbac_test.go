package config

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"accesspolicy-operator/api/v1alpha1"
)

// TestNoRuleIsWide goes through every rule of every kustomization.
func TestNoRuleIsWide(t *testing.T) {
	for folder, stream := range everything(t) {
		rules := 0
		built := objects(t, stream)
		check := func(name string, list []rbacv1.PolicyRule) {
			for _, rule := range list {
				rules++
				for _, field := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames} {
					assert.NotContains(t, field, "*", "%s: %s: %v", folder, name, rule)
				}
				if len(rule.NonResourceURLs) > 0 {
					assert.Equal(t, operator, name, folder)
					assert.ElementsMatch(t, []string{"/.well-known/openid-configuration", "/openid/v1/jwks"}, rule.NonResourceURLs, "%s: %s", folder, name)
					assert.Equal(t, []string{"get"}, rule.Verbs, "%s: %s", folder, name)
				}
				for _, resource := range []string{"secrets", "serviceaccounts", "serviceaccounts/token", "pods", "configmaps"} {
					assert.NotContains(t, rule.Resources, resource, "%s: %s", folder, name)
				}
				for _, verb := range []string{"escalate", "bind", "impersonate"} {
					assert.NotContains(t, rule.Verbs, verb, "%s: %s", folder, name)
				}
			}
		}
		for _, role := range only[*rbacv1.ClusterRole](built) {
			assert.Nil(t, role.AggregationRule, role.Name)
			check(role.Name, role.Rules)
		}
		for _, role := range only[*rbacv1.Role](built) {
			check(role.Name, role.Rules)
		}
		if len(only[*appsv1.Deployment](built)) > 0 && folder != "manager" {
			assert.NotZero(t, rules, folder)
		}
	}
}

// rulesFor returns the rules that speak about a resource.
func rulesFor(rules []rbacv1.PolicyRule, resource string) []rbacv1.PolicyRule {
	return slices.DeleteFunc(slices.Clone(rules), func(rule rbacv1.PolicyRule) bool { return !slices.Contains(rule.Resources, resource) })
}

func TestTheLeaseIsOneInOneNamespace(t *testing.T) {
	built := objects(t, render(t, "rbac"))
	for _, role := range only[*rbacv1.ClusterRole](built) {
		assert.Empty(t, rulesFor(role.Rules, "leases"), role.Name)
	}
	role := one[*rbacv1.Role](t, built)
	assert.Equal(t, namespace, role.Namespace)
	assert.Equal(t, operator, role.Name)
	leases := rulesFor(role.Rules, "leases")
	require.Len(t, leases, 2)
	// Leader election records who leads by an event beside the lease.
	events := rulesFor(role.Rules, "events")
	assert.Len(t, role.Rules, len(leases)+len(events), "the role is for the lease only")
	for _, rule := range events {
		assert.Equal(t, []string{"events"}, rule.Resources)
		assert.Subset(t, []string{"create", "patch"}, rule.Verbs)
	}
	for _, rule := range leases {
		// A create has no name that could be compared.
		if slices.Equal(rule.Verbs, []string{"create"}) {
			assert.Empty(t, rule.ResourceNames)
			continue
		}
		assert.ElementsMatch(t, []string{"get", "update"}, rule.Verbs)
		assert.Equal(t, []string{operator}, rule.ResourceNames)
	}
}

// TestFewCRDsMayBeRead: those of kinds that may come and go, and the one of policies, of which a newer version would hide
// fields from it.
func TestFewCRDsMayBeRead(t *testing.T) {
	for _, role := range only[*rbacv1.ClusterRole](objects(t, render(t, "rbac"))) {
		rules := rulesFor(role.Rules, "customresourcedefinitions")
		if role.Name != operator {
			assert.Empty(t, rules, role.Name)
			continue
		}
		require.Len(t, rules, 1)
		assert.ElementsMatch(t, []string{"authpolicies.kuadrant.io", "authconfigs.authorino.kuadrant.io", "securitypolicies.gateway.envoyproxy.io", "xaccesspolicies.agentic.networking.x-k8s.io",
			"envoyextensionpolicies.gateway.envoyproxy.io", "envoypatchpolicies.gateway.envoyproxy.io", "envoyproxies.gateway.envoyproxy.io",
			"listenersets.gateway.networking.k8s.io", "referencegrants.gateway.networking.k8s.io", "grpcroutes.gateway.networking.k8s.io",
			"tcproutes.gateway.networking.k8s.io", "tlsroutes.gateway.networking.k8s.io", "udproutes.gateway.networking.k8s.io"}, rules[0].ResourceNames)
		assert.Subset(t, []string{"get", "list", "watch"}, rules[0].Verbs)
	}
}

// TestPoliciesAreNotTheOperatorsToWrite: it reads what users want and says how it
// went, no more.
func TestPoliciesAreNotTheOperatorsToWrite(t *testing.T) {
	for _, role := range only[*rbacv1.ClusterRole](objects(t, render(t, "rbac"))) {
		if role.Name == operator {
			for _, rule := range rulesFor(role.Rules, "xaccesspolicies") {
				assert.ElementsMatch(t, []string{"get", "list", "watch"}, rule.Verbs)
			}
			for _, rule := range rulesFor(role.Rules, "xaccesspolicies/status") {
				assert.Equal(t, []string{"patch"}, rule.Verbs)
			}
			return
		}
	}
	t.Fatal("there is no role of the operator")
}

func TestBindingsBindTheOperatorOnly(t *testing.T) {
	built := objects(t, render(t, "default"))
	subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: operator}
	wide, narrow := one[*rbacv1.ClusterRoleBinding](t, built), one[*rbacv1.RoleBinding](t, built)
	assert.Equal(t, []rbacv1.Subject{subject}, wide.Subjects)
	assert.Equal(t, []rbacv1.Subject{subject}, narrow.Subjects)
	assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: operator}, wide.RoleRef)
	assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: operator}, narrow.RoleRef)
	assert.Equal(t, namespace, narrow.Namespace)
}

// TestRolesOfPeople: what is added to edit and view is about policies, and nobody
// who edits them writes their status.
func TestRolesOfPeople(t *testing.T) {
	verbs := map[string][]string{
		"edit": {"create", "delete", "deletecollection", "patch", "update"},
		"view": {"get", "list", "watch"},
	}
	seen := 0
	for _, role := range only[*rbacv1.ClusterRole](objects(t, render(t, "rbac"))) {
		if role.Name == operator {
			assert.NotContains(t, role.Labels, rbacv1.GroupName+"/aggregate-to-edit", "the operator's rights are nobody else's")
			continue
		}
		for name, wanted := range verbs {
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+name] != "true" {
				continue
			}
			seen++
			require.Len(t, role.Rules, 1, name)
			assert.Equal(t, []string{v1alpha1.GroupName}, role.Rules[0].APIGroups, name)
			assert.Equal(t, []string{"xaccesspolicies"}, role.Rules[0].Resources, name)
			assert.ElementsMatch(t, wanted, role.Rules[0].Verbs, name)
		}
	}
	assert.Equal(t, len(verbs), seen)
}
