package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// rollouts shows an edit of each kind of workload, in place and built in, and takes it back.
func (d *demo) rollouts(ctx context.Context) error {
	d.introduce("inplace-rollout beside the built-in rollout")
	grace := 0 // simulated kubelets terminate no pod gracefully
	if d.Node != nil {
		d.say("The pods run a program that counts its visits in memory. Visitors see the limits that cgroups grant its container, and")
		d.say("what the program finds in the same files, from within.")
		d.recorder.Visit(ctx, d.Node, 200*time.Millisecond, inPlace, builtIn)
		grace = 5
	}
	for i, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		const size = "{cpu: 50m, memory: 64Mi}"
		name, replicas := []string{"db", "web", "agent"}[i], []int{3, 4, 0}[i]
		if err := d.twice(ctx, workload{kind, name, replicas, "inplace-rollout-counter:test", grace, size, size}); err != nil {
			return err
		}
	}
	if d.Node == nil {
		d.say("\nThe times are those of the simulation: a resize takes two seconds here, and so does the start of a pod, which may take")
		d.say("minutes on a real node.")
	}
	d.picture.Title = "The same edit, in place by inplace-rollout and built in"
	d.picture.Source = "Times are simulated: a resize takes 2 s, and the start of a pod 2 s."
	if d.Node != nil {
		d.picture.Source = "On a real node."
	}
	if err := d.Ready(ctx); err != nil {
		return fmt.Errorf("the controller is not ready: %w", err)
	}
	return d.conclude("in place nothing was replaced or restarted, the built-in controllers agree.")
}

// twice edits a workload in place, and built in; then it undoes what was done in place.
func (d *demo) twice(ctx context.Context, w workload) error {
	d.title(fmt.Sprintf("One %s, twice", w.Kind))
	if err := d.create(ctx, w, inPlace, builtIn); err != nil {
		return err
	}
	if err := d.optIn(ctx, w); err != nil {
		return err
	}
	d.title("The same edit of both: more cpu and memory")
	results, err := d.act(ctx, w, "set resources %s --requests=cpu=100m,memory=128Mi --limits=cpu=100m,memory=128Mi", d.rolledOut, inPlace, builtIn)
	if err != nil {
		return err
	}
	if err := d.events(ctx, w); err != nil {
		return err
	}
	d.title("And back again, in place")
	undo, err := d.act(ctx, w, "rollout undo %s", d.rolledOut, inPlace)
	if err != nil {
		return err
	}
	d.draws(w, results, func(r result) string {
		return fmt.Sprintf("%d of %d pods replaced, complete after %.1f s", r.Replaced, r.Before.Replicas(), r.Took.Seconds())
	})
	results = append(results, undo...)
	for i, title := range []string{"edit, in place", "same edit, built in", "undo, in place"} {
		results[i].title = title
	}
	rows := slices.Concat(same, rolled)
	if d.Node != nil {
		rows = slices.Concat(rows, visited, noticed)
	}
	d.compare(fmt.Sprintf("What was measured of the %ss", w.Kind), rows, results)
	return nil
}

// rolled are the rows of a rollout that has come to its end.
var rolled = []row{
	{"of these, resizes", resizes, func(r result) any { return r.Before.Replicas() }, is(0)},
	{"pods of the new size", func(r result) any { return of(len(r.After.Pods)-r.After.WrongSize(), r) }, allPods, allPods},
	{"container restarts, and starts in new pods", func(r result) any { return r.Started }, is(0), func(r result) any { return r.Before.Replicas() }},
	{"pods not Ready at some time", func(r result) any { return of(r.NotReady, r) }, noPod, allPods},
	{"from the edit until complete", func(r result) any { return fmt.Sprintf("%.1f s", r.Took.Seconds()) }, nil, nil},
	{"what holds it: field, afterwards", func(r result) any { return brake(r.After.HoldField()) }, func(r result) any { return brake(r.Before.HoldField()) }, nil},
	{"annotation of the hold, afterwards", func(r result) any { return r.After.Held() }, is("none"), is("none")},
	{"complete, and settled", func(r result) any { return r.Completed && r.After.Settled() }, is(true), is(true)},
	{"revisions in kubectl rollout history", func(r result) any { return r.revisions }, is(2), is(2)},
}

func brake(field, value string) string { return field + " " + value }

// noticed are the rows of what kernel, programs and visitors see.
var noticed = []row{
	{"pods that kernel or program see otherwise", func(r result) any { return len(otherwise(r.After)) }, is(0), is(0)},
	{"every visit was answered", func(r result) any { return r.Lost == 0 }, is(true), is(false)},
	{"counts forgotten", func(r result) any { return r.Forgotten }, is(int64(0)), nil},
}
