package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// The measures of the chart, in pixels; the template has its width.
const (
	plotLeft, plotRight = 50, 370
	plotTop, plotHeight = 100, 210
	barsTop             = 398 // under the plot
	barPitch, barHeight = 11, 9
	rowGap              = 13
)

// panels are what each shape is compared in: from where on the bars are, and how wide they may be.
var panels = []panel{
	{"Controller's cpu per pod, ms", 174, 200, metric{format: "%.1f", value: cpuPerPod}, []way{inPlace, floored, builtIn}, func(p peer) float64 { return p.cpu }},
	{"Its writes per pod, without events", 560, 200, metric{format: "%.2f", value: topics[0].metrics[0].value}, []way{inPlace, builtIn}, func(p peer) float64 { return p.writes }},
}

// panel is one figure of all shapes.
type panel struct {
	Title       string
	Left, width float64
	metric
	ways []way // the floor program makes as many writes as the controller
	peer func(peer) float64
}

// peers are those who resize in place, too, as they were measured on peersMeasured, beside ours on the same kind of machine and with
// the same kubelets. The figures are those of an issue, and nothing measures them again.
var peers = map[string]peer{
	"statefulset:1x100":     {"Advanced StatefulSet", 19.8, 7.0},
	"statefulset:1x100:10":  {"Advanced StatefulSet", 12.4, 6.3},
	"statefulset:1x1000:10": {"Advanced StatefulSet", 39, 5.7},
	"deployment:1x100":      {"CloneSet", 6.7, 4.35},
	"deployment:1x1000":     {"CloneSet", 5.5, 4.0},
	"daemonset:1x100:10":    {"DaemonSet, all pods at once", 3.9, 3.1},
}

const peersMeasured = "2026-11-23"

// peer is a workload of OpenKruise: its controller's cpu per pod in ms, and writes per pod.
type peer struct {
	kind        string
	cpu, writes float64
}

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

// bar is what one of those who carry an edit to the pods takes for a pod.
type bar struct {
	Class, Figure  string
	X, Y, Width, H float64
}

// End is where its figure begins.
func (b bar) End() float64 { return b.X + b.Width + 4 }

// entry says what a class of bars is.
type entry struct {
	Class, Text string
	Y           float64
}

// label names a shape.
type label struct {
	Y    float64
	Text string
}

// chart is what the template draws.
type chart struct {
	Source, Said string
	Rows, Times  []tick
	Points       []point
	Lines        []string
	Panels       []panel
	Labels       []label
	Bars         []bar
	Legend       []entry
	Bottom       float64 // of the plot
	PanelsTop    float64
	Height       float64 // of all
}

// draw draws what cpu the controller takes for one workload by its pods, and, for each shape, what a pod costs in place, by the
// floor program, built in, and by peers.
func (r results) draw() (string, error) {
	groups, err := groupsOf(r.Rollouts)
	if err != nil {
		return "", err
	}
	c := chart{Source: r.Machine.String(), Bottom: plotTop + plotHeight, PanelsTop: barsTop - 20, Panels: panels}
	c.plot(groups)
	c.compare(groups)
	c.explain()
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

// carried is what one way takes for a pod.
type carried struct {
	class string
	value float64
	note  string
}

// of is what all take for a pod of a shape, as far as it was measured.
func (p panel) of(groups []group, s shape) (all []carried) {
	for _, w := range p.ways {
		i := slices.IndexFunc(groups, func(g group) bool { return g.way == w && g.shape == s })
		if i < 0 {
			continue
		}
		_, value, _ := groups[i].figures(p.value)
		one := carried{class: strings.ReplaceAll(string(w), " ", "-"), value: value}
		if over := groups[i].median(overFloor(p.value)); over != "–" && slices.Contains(p.ways, floored) {
			one.note = " = " + over + " × floor"
		}
		all = append(all, one)
	}
	if peer, is := peers[s.String()]; is {
		one := carried{class: "peer", value: p.peer(peer)}
		if slices.Contains(p.ways, floored) {
			one.note = ", " + peer.kind
		}
		all = append(all, one)
	}
	return all
}

// compare draws a row of bars for each shape in each panel.
func (c *chart) compare(groups []group) {
	rows := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.way != inPlace || !g.shape.brief() })
	y := float64(barsTop)
	most := make([]float64, len(panels))
	for _, g := range rows {
		for i, p := range panels {
			for _, one := range p.of(groups, g.shape) {
				most[i] = max(most[i], one.value)
			}
		}
	}
	for _, g := range rows {
		n := 0
		for i, p := range panels {
			all := p.of(groups, g.shape)
			n = max(n, len(all))
			for k, one := range all {
				figure := fmt.Sprintf(p.format, one.value) + one.note
				c.Bars = append(c.Bars, bar{one.class, figure, p.Left, y + barPitch*float64(k), one.value / most[i] * p.width, barHeight})
				c.Said += fmt.Sprintf("%s, %s, %s: %s. ", g.shape.title(), p.Title, one.class, figure)
			}
		}
		c.Labels = append(c.Labels, label{y + barPitch*float64(n)/2, g.shape.title()})
		y += barPitch*float64(n) + rowGap
	}
	c.Height = y + 44
}

// explain says what the bars are that there are.
func (c *chart) explain() {
	for _, e := range []entry{
		{Class: "in-place", Text: "in place: inplace-rollout"},
		{Class: "floor", Text: "floor: the least that could do it, in the same run"},
		{Class: "built-in", Text: "built in: kube-controller-manager, with new pods"},
		{Class: "peer", Text: "OpenKruise in place, as measured on " + peersMeasured},
		{Text: "(master of 2026-07-02, no webhooks, same kind of machine)"},
	} {
		if e.Class == "" || slices.ContainsFunc(c.Bars, func(b bar) bool { return b.Class == e.Class }) {
			e.Y = plotTop + 46 + 22*float64(len(c.Legend))
			c.Legend = append(c.Legend, e)
		}
	}
}
