package main

import (
	"encoding/xml"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// measured are three rounds of each way of a shape, whose controller takes 3 ms for each pod
// and 50 for each rollout.
func measured(t *testing.T, text string) []result {
	t.Helper()
	s, err := parseShape(text)
	if err != nil {
		t.Fatal(err)
	}
	var all []result
	for _, off := range []float64{0, -0.001, 0.001} {
		cpu := 0.003*float64(s.all()) + 0.05*float64(s.workloads) + off
		all = append(all,
			result{
				Shape: text, Way: inPlace, Floor: 10, Wall: 10.5, PeakRSS: 50 << 20, LeastReady: s.all(),
				CPU: map[string]float64{ours: cpu, apiServer: 2 * cpu, controllerManager: cpu / 2}, First: spread{0.1, 0.3},
				Writes: []measure.Write{
					{User: carriers[inPlace][0], Verb: "patch", Resource: "pods", Count: 2 * s.all()},
					{User: carriers[inPlace][0], Verb: "create", Resource: "events", Count: s.all()},
				},
			},
			result{
				Shape: text, Way: builtIn, Floor: 10, Wall: 7, Replaced: s.all(), LeastReady: s.all() - 1,
				CPU: map[string]float64{ours: 0.01, apiServer: 5 * cpu, controllerManager: cpu},
				Writes: []measure.Write{
					{User: carriers[builtIn][0], Verb: "create", Resource: "pods", Count: s.all()},
					{User: carriers[inPlace][0], Verb: "patch", Resource: "pods", Count: 1},
				},
			})
	}
	return all
}

func TestTable(t *testing.T) {
	groups, err := groupsOf(measured(t, "statefulset:1x100"))
	if err != nil || len(groups) != 2 {
		t.Fatalf("%d groups, want one for each way: %v", len(groups), err)
	}
	got := table(groups, []metric{topics[0].metrics[0], topics[1].metrics[0], topics[1].metrics[2], topics[2].metrics[2]})
	want := `| | writes per pod by the rollout's controller | controller's cpu, s | its peak RSS, MiB | × floor |
|---|---|---|---|---|
| StatefulSet 1×100, in place | 2.00 | 0.35 | 50 | 1.05 |
| StatefulSet 1×100, built in | 1.00 | 0.35 | – | – |
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := groups[0].cell(metric{format: "%.1f", value: cpuPerPod}), "3.5"; got != want {
		t.Errorf("a spread that cannot be seen is %q, want %q", got, want)
	}
	if got, want := groups[0].cell(metric{format: "%.3f", value: topics[1].metrics[0].value}), "0.350 (0.349–0.351)"; got != want {
		t.Errorf("a spread is %q, want %q", got, want)
	}
}

func TestTargets(t *testing.T) {
	groups, err := groupsOf(slices.Concat(measured(t, "statefulset:1x100"), measured(t, "statefulset:100x10")))
	if err != nil {
		t.Fatal(err)
	}
	got := targetTable(groups)
	for _, want := range []string{
		"| controller's cpu per pod, ms | StatefulSet 1×100 | 4 | 3.5 | met |\n",
		"| edit to first request, p99, ms | StatefulSet 100×10 | 250 | 300 | missed |\n",
		"| peak RSS, MiB | StatefulSet 100×10 | 100 | 50 | met |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("not in the table: %s\n%s", want, got)
		}
	}
	if strings.Contains(got, "| controller's cpu per pod, ms | StatefulSet 100×10") {
		t.Errorf("a target of one workload is held against a hundred:\n%s", got)
	}
}

func TestFit(t *testing.T) {
	groupsOfAll := func(texts ...string) []group {
		var all []result
		for _, text := range texts {
			all = append(all, measured(t, text)...)
		}
		groups, err := groupsOf(all)
		if err != nil {
			t.Fatal(err)
		}
		return ofKind(groups, "StatefulSet")
	}
	near := func(f formula, perPod, perRollout float64) bool {
		return math.Abs(f.perPod-perPod) < 1e-9 && math.Abs(f.perRollout-perRollout) < 1e-9
	}
	if f := fit(groupsOfAll("statefulset:1x100", "statefulset:1x1000:10", "statefulset:20x10", "deployment:1x7"), cpuSeconds); !near(f, 0.003, 0.05) {
		t.Errorf("got %+v, want 3 ms for each pod and 50 for each rollout", f)
	}
	if f := fit(groupsOfAll("statefulset:20x10", "statefulset:100x10"), cpuSeconds); !near(f, 0.008, 0) {
		t.Errorf("from workloads of the same size, got %+v, want 8 ms for each pod", f)
	}
	decreasing := func(s shape, _ result) float64 { return float64(s.all()) - 10*float64(s.workloads) }
	if f := fit(groupsOfAll("statefulset:1x100", "statefulset:1x1000:10"), decreasing); f.perRollout != 0 || f.perPod < 0.9 || f.perPod > 1 {
		t.Errorf("rollouts that seem to cost less than nothing: got %+v, want what a pod costs", f)
	}
}

func TestSave(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	first := results{Rollouts: slices.Concat(measured(t, "statefulset:1x100"), measured(t, "deployment:1x100")), Fairness: []fairness{{Large: "large"}}}
	again := measured(t, "deployment:1x100")[:1]
	again[0].Wall = 3
	for _, r := range []results{first, {Rollouts: again}} {
		if err := r.save(file); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rollouts) != 7 || got.Rollouts[6].Wall != 3 || len(got.Fairness) != 1 {
		t.Errorf("kept %d results and %d of fairness, the last of %v s: want those of the other shape, the new one, and 1", len(got.Rollouts), len(got.Fairness), got.Rollouts[len(got.Rollouts)-1].Wall)
	}
}

func TestFillIn(t *testing.T) {
	r := results{Rollouts: measured(t, "statefulset:1x100")}
	tables, err := r.tables()
	if err != nil {
		t.Fatal(err)
	}
	page := "# Page\n"
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		page += "<!-- benchmark: " + name + " -->\nold\n<!-- end -->\n"
	}
	got, err := r.fillIn(page)
	if err != nil || strings.Contains(got, "old") || !strings.Contains(got, tables["cost"]+"\n<!-- end -->\n") {
		t.Errorf("%v: got\n%s", err, got)
	}
	if again, err := r.fillIn(got); err != nil || again != got {
		t.Errorf("%v: filled in again it is\n%s", err, again)
	}
	for _, page := range []string{"# Nothing\n", page + "<!-- benchmark: unknown -->\n<!-- end -->\n"} {
		if _, err := r.fillIn(page); err == nil {
			t.Errorf("this page is filled in:\n%s", page)
		}
	}
}

func TestDraw(t *testing.T) {
	text, err := results{Rollouts: slices.Concat(measured(t, "statefulset:1x100"), measured(t, "statefulset:1x1000:10"), measured(t, "deployment:1x100"))}.draw()
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Desc   string `xml:"desc"`
		Groups []struct {
			Circles []struct {
				Class string  `xml:"class,attr"`
				X     float64 `xml:"cx,attr"`
				Y     float64 `xml:"cy,attr"`
			} `xml:"circle"`
			Bars []struct {
				Class string  `xml:"class,attr"`
				Width float64 `xml:"width,attr"`
			} `xml:"rect"`
			Paths []struct {
				Shape string `xml:"d,attr"`
			} `xml:"path"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal([]byte(text), &svg); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if want := "StatefulSet: 3.0 ms of cpu per pod and 50 ms per rollout. "; !strings.Contains(svg.Desc, want) {
		t.Errorf("the description is %q, want %q in it", svg.Desc, want)
	}
	plot, bars := svg.Groups[0], svg.Groups[1]
	// The legend has two circles. 1,000 pods are on the right, with 3.05 s of 3.05·1.05 high.
	if len(plot.Circles) != 5 || plot.Circles[3].X != 370 || plot.Circles[3].Y != 111.9 || plot.Circles[2].X != 82 {
		t.Errorf("points are at %v", plot.Circles)
	}
	if len(plot.Paths) != 2 || plot.Paths[0].Shape != "M50.0 346.1L370.0 111.9" {
		t.Errorf("lines are %v, want that of StatefulSets from 0.05 s to the last point", plot.Paths)
	}
	if len(bars.Bars) != 8 || bars.Bars[2].Width != 190 || bars.Bars[3].Width <= 60 || bars.Bars[3].Width >= 66 {
		t.Errorf("bars are %v, want 3 writes per pod in place and 1.01 built in", bars.Bars)
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
	chart, err := os.ReadFile(filepath.Join(docs, "performance.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := r.fillIn(string(page)); err != nil || want != string(page) {
		t.Errorf("docs/performance.md is not what `make bench-report` makes: %v", err)
	}
	if want, err := r.draw(); err != nil || want != string(chart) {
		t.Errorf("docs/performance.svg is not what `make bench-report` makes: %v", err)
	}
}
