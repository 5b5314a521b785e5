package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// results are what is kept in the JSON file.
type results struct {
	Machine  machine  `json:"machine"`
	Rollouts []result `json:"rollouts"`
}

// machine is where and when it was measured.
type machine struct {
	Date       string `json:"date"`
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Kubernetes string `json:"kubernetes"`
}

func (m machine) String() string {
	return fmt.Sprintf("Measured on %s, Kubernetes %s, %d cores of %s, which everything shares.\n", m.Date, m.Kubernetes, m.Cores, m.CPU)
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

// column is a figure of the results, of which tables have the median of all rounds.
type column struct {
	head, format string
	value        func(result) float64
	of           way  // whose, beside those in place; empty for the row's own
	overFloor    bool // tell in brackets how many times the floor program's it is
}

var columns = []column{
	{head: "writes per pod", format: "%.2f", value: writesPerPod},
	{head: "built in", format: "%.2f", value: writesPerPod, of: builtIn},
	{head: "cpu per pod, ms (× floor)", format: "%.1f", value: cpuPerPod, overFloor: true},
	{head: "peak RSS, MiB (× floor)", format: "%.0f", value: func(r result) float64 { return mib(r.PeakRSS) }, overFloor: true},
	{head: "time, s (× floor)", format: "%.1f", value: func(r result) float64 { return float64(r.Wall) }, overFloor: true},
	{head: "first request, p99, s", format: "%.1f", value: func(r result) float64 { return float64(r.First.P99) }},
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// pods are how many there are in all.
func (r result) pods() float64 {
	s, err := parseShape(r.Shape)
	if err != nil {
		return math.NaN()
	}
	return float64(s.all())
}

func cpuPerPod(r result) float64 { return 1000 * r.CPU[r.carrier()] / r.pods() }

// writesPerPod are those of who carries the edit to the pods, without events.
func writesPerPod(r result) float64 {
	return r.written(func(w measure.Write) bool { return r.carries(w) && w.Resource != "events" }) / r.pods()
}

// median of what there is of a shape and a way; NaN if nothing.
func median(all []result, shape string, of way, value func(result) float64) float64 {
	var values []float64
	for _, r := range all {
		if r.Shape == shape && r.Way == of {
			values = append(values, value(r))
		}
	}
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func (c column) cell(all []result, shape string) string {
	figure := median(all, shape, cmp.Or(c.of, inPlace), c.value)
	if math.IsNaN(figure) {
		return "–"
	}
	text := fmt.Sprintf(c.format, figure)
	if over := figure / median(all, shape, floored, c.value); c.overFloor && !math.IsNaN(over) {
		text += fmt.Sprintf(" (%.2f)", over)
	}
	return text
}

// summary has a row for each shape, in the order of the results; it is empty if there is none.
func (r results) summary() string {
	var rows strings.Builder
	var done []string
	for _, one := range r.Rollouts {
		s, err := parseShape(one.Shape)
		if err != nil || one.Way != inPlace || slices.Contains(done, one.Shape) {
			continue
		}
		done = append(done, one.Shape)
		fmt.Fprintf(&rows, "| %s |", s.title())
		for _, c := range columns {
			fmt.Fprintf(&rows, " %s |", c.cell(r.Rollouts, one.Shape))
		}
		rows.WriteString("\n")
	}
	if rows.Len() == 0 {
		return ""
	}
	head := "| |"
	for _, c := range columns {
		head += " " + c.head + " |"
	}
	return head + "\n|---|" + strings.Repeat("---|", len(columns)) + "\n" + rows.String()
}

// line is a result in a line.
func (r result) line() string {
	text := fmt.Sprintf("%.1f s, %.2f s of cpu, %d pods replaced, %d conflicts, %d refusals, %.0f ms of policies", r.Wall, r.CPU[r.carrier()], r.Replaced, r.Conflicts, r.Refusals, r.Policies*1000)
	if r.Way != builtIn {
		text += fmt.Sprintf("; %.0f MiB, first request after %.0f ms", mib(r.PeakRSS), r.First.P50*1000)
	}
	return text
}

// report brings results into the documentation: the results themselves, and the tables into the page.
func report(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("benchmark report", flag.ContinueOnError)
	from := flags.String("from", "bin/benchmark.json", "what was measured")
	results := flags.String("json", "docs/performance.json", "where that is kept")
	file := flags.String("page", "docs/performance.md", "the page with a place for each table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := load(*from)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	page, err := all.fillIn(string(text))
	if err != nil {
		return err
	}
	if err := os.WriteFile(*file, []byte(page), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return all.write(*results)
}

// place is where a table goes: it replaces what stands there.
var place = regexp.MustCompile(`(?s)(<!-- benchmark: (\w+) -->\n).*?<!-- end -->`)

// fillIn returns the page with all tables in their places. It says that in place every pod stays Ready, so that must be true.
func (r results) fillIn(page string) (string, error) {
	for _, one := range r.Rollouts {
		if one.Way == inPlace && (one.Replaced > 0 || float64(one.LeastReady) < one.pods()) {
			return "", fmt.Errorf("%s: the page says that in place every pod stays Ready; %d were replaced, and %d Ready", one.Shape, one.Replaced, one.LeastReady)
		}
	}
	tables := map[string]string{"machine": r.Machine.String(), "summary": r.summary()}
	var wrong error
	page = place.ReplaceAllStringFunc(page, func(old string) string {
		parts := place.FindStringSubmatch(old)
		text := tables[parts[2]]
		if text == "" {
			wrong = errors.Join(wrong, fmt.Errorf("there is nothing for the place of %s: measure what belongs there", parts[2]))
		}
		delete(tables, parts[2])
		return parts[1] + "\n" + text + "\n<!-- end -->"
	})
	for name := range tables {
		wrong = errors.Join(wrong, fmt.Errorf("the page has no place for %s", name))
	}
	return page, wrong
}
