package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// scaled is what was measured of a controller with many workloads to look after.
type scaled struct {
	Workloads int `json:"workloads"` // half of them StatefulSets, half Deployments
	Others    int `json:"otherPods"`
	Rollouts  int `json:"rollouts"` // the other workloads have no pods
	Pods      int `json:"podsEach"`

	Idle       phase `json:"idle"` // after a start
	Writes     int   `json:"idleWrites"`
	Concurrent phase `json:"concurrent"` // all rollouts are in flight
}

// phase is what the controller has taken for a while.
type phase struct {
	Wall seconds `json:"wall"`
	CPU  float64 `json:"cpuSeconds"`
	RSS  uint64  `json:"rss"` // at its end, in bytes
	Peak uint64  `json:"peakRSS"`
}

// String is a list in Markdown; it is empty if nothing was measured.
func (s *scaled) String() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("- %d workloads beside %d other pods, idle: %.0f MiB RSS, %.2f %% of a core, %d writes but the heartbeat;\n"+
		"- %d of them edited at once: %d pods in %.0f s, at most %.0f MiB.\n",
		s.Workloads, s.Others, mib(s.Idle.RSS), 100*s.Idle.CPU/float64(s.Idle.Wall), s.Writes,
		s.Rollouts, s.Rollouts*s.Pods, s.Concurrent.Wall, mib(s.Concurrent.Peak))
}

// scale measures what many opted-in workloads cost, and many rollouts at once.
func scale(ctx context.Context, args []string) (err error) {
	var o options
	var s scaled
	flags := o.flags("scale")
	flags.IntVar(&s.Workloads, "workloads", 5000, "how many workloads are opted in, half of them StatefulSets, half Deployments")
	flags.IntVar(&s.Others, "others", 20000, "how many other pods there are")
	flags.IntVar(&s.Rollouts, "rollouts", 200, "how many of the workloads are edited at once; the others have no pods")
	flags.IntVar(&s.Pods, "pods", 10, "how many pods each of these has")
	idle := flags.Duration("idle", time.Minute, "how long is looked while nothing happens")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := startCluster(ctx, o, nodesFor(s.Rollouts*s.Pods))
	if err != nil {
		return err
	}
	defer c.End(ctx, &err)
	edited, err := s.fill(ctx, c, o.resize)
	if err != nil {
		return err
	}
	c.Controller.Stop() // it has made all of them Complete
	if err := c.StartController(ctx); err != nil {
		return err
	}
	// It lists 1,250 objects a second.
	if err := errors.Join(wait(ctx, time.Second+time.Duration(s.Workloads+s.Others)*time.Second/1250), c.quiet(ctx)); err != nil {
		return err
	}
	mark, err := c.AuditMark()
	if err != nil {
		return err
	}
	if s.Idle, err = c.during(func() error { return wait(ctx, *idle) }); err != nil {
		return err
	}
	events, err := c.AuditSince(mark, controlplane.Writes, controlplane.ByUser(controller.User))
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.ObjectRef == nil || e.ObjectRef.Resource != "serviceaccounts" { // that is its heartbeat
			s.Writes++
		}
	}
	s.Concurrent, err = c.during(func() error {
		return each(edited, func(f *fixture) error {
			_, err := f.edit(ctx, inPlace)
			return err
		})
	})
	if err != nil {
		return err
	}
	fmt.Print(&s)
	return results{Machine: thisMachine(), Scale: &s}.save(o.json)
}

// fill makes all workloads, and other pods, which nobody schedules.
func (s *scaled) fill(ctx context.Context, c *cluster, resize time.Duration) (edited []*fixture, err error) {
	all := []*fixture{}
	for i, kind := range []string{"StatefulSet", "Deployment"} {
		half := func(n int) int { return (n + 1 - i) / 2 }
		add := func(prefix string, workloads, pods int) *fixture {
			f := &fixture{cluster: c, optedIn: true, resize: resize, shape: shape{kind: kind, prefix: prefix + strings.ToLower(kind), workloads: workloads, pods: pods, limit: 1}}
			all = append(all, f)
			return f
		}
		edited = append(edited, add("edited-", half(s.Rollouts), s.Pods))
		add("idle-", half(s.Workloads-s.Rollouts), 0)
	}
	var others errgroup.Group
	others.SetLimit(parallel)
	for i := range s.Others {
		others.Go(func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)}, Spec: corev1.PodSpec{
				SchedulerName: "nobody", Containers: []corev1.Container{{Name: "app", Image: "app:1"}},
			}}
			_, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := errors.Join(others.Wait(), each(all, func(f *fixture) error { return f.fill(ctx) })); err != nil {
		return nil, fmt.Errorf("filling the cluster: %w", err)
	}
	return edited, nil
}

// each does something to each of the fixtures at once.
func each(fixtures []*fixture, do func(*fixture) error) error {
	var all errgroup.Group
	for _, f := range fixtures {
		all.Go(func() error { return do(f) })
	}
	return all.Wait()
}

// during measures what the controller takes while something is done.
func (c *cluster) during(do func() error) (p phase, err error) {
	pid := c.Controller.PID()
	if err := forgetPeak(pid); err != nil {
		return p, err
	}
	begin := time.Now()
	before, err := cpuOf(ours, pid)
	if err != nil {
		return p, err
	}
	if err := do(); err != nil {
		return p, err
	}
	p.Wall = inSeconds(time.Since(begin))
	after, err := cpuOf(ours, pid)
	if err != nil {
		return p, err
	}
	p.CPU = after - before
	p.RSS, p.Peak, err = memoryOf(pid)
	return p, err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting: %w", context.Cause(ctx))
	case <-time.After(d):
		return nil
	}
}
