package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// target is what a figure of a rollout in place should not exceed.
type target struct {
	what   string
	format string
	value  func(shape, result) float64
	most   float64
	of     func(shape) bool
}

// targets are those of the project.
var targets = []target{
	{"controller's cpu per pod, ms", "%.1f", cpuPerPod, 4, func(s shape) bool { return s.workloads == 1 && s.pods >= 100 }},
	{"peak RSS, MiB", "%.0f", peakRSS, 80, func(s shape) bool { return s.workloads == 1 && s.pods == 1000 }},
	{"peak RSS, MiB", "%.0f", peakRSS, 100, func(s shape) bool { return s.workloads == 100 && s.pods == 10 }},
	{"cpu, × floor", "%.2f", overFloor(cpuPerPod).value, 1.5, func(s shape) bool { return s.all() >= 100 }},
	{"peak RSS above 1.3 × floor, MiB", "%.0f", func(s shape, r result) float64 {
		if r.least == nil {
			return math.NaN()
		}
		return peakRSS(s, r) - 1.3*peakRSS(s, *r.least)
	}, 10, func(s shape) bool { return s.all() >= 100 }},
	{"time, × kubelets alone", "%.2f", timesKubelets, 1.1, func(s shape) bool { return s.workloads == 1 && s.limit == 1 }},
	{"time, × kubelets alone", "%.2f", timesKubelets, 1.3, func(s shape) bool { return s.workloads == 1 && s.pods == 1000 && s.limit == 10 }},
	{"resized to next request, p99, ms", "%.0f", pauseP99, 25, func(s shape) bool { return s.workloads == 1 && s.limit == 1 }},
	{"resized to next request, p99, ms", "%.0f", pauseP99, 100, func(s shape) bool { return s.workloads == 100 }},
	{"edit to first request, p99, ms", "%.0f", firstP99, 250, func(shape) bool { return true }},
	{"writes per pod", "%.2f", topics[0].metrics[0].value, 2.1, func(s shape) bool { return s.kind == "DaemonSet" && s.pods >= 100 }},
	{"events per pod", "%.2f", topics[0].metrics[1].value, 1.1, func(s shape) bool { return s.pods >= 100 }},
	{"conflicts while new", "%.0f", conflictsComingUp, 0, func(s shape) bool { return s.kind != "Deployment" }},
	{"status writes per workload", "%.1f", topics[0].metrics[2].value, 2, func(shape) bool { return true }},
}

// targetTable compares the targets with the worst of what was measured in place.
func targetTable(groups []group) string {
	var text strings.Builder
	text.WriteString("| target | the worst |\n|---|---|\n")
	for _, t := range targets {
		median := func(g group) float64 {
			_, median, _ := g.figures(t.value)
			return median
		}
		some := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.way != inPlace || !t.of(g.shape) || math.IsNaN(median(g)) })
		if len(some) == 0 {
			continue
		}
		worst := slices.MaxFunc(some, func(a, b group) int { return cmp.Compare(median(a), median(b)) })
		verdict := ""
		if median(worst) > t.most {
			verdict = " **missed**"
		}
		fmt.Fprintf(&text, "| %s ≤ %g | %s: %s%s |\n", t.what, t.most, worst.shape.title(), worst.median(metric{format: t.format, value: t.value}), verdict)
	}
	return text.String()
}
