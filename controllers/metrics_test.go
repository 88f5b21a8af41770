package controllers

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/plan"
)

func TestMetrics(t *testing.T) {
	gateway := types.NamespacedName{Namespace: "demo", Name: "prod"}
	counts := newTally(&translation{bytes: 2048, expressed: []plan.Plan{{Rules: make([]plan.Rule, 3)}, {}},
		findings: []plan.Finding{{Reason: "AllowsEverything"}, {Reason: "AllowsEverything"}}},
		[]coverage.Line{{Reason: coverage.FilterOrder}, {Listener: "http", Reason: coverage.RoutePolicy}, {Listener: "http", Reason: coverage.NotTargeted}, {Listener: "http", Covered: true}})
	counts.count(translator.Verdict{Reason: "InvalidCEL"}, metav1.Condition{})
	counts.count(translator.Verdict{Accepted: true}, metav1.Condition{Status: metav1.ConditionFalse, Reason: "Pending"})
	counts.count(translator.Verdict{Accepted: true}, metav1.Condition{Status: metav1.ConditionTrue})
	gauges.set(gateway, counts)
	unplacedTargets.WithLabelValues("TargetNotFound").Set(1)
	keysGauge.WithLabelValues().Set(1)
	writes.WithLabelValues("AuthPolicy", operationApply).Inc()

	registry := prometheus.NewRegistry()
	registry.MustRegister(Collectors()...)
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)

	require.InDelta(t, 3, testutil.ToFloat64(policiesGauge.WithLabelValues("demo", "prod")), 0)
	require.InDelta(t, 3, testutil.ToFloat64(rulesGauge.WithLabelValues("demo", "prod")), 0)
	require.InDelta(t, 1, testutil.ToFloat64(refusedGauge.WithLabelValues("demo", "prod", "InvalidCEL")), 0)
	require.InDelta(t, 1, testutil.ToFloat64(pendingGauge.WithLabelValues("demo", "prod", "Pending")), 0)
	require.InDelta(t, 2, testutil.ToFloat64(findingsGauge.WithLabelValues("demo", "prod", "AllowsEverything")), 0)
	require.InDelta(t, 1, testutil.ToFloat64(lackingGauge.WithLabelValues("demo", "prod", coverage.RoutePolicy)), 0)
	require.Equal(t, 1, testutil.CollectAndCount(lackingGauge))
	require.InDelta(t, 2048, testutil.ToFloat64(bytesGauge.WithLabelValues("demo", "prod")), 0)

	// A reason that does not hold any more is not left standing.
	gauges.set(gateway, newTally(&translation{}, nil))
	require.Zero(t, testutil.CollectAndCount(refusedGauge))
	require.Zero(t, testutil.CollectAndCount(lackingGauge))
	gauges.forget(gateway)
	require.Zero(t, testutil.CollectAndCount(policiesGauge))
}
