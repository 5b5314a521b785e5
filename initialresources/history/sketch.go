package history

import (
	"fmt"
	"iter"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/DataDog/sketches-go/ddsketch/mapping"
	"github.com/DataDog/sketches-go/ddsketch/store"
)

// accuracy is by how much a value of a sketch may differ from what was measured, as a share.
const accuracy = 0.01

// negligible is a usage that is counted as none; without a limit, noise would fill sketches.
const negligible = 1e-6

var indices = func() mapping.IndexMapping {
	m, err := mapping.NewLogarithmicMapping(accuracy)
	if err != nil { // the accuracy is none
		panic(err)
	}
	return m
}()

func newSketch() *ddsketch.DDSketch {
	return ddsketch.NewDDSketch(indices, store.NewBufferedPaginatedStore(), store.NewBufferedPaginatedStore())
}

// packed is a sketch as bytes. Those of a window are kept as such: they take a fraction of
// the room, and only the newest changes.
type packed []byte

// with is the sketch with another one's samples.
func (p packed) with(sketch *ddsketch.DDSketch) packed {
	p.addTo(sketch)
	var grown []byte
	sketch.Encode(&grown, true)
	return append(packed(nil), grown...) // with no room to spare
}

func (p packed) addTo(sketch *ddsketch.DDSketch) {
	if len(p) == 0 {
		return
	}
	if err := sketch.DecodeAndMergeWith(p); err != nil { // we have written it
		panic(fmt.Sprintf("reading a sketch: %v", err))
	}
}

// samples implements estimate.Samples.
type samples struct {
	sketch *ddsketch.DDSketch
	kills  int
}

func (s samples) Count() float64 { return s.sketch.GetCount() }

func (s samples) Quantile(q float64) float64 {
	value, err := s.sketch.GetValueAtQuantile(q)
	if err != nil { // there are none, or q is no share
		panic(fmt.Sprintf("the quantile %v: %v", q, err))
	}
	return value
}

func (s samples) OOMKills() int { return s.kills }

func (s samples) All() iter.Seq2[float64, float64] {
	return func(yield func(float64, float64) bool) {
		s.sketch.ForEach(func(value, count float64) bool { return !yield(value, count) })
	}
}
