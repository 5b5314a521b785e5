package history

import (
	"math"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestSketchSize: whatever containers use, from a byte to 10 TB and from next to nothing to
// 10,000 cores, what is kept of a quarter of a day has a bound.
func TestSketchSize(t *testing.T) {
	bytes := 0
	for _, most := range []struct{ from, to float64 }{{negligible, 1e4}, {1, 1e13}} {
		sketch := newSketch()
		for value := most.from; value < most.to; value *= 1 + accuracy {
			must.Do(t, sketch.AddWithCount(value, 360*100))
		}
		bytes += len(packed(nil).with(sketch))
	}
	if day := 4 * bytes; day > 50_000 {
		t.Errorf("%d bytes for a day", day)
	}
}

// TestPacked adds to a sketch as often as a quarter of a day has minutes.
func TestPacked(t *testing.T) {
	var p packed
	for i := range 360 {
		sketch := newSketch()
		for _, value := range []float64{0, float64(i), 1e9 + float64(i)} {
			must.Do(t, sketch.Add(value))
		}
		p = p.with(sketch)
	}
	all := samples{sketch: newSketch()}
	p.addTo(all.sketch)
	must.Equal(t, all.Count(), 3*360, "samples")
	for q, want := range map[float64]float64{0: 0, 0.3: 0, 0.5: 180, 0.66: 353, 0.7: 1e9, 1: 1e9} {
		if got := all.Quantile(q); math.Abs(got-want) > accuracy*want+1 {
			t.Errorf("at %v: %v, want %v", q, got, want)
		}
	}
}
