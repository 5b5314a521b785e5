package estimate_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const (
	cpu    = corev1.ResourceCPU
	memory = corev1.ResourceMemory
	day    = 24 * time.Hour
	mi     = 1 << 20
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// key is what runs in a namespace.
func key(t *testing.T, namespace, image string) estimate.Key {
	t.Helper()
	parsed := must.Get(estimate.ParseImage(image))(t)
	return estimate.Key{Namespace: namespace, Image: parsed}
}

// TestLadder goes through the proposal, a sentence at a time. Each container uses the same
// all the time, a different amount in each place, so the request says where it is from.
func TestLadder(t *testing.T) {
	used := func(namespace, image string, ago time.Duration, n int, cores float64) build.Used {
		return build.Used{Of: key(t, namespace, image), Resource: cpu, At: now.Add(-ago), Values: build.Evenly(n, cores, cores)}
	}
	type usage = build.Usage
	for _, tt := range []struct {
		says   string
		usage  build.Usage
		change func(*estimate.Ladder)
		want   string // the JSON; empty: nothing is estimated
	}{
		// "InitialResources will set Request for both cpu/mem as the 90th percentile of the
		// first (in the following order) set of samples defined in the following way:"

		// "7 days same image:tag, assuming there is at least 60 samples (1 hour)"
		{"60 samples of image:tag in 7 days", usage{used("shop", "nginx:1.25", 6*day, 60, 0.1)}, nil,
			`{"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`},
		{"what is older than 7 days does not count if there are 60 newer samples",
			usage{used("shop", "nginx:1.25", 6*day, 60, 0.1), used("shop", "nginx:1.25", 8*day, 1000, 2)},
			nil, `{"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`},
		{"samples of just 7 days ago", usage{used("shop", "nginx:1.25", 7*day, 60, 0.1)}, nil,
			`{"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`},
		{"other tags do not count, however many samples they have", usage{used("shop", "nginx:1.25", day, 60, 0.1), used("shop", "nginx:1.26", day, 1000, 2)}, nil,
			`{"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`},

		// "30 days same image:tag, assuming there is at least 60 samples (1 hour)"
		{"59 samples in 7 days, and one more in 30", usage{used("shop", "nginx:1.25", 6*day, 59, 0.1), used("shop", "nginx:1.25", 8*day, 1, 0.1)}, nil,
			`{"request":"100m","from":"image:tag","window":"30d","percentile":90,"samples":60,"scope":"namespace"}`},
		{"all samples of 30 days count, not only the older ones", usage{used("shop", "nginx:1.25", 6*day, 59, 0.1), used("shop", "nginx:1.25", 8*day, 6, 2)}, nil,
			`{"request":"100m","from":"image:tag","window":"30d","percentile":90,"samples":65,"scope":"namespace"}`},
		{"60 samples before 7 days", usage{used("shop", "nginx:1.25", 29*day, 60, 0.2), used("shop", "nginx:1.26", day, 1000, 2)}, nil,
			`{"request":"200m","from":"image:tag","window":"30d","percentile":90,"samples":60,"scope":"namespace"}`},

		// "30 days same image, assuming there is at least 1 sample"
		{"59 samples of the tag in 30 days, and those of other tags",
			usage{used("shop", "nginx:1.25", 6*day, 59, 0.1), used("shop", "nginx:1.26", 8*day, 541, 2)},
			nil, `{"request":"2","from":"image","window":"30d","percentile":90,"samples":600,"scope":"namespace"}`},
		{"59 samples of the tag and no others", usage{used("shop", "nginx:1.25", 6*day, 59, 0.1)}, nil,
			`{"request":"100m","from":"image","window":"30d","percentile":90,"samples":59,"scope":"namespace"}`},
		{"one sample of another tag", usage{used("shop", "nginx:1.26", 29*day, 1, 0.3)}, nil,
			`{"request":"300m","from":"image","window":"30d","percentile":90,"samples":1,"scope":"namespace"}`},
		{"the tag's samples are older than 30 days, one of another tag is not",
			usage{used("shop", "nginx:1.25", 31*day, 1000, 2), used("shop", "nginx:1.26", 30*day, 1, 0.3)},
			nil, `{"request":"300m","from":"image","window":"30d","percentile":90,"samples":1,"scope":"namespace"}`},

		// "If there is still no data the default value will be set by LimitRanger."
		{"nothing is known", nil, nil, ""},
		{"another image is", usage{used("shop", "redis:7", day, 1000, 2), used("shop", "example.com/library/nginx:1.25", day, 1000, 2)}, nil, ""},
		{"all is older than 30 days", usage{used("shop", "nginx:1.25", 30*day+time.Second, 1000, 2)}, nil, ""},

		// "Same parameters will be configurable with appropriate flags."
		{"other rungs, another percentile",
			usage{used("shop", "nginx:1.25", time.Hour, 9, 0.1), used("shop", "nginx:1.25", 20*time.Hour, 1, 0.2)},
			func(l *estimate.Ladder) {
				l.Percentile, l.Rungs = 99.5, []estimate.Rung{rung(t, "12h:tag:10"), rung(t, "1d:tag:10"), rung(t, "2d:image:1")}
			},
			`{"request":"100m","from":"image:tag","window":"1d","percentile":99.5,"samples":10,"scope":"namespace"}`},

		// "add other features to the model like namespace": the whole ladder in the
		// container's own namespace, then all of it in the cluster.
		{"the namespace's own samples count first", usage{used("shop", "nginx:1.25", day, 60, 0.1), used("bank", "nginx:1.25", day, 1000, 2)}, nil,
			`{"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`},
		{"the namespace's last rung comes before the cluster's first",
			usage{used("shop", "nginx:1.24", 29*day, 1, 0.1), used("bank", "nginx:1.25", day, 1000, 2)},
			nil, `{"request":"100m","from":"image","window":"30d","percentile":90,"samples":1,"scope":"namespace"}`},
		{"7 days of the cluster", usage{used("bank", "nginx:1.25", day, 30, 0.2), used("farm", "nginx:1.25", day, 30, 0.2)}, nil,
			`{"request":"200m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"cluster"}`},
		{"30 days of the cluster", usage{used("bank", "nginx:1.25", day, 30, 0.2), used("farm", "nginx:1.25", 8*day, 30, 0.2)}, nil,
			`{"request":"200m","from":"image:tag","window":"30d","percentile":90,"samples":60,"scope":"cluster"}`},
		{"the image in the cluster", usage{used("bank", "nginx:1.25", day, 30, 0.2), used("farm", "nginx:1.26", 8*day, 29, 0.2)}, nil,
			`{"request":"200m","from":"image","window":"30d","percentile":90,"samples":59,"scope":"cluster"}`},
		{"without cluster-wide estimates, other namespaces tell nothing",
			usage{used("bank", "nginx:1.25", day, 1000, 2)},
			func(l *estimate.Ladder) { l.Scopes = []estimate.Scope{estimate.InNamespace} }, ""},

		// An idle container.
		{"at least 10m", usage{used("shop", "nginx:1.25", day, 60, 0.0002)},
			nil, `{"request":"10m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`},
	} {
		t.Run(tt.says, func(t *testing.T) {
			ladder := estimate.Default()
			if tt.change != nil {
				tt.change(&ladder)
			}
			check(t, ladder, tt.usage, cpu, tt.want)
		})
	}
}

// check asks for what nginx:1.25 would request in the namespace shop.
func check(t *testing.T, ladder estimate.Ladder, usage build.Usage, resource corev1.ResourceName, want string) {
	t.Helper()
	e, ok := ladder.Estimate(usage, key(t, "shop", "nginx:1.25"), resource, now)
	if !ok {
		must.Equal(t, want, "", "what is wanted where nothing is estimated")
		return
	}
	got, err := json.Marshal(e)
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	must.Equal(t, e.Value(), e.Request.String()+" "+want, "the value of its entry")
}

// TestEachResourceByItself: "InitialResources will set only request (independently for
// each resource type: cpu, memory) field".
func TestEachResourceByItself(t *testing.T) {
	nginx := key(t, "shop", "nginx:1.25")
	usage := build.Usage{
		{Of: nginx, Resource: cpu, At: now.Add(-day), Values: build.Evenly(60, 0.1, 0.1)},
		{Of: nginx, Resource: memory, At: now.Add(-8 * day), Values: build.Evenly(60, 200*mi, 200*mi)},
	}
	check(t, estimate.Default(), usage, cpu, `{"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`)
	check(t, estimate.Default(), usage, memory, `{"request":"200Mi","from":"image:tag","window":"30d","percentile":90,"samples":60,"scope":"namespace"}`)
	check(t, estimate.Default(), usage[:1], memory, "")
}

// TestOOMKills: "observe OOM and then react to it by increasing estimation".
func TestOOMKills(t *testing.T) {
	nginx := key(t, "shop", "nginx:1.25")
	killed := func(ago time.Duration, bytes float64) build.Used {
		return build.Used{Of: nginx, Resource: memory, At: now.Add(-ago), Values: build.Evenly(60, bytes, bytes), OOMKills: 2}
	}
	for says, tt := range map[string]struct {
		usage build.Usage
		want  string
	}{
		"by 100 MiB": {build.Usage{killed(day, 200*mi)},
			`{"request":"300Mi","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace","oomKills":2}`},
		"20 % of 500 MiB are as much": {build.Usage{killed(day, 500*mi)},
			`{"request":"600Mi","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace","oomKills":2}`},
		"by 20 %": {build.Usage{killed(day, 1000*mi)},
			`{"request":"1200Mi","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace","oomKills":2}`},
		"not for those before the rung's window": {
			build.Usage{killed(8*day, 200*mi), {Of: nginx, Resource: memory, At: now.Add(-day), Values: build.Evenly(60, 200*mi, 200*mi)}},
			`{"request":"200Mi","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`},
	} {
		t.Run(says, func(t *testing.T) { check(t, estimate.Default(), tt.usage, memory, tt.want) })
	}
	t.Run("cpu is not raised", func(t *testing.T) {
		usage := build.Usage{{Of: nginx, Resource: cpu, At: now, Values: build.Evenly(60, 0.1, 0.1), OOMKills: 2}}
		check(t, estimate.Default(), usage, cpu, `{"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`)
	})
}

// TestRounding is an example: an hour in which the use rises from 1 to 60 thousandths of a
// core, and from 1.5 to 60.5 MiB. Of 60 samples the 90th percentile is the 54th, 54m and
// 54.5 MiB: nine tenths are no more than that. Requested are 54m and 55 MiB, since what is
// not whole is rounded up.
func TestRounding(t *testing.T) {
	nginx := key(t, "shop", "nginx:1.25")
	for name, tt := range map[string]struct {
		resource corev1.ResourceName
		values   []float64
		want     string
	}{
		"cpu":                         {cpu, build.Evenly(60, 0.001, 0.060), "54m"},
		"memory":                      {memory, build.Evenly(60, 1.5*mi, 60.5*mi), "55Mi"},
		"a little more than 54m":      {cpu, build.Evenly(60, 0.05401, 0.05401), "55m"},
		"a byte more than 55 MiB":     {memory, build.Evenly(60, 55*mi+1, 55*mi+1), "56Mi"},
		"0.07 is no 70.00000000001":   {cpu, build.Evenly(60, 0.07, 0.07), "70m"},
		"whole cores":                 {cpu, build.Evenly(60, 2, 2), "2"},
		"whole gibibytes":             {memory, build.Evenly(60, 1023.5*mi, 1023.5*mi), "1Gi"},
		"nothing used is not nothing": {memory, build.Evenly(60, 0, 0), "1Mi"},
	} {
		usage := build.Usage{{Of: nginx, Resource: tt.resource, At: now, Values: tt.values}}
		if e, ok := estimate.Default().Estimate(usage, nginx, tt.resource, now); !ok || e.Request.String() != tt.want {
			t.Errorf("%s: %s, %t; want %s", name, &e.Request, ok, tt.want)
		}
	}
}

func rung(t *testing.T, s string) estimate.Rung {
	t.Helper()
	return must.Get(estimate.ParseRung(s))(t)
}

// TestRungs: the flags of the proposal's ladder, and what is none.
func TestRungs(t *testing.T) {
	if want := []estimate.Rung{rung(t, "7d:tag:60"), rung(t, "30d:tag:60"), rung(t, "30d:image:1")}; !slices.Equal(estimate.Default().Rungs, want) {
		t.Errorf("the default is %v, want %v", estimate.Default().Rungs, want)
	}
	must.Equal(t, estimate.Default().Longest(), 30*day, "the longest of the default")
	for s, want := range map[string]string{"1w:tag:60": "7d:tag:60", "12h:image:1": "12h:image:1", "90m:tag:1": "1h30m:tag:1", "10m:tag:1": "10m:tag:1"} {
		must.Equal(t, rung(t, s).String(), want, "how %s is written", s)
	}
	for _, s := range []string{"", "7d", "7d:tag", "7d:tag:60:1", "7d:digest:60", "0d:tag:60", "-7d:tag:60", "7:tag:60", "7d:tag:0", "7d:tag:-1", "7d:tag:many", "1.5d:tag:60"} {
		if r, err := estimate.ParseRung(s); err == nil {
			t.Errorf("%q is read as %s", s, r)
		}
	}
	var e estimate.Estimate
	if err := json.Unmarshal([]byte(`{"request":"1","window":"30d"}`), &e); err != nil || e.Window != estimate.Window(30*day) {
		t.Errorf("%+v, %v", e, err)
	}
}
