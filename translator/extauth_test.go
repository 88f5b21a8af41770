package translator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
)

// asking has Envoy ask Authorino on every Gateway of the case, behind the router.
func (c goldenCase) asking() (translator.Input, translator.Options) {
	in, opts := c.Set.Input(), c.Options
	after := envoygateway.FilterExtProc
	proxy := egv1a1.EnvoyProxy{Spec: egv1a1.EnvoyProxySpec{FilterOrder: []egv1a1.FilterPosition{{Name: envoygateway.FilterExtAuthz, After: &after}}}}
	proxy.Namespace, proxy.Name = "envoy-gateway-system", "behind-the-router"
	in.EnvoyProxies, in.Classes = []egv1a1.EnvoyProxy{proxy}, nil
	in.Gateways = slices.Clone(in.Gateways)
	for i := range in.Gateways {
		in.Gateways[i].Annotations = withForm(in.Gateways[i].Annotations)
		in.Gateways[i].Spec.Infrastructure = nil
		namespace := gwv1.Namespace(proxy.Namespace)
		class := gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: egv1a1.Controller,
			ParametersRef: &gwv1.ParametersReference{Group: gwv1.Group(egv1a1.GroupVersion.Group), Kind: "EnvoyProxy", Name: proxy.Name, Namespace: &namespace}}}
		class.Name = string(in.Gateways[i].Spec.GatewayClassName)
		in.Classes = append(in.Classes, class)
	}
	opts.Enforcers = translator.Enforcers{Kuadrant: true, EnvoyGateway: true}
	opts.EnvoyGateway.Authorino = envoygateway.Service{Namespace: "authorino", Name: "authorino", Port: 50051}
	opts.Kuadrant.SPIFFEFrom = kuadrant.SPIFFEFromPeer
	return in, opts
}

func withForm(annotations map[string]string) map[string]string {
	out := map[string]string{envoygateway.AnnotationForm: envoygateway.FormExtAuth}
	for name, value := range annotations {
		if name != envoygateway.AnnotationForm {
			out[name] = value
		}
	}
	return out
}

// TestAuthConfigsAreThoseOfKuadrant has both enforcers express every golden case. Where the plans that they express are the same,
// Authorino must be told the same, however it is told: the differential tests of the one hold for the other.
func TestAuthConfigsAreThoseOfKuadrant(t *testing.T) {
	compared := 0
	for _, dir := range goldenFolders(t) {
		t.Run(strings.TrimPrefix(dir, "testdata/"), func(t *testing.T) {
			in, opts := loadCase(t, dir).asking()
			result, err := translator.Translate(in, opts)
			require.NoError(t, err)
			for i := range result.Gateways {
				compared += compareAuthConfigs(t, &result.Gateways[i])
			}
		})
	}
	require.Greater(t, compared, len(goldenFolders(t))/2, "too few were the same for the test to mean anything")
	t.Logf("%d AuthConfigs compared", compared)
}

func compareAuthConfigs(t *testing.T, gw *translator.GatewayResult) int {
	t.Helper()
	of, configs := closed(gw.EnvoyGateway.Expressed), gw.EnvoyGateway.AuthConfigs
	require.Len(t, gw.EnvoyGateway.Objects, len(of))
	hosts, compared := map[string]bool{}, 0
	for i := range of {
		asking := gw.EnvoyGateway.Objects[i].Spec
		require.Equal(t, len(of[i].Rules) > 0, asking.ExtAuth != nil, "what grants nothing asks nobody")
		if asking.ExtAuth == nil {
			require.Empty(t, asking.Authorization.Rules)
			continue
		}
		require.NotEmpty(t, configs)
		config := configs[0].Spec.DeepCopy()
		configs = configs[1:]
		require.Len(t, config.Hosts, 1)
		require.False(t, hosts[config.Hosts[0]], "two AuthConfigs have one host")
		hosts[config.Hosts[0]] = true
		require.Equal(t, config.Hosts[0], *asking.ExtAuth.ContextExtensions[0].Value)
		require.False(t, *asking.ExtAuth.FailOpen)
		j := slices.IndexFunc(closed(gw.Kuadrant.Expressed), func(p plan.Plan) bool { return p.Listener == of[i].Listener && plan.Same(&p, &of[i]) })
		if j < 0 {
			continue
		}
		scheme := gw.Kuadrant.Objects[j].Spec.Proper().AuthScheme
		require.Len(t, config.Authentication, len(scheme.Authentication))
		for key, want := range scheme.Authentication {
			require.Equal(t, want.AuthenticationSpec, config.Authentication[key], key)
		}
		require.Len(t, config.Authorization, len(scheme.Authorization))
		for key, want := range scheme.Authorization {
			require.Equal(t, want.AuthorizationSpec, config.Authorization[key], key)
		}
		require.Equal(t, scheme.Response.Unauthorized.DenyWithSpec, *config.Response.Unauthorized)
		require.Equal(t, scheme.Response.Unauthenticated == nil, config.Response.Unauthenticated == nil)
		if want := scheme.Response.Unauthenticated; want != nil {
			require.Equal(t, want.DenyWithSpec, *config.Response.Unauthenticated)
		}
		require.Empty(t, config.Response.Success.Headers, "nothing of Authorino's goes upstream")
		require.Len(t, config.Response.Success.DynamicMetadata, 1)
		compared++
	}
	require.Empty(t, configs)
	return compared
}

// closed are the plans that have objects.
func closed(plans []plan.Plan) []plan.Plan {
	return slices.DeleteFunc(slices.Clone(plans), func(p plan.Plan) bool { return p.Open })
}

// TestAskingExpressesNoMoreThanThePlan has the requests of every golden case decided by what Authorino is told.
func TestAskingExpressesNoMoreThanThePlan(t *testing.T) {
	for _, dir := range goldenFolders(t) {
		t.Run(strings.TrimPrefix(dir, "testdata/"), func(t *testing.T) {
			c := loadCase(t, dir)
			in, opts := c.asking()
			result, err := translator.Translate(in, opts)
			require.NoError(t, err)
			for _, r := range c.File.Requests {
				for i := range result.Gateways {
					gw := &result.Gateways[i]
					request := r.Plan(opts.Profile, false)
					written, expressed := plan.Select(gw.Plans, r.Listener, request.Host), plan.Select(gw.EnvoyGateway.Expressed, r.Listener, request.Host)
					if written == nil || expressed == nil {
						continue
					}
					if expressed.Decide(request).Allowed {
						require.True(t, written.Decide(request).Allowed, r.Name)
					}
				}
			}
		})
	}
}
