//go:build around

package prometheus_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/initialresources/history"
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
	server, err := prometheus.StartWith(t.Context(), t.TempDir(), h, flags...)
	if err != nil {
		t.Fatal(err)
	}
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
	store, err := history.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// refreshed is a store that has read all.
func refreshed(t testing.TB, o history.Options, now time.Time) *history.Store {
	t.Helper()
	store := newStore(t, o)
	if err := store.Refresh(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if want := now.Add(-o.Lag).Truncate(o.Resolution); !store.Complete() || !store.Until().Equal(want) {
		t.Fatalf("complete: %v, until %s, want %s", store.Complete(), store.Until(), want)
	}
	return store
}

func image(t testing.TB, s string) estimate.Image {
	t.Helper()
	image, err := estimate.ParseImage(s)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// daily goes up and down with the hours, and jumps each minute.
func daily(from, to float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		hours := float64(t.Unix()%86400) / 3600
		noise := float64(t.Unix()/60*7919%97) / 97
		return from + (to-from)*(0.8*(1-math.Cos(hours*math.Pi/12))/2+0.2*noise)
	}
}

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// month is thirty days and more of what clusters have.
func month() prometheus.History {
	long := prometheus.Span{From: ago(31 * day), To: now.Add(time.Hour)}
	return prometheus.History{
		Every: 5 * time.Minute,
		Gaps:  []prometheus.Span{{From: ago(12*day + 3*time.Hour), To: ago(12 * day)}, {From: ago(2 * time.Hour), To: ago(100 * time.Minute)}},
		Containers: []prometheus.Container{
			// Two tenants with one image, one of them with two pods, and restarts.
			{Span: long, Namespace: "shop", Pod: "web-a", Name: "web", Image: "nginx:1.25", CPU: daily(0.02, 0.9), Memory: daily(20*mib, 90*mib), Restarts: []prometheus.Restart{
				{At: ago(20 * day), Reason: "Error"}, {At: ago(5 * day), Reason: "Completed"}, {At: ago(5*day - 10*time.Minute), Reason: "Error"},
			}},
			{Span: prometheus.Span{From: ago(9*day + 7*time.Minute), To: ago(2 * day)}, Namespace: "shop", Pod: "web-b", Name: "web", Image: "docker.io/library/nginx:1.25", CPU: daily(0.5, 1.9), Memory: daily(200*mib, 900*mib)},
			{Span: long, Namespace: "bank", Pod: "web-a", Name: "front", Image: "docker.io/nginx:1.25", CPU: prometheus.Always(0.003), Memory: prometheus.Always(7 * mib)},
			// Registries with a port, tags and digests.
			{Span: long, Namespace: "shop", Pod: "app-1", Name: "app", Image: "registry.example:5000/team/app:2", CPU: daily(1, 3), Memory: daily(300*mib, 500*mib)},
			{Span: long, Namespace: "shop", Pod: "app-2", Name: "app", Image: "registry.example:5000/team/app" + digest, CPU: daily(2, 3), Memory: daily(700*mib, 800*mib)},
			{Span: long, Namespace: "shop", Pod: "app-3", Name: "app", Image: "registry.example:5000/team/app", CPU: daily(4, 5), Memory: daily(70*mib, 80*mib)},
			// An init container, and what runtimes call images.
			{Span: prometheus.Span{From: ago(3 * day), To: ago(3*day - time.Hour)}, Namespace: "shop", Pod: "app-1", Name: "copy", Image: "copy:1", Init: true, Runtime: "sha256:" + strings.Repeat("0", 64), CPU: prometheus.Always(0.1), Memory: prometheus.Always(9 * mib)},
			{Span: long, Namespace: "old", Pod: "old", Name: "old", Image: "docker.io/library/old:1", Unspecified: true, CPU: prometheus.Always(0.2), Memory: prometheus.Always(10 * mib)},
			{Span: long, Namespace: "old", Pod: "nameless", Name: "nameless", Image: "old:1", Runtime: "sha256:" + strings.Repeat("0", 64), Unspecified: true, CPU: prometheus.Always(9), Memory: prometheus.Always(10 * mib)},
		},
	}
}

// is selects the containers of an image, as its spec has it.
func is(namespace string, images ...string) func(prometheus.Container) bool {
	return func(c prometheus.Container) bool {
		if namespace != "" && c.Namespace != namespace {
			return false
		}
		for _, image := range images {
			if c.Image == image {
				return c.Pod != "nameless"
			}
		}
		return false
	}
}

func TestMonth(t *testing.T) {
	t.Parallel()
	h := month()
	server := start(t, h)
	o := options(server, h)
	store := refreshed(t, o, now)
	all := []string{"nginx:1.25", "docker.io/library/nginx:1.25", "docker.io/nginx:1.25"}
	for _, c := range []struct {
		namespace, image string
		days             int
		want             []string
	}{
		{"", "nginx:1.25", 30, all},
		{"", "nginx", 30, all},
		{"shop", "nginx:1.25", 30, all},
		{"bank", "nginx:1.25", 30, all},
		{"shop", "nginx:1.25", 7, all},
		{"shop", "registry.example:5000/team/app:2", 30, []string{"registry.example:5000/team/app:2"}},
		{"shop", "registry.example:5000/team/app" + digest, 30, []string{"registry.example:5000/team/app" + digest}},
		{"shop", "registry.example:5000/team/app:latest", 30, []string{"registry.example:5000/team/app"}},
		{"shop", "registry.example:5000/team/app", 30, []string{"registry.example:5000/team/app", "registry.example:5000/team/app" + digest, "registry.example:5000/team/app:2"}},
		{"", "copy:1", 30, []string{"copy:1"}},
		{"", "old", 30, []string{"docker.io/library/old:1"}},
	} {
		key := estimate.Key{Namespace: c.namespace, Image: image(t, c.image)}
		if !strings.HasSuffix(c.image, ":latest") && key.Image.Version == "latest" {
			key = key.AnyVersion()
		}
		part := o
		part.Window = time.Duration(c.days) * day
		check(t, store, now.Add(-o.Lag).Add(-part.Window), key, expect(h, part, now, is(c.namespace, c.want...)), 0)
	}
	if got := store.Samples(ago(30*day), estimate.Key{Image: image(t, "never:1")}, corev1.ResourceCPU); got != nil {
		t.Errorf("samples of an image that never ran: %v", got)
	}
	if got := store.Samples(ago(day), estimate.Key{Image: image(t, "copy:1")}, corev1.ResourceCPU); got != nil {
		t.Errorf("samples of the last day of what ran three days ago: %v", got)
	}
	if keys := store.Keys(); len(keys) != 7 {
		t.Errorf("keys: %v", keys)
	}

	t.Run("one image", func(t *testing.T) {
		only := o
		asked := 0
		only.Images = []estimate.Image{image(t, "nginx")}
		only.Observe = func(string, time.Duration, error) { asked++ }
		one := refreshed(t, only, now)
		same(t, one, store, estimate.Key{Image: image(t, "nginx").AnyVersion()})
		if keys := one.Keys(); len(keys) != 2 {
			t.Errorf("keys: %v", keys)
		}
		if asked > 31*5+10 {
			t.Errorf("%d queries", asked)
		}
		only.Images = []estimate.Image{image(t, "old"), image(t, "registry.example:5000/team/app")}
		two := refreshed(t, only, now)
		if keys := two.Keys(); len(keys) != 4 {
			t.Errorf("keys: %v", keys)
		}
		for _, key := range two.Keys() {
			same(t, two, store, key)
		}
		only.Images = []estimate.Image{image(t, "never")}
		if keys := refreshed(t, only, now).Keys(); len(keys) != 0 {
			t.Errorf("keys: %v", keys)
		}
	})
	t.Run("one namespace", func(t *testing.T) {
		only := o
		only.Namespaces = []string{"bank", "nothing-there"}
		one := refreshed(t, only, now)
		if keys := one.Keys(); len(keys) != 1 {
			t.Errorf("keys: %v", keys)
		}
		same(t, one, store, estimate.Key{Namespace: "bank", Image: image(t, "nginx:1.25")})
	})
	t.Run("by container", func(t *testing.T) {
		roles := o
		roles.ByContainer = true
		store := refreshed(t, roles, now)
		check(t, store, ago(30*day), estimate.Key{Image: image(t, "nginx:1.25"), Role: "front"}, expect(h, o, now, is("bank", all...)), 0)
	})
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
			if g.Quantile(q) != w.Quantile(q) {
				t.Errorf("%v: %s at %v: %v, want %v", key, resource, q, g.Quantile(q), w.Quantile(q))
			}
		}
	}
}

// hours is a day at the usual intervals, with what is hard to tell apart.
func hours() prometheus.History {
	long := prometheus.Span{From: ago(26 * time.Hour), To: now.Add(time.Hour)}
	change := ago(10*time.Hour + 17*time.Second)
	h := prometheus.History{
		Every: time.Minute,
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
				check(t, store, ago(30*day), estimate.Key{Image: image(t, spec)}, expect(h, o, now, is("", spec)), kills)
			}
			only := o
			only.Images = []estimate.Image{image(t, "postgres:16"), image(t, "beta:1")}
			some := refreshed(t, only, now)
			for _, image := range only.Images {
				same(t, some, store, estimate.Key{Image: image.AnyVersion()})
			}
		})
	}
}

// TestOutage has Prometheus end in the middle of a refresh, and stay away for a while.
func TestOutage(t *testing.T) {
	t.Parallel()
	h := hours()
	server := start(t, h)
	o := options(server, h)
	o.Window = 12 * time.Hour
	asked := 0
	o.Observe = func(string, time.Duration, error) {
		if asked++; asked == 14 {
			server.Pause()
		}
	}
	store := newStore(t, o)
	if err := store.Refresh(t.Context(), ago(5*time.Hour)); err == nil || store.Complete() {
		t.Fatalf("refreshed without Prometheus: %v, complete: %v", err, store.Complete())
	}
	until := store.Until()
	if want := ago(5*time.Hour + o.Lag); !until.Equal(want) {
		t.Errorf("until %s, want %s: the newest is read first", until, want)
	}
	mysql := estimate.Key{Image: image(t, "mysql:9")}
	if store.Samples(time.Time{}, mysql, corev1.ResourceCPU) == nil {
		t.Error("what was read is not there")
	}
	if err := store.Refresh(t.Context(), ago(4*time.Hour)); err == nil || !store.Until().Equal(until) {
		t.Errorf("refreshed without Prometheus: %v, until %s", err, store.Until())
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, later := range []time.Duration{4 * time.Hour, 4*time.Hour - 5*time.Minute, 4*time.Hour - 10*time.Minute, 0} {
		if err := store.Refresh(t.Context(), ago(later)); err != nil {
			t.Fatal(err)
		}
		if !store.Complete() {
			t.Error("not complete")
		}
		if there := store.Samples(time.Time{}, estimate.Key{Image: image(t, "gone:1")}, corev1.ResourceCPU) != nil; there != (later > 0) {
			t.Errorf("with what ended %s before the end of the window: %v", 16*time.Hour-later, there)
		}
	}
	o.Observe = nil
	fresh := refreshed(t, o, now)
	if keys := fresh.Keys(); len(keys) < 5 {
		t.Errorf("keys: %v", keys)
	}
	if got, want := len(store.Keys()), len(fresh.Keys()); got != want {
		t.Errorf("%d keys, want %d: what is older is forgotten", got, want)
	}
	for _, key := range fresh.Keys() {
		same(t, store, fresh, key)
	}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newStore(t, o).Refresh(canceled, now); err == nil {
		t.Error("refreshed though nobody waits for it")
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
