package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/inplace-rollout/inplace-rollout/test/benchmark/queue"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// costsOf are what the rollouts of a kind cost, from the medians of what was measured in place. Only cpu, requests and two pauses
// of a rollout alone are used; how long rollouts have taken is what comes out.
func costsOf(groups []group, kind string) (queue.Costs, error) {
	some := ofKind(groups, kind)
	if kind == "DaemonSet" || len(some) == 0 { // its one shape does not tell how anything grows; it is written as often
		some = ofKind(groups, "StatefulSet")
	}
	if len(some) == 0 {
		return queue.Costs{}, fmt.Errorf("no %s was measured", kind)
	}
	all := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.way != inPlace })
	writes := func(counts func(result, measure.Write) bool) func(shape, result) float64 {
		return func(_ shape, r result) float64 { return r.written(func(w measure.Write) bool { return counts(r, w) }) }
	}
	everybodys := writes(func(result, measure.Write) bool { return true })
	cpu := func(names ...string) func(shape, result) float64 {
		return func(_ shape, r result) (all float64) {
			for _, name := range names {
				all += r.CPU[name]
			}
			return all
		}
	}
	pods := func(s shape, _ result) float64 { return float64(s.all()) }
	looks := func(s shape, _ result) float64 { return float64(s.all() * s.pods) }
	rollouts := func(s shape, _ result) float64 { return float64(s.workloads) }
	cost := func(of ...string) queue.Cost {
		found := nearest(some, cpu(of...), pods, looks, rollouts)
		return queue.Cost{Pod: found[0], Look: found[1], Rollout: found[2]}
	}
	number := func(counts func(result, measure.Write) bool) (pod, rollout int) {
		found := nearest(some, writes(counts), pods, rollouts)
		return int(math.Round(found[0])), int(math.Round(found[1]))
	}
	// What they take when nothing happens is the same beside all kinds, and is taken off.
	apart := func(value, cause func(shape, result) float64) float64 {
		of := func(mine bool) func(shape, result) float64 {
			return func(s shape, r result) float64 {
				if (s.kind == some[0].shape.kind) == mine {
					return cause(s, r)
				}
				return 0
			}
		}
		return nearest(all, value, of(true), of(false), wall)[0]
	}
	c := queue.Costs{
		Request: apart(cpu(apiServer, "etcd", "kube-scheduler"), everybodys),
		Kubelet: apart(cpu("kwok"), pods),
		Own:     cost(ours), BuiltIn: cost(controllerManager),
	}
	var each int
	each, c.OwnWrites = number(func(r result, w measure.Write) bool { return r.carries(w) && !isEvent(w) })
	c.Label = each > 1
	_, c.Events = number(func(r result, w measure.Write) bool { return r.carries(w) && isEvent(w) })
	c.BuiltInPodWrites, c.BuiltInWrites = number(func(_ result, w measure.Write) bool { return slices.Contains(carriers[builtIn], w.User) })
	alone := slices.MinFunc(some, func(a, b group) int {
		return cmp.Or(a.shape.workloads-b.shape.workloads, a.shape.pods-b.shape.pods)
	})
	_, c.Begin, _ = alone.figures(func(_ shape, r result) float64 { return float64(r.First.P50) })
	_, c.End, _ = alone.figures(func(_ shape, r result) float64 { return float64(r.Complete.P50) })
	return c, nil
}

// nearest finds how much each of the causes costs, 0 or more, so that together they are nearest to the medians of what was
// measured: the squares of what they are wrong by, in parts of what was measured, are the least. It tries each choice of causes.
func nearest(groups []group, value func(shape, result) float64, causes ...func(shape, result) float64) []float64 {
	var parts [][]float64 // of each cause in what was measured, for each group
	for _, g := range groups {
		_, measured, _ := g.figures(value)
		if measured <= 0 {
			continue
		}
		var all []float64
		for _, cause := range causes {
			_, much, _ := g.figures(cause)
			all = append(all, much/measured)
		}
		parts = append(parts, all)
	}
	best, least := make([]float64, len(causes)), math.Inf(1)
	for choice := 1; choice < 1<<len(causes); choice++ {
		found, wrong := leastSquares(parts, choice)
		if found != nil && slices.Min(found) >= 0 && wrong < least-1e-9 { // fewer causes are enough if they explain as much
			best, least = found, wrong
		}
	}
	return best
}

// leastSquares finds by which factors the chosen parts are nearest to 1 in each row, and the sum of the squares of what is
// wrong then; nil if the rows do not say enough. Parts that are not chosen have the factor 0.
func leastSquares(rows [][]float64, choice int) (factors []float64, wrong float64) {
	if len(rows) == 0 {
		return nil, 0
	}
	var chosen []int
	for k := range rows[0] {
		if choice&(1<<k) != 0 {
			chosen = append(chosen, k)
		}
	}
	equations := make([][]float64, len(chosen))
	for i, a := range chosen {
		equations[i] = make([]float64, len(chosen)+1)
		for _, row := range rows {
			for j, b := range chosen {
				equations[i][j] += row[a] * row[b]
			}
			equations[i][len(chosen)] += row[a]
		}
	}
	solution, solved := solve(equations)
	if !solved {
		return nil, 0
	}
	factors = make([]float64, len(rows[0]))
	for i, k := range chosen {
		factors[k] = solution[i]
	}
	for _, row := range rows {
		off := -1.0
		for k, part := range row {
			off += part * factors[k]
		}
		wrong += off * off
	}
	return factors, wrong
}

// solve solves linear equations, each with what it equals at its end; false if they do not say enough.
func solve(e [][]float64) ([]float64, bool) {
	for i := range e {
		pivot := i
		for j := i; j < len(e); j++ {
			if math.Abs(e[j][i]) > math.Abs(e[pivot][i]) {
				pivot = j
			}
		}
		e[i], e[pivot] = e[pivot], e[i]
		scale := e[i][i]
		if math.Abs(scale) < 1e-12 {
			return nil, false
		}
		for k := i; k <= len(e); k++ {
			e[i][k] /= scale
		}
		for j := range e {
			for k := len(e); j != i && k >= i; k-- {
				e[j][k] -= e[j][i] * e[i][k]
			}
		}
	}
	solution := make([]float64, len(e))
	for i := range e {
		solution[i] = e[i][len(e)]
	}
	return solution, true
}
