package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Pods of which the same is to be said share a row where a workload has more than many. Then
// so many are named, if their names are no longer together than this.
const (
	many       = 20
	named      = 2
	namesWidth = 40
)

// row is what a table says of a pod.
type row struct {
	pod, node string
	class     string // of the node; no column if no pod has one
	cells     []cell
	why       string // pods may share a row where it differs only in numbers, and in the names of pod and node
}

// cell is in a column of a table.
type cell struct {
	text    string
	differs differing
}

// differing says what becomes of cells that differ, of pods that may share a row otherwise.
type differing int

const (
	apart  differing = iota // they do not share it
	hidden                  // … stands there
	listed                  // some are named
)

// tones are the colors of the words for what becomes of pods and rollouts.
var tones = map[string]cli.Tone{
	string(stateDone): cli.Good, judge.ReasonComplete: cli.Good, string(judge.Live): cli.Good,
	string(stateRequested): cli.Waiting, string(stateAccepted): cli.Waiting, judge.ReasonProgressing: cli.Waiting,
	string(judge.Deferred): cli.Waiting, string(judge.ContainerRestart): cli.Waiting,
	string(stateInfeasible): cli.Bad, string(judge.PodRestart): cli.Bad,
}

// tableOf writes a row for each pod; where there are many, one for those of which the same is
// to be said, unless each is asked for. The header has the columns between the pod and the reason, and that.
func tableOf(out io.Writer, each bool, header []string, rows []row) error {
	header = append([]string{"POD"}, header...)
	classes := slices.ContainsFunc(rows, func(r row) bool { return r.class != "" })
	if classes {
		header = slices.Insert(header, 1, "CLASS")
	}
	shared := [][]row{}
	at := map[string]int{}
	for _, r := range rows {
		if classes {
			r.cells = append([]cell{{text: r.class}}, r.cells...)
		}
		key := r.key()
		i, found := at[key]
		if each || len(rows) <= many || !found {
			i, at[key] = len(shared), len(shared)
			shared = append(shared, nil)
		}
		shared[i] = append(shared[i], r)
	}
	lines := make([][]string, len(shared))
	for i, alike := range shared {
		lines[i] = shareRow(alike)
	}
	page := cli.PageOf(out)
	if err := page.Table(header, lines, tones); err != nil || len(shared) == len(rows) {
		return err
	}
	return page.Text("Pods with the same state share a row; -o wide shows each.")
}

// shareRow returns the columns for pods that are alike.
func shareRow(alike []row) []string {
	first := alike[0]
	pods := make([]string, len(alike))
	for i, r := range alike {
		pods[i] = r.pod
	}
	columns := []string{few(pods)}
	for i, c := range first.cells {
		columns = append(columns, shareCell(c, alike, i))
	}
	return append(columns, first.why)
}

// shareCell returns what stands in a column for pods that are alike.
func shareCell(c cell, alike []row, column int) string {
	seen := sets.New(c.text)
	texts := []string{c.text}
	for _, r := range alike {
		if text := r.cells[column].text; !seen.Has(text) {
			seen.Insert(text)
			texts = append(texts, text)
		}
	}
	switch {
	case len(texts) == 1:
		return c.text
	case c.differs == hidden:
		return "…"
	}
	return few(texts)
}

// key is the same of pods that may share a row.
func (r row) key() string {
	parts := []string{rollout.Numberless(rollout.Nameless(r.why, r.pod, r.node))}
	for _, c := range r.cells {
		if c.differs == apart {
			parts = append(parts, c.text)
		}
	}
	return strings.Join(parts, "\n")
}

// few names the first of them, as many as a column has room for.
func few(names []string) string {
	most := named
	if len(strings.Join(names[:min(most, len(names))], ", ")) > namesWidth {
		most = 1
	}
	return list(names, most)
}

// list names the first of them, at most so many, and says how many more there are.
func list(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
