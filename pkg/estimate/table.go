package estimate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// MaxTable is how many bytes of keys and values a table has at most. A ConfigMap could hold
// eight times as much, but the API server decodes it for each pod that it is a parameter of.
const MaxTable = 128 << 10

// Table is the data of the ConfigMap in which admission looks up what runs in a namespace:
// the keys, the most important first. A key without a namespace is for every one. It also
// returns how many entries were left out because the table was full.
//
// A tag has an entry where a rung for image:tag decides. What else there is of the image is
// in the image's own entry, and goes for tags that were never seen, too. If the table is
// full, tags go without entry before images do.
func (l Ladder) Table(source Source, keys []Key, bounds Bounds, now time.Time) (map[string]string, int) {
	t := table{data: map[string]string{}}
	add := func(keys []Key, from From) {
		for _, key := range keys {
			for _, resource := range Resources {
				if e, ok := l.Estimate(source, key, resource, now); ok && e.From == from {
					t.add(key.Entry(resource), bounds.Clamp(e).Value())
				}
			}
		}
	}
	add(anyVersions(keys), FromImage)
	add(keys, FromTag)
	return t.data, t.leftOut
}

// anyVersions are the keys without versions, each once, in the same order.
func anyVersions(keys []Key) []Key {
	seen := make(map[Key]bool, len(keys))
	var found []Key
	for _, key := range keys {
		if key = key.AnyVersion(); !seen[key] {
			seen[key] = true
			found = append(found, key)
		}
	}
	return found
}

type table struct {
	data    map[string]string
	size    int
	leftOut int
}

func (t *table) add(key, value string) {
	if _, has := t.data[key]; has || key == "" {
		return
	}
	size := len(key) + len(value)
	if t.size+size > MaxTable {
		t.leftOut++
		return
	}
	t.data[key] = value
	t.size += size
}

// Running lists what the containers of pods run, what most of them run first. With roles,
// the containers' names are part of the keys.
func Running(pods []*corev1.Pod, roles bool) []Key {
	count := map[Key]int{}
	for _, pod := range pods {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if image, err := ParseImage(c.Image); err == nil {
				key := Key{Namespace: pod.Namespace, Image: image}
				if roles {
					key.Role = c.Name
				}
				count[key]++
			}
		}
	}
	return slices.SortedFunc(maps.Keys(count), func(a, b Key) int {
		return cmp.Or(count[b]-count[a], cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Image.Name, b.Image.Name),
			cmp.Compare(a.Image.Version, b.Image.Version), cmp.Compare(a.Role, b.Role))
	})
}
