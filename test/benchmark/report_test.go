package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// measured are three rounds of each way of a shape, whose controller takes 3.5 ms for each pod. The floor program takes half as much.
func measured(t *testing.T, text string) []result {
	t.Helper()
	s, err := parseShape(text)
	if err != nil {
		t.Fatal(err)
	}
	write := func(w way, resource string, perPod int) measure.Write {
		return measure.Write{User: carriers[w][0], Verb: "patch", Resource: resource, Count: perPod * s.all()}
	}
	var all []result
	for _, off := range []float64{0, -0.001, 0.001} {
		cpu := 0.0035*float64(s.all()) + off
		all = append(all,
			result{
				Shape: text, Way: inPlace, Wall: 10.5, PeakRSS: 50 << 20, LeastReady: s.all(), CPU: map[string]float64{ours: cpu}, First: spread{0.1, 0.3},
				Writes: []measure.Write{write(inPlace, "pods", 2), write(inPlace, "events", 1)},
			},
			result{Shape: text, Way: floored, Wall: 10, PeakRSS: 30 << 20, CPU: map[string]float64{ours: 0.01, floorAccount: cpu / 2}},
			result{
				Shape: text, Way: builtIn, Wall: 7, Replaced: s.all(), LeastReady: s.all() - 1, CPU: map[string]float64{controllerManager: cpu},
				Writes: []measure.Write{write(builtIn, "pods", 4), write(inPlace, "pods", 1)},
			})
	}
	return all
}

// TestSave replaces the results of a shape that is measured again, and keeps the others.
func TestSave(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	again := measured(t, "deployment:1x100")[:1]
	again[0].Wall = 3
	for _, r := range []results{
		{Rollouts: slices.Concat(measured(t, "statefulset:1x100"), measured(t, "deployment:1x100"))}, {Rollouts: again},
	} {
		if err := r.save(file); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rollouts) != 10 || got.Rollouts[9].Wall != 3 {
		t.Errorf("kept %d results: want those of the other shape, and the new one", len(got.Rollouts))
	}
}

// TestFillIn refuses a page with an empty place, an unknown one, or without one; and results of which it would not be true.
func TestFillIn(t *testing.T) {
	page := ""
	for _, name := range []string{"machine", "summary"} {
		page += "<!-- benchmark: " + name + " -->\nold\n<!-- end -->\n"
	}
	r := results{Rollouts: measured(t, "statefulset:1x100")}
	got, err := r.fillIn(page)
	if err != nil || strings.Contains(got, "old") || !strings.Contains(got, r.summary()+"\n<!-- end -->\n") {
		t.Errorf("%v: got\n%s", err, got)
	}
	if again, err := r.fillIn(got); err != nil || again != got {
		t.Errorf("%v: filled in again it is\n%s", err, again)
	}
	lost := measured(t, "statefulset:1x100")
	lost[0].LeastReady--
	for name, c := range map[string]struct {
		results
		page string
	}{
		"no place":        {r, "# Nothing\n"},
		"an unknown one":  {r, page + "<!-- benchmark: unknown -->\n<!-- end -->\n"},
		"an empty one":    {results{}, page},
		"a pod not Ready": {results{Rollouts: lost}, page},
	} {
		if _, err := c.fillIn(c.page); err == nil {
			t.Errorf("%s: it is filled in", name)
		}
	}
}

// TestPage checks that docs/performance.md says what was measured, and nothing else.
func TestPage(t *testing.T) {
	docs := filepath.Join(controller.Root(), "docs")
	r, err := load(filepath.Join(docs, "performance.json"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := r.fillIn(string(page)); err != nil || want != string(page) {
		t.Errorf("docs/performance.md is not what `make bench-report` makes: %v", err)
	}
}
