package invariant_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestHandOver: an operator deletes no pod that may still be resized.
func TestHandOver(t *testing.T) {
	onDelete := func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }
	marked := annotated(hold, "OnDelete")
	deletes := func(l *trail, after time.Duration) {
		l.write("operator:web", "delete", "pods", "web-1", nil)
		l.after(after)
	}
	// edited logs a set with two pods that is edited, while a controller is there for so long.
	edited := func(l *trail, there time.Duration, change ...func(*appsv1.StatefulSet)) {
		l.beat(there)
		l.write(user, "create", "statefulsets", "web", set("1", onDelete))
		for _, name := range []string{"web-0", "web-1"} {
			l.write(statefulSet, "create", "pods", name, pod(name, "1", "web-1", "set", "StatefulSet"))
		}
		l.write(user, "patch", "statefulsets", "web", set("2", append([]func(*appsv1.StatefulSet){onDelete, marked}, change...)...))
	}
	reports := func(l *trail, p *corev1.Pod) {
		l.write(kubelet, "patch", "pods/status", p.Name, p)
		l.after(time.Second)
	}
	checkAll(t, []promised{
		{"at once", func(l *trail) { edited(l, time.Hour); deletes(l, 10*time.Second) }, "hand-over pods/web-1"},
		{"it may not have seen the edit", func(l *trail) { edited(l, time.Hour); deletes(l, 100*time.Millisecond) }, ""},
		{"after the deadlines", func(l *trail) { edited(l, time.Hour); deletes(l, 10*time.Minute) }, ""},
		{"before the deadlines, by an edit that was tried again", func(l *trail) {
			edited(l, time.Hour)
			l.write(user, "patch", "statefulsets", "web", set("2", onDelete, marked, annotated("inplace-rollout.io/retry", "again")))
			l.after(9 * time.Minute)
			deletes(l, 9*time.Minute)
		}, "hand-over pods/web-1"},
		{"no controller is there", func(l *trail) {
			edited(l, 0, func(s *appsv1.StatefulSet) { delete(s.Annotations, hold) })
			deletes(l, 10*time.Second)
		}, ""},
		{"the heartbeat is out of date", func(l *trail) { edited(l, 4*time.Minute); deletes(l, 10*time.Second) }, ""},
		{"the policies were not there", func(l *trail) { edited(l, time.Hour); deletes(l, 10*time.Second); l.gaps = l.lapse(2) }, ""},
		{"one that is infeasible", func(l *trail) {
			edited(l, time.Hour)
			reports(l, pod("web-1", "2", "web-1", "set", "StatefulSet", infeasible))
			deletes(l, 10*time.Second)
		}, ""},
		{"another one is infeasible", func(l *trail) {
			edited(l, time.Hour)
			reports(l, pod("web-0", "2", "web-1", "set", "StatefulSet", infeasible))
			deletes(l, 10*time.Second)
		}, "hand-over pods/web-1"},
		{"the policy says that it restarts", func(l *trail) {
			edited(l, time.Hour, annotated("inplace-rollout.io/in-force", ";cpu=RestartOnly"))
			deletes(l, 10*time.Second)
		}, ""},
		{"another image", func(l *trail) { edited(l, time.Hour, image2); deletes(l, 10*time.Second) }, ""},
		{"not opted in", func(l *trail) { edited(l, time.Hour, optedOut); deletes(l, 10*time.Second) }, ""},
		{"one that does not run", func(l *trail) {
			edited(l, time.Hour)
			reports(l, pod("web-1", "1", "web-1", "set", "StatefulSet", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }))
			deletes(l, 10*time.Second)
		}, ""},
		{"its user deletes it", func(l *trail) { edited(l, time.Hour); l.write(user, "delete", "pods", "web-1", nil) }, ""},
	})
}
