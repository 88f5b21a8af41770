package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/google/cel-go/cel"
	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	"github.com/kuadrant/authorino/controllers"
	authorinocel "github.com/kuadrant/authorino/pkg/expressions/cel"
	"github.com/kuadrant/authorino/pkg/index"
	"github.com/kuadrant/authorino/pkg/log"
	"github.com/kuadrant/authorino/pkg/service"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// authConfigNamespace is where kuadrant-operator keeps its Authorino by default.
const authConfigNamespace = "kuadrant-system"

// grantedKey is the response item that shows what the authorization phase left.
const grantedKey = "accesspolicy-operator judge: granted"

// authConfig is what one path got.
type authConfig struct {
	name     string
	path     path
	spec     authorinov1beta3.AuthConfigSpec
	sources  []string
	status   authConfigStatus
	warnings []string
}

// authConfigStatus is what Authorino writes into the status of an AuthConfig.
type authConfigStatus struct {
	ready   bool
	reason  string
	message string
}

// written is the spec that Kuadrant writes.
func (a *authConfig) written() authorinov1beta3.AuthConfigSpec { return a.spec }

func (a *authConfig) warn(format string, arguments ...any) {
	a.warnings = append(a.warnings, fmt.Sprintf(format, arguments...))
}

func newAuthConfig(p path, set ruleSet) *authConfig {
	// Read in: kuadrant-operator v1.5.2 internal/controller/auth_workflow_helpers.go,
	// AuthConfigNameForPath.
	sum := sha256.Sum256([]byte(p.id()))
	name := hex.EncodeToString(sum[:])

	return &authConfig{name: name, path: p, spec: set.authConfigSpec(name), sources: set.sources()}
}

// observed is a copy of the spec with one more response item. It cannot change the
// verdict: responses are built only after access was granted, an item that fails is
// left out, and its priority makes it the last, so it cancels no other. It uses a
// selector, because a CEL expression would fail where nothing was granted.
func (a *authConfig) observed() authorinov1beta3.AuthConfigSpec {
	spec := *a.spec.DeepCopy()
	if spec.Response == nil {
		spec.Response = &authorinov1beta3.ResponseSpec{}
	}

	if spec.Response.Success.DynamicMetadata == nil {
		spec.Response.Success.DynamicMetadata = map[string]authorinov1beta3.SuccessResponseSpec{}
	}

	item := authorinov1beta3.SuccessResponseSpec{}
	item.Priority = math.MaxInt32
	item.Plain = &authorinov1beta3.PlainAuthResponseSpec{Selector: "auth.authorization"}
	spec.Response.Success.DynamicMetadata[grantedKey] = item

	return spec
}

// warnOfPanics finds predicates whose type is not known before they run. Authorino
// v0.27.0 asserts in a goroutine that their value is a boolean (pkg/expressions/cel/
// expressions.go, Matches), so any other value ends the whole process. Authorino
// refuses predicates of a known other type, so asking for one finds the unknown.
func (a *authConfig) warnOfPanics() {
	if !a.status.ready {
		return
	}

	for _, source := range predicatesOf(a.spec) {
		if _, err := authorinocel.Compile(source, cel.StringType); err == nil {
			a.warn("predicate %.200q has no static type: if its value is no boolean, Authorino's process ends", source)
		}
	}
}

func predicatesOf(spec authorinov1beta3.AuthConfigSpec) []string {
	var sources []string

	collect := func(patterns []authorinov1beta3.PatternExpressionOrRef) {
		sources = append(sources, flattened(patterns)...)
	}

	for _, evaluator := range spec.Authentication {
		collect(evaluator.Conditions)
	}

	for _, evaluator := range spec.Metadata {
		collect(evaluator.Conditions)
	}

	for _, evaluator := range spec.Authorization {
		collect(evaluator.Conditions)

		if evaluator.PatternMatching != nil {
			collect(evaluator.PatternMatching.Patterns)
		}
	}

	if spec.Response != nil {
		for _, evaluator := range spec.Response.Success.Headers {
			collect(evaluator.Conditions)
		}

		for _, evaluator := range spec.Response.Success.DynamicMetadata {
			collect(evaluator.Conditions)
		}
	}

	for _, evaluator := range spec.Callbacks {
		collect(evaluator.Conditions)
	}

	slices.Sort(sources)

	return slices.Compact(sources)
}

func flattened(patterns []authorinov1beta3.PatternExpressionOrRef) []string {
	var sources []string

	for _, pattern := range patterns {
		if pattern.Predicate != "" {
			sources = append(sources, pattern.Predicate)
		}

		for _, nested := range slices.Concat(pattern.All, pattern.Any) {
			sources = append(sources, flattened([]authorinov1beta3.PatternExpressionOrRef{nested.PatternExpressionOrRef})...)
		}
	}

	return sources
}

// store is Authorino with a set of AuthConfigs loaded.
type store struct {
	index      index.Index
	reconciler *controllers.AuthConfigReconciler
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()

	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), authorinov1beta3.AddToScheme(scheme))
}

// newStore makes an Authorino that knows no AuthConfig yet; specOf chooses what is
// stored of each. Only the storage of the AuthConfigs is a fake: it stands for the API
// server, writes the one default of the CRD that Authorino cannot do without, and does
// not check objects against the CRD.
func newStore(configs []*authConfig, specOf func(*authConfig) authorinov1beta3.AuthConfigSpec, reviews string) (*store, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("scheme of the AuthConfig storage: %w", err)
	}

	objects := make([]client.Object, 0, len(configs))
	for _, config := range configs {
		objects = append(objects, &authorinov1beta3.AuthConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: authConfigNamespace, Name: config.name},
			Spec:       withDefaults(specOf(config)),
		})
	}

	s := &store{index: index.NewIndex()}
	s.reconciler = &controllers.AuthConfigReconciler{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		Index:  s.index,
		Logger: log.WithName("judge"),
		// A negative rate is no limit: the judge measures decisions, not the
		// throttling that --kube-client-qps sets in a deployment.
		EvaluatorClientOptions: &controllers.EvaluatorClientOptions{
			RESTConfig: &rest.Config{Host: reviews}, QPS: -1, Burst: -1,
		},
		StatusReport: controllers.NewStatusReportMap(),
	}

	return s, nil
}

// withDefaults sets the version of OPA's language. The other defaults of the CRD are
// zero values, or Authorino's code assumes them by itself.
// Read in: authorino v0.27.0 install/crd/authorino.kuadrant.io_authconfigs.yaml.
func withDefaults(spec authorinov1beta3.AuthConfigSpec) authorinov1beta3.AuthConfigSpec {
	spec = *spec.DeepCopy()

	for name, evaluator := range spec.Authorization {
		if evaluator.Opa != nil && evaluator.Opa.Version == "" {
			evaluator.Opa.Version = "v0"
			spec.Authorization[name] = evaluator
		}
	}

	return spec
}

// service is Authorino's Check. Without a timeout, as Authorino runs by default.
func (s *store) service() *service.AuthService {
	return service.NewAuthService(s.index, 0, 0)
}

// reconcile loads one AuthConfig and tells what its status says. One that is refused
// is not in the index afterwards, and its requests are answered "not found".
func (s *store) reconcile(config *authConfig) authConfigStatus {
	key := types.NamespacedName{Namespace: authConfigNamespace, Name: config.name}
	_, err := s.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: key})

	report, _ := s.reconciler.StatusReport.Get(key.String())
	status := authConfigStatus{
		ready:  err == nil && report.Reason == authorinov1beta3.StatusReasonReconciled,
		reason: report.Reason, message: report.Message,
	}

	if err != nil && status.message == "" {
		status.message = err.Error()
	}

	return status
}

// remove takes the AuthConfigs out again, so that evaluators with workers of their
// own (JWT key refresh) end.
func (s *store) remove(configs []*authConfig) {
	for _, config := range configs {
		if loaded := s.index.Get(config.name); loaded != nil {
			// Clean only reports workers that were gone already.
			_ = loaded.Clean(context.Background())
		}

		s.index.Delete(authConfigNamespace + "/" + config.name)
	}
}
