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
)

// now is when the next event is.
func (l *trail) now() time.Time { return start.Add(time.Duration(len(l.events)) * time.Minute) }

// beat logs that the ServiceAccount says for how long a controller is there; it says that none is if that is 0.
func (l *trail) beat(valid time.Duration, more ...string) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "inplace-rollout", Namespace: "inplace-rollout", Annotations: map[string]string{}}}
	if valid > 0 {
		account.Annotations["inplace-rollout.io/ready-until"] = l.now().Add(valid).Format(time.RFC3339)
	}
	for _, whenAbsent := range more {
		account.Annotations["inplace-rollout.io/when-absent"] = whenAbsent
	}
	l.write(ours, "patch", "serviceaccounts", "inplace-rollout", account)
	l.events[len(l.events)-1].ObjectRef.Namespace = "inplace-rollout"
}

// edit logs that a user edits a set.
func (l *trail) edit(s *appsv1.StatefulSet, request string) {
	l.write(user, "patch", "statefulsets", "web", s)
	l.events[len(l.events)-1].RequestObject = &runtime.Unknown{Raw: []byte(request)}
}

// stored has the last event have stored that version, or have found that it is stored.
func (l *trail) stored(version string) {
	l.t.Helper()
	e, object := &l.events[len(l.events)-1], map[string]any{}
	if err := json.Unmarshal(e.ResponseObject.Raw, &object); err != nil {
		l.t.Fatal(err)
	}
	object["metadata"].(map[string]any)["resourceVersion"] = version
	raw, err := json.Marshal(object)
	if err != nil {
		l.t.Fatal(err)
	}
	e.ResponseObject.Raw = raw
}

// lapse has the last n events be in a span.
func (l *trail) lapse(n int) []invariant.Span {
	return []invariant.Span{{From: l.events[len(l.events)-n].StageTimestamp.Time, To: l.events[len(l.events)-1].StageTimestamp.Time}}
}

// TestHeld: edits are held while a controller is there, and while none is they are not, and each is made by one controller only.
func TestHeld(t *testing.T) {
	isHeld, left, live := annotated(hold, "0"), annotated("inplace-rollout.io/not-held", "7"), annotated("inplace-rollout.io/in-force", "LiveResize;")
	onDelete := func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }
	const set3, unset = `{"spec": {"cpu": 3}}`, `{"spec": {"cpu": null}}`
	checkAll(t, []promised{
		{"held, and a controller is there", func(l *trail) { l.statefulSets(); l.beat(time.Hour); l.edit(set("3", isHeld), set3) }, ""},
		{"left, and a controller is there", func(l *trail) { l.statefulSets(); l.beat(time.Hour); l.edit(set("3", left), set3) }, "held statefulsets/web"},
		{"left, and no controller is there", func(l *trail) { l.statefulSets(); l.beat(0); l.edit(set("3", left), set3) }, ""},
		{"held, and no controller is there", func(l *trail) { l.statefulSets(); l.beat(0); l.edit(set("3", isHeld), set3) }, "held statefulsets/web"},
		{"held, and no controller is there, by an edit that only takes away", func(l *trail) { l.statefulSets(); l.beat(0); l.edit(set("3", isHeld), unset) }, "held statefulsets/web"},
		{"stays held when something else is written, and no controller is there", func(l *trail) {
			l.statefulSets()
			l.beat(0)
			l.edit(set("2", isHeld, annotated("a", "b")), set3)
		}, "held statefulsets/web"},
		{"held with the action LiveResize, and no controller is there", func(l *trail) { l.statefulSets(); l.beat(0); l.edit(set("3", isHeld, live), set3) }, ""},
		{"held, and no controller is there, which is to hold all the same", func(l *trail) { l.statefulSets(); l.beat(0, "Hold"); l.edit(set("3", isHeld), set3) }, ""},
		{"left, and no controller is there, which is to hold all the same", func(l *trail) { l.statefulSets(); l.beat(0, "Hold"); l.edit(set("3", left), set3) }, "held statefulsets/web"},
		{"left with the action LiveResize", func(l *trail) { l.statefulSets(); l.beat(0); l.edit(set("3", left, live), set3) }, "held statefulsets/web"},
		{"held, and the heartbeat is long out of date", func(l *trail) { l.statefulSets(); l.beat(30 * time.Second); l.edit(set("3", isHeld), set3) }, "held statefulsets/web"},
		{"left, and the heartbeat is out of date", func(l *trail) { l.statefulSets(); l.beat(30 * time.Second); l.edit(set("3", left), set3) }, ""},
		{"held by an edit that only takes away, and the heartbeat is out of date", func(l *trail) {
			l.statefulSets()
			l.beat(30 * time.Second)
			l.edit(set("3", isHeld), unset)
		}, ""},
		{"left, and the heartbeat has just come", func(l *trail) {
			l.statefulSets()
			l.beat(0)
			l.beat(time.Hour)
			l.edit(set("3", left), set3)
			l.after(time.Second)
		}, ""},
		{"stays held by a write that changes nothing, and a controller has come since it was held", func(l *trail) {
			l.statefulSets()
			l.stored("2")
			l.beat(0)
			l.stored("3")
			l.beat(time.Hour)
			l.stored("4")
			l.edit(set("2", isHeld), set3)
			l.stored("2")
		}, ""},
		{"stays held by a write that changes nothing, and no controller is there", func(l *trail) {
			l.statefulSets()
			l.stored("2")
			l.beat(0)
			l.stored("3")
			l.edit(set("2", isHeld), set3)
			l.stored("2")
		}, "held statefulsets/web"},
		{"held, and the heartbeat has just gone", func(l *trail) {
			l.statefulSets()
			l.beat(time.Hour)
			l.beat(0)
			l.edit(set("3", isHeld), set3)
			l.after(time.Second)
		}, ""},
		{"left, and the log may lack a heartbeat", func(l *trail) {
			l.statefulSets()
			l.beat(time.Hour)
			l.edit(set("3", left), set3)
			l.doubts = l.lapse(1)
		}, ""},
		{"left, and the policies are not there", func(l *trail) {
			l.statefulSets()
			l.beat(time.Hour)
			l.edit(set("3", left), set3)
			l.gaps = l.lapse(1)
		}, ""},

		{"a pod is restarted after an edit that no policy held", func(l *trail) {
			l.statefulSets()
			l.edit(set("3"), set3)
			l.gaps = l.lapse(1)
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, ""},
		{"a pod is restarted after an edit that the policies should have held", func(l *trail) {
			l.statefulSets()
			l.gaps = l.lapse(1)
			l.edit(set("3", isHeld), set3)
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, "restart pods/web-1"},
		{"a pod is restarted after a write of ours that no policy saw", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "statefulsets", "web", set("2"))
			l.gaps = l.lapse(1)
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, "restart pods/web-1"},

		{"a new DaemonSet restarts what it adopts, and no controller was there", func(l *trail) { l.adopts(0) }, ""},
		{"a new DaemonSet restarts what it adopts, and a controller was there", func(l *trail) { l.adopts(time.Hour) }, "restart pods/agent-a"},

		{"a DaemonSet is let go in two writes, as no policy is there", func(l *trail) { l.letGoInTwo(); l.gaps = l.lapse(2) }, ""},
		{"a DaemonSet is let go in two writes, and the policies are there", func(l *trail) { l.letGoInTwo() }, "fence daemonsets/agent"},

		{"a pod of a set that is held is resized", func(l *trail) { l.statefulSets(); l.resizes("web-1", "2") }, ""},
		{"a pod of a set that is not held is resized", func(l *trail) {
			l.statefulSets()
			l.write(user, "patch", "statefulsets", "web", set("3", left))
			l.resizes("web-1", "3")
		}, "held pods/web-1"},
		{"a pod of a set that is not held gets back what the template says", func(l *trail) {
			l.statefulSets()
			l.write(user, "patch", "statefulsets", "web", set("1"))
			l.write(user, "patch", "pods/resize", "web-1", pod("web-1", "3", "web-1", "set", "StatefulSet"))
			l.resizes("web-1", "1")
		}, ""},
		{"a pod of a DaemonSet that is not held, and of a template of before, is resized", func(l *trail) { l.resizesDaemon("1") }, "held pods/agent-a"},
		{"a pod of a DaemonSet that is not held, and counts as updated, is resized", func(l *trail) { l.resizesDaemon("2") }, ""},
		{"a pod of a set with OnDelete is resized", func(l *trail) {
			l.statefulSets(onDelete)
			l.write(user, "patch", "statefulsets", "web", set("3", onDelete))
			l.resizes("web-1", "3")
		}, ""},
		{"a pod of a set that has just been let go is resized", func(l *trail) {
			l.statefulSets()
			l.write(user, "patch", "statefulsets", "web", set("3", left))
			l.after(time.Second)
			l.resizes("web-1", "3")
			l.after(time.Second)
		}, ""},
	})
}

// letGoInTwo logs that we let go of a held DaemonSet, which takes us two writes.
func (l *trail) letGoInTwo() {
	l.write(user, "create", "daemonsets", "agent", daemons("1"))
	l.write(user, "patch", "daemonsets", "agent", daemons("2", heldDaemons))
	l.write(ours, "patch", "daemonsets", "agent", daemons("2", func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }))
	l.write(ours, "patch", "daemonsets", "agent", daemons("2"))
}

// resizesDaemon logs that we resize a pod of a DaemonSet that is not held, whose label says that template generation. The set has 2.
func (l *trail) resizesDaemon(generation string) {
	of := func(p *corev1.Pod) { p.Labels["pod-template-generation"] = generation }
	l.write(user, "create", "daemonsets", "agent", daemons("2", func(d *appsv1.DaemonSet) { d.Annotations["deprecated.daemonset.template.generation"] = "2" }))
	l.daemonRevision("1")
	l.daemonRevision("2")
	l.write(daemonSets, "patch", "pods", "agent-a", daemon("agent-a", "node-a", "1", "1", of))
	l.write(ours, "patch", "pods/resize", "agent-a", daemon("agent-a", "node-a", "2", "1", of))
}

// adopts logs that a new DaemonSet adopts a pod of another size, while a controller is there for so long, and restarts it.
func (l *trail) adopts(there time.Duration) {
	l.beat(there)
	l.write(user, "create", "daemonsets", "agent", daemons("1"))
	l.daemonRevision("1")
	l.daemonRevision("2")
	l.write(daemonSets, "patch", "pods", "agent-a", daemon("agent-a", "node-a", "2", "2"))
	l.restartDaemon(daemonSets)
}

// resizes logs that we resize a pod of the set.
func (l *trail) resizes(name, cpu string) {
	l.write(ours, "patch", "pods/resize", name, pod(name, cpu, "web-1", "set", "StatefulSet"))
}
