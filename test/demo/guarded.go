package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/counter"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// Each pod has a job to do now and then, which needs memory for a moment.
const (
	jobNeeds = 200 << 20
	jobLasts = 300 * time.Millisecond
	jobEvery = 15 * time.Second
	watched  = time.Minute // after the edit
)

var worker = workload{Kind: "StatefulSet", Name: "worker", Replicas: 3, Image: "inplace-rollout-counter:test", Grace: 5, Requests: "{cpu: 50m, memory: 256Mi}", Limits: "{memory: 256Mi}"}

// guarded shows a limit that is too small, with a canary and built in.
func (d *demo) guarded(ctx context.Context) error {
	d.introduce("A limit that is too small")
	d.say("So is the kernel, which kills a container at its memory limit.")
	if err := d.create(ctx, worker, inPlace, builtIn); err != nil {
		return err
	}
	if err := d.optIn(ctx, worker); err != nil {
		return err
	}
	if err := d.kubectl(ctx, fmt.Sprintf("annotate %s %s=1 %s=Revert", worker.in(inPlace), api.CanaryAnnotation, api.OnFailureAnnotation)); err != nil {
		return err
	}
	d.recorder.Visit(ctx, d.Node, 100*time.Millisecond, inPlace, builtIn)
	if err := d.work(ctx, worker.subject(inPlace), worker.subject(builtIn)); err != nil {
		return fmt.Errorf("a pod does not do its job before the edit: %w", err)
	}
	d.say("Each pod is visited all the time, and needs %s for a moment every %.0f s. All have done so once.", inBytes(jobNeeds), jobEvery.Seconds())

	d.title("The same edit of both: a limit of 100Mi")
	results, err := d.act(ctx, worker, "set resources %s --requests=memory=100Mi --limits=memory=100Mi", d.working, inPlace, builtIn)
	if err != nil {
		return err
	}
	if err := d.events(ctx, worker); err != nil {
		return err
	}
	results[0].title, results[1].title = "guarded", "built in"
	rows := slices.Concat(same, visited, []row{
		{"of these writes, resizes", resizes, is(2), is(0)},
		{"pods that were given the limit", named(asked), is("worker-2"), is("worker-0, worker-1, worker-2")},
		{"pods that the kernel has killed", named(killed), is("worker-2"), is("worker-0, worker-1, worker-2")},
		{"kills", kills, is(1), nil},
		{"pods not Ready at some time", func(r result) any { return of(r.NotReady, r) }, is("1 of 3"), is("3 of 3")},
		{"limits in the kernel, in the end", limits, is("256Mi, 256Mi, 256Mi"), nil},
		{"condition's reason", func(r result) any { return r.After.Complete().Reason }, is(judge.ReasonReverted), is("")},
	})
	d.compare("What was measured in the first minute after the edit", rows, results)
	d.picture.Title = "A memory limit that is too small, guarded and built in"
	d.picture.Source = fmt.Sprintf("On a real node, by make demo-guarded. Each pod needs %s now and then.", inBytes(jobNeeds))
	d.draws(worker, results, func(r result) string {
		return fmt.Sprintf("%d of 3 pods killed, %d replaced", len(r.lanesThat(killed)), r.Replaced)
	})
	d.picture.Rows[0][0].Title = "StatefulSet, guarded: canary 1 and Revert"
	if err := d.Ready(ctx); err != nil {
		return fmt.Errorf("the controller is not ready: %w", err)
	}
	return d.conclude("guarded, one pod was killed and is back at its size; built in, all three were killed.")
}

// work has each pod of some subjects do its job, one after the other, in the order in which they are updated.
func (d *demo) work(ctx context.Context, subjects ...measure.Subject) error {
	client := d.Node.HTTP(2 * time.Second)
	defer client.CloseIdleConnections()
	var failed error
	for _, of := range subjects {
		s := d.now(of)
		for _, name := range slices.Backward(s.PodNames()) {
			err := counter.Hold(ctx, client, s.Pods[name], jobNeeds)
			time.Sleep(jobLasts)
			failed = errors.Join(failed, err, counter.Hold(ctx, client, s.Pods[name], 0))
		}
	}
	return failed
}

// working has the pods work on for a while, whether they are killed for it or not.
func (d *demo) working(ctx context.Context, _ int, subjects ...measure.Subject) error {
	end, jobs := time.After(watched), time.NewTimer(jobEvery/2)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case <-jobs.C:
			jobs.Reset(jobEvery)
			_ = d.work(ctx, subjects...)
		}
	}
}

func asked(l lane) bool  { return l.asked }
func killed(l lane) bool { return len(l.Kills) > 0 }

// lanesThat are the names of the pods that are so.
func (r result) lanesThat(are func(lane) bool) (names []string) {
	for _, l := range r.lanes {
		if are(l) {
			names = append(names, l.Pod)
		}
	}
	return names
}

func named(are func(lane) bool) func(result) any {
	return func(r result) any { return strings.Join(r.lanesThat(are), ", ") }
}

func kills(r result) any {
	n := 0
	for _, l := range r.lanes {
		n += len(l.Kills)
	}
	return n
}

// limits are the memory that the kernel grants each pod, as visitors have seen it last.
func limits(r result) any {
	var all []string
	for _, name := range r.After.PodNames() {
		if seen := r.After.Visits[r.After.Pods[name].UID]; seen != nil {
			all = append(all, inBytes(seen.Kernel.Memory))
		}
	}
	return strings.Join(all, ", ")
}

// inBytes are so many, as people write them.
func inBytes(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
