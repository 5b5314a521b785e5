package main

import (
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// picture shows how edits went, each workload in a column: above its Ready pods, below
// the containers that had to start anew. Its colours can be read on white and on black.
type picture struct {
	Title, Source string
	Columns       []column
}

// column is one workload, edited in place and by the built-in controller.
type column struct {
	kind             string
	replicas         int
	inPlace, builtIn curve
}

type curve struct {
	samples []measure.Sample
	took    time.Duration
}

func (r result) curve() curve { return curve{r.samples, r.Took} }

// The measures of the picture, in pixels; the template has its width and height.
const (
	panelLeft   = 34 // of the first column
	panelWidth  = 350
	panelPitch  = 420 // from one column to the next
	panelHeight = 100
	readyTop    = 92
	startedTop  = 252
)

// panel is a measure of one workload over time.
type panel struct {
	Title            string
	Left, Top        int
	Right, Bottom    int
	Rows, Times      []tick
	InPlace, BuiltIn line
	Missing          string // the outline of the pods that were not Ready; empty if they are not shown

	seconds, most float64
}

type tick struct {
	At    float64
	Label string
}

// line is a curve that has been drawn.
type line struct {
	Path       string
	EndX, EndY float64
	Label      string
}

func (p *panel) x(after time.Duration) float64 {
	return float64(p.Left) + after.Seconds()/p.seconds*panelWidth
}

func (p *panel) y(n int) float64 { return float64(p.Bottom) - float64(n)/p.most*panelHeight }

// draw draws the steps of a curve.
func (p *panel) draw(c curve, value func(measure.Sample) int) line {
	var path strings.Builder
	last := 0
	for i, s := range c.samples {
		last = value(s)
		if i == 0 {
			fmt.Fprintf(&path, "M%.1f %.1f", p.x(0), p.y(last))
			continue
		}
		fmt.Fprintf(&path, "H%.1fV%.1f", p.x(s.After), p.y(last))
	}
	fmt.Fprintf(&path, "H%.1f", p.x(c.took))
	return line{Path: path.String(), EndX: p.x(c.took), EndY: p.y(last)}
}

//go:embed picture.svg.tmpl
var pictureTemplate string

// svg draws the picture.
func (p picture) svg() (string, error) {
	longest := time.Duration(0)
	for _, c := range p.Columns {
		longest = max(longest, c.inPlace.took, c.builtIn.took)
	}
	var panels []panel
	for i, c := range p.Columns {
		panels = append(panels, c.panels(panelLeft+i*panelPitch, longest)...)
	}
	var out strings.Builder
	err := template.Must(template.New("").Parse(pictureTemplate)).Execute(&out, map[string]any{
		"Picture": p, "Panels": panels, "Said": p.describe(),
	})
	return out.String(), err
}

// panels are the two of a column.
func (c column) panels(left int, longest time.Duration) []panel {
	ready := func(s measure.Sample) int { return s.Ready }
	started := func(s measure.Sample) int { return s.Started }
	upper := newPanel(fmt.Sprintf("%s: Ready pods (of %d)", c.kind, c.replicas), left, readyTop, longest, max(c.most(ready), c.replicas))
	upper.InPlace, upper.BuiltIn = upper.draw(c.inPlace, ready), upper.draw(c.builtIn, ready)
	// What is above the wanted number makes up for nothing.
	missing := upper.draw(c.builtIn, func(s measure.Sample) int { return min(s.Ready, c.replicas) })
	upper.Missing = fmt.Sprintf("%sV%.1fH%.1fZ", missing.Path, upper.y(c.replicas), upper.x(0))

	lower := newPanel("Containers started anew", left, startedTop, longest, c.most(started))
	lower.InPlace, lower.BuiltIn = lower.draw(c.inPlace, started), lower.draw(c.builtIn, started)
	lower.InPlace.Label, lower.BuiltIn.Label = c.inPlace.outcome(), c.builtIn.outcome()
	return []panel{upper, lower}
}

// outcome is what came of it.
func (c curve) outcome() string {
	return fmt.Sprintf("%d, complete after %s", c.last().Started, seconds(c.took))
}

func (c curve) last() measure.Sample { return c.samples[len(c.samples)-1] }

// least is the smallest number of Ready pods.
func (c curve) least() int {
	least := c.samples[0].Ready
	for _, s := range c.samples {
		least = min(least, s.Ready)
	}
	return least
}

func (c column) most(value func(measure.Sample) int) int {
	most := 1
	for _, s := range slices.Concat(c.inPlace.samples, c.builtIn.samples) {
		most = max(most, value(s))
	}
	return most
}

func newPanel(title string, left, top int, longest time.Duration, most int) panel {
	p := panel{
		Title: title, Left: left, Top: top, Right: left + panelWidth, Bottom: top + panelHeight,
		seconds: longest.Seconds() * 1.02, most: float64(most),
	}
	for n := 0; n <= most; n += (most + 3) / 4 {
		p.Rows = append(p.Rows, tick{p.y(n), fmt.Sprint(n)})
	}
	step := 1
	for _, larger := range []int{2, 5, 10, 20, 60} {
		if p.seconds/float64(step) > 6 {
			step = larger
		}
	}
	for s := 0; float64(s) <= p.seconds; s += step {
		p.Times = append(p.Times, tick{p.x(time.Duration(s) * time.Second), fmt.Sprintf("%d s", s)})
	}
	return p
}

// describe says in words what the picture shows.
func (p picture) describe() string {
	var said []string
	for _, c := range p.Columns {
		for _, way := range []struct {
			name string
			curve
		}{{"in place", c.inPlace}, {"built in", c.builtIn}} {
			said = append(said, fmt.Sprintf("%s with %d pods, %s: at least %d Ready, %d containers started anew, complete after %s.",
				c.kind, c.replicas, way.name, way.least(), way.last().Started, seconds(way.took)))
		}
	}
	return strings.Join(said, " ")
}

// write draws the picture into a file.
func (p picture) write(file string) error {
	text, err := p.svg()
	if err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}
