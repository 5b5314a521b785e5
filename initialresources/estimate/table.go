package estimate

import (
	"maps"
	"slices"
	"time"
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
// full, tags go without entry before images do, and defaults before them.
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
	var defaults []Key
	for _, name := range slices.Sorted(maps.Keys(l.Defaults)) {
		defaults = append(defaults, Key{Image: Image{Name: name}})
	}
	l.Scopes = nil // what is known of them has been added
	add(defaults, FromDefault)
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
