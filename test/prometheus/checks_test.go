//go:build around

package prometheus_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

// configMap is that of the checks.
type configMap map[string]string

func (c configMap) Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{Data: maps.Clone(c)}, nil
}

// shippedChecks are those of deploy/.
func shippedChecks(t testing.TB) configMap {
	t.Helper()
	file := must.Get(os.ReadFile(filepath.Join(controller.Root(), "deploy", "controller", "checks.yaml")))(t)
	var o corev1.ConfigMap
	first, _, _ := strings.Cut(string(file), "\n---\n")
	must.Do(t, yaml.UnmarshalStrict([]byte(first), &o))
	return o.Data
}

// resized is a pod that was resized, and what is scraped of its container app.
type resized struct {
	namespace, name string
	// throttled are shares of 10 periods a second, before and after; less than nothing is none.
	throttled [2]float64
	idle      bool // there are no periods
	// memory, and limits of it by kube-state-metrics and by cAdvisor, before and after; 0 is no series.
	memory, states, cadvisor [2]float64
	unlimited                bool // the pod's spec has no limits
	job                      string
	cpu, mem                 string // what is expected: the state, and a part of the message
}

// series writes samples of what is said of the pod, every 30 s.
func (g resized) series(w *strings.Builder, from, since, to time.Time) {
	kubelet := "kubelet"
	if g.job != "" {
		kubelet = g.job
	}
	periods, throttled := 0.0, 0.0
	for at := from; at.Before(to); at = at.Add(30 * time.Second) {
		after := 0
		if at.After(since) {
			after = 1
		}
		sample := func(metric, labels string, value float64) {
			fmt.Fprintf(w, "%s{namespace=%q,pod=%q,container=\"app\",%s} %g %d\n", metric, g.namespace, g.name, labels, value, at.Unix())
		}
		if share := g.throttled[after]; share >= 0 {
			if !g.idle {
				periods += 300
				throttled += 300 * share
			}
			for _, id := range []string{"a", "b"} { // as where two replicas scrape, or a container was started again
				labels := fmt.Sprintf("job=%q,id=%q", kubelet, id)
				sample("container_cpu_cfs_periods_total", labels, periods)
				sample("container_cpu_cfs_throttled_periods_total", labels, throttled)
			}
		}
		if used := g.memory[after]; used > 0 {
			sample("container_memory_working_set_bytes", fmt.Sprintf("job=%q,id=\"a\"", kubelet), used)
			sample("container_cpu_usage_seconds_total", fmt.Sprintf("job=%q,id=\"a\",cpu=\"total\"", kubelet), float64(at.Unix()))
		}
		if limit := g.states[after]; limit > 0 {
			sample("kube_pod_container_resource_limits", `job="kube-state-metrics",resource="memory",unit="byte",uid="u"`, limit)
			sample("kube_pod_container_resource_limits", `job="kube-state-metrics",resource="cpu",unit="core",uid="u"`, 1)
		}
		if limit := g.cadvisor[after]; limit > 0 {
			sample("container_spec_memory_limit_bytes", fmt.Sprintf("job=%q,id=\"a\"", kubelet), limit)
		}
	}
}

// TestShippedChecks asks the real Prometheus with the checks that are shipped. Series are of now: the checks know no other time.
func TestShippedChecks(t *testing.T) {
	t.Parallel()
	none, both := [2]float64{-1, -1}, func(v float64) [2]float64 { return [2]float64{v, v} }
	const noData = "unknown Prometheus has no data of it"
	pods := []resized{
		{
			namespace: "shop", name: "well", throttled: both(0.1), memory: both(50 * mib), states: both(100 * mib), cadvisor: both(100 * mib),
			cpu: "passed throttled in 10 % of its periods, not more than 50 %", mem: "passed uses 50 % of its memory limit, not more than 95 %",
		},
		{
			namespace: "shop", name: "strangled", throttled: [2]float64{0.1, 0.8}, memory: [2]float64{50 * mib, 97 * mib}, states: [2]float64{200 * mib, 100 * mib},
			cpu: "failed throttled in 80 % of its periods, more than 50 %, and more than 2 times the 10 % before its resize", mem: "failed uses 97 % of its memory limit, more than 95 %",
		},
		{ // the name of the one that fails
			namespace: "bank", name: "strangled", throttled: both(0.2), memory: both(10 * mib), cadvisor: both(100 * mib),
			cpu: "passed throttled in 20 %", mem: "passed uses 10 %",
		},
		{ // it was so before, and what it was short of has grown
			namespace: "bank", name: "cured", throttled: [2]float64{0.7, 0.6}, memory: both(99 * mib), states: [2]float64{100 * mib, 200 * mib}, cadvisor: [2]float64{100 * mib, 200 * mib},
			cpu: "passed throttled in 60 % of its periods, more than 50 %, but not more than 2 times the 70 % before its resize", mem: "passed uses 49.5 %",
		},
		{ // by the limit of one source only
			namespace: "bank", name: "newly-limited", throttled: [2]float64{-1, 0.9}, memory: both(99 * mib), cadvisor: [2]float64{0, 100 * mib},
			cpu: "failed throttled in 90 % of its periods, more than 50 %, and more than 2 times the 0 % before its resize", mem: "failed uses 99 %",
		},
		{namespace: "shop", name: "idle", throttled: both(0), idle: true, memory: both(mib), states: both(100 * mib), cpu: "passed throttled in 0 %", mem: "passed uses 1 %"},
		{ // there was another one before it
			namespace: "bank", name: "replaced", throttled: [2]float64{-1, 0.9}, memory: [2]float64{0, 50 * mib}, states: [2]float64{0, 100 * mib},
			cpu: "unknown throttled in 90 % of its periods, more than 50 %, but Prometheus has no value from before", mem: "passed uses 50 %",
		},
		{namespace: "shop", name: "without-quota", throttled: none, memory: both(99 * mib), cpu: "passed throttled in 0 %", mem: noData},
		{namespace: "alone", name: "periods-unknown", throttled: none, memory: both(99 * mib), cpu: noData, mem: noData},
		{namespace: "shop", name: "not-scraped", throttled: none, cpu: noData, mem: noData},
		{namespace: "shop", name: "unlimited", throttled: none, unlimited: true, cpu: "passed no container has a limit of cpu", mem: "passed no container has a limit of memory"},
		{namespace: "shop", name: "forged", job: "evil", throttled: both(0), memory: both(mib), states: both(100 * mib), cpu: noData, mem: noData},
		{namespace: "shop", name: `a.*b"'\`, throttled: none, cpu: noData, mem: noData}, // the query is good, and finds nothing
	}
	now := time.Now()
	since := now.Add(-7 * time.Minute)
	var lines strings.Builder
	for _, g := range pods {
		g.series(&lines, now.Add(-30*time.Minute), since, now.Add(10*time.Minute))
	}
	server := start(t, prometheus.History{Every: time.Minute, Extra: lines.String()})
	client := must.Get(promapi.New(podchecks.Server(server.URL(), ""), nil))(t)
	runner := podchecks.New(shippedChecks(t), client, podchecks.Options{})
	names := slices.Sorted(maps.Keys(shippedChecks(t)))
	subjects := make([]podchecks.Subject, len(pods))
	for i, g := range pods {
		subjects[i] = podchecks.Subject{
			Namespace: g.namespace, Name: g.name, UID: types.UID(g.namespace + g.name), Since: since,
			Containers: []podchecks.Container{{Name: "app", CPULimit: !g.unlimited, MemoryLimit: !g.unlimited}},
		}
	}
	changed := make(chan struct{}, 1)
	runner.Ask("sts/web", names, subjects, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	go runner.Run(t.Context())
	asked := func() bool {
		return !slices.ContainsFunc(subjects, func(s podchecks.Subject) bool {
			return slices.ContainsFunc(names, func(name string) bool { return runner.Outcomes("sts/web").Of(s.UID, name).Message == "not queried yet" })
		})
	}
	for deadline := time.After(30 * time.Second); !asked(); {
		select {
		case <-changed:
		case <-deadline:
			t.Fatal("it does not ask")
		}
	}
	for i, g := range pods {
		for check, want := range map[string]string{"cpu-throttling": g.cpu, "memory-near-limit": g.mem} {
			o := runner.Outcomes("sts/web").Of(subjects[i].UID, check)
			if got := string(o.State) + " " + o.Message; !strings.HasPrefix(got, want) {
				t.Errorf("%s of %s/%s: %s, want %s…", check, g.namespace, g.name, got, want)
			}
		}
	}
}
