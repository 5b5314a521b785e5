package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"
)

// guardedPicture shows how the pods of two StatefulSets went after the same edit, each in a lane, with time to the right. Its colours
// can be read on white and on black, and what does not answer is higher, too.
type guardedPicture struct {
	Title, About, Source string
	Former, Edited       string // the limits
	Span                 time.Duration
	Groups               []laneGroup
}

// laneGroup is one of the StatefulSets.
type laneGroup struct {
	Class, Title, Outcome string
	lanes                 []lane
}

// The measures of the picture, in pixels; the template has its width and height.
const (
	lanesLeft  = 78
	lanesWidth = 560
	groupTop   = 92
	groupPitch = 140
	lanePitch  = 32
	laneFirst  = 30 // below the group's title
	answering  = 8  // the height of a bar
	silent     = 20
	killed     = 15 // above the middle of a lane is the mark of a kill
)

// bar is a stretch that has been drawn.
type bar struct {
	Class               string
	X, Y, Width, Height float64
}

// drawnLane is a lane that has been drawn.
type drawnLane struct {
	Pod   string
	Y     int
	KillY int
	Bars  []bar
	Kills []float64
	Label string
}

// drawnGroup is a group that has been drawn.
type drawnGroup struct {
	laneGroup
	Y, Top, Bottom int
	Lanes          []drawnLane
	Times          []tick
}

func (p guardedPicture) x(after time.Duration) float64 {
	return lanesLeft + after.Seconds()/p.Span.Seconds()*lanesWidth
}

// draw draws a lane in the middle of which is y.
func (p guardedPicture) draw(l lane, y int) drawnLane {
	drawn := drawnLane{Pod: l.pod, Y: y, KillY: y - killed, Label: fmt.Sprintf("%d of %d visits failed", l.lost, l.visits)}
	begin := p.x(0)
	for _, s := range l.stretches {
		height := float64(answering)
		if s.what == down {
			height = silent
		}
		end := p.x(s.until)
		drawn.Bars = append(drawn.Bars, bar{string(s.what), begin, float64(y) - height/2, end - begin, height})
		begin = end
	}
	for _, at := range l.kills {
		drawn.Kills = append(drawn.Kills, p.x(at))
	}
	return drawn
}

//go:embed guarded.svg.tmpl
var guardedTemplate string

// svg draws the picture.
func (p guardedPicture) svg() (string, error) {
	var groups []drawnGroup
	for i, g := range p.Groups {
		y := groupTop + i*groupPitch
		drawn := drawnGroup{laneGroup: g, Y: y, Top: y + laneFirst - silent/2}
		for j, l := range g.lanes {
			drawn.Lanes = append(drawn.Lanes, p.draw(l, y+laneFirst+j*lanePitch))
		}
		drawn.Bottom = y + laneFirst + (len(g.lanes)-1)*lanePitch + silent/2
		for at := time.Duration(0); at <= p.Span; at += p.Span / 6 {
			t := tick{At: p.x(at)}
			if i == len(p.Groups)-1 {
				t.Label = fmt.Sprintf("%.0f s", at.Seconds())
			}
			drawn.Times = append(drawn.Times, t)
		}
		groups = append(groups, drawn)
	}
	var out strings.Builder
	err := template.Must(template.New("").Parse(guardedTemplate)).Execute(&out, map[string]any{
		"Picture": p, "Groups": groups, "Said": p.describe(), "Right": lanesLeft + lanesWidth,
	})
	return out.String(), err
}

// describe says in words what the picture shows.
func (p guardedPicture) describe() string {
	var said []string
	for _, g := range p.Groups {
		said = append(said, fmt.Sprintf("%s: %s.", g.Title, g.Outcome))
		for _, l := range g.lanes {
			said = append(said, l.describe(p.Edited))
		}
	}
	return strings.Join(said, " ")
}

func (l *lane) describe(limit string) string {
	var told []string
	begin := time.Duration(0)
	for _, s := range l.stretches {
		if s.what == down {
			told = append(told, fmt.Sprintf("no answer for %s from %s on", seconds(s.until-begin), seconds(begin)))
		}
		begin = s.until
	}
	if len(told) == 0 {
		told = []string{"always answers"}
	}
	given := "never given the limit of " + limit
	if l.asked {
		given = "given the limit of " + limit
	}
	killed := "not killed"
	if len(l.kills) > 0 {
		var at []string
		for _, k := range l.kills {
			at = append(at, seconds(k))
		}
		killed = "killed at " + strings.Join(at, ", ")
	}
	return fmt.Sprintf("%s: %s, %s, %s; %d of %d visits failed.", l.pod, given, killed, strings.Join(told, ", "), l.lost, l.visits)
}

// picture is what was measured.
func (t *trial) picture(results []verdictOn, begin time.Time) guardedPicture {
	limit := func(r verdictOn, before bool) string {
		s := r.After
		if before {
			s = r.Before
		}
		return s.Template().Spec.Containers[0].Resources.Limits.Memory().String()
	}
	p := guardedPicture{
		Title:  "A memory limit that is too small, guarded and built in",
		About:  fmt.Sprintf("At 0 s both are edited. Each pod needs %s for a moment, every %.0f s.", bytes(jobNeeds), jobEvery.Seconds()),
		Source: fmt.Sprintf("Measured on %s by make demo-guarded: Kubernetes %s on a real node, a visit of each pod every %s.", begin.Format(time.DateOnly), t.Version(), seconds(visitEvery)),
		Former: limit(results[0], true), Edited: limit(results[0], false), Span: watched,
	}
	for i, title := range []string{"Guarded, canary 1 and Revert", "Built in"} {
		r := results[i]
		p.Groups = append(p.Groups, laneGroup{
			Class: []string{"in-place", "built-in"}[i], Title: title,
			Outcome: fmt.Sprintf("%s pods given the limit, %s killed, %d replaced", r.pods(wasAsked), r.pods(wasKilled), r.Replaced), lanes: r.lanes,
		})
	}
	return p
}

// write draws the picture into a file.
func (p guardedPicture) write(file string) error {
	text, err := p.svg()
	if err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}
