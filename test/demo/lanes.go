package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// lane is how the pod of a name went from an edit on.
type lane struct {
	Pod   string
	Bars  []bar
	Kills []time.Duration // by the kernel
	asked bool            // for the size of the edit, or made with it
}

// bar is a time in which nothing changed.
type bar struct {
	From, Until time.Duration
	What        condition
}

type condition string

const (
	gone   condition = ""
	former condition = "former" // Ready, with its size from before
	edited condition = "edited" // Ready, with the size of the edit
	down   condition = "down"   // not Ready
)

// lanesOf are those of all pods that a subject has had from moment from on, at which it is edited. The last bars end with the history.
func lanesOf(history []measure.Moment, from int, of measure.Subject) []lane {
	m := measure.Edit(history, from, of)
	want := m.After.Template().Spec.Containers
	lanes, killed := map[string]*lane{}, sets.New[string]()
	look := func(at time.Duration, name string, pod *corev1.Pod) {
		l := lanes[name]
		if l == nil {
			l = &lane{Pod: name}
			lanes[name] = l
		}
		what := gone
		switch {
		case pod == nil:
		case !measure.Ready(pod):
			what = down
		case measure.HasSize(pod, want):
			what = edited
		default:
			what = former
		}
		last := len(l.Bars) - 1
		if last >= 0 {
			l.Bars[last].Until = at
		}
		if last < 0 || l.Bars[last].What != what {
			l.Bars = append(l.Bars, bar{at, at, what})
		}
		if pod == nil {
			return
		}
		l.asked = l.asked || amounts(pod.Spec.Containers[0].Resources.Requests) == amounts(want[0].Resources.Requests)
		for _, c := range pod.Status.ContainerStatuses {
			if t := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated); t != nil && t.Reason == "OOMKilled" && !killed.Has(t.ContainerID) {
				killed.Insert(t.ContainerID)
				l.Kills = append(l.Kills, at)
			}
		}
	}
	s := measure.Replay(history[:from], of)
	for name, pod := range s.Pods {
		look(0, name, pod)
	}
	end := time.Duration(0)
	for _, moment := range history[from:] {
		at := max(0, moment.At.Sub(m.Edited))
		end = max(end, at)
		if pod, is := moment.Object.(*corev1.Pod); is && moment.Subject() == of {
			s.Apply(moment)
			look(at, pod.Name, s.Pods[pod.Name])
		}
	}
	var all []lane
	for name, l := range lanes {
		look(end, name, s.Pods[name])
		all = append(all, *l)
	}
	slices.SortFunc(all, func(a, b lane) int {
		return cmp.Or(cmp.Compare(a.Bars[0].From, b.Bars[0].From), cmp.Compare(a.Pod, b.Pod))
	})
	return all
}

// picture shows the pods of each workload after the same edit, each in a lane, with time to the right: on the left in place, on the
// right built in. Its colours can be read on white and on black, and what is not Ready is higher, too.
type picture struct {
	Title, Source string
	Rows          [][]panel
}

// panel is one edit of one workload.
type panel struct {
	Title, Outcome string
	lanes          []lane
}

// draws adds an edit in place and the same built in.
func (d *demo) draws(w workload, results []result, outcome func(result) string) {
	var row []panel
	for i, r := range results {
		row = append(row, panel{w.Kind + []string{", in place", ", built in"}[i], outcome(r), r.lanes})
	}
	d.picture.Rows = append(d.picture.Rows, row)
}

// draw draws the picture, if there is to be one.
func (d *demo) draw() error {
	if d.options.picture == "" {
		return nil
	}
	d.picture.Source = fmt.Sprintf("Measured on %s, Kubernetes %s. %s", d.begin.Format(time.DateOnly), d.Version(), d.picture.Source)
	text, err := d.picture.svg()
	if err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	if err := os.WriteFile(d.options.picture, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}

// The measures of the picture, in pixels.
const (
	panelPitch = 412
	lanePitch  = 18
	laneLeft   = 150 // in its panel, after the name
	laneWidth  = 240
	ready      = 6 // the height of a bar
	silent     = 12
)

//go:embed lanes.svg.tmpl
var svgTemplate string

// shape is a rectangle, a line of the grid, the mark of a kill, or a text.
type shape struct {
	Class         string
	X, Y          float64
	Width, Height float64
	Text          string
}

// svg draws the picture.
func (p picture) svg() (string, error) {
	span := time.Second
	for _, row := range p.Rows {
		for _, panel := range row {
			for _, l := range panel.lanes {
				span = max(span, l.Bars[len(l.Bars)-1].Until)
			}
		}
	}
	var shapes []shape
	y := 84.0
	for _, row := range p.Rows {
		most := 0
		for i, panel := range row {
			shapes = append(shapes, panel.shapes(12+float64(i)*panelPitch, y, span)...)
			most = max(most, len(panel.lanes))
		}
		y += 76 + float64(most)*lanePitch
	}
	var out strings.Builder
	err := template.Must(template.New("").Parse(svgTemplate)).Execute(&out, map[string]any{"Picture": p, "Shapes": shapes, "Height": y, "Said": p.describe()})
	return out.String(), err
}

// shapes are those of a panel, of which x and y are the corner.
func (p panel) shapes(x, y float64, span time.Duration) []shape {
	all := []shape{{Class: "panel", X: x, Y: y, Text: p.Title}, {Class: "outcome", X: x, Y: y + 17, Text: p.Outcome}}
	at := func(t time.Duration) float64 { return x + laneLeft + t.Seconds()/span.Seconds()*laneWidth }
	top, bottom := y+26, y+26+float64(len(p.lanes))*lanePitch
	step := time.Second
	for _, longer := range []time.Duration{2, 5, 10, 20, 60} {
		if span > 6*step {
			step = longer * time.Second
		}
	}
	for t := time.Duration(0); t <= span; t += step {
		all = append(all, shape{Class: "grid", X: at(t), Y: top, Height: bottom - top}, shape{Class: "time", X: at(t), Y: bottom + 13, Text: fmt.Sprintf("%.0f s", t.Seconds())})
	}
	for i, l := range p.lanes {
		middle := top + (float64(i)+0.5)*lanePitch
		all = append(all, shape{Class: "pod", X: x, Y: middle + 4, Text: l.Pod})
		for _, b := range l.Bars {
			height := float64(ready)
			if b.What == down {
				height = silent
			}
			if b.What != gone {
				all = append(all, shape{Class: string(b.What), X: at(b.From), Y: middle - height/2, Width: at(b.Until) - at(b.From), Height: height})
			}
		}
		for _, k := range l.Kills {
			all = append(all, shape{Class: "kill", X: at(k), Y: middle})
		}
	}
	return all
}

// describe says in words what the picture shows.
func (p picture) describe() (said string) {
	for _, row := range p.Rows {
		for _, panel := range row {
			said += fmt.Sprintf("%s: %s. ", panel.Title, panel.Outcome)
		}
	}
	return said
}
