package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
		for _, pod := range r.after.pods {
			c.slowest = max(c.slowest, probeDelay(pod))
		}
	}
	first, last := results[0].before, results[len(results)-1].after
	c.is("template is that of before the edit", equality.Semantic.DeepEqual(first.template(), last.template()), true)
}

// rolledOut holds for either way.
func (c *checker) rolledOut(r result) {
	n := r.before.replicas()
	c.is("pods", len(r.after.pods), n)
	c.is("template has changed", equality.Semantic.DeepEqual(r.before.template(), r.after.template()), false)
	c.is("pods of another size than the template's", strings.Join(wrongSize(r.after), ", "), "")
	c.is("pods of another revision than the newest", strings.Join(stale(r.after), ", "), "")
	c.is("pods when kubectl's waiter had ended", len(r.pods), n)
	c.is("pods without the new size when kubectl's waiter had ended", strings.Join(r.early(), ", "), "")
	c.is("complete", r.completed, true)
	c.is("settled in the end", r.after.settled(), true)
	c.is("pods that the built-in controller counts as updated", r.after.updated(), n)
	c.is("field that holds", brake(r.after), brake(r.before))
	c.is("hold annotation", r.after.held(), "none")
	c.is("revisions in kubectl rollout history", len(r.revisions), 2)
}

// inPlace holds for an edit that inplace-rollout has carried out.
func (c *checker) inPlace(r result) {
	c.is("pods replaced", r.replaced, 0)
	c.is("pods deleted, by the audit log", r.audit.killed, 0)
	c.is("pods created, by the audit log", r.audit.created, 0)
	c.is("container restarts", r.restarts, 0)
	c.is("containers started anew", r.started, 0)
	c.is("pods not Ready at some time", r.notReady, 0)
	c.is("condition inplace-rollout.io/Complete", r.after.isComplete(), true)
	c.is("resizes by inplace-rollout", r.audit.ours["patch pods/resize"], r.before.replicas())
	if len(r.before.sets) > 0 {
		c.is("ReplicaSets that had pods", r.used, 1)
		c.is("ReplicaSet of the pods", strings.Join(r.after.active(), ", "), strings.Join(r.before.active(), ", "))
	}
}

// builtIn holds for an edit that the built-in controller has rolled out alone.
func (c *checker) builtIn(r result) {
	c.is("pods replaced", r.replaced, r.before.replicas())
	c.is("kinds of writes by inplace-rollout", len(r.audit.ours), 0)
	if len(r.before.sets) > 0 {
		c.is("ReplicaSets that had pods", r.used, 2)
		c.is("ReplicaSets that have pods", len(r.after.active()), 1)
	}
}

// noticed holds for what the kernel, the programs and their visitors tell of an edit.
func (c *checker) noticed(r result) {
	c.is("pods of another size in the kernel or their program, before", strings.Join(otherwise(r.before), ", "), "")
	c.is("pods of another size in the kernel or their program, after", strings.Join(otherwise(r.after), ", "), "")
	c.is("visited", r.visits > r.before.replicas(), true)
	c.is("every visit was answered", r.lost == 0, r.Namespace == inPlace)
	c.is("nothing was forgotten", r.forgotten == 0, r.Namespace == inPlace)
}

// stale names the pods that are not of the newest revision.
func stale(s *state) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if !s.current(s.pods[name], s.sets) {
			names = append(names, name)
		}
	}
	return names
}

// verdict reports whether everything is as claimed, and fails if not.
func (d *demo) verdict(ctx context.Context, c *checker) error {
	c.act = "controller"
	c.is("readiness", d.ready(ctx), nil)

	d.out.line("")
	if d.node == nil {
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
