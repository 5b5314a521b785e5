package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// verify compares the results with what the demo claims.
func (d *demo) verify(ctx context.Context, results []result) error {
	c := &checker{}
	for _, r := range results {
		c.act = fmt.Sprintf("%s in %s", r.name, r.namespace)
		c.rolledOut(r)
		if r.namespace == inPlace {
			c.inPlace(r)
		} else {
			c.builtIn(r)
		}
	}
	c.act = "undo in " + inPlace
	first, last := results[0].before.set.Spec.Template, results[len(results)-1].after.set.Spec.Template
	c.is("template is that of before the edit", equality.Semantic.DeepEqual(first, last), true)
	c.act = "controller"
	c.is("readiness", d.controller.Ready(ctx), nil)

	d.out.line("")
	if len(c.differing) > 0 {
		d.out.line(d.out.paint(red, fmt.Sprintf("%d of %d checks failed.", len(c.differing), c.made)))
		return fmt.Errorf("not as claimed:\n%w", errors.Join(c.differing...))
	}
	d.out.line(d.out.paint(green, fmt.Sprintf("All %d checks passed", c.made)) +
		": in place nothing was replaced or restarted, and the StatefulSet controller agrees.")
	return nil
}

// checker collects what differs from the claims.
type checker struct {
	act       string
	made      int
	differing []error
}

func (c *checker) is(what string, got, want any) {
	c.made++
	if got != want {
		c.differing = append(c.differing, fmt.Errorf("%s: %s: got %v, want %v", c.act, what, got, want))
	}
}

// rolledOut holds for either way.
func (c *checker) rolledOut(r result) {
	status, n := r.after.set.Status, r.before.replicas()
	c.is("pods", len(r.after.pods), n)
	c.is("template has changed", equality.Semantic.DeepEqual(r.before.set.Spec.Template, r.after.set.Spec.Template), false)
	c.is("pods of another size than the template's", strings.Join(wrongSize(r.after), ", "), "")
	c.is("pods of another revision than the newest", strings.Join(stale(r.after), ", "), "")
	c.is("complete", r.completed, true)
	c.is("status.updatedReplicas", int(status.UpdatedReplicas), n)
	c.is("status.currentRevision", status.CurrentRevision, status.UpdateRevision)
	c.is("partition", r.after.partition(), r.before.partition())
	c.is("hold annotation", held(r.after), "none")
}

// inPlace holds for an edit that inplace-rollout has carried out.
func (c *checker) inPlace(r result) {
	c.is("pods replaced", r.replaced, 0)
	c.is("pods deleted, by the audit log", r.audit.killed, 0)
	c.is("pods created, by the audit log", r.audit.created, 0)
	c.is("container restarts", r.restarts, 0)
	c.is("containers started anew", r.started, 0)
	c.is("pods not Ready at some time", r.notReady, 0)
	c.is("condition inplace-rollout.io/Complete", r.after.complete(), true)
	c.is("resizes by inplace-rollout", r.audit.ours["patch pods/resize"], r.before.replicas())
}

// builtIn holds for an edit that the StatefulSet controller has rolled out alone.
func (c *checker) builtIn(r result) {
	c.is("pods replaced", r.replaced, r.before.replicas())
	c.is("kinds of writes by inplace-rollout", len(r.audit.ours), 0)
}

// stale names the pods that do not count as updated.
func stale(s *state) []string {
	var names []string
	for name, pod := range s.pods {
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] != s.set.Status.UpdateRevision {
			names = append(names, name)
		}
	}
	return names
}
