package main

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

// The measures of the chart, in pixels; the template has its width.
const (
	plotLeft, plotRight = 50, 370
	plotTop, plotHeight = 100, 250
	barLeft, barWidth   = 610, 190
	barPitch            = 27
)

//go:embed chart.svg.tmpl
var chartTemplate string

// tick is a line of a grid.
type tick struct {
	At    float64
	Label string
}

// point is a shape in the plot of cpu by pods.
type point struct {
	X, Y  float64
	Class string
}

// bars are what a shape has both ways.
type bars struct {
	Y                float64
	Title            string
	InPlace, BuiltIn float64 // widths; less than 0 if there is none
	Figures          string
}

// chart is what the template draws.
type chart struct {
	Source, Said string
	Rows, Times  []tick
	Points       []point
	Lines        []string
	Bars         []bars
	Bottom       float64 // of the plot
	Height       float64 // of all
}

// draw draws what cpu the controller takes for one workload by its pods, and how many writes
// a pod costs the API server either way.
func (r results) draw() (string, error) {
	groups, err := groupsOf(r.Rollouts)
	if err != nil {
		return "", err
	}
	c := chart{Source: r.Machine.String(), Bottom: plotTop + plotHeight}
	c.plot(groups)
	c.compare(groups)
	c.Height = max(c.Bottom, plotTop+barPitch*float64(len(c.Bars))) + 70
	var out strings.Builder
	if err := template.Must(template.New("").Parse(chartTemplate)).Execute(&out, c); err != nil {
		return "", fmt.Errorf("drawing the chart: %w", err)
	}
	return out.String(), nil
}

// cpuSeconds is the first of the figures that grow.
func cpuSeconds(s shape, r result) float64 { return grown[0].value(s, r) / 1000 }

// plot draws the cpu by pods, for one workload of each kind, and the line that the formula makes.
func (c *chart) plot(groups []group) {
	pods, cpu := 1.0, 0.001
	for _, kind := range kinds {
		for _, g := range ofKind(groups, kind) {
			if _, measured, _ := g.figures(cpuSeconds); g.shape.workloads == 1 {
				pods, cpu = max(pods, float64(g.shape.pods)), max(cpu, measured)
			}
		}
	}
	x := func(n float64) float64 { return plotLeft + n/pods*(plotRight-plotLeft) }
	y := func(s float64) float64 { return plotTop + plotHeight*(1-s/cpu/1.05) }
	for _, kind := range kinds {
		some := ofKind(groups, kind)
		for _, g := range some {
			if _, measured, _ := g.figures(cpuSeconds); g.shape.workloads == 1 {
				c.Points = append(c.Points, point{x(float64(g.shape.pods)), y(measured), strings.ToLower(kind)})
			}
		}
		if len(some) > 0 {
			f := fit(some, cpuSeconds)
			end := f.of(shape{workloads: 1, pods: int(pods)})
			c.Lines = append(c.Lines, fmt.Sprintf("M%.1f %.1fL%.1f %.1f", x(0), y(f.perRollout), x(pods), y(end)))
			c.Said += fmt.Sprintf("%s: %.1f ms of cpu per pod and %.0f ms per rollout. ", kind, 1000*f.perPod, 1000*f.perRollout)
		}
	}
	for i := range 5 {
		part := float64(i) / 4
		c.Rows = append(c.Rows, tick{y(part * cpu), fmt.Sprintf("%.1f s", part*cpu)})
		c.Times = append(c.Times, tick{x(part * pods), fmt.Sprintf("%.0f", part*pods)})
	}
}

// compare draws the writes per pod.
func (c *chart) compare(groups []group) {
	writes := func(s shape, r result) float64 { return grown[2].value(s, r) / float64(s.all()) }
	most := 0.0
	for _, g := range groups {
		_, n, _ := g.figures(writes)
		most = max(most, n)
	}
	for _, g := range groups {
		if g.way != inPlace {
			continue
		}
		_, n, _ := g.figures(writes)
		b := bars{Y: plotTop + barPitch*float64(len(c.Bars)), Title: g.shape.title(), InPlace: n / most * barWidth, BuiltIn: -1, Figures: fmt.Sprintf("%.1f", n)}
		for _, other := range groups {
			if other.way == builtIn && other.shape == g.shape {
				_, n, _ := other.figures(writes)
				b.BuiltIn = n / most * barWidth
				b.Figures += fmt.Sprintf(" / %.1f", n)
			}
		}
		c.Said += fmt.Sprintf("%s: %s writes per pod. ", b.Title, b.Figures)
		c.Bars = append(c.Bars, b)
	}
}
