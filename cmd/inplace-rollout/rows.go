package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Pods of which the same is to be said share a row where a workload has more than many. Then
// so many are named.
const (
	many  = 20
	named = 2
)

// row is what a table says of a pod.
type row struct {
	pod, node string
	class     string // of the node; no column if no pod has one
	cells     []string
	own       string // of this pod alone: those that differ in it may share a row
	why       string // where they differ only in numbers, and in the names of pod and node, too
}

// tableOf writes a row for each pod; where there are many, one for those of which the same is
// to be said, unless each is asked for.
func tableOf(out io.Writer, each bool, header []string, rows []row) error {
	if slices.ContainsFunc(rows, func(r row) bool { return r.class != "" }) {
		header = slices.Insert(slices.Clone(header), 2, "CLASS")
		for i := range rows {
			rows[i].cells = append([]string{rows[i].class}, rows[i].cells...)
		}
	}
	shared := [][]row{}
	at := map[string]int{}
	for _, r := range rows {
		key := r.key()
		i, found := at[key]
		if each || len(rows) <= many || !found {
			i, at[key] = len(shared), len(shared)
			shared = append(shared, nil)
		}
		shared[i] = append(shared[i], r)
	}
	lines := [][]string{header}
	for _, alike := range shared {
		lines = append(lines, shareRow(alike))
	}
	if err := cli.Columns(out, lines...); err != nil || len(shared) == len(rows) {
		return err
	}
	_, err := fmt.Fprintln(out, "Pods of which the same is to be said share a row; -o wide shows each.")
	return err
}

// shareRow returns the columns for pods that are alike.
func shareRow(alike []row) []string {
	first := alike[0]
	var pods, nodes []string
	seen := sets.New[string]()
	for _, r := range alike {
		pods = append(pods, r.pod)
		if !seen.Has(r.node) {
			seen.Insert(r.node)
			nodes = append(nodes, r.node)
		}
		if r.own != first.own {
			first.own = "…"
		}
	}
	return append(append([]string{listed(pods, named), listed(nodes, named)}, first.cells...), first.own, first.why)
}

// key is the same of pods that may share a row.
func (r row) key() string {
	why := rollout.Numberless(rollout.Nameless(r.why, r.pod, r.node))
	return strings.Join(append(slices.Clip(r.cells), why), "\n")
}

// listed names the first of them, at most so many, and says how many more there are.
func listed(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
