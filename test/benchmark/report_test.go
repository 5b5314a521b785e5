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
	"unicode/utf8"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// measured are three rounds of each way of a shape, whose controller takes 3 ms for each pod
// and 50 for each rollout. The floor program takes half as much, and two thirds of the memory.
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
				Shape: text, Way: floored, Floor: 10, Wall: 10, PeakRSS: 30 << 20, LeastReady: s.all(),
				CPU:    map[string]float64{ours: 0.01, floorAccount: cpu / 2},
				Writes: []measure.Write{{User: carriers[floored][0], Verb: "patch", Resource: "pods", Count: 2 * s.all()}},
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
	if err != nil || len(groups) != 3 {
		t.Fatalf("%d groups, want one for each way: %v", len(groups), err)
	}
	got := table(groups, []metric{topics[0].metrics[0], topics[1].metrics[0], topics[1].metrics[3], topics[2].metrics[2]})
	want := `| | writes per pod by the rollout's controller | controller's cpu, s | its peak RSS, MiB | × kubelets alone |
|---|---|---|---|---|
| StatefulSet 1×100, in place | 2.00 | 0.35 | 50 | 1.05 |
| StatefulSet 1×100, floor | 2.00 | 0.17 (0.17–0.18) | 30 | 1.00 |
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

// TestOverFloor holds what a rollout takes against the floor program's of the same shape and round.
func TestOverFloor(t *testing.T) {
	one, two := measured(t, "statefulset:1x100"), measured(t, "daemonset:1x100:10")
	for i := range one {
		if one[i].Way == floored {
			one[i].CPU = map[string]float64{floorAccount: 0.1 * float64(i+1)} // 0.2, 0.5 and 0.8 s
		}
	}
	without := slices.DeleteFunc(measured(t, "deployment:1x100"), func(r result) bool { return r.Way == floored })
	tables, err := results{Rollouts: slices.Concat(one, two, without)}.tables()
	if err != nil {
		t.Fatal(err)
	}
	for name, columns := range map[string]int{"cost": 2, "time": 1, "summary": 3} {
		if got := strings.Count(strings.SplitN(tables[name], "\n", 2)[0], "× floor"); got != columns {
			t.Errorf("the table %s tells %d times of the floor, want %d:\n%s", name, got, columns, tables[name])
		}
	}
	for name, wants := range map[string][]string{
		"cost": {
			"| StatefulSet 1×100, in place | 0.35 | 3.5 | 0.70 (0.44–1.75) | 50 | 1.67 |",
			"| DaemonSet 1×100:10, in place | 0.35 | 3.5 | 2.00 | 50 | 1.67 |",
			"| DaemonSet 1×100:10, floor | 0.17 (0.17–0.18) | 1.8 (1.7–1.8) | – | 30 | – |",
			"| StatefulSet 1×100, built in | 0.35 | 3.5 | – | – | – |",
			"| Deployment 1×100, in place | 0.35 | 3.5 | – | 50 | – |",
		},
		"time":    {"| StatefulSet 1×100, in place | 10.0 | 10.5 | 1.05 | 1.05 |", "| StatefulSet 1×100, floor | 10.0 | 10.0 | 1.00 | – |"},
		"targets": {"| cpu, × floor ≤ 1.5 | DaemonSet 1×100:10: 2.00 **missed** |", "| peak RSS above 1.3 × floor, MiB ≤ 10 | StatefulSet 1×100: 11 **missed** |"},
	} {
		for _, want := range wants {
			if !strings.Contains(tables[name], want) {
				t.Errorf("not in the table %s: %s\n%s", name, want, tables[name])
			}
		}
	}
	of, err := groupsOf(without)
	if err != nil {
		t.Fatal(err)
	}
	if got := targetTable(of); strings.Contains(got, "× floor") || strings.Contains(got, "NaN") {
		t.Errorf("a target is told of what was not measured:\n%s", got)
	}
}

// TestComingUp tells conflicts that are no part of a rollout, and that are not known of all.
func TestComingUp(t *testing.T) {
	some, none := measured(t, "statefulset:1x100"), measured(t, "statefulset:1x300")
	for i := range some {
		if some[i].Way == inPlace {
			some[i].ComingUp = new(int)
			*some[i].ComingUp = 28
		}
	}
	tables, err := results{Rollouts: slices.Concat(some, none)}.tables()
	if err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{
		"requests": {"| conflicts while new |", "| StatefulSet 1×100, in place | 2.00 | 1.00 | 0.0 | 0 | 0 | 28 |", "| StatefulSet 1×300, in place | 2.00 | 1.00 | 0.0 | 0 | 0 | – |"},
		"targets":  {"| conflicts while new ≤ 0 | StatefulSet 1×100: 28 **missed** |"},
	} {
		for _, want := range wants {
			if !strings.Contains(tables[name], want) {
				t.Errorf("not in the table %s: %s\n%s", name, want, tables[name])
			}
		}
	}
}

func TestTargets(t *testing.T) {
	many := measured(t, "statefulset:100x10")
	for i := range many {
		many[i].First.P99 = 0.4
	}
	groups, err := groupsOf(slices.Concat(measured(t, "statefulset:1x100"), many))
	if err != nil {
		t.Fatal(err)
	}
	got := targetTable(groups)
	for _, want := range []string{
		"| controller's cpu per pod, ms ≤ 4 | StatefulSet 1×100: 3.5 |\n",
		"| edit to first request, p99, ms ≤ 250 | StatefulSet 100×10: 400 **missed** |\n",
		"| peak RSS, MiB ≤ 100 | StatefulSet 100×10: 50 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("not in the table: %s\n%s", want, got)
		}
	}
	if strings.Count(got, "controller's cpu per pod") != 1 {
		t.Errorf("a target of one workload is held against a hundred, or has more than a row:\n%s", got)
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
	if len(got.Rollouts) != 10 || got.Rollouts[9].Wall != 3 || len(got.Fairness) != 1 {
		t.Errorf("kept %d results and %d of fairness, the last of %v s: want those of the other shape, the new one, and 1", len(got.Rollouts), len(got.Fairness), got.Rollouts[len(got.Rollouts)-1].Wall)
	}
}

// whole are results with something for each table.
func whole(t *testing.T) results {
	t.Helper()
	return results{
		Rollouts: slices.Concat(measured(t, "statefulset:1x100"), measured(t, "statefulset:100x10"), measured(t, "deployment:1x100"), measured(t, "daemonset:1x100:10")),
		Fairness: []fairness{{Large: "statefulset:1x1000:10", Small: "statefulset:50x5"}}, Real: slices.DeleteFunc(measured(t, "statefulset:1x5"), func(r result) bool { return r.Way == floored }),
		Large: []foreseen{{setting: settings[0], Wall: 600, Requests: 6000}, {setting: settings[0], Wall: 700}},
	}
}

// places is a page with places for these tables.
func places(names ...string) (page string) {
	for _, name := range names {
		page += "<!-- benchmark: " + name + " -->\nold\n<!-- end -->\n"
	}
	return page
}

// TestEmptyTable: a page with a table that has no rows is refused, whichever it is; so is one without a place for a table.
func TestEmptyTable(t *testing.T) {
	if _, err := whole(t).fillIn(places(told...)); err != nil {
		t.Fatalf("with all that is measured: %v", err)
	}
	without := func(way way) func(*results) {
		return func(r *results) {
			r.Rollouts = slices.DeleteFunc(r.Rollouts, func(r result) bool { return r.Way == way })
		}
	}
	for name, remove := range map[string]func(*results){
		"summary": without(inPlace), "first": without(inPlace), "targets": without(inPlace), "growth": without(inPlace),
		"fairness": func(r *results) { r.Fairness = nil }, "real": func(r *results) { r.Real = nil }, "large": func(r *results) { r.Large = nil },
	} {
		if !slices.Contains(told, name) {
			t.Errorf("the page does not tell of %s", name)
		}
		some := whole(t)
		remove(&some)
		if _, err := some.fillIn(places(name)); err == nil || !strings.Contains(err.Error(), "the table "+name+" is empty") {
			t.Errorf("without what belongs into %s, got the error %v", name, err)
		}
		others := slices.DeleteFunc(slices.Clone(told), func(other string) bool { return other == name })
		if _, err := whole(t).fillIn(places(others...)); err == nil || !strings.Contains(err.Error(), "no place for the table "+name) {
			t.Errorf("without a place for %s, got the error %v", name, err)
		}
	}
	for _, name := range told {
		some := results{Machine: machine{Date: "2026-11-22"}}
		if _, err := some.fillIn(places(name)); (err != nil && strings.Contains(err.Error(), "is empty")) == slices.Contains(later, name) {
			t.Errorf("without any results, the table %s: %v", name, err)
		}
	}
}

// TestBeforeTheFloor: what earlier results have not leaves nothing on the page, and no column.
func TestBeforeTheFloor(t *testing.T) {
	r := whole(t)
	r.Fairness = nil
	r.Rollouts = slices.DeleteFunc(r.Rollouts, func(r result) bool { return r.Way == floored })
	got, err := r.fillIn(places(told...))
	if err != nil {
		t.Fatal(err)
	}
	for _, blank := range []string{"<!-- benchmark: first -->\n<!-- end -->\n", "<!-- benchmark: fairness -->\n<!-- end -->\n"} {
		if !strings.Contains(got, blank) {
			t.Errorf("%q is not in\n%s", blank, got)
		}
	}
	if strings.Contains(got, "floor") || strings.Contains(got, "NaN") {
		t.Errorf("the page tells of a floor that was not measured:\n%s", got)
	}
	if again, err := r.fillIn(got); err != nil || again != got {
		t.Errorf("%v: filled in again it is\n%s", err, again)
	}
}

func TestFillIn(t *testing.T) {
	r := whole(t)
	tables, err := r.tables()
	if err != nil {
		t.Fatal(err)
	}
	page := "# Page\n" + places(slices.Sorted(maps.Keys(tables))...)
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
	r.Rollouts[0].LeastReady--
	if _, err := r.fillIn(page); err == nil {
		t.Error("the page says that all pods stay Ready, and one did not")
	}
}

// TestSummary has a row for each shape that is told of, with the medians.
func TestSummary(t *testing.T) {
	tables, err := results{Rollouts: slices.Concat(measured(t, "statefulset:1x100"), measured(t, "deployment:1x10")[:2], measured(t, "deployment:20x10"))}.tables()
	if err != nil {
		t.Fatal(err)
	}
	want := `| | writes per pod | cpu per pod, ms (× floor) | peak RSS, MiB (× floor) | time, s (× floor) |
|---|---|---|---|---|
| StatefulSet 1×100 | 2.00 | 3.5 (2.00) | 50 (1.67) | 10.5 (1.05) |
| Deployment 1×10 | 2.00 | 8.0 (2.00) | 50 (1.67) | 10.5 (1.05) |
`
	if got := tables["summary"]; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestFirst tells of many rollouts at once, and of nothing else.
func TestFirst(t *testing.T) {
	all := slices.Concat(measured(t, "statefulset:100x10"), measured(t, "statefulset:1x100"))
	for i := range all {
		if all[i].Way == floored {
			all[i].First = spread{0.08, 0.2}
		}
	}
	tables, err := results{Rollouts: all}.tables()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tables["first"], "| ms | p50 | p99 | floor: p50 | p99 |\n|---|---|---|---|---|\n| StatefulSet 100×10 | 100 | 300 | 80 | 200 |\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got\n%swant at its end\n%s", got, want)
	}
}

func TestFairnessTable(t *testing.T) {
	round := func(p50 seconds) fairness {
		return fairness{Large: "statefulset:1x1000:10", Small: "statefulset:50x5", Alone: spread{p50, 3}, Beside: spread{4, 5}, LargeAlone: 37, LargeTook: 40}
	}
	other := round(9)
	other.Small = "statefulset:5x2"
	got := fairnessTable([]fairness{round(3), other, round(1), round(2)})
	want := "| StatefulSet 50×5 beside StatefulSet 1×1000:10 | 2.0 | 3.0 | 4.0 | 5.0 | 37.0 | 40.0 |\n| StatefulSet 5×2 beside StatefulSet 1×1000:10 | 9.0 | 3.0 | 4.0 | 5.0 | 37.0 | 40.0 |\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("got\n%swant at its end the medians of each\n%s", got, want)
	}
}

// drawn is what a chart has.
type drawn struct {
	Width float64 `xml:"width,attr"`
	Desc  string  `xml:"desc"`

	Groups []struct {
		Circles []struct {
			Class string  `xml:"class,attr"`
			X     float64 `xml:"cx,attr"`
			Y     float64 `xml:"cy,attr"`
		} `xml:"circle"`
		Bars []struct {
			Class  string  `xml:"class,attr"`
			X      float64 `xml:"x,attr"`
			Y      float64 `xml:"y,attr"`
			Width  float64 `xml:"width,attr"`
			Height float64 `xml:"height,attr"`
		} `xml:"rect"`
		Texts []struct {
			Class string  `xml:"class,attr"`
			X     float64 `xml:"x,attr"`
			Y     float64 `xml:"y,attr"`
			Text  string  `xml:",chardata"`
		} `xml:"text"`
		Paths []struct {
			Shape string `xml:"d,attr"`
		} `xml:"path"`
	} `xml:"g"`
}

func draw(t *testing.T, r results) (svg drawn) {
	t.Helper()
	text, err := r.draw()
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal([]byte(text), &svg); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return svg
}

func TestDraw(t *testing.T) {
	svg := draw(t, results{Rollouts: slices.Concat(measured(t, "statefulset:1x100"), measured(t, "statefulset:1x1000:10"), measured(t, "deployment:1x100"))})
	if want := "StatefulSet: 3.0 ms of cpu per pod and 50 ms per rollout. "; !strings.Contains(svg.Desc, want) {
		t.Errorf("the description is %q, want %q in it", svg.Desc, want)
	}
	plot, bars := svg.Groups[0], svg.Groups[2]
	// The legend has two circles. 1,000 pods are on the right, with 3.05 s of 3.05·1.05 high.
	if len(plot.Circles) != 5 || plot.Circles[3].X != 370 || plot.Circles[3].Y != 110 || plot.Circles[2].X != 82 {
		t.Errorf("points are at %v", plot.Circles)
	}
	if len(plot.Paths) != 2 || plot.Paths[0].Shape != "M50.0 306.7L370.0 110.0" {
		t.Errorf("lines are %v, want that of StatefulSets from 0.05 s to the last point", plot.Paths)
	}
	// Ours, the floor, built in and OpenKruise; then the same without the floor.
	if len(bars.Bars) != 3*(4+3) || bars.Bars[0].Width != 17.9 || bars.Bars[7].Class != "in-place" || bars.Bars[7+3].Class != "peer" || bars.Bars[7+3].Width != 200 {
		t.Errorf("bars are %v, want 3.5 ms and OpenKruise's 39 in 200 pixels", bars.Bars)
	}
	var figures []string
	for _, text := range bars.Texts {
		if text.Class == "figure" {
			figures = append(figures, text.Text)
		}
	}
	if want := []string{"3.5 = 2.00 × floor", "1.8", "3.5", "19.8, Advanced StatefulSet", "2.00", "1.00", "7.00"}; !slices.Equal(figures[:7], want) {
		t.Errorf("the figures of the first shape are %q, want %q", figures[:7], want)
	}
}

// TestDrawn: what was not measured is neither drawn nor explained, what peers have taken has a date, and nothing lies on
// anything else or outside.
func TestDrawn(t *testing.T) {
	all := whole(t)
	without := whole(t)
	without.Rollouts = slices.DeleteFunc(without.Rollouts, func(r result) bool { return r.Way == floored })
	for name, c := range map[string]struct {
		results
		floor bool
	}{"with the floor": {all, true}, "before there was a floor": {without, false}} {
		svg := draw(t, c.results)
		legend := ""
		for _, text := range svg.Groups[1].Texts {
			legend += text.Text + "\n"
		}
		if !strings.Contains(legend, "OpenKruise in place, as measured on 2026-11-23") {
			t.Errorf("%s: peers' figures have no date:\n%s", name, legend)
		}
		if strings.Contains(legend, "floor:") != c.floor || strings.Contains(svg.Desc, "floor") != c.floor || strings.Contains(svg.Desc, "NaN") || strings.Contains(svg.Desc, "Inf") {
			t.Errorf("%s: the legend says\n%sand the description %s", name, legend, svg.Desc)
		}
		bars := svg.Groups[2].Bars
		for i, a := range bars {
			if (a.Class == "floor") && !c.floor {
				t.Errorf("%s: a floor is drawn", name)
			}
			for _, b := range bars[i+1:] {
				if a.X == b.X && a.Y < b.Y+b.Height && b.Y < a.Y+a.Height {
					t.Errorf("%s: bars lie on each other: %v, %v", name, a, b)
				}
			}
		}
		for _, text := range svg.Groups[2].Texts {
			const wide = 7.2 // pixels of a letter, in most fonts fewer
			end := text.X + wide*float64(utf8.RuneCountInString(text.Text))
			if text.Class == "figure" {
				end = text.X + 5.8*float64(utf8.RuneCountInString(text.Text))
			}
			if end > svg.Width || text.X < panels[0].Left && end > panels[0].Left || text.X < panels[1].Left && end > panels[1].Left {
				t.Errorf("%s: %q goes to %.0f", name, text.Text, end)
			}
		}
	}
}

// TestPeers: each peer is that of a shape that is measured unless others are named.
func TestPeers(t *testing.T) {
	for shape := range peers {
		if !slices.Contains(strings.Split(standard, ","), shape) {
			t.Errorf("nobody measures %s", shape)
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
