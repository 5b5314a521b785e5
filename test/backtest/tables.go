package main

import (
	"fmt"
	"strings"
)

// table is one of the results.
type table struct {
	name, text string
	onPage     bool // otherwise it is only printed
}

func (s scores) tables() []table {
	return []table{{"rules", s.byRule(), true}, {"situations", s.bySituation(), false}, {"kinds", s.byKind(), false}}
}

// ofKnown are births of which all rules know something.
func ofKnown(_ string, s situation) bool { return s.known() }

// byRule compares the rules by births that all of them know something of.
func (s scores) byRule() string {
	rows := [][]string{{"", "cpu: slack", "above", "far above", "worst pod", "memory: slack", "above", "far above", "worst pod"}}
	for _, r := range rules() {
		if r.name == ladderWide { // it makes no difference here
			continue
		}
		of := s.of(r.name, ofKnown)
		rows = append(rows, []string{
			r.name,
			fmt.Sprintf("%.0fm, %s", 1000*of.cpu.meanSlack(), of.cpu.slackShare()), of.cpu.aboveShare(), of.cpu.farShare(), of.cpu.worstPod(),
			fmt.Sprintf("%.0f MiB, %s", of.memory.meanSlack()/mebibyte, of.memory.slackShare()), of.memory.aboveShare(), of.memory.farShare(), of.memory.worstPod(),
		})
	}
	return markdown(rows)
}

// bySituation says who knows an answer, and how good the ladder's is.
func (s scores) bySituation() string {
	rows := [][]string{{"known when the pod is born", "births", "the ladder", "`--cluster-wide`", "VPA", "KRR", "its cpu", "its memory"}}
	for i, name := range situations {
		in := func(_ string, s situation) bool { return s == situation(i) }
		wide := s.of(ladderWide, in)
		row := []string{name, fmt.Sprint(wide.cpu.births)}
		for _, rule := range []string{ladder, ladderWide, vpaTarget, krrSimple} {
			of := s.of(rule, in)
			row = append(row, fmt.Sprintf("%.0f %%", 100*share(of.cpu.answered+of.memory.answered, of.cpu.births+of.memory.births)))
		}
		rows = append(rows, append(row, wide.cpu.both(), wide.memory.both()))
	}
	return markdown(rows)
}

// byKind compares the rules by what containers do, but for the LimitRange.
func (s scores) byKind() string {
	rows := [][]string{{""}}
	for _, resource := range []string{"cpu: ", "memory: "} {
		for _, c := range classes[1:] {
			rows[0] = append(rows[0], resource+c.Label)
			resource = ""
		}
	}
	for _, k := range kinds {
		row := []string{k.name}
		for _, resource := range []func(score) figures{func(s score) figures { return s.cpu }, func(s score) figures { return s.memory }} {
			for _, c := range classes[1:] {
				of := resource(s.of(c.Rule, func(kind string, s situation) bool { return kind == k.name && s.known() }))
				row = append(row, of.both())
			}
		}
		rows = append(rows, row)
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

func (f figures) both() string {
	if f.samples == 0 {
		return "–"
	}
	return f.slackShare() + " / " + f.aboveShare()
}

func percent(share float64) string {
	if share > 0 && share < 0.0995 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
