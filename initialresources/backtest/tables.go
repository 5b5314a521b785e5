package main

import (
	"fmt"
	"strings"
)

// ofKnown are births of which all rules know something.
func ofKnown(_ string, s situation) bool { return s.known() }

// byRule compares the rules by births that all of them know something of.
func (s scores) byRule() string {
	rows := [][]string{{"", "cpu: slack", "above", "far above", "worst pod", "memory: slack", "above", "far above", "worst pod"}}
	for _, r := range rules() {
		of := s.of(r.name, ofKnown)
		rows = append(rows, []string{
			r.name,
			fmt.Sprintf("%.0fm, %s", 1000*of.cpu.meanSlack(), of.cpu.slackShare()), of.cpu.aboveShare(), of.cpu.farShare(), of.cpu.worstPod(),
			fmt.Sprintf("%.0f MiB, %s", of.memory.meanSlack()/mebibyte, of.memory.slackShare()), of.memory.aboveShare(), of.memory.farShare(), of.memory.worstPod(),
		})
	}
	return markdown(rows)
}

func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

func share(part, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

func (f figures) meanSlack() float64 { return f.slack / float64(max(1, f.samples)) }

// slackShare is the part of what is requested that is not used.
func (f figures) slackShare() string { return percent(f.slack / f.requested) }

func (f figures) aboveShare() string { return percent(share(f.above, f.samples)) }

func (f figures) farShare() string { return percent(share(f.far, f.samples)) }

// worstPod is how much the pod used on average that used most, beside its request.
func (f figures) worstPod() string { return fmt.Sprintf("× %.1f", f.most) }

func percent(share float64) string {
	if share > 0 && share < 0.0995 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
