package invariant_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestHandOver: an operator deletes no pod that may still be resized.
func TestHandOver(t *testing.T) {
	marked := annotated(hold, "OnDelete")
	deletes := func(d time.Duration) step { return together(deleted("operator:web", "web-1"), after(d)) }
	soon := deletes(10 * time.Second)
	// begun logs a set with two pods that is edited, while a controller is there for so long.
	begun := func(there time.Duration, change ...func(*appsv1.StatefulSet)) step {
		edited := set("2", append([]func(*appsv1.StatefulSet){onDelete, marked}, change...)...)
		return together(beat(there), created(user, set("1", onDelete)), webPods, wrote(user, edited))
	}
	reports := func(p *corev1.Pod) step { return together(reported(p), after(time.Second)) }
	retried := wrote(user, set("2", onDelete, marked, annotated("inplace-rollout.io/retry", "again")))
	unmarked := func(s *appsv1.StatefulSet) { delete(s.Annotations, hold) }
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	checkAll(t, []promised{
		{"at once", history{begun(time.Hour), soon}, "hand-over pods/web-1"},
		{"it may not have seen the edit", history{begun(time.Hour), deletes(100 * time.Millisecond)}, ""},
		{"after the deadlines", history{begun(time.Hour), deletes(10 * time.Minute)}, ""},
		{"before the deadlines, by an edit that was tried again", history{
			begun(time.Hour), retried, after(9 * time.Minute), deletes(9 * time.Minute),
		}, "hand-over pods/web-1"},
		{"no controller is there", history{begun(0, unmarked), soon}, ""},
		{"the heartbeat is out of date", history{begun(4 * time.Minute), soon}, ""},
		{"the policies were not there", history{begun(time.Hour), soon, gap(2)}, ""},
		{"one that is infeasible", history{begun(time.Hour), reports(webPod("web-1", "2", infeasible)), soon}, ""},
		{"another one is infeasible", history{begun(time.Hour), reports(webPod("web-0", "2", infeasible)), soon}, "hand-over pods/web-1"},
		{"the policy says that it restarts", history{begun(time.Hour, annotated("inplace-rollout.io/in-force", ";cpu=RestartOnly")), soon}, ""},
		{"another image", history{begun(time.Hour, image2), soon}, ""},
		{"not opted in", history{begun(time.Hour, optedOut), soon}, ""},
		{"one that does not run", history{begun(time.Hour), reports(webPod("web-1", "1", pending)), soon}, ""},
		{"its user deletes it", history{begun(time.Hour), deleted(user, "web-1")}, ""},
	})
}
