package envoygateway

import (
	"strings"
	"testing"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/plan"
)

func TestParseService(t *testing.T) {
	s, err := ParseService("kuadrant-system/authorino-authorino-authorization:50051")
	require.NoError(t, err)
	require.Equal(t, Service{"kuadrant-system", "authorino-authorino-authorization", 50051}, s)
	require.Equal(t, "kuadrant-system/authorino-authorino-authorization:50051", s.String())
	none, err := ParseService("")
	require.NoError(t, err)
	require.Zero(t, none)
	for _, text := range []string{"authorino", "a/b", "a/b:", "a/b:0", "a/b:65536", "a/b:-1", "a/b:1e3", "/b:1", "a/:1", "a/b/c:1", "A/b:1", "a/b_:1", "a/[::1]:1", "a/b:4294967297", " a/b:1"} {
		_, err := ParseService(text)
		require.ErrorContains(t, err, "NAMESPACE/NAME:PORT", text)
	}
}

func str(s string) *string { return &s }

// orderly is a world in which the order of filters is certain.
func orderly() (*gwv1.Gateway, *gwv1.GatewayClass, []egv1a1.EnvoyProxy) {
	gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod"}}
	gw.Spec.GatewayClassName = "envoy"
	gw.Spec.Infrastructure = &gwv1.GatewayInfrastructure{ParametersRef: &gwv1.LocalParametersReference{Group: proxyGroup, Kind: kindEnvoyProxy, Name: "own"}}
	class := &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "envoy"}}
	namespace := gwv1.Namespace("system")
	class.Spec.ParametersRef = &gwv1.ParametersReference{Group: proxyGroup, Kind: kindEnvoyProxy, Name: "class", Namespace: &namespace}
	own := egv1a1.EnvoyProxy{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "own"}}
	own.Spec.FilterOrder = []egv1a1.FilterPosition{{Name: FilterExtAuthz, After: str(FilterExtProc)}}
	return gw, class, []egv1a1.EnvoyProxy{{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "class"}}, own}
}

// world is what an order of filters depends on.
type world struct {
	gw      *gwv1.Gateway
	class   *gwv1.GatewayClass
	proxies []egv1a1.EnvoyProxy
}

// add gives the Gateway's own proxy another entry.
func (w *world) add(position egv1a1.FilterPosition) {
	w.proxies[1].Spec.FilterOrder = append(w.proxies[1].Spec.FilterOrder, position)
}

var proxyGroup = gwv1.Group(egv1a1.GroupVersion.Group)

func TestUnordered(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		change func(w *world)
		why    string // "" where the order is certain
	}{
		"its own proxy says so":          {func(*world) {}, ""},
		"mergeType Replace":              {func(w *world) { w.proxies[1].Spec.MergeType = str("Replace") }, ""},
		"others are moved":               {func(w *world) { w.add(egv1a1.FilterPosition{Name: FilterWasm, Before: str(FilterJWT)}) }, ""},
		"no class":                       {func(w *world) { w.class = nil }, "GatewayClass envoy is not there"},
		"class without a proxy":          {func(w *world) { w.class.Spec.ParametersRef = nil }, ""},
		"the class's proxy is missing":   {func(w *world) { w.proxies = w.proxies[1:] }, "system/class"},
		"the class's is no proxy":        {func(w *world) { w.class.Spec.ParametersRef.Kind = "ConfigMap" }, "not to an EnvoyProxy"},
		"its own proxy is missing":       {func(w *world) { w.proxies = w.proxies[:1] }, "demo/own"},
		"its own is no proxy":            {func(w *world) { w.gw.Spec.Infrastructure.ParametersRef.Group = "" }, "not to an EnvoyProxy"},
		"no proxy at all":                {func(w *world) { w.gw.Spec.Infrastructure, w.class.Spec.ParametersRef = nil, nil }, "neither"},
		"the class's counts":             {func(w *world) { w.gw.Spec.Infrastructure = nil }, "one entry"},
		"the class's counts and says so": {func(w *world) { w.gw.Spec.Infrastructure = nil; w.proxies[0].Spec = w.proxies[1].Spec }, ""},
		"merged Gateways":                {func(w *world) { w.proxies[0].Spec.MergeGateways = &yes }, "one entry"},
		"merged Gateways, class's own": {func(w *world) {
			w.proxies[0].Spec = w.proxies[1].Spec
			w.proxies[0].Spec.MergeGateways = &yes
			w.proxies = w.proxies[:1]
		}, ""},
		"merged with others": {func(w *world) { w.proxies[1].Spec.MergeType = str("StrategicMerge") }, "mergeType StrategicMerge"},
		"no entry":           {func(w *world) { w.proxies[1].Spec.FilterOrder = nil }, "one entry"},
		"two entries":        {func(w *world) { w.add(w.proxies[1].Spec.FilterOrder[0]) }, "one entry"},
		"before": {func(w *world) {
			w.proxies[1].Spec.FilterOrder[0] = egv1a1.FilterPosition{Name: FilterExtAuthz, Before: str(FilterExtProc)}
		}, "one entry"},
		"both":                            {func(w *world) { w.proxies[1].Spec.FilterOrder[0].Before = str(FilterRBAC) }, "one entry"},
		"after something else":            {func(w *world) { w.proxies[1].Spec.FilterOrder[0].After = str(FilterJWT) }, "one entry"},
		"the router is moved":             {func(w *world) { w.add(egv1a1.FilterPosition{Name: FilterExtProc, After: str(FilterWasm)}) }, "moves " + FilterExtProc},
		"the rule is moved before asking": {func(w *world) { w.add(egv1a1.FilterPosition{Name: FilterRBAC, Before: str(FilterExtAuthz)}) }, "moves " + FilterRBAC},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{}
			w.gw, w.class, w.proxies = orderly()
			c.change(w)
			why, _ := Unordered(w.gw, w.class, w.proxies)
			if c.why == "" {
				require.Empty(t, why)
			} else {
				require.Contains(t, why, c.why)
			}
		})
	}
}

// asking is a Gateway for which Authorino is asked.
func asking(rules ...plan.Rule) (Input, Options) {
	in, opts := wide(rules...), testOptions
	gw, class, proxies := orderly()
	in.Gateway.Spec.Infrastructure, in.Gateway.Spec.GatewayClassName = gw.Spec.Infrastructure, gw.Spec.GatewayClassName
	in.Class, in.Proxies = class, proxies
	opts.Form, opts.Authorino = FormExtAuth, Service{"authorino", "authorino", 50051}
	return in, opts
}

func TestForms(t *testing.T) {
	in, opts := asking(rule(plan.TokenPrefix + "demo:reader"))
	out := emitted(t, in, opts)
	require.NotNil(t, out.Objects[0].Spec.ExtAuth)
	require.Len(t, out.AuthConfigs, 1)
	require.Equal(t, out.Objects[0].Name, native(t, in, opts).Objects[0].Name, "a change of the form is an update in place")

	in.NoAuthConfigs = true
	out = emitted(t, in, opts)
	require.Nil(t, out.Objects[0].Spec.ExtAuth)
	require.Empty(t, out.AuthConfigs)
	require.Equal(t, []string{ReasonNoAuthorino}, reasons(out))

	in.NoAuthConfigs = false
	in.Gateway.Annotations = map[string]string{AnnotationForm: FormNative}
	require.Empty(t, emitted(t, in, opts).AuthConfigs)
	in.Gateway.Annotations[AnnotationForm] = "none"
	out = emitted(t, in, opts)
	require.Len(t, out.AuthConfigs, 1)
	require.Equal(t, []string{v1alpha1.PolicyReasonInvalidAnnotation}, reasons(out))
}

func native(t *testing.T, in Input, opts Options) *Output {
	t.Helper()
	opts.Form = FormNative
	return emitted(t, in, opts)
}

func TestAnOrderThatIsNotCertainClosesEveryPlan(t *testing.T) {
	in, opts := asking(rule(plan.TokenPrefix + "demo:reader"))
	in.Proxies = nil
	listener := in.Plans[0]
	listener.Listener = "http"
	in.Plans = append(in.Plans, listener)
	out, err := Emit(in, opts)
	require.NoError(t, err)
	require.Empty(t, out.AuthConfigs)
	require.Len(t, out.Objects, 2)
	for i, object := range out.Objects {
		require.Nil(t, object.Spec.ExtAuth)
		require.Equal(t, &egv1a1.Authorization{DefaultAction: egv1a1.ActionDeny}, object.Spec.Authorization)
		require.Empty(t, out.Expressed[i].Rules)
	}
	require.Equal(t, []string{v1alpha1.PolicyReasonFilterOrder}, reasons(out))
}

func TestTheAuthConfigsNameIsTaken(t *testing.T) {
	in, opts := asking(rule(plan.TokenPrefix + "demo:reader"))
	in.AuthConfigs = []authorinov1beta3.AuthConfig{{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-auth"}}}
	out := emitted(t, in, opts)
	require.NotEqual(t, "prod-auth", out.AuthConfigs[0].Name)
	require.Equal(t, "prod-auth", out.Objects[0].Name)
	require.Equal(t, []string{"NameTaken"}, reasons(out))
}

func TestAnAuthConfigThatIsTooLargeDenies(t *testing.T) {
	var rules []plan.Rule
	for i := range 40 {
		r := rule(plan.TokenPrefix + "demo:reader")
		r.Origin.Policy.Name = strings.Repeat("p", i+1)
		r.Headers = []plan.HeaderMatch{{Name: "x-tenant", Value: strings.Repeat("a", 35_000)}}
		rules = append(rules, r)
	}
	in, opts := asking(rules...)
	opts.Scheme.MaxNamedEvaluators = 100
	out := emitted(t, in, opts)
	require.Equal(t, []string{v1alpha1.PolicyReasonTooLarge}, reasons(out))
	require.Empty(t, out.Expressed[0].Rules)
	require.Empty(t, out.AuthConfigs)
	require.Equal(t, Enforcer, out.Findings[0].Enforcer)
	require.Nil(t, out.Objects[0].Spec.ExtAuth)
	require.Empty(t, out.Objects[0].Spec.Authorization.Rules)
}

func TestHostsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, namespace := range []string{"a", "b"} {
		for _, listener := range []string{"", "http"} {
			for _, uid := range []string{"", "1", "2"} {
				e := emission{Input: Input{Gateway: &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prod", UID: types.UID(uid)}}}}
				host := e.host(listener)
				require.Regexp(t, "^[a-z0-9]{1,63}$", host)
				require.False(t, seen[host])
				seen[host] = true
			}
		}
	}
}
