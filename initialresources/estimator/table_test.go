package estimator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

var now = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

// usage is a history that is there as a whole.
type usage struct {
	build.Usage

	asked int
}

func (u *usage) Refresh(context.Context, time.Time) error { return nil }
func (u *usage) Complete() bool                           { return true }
func (u *usage) Tried() bool                              { return true }
func (u *usage) Missing() time.Duration                   { return 0 }
func (u *usage) Until() time.Time                         { return now }

func (u *usage) Keys() []estimate.Key {
	seen := map[estimate.Key]bool{}
	for _, used := range u.Usage {
		seen[used.Of] = true
	}
	return slices.Collect(maps.Keys(seen))
}

func (u *usage) Samples(from time.Time, of estimate.Key, resource corev1.ResourceName) estimate.Samples {
	u.asked++
	return u.Usage.Samples(from, of, resource)
}

// ran is a container that has used so much for two hours.
func (u *usage) ran(t *testing.T, namespace, image string, cpu, mebibytes float64) {
	t.Helper()
	of := must.Get(estimate.ParseImage(image))(t)
	for resource, value := range map[corev1.ResourceName]float64{corev1.ResourceCPU: cpu, corev1.ResourceMemory: mebibytes * (1 << 20)} {
		u.Usage = append(u.Usage, build.Used{
			Of: estimate.Key{Namespace: namespace, Image: of}, Resource: resource, At: now.Add(-time.Hour), Values: build.Evenly(120, value, value),
		})
	}
}

const (
	nginx = "docker.io-_library-_nginx"
	mysql = "docker.io-_library-_mysql"
)

func ladder(scopes ...estimate.Scope) estimate.Ladder {
	l := estimate.Default()
	l.Scopes = scopes
	return l
}

func TestBook(t *testing.T) {
	u := &usage{}
	u.ran(t, "shop", "nginx:1.25", 0.2, 64)
	u.ran(t, "bank", "nginx:1.26", 0.4, 128)
	u.ran(t, "bank", "mysql:8", 1, 512)

	own := newBook(u, ladder(estimate.InNamespace), 10, now)
	must.Equal(t, own.images, 2, "images that are known")
	data, leftOut := own.table("shop")
	if want := []string{nginx + ".cpu", nginx + ".memory", nginx + "_-1.25.cpu", nginx + "_-1.25.memory"}; leftOut != 0 || !slices.Equal(slices.Sorted(maps.Keys(data)), want) {
		t.Errorf("a namespace by itself is told %v", data)
	}
	if data, _ := own.table("new"); len(data) > 0 {
		t.Errorf("a new namespace is told %v", data)
	}

	all := newBook(u, ladder(estimate.InNamespace, estimate.InCluster), 1, now)
	if data, _ = all.table("new"); !strings.HasPrefix(data[nginx+"_-1.26.cpu"], "400m ") || data[mysql+"_-8.cpu"] != "" {
		t.Errorf("a new namespace is told %v, want what runs in most of the others", data)
	}
	asked := u.asked
	if again, _ := all.table("newer"); !maps.Equal(again, data) || u.asked-asked > len(data)*10 {
		t.Errorf("another new namespace is told %v", again)
	}
	for _, key := range all.everywhere {
		for _, r := range estimate.Resources {
			before := u.asked
			all.source.Samples(now.Add(-7*24*time.Hour), key, r)
			must.Equal(t, u.asked, before, "how often it has asked, %v included", key)
		}
	}
	if data, _ = all.table("shop"); !strings.Contains(data[nginx+"_-1.25.cpu"], `"scope":"namespace"`) {
		t.Errorf("what runs in the namespace itself does not come first: %v", data)
	}
}

// TestBookOfDefaults: of an image that nobody has run, what the file of defaults says is published.
func TestBookOfDefaults(t *testing.T) {
	u, l := &usage{}, ladder(estimate.InNamespace)
	u.ran(t, "shop", "nginx:1.25", 0.2, 64)
	l.Defaults = must.Get(estimate.ParseDefaults([]byte("valkey/valkey: {cpu: 70m}\nnginx: {cpu: 5}\n")))(t)
	data, _ := newBook(u, l, 10, now).table("shop")
	if !strings.HasPrefix(data["docker.io-_valkey-_valkey.cpu"], "70m ") || !strings.HasPrefix(data[nginx+"_-1.25.cpu"], "200m ") || !strings.HasPrefix(data[nginx+".cpu"], "200m ") {
		t.Errorf("published is %v", data)
	}
}

// TestBookFull keeps what runs most.
func TestBookFull(t *testing.T) {
	u := &usage{}
	for i := range 800 {
		u.ran(t, "shop", fmt.Sprintf("app:v%d", i), 0.1, 10)
	}
	u.ran(t, "shop", "app:v799", 0.1, 10) // twice as much
	data, leftOut := newBook(u, ladder(estimate.InNamespace), 10, now).table("shop")
	if leftOut == 0 || data["docker.io-_library-_app_-v799.cpu"] == "" {
		t.Errorf("%d entries are left out, and one of what runs most is %q", leftOut, data["docker.io-_library-_app_-v799.cpu"])
	}
}

// TestSettled: some more samples are no reason to write, unless they are many, or say something else.
func TestSettled(t *testing.T) {
	const key = nginx + ".cpu"
	entry := func(cpu string, samples int) string {
		return fmt.Sprintf(`%s {"request":%q,"from":"image","window":"7d","percentile":90,"samples":%d,"scope":"namespace"}`, cpu, cpu, samples)
	}
	for _, tt := range []struct{ before, now, want string }{
		{entry("100m", 80), entry("100m", 80), entry("100m", 80)},
		{entry("100m", 80), entry("100m", 90), entry("100m", 80)},
		{entry("100m", 80), entry("100m", 70), entry("100m", 80)},
		{entry("100m", 80), entry("100m", 91), entry("100m", 91)},
		{entry("100m", 80), entry("100m", 69), entry("100m", 69)},
		{entry("100m", 80), entry("101m", 81), entry("101m", 81)},
		{entry("100m", 1), entry("100m", 2), entry("100m", 2)},
		{strings.Replace(entry("100m", 80), "7d", "30d", 1), entry("100m", 81), entry("100m", 81)},
		{strings.Replace(entry("100m", 80), "100m", "200m", 1), entry("100m", 81), entry("100m", 81)}, // somebody's
		{"", entry("100m", 80), entry("100m", 80)},
		{"nonsense", entry("100m", 80), entry("100m", 80)},
	} {
		must.Equal(t, settled(key, tt.before, tt.now), tt.want, "what comes after %s", tt.before)
	}
	w := newWorld(t, Options{}) // which has 120 samples
	w.book = newBook(w.past, w.options.Ladder, 0, now)
	stored := &corev1.ConfigMap{Data: map[string]string{key: strings.Replace(entry("200m", 119), "7d", "30d", 1)}}
	must.Equal(t, w.data("shop", stored, &tableState{})[key], stored.Data[key], "what is published")
}

func TestClampedAndLookUp(t *testing.T) {
	u := &usage{}
	u.ran(t, "shop", "nginx:1.25", 0.2, 64)
	table, _ := newBook(u, ladder(estimate.InNamespace), 10, now).table("shop")
	table["room.cpu"], table["foreign.cpu"], table["roles"] = "8", "many", "container"
	ranges := []*corev1.LimitRange{build.Parsed[corev1.LimitRange](t, "{spec: {limits: [{type: Container, max: {cpu: 150m}}]}}")}
	within := clamped(table, estimate.NewBounds(ranges, nil))
	if again := clamped(within, estimate.NewBounds(ranges, nil)); len(within) != 4 || !maps.Equal(within, again) {
		t.Errorf("within bounds it is %v, and then %v", within, again)
	}
	key := func(image string) estimate.Key {
		of := must.Get(estimate.ParseImage(image))(t)
		return estimate.Key{Image: of}
	}
	for image, want := range map[string]string{"nginx:1.25": "150m", "library/nginx:1.27": "150m", "redis": ""} {
		e, known := lookUp(within, key(image), corev1.ResourceCPU)
		if known != (want != "") || known && (e.Request.Cmp(resource.MustParse(want)) != 0 || e.Capped != estimate.CappedByLimitRange) {
			t.Errorf("of %s is found %+v, want %q", image, e, want)
		}
	}
}
