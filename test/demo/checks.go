package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

// checker compares the results with what the demo claims.
type checker struct {
	node      bool // it is a real one
	act       string
	made      int
	differing []error
	slowest   time.Duration // start of a pod
}

func (c *checker) is(what string, got, want any) {
	c.made++
	if got != want {
		c.differing = append(c.differing, fmt.Errorf("%s: %s: got %v, want %v", c.act, what, got, want))
	}
}

// check compares the results of one workload.
func (c *checker) check(w *workload, results []result) {
	for _, r := range results {
		c.act = fmt.Sprintf("%s of %s", r.title, w.in(r.Namespace))
		c.rolledOut(r)
		if r.Namespace == inPlace {
			c.inPlace(r)
		} else {
			c.builtIn(r)
		}
		if c.node {
			c.noticed(r)
		}
		for _, pod := range r.After.Pods {
			c.slowest = max(c.slowest, probeDelay(pod))
		}
	}
	first, last := results[0].Before, results[len(results)-1].After
	c.is("template is that of before the edit", equality.Semantic.DeepEqual(first.Template(), last.Template()), true)
}

// rolledOut holds for either way.
func (c *checker) rolledOut(r result) {
	n := r.Before.Replicas()
	c.is("pods", len(r.After.Pods), n)
	c.is("template has changed", equality.Semantic.DeepEqual(r.Before.Template(), r.After.Template()), false)
	c.is("pods of another size than the template's", strings.Join(r.After.WrongSize(), ", "), "")
	c.is("pods of another revision than the newest", strings.Join(r.After.Stale(), ", "), "")
	c.is("pods when kubectl's waiter had ended", len(r.pods), n)
	c.is("pods without the new size when kubectl's waiter had ended", strings.Join(r.early(), ", "), "")
	c.is("complete", r.Completed, true)
	c.is("settled in the end", r.After.Settled(), true)
	c.is("pods that the built-in controller counts as updated", r.After.Updated(), n)
	c.is("field that holds", brake(r.After), brake(r.Before))
	c.is("hold annotation", r.After.Held(), "none")
	c.is("revisions in kubectl rollout history", len(r.revisions), 2)
}

// inPlace holds for an edit that inplace-rollout has carried out.
func (c *checker) inPlace(r result) {
	c.is("pods replaced", r.Replaced, 0)
	c.is("pods deleted, by the audit log", r.audit.Deleted, 0)
	c.is("pods created, by the audit log", r.audit.Created, 0)
	c.is("container restarts", r.Restarts, 0)
	c.is("containers started anew", r.Started, 0)
	c.is("pods not Ready at some time", r.NotReady, 0)
	c.is("condition inplace-rollout.io/Complete", r.After.IsComplete(), true)
	c.is("resizes by inplace-rollout", ours(r.audit)["patch pods/resize"], r.Before.Replicas())
	if len(r.Before.Sets) > 0 {
		c.is("ReplicaSets that had pods", r.Used, 1)
		c.is("ReplicaSet of the pods", strings.Join(r.After.Active(), ", "), strings.Join(r.Before.Active(), ", "))
	}
}

// builtIn holds for an edit that the built-in controller has rolled out alone.
func (c *checker) builtIn(r result) {
	c.is("pods replaced", r.Replaced, r.Before.Replicas())
	c.is("kinds of writes by inplace-rollout", len(ours(r.audit)), 0)
	if len(r.Before.Sets) > 0 {
		c.is("ReplicaSets that had pods", r.Used, 2)
		c.is("ReplicaSets that have pods", len(r.After.Active()), 1)
	}
}

// noticed holds for what the kernel, the programs and their visitors tell of an edit.
func (c *checker) noticed(r result) {
	c.is("pods of another size in the kernel or their program, before", strings.Join(otherwise(r.Before), ", "), "")
	c.is("pods of another size in the kernel or their program, after", strings.Join(otherwise(r.After), ", "), "")
	c.is("visited", r.Visits > r.Before.Replicas(), true)
	c.is("every visit was answered", r.Lost == 0, r.Namespace == inPlace)
	c.is("nothing was forgotten", r.Forgotten == 0, r.Namespace == inPlace)
}

// verdict reports whether everything is as claimed, and fails if not.
func (d *demo) verdict(ctx context.Context, c *checker) error {
	c.act = "controller"
	c.is("readiness", d.Ready(ctx), nil)

	d.out.line("")
	if d.Node == nil {
		d.out.line(d.out.paint(dim, "The times are those of the simulation: a resize takes about as long here as the start of a pod,"))
		d.out.line(d.out.paint(dim, fmt.Sprintf("%s (initialDelaySeconds of its readiness probe). A real one may take minutes.", seconds(c.slowest))))
		d.out.line("")
	}
	return d.conclude(c, "in place nothing was replaced or restarted, the built-in controllers agree.")
}

// conclude says whether all checks have passed, and what that means.
func (d *demo) conclude(c *checker, passed string) error {
	if len(c.differing) > 0 {
		d.out.line(d.out.paint(red, fmt.Sprintf("%d of %d checks failed.", len(c.differing), c.made)))
		return fmt.Errorf("not as claimed:\n%w", errors.Join(c.differing...))
	}
	d.out.line(d.out.paint(green, fmt.Sprintf("All %d checks passed", c.made)) + ": " + passed)
	return nil
}
