//go:build integration

package integration

import (
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestUndoKeepsPolicyAndAction: kubectl restores the annotations that a ReplicaSet has
// copies of; the template goes back, and action and policy stay those of now.
func TestUndoKeepsPolicyAndAction(t *testing.T) {
	parallel(t)
	const action, policy, timeout = api.ResizeActionAnnotation, api.ResizePolicyAnnotation, api.DeferredTimeoutAnnotation
	d := newDeployment(t, options{Meta: `annotations: {inplace-rollout.io/resource-resize-policy: "cpu=LiveResizeable", app: web}`})
	d.edit("150m")
	for _, annotation := range []string{action + "=LiveResize", policy + "=memory=RestartOnly", timeout + "=90s"} {
		d.kubectl("annotate", "--overwrite", "deployment/web", annotation)
	}
	before := d.uids()
	for name := range before {
		d.annotatePod(name, simInfeasible)
	}
	d.kubectl("rollout", "undo", "deployment/web")
	d.waitCondition("Infeasible", "left as it is")
	d.assertReplaced(before)
	a := d.get().Annotations
	if a[action] != "LiveResize" || a[policy] != "memory=RestartOnly" || a[timeout] != "90s" || a[api.InForceAnnotation] != "" || a["app"] != "web" {
		t.Errorf("annotations %v", a)
	}
}

// TestRetry is a rollout under LiveResize that cannot go on, and is told that it may restart pods.
func TestRetry(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Meta: liveOnly})
	if got := w.run("retry", "sts/web"); got.code != 0 || !strings.Contains(got.stdout, "has no rollout in flight") {
		t.Errorf("nothing is in flight: %+v", got)
	}
	before := w.uids()
	w.annotatePod("web-1", simInfeasible)
	w.setResources("cpu=150m", "")
	w.waitCondition("Infeasible", "2 of 3 pods")
	asked := len(w.audit("patch", "pods", "resize", "web-1"))
	if got := w.run("retry", "sts/web"); got.code != 0 || !strings.Contains(got.stdout, "is retried") {
		t.Fatalf("%+v", got)
	}
	w.waitAudit("web-1", asked+2) // for what it has, and then for the size again
	w.waitCondition("Infeasible", "left as it is")
	w.assertReplaced(before)
	if got := w.run("retry", "sts/web", "--action=LiveResizePreferred"); got.code != 0 || !strings.Contains(got.stdout, "LiveResizePreferred is in force") {
		t.Fatalf("%+v", got)
	}
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
	if action := w.get().Annotations[api.ResizeActionAnnotation]; action != "LiveResize" {
		t.Errorf("the action of the next edit is %q", action)
	}
	w.setResources("cpu=180m", "")
	if a := w.get().Annotations; a[api.RetryAnnotation] != "" || a[api.InForceAnnotation] != "" {
		t.Errorf("after an edit: %v", a)
	}
	w.waitComplete()
}

// waitAudit waits until the controller has asked n times for a resize of the pod.
func (s *sandbox[W]) waitAudit(pod string, n int) {
	s.t.Helper()
	eventually(s.t, "the pod to be asked again", func() (bool, string) {
		asked := s.audit("patch", "pods", "resize", pod)
		return len(asked) >= n, strings.Join(s.writes(), "\n")
	})
}
