package main

import (
	_ "embed"
	"fmt"
	"math"
	"strings"
	"text/template"
)

// The measures of the picture, in pixels; the template has its width and height.
const (
	plotWidth  = 340
	plotHeight = 240
	plotTop    = 110
	plotLeft   = 64
	plotPitch  = 420
)

//go:embed picture.svg.tmpl
var pictureTemplate string

// plot shows of one resource what is not used of the requests, and how often they are too small.
type plot struct {
	Title                    string
	Left, Top, Right, Bottom int
	Rows, Columns            []tick
	Dots                     []dot
}

type tick struct {
	At    float64
	Label string
}

// dot is a rule: small for the pods of one kind, large for all of them.
type dot struct {
	X, Y  float64
	Class string
	Label string
	DX    int // of the label
	DY    float64
}

// classes are the rules in the picture, and how they are drawn.
var classes = []struct {
	Rule, Class, Label string
	DX                 int // where the label goes, so that they do not cover each other
	DY                 float64
}{
	{limitRange, "default", "LimitRange", 11, -3},
	{ladder, "ladder", "ladder", 11, 4.5},
	{ladder98, "ladder98", "p98", 11, 13},
	{vpaTarget, "vpa", "VPA", 11, 10},
	{krrSimple, "krr", "KRR", -12, 4.5},
}

// draw draws the rules by births that all of them know something of. Its colours can be read
// on white and on black.
func (s scores) draw() (string, error) {
	plots := []*plot{newPlot("cpu", 0), newPlot("memory", 1)}
	var said strings.Builder
	for _, c := range classes {
		for i, of := range []func(score) figures{func(s score) figures { return s.cpu }, func(s score) figures { return s.memory }} {
			if c.Rule != ladder98 {
				for _, k := range kinds {
					plots[i].add(of(s.of(c.Rule, func(kind string, s situation) bool { return kind == k.name && s.known() })), c.Class+" small", "", 0, 0)
				}
			}
			all := of(s.of(c.Rule, ofKnown))
			plots[i].add(all, c.Class, c.Label, c.DX, c.DY)
			fmt.Fprintf(&said, "%s, %s: %s of the requests are not used, %s of the samples are above them. ", c.Label, plots[i].Title, all.slackShare(), all.aboveShare())
		}
	}
	var out strings.Builder
	err := template.Must(template.New("").Parse(pictureTemplate)).Execute(&out, map[string]any{"Plots": plots, "Said": strings.TrimSpace(said.String())})
	if err != nil {
		return "", fmt.Errorf("drawing the picture: %w", err)
	}
	return out.String(), nil
}

func newPlot(title string, n int) *plot {
	p := &plot{Title: title, Left: plotLeft + n*plotPitch, Top: plotTop, Bottom: plotTop + plotHeight}
	p.Right = p.Left + plotWidth
	for _, share := range []float64{0, 0.01, 0.05, 0.1, 0.25, 0.5, 1} {
		p.Rows = append(p.Rows, tick{p.y(share), fmt.Sprintf("%.0f %%", 100*share)})
	}
	for _, share := range []float64{0, 0.25, 0.5, 0.75, 1} {
		p.Columns = append(p.Columns, tick{p.x(share), fmt.Sprintf("%.0f %%", 100*share)})
	}
	return p
}

func (p *plot) x(share float64) float64 { return float64(p.Left) + share*plotWidth }

// y spreads small shares: they matter.
func (p *plot) y(share float64) float64 { return float64(p.Bottom) - math.Sqrt(share)*plotHeight }

func (p *plot) add(f figures, class, label string, dx int, dy float64) {
	if f.samples > 0 {
		p.Dots = append(p.Dots, dot{p.x(f.slack / f.requested), p.y(share(f.above, f.samples)), class, label, dx, dy})
	}
}
