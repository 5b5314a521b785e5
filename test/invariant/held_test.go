package invariant_test

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/inplace-rollout/inplace-rollout/test/invariant"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// beat logs that the heartbeat says for how long a controller is there; it says that none is if that is 0.
func beat(valid time.Duration, more ...string) step {
	return func(l *trail) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "inplace-rollout-heartbeat", Namespace: "inplace-rollout", Annotations: map[string]string{}}}
		if valid > 0 {
			now := start.Add(time.Duration(len(l.events)) * time.Minute) // of the next event
			account.Annotations["inplace-rollout.io/ready-until"] = now.Add(valid).Format(time.RFC3339)
		}
		for _, whenAbsent := range more {
			account.Annotations["inplace-rollout.io/when-absent"] = whenAbsent
		}
		wrote(ours, account)(l)
		l.events[len(l.events)-1].ObjectRef.Namespace = "inplace-rollout"
	}
}

// edit logs that a user edits a set by a request.
func edit(request string, s *appsv1.StatefulSet) step {
	return func(l *trail) {
		wrote(user, s)(l)
		l.events[len(l.events)-1].RequestObject = &runtime.Unknown{Raw: []byte(request)}
	}
}

// stored has the last event have stored that version, or have found that it is stored.
func stored(version string) step {
	return func(l *trail) {
		l.t.Helper()
		e, object := &l.events[len(l.events)-1], map[string]any{}
		must.Do(l.t, json.Unmarshal(e.ResponseObject.Raw, &object))
		object["metadata"].(map[string]any)["resourceVersion"] = version
		raw := must.Get(json.Marshal(object))(l.t)
		e.ResponseObject.Raw = raw
	}
}

// lapse has the last n events be in a span.
func (l *trail) lapse(n int) []invariant.Span {
	return []invariant.Span{{From: l.events[len(l.events)-n].StageTimestamp.Time, To: l.events[len(l.events)-1].StageTimestamp.Time}}
}

// gap has no policy see the last n events, and in doubt the log may lack some among them.
func gap(n int) step     { return func(l *trail) { l.gaps = l.lapse(n) } }
func inDoubt(n int) step { return func(l *trail) { l.doubts = l.lapse(n) } }

// TestHeld: edits are held while a controller is there, and while none is they are not, and each is made by one controller only.
func TestHeld(t *testing.T) {
	isHeld, left, live := annotated(hold, "0"), annotated("inplace-rollout.io/not-held", "7"), annotated("inplace-rollout.io/in-force", "LiveResize;")
	const set3, unset = `{"spec": {"cpu": 3}}`, `{"spec": {"cpu": null}}`
	to3 := func(change ...func(*appsv1.StatefulSet)) step { return edit(set3, set("3", change...)) }
	there, absent, lapsed, holdsOn := beat(time.Hour), beat(0), beat(30*time.Second), beat(0, "Hold")
	restarts := deleted(statefulSet, "web-1")
	// letGoInTwo logs that we let go of a held DaemonSet, which takes us two writes.
	waiting := func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }
	letGoInTwo := together(created(user, daemons("1")), wrote(user, daemons("2", heldDaemons)), wrote(ours, daemons("2", waiting)), wrote(ours, daemons("2")))
	// adopts logs that a new DaemonSet adopts a pod of another size, while a controller is there for so long, and restarts it.
	adopts := func(there time.Duration) history {
		return history{beat(there), created(user, daemons("1")), daemonRevision("1"), daemonRevision("2"), wrote(daemonSets, podA("2", "2")), restarted(daemonSets)}
	}
	// resizesDaemon logs that we resize a pod of a DaemonSet that is not held, whose label says that template generation. The set has 2.
	resizesDaemon := func(generation string) history {
		of := func(p *corev1.Pod) { p.Labels["pod-template-generation"] = generation }
		second := func(d *appsv1.DaemonSet) { d.Annotations["deprecated.daemonset.template.generation"] = "2" }
		return history{
			created(user, daemons("2", second)), daemonRevision("1"), daemonRevision("2"), wrote(daemonSets, podA("1", "1", of)), asked(podA("2", "1", of)),
		}
	}
	checkAll(t, []promised{
		{"held, and a controller is there", history{edited(), there, to3(isHeld)}, ""},
		{"left, and a controller is there", history{edited(), there, to3(left)}, "held statefulsets/web"},
		{"left, and no controller is there", history{edited(), absent, to3(left)}, ""},
		{"held, and no controller is there", history{edited(), absent, to3(isHeld)}, "held statefulsets/web"},
		{"held, and no controller is there, by an edit that only takes away", history{
			edited(), absent, edit(unset, set("3", isHeld)),
		}, "held statefulsets/web"},
		{"stays held when something else is written, and no controller is there", history{
			edited(), absent, edit(set3, set("2", isHeld, annotated("a", "b"))),
		}, "held statefulsets/web"},
		{"held with the action LiveResize, and no controller is there", history{edited(), absent, to3(isHeld, live)}, ""},
		{"held, and no controller is there, which is to hold all the same", history{edited(), holdsOn, to3(isHeld)}, ""},
		{"left, and no controller is there, which is to hold all the same", history{edited(), holdsOn, to3(left)}, "held statefulsets/web"},
		{"left with the action LiveResize", history{edited(), absent, to3(left, live)}, "held statefulsets/web"},
		{"held, and the heartbeat is long out of date", history{edited(), lapsed, to3(isHeld)}, "held statefulsets/web"},
		{"left, and the heartbeat is out of date", history{edited(), lapsed, to3(left)}, ""},
		{"held by an edit that only takes away, and the heartbeat is out of date", history{edited(), lapsed, edit(unset, set("3", isHeld))}, ""},
		{"left, and the heartbeat has just come", history{edited(), absent, there, to3(left), after(time.Second)}, ""},
		{"stays held by a write that changes nothing, and a controller has come since it was held", history{
			edited(), stored("2"), absent, stored("3"), there, stored("4"), edit(set3, set("2", isHeld)), stored("2"),
		}, ""},
		{"stays held by a write that changes nothing, and no controller is there", history{
			edited(), stored("2"), absent, stored("3"), edit(set3, set("2", isHeld)), stored("2"),
		}, "held statefulsets/web"},
		{"held, and the heartbeat has just gone", history{edited(), there, absent, to3(isHeld), after(time.Second)}, ""},
		{"left, and the log may lack a heartbeat", history{edited(), there, to3(left), inDoubt(1)}, ""},
		{"left, and the policies are not there", history{edited(), there, to3(left), gap(1)}, ""},

		{"a pod is restarted after an edit that no policy held", history{edited(), to3(), gap(1), restarts}, ""},
		{"a pod is restarted after an edit that the policies should have held", history{edited(), gap(1), to3(isHeld), restarts}, "restart pods/web-1"},
		{"a pod is restarted after a write of ours that no policy saw", history{edited(), wrote(ours, set("2")), gap(1), restarts}, "restart pods/web-1"},

		{"a new DaemonSet restarts what it adopts, and no controller was there", adopts(0), ""},
		{"a new DaemonSet restarts what it adopts, and a controller was there", adopts(time.Hour), "restart pods/agent-a"},

		{"a DaemonSet is let go in two writes, as no policy is there", history{letGoInTwo, gap(2)}, ""},
		{"a DaemonSet is let go in two writes, and the policies are there", history{letGoInTwo}, "fence daemonsets/agent"},

		{"a pod of a set that is held is resized", history{edited(), asked(webPod("web-1", "2"))}, ""},
		{"a pod of a set that is not held is resized", history{edited(), wrote(user, set("3", left)), asked(webPod("web-1", "3"))}, "held pods/web-1"},
		{"a pod of a set that is not held gets back what the template says", history{
			edited(), wrote(user, set("1")), resized(user, webPod("web-1", "3")), asked(webPod("web-1", "1")),
		}, ""},
		{"a pod of a DaemonSet that is not held, and of a template of before, is resized", resizesDaemon("1"), "held pods/agent-a"},
		{"a pod of a DaemonSet that is not held, and counts as updated, is resized", resizesDaemon("2"), ""},
		{"a pod of a set with OnDelete is resized", history{edited(onDelete), wrote(user, set("3", onDelete)), asked(webPod("web-1", "3"))}, ""},
		{"a pod of a set that has just been let go is resized", history{
			edited(), wrote(user, set("3", left)), after(time.Second), asked(webPod("web-1", "3")), after(time.Second),
		}, ""},
	})
}
