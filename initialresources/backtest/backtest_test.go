package main

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// constant is a pod that uses the same all the time.
func constant(start minute, length int, cpu, memory float64) *pod {
	p := &pod{start: start}
	for range length {
		p.uses = append(p.uses, use{cpu, memory})
	}
	return p
}

func TestKRR(t *testing.T) {
	at := 30 * day
	rising := &pod{start: at - 100}
	for i := range 101 {
		rising.uses = append(rising.uses, use{cpu: float64(i+1) / 100, memory: 200e6})
	}
	for name, tt := range map[string]struct {
		pods []*pod
		want request
	}{
		"nothing":                           {nil, request{}},
		"99 points of 75 seconds":           {[]*pod{constant(at-124, 124, 1, 200e6)}, request{}},
		"100 points":                        {[]*pod{constant(at-125, 125, 1, 200e6)}, request{1, 230e6}},
		"of two pods":                       {[]*pod{constant(at-70, 70, 1, 200e6), constant(at-70, 70, 2, 100e6)}, request{2, 230e6}},
		"of before 14 days, and afterwards": {[]*pod{constant(at-15*day, int(day), 9, 9e9), constant(at-200, 200, 1, 200e6), constant(at, 200, 9, 9e9)}, request{1, 230e6}},
		"idle":                              {[]*pod{constant(at-200, 200, 0.001, 1e6)}, request{0.01, 100e6}},
		// Of 100 values up to 1.00 in steps of 0.01 the 95th percentile is 0.9505.
		"a percentile": {[]*pod{rising, constant(at-100, 100, 0.5, 200e6)}, request{0.951, 230e6}},
	} {
		if got := krr(tt.pods, at); math.Abs(got.cpu-tt.want.cpu) > 1e-9 || math.Abs(got.memory-tt.want.memory) > 1 {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// TestVPA shows that it is the recommender's own code that answers: what a container uses all
// the time, the end of the bucket that it is in, 15 % on top; and no less than a pod's minimum,
// of which each container gets a part.
func TestVPA(t *testing.T) {
	for name, tt := range map[string]struct {
		containers  int
		cpu, memory float64
		least, most request
	}{
		"a gigabyte":    {1, 1, 1e9, request{1.15, 1.15e9}, request{1.21, 1.21e9}},
		"idle":          {1, 0.001, 1e6, request{0.025, 250 * mebibyte}, request{0.025, 250 * mebibyte}},
		"an idle twin":  {2, 0.001, 1e6, request{0.012, 125 * mebibyte}, request{0.0125, 125 * mebibyte}},
		"killed for it": {1, 1, 1e9, request{1.15, 1.2 * 1.15e9}, request{1.21, 1.2 * 1.21e9}},
	} {
		p := constant(0, int(2*day), tt.cpu, tt.memory)
		if name == "killed for it" {
			p.kills = []minute{hour, day + hour}
		}
		w := &workload{kind: &kind{containers: tt.containers}}
		v := watch(&run{workload: w, namespace: "shop", pods: []*pod{p}})
		if early, err := v.target(0); err != nil || early.cpu > 0.025 || early.memory > 250*mebibyte {
			t.Errorf("%s: it recommends %v before it has seen a sample: %v", name, early, err)
		}
		got, err := v.target(2 * day)
		if err != nil || got.cpu < tt.least.cpu || got.cpu > tt.most.cpu || got.memory < tt.least.memory || got.memory > tt.most.memory {
			t.Errorf("%s: got %v, want between %v and %v: %v", name, got, tt.least, tt.most, err)
		}
	}
}

// TestKnown: an estimate knows what was before, by quarters of a day, and nothing of what comes.
func TestKnown(t *testing.T) {
	w := &workload{kind: &kind{}}
	p := constant(day, int(day), 1, 1e9)
	p.kills = []minute{day + 1, 2*day - 1}
	kept := must.Get(sketches(&run{workload: w, namespace: "shop", image: "app", pods: []*pod{p}}))(t)
	image := must.Get(estimate.ParseImage("app:v0"))(t)
	for _, tt := range []struct {
		until, from minute
		want, kills int
	}{
		{day, 0, 0, 0},
		{day + quarter, 0, 6 * 60, 1},
		{2 * day, 0, 24 * 60, 2},
		{2 * day, day + quarter, 18 * 60, 1},
		{2 * day, day + quarter + 1, 18 * 60, 1},
		{2 * day, 2*day - 1, 6 * 60, 1},
		{3 * day, 2 * day, 0, 0},
	} {
		got := known{kept, tt.until}.Samples(tt.from.time(), estimate.Key{Namespace: "shop", Image: image}, corev1.ResourceCPU)
		count, kills := 0, 0
		if got != nil {
			count, kills = int(got.Count()), got.OOMKills()
		}
		if count != tt.want || kills != tt.kills {
			t.Errorf("from %d until %d: %d samples and %d kills, want %d and %d", tt.from, tt.until, count, kills, tt.want, tt.kills)
		}
	}
}

// TestPage: docs/estimates.md has the figures of `make backtest`, in its table, its picture, and its sentence about new workloads, which no
// table has. It takes 15 s, and -short looks at a sixth of the workloads, and whether the same rows and columns are there.
func TestPage(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/estimates.md"))(t)
	many := casts
	if testing.Short() {
		many = 1
	}
	scores := must.Get(play(many))(t)
	filled := must.Get(scores.fillIn(string(text)))(t)
	if was, is := shape(string(text)), shape(filled); len(was) == 0 || !reflect.DeepEqual(was, is) {
		t.Errorf("its tables are not those of `make backtest`:\n%s\nwant\n%s", strings.Join(was, "\n"), strings.Join(is, "\n"))
	}
	if _, err := scores.fillIn("# Nothing\n"); err == nil {
		t.Error("a page without places is filled in")
	}
	if testing.Short() {
		return
	}
	if filled != string(text) {
		t.Errorf("the figures are others now: run `make backtest`. They are\n%s", strings.Join(place.FindAllString(filled, -1), "\n"))
	}
	fresh := scores.of(ladder, func(_ string, s situation) bool { return s == newWorkload })
	if want := fmt.Sprintf("There %s of the\n  samples of cpu and %s of those of memory are above.", fresh.cpu.aboveShare(), fresh.memory.aboveShare()); !strings.Contains(spaced(string(text)), spaced(want)) {
		t.Errorf("the page does not say: %s", spaced(want))
	}
	drawn := must.Get(scores.draw())(t)
	if kept, err := os.ReadFile("../../docs/backtest.svg"); err != nil || string(kept) != drawn {
		t.Errorf("docs/backtest.svg is not what `make backtest` draws: %v", err)
	}
}

// spaced is a text on one line.
func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }

// shape is what does not depend on the figures: titles, and how many cells a row has.
func shape(page string) []string {
	var found []string
	for _, table := range place.FindAllString(page, -1) {
		for i, line := range strings.Split(table, "\n") {
			cells := strings.Split(line, "|")
			switch {
			case i == 2:
				found = append(found, line)
			case len(cells) > 1:
				found = append(found, cells[1]+strings.Repeat("|", len(cells)-1))
			}
		}
	}
	return found
}
