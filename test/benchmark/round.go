package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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
	Shape string  `json:"shape"`
	Way   way     `json:"way"`
	Floor seconds `json:"floor"`

	Wall     seconds `json:"wall"`     // from the answer to the first edit until the last rollout was complete
	First    spread  `json:"first"`    // from the edit to the first request for a size
	Kubelet  spread  `json:"kubelet"`  // from the answer to a request until the kubelet has done it
	Pause    spread  `json:"pause"`    // from when a pod may be asked until it is asked
	Complete spread  `json:"complete"` // from when the last pod has its size until the rollout is complete

	Writes     []measure.Write    `json:"writes"`
	Conflicts  int                `json:"conflicts"`
	Refusals   int                `json:"refusals"`
	ComingUp   *int               `json:"conflictsComingUp,omitempty"` // until the new workloads were Complete, once; nil if not looked at
	CPU        map[string]float64 `json:"cpuSeconds"`
	PeakRSS    uint64             `json:"peakRSS"`             // of our controller, or the floor program, in bytes
	Read       uint64             `json:"bytesRead,omitempty"` // by it, nearly all of them from the API server; 0 if not measured
	Busy       float64            `json:"busy"`                // the part of all cores' time that anybody used
	Replaced   int                `json:"replaced"`
	LeastReady int                `json:"leastReadyPods"`
	Short      seconds            `json:"fewerReady"` // for how long there were fewer Ready pods than before

	least *result // what the floor program has taken for the same in the same run; nil if that is not known
}

// seconds is a duration as JSON and people want it.
type seconds float64

func (s seconds) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

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
	r := result{Shape: f.shape.String(), Way: w, Floor: inSeconds(f.shape.floor(f.resize)), CPU: map[string]float64{}}
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

// weigh adds what the processes take while something is done. The controller of a real node
// runs in a pod, and is not weighed.
func (f *fixture) weigh(r *result, do func() error) error {
	if f.Controller == nil {
		return do()
	}
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
	passed, idle, err := used()
	if err != nil {
		return err
	}
	read, err := readBy(weighed)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	end, rest, err := used()
	if err != nil {
		return err
	}
	r.Busy = 1 - (rest-idle)/(end-passed)
	after, err := cpu(pids)
	if err != nil {
		return err
	}
	for name := range after {
		r.CPU[name] = after[name] - before[name]
	}
	if _, r.PeakRSS, err = memoryOf(weighed); err != nil {
		return err
	}
	all, err := readBy(weighed)
	r.Read = all - read
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
	r.LeastReady, r.Short = t.LeastReady, inSeconds(t.Short)
	var firsts, kubelets, pauses, lasts []time.Duration
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
		if last, ok := s.Last(done[name]); ok {
			lasts = append(lasts, last)
		}
		kubelets = append(kubelets, s.Kubelets...)
		pauses = append(pauses, pausesOf(s, f.shape.limit)...)
	}
	if len(t.Steps) != f.shape.workloads {
		return fmt.Errorf("the audit log tells of %d workloads, want %d", len(t.Steps), f.shape.workloads)
	}
	r.Wall = inSeconds(end.Sub(begin))
	r.First, r.Kubelet, r.Pause, r.Complete = newSpread(firsts), newSpread(kubelets), newSpread(pauses), newSpread(lasts)
	return nil
}

// pausesOf are how long each pod was asked after it was allowed to: after the kubelet told of
// the last of those that it had to wait for. In slow start these are whole batches; later, with
// ten at a time, the 30th waits for any 20 to have the size.
func pausesOf(s *measure.Steps, limit int) []time.Duration {
	asked, actuated := slices.Clone(s.Asked), slices.Clone(s.Actuated)
	slices.SortFunc(asked, time.Time.Compare)
	slices.SortFunc(actuated, time.Time.Compare)
	var pauses []time.Duration
	for i, at := range asked {
		if n := needs(i, limit); 0 < n && n <= len(actuated) {
			pauses = append(pauses, at.Sub(actuated[n-1]))
		}
	}
	return pauses
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

func isEvent(w measure.Write) bool { return w.Resource == "events" }

func isStatus(w measure.Write) bool { return strings.HasSuffix(w.Resource, "s/status") }

// carries reports whether a write is of those who carry the edit to the pods.
func (r result) carries(w measure.Write) bool { return slices.Contains(carriers[r.Way], w.User) }
