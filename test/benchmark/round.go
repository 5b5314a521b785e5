package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// way is who carries an edit to the pods.
type way string

const (
	inPlace way = "in place"
	builtIn way = "built in"
	floored way = "floor" // by the program in floor/
)

// carriers are those who carry an edit to the pods.
var carriers = map[way][]string{
	inPlace: measure.InPlace, builtIn: measure.BuiltIn, floored: {"system:serviceaccount:default:" + floorAccount},
}

// result is what was measured of one edit of all workloads of a shape.
type result struct {
	Shape string `json:"shape"`
	Way   way    `json:"way"`

	Wall  seconds `json:"wall"`  // from the answer to the first edit until the last rollout was complete
	First spread  `json:"first"` // from the edit to the first request for a size

	Writes     []measure.Write    `json:"writes"`
	Conflicts  int                `json:"conflicts"`
	Refusals   int                `json:"refusals"`
	CPU        map[string]float64 `json:"cpuSeconds"`
	PeakRSS    uint64             `json:"peakRSS"` // of our controller, or the floor program, in bytes
	Replaced   int                `json:"replaced"`
	LeastReady int                `json:"leastReadyPods"`
}

// seconds is a duration as JSON and people want it.
type seconds float64

func inSeconds(d time.Duration) seconds { return seconds(d.Seconds()) }

// spread is what there is of many durations.
type spread struct {
	P50 seconds `json:"p50"`
	P99 seconds `json:"p99"`
}

func newSpread(values []time.Duration) spread {
	return spread{inSeconds(percentile(values, 50)), inSeconds(percentile(values, 99))}
}

// rollOut edits all workloads at once, waits until that has been rolled out, and measures it.
func (f *fixture) rollOut(ctx context.Context, w way) (_ result, failed error) {
	r := result{Shape: f.shape.String(), Way: w, CPU: map[string]float64{}}
	if err := f.prepare(ctx, w); err != nil {
		return r, err
	}
	if w == floored {
		var err error
		if ctx, f.floor, err = f.startFloor(ctx); err != nil {
			return r, err
		}
		defer func() { failed = errors.Join(failed, f.floor.stop()); f.floor = nil }()
	}
	before, err := f.pods(ctx)
	if err != nil {
		return r, err
	}
	mark, err := f.AuditMark()
	if err != nil {
		return r, err
	}
	var done map[string]time.Time
	if err := f.weigh(&r, func() error {
		if done, err = f.edit(ctx, w); err != nil {
			return err
		}
		return f.quiet(ctx)
	}); err != nil {
		return r, err
	}
	after, err := f.pods(ctx)
	if err != nil {
		return r, err
	}
	for name, uid := range before {
		if after[name] != uid {
			r.Replaced++
		}
	}
	return r, f.account(&r, mark, slices.Collect(maps.Keys(before)), done)
}

// weigh adds what the processes take while something is done.
func (f *fixture) weigh(r *result, do func() error) error {
	pids := f.pids()
	weighed := pids[ours]
	if f.floor != nil {
		weighed = f.floor.pid
		pids[floorAccount] = weighed
	}
	if err := forgetPeak(weighed); err != nil {
		return err
	}
	before, err := cpu(pids)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := cpu(pids)
	if err != nil {
		return err
	}
	for name := range after {
		r.CPU[name] = after[name] - before[name]
	}
	r.PeakRSS, err = peakOf(weighed)
	return err
}

// prepare opts the workloads in or out, and waits until all that comes of it is done.
func (f *fixture) prepare(ctx context.Context, w way) error {
	if f.optedIn != (w == inPlace) {
		f.optedIn = w == inPlace
		if err := f.patch(ctx, types.MergePatchType, optIn(f.optedIn)); err != nil {
			return err
		}
		if f.optedIn {
			if _, err := f.await(ctx, complete); err != nil {
				return err
			}
		}
	}
	if w == floored {
		if err := f.patch(ctx, types.MergePatchType, holds[f.shape.kind]); err != nil {
			return err
		}
	}
	return f.quiet(ctx)
}

// edit changes the size that all workloads want, and returns when each rollout was complete.
func (f *fixture) edit(ctx context.Context, w way) (map[string]time.Time, error) {
	f.edits++
	if err := f.patch(ctx, types.JSONPatchType, edit(f.edits)); err != nil {
		return nil, err
	}
	return f.await(ctx, map[way]func(*unstructured.Unstructured) bool{inPlace: complete, builtIn: rolledOut, floored: letGo}[w])
}

// account adds what the audit log tells of a rollout.
func (f *fixture) account(r *result, mark int64, pods []string, done map[string]time.Time) error {
	t, err := f.AuditLog(mark, namespace, carriers[r.Way], pods)
	if err != nil {
		return err
	}
	r.Writes, r.Conflicts, r.Refusals = t.Writes, t.Conflicts, t.Refusals
	r.LeastReady = t.LeastReady
	var firsts []time.Duration
	var begin, end time.Time
	for name, s := range t.Steps {
		if begin.IsZero() || s.Edited.Before(begin) {
			begin = s.Edited
		}
		if done[name].After(end) {
			end = done[name]
		}
		if first, ok := s.First(); ok {
			firsts = append(firsts, first)
		}
	}
	if len(t.Steps) != f.shape.workloads {
		return fmt.Errorf("the audit log tells of %d workloads, want %d", len(t.Steps), f.shape.workloads)
	}
	r.Wall = inSeconds(end.Sub(begin))
	r.First = newSpread(firsts)
	return nil
}

// percentile returns the smallest value that is not below p percent of all; 0 if there are none.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(p/100*float64(len(sorted))))-1, 0)]
}

// written is how many writes there were that count.
func (r result) written(counts func(measure.Write) bool) float64 {
	n := 0
	for _, w := range r.Writes {
		if counts(w) {
			n += w.Count
		}
	}
	return float64(n)
}

// carries reports whether a write is of those who carry the edit to the pods.
func (r result) carries(w measure.Write) bool { return slices.Contains(carriers[r.Way], w.User) }

// carrier is the process that does so.
func (r result) carrier() string {
	return map[way]string{inPlace: ours, builtIn: controllerManager, floored: floorAccount}[r.Way]
}
