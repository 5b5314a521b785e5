//go:build around

package prometheus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/initialresources/history"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestNothingThere: what nobody scrapes is missed at once, and not taken for unused.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	h := hours()
	// As they are where the labels of the target win over those of kube-state-metrics.
	for t := ago(time.Hour).Truncate(time.Minute); t.Before(now); t = t.Add(time.Minute) {
		h.Extra += fmt.Sprintf("dishonoured{job=\"kube-state-metrics\",namespace=\"monitoring\",pod=\"kube-state-metrics\",container=\"kube-state-metrics\",exported_namespace=\"data\",image=\"nginx\"} 1 %d\n", t.Unix())
	}
	server := start(t, h)
	good := options(server, h)
	good.Window = time.Hour
	for want, change := range map[string]func(*history.Options){
		`no_cpu{job="kubelet"} now: check that cAdvisor is scraped, and at least twice in 2m`: func(o *history.Options) { o.CPU = "no_cpu" },
		`container_cpu_usage_seconds_total{job="kubelet"} now: check that cAdvisor`:           func(o *history.Options) { o.Range, o.Resolution = 50*time.Second, 50*time.Second },
		`no_memory{job="kubelet"} now: check that cAdvisor is scraped`:                        func(o *history.Options) { o.Memory = "no_memory" },
		`no_info{job="kube-state-metrics"} now: check that kube-state-metrics is scraped`:     func(o *history.Options) { o.Info, o.InitInfo = "no_info", "no_info_either" },
		`kube_pod_container_info{cluster="eu",job="kube-state-metrics"} now`:                  func(o *history.Options) { o.Matchers = []string{"cluster=eu"} },
		"honor_labels": func(o *history.Options) { o.Info, o.InitInfo = "dishonoured", "no_info_either" },
		// The job has another name: the error has it, and the flag.
		`now: check that kube-state-metrics is scraped. There are some with job="kube-state-metrics": if you trust them, name them by --kube-state-metrics-matcher`: func(o *history.Options) {
			o.StateMetrics = []string{"job=ksm"}
		},
		`job="kubelet": if you trust them, name them by --cadvisor-matcher`: func(o *history.Options) {
			o.CAdvisor = []string{`job="cadvisor"`}
		},
		// Also where only a part of the cluster is asked about.
		`--cadvisor-matcher`: func(o *history.Options) {
			o.CAdvisor, o.Namespaces = []string{`job="cadvisor"`}, []string{"data"}
		},
		"} now: check that kube-state-metrics is scraped": func(o *history.Options) {
			o.Info, o.InitInfo, o.Namespaces = "no_info", "no_info_either", []string{"data"}
		},
	} {
		o := good
		change(&o)
		store := newStore(t, o)
		must.Fails(t, "a read", store.Refresh(t.Context(), now), want)
		if !store.Until().IsZero() {
			t.Errorf("%s: read until %s", want, store.Until())
		}
	}
	// Nobody scrapes any more; what was read before that stays.
	store := refreshed(t, good, now)
	if err := store.Refresh(t.Context(), now.Add(3*time.Hour)); err == nil || len(store.Keys()) == 0 {
		t.Errorf("error: %v, keys: %v", err, store.Keys())
	}
}

// TestForged: what others expose under the names of the metrics is not believed, nor what one of the
// two sources says in place of the other. Without the matchers it would be.
func TestForged(t *testing.T) {
	t.Parallel()
	h := hours()
	for t := ago(4 * time.Hour).Truncate(time.Minute); t.Before(now); t = t.Add(time.Minute) {
		for _, job := range []string{"evil", "kubelet"} {
			h.Extra += fmt.Sprintf("kube_pod_container_info{job=%q,namespace=\"data\",pod=\"db-1\",container=\"db\",image_spec=\"forged:1\"} 1 %d\n", job, t.Unix())
		}
		for _, job := range []string{"evil", "kube-state-metrics"} {
			h.Extra += fmt.Sprintf("container_memory_working_set_bytes{job=%q,namespace=\"data\",pod=\"db-1\",container=\"db\"} 1e12 %d\n", job, t.Unix())
		}
	}
	server := start(t, h)
	o := options(server, h)
	o.Window = time.Hour
	most := func(s *history.Store) float64 {
		samples := s.Samples(time.Time{}, estimate.Key{Namespace: "data", Image: image(t, "mysql:9")}, "memory")
		if samples == nil {
			return 0
		}
		return samples.Quantile(1)
	}
	known := func(s *history.Store) bool {
		return s.Samples(time.Time{}, estimate.Key{Namespace: "data", Image: image(t, "mysql:9")}, "memory") != nil
	}
	store := refreshed(t, o, now)
	if got := most(store); got < 100*mib || got > 112*mib {
		t.Errorf("with the matchers mysql uses up to %g bytes", got)
	}
	all := o
	all.CAdvisor = []string{""}
	if got := most(refreshed(t, all, now)); got < 0.9e12 {
		t.Errorf("without that of cAdvisor mysql uses up to %g bytes: the forgery is none", got)
	}
	all = o
	all.StateMetrics = nil
	if known(refreshed(t, all, now)) {
		t.Error("without that of kube-state-metrics it is still sure which image it is: the forgery is none")
	}
}
