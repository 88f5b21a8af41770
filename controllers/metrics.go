package controllers

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/coverage"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
)

var (
	gatewayLabels = []string{"namespace", "gateway"}
	reasonLabels  = []string{"namespace", "gateway", "reason"}

	policiesGauge = gauge("accesspolicy_policies", "Policies that target a Gateway.", gatewayLabels...)
	rulesGauge    = gauge("accesspolicy_rules", "Rules in force or on the way there, counted on the listener that has the most.", gatewayLabels...)
	refusedGauge  = gauge("accesspolicy_refused_policies", "Policies that were not accepted, by the reason of the condition Accepted.", reasonLabels...)
	pendingGauge  = gauge("accesspolicy_unprogrammed_policies", "Accepted policies that are not in force, by the reason of the condition Programmed.", reasonLabels...)
	findingsGauge = gauge("accesspolicy_findings", "Findings of the translation, by reason.", reasonLabels...)
	lackingGauge  = gauge("accesspolicy_uncovered_lines", "Listeners, and rules of routes on them, where the generated object should decide and does not, by the reason that kubectl accesspolicy coverage gives.", reasonLabels...)
	inForceGauge  = gauge("accesspolicy_in_force", "1 where everything that was generated for a Gateway is reported in force and nothing stands in place of it, 0 where it is not.", gatewayLabels...)
	bytesGauge    = gauge("accesspolicy_object_size_bytes", "Size of the largest generated object of a Gateway, as JSON.", gatewayLabels...)
	limitGauge    = gauge("accesspolicy_object_size_limit_bytes", "Size past which an object is not written and the Gateway is closed.")
	keysGauge     = gauge("accesspolicy_issuer_keys_read_timestamp_seconds", "When the keys of ServiceAccount tokens were last read from the API server, in Unix time; 0 while they are wanted and were never read.")

	unplacedTargets = gauge("accesspolicy_unplaced_targets", "Targets of policies that come to nothing: TargetNotFound, or TargetIgnored for other kinds than Gateway.", "reason")

	translateSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "accesspolicy_translate_duration_seconds",
		Help: "Time to translate the policies of one Gateway.", Buckets: prometheus.ExponentialBucketsRange(0.0002, 5, 40)})
	applySeconds = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "accesspolicy_apply_duration_seconds",
		Help: "Time to write one generated object, with the API server's answer.", Buckets: prometheus.ExponentialBucketsRange(0.001, 5, 30)})
	writes = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "accesspolicy_writes_total",
		Help: "Writes to the API server, by what was written and how."}, []string{"object", "operation"})
)

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// Collectors returns the operator's own metrics.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{policiesGauge, rulesGauge, refusedGauge, pendingGauge, findingsGauge, lackingGauge, inForceGauge, bytesGauge, limitGauge, keysGauge, unplacedTargets,
		translateSeconds, applySeconds, writes}
}

func init() {
	metrics.Registry.MustRegister(Collectors()...)
	limitGauge.WithLabelValues().Set(min(kuadrant.MaxObject, envoygateway.MaxObject))
}

// tally counts what became of the policies of one Gateway.
type tally struct {
	policies, rules, bytes int
	// inForce is set where every object is reported in force and none is displaced.
	inForce                             bool
	refused, pending, findings, lacking map[string]int
}

func newTally(t *translation, lines []coverage.Line) *tally {
	out := &tally{bytes: t.bytes, refused: map[string]int{}, pending: map[string]int{}, findings: map[string]int{}, lacking: map[string]int{}}
	for i := range t.expressed {
		out.rules = max(out.rules, len(t.expressed[i].Rules))
	}
	for _, f := range t.findings {
		out.findings[f.Reason]++
	}
	for i := range lines {
		if lines[i].Listener != "" && lines[i].Lacking() {
			out.lacking[lines[i].Reason]++
		}
	}
	return out
}

func (t *tally) count(v translator.Verdict, programmed metav1.Condition) {
	t.policies++
	switch {
	case !v.Accepted:
		t.refused[v.Reason]++
	case programmed.Status != metav1.ConditionTrue:
		t.pending[programmed.Reason]++
	}
}

// gatewayGauges sets the metrics that have a Gateway's name, and removes those that do not hold any more.
type gatewayGauges struct{ mu sync.Mutex }

var gauges gatewayGauges

func (g *gatewayGauges) set(gateway types.NamespacedName, t *tally) {
	g.mu.Lock()
	defer g.mu.Unlock()
	labels := []string{gateway.Namespace, gateway.Name}
	policiesGauge.WithLabelValues(labels...).Set(float64(t.policies))
	rulesGauge.WithLabelValues(labels...).Set(float64(t.rules))
	bytesGauge.WithLabelValues(labels...).Set(float64(t.bytes))
	inForce := 0.0
	if t.inForce {
		inForce = 1
	}
	inForceGauge.WithLabelValues(labels...).Set(inForce)
	for vec, counts := range map[*prometheus.GaugeVec]map[string]int{refusedGauge: t.refused, pendingGauge: t.pending, findingsGauge: t.findings, lackingGauge: t.lacking} {
		vec.DeletePartialMatch(prometheus.Labels{"namespace": gateway.Namespace, "gateway": gateway.Name})
		for reason, n := range counts {
			vec.WithLabelValues(gateway.Namespace, gateway.Name, reason).Set(float64(n))
		}
	}
}

func (g *gatewayGauges) forget(gateway types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, vec := range []*prometheus.GaugeVec{policiesGauge, rulesGauge, inForceGauge, bytesGauge, refusedGauge, pendingGauge, findingsGauge, lackingGauge} {
		vec.DeletePartialMatch(prometheus.Labels{"namespace": gateway.Namespace, "gateway": gateway.Name})
	}
}
