package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// results are what is kept in the JSON file.
type results struct {
	Machine  machine    `json:"machine"`
	Rollouts []result   `json:"rollouts"`
	Fairness []fairness `json:"fairness,omitempty"`
	Real     []result   `json:"real,omitempty"`
	Scale    *scaled    `json:"scale,omitempty"`
	Watches  []watched  `json:"watches,omitempty"`
	Large    []foreseen `json:"large,omitempty"` // simulated

	Admission []admitted `json:"admission,omitempty"`
}

// machine is where and when it was measured.
type machine struct {
	Date       string `json:"date"`
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Kubernetes string `json:"kubernetes"`
}

func (m machine) String() string {
	return fmt.Sprintf("Measured on %s, Kubernetes %s, %d cores of %s, which everything shares.", m.Date, m.Kubernetes, m.Cores, m.CPU)
}

func thisMachine() machine {
	m := machine{Date: time.Now().UTC().Format(time.DateOnly), Cores: runtime.NumCPU()}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 {
			m.CPU = cpus[0].ModelName
		}
	}
	return m
}

// load reads the file; one that is not there has no results.
func load(file string) (results, error) {
	var r results
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("reading results: %w", err)
	}
	return r, nil
}

// save adds the results to the file, if there is to be one, in place of those that are like them.
func (r results) save(file string) error {
	if file == "" {
		return nil
	}
	old, err := load(file)
	if err != nil {
		return err
	}
	again := func(o result) bool {
		return slices.ContainsFunc(r.Rollouts, func(n result) bool { return n.Shape == o.Shape })
	}
	r.Rollouts = append(slices.DeleteFunc(old.Rollouts, again), r.Rollouts...)
	if len(r.Fairness) == 0 {
		r.Fairness = old.Fairness
	}
	if len(r.Real) == 0 {
		r.Real = old.Real
	}
	if r.Scale == nil {
		r.Scale = old.Scale
	}
	if r.Watches == nil {
		r.Watches = old.Watches
	}
	if r.Admission == nil {
		r.Admission = old.Admission
	}
	return r.write(file)
}

// write writes the results into the file.
func (r results) write(file string) error {
	data, err := json.Marshal(r)
	if err == nil {
		lines := bytes.ReplaceAll(data, []byte(`{"shape"`), []byte("\n"+`{"shape"`)) // each result is one
		err = os.WriteFile(file, append(lines, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}

// metric is one figure of a result.
type metric struct {
	head   string
	format string
	value  func(shape, result) float64
}

// topic is a table.
type topic struct {
	name    string
	metrics []metric
}

var topics = []topic{
	{"requests", []metric{
		{"writes per pod by the rollout's controller", "%.2f", func(s shape, r result) float64 {
			return r.written(func(w measure.Write) bool { return r.carries(w) && !isEvent(w) }) / float64(s.all())
		}},
		{"its events per pod", "%.2f", func(s shape, r result) float64 {
			return r.written(func(w measure.Write) bool { return r.carries(w) && isEvent(w) }) / float64(s.all())
		}},
		{"its status writes per workload", "%.1f", func(s shape, r result) float64 {
			return r.written(func(w measure.Write) bool { return r.carries(w) && isStatus(w) }) / float64(s.workloads)
		}},
		{"conflicts", "%.0f", func(_ shape, r result) float64 { return float64(r.Conflicts) }},
		{"refusals", "%.0f", func(_ shape, r result) float64 { return float64(r.Refusals) }},
		{"conflicts while new", "%.0f", conflictsComingUp},
		{"writes per pod by everybody", "%.1f", func(s shape, r result) float64 {
			return r.written(func(w measure.Write) bool { return !isEvent(w) }) / float64(s.all())
		}},
		{"with events", "%.1f", func(s shape, r result) float64 {
			return r.written(func(measure.Write) bool { return true }) / float64(s.all())
		}},
		{"pods replaced", "%.0f", func(_ shape, r result) float64 { return float64(r.Replaced) }},
		{"lowest number Ready", "%.0f", leastReady},
	}},
	{"cost", []metric{
		{"controller's cpu, s", "%.2f", func(_ shape, r result) float64 { return r.CPU[r.carrier()] }},
		{"ms per pod", "%.1f", cpuPerPod},
		overFloor(cpuPerPod),
		{"its peak RSS, MiB", "%.0f", peakRSS},
		overFloor(peakRSS),
		{"read per pod, KiB", "%.1f", readPerPod},
		overFloor(readPerPod),
		{"kube-apiserver's cpu, s", "%.1f", func(_ shape, r result) float64 { return r.CPU[apiServer] }},
		{"kube-controller-manager's cpu, s", "%.1f", func(_ shape, r result) float64 { return r.CPU[controllerManager] }},
		{"cpu of all, s", "%.0f", func(_ shape, r result) (all float64) {
			for _, one := range r.CPU {
				all += one
			}
			return all
		}},
		{"cores busy, %", "%.0f", func(_ shape, r result) float64 {
			if r.Busy == 0 {
				return math.NaN() // not measured
			}
			return 100 * r.Busy
		}},
	}},
	{"time", []metric{
		{"kubelets alone, s", "%.1f", func(_ shape, r result) float64 { return r.known(float64(r.Floor)) }},
		{"edit to done, s", "%.1f", wall},
		{"× kubelets alone", "%.2f", timesKubelets},
		overFloor(wall),
		{"edit to first request, ms: p50", "%.0f", func(_ shape, r result) float64 { return r.known(1000 * float64(r.First.P50)) }},
		{"p99", "%.0f", firstP99},
		{"kubelets, ms: p50", "%.0f", func(_ shape, r result) float64 { return r.known(1000 * float64(r.Kubelet.P50)) }},
		{"resized to next request, ms: p50", "%.0f", func(_ shape, r result) float64 { return r.known(1000 * float64(r.Pause.P50)) }},
		{"p99", "%.0f", pauseP99},
		{"last resized to Complete, ms: p50", "%.0f", func(_ shape, r result) float64 { return r.known(1000 * float64(r.Complete.P50)) }},
		{"p99", "%.0f", func(_ shape, r result) float64 { return r.known(1000 * float64(r.Complete.P99)) }},
	}},
}

// column is one of the page's summary, which has a row for each shape, with the medians.
type column struct {
	metric
	over bool // tell in brackets how many times the floor program's it is
}

// summary is what the page has of all topics. In place all pods stay Ready; the chart has what is built in.
var summary = []column{
	{metric{"writes per pod", "%.2f", topics[0].metrics[0].value}, false},
	{metric{"cpu per pod, ms", "%.1f", cpuPerPod}, true},
	{metric{"peak RSS, MiB", "%.0f", peakRSS}, true},
	{metric{"time, s", "%.1f", wall}, true},
}

// cell is the median of a shape.
func (c column) cell(g group) string {
	text := g.median(c.metric)
	if over := g.median(overFloor(c.value)); c.over && over != "–" {
		text += " (" + over + ")"
	}
	return text
}

// brief reports whether a shape has a row in the summary: a few workloads are between one and many.
func (s shape) brief() bool { return s.workloads == 1 || s.workloads >= many }

// many workloads are so many.
const many = 50

// summaryTable has a row for each shape that is told of.
func summaryTable(groups []group) string {
	rows := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.way != inPlace || !g.shape.brief() })
	var text strings.Builder
	text.WriteString("| |")
	for _, c := range summary {
		head := c.head
		if c.over && slices.ContainsFunc(rows, func(g group) bool { return g.rounds[0].least != nil }) {
			head += " (× floor)"
		}
		fmt.Fprintf(&text, " %s |", head)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(summary)) + "\n")
	for _, g := range rows {
		fmt.Fprintf(&text, "| %s |", g.shape.title())
		for _, c := range summary {
			fmt.Fprintf(&text, " %s |", c.cell(g))
		}
		text.WriteString("\n")
	}
	return text.String()
}

// firstTable tells how long the first request takes where many workloads are edited at once, ours and the floor program's: what
// that takes is not ours. It is blank where the floor was not measured.
func firstTable(groups []group) string {
	var text strings.Builder
	for _, g := range groups {
		if g.way != inPlace || g.shape.workloads < many || g.rounds[0].least == nil {
			continue
		}
		if text.Len() == 0 {
			text.WriteString("The floor's first request shows the API server's part:\n\n| ms | p50 | p99 | floor: p50 | p99 |\n|---|---|---|---|---|\n")
		}
		fmt.Fprintf(&text, "| %s |", g.shape.title())
		for _, value := range []func(result) seconds{
			func(r result) seconds { return r.First.P50 }, func(r result) seconds { return r.First.P99 },
			func(r result) seconds { return r.least.First.P50 }, func(r result) seconds { return r.least.First.P99 },
		} {
			fmt.Fprintf(&text, " %s |", g.median(metric{format: "%.0f", value: func(_ shape, r result) float64 { return 1000 * float64(value(r)) }}))
		}
		text.WriteString("\n")
	}
	return text.String()
}

func cpuPerPod(s shape, r result) float64 { return 1000 * r.CPU[r.carrier()] / float64(s.all()) }

// readPerPod is what the controller has read for each pod, nearly all of it from the API server.
func readPerPod(s shape, r result) float64 {
	if r.Read == 0 {
		return math.NaN()
	}
	return r.known(float64(r.Read) / (1 << 10) / float64(s.all()))
}

func peakRSS(_ shape, r result) float64 { return r.known(float64(r.PeakRSS) / (1 << 20)) }

func conflictsComingUp(_ shape, r result) float64 {
	if r.ComingUp == nil {
		return math.NaN()
	}
	return float64(*r.ComingUp)
}

func leastReady(_ shape, r result) float64 { return float64(r.LeastReady) }

func wall(_ shape, r result) float64 { return float64(r.Wall) }

func timesKubelets(_ shape, r result) float64 { return r.known(float64(r.Wall / r.Floor)) }

func firstP99(_ shape, r result) float64 { return r.known(1000 * float64(r.First.P99)) }

func pauseP99(_ shape, r result) float64 { return r.known(1000 * float64(r.Pause.P99)) }

// known is a figure that there is only of rollouts in place, by whomever.
func (r result) known(figure float64) float64 {
	if r.Way == builtIn {
		return math.NaN()
	}
	return figure
}

// carrier is the process that carried the edit to the pods.
func (r result) carrier() string {
	switch r.Way {
	case builtIn:
		return controllerManager
	case floored:
		return floorAccount
	default:
		return ours
	}
}

// group is the results of all rounds of a shape, one way.
type group struct {
	shape  shape
	way    way
	rounds []result
}

// groups are in the order of the results.
func groupsOf(all []result) ([]group, error) {
	var groups []group
	for _, one := range all {
		i := slices.IndexFunc(groups, func(g group) bool { return g.shape.String() == one.Shape && g.way == one.Way })
		if i < 0 {
			s, err := parseShape(one.Shape)
			if err != nil {
				return nil, err
			}
			groups, i = append(groups, group{shape: s, way: one.Way}), len(groups)
		}
		groups[i].rounds = append(groups[i].rounds, one)
	}
	for _, g := range groups {
		if g.way != inPlace {
			continue
		}
		if i := slices.IndexFunc(groups, func(other group) bool { return other.way == floored && other.shape == g.shape }); i >= 0 {
			for n := range g.rounds {
				g.rounds[n].least = &groups[i].rounds[min(n, len(groups[i].rounds)-1)]
			}
		}
	}
	return groups, nil
}

// figures are the least, the median and the most of what there is of all rounds.
func (g group) figures(value func(shape, result) float64) (least, median, most float64) {
	values := make([]float64, 0, len(g.rounds))
	for _, r := range g.rounds {
		values = append(values, value(g.shape, r))
	}
	slices.Sort(values)
	n := len(values)
	return values[0], (values[(n-1)/2] + values[n/2]) / 2, values[n-1]
}

// cell is the median, and the spread if there is one that can be seen.
func (g group) cell(m metric) string {
	least, median, most := g.figures(m.value)
	if math.IsNaN(median) {
		return "–"
	}
	text, from, to := fmt.Sprintf(m.format, median), fmt.Sprintf(m.format, least), fmt.Sprintf(m.format, most)
	if from == to {
		return text
	}
	return fmt.Sprintf("%s (%s–%s)", text, from, to)
}

// median is the cell without the spread.
func (g group) median(m metric) string {
	_, median, _ := g.figures(m.value)
	if math.IsNaN(median) {
		return "–"
	}
	return fmt.Sprintf(m.format, median)
}

// table is in Markdown. A column in which nothing was measured is left out.
func table(groups []group, metrics []metric) string {
	metrics = slices.DeleteFunc(slices.Clone(metrics), func(m metric) bool {
		return len(groups) > 0 && !slices.ContainsFunc(groups, func(g group) bool { return g.cell(m) != "–" })
	})
	var text strings.Builder
	text.WriteString("| |")
	for _, m := range metrics {
		fmt.Fprintf(&text, " %s |", m.head)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(metrics)) + "\n")
	for _, g := range groups {
		fmt.Fprintf(&text, "| %s, %s |", g.shape.title(), g.way)
		for _, m := range metrics {
			fmt.Fprintf(&text, " %s |", g.cell(m))
		}
		text.WriteString("\n")
	}
	return text.String()
}

// tables are all that there is of the results, by name.
func (r results) tables() (map[string]string, error) {
	groups, err := groupsOf(r.Rollouts)
	if err != nil {
		return nil, err
	}
	real, err := groupsOf(r.Real)
	if err != nil {
		return nil, err
	}
	all := map[string]string{
		"summary": summaryTable(groups), "first": firstTable(groups), "real": table(real, realMetrics), "fairness": fairnessTable(r.Fairness), "targets": targetTable(groups),
		"growth": growthTable(groups), "large": largeTable(r.Large), "machine": r.Machine.String() + "\n",
	}
	for _, t := range topics {
		all[t.name] = table(groups, t.metrics)
	}
	return all, nil
}

// print prints the tables of these names.
func (r results) print(out io.Writer, names ...string) error {
	all, err := r.tables()
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := fmt.Fprintf(out, "\n%s", all[name]); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	return nil
}

// line is a result in a line.
func (r result) line() string {
	text := fmt.Sprintf("%.1f s, %.2f s of cpu, %d pods replaced", r.Wall, r.CPU[r.carrier()], r.Replaced)
	if r.Way != builtIn {
		text += fmt.Sprintf("; floor %.1f s, %.0f MiB, first request after %.0f ms, next after %.0f ms (p99 %.0f ms)",
			r.Floor, float64(r.PeakRSS)/(1<<20), r.First.P50*1000, r.Pause.P50*1000, r.Pause.P99*1000)
	}
	return text
}
