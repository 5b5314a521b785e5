//go:build around

package prometheus_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/initialresources/history"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

const (
	day = 24 * time.Hour
	mib = 1 << 20
)

var now = time.Date(2026, time.March, 31, 14, 20, 0, 0, time.UTC)

// ago is a time with which the histories below end, or begin.
func ago(d time.Duration) time.Time { return now.Add(-d) }

// start runs a Prometheus with the history until the test ends.
func start(t testing.TB, h prometheus.History, flags ...string) *prometheus.Server {
	t.Helper()
	server := must.Get(prometheus.StartWith(t.Context(), t.TempDir(), h, flags...))(t)
	t.Cleanup(func() {
		server.Stop()
		if t.Failed() {
			t.Logf("Prometheus: %s", server.Log())
		}
	})
	return server
}

// options read a history: its scrapes are the steps, and a range has two of them.
func options(server *prometheus.Server, h prometheus.History) history.Options {
	o := history.Defaults()
	o.URL, o.Resolution, o.Range = server.URL(), h.Every, 2*h.Every
	return o
}

func newStore(t testing.TB, o history.Options) *history.Store {
	t.Helper()
	return must.Get(history.New(o))(t)
}

// refreshed is a store that has read all.
func refreshed(t testing.TB, o history.Options, now time.Time) *history.Store {
	t.Helper()
	store := newStore(t, o)
	must.Do(t, store.Refresh(t.Context(), now))
	if want := now.Add(-o.Lag).Truncate(o.Resolution); !store.Complete() || !store.Until().Equal(want) {
		t.Fatalf("complete: %v, until %s, want %s", store.Complete(), store.Until(), want)
	}
	return store
}

func image(t testing.TB, s string) estimate.Image {
	t.Helper()
	return must.Get(estimate.ParseImage(s))(t)
}

// daily goes up and down with the hours, and jumps each minute.
func daily(from, to float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		hours := float64(t.Unix()%86400) / 3600
		noise := float64(t.Unix()/60*7919%97) / 97
		return from + (to-from)*(0.8*(1-math.Cos(hours*math.Pi/12))/2+0.2*noise)
	}
}

// is selects the containers of an image, as its spec has it.
func is(image string) func(prometheus.Container) bool {
	return func(c prometheus.Container) bool { return c.Image == image }
}

// same compares two stores.
func same(t *testing.T, got, want *history.Store, key estimate.Key) {
	t.Helper()
	for _, resource := range estimate.Resources {
		g, w := got.Samples(time.Time{}, key, resource), want.Samples(time.Time{}, key, resource)
		if (g == nil) != (w == nil) {
			t.Errorf("%v: %s: %v, want %v", key, resource, g, w)
			continue
		}
		if g == nil {
			continue
		}
		if g.Count() != w.Count() || g.OOMKills() != w.OOMKills() {
			t.Errorf("%v: %s: %v samples and %d kills, want %v and %d", key, resource, g.Count(), g.OOMKills(), w.Count(), w.OOMKills())
		}
		for q := 0.0; q <= 1; q += 0.1 {
			must.Equal(t, g.Quantile(q), w.Quantile(q), "%v: %s at %v", key, resource, q)
		}
	}
}

// hours is a day at the usual intervals, with what is hard to tell apart.
func hours() prometheus.History {
	long := prometheus.Span{From: ago(26 * time.Hour), To: now.Add(time.Hour)}
	change := ago(10*time.Hour + 17*time.Second)
	h := prometheus.History{
		Every: time.Minute,
		Gaps:  []prometheus.Span{{From: ago(8 * time.Hour), To: ago(7*time.Hour + 20*time.Minute)}},
		Containers: []prometheus.Container{
			// The second pod of this name follows at once, as a StatefulSet's does.
			{Span: prometheus.Span{From: long.From, To: change}, Namespace: "data", Pod: "db-0", Name: "db", Image: "postgres:15", CPU: prometheus.Always(3), Memory: prometheus.Always(3000 * mib)},
			{Span: prometheus.Span{From: change.Add(2 * time.Second), To: long.To}, Namespace: "data", Pod: "db-0", Name: "db", Image: "postgres:16", CPU: prometheus.Always(0.1), Memory: prometheus.Always(100 * mib)},
			// The same with an image of another name.
			{Span: prometheus.Span{From: ago(13 * time.Hour), To: change}, Namespace: "data", Pod: "swap-0", Name: "swap", Image: "alpha:1", CPU: prometheus.Always(4), Memory: prometheus.Always(4000 * mib)},
			{Span: prometheus.Span{From: change.Add(2 * time.Second), To: ago(9 * time.Hour)}, Namespace: "data", Pod: "swap-0", Name: "swap", Image: "beta:1", CPU: prometheus.Always(0.2), Memory: prometheus.Always(200 * mib)},
			// Beside it the same that has not changed.
			{Span: long, Namespace: "data", Pod: "db-1", Name: "db", Image: "mysql:9", CPU: daily(1, 2), Memory: daily(100*mib, 110*mib)},
			// Killed for want of memory: twice, then it ends for another reason.
			{Span: long, Namespace: "data", Pod: "hungry", Name: "hungry", Image: "hungry:1", CPU: prometheus.Always(0.5), Memory: daily(100*mib, 200*mib), Restarts: []prometheus.Restart{
				{At: ago(20*time.Hour + 5*time.Second), Reason: "OOMKilled"}, {At: ago(4*time.Hour + 5*time.Second), Reason: "OOMKilled"}, {At: ago(3*time.Hour + 5*time.Second), Reason: "Error"},
			}},
			// Of yesterday.
			{Span: prometheus.Span{From: long.From, To: ago(16 * time.Hour)}, Namespace: "data", Pod: "gone", Name: "gone", Image: "gone:1", CPU: prometheus.Always(1), Memory: prometheus.Always(mib)},
			// A Job that nobody starts again, and one that was killed long ago and is kept.
			{Span: prometheus.Span{From: ago(6 * time.Hour), To: ago(5*time.Hour + 13*time.Second)}, Namespace: "jobs", Pod: "job-x", Name: "job", Image: "job:1", CPU: prometheus.Always(0.5), Memory: prometheus.Always(50 * mib), Ended: "OOMKilled", Kept: 3 * time.Hour},
			{Span: prometheus.Span{From: ago(6 * time.Hour), To: ago(5*time.Hour + 13*time.Second)}, Namespace: "jobs", Pod: "job-y", Name: "job", Image: "job:2", CPU: prometheus.Always(0.5), Memory: prometheus.Always(50 * mib), Ended: "Completed", Kept: 3 * time.Hour},
			// An init container that is killed until it fits.
			{Span: prometheus.Span{From: ago(6 * time.Hour), To: ago(5 * time.Hour)}, Namespace: "jobs", Pod: "job-z", Name: "prepare", Image: "prepare:1", Init: true, CPU: prometheus.Always(0.5), Memory: prometheus.Always(50 * mib), Restarts: []prometheus.Restart{
				{At: ago(5*time.Hour + 50*time.Minute), Reason: "OOMKilled"}, {At: ago(5*time.Hour + 40*time.Minute), Reason: "OOMKilled"},
			}},
		},
	}
	// cAdvisor has the pod as a whole, and what holds its network, too.
	var extra strings.Builder
	for t := ago(5 * time.Hour).Truncate(time.Minute); t.Before(now); t = t.Add(time.Minute) {
		for _, container := range []string{"", "POD"} {
			labels := fmt.Sprintf(`{namespace="data",pod="db-1",container=%q}`, container)
			fmt.Fprintf(&extra, "container_memory_working_set_bytes%s 1e12 %d\n", labels, t.Unix())
			fmt.Fprintf(&extra, "container_cpu_usage_seconds_total%s %d %d\n", labels, 1000*t.Unix(), t.Unix())
		}
	}
	h.Extra = extra.String()
	return h
}

func TestHours(t *testing.T) {
	t.Parallel()
	images := map[string]int{"gone:1": 0, "alpha:1": 0, "beta:1": 0, "postgres:15": 0, "postgres:16": 0, "mysql:9": 0, "hungry:1": 2, "job:1": 1, "job:2": 0, "prepare:1": 2}
	for name, vary := range map[string]func(*prometheus.History){
		"plain":                  func(*prometheus.History) {},
		"a series for each core": func(h *prometheus.History) { h.Cores = 4 },
		"two replicas of each":   func(h *prometheus.History) { h.KubeStateMetrics, h.Replicas = 2, 2 },
		"without uid":            func(h *prometheus.History) { h.Without = []string{"uid"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hours()
			vary(&h)
			o := options(start(t, h), h)
			o.Window = day
			store := refreshed(t, o, now)
			for spec, kills := range images {
				check(t, store, ago(30*day), estimate.Key{Image: image(t, spec)}, expect(h, o, now, is(spec)), kills)
			}
			only := o
			only.Images = []estimate.Image{image(t, "postgres:16"), image(t, "beta:1")}
			some := refreshed(t, only, now)
			for _, image := range only.Images {
				same(t, some, store, estimate.Key{Image: image.AnyVersion()})
			}
			only.Images, only.Namespaces, only.ByContainer = nil, []string{"jobs", "nothing-there"}, true
			one := refreshed(t, only, now)
			if keys := one.Keys(); len(keys) != 3 {
				t.Errorf("of one namespace it has the keys %v", keys)
			}
			check(t, one, ago(30*day), estimate.Key{Namespace: "jobs", Image: image(t, "job:2"), Role: "job"}, expect(h, o, now, is("job:2")), 0)
		})
	}
}

// TestResets has counters that start anew in their series.
func TestResets(t *testing.T) {
	t.Parallel()
	h := prometheus.History{Every: time.Minute, Without: []string{"id", "name"}, Containers: []prometheus.Container{
		{Span: prometheus.Span{From: ago(5 * time.Hour), To: now}, Namespace: "a", Pod: "p", Name: "c", Image: "c:1", CPU: prometheus.Always(0.25), Memory: prometheus.Always(9 * mib)},
	}}
	for i := range 20 {
		h.Containers[0].Restarts = append(h.Containers[0].Restarts, prometheus.Restart{At: ago(time.Duration(240-i*10) * time.Minute), Reason: "Error"})
	}
	o := options(start(t, h), h)
	o.Window = 4 * time.Hour
	got := refreshed(t, o, now).Samples(time.Time{}, estimate.Key{Image: image(t, "c:1")}, corev1.ResourceCPU)
	if got == nil || got.Count() < 200 {
		t.Fatalf("samples: %v", got)
	}
	for _, q := range []float64{0.2, 0.5, 0.9, 1} {
		if value := got.Quantile(q); math.Abs(value-0.25) > 0.0026 {
			t.Errorf("at %v: %v", q, value)
		}
	}
}
