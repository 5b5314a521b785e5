package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// formula is how a figure grows with what is rolled out.
type formula struct{ perPod, perRollout float64 }

func (f formula) of(s shape) float64 {
	return f.perPod*float64(s.all()) + f.perRollout*float64(s.workloads)
}

// fit finds the formula that is nearest to the medians of what was measured: the squares of
// what it is wrong by, in parts of what was measured, are the least. Less than nothing costs
// nothing.
func fit(groups []group, value func(shape, result) float64) formula {
	var pp, pr, rr, p, r float64
	for _, g := range groups {
		_, measured, _ := g.figures(value)
		if measured <= 0 {
			continue
		}
		pods, rollouts := float64(g.shape.all())/measured, float64(g.shape.workloads)/measured
		pp, pr, rr, p, r = pp+pods*pods, pr+pods*rollouts, rr+rollouts*rollouts, p+pods, r+rollouts
	}
	only := formula{perPod: p / pp}
	determinant := pp*rr - pr*pr
	if math.Abs(determinant) < 1e-9*pp*rr {
		return only // all have the same number of pods
	}
	both := formula{perPod: (p*rr - r*pr) / determinant, perRollout: (r*pp - p*pr) / determinant}
	if both.perRollout < 0 {
		return only
	}
	return both
}

// grown are the figures of which the growth is told.
var grown = []metric{
	{"controller's cpu, ms", "%.1f", func(_ shape, r result) float64 { return 1000 * r.CPU[ours] }},
	{"its writes", "%.2f", func(_ shape, r result) float64 {
		return r.written(func(w measure.Write) bool { return r.carries(w) && !isEvent(w) })
	}},
	{"kube-apiserver's cpu, ms", "%.1f", func(_ shape, r result) float64 { return 1000 * r.CPU[apiServer] }},
}

// kinds of workloads, in the order of the tables.
var kinds = []string{"StatefulSet", "Deployment"}

// ofKind are the rollouts in place of one kind.
func ofKind(groups []group, kind string) []group {
	return slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.way != inPlace || g.shape.kind != kind })
}

// growthTable has the formulae.
func growthTable(groups []group) string {
	var text strings.Builder
	text.WriteString("| for a pod + for a rollout |")
	for _, m := range grown {
		fmt.Fprintf(&text, " %s |", m.head)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(grown)) + "\n")
	for _, kind := range kinds {
		some := ofKind(groups, kind)
		if len(some) == 0 {
			continue
		}
		fmt.Fprintf(&text, "| %s |", kind)
		for _, m := range grown {
			f := fit(some, m.value)
			fmt.Fprintf(&text, " "+m.format+" + "+m.format+" |", f.perPod, f.perRollout)
		}
		text.WriteString("\n")
	}
	return text.String()
}
