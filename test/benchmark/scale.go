package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// scaleOptions are the flags of scale.
type scaleOptions struct {
	options

	workloads, rollouts, pods, others int
	idle                              time.Duration
}

// scaled is what was measured of a controller with many workloads to look after.
type scaled struct {
	Workloads int `json:"workloads"`
	Others    int `json:"otherPods"`
	Rollouts  int `json:"rollouts"`
	Pods      int `json:"podsEach"`

	Looks      phase `json:"firstLooks"` // all are opted in when the controller starts
	Idle       phase `json:"idle"`       // after another start
	Concurrent phase `json:"concurrent"` // all rollouts are in flight
	After      phase `json:"after"`      // idle again
	Writes     int   `json:"idleWrites"` // of the controller, in the two idle phases, but its heartbeats
}

// phase is what the controller has taken for a while.
type phase struct {
	Wall seconds `json:"wall"`
	CPU  float64 `json:"cpuSeconds"`
	RSS  uint64  `json:"rss"` // at its end, in bytes
	Peak uint64  `json:"peakRSS"`
}

// scale measures what many opted-in workloads cost, and many rollouts at once.
func scale(ctx context.Context, args []string) error {
	var o scaleOptions
	flags := o.flags("scale")
	flags.IntVar(&o.workloads, "workloads", 5000, "how many workloads are opted in, half of them StatefulSets, half Deployments")
	flags.IntVar(&o.others, "others", 20000, "how many other pods there are")
	flags.IntVar(&o.rollouts, "rollouts", 200, "how many of the workloads are edited at once; the others have no pods")
	flags.IntVar(&o.pods, "pods", 10, "how many pods each of these has")
	flags.DurationVar(&o.idle, "idle", time.Minute, "how long is looked while nothing happens")
	if err := flags.Parse(args); err != nil {
		return err
	}
	begin := time.Now()
	s, err := o.measure(ctx)
	if err != nil {
		return err
	}
	all := results{Machine: thisMachine(), Scale: &s}
	if err := all.save(o.json); err != nil {
		return err
	}
	if err := s.print(os.Stdout); err != nil {
		return err
	}
	fmt.Printf("\nMeasured in %s.\n", time.Since(begin).Round(time.Second))
	return nil
}

func (o scaleOptions) measure(ctx context.Context) (s scaled, err error) {
	c, err := startCluster(ctx, o.options, nodesFor(o.rollouts*o.pods))
	if err != nil {
		return s, err
	}
	defer c.End(ctx, &err)
	c.Controller.Stop()
	f := newField(c, o)
	if err := f.fill(ctx); err != nil {
		return s, err
	}
	return f.measure(ctx)
}

// measure goes through the phases.
func (f *field) measure(ctx context.Context) (scaled, error) {
	s := scaled{Workloads: f.o.workloads, Others: f.o.others, Rollouts: f.o.rollouts, Pods: f.o.pods}
	rest := func(ctx context.Context) error { return f.rest(ctx, &s.Writes) }
	for _, step := range []struct {
		says    string
		phase   *phase
		prepare func(context.Context) error
		do      func(context.Context) error
	}{
		{"first looks at all", &s.Looks, f.StartController, f.complete},
		{"idle", &s.Idle, f.restart, rest},
		{"all rollouts at once", &s.Concurrent, f.quiet, f.rollOut},
		{"idle again", &s.After, f.quiet, rest},
	} {
		if err := step.prepare(ctx); err != nil {
			return s, fmt.Errorf("%s: %w", step.says, err)
		}
		var err error
		if *step.phase, err = f.during(ctx, step.do); err != nil {
			return s, fmt.Errorf("%s: %w", step.says, err)
		}
		fmt.Printf("%s: %s\n", step.says, step.phase)
	}
	return s, nil
}

func (p *phase) String() string {
	return fmt.Sprintf("%.1f s, %.2f s of cpu, %.0f MiB, at most %.0f MiB", p.Wall, p.CPU, mib(p.RSS), mib(p.Peak))
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// print prints what there are targets for beside them.
func (s scaled) print(out io.Writer) error {
	core := func(p phase) float64 { return 100 * p.CPU / float64(p.Wall) }
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range []struct {
		head, format string
		value, most  float64
	}{
		{"idle: RSS, MiB", "%.0f", mib(max(s.Idle.RSS, s.After.RSS)), 90},
		{"idle: cpu, % of a core", "%.2f", max(core(s.Idle), core(s.After)), 0.5},
		{"idle: writes", "%.0f", float64(s.Writes), 0},
		{"all rollouts at once: peak RSS, MiB", "%.0f", mib(s.Concurrent.Peak), 150},
	} {
		kept := "kept"
		if row.value > row.most {
			kept = "missed"
		}
		_, _ = fmt.Fprintf(w, "%s\t"+row.format+"\tat most %v\t%s\n", row.head, row.value, row.most, kept)
	}
	return w.Flush()
}

// field is a cluster with many workloads.
type field struct {
	*cluster

	o              scaleOptions
	edited, others []*fixture // workloads that are edited, and those without pods
}

func newField(c *cluster, o scaleOptions) *field {
	f := &field{cluster: c, o: o}
	for i, kind := range []string{"StatefulSet", "Deployment"} {
		half := func(n int) int { return (n + 1 - i) / 2 }
		make := func(prefix string, workloads, pods int) *fixture {
			return &fixture{cluster: c, optedIn: true, resize: o.resize, shape: shape{kind: kind, prefix: prefix, workloads: workloads, pods: pods, limit: 1}}
		}
		f.edited = append(f.edited, make("edited-"+strings.ToLower(kind), half(o.rollouts), o.pods))
		f.others = append(f.others, make("idle-"+strings.ToLower(kind), half(o.workloads-o.rollouts), 0))
	}
	return f
}

// each does something to each of the fixtures at once.
func each(ctx context.Context, fixtures []*fixture, do func(context.Context, *fixture) error) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, fixture := range fixtures {
		all.Go(func() error { return do(ctx, fixture) })
	}
	return all.Wait()
}

func (f *field) all() []*fixture { return slices.Concat(f.edited, f.others) }

// listing is how long a controller that has just started is given to list all that it watches: 20 s for the 25,000
// objects that there usually are.
func (o scaleOptions) listing() time.Duration {
	return max(time.Second, time.Duration(o.workloads+o.others)*time.Second/1250)
}

// restart starts the controller anew, and lets it list what there is.
func (f *field) restart(ctx context.Context) error {
	f.Controller.Stop()
	if err := f.StartController(ctx); err != nil {
		return err
	}
	if err := wait(ctx, f.o.listing()); err != nil {
		return err
	}
	return f.quiet(ctx)
}

// fill makes all workloads, and other pods, which nobody schedules.
func (f *field) fill(ctx context.Context) error {
	begin := time.Now()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		return each(ctx, f.all(), func(ctx context.Context, fixture *fixture) error { return fixture.fill(ctx) })
	})
	all.Go(func() error {
		others, ctx := errgroup.WithContext(ctx)
		others.SetLimit(parallel)
		for i := range f.o.others {
			others.Go(func() error {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)}, Spec: corev1.PodSpec{
					SchedulerName: "nobody", Containers: []corev1.Container{{Name: "app", Image: "app:1"}},
				}}
				_, err := f.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
				return err
			})
		}
		return others.Wait()
	})
	if err := all.Wait(); err != nil {
		return fmt.Errorf("filling the cluster: %w", err)
	}
	fmt.Printf("%d workloads and %d other pods are there after %s\n", f.o.workloads, f.o.others, time.Since(begin).Round(time.Second))
	return nil
}

// during measures what the controller takes while something is done.
func (f *field) during(ctx context.Context, do func(context.Context) error) (p phase, err error) {
	if err := forgetPeak(f.Controller.PID()); err != nil {
		return p, err
	}
	begin := time.Now()
	before, err := cpu(f.pids())
	if err != nil {
		return p, err
	}
	if err := do(ctx); err != nil {
		return p, err
	}
	p.Wall = inSeconds(time.Since(begin))
	after, err := cpu(f.pids())
	if err != nil {
		return p, err
	}
	p.CPU = after[ours] - before[ours]
	p.RSS, p.Peak, err = f.memory()
	return p, err
}

// complete waits until all rollouts are.
func (f *field) complete(ctx context.Context) error {
	return each(ctx, f.all(), func(ctx context.Context, fixture *fixture) error {
		_, err := fixture.await(ctx, complete)
		return err
	})
}

// rollOut edits many workloads at once, and waits until that has been rolled out.
func (f *field) rollOut(ctx context.Context) error {
	return each(ctx, f.edited, func(ctx context.Context, fixture *fixture) error {
		_, err := fixture.edit(ctx, inPlace)
		return err
	})
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting: %w", context.Cause(ctx))
	case <-time.After(d):
		return nil
	}
}

// rest lets the idle time pass, and counts the controller's writes in it.
func (f *field) rest(ctx context.Context, writes *int) error {
	mark, err := f.AuditMark()
	if err != nil {
		return err
	}
	if err := wait(ctx, f.o.idle); err != nil {
		return err
	}
	events, err := f.AuditSince(mark, controlplane.Writes, controlplane.ByUser(controller.User))
	for _, e := range events {
		if e.ObjectRef == nil || e.ObjectRef.Resource != "serviceaccounts" { // that is its heartbeat
			*writes++
		}
	}
	return err
}
