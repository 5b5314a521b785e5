package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

//go:embed guarded.yaml
var workerManifest []byte

var worker = workload{
	kind: "StatefulSet", name: "worker",
	file: "guarded.yaml", manifest: workerManifest,
	about: fmt.Sprintf("a program that needs %s for a moment, every %.0f s", bytes(jobNeeds), jobEvery.Seconds()),
	edit:  "--requests=memory=100Mi --limits=memory=100Mi",
}

// watched is how long the pods are watched after the edit.
const watched = time.Minute

// trial is the demo of a limit that is too small: guarded, and built in.
type trial struct {
	*demo
	checker
	crew *crew
}

// verdictOn is what became of one of the StatefulSets.
type verdictOn struct {
	measure.Subject
	measure.Measurement
	lanes  []lane // in the order in which pods are updated
	kernel []string
	audit  measure.Trail
}

// playGuarded plays the demo of a guarded rollout.
func (d *demo) playGuarded(ctx context.Context, o options, begin time.Time) error {
	t := &trial{demo: d}
	t.introduce(time.Since(begin))
	if err := t.prepare(ctx); err != nil {
		return err
	}
	results, err := t.tooSmall(ctx)
	if err != nil {
		return err
	}
	t.summarise(results)
	t.guarded(results[0])
	t.unguarded(results[1])
	t.checker.act = "controller"
	t.is("readiness", t.Ready(ctx), nil)
	t.out.line("")
	failed := t.conclude(&t.checker, "guarded, one pod was killed and is back at its size; built in, all three were killed.")
	if failed != nil || o.picture == "" {
		return failed
	}
	return t.picture(results, begin).write(o.picture)
}

func (t *trial) introduce(took time.Duration) {
	t.out.title("A limit that is too small")
	t.out.say("All of it is real: etcd, API server, controllers, scheduler, kubectl and kubelet of Kubernetes")
	t.out.say("%s, containerd and runc, and inplace-rollout in its image, two replicas, installed from", t.Version())
	t.out.say("deploy/ (all up in %s). So is the kernel that kills a container at its memory limit.", seconds(took))
}

// prepare has the pods run, and work, for a while.
func (t *trial) prepare(ctx context.Context) error {
	for _, namespace := range []string{inPlace, builtIn} {
		if _, err := t.Kubectl(ctx, "create", "namespace", namespace); err != nil {
			return err
		}
	}
	if err := t.create(ctx, &worker); err != nil {
		return err
	}
	t.out.say("and its rollouts are guarded:")
	if err := t.kubectl(ctx, fmt.Sprintf("annotate %s %s=1 %s=Revert", worker.in(inPlace), api.CanaryAnnotation, api.OnFailureAnnotation)); err != nil {
		return err
	}
	t.crew = callAll(ctx, t.Node, t.recorder, worker.subject(inPlace), worker.subject(builtIn))
	if err := t.crew.rest(ctx, 6); err != nil {
		return err
	}
	t.wellSoFar()
	t.out.line("")
	t.out.say("Each pod is visited every %s, and has its %s to fill every %.0f s. All have done so once.", seconds(visitEvery), bytes(jobNeeds), jobEvery.Seconds())
	return nil
}

// wellSoFar checks that the pods have been visited and have worked, and nothing has failed.
func (t *trial) wellSoFar() {
	t.crew.mu.Lock()
	defer t.crew.mu.Unlock()
	for what, calls := range map[string]map[types.NamespacedName][]call{"visits": t.crew.visits, "jobs": t.crew.jobs} {
		t.checker.act = what + " before the edit"
		t.is("pods that had them", len(calls), 6)
		for pod, calls := range calls {
			_, why := unanswered(calls)
			t.is("why there was no answer from "+pod.String(), why, nil)
		}
	}
}

// tooSmall edits both to a limit that is too small, and shows what comes of it.
func (t *trial) tooSmall(ctx context.Context) ([]verdictOn, error) {
	t.out.title("The same edit of both: a limit of 100Mi")
	mark, err := t.AuditMark()
	if err != nil {
		return nil, err
	}
	subjects := []measure.Subject{worker.subject(inPlace), worker.subject(builtIn)}
	from := t.recorder.Now()
	for _, of := range subjects {
		if err := t.kubectl(ctx, "set resources "+worker.in(of.Namespace)+" "+worker.edit); err != nil {
			return nil, err
		}
	}
	t.out.line("")
	history, _ := t.recorder.From(0)
	v := newView(t.out, history, from, subjects)
	v.widths = [columns]int{colPod: 10, colRequested: 14, colApplied: 14, colUID: 10, colFate: 8, colReady: 7, colRestarts: 10, colState: 20}
	watching, stop := context.WithTimeout(ctx, watched)
	defer stop()
	t.show(watching, from, v)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	t.crew.end()
	t.out.line("")
	t.out.say("What inplace-rollout tells of it:")
	if err := t.kubectl(ctx, ourEvents(worker.kind)); err != nil {
		return nil, err
	}
	history, _ = t.recorder.From(0)
	var results []verdictOn
	for _, of := range subjects {
		r := t.result(history, from, of)
		if r.audit, err = t.audit(mark, of.Namespace); err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// result is what became of one of the StatefulSets.
func (t *trial) result(history []measure.Moment, from int, of measure.Subject) verdictOn {
	r := verdictOn{Subject: of, Measurement: measure.Edit(history, from, of)}
	limit := r.After.Template().Spec.Containers[0].Resources.Limits.Memory()
	t.crew.mu.Lock()
	defer t.crew.mu.Unlock()
	for _, name := range slices.Backward(r.Before.PodNames()) {
		pod := types.NamespacedName{Namespace: of.Namespace, Name: name}
		r.lanes = append(r.lanes, newLane(history[from:], of, name, *limit, r.Edited, r.Edited.Add(watched), t.crew.visits[pod], t.crew.jobs[pod]))
		r.kernel = append(r.kernel, t.grantedNow(r.After, name))
	}
	return r
}

// grantedNow is the memory that the kernel grants a pod.
func (t *trial) grantedNow(s *measure.State, name string) string {
	pod := s.Pods[name]
	if pod == nil {
		return none
	}
	group, err := t.Node.Cgroup(pod, pod.Spec.Containers[0].Name)
	if err != nil {
		return none
	}
	memory, err := group.MemoryLimit()
	if err != nil {
		return none // no container runs
	}
	return bytes(memory)
}

// summarise shows the results beside each other.
func (t *trial) summarise(results []verdictOn) {
	t.out.title("What was measured in the first minute after the edit")
	line := func(st style, label string, value func(verdictOn) string) {
		cells := pad("", labelWidth-len(label))
		for _, r := range results {
			cells += pad(value(r), columnWidth)
		}
		t.out.line(t.out.paint(st, label+cells))
	}
	row := func(label string, value func(verdictOn) string) { line(plain, label, value) }
	line(bold, "", func(r verdictOn) string {
		if r.Namespace == inPlace {
			return "guarded"
		}
		return "built-in"
	})
	row("pods that were given the limit", func(r verdictOn) string { return r.pods(wasAsked) })
	row("pods that the kernel has killed", func(r verdictOn) string { return r.pods(wasKilled) })
	row("kills", func(r verdictOn) string { return fmt.Sprint(r.killings()) })
	row("pods replaced", func(r verdictOn) string { return fmt.Sprintf("%d of %d", r.Replaced, len(r.lanes)) })
	row("fewest pods that answered", func(r verdictOn) string { return fmt.Sprint(fewest(r.lanes)) })
	for i, l := range results[0].lanes {
		row("visits without an answer, "+l.pod, func(r verdictOn) string { return fmt.Sprintf("%d of %d", r.lanes[i].lost, r.lanes[i].visits) })
	}
	row("visits without an answer, all pods", func(r verdictOn) string {
		visits, lost := r.visits()
		return fmt.Sprintf("%d of %d", lost, visits)
	})
	row("jobs that failed", func(r verdictOn) string {
		failed, jobs := 0, 0
		for _, l := range r.lanes {
			failed, jobs = failed+l.failed, jobs+l.jobs
		}
		return fmt.Sprintf("%d of %d", failed, jobs)
	})
	row("limits in the kernel, in the end", func(r verdictOn) string { return strings.Join(r.kernel, ", ") })
	row("condition's reason", func(r verdictOn) string {
		if _, reason := r.After.Complete(); reason != "" {
			return reason
		}
		return none
	})
}

func wasAsked(l lane) bool  { return l.asked }
func wasKilled(l lane) bool { return len(l.kills) > 0 }

// pods are how many are so, of how many.
func (r verdictOn) pods(are func(lane) bool) string {
	return fmt.Sprintf("%d of %d", r.count(are), len(r.lanes))
}

func (r verdictOn) count(are func(lane) bool) int {
	return len(slices.DeleteFunc(slices.Clone(r.lanes), func(l lane) bool { return !are(l) }))
}

func (r verdictOn) killings() int {
	n := 0
	for _, l := range r.lanes {
		n += len(l.kills)
	}
	return n
}

func (r verdictOn) visits() (all, lost int) {
	for _, l := range r.lanes {
		all, lost = all+l.visits, lost+l.lost
	}
	return all, lost
}

// guarded checks what is promised of the one that is opted in.
func (t *trial) guarded(r verdictOn) {
	t.checker.act = "edit of " + worker.in(r.Namespace)
	t.is("pods that were given the limit", r.pods(wasAsked), "1 of 3")
	t.is("pods replaced", r.Replaced, 0)
	t.is("resizes by inplace-rollout", ours(r.audit)["patch pods/resize"], 2)
	t.is("pods deleted, by the audit log", r.audit.Deleted, 0)
	for i, l := range r.lanes {
		t.checker.act = l.pod + " of " + r.Namespace
		canary := i == 0
		t.is("was given the limit", l.asked, canary)
		t.is("kills", len(l.kills), map[bool]int{true: 1}[canary])
		if canary {
			t.is("every visit was answered", l.lost == 0, false)
		} else {
			t.is("why a visit was not answered", l.why, nil)
		}
		t.is("limit in the kernel", r.kernel[i], "256Mi")
		t.is("answers in the end, with its former limit", l.at(watched), former)
		t.is("jobs that failed", l.failed, map[bool]int{true: 1}[canary])
	}
	_, reason := r.After.Complete()
	t.is("condition's reason", reason, rollout.ReasonReverted)
	t.is("memory limit of the template", r.After.Template().Spec.Containers[0].Resources.Limits.Memory().String(), "100Mi")
}

// unguarded checks that the other one was rolled out, and what that means.
func (t *trial) unguarded(r verdictOn) {
	t.checker.act = "edit of " + worker.in(r.Namespace)
	t.is("pods that were given the limit", r.pods(wasAsked), "3 of 3")
	t.is("pods that the kernel has killed", r.pods(wasKilled), "3 of 3")
	t.is("pods replaced", r.Replaced, 3)
	t.is("kinds of writes by inplace-rollout", len(ours(r.audit)), 0)
	for _, l := range r.lanes {
		t.checker.act = l.pod + " of " + r.Namespace
		t.is("every visit was answered", l.lost == 0, false)
	}
}

// bytes are so many, as people write them.
func bytes(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
