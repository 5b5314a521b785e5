package estimate_test

import (
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
)

func tableUsage(t *testing.T) build.Usage {
	cores := func(namespace, image string, n int, cores float64) build.Used {
		return build.Used{Of: key(t, namespace, image), Resource: cpu, At: now.Add(-day), Values: build.Evenly(n, cores, cores)}
	}
	return build.Usage{
		cores("shop", "nginx:1.25", 60, 0.1),
		cores("shop", "nginx:1.26", 59, 0.2),
		{Of: key(t, "shop", "nginx:1.25"), Resource: memory, At: now.Add(-8 * day), Values: build.Evenly(60, 200*mi, 200*mi)},
		cores("bank", "nginx:1.26", 1000, 2),
		cores("bank", "redis:7", 60, 0.5),
		cores("bank", "redis:6", 1, 0.5),
	}
}

// TestTable writes down a namespace's table. What a pod gets from it is what the ladder
// says, also for a tag that is not in it.
func TestTable(t *testing.T) {
	bounds := estimate.NewBounds(nil, []*corev1.Node{{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{cpu: resource.MustParse("400m")}}}})
	shop := []estimate.Key{key(t, "shop", "nginx:1.26"), key(t, "shop", "nginx:1.25"), key(t, "shop", "redis:7"), key(t, "shop", "unknown:1"), key(t, "shop", "nginx:1.25")}
	why := `"percentile":90,"samples":`
	for name, tt := range map[string]struct {
		keys   []estimate.Key
		scopes []estimate.Scope
		want   map[string]string
	}{
		"of a namespace": {shop, []estimate.Scope{estimate.InNamespace}, map[string]string{
			"docker.io-_library-_nginx_-1.25.cpu":    `100m {"request":"100m","from":"image:tag","window":"7d",` + why + `60,"scope":"namespace"}`,
			"docker.io-_library-_nginx_-1.25.memory": `200Mi {"request":"200Mi","from":"image:tag","window":"30d",` + why + `60,"scope":"namespace"}`,
			"docker.io-_library-_nginx.cpu":          `200m {"request":"200m","from":"image","window":"30d",` + why + `119,"scope":"namespace"}`,
			"docker.io-_library-_nginx.memory":       `200Mi {"request":"200Mi","from":"image","window":"30d",` + why + `60,"scope":"namespace"}`,
		}},
		"of a namespace, then of the cluster": {shop, nil, map[string]string{
			"docker.io-_library-_nginx_-1.25.cpu":    `100m {"request":"100m","from":"image:tag","window":"7d",` + why + `60,"scope":"namespace"}`,
			"docker.io-_library-_nginx_-1.25.memory": `200Mi {"request":"200Mi","from":"image:tag","window":"30d",` + why + `60,"scope":"namespace"}`,
			"docker.io-_library-_nginx.cpu":          `200m {"request":"200m","from":"image","window":"30d",` + why + `119,"scope":"namespace"}`,
			"docker.io-_library-_nginx.memory":       `200Mi {"request":"200Mi","from":"image","window":"30d",` + why + `60,"scope":"namespace"}`,
			"docker.io-_library-_redis_-7.cpu":       `400m {"request":"400m","from":"image:tag","window":"7d",` + why + `60,"scope":"cluster","capped":"node"}`,
			"docker.io-_library-_redis.cpu":          `400m {"request":"400m","from":"image","window":"30d",` + why + `61,"scope":"cluster","capped":"node"}`,
		}},
		"of the cluster": {[]estimate.Key{key(t, "", "redis:6"), key(t, "", "redis:7")}, nil, map[string]string{
			"docker.io-_library-_redis_-7.cpu": `400m {"request":"400m","from":"image:tag","window":"7d",` + why + `60,"scope":"cluster","capped":"node"}`,
			"docker.io-_library-_redis.cpu":    `400m {"request":"400m","from":"image","window":"30d",` + why + `61,"scope":"cluster","capped":"node"}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ladder := estimate.Default()
			if tt.scopes != nil {
				ladder.Scopes = tt.scopes
			}
			got, leftOut := ladder.Table(tableUsage(t), tt.keys, bounds, now)
			if !maps.Equal(got, tt.want) || leftOut != 0 {
				t.Errorf("%d left out, and\n%s\nwant\n%s", leftOut, lines(got), lines(tt.want))
			}
			for _, image := range []string{"nginx:1.25", "nginx:1.26", "nginx:9", "redis:7", "redis:5", "unknown:1"} {
				for _, resource := range estimate.Resources {
					asked := key(t, tt.keys[0].Namespace, image)
					want := ""
					if e, ok := ladder.Estimate(tableUsage(t), asked, resource, now); ok {
						want = bounds.Clamp(e).Value()
					}
					found := got[asked.Entry(resource)]
					if found == "" {
						found = got[asked.AnyVersion().Entry(resource)]
					}
					if found != want && slices.ContainsFunc(tt.keys, func(k estimate.Key) bool { return k.Image.Name == asked.Image.Name }) {
						t.Errorf("%s of %s is %q in the table, and %q by the ladder", resource, image, found, want)
					}
				}
			}
		})
	}
}

func lines(table map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(table)) {
		fmt.Fprintln(&b, key, table[key])
	}
	return b.String()
}

// TestFullTable: there are more images than it holds. It has those that come first, and
// images before tags.
func TestFullTable(t *testing.T) {
	var usage build.Usage
	var keys []estimate.Key
	for i := range 3000 {
		k := key(t, "shop", fmt.Sprintf("team/app-%d:v%d", i/4, i))
		keys = append(keys, k)
		usage = append(usage, build.Used{Of: k, Resource: cpu, At: now, Values: build.Evenly(60, 0.1, 0.1)})
	}
	got, leftOut := estimate.Default().Table(indexed(usage), keys, estimate.Bounds{}, now)
	size, tags := 0, 0
	for key, value := range got {
		size += len(key) + len(value)
		if strings.Contains(key, "_-v") {
			tags++
		}
	}
	if size > estimate.MaxTable || size < estimate.MaxTable-1000 {
		t.Errorf("%d bytes, want %d or a little less", size, estimate.MaxTable)
	}
	if images := len(got) - tags; images != 750 || tags == 0 || leftOut != 3000-tags {
		t.Errorf("%d images, %d tags, %d left out; want 750 images and some tags", images, tags, leftOut)
	}
	if _, ok := got[keys[0].Entry(cpu)]; !ok {
		t.Error("the first tag is left out")
	}
	if _, ok := got[keys[2999].Entry(cpu)]; ok {
		t.Error("the last tag is not left out")
	}
}

// indexed finds samples by the name of the image.
type indexedUsage map[string]build.Usage

func indexed(usage build.Usage) indexedUsage {
	index := indexedUsage{}
	for _, u := range usage {
		index[u.Of.Image.Name] = append(index[u.Of.Image.Name], u)
	}
	return index
}

func (i indexedUsage) Samples(from time.Time, of estimate.Key, resource corev1.ResourceName) estimate.Samples {
	return i[of.Image.Name].Samples(from, of, resource)
}
