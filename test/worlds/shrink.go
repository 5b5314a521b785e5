package main

import (
	"context"
	"slices"

	"github.com/inplace-rollout/inplace-rollout/test/invariant"
)

// smaller makes the world smaller in which a promise was broken, as long as the same promise is
// broken in the smaller one, and there is time. Nobody knows which moment it takes, so a candidate
// is played twice.
func (a *arena) smaller(ctx context.Context, o options, failed outcome) outcome {
	ctx, cancel := context.WithTimeout(ctx, o.shrink)
	defer cancel()
	for {
		found := slices.IndexFunc(failed.smaller(), func(World) bool { return false })
		for chunk := range slices.Chunk(failed.smaller(), max(o.atOnce/2, 1)) {
			twice := slices.Concat(chunk, chunk)
			outcomes, err := a.round(ctx, twice, o.trouble(failed.Seed))
			if err != nil {
				return failed // the time is over, say
			}
			if found = slices.IndexFunc(outcomes, failed.like); found >= 0 {
				failed = outcomes[found]
				break
			}
		}
		if found < 0 {
			return failed
		}
	}
}

// like reports whether a promise was broken in another world that was broken in this one.
func (o outcome) like(other outcome) bool {
	return slices.ContainsFunc(other.violations, func(v invariant.Violation) bool {
		return slices.ContainsFunc(o.violations, func(mine invariant.Violation) bool { return mine.Invariant == v.Invariant })
	})
}

// smaller are the worlds that lack something of this one, those that lack most first.
func (w World) smaller() []World {
	var all []World
	for i := range w.Workloads {
		if len(w.Workloads) > 1 {
			all = append(all, w.without(i))
		}
	}
	for part := len(w.Edits) / 2; part > 0; part /= 2 {
		for begin := 0; begin < len(w.Edits); begin += part {
			less := w
			less.Edits = slices.Delete(slices.Clone(w.Edits), begin, min(begin+part, len(w.Edits)))
			all = append(all, less)
		}
	}
	for _, less := range []func(*World){
		func(w *World) { w.Quota = "" }, func(w *World) { w.Limits = nil }, func(w *World) { w.Webhook = "" }, func(w *World) { w.Injects = "" },
		func(w *World) { w.Deletes = false }, (*World).classless,
		(*World).roomy, (*World).graceless, (*World).unoperated,
	} {
		candidate := w
		if less(&candidate); candidate.size() < w.size() {
			all = append(all, candidate)
		}
	}
	return all
}

// classless takes the annotation with the sizes by class away.
func (w *World) classless() {
	w.Workloads = slices.Clone(w.Workloads)
	for i := range w.Workloads {
		w.Workloads[i].Classes = ""
	}
}

// roomy lets all pods run on nodes that have room.
func (w *World) roomy() {
	w.Workloads = slices.Clone(w.Workloads)
	for i := range w.Workloads {
		w.Workloads[i].Room = ""
	}
}

// graceless has all pods be gone at once.
func (w *World) graceless() {
	w.Workloads = slices.Clone(w.Workloads)
	for i := range w.Workloads {
		w.Workloads[i].Graceful = false
	}
}

// unoperated leaves all pods to their users.
func (w *World) unoperated() {
	w.Workloads = slices.Clone(w.Workloads)
	for i := range w.Workloads {
		w.Workloads[i].Operated = false
	}
}

// without is the world without one workload, and what is done to it.
func (w World) without(i int) World {
	less := w
	less.Workloads = slices.Delete(slices.Clone(w.Workloads), i, i+1)
	less.Edits = nil
	for _, e := range w.Edits {
		if e.Workload == i {
			continue
		}
		if e.Workload > i {
			e.Workload--
		}
		less.Edits = append(less.Edits, e)
	}
	return less
}
