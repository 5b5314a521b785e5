package main

import (
	_ "embed"
	"encoding/json"
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
	Kind             string
	Replicas         int
	InPlace, BuiltIn curve
}

type curve struct {
	Samples []measure.Sample
	Took    time.Duration
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
	Shaded           string // the outline of the pods that were not Ready; empty if they are not shown

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
	for i, s := range c.Samples {
		last = value(s)
		if i == 0 {
			fmt.Fprintf(&path, "M%.1f %.1f", p.x(0), p.y(last))
			continue
		}
		fmt.Fprintf(&path, "H%.1fV%.1f", p.x(s.After), p.y(last))
	}
	fmt.Fprintf(&path, "H%.1f", p.x(c.Took))
	return line{Path: path.String(), EndX: p.x(c.Took), EndY: p.y(last)}
}

//go:embed picture.svg.tmpl
var pictureTemplate string

// svg draws the picture.
func (p picture) svg() (string, error) {
	longest := time.Duration(0)
	for _, c := range p.Columns {
		longest = max(longest, c.InPlace.Took, c.BuiltIn.Took)
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
	upper := newPanel(fmt.Sprintf("%s of %d pods: how many are Ready", c.Kind, c.Replicas), left, readyTop, longest, max(c.most(ready), c.Replicas))
	upper.InPlace, upper.BuiltIn = upper.draw(c.InPlace, ready), upper.draw(c.BuiltIn, ready)
	upper.InPlace.Label, upper.BuiltIn.Label = "in place: "+c.InPlace.availability(c.Replicas), "built in: "+c.BuiltIn.availability(c.Replicas)
	// What is above the wanted number makes up for nothing.
	shaded := upper.draw(c.BuiltIn, func(s measure.Sample) int { return min(s.Ready, c.Replicas) })
	upper.Shaded = fmt.Sprintf("%sV%.1fH%.1fZ", shaded.Path, upper.y(c.Replicas), upper.x(0))

	lower := newPanel("Containers that were restarted or replaced", left, startedTop, longest, c.most(started))
	lower.InPlace, lower.BuiltIn = lower.draw(c.InPlace, started), lower.draw(c.BuiltIn, started)
	lower.InPlace.Label, lower.BuiltIn.Label = fmt.Sprint("in place: ", c.InPlace.last().Started), fmt.Sprint("built in: ", c.BuiltIn.last().Started)
	return []panel{upper, lower}
}

// availability says for how long pods were missing.
func (c curve) availability(replicas int) string {
	var short time.Duration
	for i, s := range c.Samples {
		end := c.Took
		if i+1 < len(c.Samples) {
			end = c.Samples[i+1].After
		}
		if s.Ready < replicas {
			short += end - s.After
		}
	}
	if short == 0 {
		return "all Ready, all the time"
	}
	return fmt.Sprintf("pods missing for %s of %s", seconds(short), seconds(c.Took))
}

func (c curve) last() measure.Sample { return c.Samples[len(c.Samples)-1] }

// least is the smallest number of Ready pods.
func (c curve) least() int {
	least := c.Samples[0].Ready
	for _, s := range c.Samples {
		least = min(least, s.Ready)
	}
	return least
}

func (c column) most(value func(measure.Sample) int) int {
	most := 1
	for _, s := range slices.Concat(c.InPlace.Samples, c.BuiltIn.Samples) {
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
		}{{"in place", c.InPlace}, {"built in", c.BuiltIn}} {
			said = append(said, fmt.Sprintf("%s with %d pods, %s: at least %d Ready, %d containers started anew, complete after %s.",
				c.Kind, c.Replicas, way.name, way.least(), way.last().Started, seconds(way.Took)))
		}
	}
	return strings.Join(said, " ")
}

// write draws the picture into a file, and keeps what was measured beside it.
func (p picture) write(file string) error {
	text, err := p.svg()
	if err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	measured, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("keeping what was measured: %w", err)
	}
	for name, text := range map[string][]byte{file: []byte(text), strings.TrimSuffix(file, ".svg") + ".json": append(measured, '\n')} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return fmt.Errorf("writing the picture: %w", err)
		}
	}
	return nil
}
