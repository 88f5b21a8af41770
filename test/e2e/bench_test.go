package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"accesspolicy-operator/test/stack"
)

// The benchmarks run the operator's binary, so what they report is about another process: its CPU and memory as the kernel
// counts them, its writes as its own metrics do. `make bench-operator` runs them.

const translateMetric = "accesspolicy_translate_duration_seconds"

// usage is what the kernel says of a process.
type usage struct {
	cpu       time.Duration
	rss, peak int // bytes
}

func (o *operator) usage(b testing.TB) usage {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.PID()))
	require.NoError(b, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	ticks := 0
	for _, at := range []int{11, 12} { // utime, stime: proc(5), fields 14 and 15
		n, err := strconv.Atoi(fields[at])
		require.NoError(b, err)
		ticks += n
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every platform that Go knows
	out := usage{cpu: time.Duration(ticks) * tick}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.PID()))
	require.NoError(b, err)
	for _, line := range strings.Split(string(status), "\n") {
		for name, into := range map[string]*int{"VmRSS:": &out.rss, "VmHWM:": &out.peak} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
				require.NoError(b, err)
				*into = kib << 10
			}
		}
	}
	return out
}

// buckets are the bounds of a histogram, in seconds, and how many observations are at or below each.
func (o *operator) buckets(b testing.TB, name string) (bounds, counts []float64) {
	b.Helper()
	for _, line := range strings.Split(o.scrape(b), "\n") {
		rest, ok := strings.CutPrefix(line, name+`_bucket{le="`)
		if !ok {
			continue
		}
		bound, n, _ := strings.Cut(rest, `"} `)
		seconds, err := strconv.ParseFloat(bound, 64)
		require.NoError(b, err)
		count, err := strconv.ParseFloat(n, 64)
		require.NoError(b, err)
		bounds, counts = append(bounds, seconds), append(counts, count)
	}
	require.NotEmpty(b, bounds, name)
	return bounds, counts
}

// quantile of what a histogram has got since it was as before, as a bound from above.
func (o *operator) quantile(b testing.TB, name string, before []float64, q float64) time.Duration {
	b.Helper()
	bounds, counts := o.buckets(b, name)
	all := counts[len(counts)-1] - before[len(before)-1]
	at := slices.IndexFunc(bounds, func(bound float64) bool { i := slices.Index(bounds, bound); return counts[i]-before[i] >= q*all })
	return time.Duration(bounds[at] * float64(time.Second))
}

func percentile(durations []time.Duration, q float64) time.Duration {
	slices.Sort(durations)
	return durations[min(len(durations)-1, int(q*float64(len(durations))))]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// threeRules is a policy with three rules of one account each.
func threeRules(k *kube, b testing.TB, i int, tool string) *unstructured.Unstructured {
	rule := `
- name: r%d
  source: {type: ServiceAccount, serviceAccount: {name: account-%d-%d}}
  authorization: {type: Inline, mcp: {methods: [{name: tools/call, params: [%s]}]}}`
	spec := "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: prod}]\naction: Allow\nrules:"
	for r := range 3 {
		spec += fmt.Sprintf(rule, r, i, r, tool)
	}
	return k.policy(b, fmt.Sprintf("policy-%d", i), spec)
}

// each runs a function for many numbers, several at a time.
func each(n int, do func(int)) {
	var wait sync.WaitGroup
	numbers := make(chan int)
	for range 8 {
		wait.Go(func() {
			for i := range numbers {
				do(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	wait.Wait()
}

// BenchmarkOneEdit: 1,000 policies of three rules on one Gateway; one of them is edited.
func BenchmarkOneEdit(b *testing.B) {
	c := startCluster(b, stack.CRDsKuadrant)
	k := inNamespace(b, c, "edit")
	k.Apply(b, stack.Gateway("edit", "prod", "a.example.test"))
	each(1000, func(i int) { k.Apply(b, threeRules(k, b, i, "tool")) })
	o := startOperator(b, c)
	eventually(b, "all rules are there", func(context.Context) error {
		return want(o.value(b, "accesspolicy_rules") == 3000, "there are %v", o.value(b, "accesspolicy_rules"))
	})
	o.settled(b)
	before, writes := o.usage(b), o.writes(b)
	_, translations := o.buckets(b, translateMetric)

	var waits []time.Duration
	b.ResetTimer()
	for i := range b.N {
		tool := fmt.Sprintf("edit-%d", i)
		b.StopTimer()
		generation := k.get(b, "prod-auth").GetGeneration()
		b.StartTimer()
		k.Apply(b, threeRules(k, b, 500, tool))
		begin := time.Now()
		for k.get(b, "prod-auth").GetGeneration() == generation {
			time.Sleep(time.Millisecond)
		}
		waits = append(waits, time.Since(begin))
	}
	b.StopTimer()
	o.settled(b)
	after := o.usage(b)
	b.ReportMetric(milliseconds(percentile(waits, 0.5)), "ms-to-object-p50")
	b.ReportMetric(milliseconds(percentile(waits, 0.99)), "ms-to-object-p99")
	b.ReportMetric(milliseconds(o.quantile(b, translateMetric, translations, 0.5)), "ms-translate-p50")
	b.ReportMetric(milliseconds(o.quantile(b, translateMetric, translations, 0.99)), "ms-translate-p99")
	b.ReportMetric(milliseconds(after.cpu-before.cpu)/float64(b.N), "ms-cpu/op")
	b.ReportMetric((o.writes(b)-writes)/float64(b.N), "writes/op")
	b.ReportMetric(float64(after.rss)/(1<<20), "MiB-rss")
}

// BenchmarkColdStart: 1,000 Gateways with three policies each, none of which has been looked at. It is one round, whatever
// the benchmark's time: a second one would be a warm start.
func BenchmarkColdStart(b *testing.B) {
	const namespaces, gateways = 50, 20
	c := startCluster(b, stack.CRDsKuadrant)
	each(namespaces, func(n int) {
		k := inNamespace(b, c, fmt.Sprintf("cold-%d", n))
		for g := range gateways {
			name := fmt.Sprintf("gw-%d", g)
			k.Apply(b, stack.Gateway(k.namespace, name, name+".example.test"))
			for p := range 3 {
				k.Apply(b, k.policy(b, fmt.Sprintf("%s-%d", name, p), allowing(fmt.Sprintf("account-%d", p), []string{"add", "echo"}, name)))
			}
		}
	})
	begin := time.Now()
	o := startOperator(b, c)
	for o.writes(b) < namespaces*gateways*4 { // seldom, because a scrape of so many series costs as much as some Gateways
		require.Less(b, time.Since(begin), limit, "%v writes", o.writes(b))
		time.Sleep(500 * time.Millisecond)
	}
	converged := time.Since(begin)
	writes := o.writes(b)
	o.settled(b)
	require.Len(b, objects(b, c, "AuthPolicyList"), namespaces*gateways)
	used := o.usage(b)
	b.ReportMetric(converged.Seconds(), "s-to-converged")
	b.ReportMetric(used.cpu.Seconds(), "s-cpu")
	b.ReportMetric(writes, "writes")
	b.ReportMetric(float64(used.rss)/(1<<20), "MiB-rss")
	b.ReportMetric(float64(used.peak)/(1<<20), "MiB-rss-peak")

	// At rest.
	before := o.writes(b)
	time.Sleep(time.Minute)
	rest := o.usage(b)
	b.ReportMetric(o.writes(b)-before, "writes-at-rest/min")
	b.ReportMetric(milliseconds(rest.cpu-used.cpu), "ms-cpu-at-rest/min")
}

func objects(b testing.TB, c *stack.Cluster, kind string) []unstructured.Unstructured {
	b.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("kuadrant.io/v1")
	list.SetKind(kind)
	require.NoError(b, c.Client.List(b.Context(), list, &client.ListOptions{}))
	return list.Items
}
