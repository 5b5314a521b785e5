package main

import (
	"fmt"
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
	{"× floor, one at a time", "%.2f", timesFloor, 1.1, func(s shape) bool { return s.workloads == 1 && s.limit == 1 }},
	{"× floor, ten at a time", "%.2f", timesFloor, 1.3, func(s shape) bool { return s.workloads == 1 && s.pods == 1000 && s.limit == 10 }},
	{"resized to next request alone, p99, ms", "%.0f", pauseP99, 25, func(s shape) bool { return s.workloads == 1 && s.limit == 1 }},
	{"resized to next request with 100 rollouts, p99, ms", "%.0f", pauseP99, 100, func(s shape) bool { return s.workloads == 100 }},
	{"edit to first request, p99, ms", "%.0f", firstP99, 250, func(shape) bool { return true }},
	{"writes per pod, one shared", "%.2f", topics[0].metrics[0].value, 2.1, func(s shape) bool { return s.kind == "DaemonSet" && s.pods >= 100 }},
	{"events per pod", "%.2f", topics[0].metrics[1].value, 1.1, func(s shape) bool { return s.pods >= 100 }},
	{"status writes per workload", "%.1f", topics[0].metrics[2].value, 2, func(shape) bool { return true }},
}

// targetTable compares what was measured in place with the targets.
func targetTable(groups []group) string {
	var text strings.Builder
	text.WriteString("| target | | at most | measured | |\n|---|---|---|---|---|\n")
	for _, t := range targets {
		for _, g := range groups {
			if g.way == builtIn || !t.of(g.shape) {
				continue
			}
			_, median, _ := g.figures(t.value)
			verdict := "met"
			if median > t.most {
				verdict = "missed"
			}
			fmt.Fprintf(&text, "| %s | %s | %g | %s | %s |\n", t.what, g.shape.title(), t.most, g.cell(metric{format: t.format, value: t.value}), verdict)
		}
	}
	return text.String()
}
