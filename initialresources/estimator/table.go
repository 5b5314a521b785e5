package estimator

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
)

// book is what the history says at one moment. It is asked again and again until the next one.
type book struct {
	ladder estimate.Ladder
	source estimate.Source
	at     time.Time
	// own are the images that have run in each namespace, and everywhere those that have run in
	// most namespaces, the first of them first; none if no namespace is told of others.
	own        map[string][]estimate.Key
	everywhere []estimate.Key
	// images is how many there are, in any version.
	images int
	// partial: some of the history cannot be read.
	partial bool
}

// newBook looks into the history. The estimates of the cluster are for so many images.
func newBook(history History, ladder estimate.Ladder, maxImages int, at time.Time) *book {
	b := &book{ladder: ladder, source: history, at: at, own: map[string][]estimate.Key{}, partial: !history.Complete()}
	spread, versions := map[estimate.Key]int{}, map[estimate.Key][]estimate.Key{} // of images in a role
	seen, names := map[estimate.Key]bool{}, map[string]bool{}
	for _, key := range history.Keys() {
		b.own[key.Namespace] = append(b.own[key.Namespace], key)
		names[key.Image.Name] = true
		inAny := key
		inAny.Namespace = ""
		image, inNamespace := inAny.AnyVersion(), key.AnyVersion()
		if !seen[inNamespace] {
			seen[inNamespace] = true
			spread[image]++
		}
		if !seen[inAny] {
			seen[inAny] = true
			versions[image] = append(versions[image], inAny)
		}
	}
	b.images = len(names)
	for _, keys := range b.own {
		slices.SortFunc(keys, byName)
	}
	if !slices.Contains(ladder.Scopes, estimate.InCluster) {
		return b
	}
	b.source = &remembered{source: history, percentile: ladder.Percentile, found: map[question]estimate.Samples{}}
	widest := slices.SortedFunc(maps.Keys(spread), func(a, b estimate.Key) int { return cmp.Or(spread[b]-spread[a], byName(a, b)) })
	for _, image := range widest[:min(len(widest), maxImages)] {
		slices.SortFunc(versions[image], byName)
		b.everywhere = append(b.everywhere, versions[image]...)
	}
	return b
}

func byName(a, b estimate.Key) int {
	return cmp.Or(cmp.Compare(a.Image.Name, b.Image.Name), cmp.Compare(a.Role, b.Role), cmp.Compare(a.Image.Version, b.Image.Version))
}

// table is what is estimated for the pods of a namespace, and how many entries had no place. What
// runs there comes first. Where there is too much of it, that comes first which runs most.
func (b *book) table(namespace string) (map[string]string, int) {
	keys := slices.Clone(b.own[namespace])
	for _, key := range b.everywhere {
		key.Namespace = namespace
		keys = append(keys, key)
	}
	data, leftOut := b.ladder.Table(b.source, keys, estimate.Bounds{}, b.at)
	if leftOut == 0 {
		return data, 0
	}
	own := keys[:len(b.own[namespace])]
	used := make(map[estimate.Key]float64, len(own))
	for _, key := range own {
		if samples := b.source.Samples(b.at.Add(-time.Duration(b.ladder.Rungs[0].Window)), key, corev1.ResourceMemory); samples != nil {
			used[key] = samples.Count()
		}
	}
	slices.SortStableFunc(own, func(x, y estimate.Key) int { return cmp.Compare(used[y], used[x]) })
	return b.ladder.Table(b.source, keys, estimate.Bounds{}, b.at)
}

// remembered is a source that is asked the same about all namespaces together again and again:
// once for each of them.
type remembered struct {
	source     estimate.Source
	percentile float64

	mu    sync.Mutex
	found map[question]estimate.Samples
}

type question struct {
	from     time.Time
	of       estimate.Key
	resource corev1.ResourceName
}

// Samples implements estimate.Source. Of those of all namespaces it keeps what a ladder asks.
func (r *remembered) Samples(from time.Time, of estimate.Key, resource corev1.ResourceName) estimate.Samples {
	if of.Namespace != "" {
		return r.source.Samples(from, of, resource)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	q := question{from, of, resource}
	samples, known := r.found[q]
	if !known {
		if samples = r.source.Samples(from, of, resource); samples != nil {
			s := summary{count: samples.Count(), kills: samples.OOMKills()}
			if s.count > 0 {
				s.quantile = samples.Quantile(r.percentile / 100)
			}
			samples = s
		}
		r.found[q] = samples
	}
	return samples
}

// summary is what a ladder asks of samples, without them.
type summary struct {
	count, quantile float64
	kills           int
}

func (s summary) Count() float64                   { return s.count }
func (s summary) Quantile(float64) float64         { return s.quantile }
func (s summary) OOMKills() int                    { return s.kills }
func (s summary) All() iter.Seq2[float64, float64] { return func(func(float64, float64) bool) {} }

// clamped returns the entries of a table that are about images, within the bounds. What is within
// them already stays as it is.
func clamped(table map[string]string, bounds estimate.Bounds) map[string]string {
	data := make(map[string]string, len(table))
	for key, value := range table {
		if e, is := parse(key, value); is {
			data[key] = bounds.Clamp(e).Value()
		}
	}
	return data
}

// beside are the entries that a book makes which knows only a part of the history, beside those that
// were published before: made from more, these stay, and so do those that it knows nothing of.
func beside(before, now map[string]string) map[string]string {
	data, size := map[string]string{}, 0
	for key, value := range before {
		if e, is := parse(key, value); is && !replaces(key, now[key], e) {
			data[key] = value
			size += len(key) + len(value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, stays := data[key]; stays || size+len(key)+len(now[key]) > estimate.MaxTable {
			continue
		}
		data[key] = now[key]
		size += len(key) + len(now[key])
	}
	return data
}

// replaces reports whether an entry is made from at least as much as an estimate before it, or by other rules.
func replaces(key, now string, old estimate.Estimate) bool {
	e, is := parse(key, now)
	switch {
	case !is, e.From == estimate.FromDefault && old.From != estimate.FromDefault:
		return false
	case e.Percentile != old.Percentile:
		return true
	case e.Scope != old.Scope:
		return e.Scope == estimate.InNamespace
	case e.Window != old.Window:
		return e.Window < old.Window // an earlier rung
	default:
		return e.Samples >= old.Samples
	}
}

// settled is the entry to publish, where another one was before: that one, if there are but a few
// samples more or less. They grow all the time, and a table is written for what they say.
func settled(key, before, now string) string {
	if now == before {
		return now // as most are: room changes often
	}
	old, was := parse(key, before)
	e, is := parse(key, now)
	if !was || !is || max(e.Samples-old.Samples, old.Samples-e.Samples) > old.Samples/8 {
		return now
	}
	e.Samples = old.Samples
	if e.Value() != before {
		return now
	}
	return before
}

// parse reads an entry of a table; false if it is not about an image.
func parse(key, value string) (estimate.Estimate, bool) {
	_, why, found := strings.Cut(value, " ")
	dot := strings.LastIndexByte(key, '.')
	if !found || dot < 0 {
		return estimate.Estimate{}, false
	}
	e := estimate.Estimate{Resource: corev1.ResourceName(key[dot+1:])}
	if !slices.Contains(estimate.Resources, e.Resource) || json.Unmarshal([]byte(why), &e) != nil {
		return estimate.Estimate{}, false
	}
	return e, true
}

// lookUp finds in a table what admission would find there for a container of this image, and in
// this role: what is known of its version, or else of the image.
func lookUp(table map[string]string, key estimate.Key, resource corev1.ResourceName) (estimate.Estimate, bool) {
	for _, key := range []estimate.Key{key, key.AnyVersion()} {
		if entry := key.Entry(resource); entry != "" {
			if e, is := parse(entry, table[entry]); is {
				return e, true
			}
		}
	}
	return estimate.Estimate{}, false
}
