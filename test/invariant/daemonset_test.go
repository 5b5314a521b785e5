package invariant_test

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const daemonSets = "system:serviceaccount:kube-system:daemon-set-controller"

// daemons is a DaemonSet on two nodes of which one may be down, or one with changes.
func daemons(cpu string, change ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Name: "agent", UID: "daemons", Labels: map[string]string{"inplace-rollout.io/enabled": "true"}, Annotations: map[string]string{},
	}}
	d.Spec.Template.Spec.Containers = container(cpu, "app:1")
	d.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0))}
	d.Status.DesiredNumberScheduled, d.Status.CurrentNumberScheduled, d.Status.UpdatedNumberScheduled = 2, 2, 2
	for _, f := range change {
		f(d)
	}
	return d
}

func heldDaemons(d *appsv1.DaemonSet) {
	d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	d.Annotations[hold] = "RollingUpdate"
}

func revertingDaemons(d *appsv1.DaemonSet) { d.Annotations["inplace-rollout.io/on-failure"] = "Revert" }

func liveDaemons(d *appsv1.DaemonSet) {
	d.Annotations[action], d.Annotations["inplace-rollout.io/in-force"] = "LiveResize", "LiveResize;"
}

func restartDaemons(d *appsv1.DaemonSet) { d.Annotations[action] = "Restart" }

func largeDaemons(d *appsv1.DaemonSet) {
	d.Annotations["inplace-rollout.io/node-resources"] = `[{"nodeSelector": {"size": "large"}, "containers": {"app": {"requests": {"cpu": "4"}}}}]`
}

func surgingDaemons(d *appsv1.DaemonSet) {
	d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(1))}
}

func memory(request string) func(*appsv1.DaemonSet) {
	return func(d *appsv1.DaemonSet) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(request)
	}
}

func unfinishedDaemons(d *appsv1.DaemonSet) { d.Status.UpdatedNumberScheduled = 1 }

func completeDaemons(d *appsv1.DaemonSet) {
	d.Status.Conditions = []appsv1.DaemonSetCondition{{Type: "inplace-rollout.io/Complete", Status: corev1.ConditionTrue}}
}

// daemon is a pod on a node of its own.
func daemon(name, node, cpu, hash string, change ...func(*corev1.Pod)) *corev1.Pod {
	return pod(name, cpu, hash, "daemons", "DaemonSet", append([]func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.NodeName = node }}, change...)...)
}

// unbound makes a pod as the DaemonSet controller does: the scheduler is yet to bind it.
func unbound(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
		term := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
		}}
	}
}

// daemonRevision logs the ControllerRevision of a size.
func (l *trail) daemonRevision(cpu string, change ...func(*appsv1.DaemonSet)) {
	l.t.Helper()
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": daemons(cpu, change...).Spec.Template}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.write(daemonSets, "create", "controllerrevisions", "agent-"+cpu, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: "agent-" + cpu, UID: types.UID("revision-" + cpu), Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: cpu},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", UID: "daemons", Controller: ptr.To(true)}},
		},
		Data: runtime.RawExtension{Raw: raw},
	})
}

// daemonSets logs a DaemonSet of 1 cpu with two pods, and an edit to 2.
func (l *trail) daemonSets(change ...func(*appsv1.DaemonSet)) {
	l.write(user, "create", "daemonsets", "agent", daemons("1", change...))
	l.daemonRevision("1")
	l.write(daemonSets, "create", "pods", "agent-a", daemon("agent-a", "node-a", "1", "1"))
	l.write(daemonSets, "create", "pods", "agent-b", daemon("agent-b", "node-b", "1", "1"))
	l.write(user, "patch", "daemonsets", "agent", daemons("2", append(change, heldDaemons)...))
	l.daemonRevision("2")
}

// letGoDaemons logs that we let go of it.
func (l *trail) letGoDaemons(change ...func(*appsv1.DaemonSet)) {
	l.write(ours, "patch", "daemonsets", "agent", daemons("2", change...))
}

// restartDaemon logs that somebody has the pod on node-a go, and another comes.
func (l *trail) restartDaemon(by string) {
	l.write(by, "delete", "pods", "agent-a", nil)
	l.write(daemonSets, "create", "pods", "agent-c", daemon("agent-c", "node-a", "2", "2", unbound("node-a")))
}

// readyUnseen logs that one pod is restarted after the other, and then that the one that has come has been
// Ready since a while after the scheduler has bound it.
func (l *trail) readyUnseen(after time.Duration) {
	l.daemonSets(restartDaemons)
	l.letGoDaemons(restartDaemons)
	l.restartDaemon(daemonSets)
	since := metav1.NewTime(l.events[len(l.events)-1].StageTimestamp.Add(after))
	l.write(daemonSets, "delete", "pods", "agent-b", nil)
	l.write(user, "patch", "pods", "agent-c", daemon("agent-c", "node-a", "2", "2", func(p *corev1.Pod) {
		p.Status.Conditions[0].LastTransitionTime = since
	}))
	l.after(4 * time.Minute)
}

// foundBeside logs that the DaemonSet controller makes a pod beside one that was changed so until then,
// and takes it away.
func (l *trail) foundBeside(change ...func(*corev1.Pod)) {
	l.write(user, "create", "daemonsets", "agent", daemons("1", liveDaemons))
	l.daemonRevision("1")
	l.write(daemonSets, "create", "pods", "agent-a", daemon("agent-a", "node-a", "1", "1"))
	l.write(user, "patch", "pods", "agent-a", daemon("agent-a", "node-a", "1", "1", change...))
	l.write(daemonSets, "create", "pods", "agent-c", daemon("agent-c", "node-a", "1", "1"))
	l.write(daemonSets, "patch", "pods", "agent-a", daemon("agent-a", "node-a", "1", "1"))
	l.write(daemonSets, "delete", "pods", "agent-c", nil)
}

// TestCheckDaemonSets is TestCheck for what is different there.
func TestCheckDaemonSets(t *testing.T) {
	onDelete := func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }
	unready := func(p *corev1.Pod) { p.Status.Conditions = nil }
	refused := func(l *trail) { l.answered(ours, "patch", "pods/resize", "agent-a", 422, nil) }
	checkAll(t, []promised{
		{"the built-in controller restarts a pod that we have not held", func(l *trail) {
			l.daemonSets(liveDaemons)
			l.letGoDaemons(liveDaemons)
			l.restartDaemon(daemonSets)
		}, "restart pods/agent-a"},
		{"a pod goes from a node that takes none any more", func(l *trail) {
			l.daemonSets(liveDaemons)
			l.write(daemonSets, "delete", "pods", "agent-a", nil)
		}, ""},
		{"a pod goes, the node has changed, and another comes", func(l *trail) {
			l.daemonSets(liveDaemons)
			l.write(daemonSets, "delete", "pods", "agent-a", nil)
			l.write(user, "patch", "nodes", "node-a", nil)
			l.write(daemonSets, "create", "pods", "agent-c", daemon("agent-c", "node-a", "2", "2", unbound("node-a")))
		}, ""},
		{"a node has changed, its pod goes, and another comes", func(l *trail) {
			l.daemonSets(liveDaemons)
			l.write(user, "patch", "nodes", "node-a", nil)
			l.restartDaemon(daemonSets)
			l.atOnce(2)
		}, ""},
		{"Kubernetes has changed a node, its pod goes, and another comes", func(l *trail) {
			l.daemonSets(liveDaemons)
			l.write("system:serviceaccount:kube-system:node-controller", "patch", "nodes", "node-a", nil)
			l.restartDaemon(daemonSets)
			l.atOnce(2)
		}, "restart pods/agent-a"},
		{"a pod goes, another node has changed, and another comes", func(l *trail) {
			l.daemonSets(liveDaemons)
			l.write(daemonSets, "delete", "pods", "agent-a", nil)
			l.write(user, "patch", "nodes", "node-b", nil)
			l.write(daemonSets, "create", "pods", "agent-c", daemon("agent-c", "node-a", "2", "2", unbound("node-a")))
		}, "restart pods/agent-a"},
		{"a pod goes when its node is another one, and comes", func(l *trail) {
			l.daemonSets(liveDaemons)
			l.write(daemonSets, "delete", "pods", "agent-a", nil)
			l.write(user, "patch", "daemonsets", "agent", daemons("2", liveDaemons, func(d *appsv1.DaemonSet) {
				d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "another"}
			}))
			l.write(daemonSets, "create", "pods", "agent-c", daemon("agent-c", "node-a", "2", "2", unbound("node-a")))
		}, ""},
		{"the built-in controller restarts a pod whose policy says so", func(l *trail) {
			l.daemonSets(restartDaemons)
			l.letGoDaemons(restartDaemons)
			l.restartDaemon(daemonSets)
		}, ""},
		{"it restarts one while another is down", func(l *trail) {
			l.daemonSets(restartDaemons)
			l.write("system:node:node-b", "patch", "pods/status", "agent-b", daemon("agent-b", "node-b", "1", "1", unready))
			l.letGoDaemons(restartDaemons)
			l.restartDaemon(daemonSets)
		}, "availability daemonsets/agent"},
		{"it restarts one, and the log lacks by which write the one before has become Ready", func(l *trail) {
			l.readyUnseen(0)
		}, ""},
		{"it restarts one, and the one before has become Ready after that, by a write that the log lacks", func(l *trail) {
			l.readyUnseen(2 * time.Minute)
		}, "availability daemonsets/agent"},
		{"we restart one that cannot be resized", func(l *trail) {
			l.daemonSets()
			refused(l)
			l.restartDaemon(ours)
		}, ""},
		{"we restart one that can be resized", func(l *trail) {
			l.daemonSets()
			l.restartDaemon(ours)
		}, "restart pods/agent-a"},
		{"we restart one that is to be left", func(l *trail) {
			l.daemonSets(liveDaemons)
			refused(l)
			l.restartDaemon(ours)
		}, "restart pods/agent-a"},
		{"we restart one that its user is to delete", func(l *trail) {
			l.write(user, "create", "daemonsets", "agent", daemons("1", onDelete))
			l.daemonRevision("1")
			l.write(daemonSets, "create", "pods", "agent-a", daemon("agent-a", "node-a", "1", "1"))
			l.write(user, "patch", "daemonsets", "agent", daemons("2", onDelete))
			refused(l)
			l.restartDaemon(ours)
		}, "restart pods/agent-a"},
		{"we restart one while another is down", func(l *trail) {
			l.daemonSets()
			l.write("system:node:node-b", "patch", "pods/status", "agent-b", daemon("agent-b", "node-b", "1", "1", unready))
			refused(l)
			l.restartDaemon(ours)
		}, "availability daemonsets/agent"},
		{"we restart one where only a surge may", func(l *trail) {
			l.daemonSets(surgingDaemons)
			refused(l)
			l.write("system:node:node-a", "patch", "pods/status", "agent-a", daemon("agent-a", "node-a", "1", "1", unready))
			l.restartDaemon(ours)
		}, "availability pods/agent-a"},
		{"we restart one and do not hold the set", func(l *trail) {
			l.daemonSets()
			refused(l)
			l.letGoDaemons()
			l.restartDaemon(ours)
		}, "fence pods/agent-a"},
		{"we restart one for the size of its node's class", func(l *trail) {
			l.write(user, "create", "daemonsets", "agent", daemons("1", restartDaemons))
			l.daemonRevision("1")
			l.write(daemonSets, "create", "pods", "agent-a", daemon("agent-a", "node-a", "1", "1"))
			l.write(daemonSets, "create", "pods", "agent-b", daemon("agent-b", "node-b", "1", "1"))
			l.write(user, "patch", "daemonsets", "agent", daemons("1", restartDaemons, heldDaemons, largeDaemons))
			l.restartDaemon(ours)
		}, "restart pods/agent-a"},
		{"we restart one for an edit of nothing but the spelling", func(l *trail) {
			l.write(user, "create", "daemonsets", "agent", daemons("1", memory("134217728"), restartDaemons))
			l.daemonRevision("1", memory("134217728"))
			l.write(daemonSets, "create", "pods", "agent-a", daemon("agent-a", "node-a", "1", "1"))
			l.write(daemonSets, "create", "pods", "agent-b", daemon("agent-b", "node-b", "1", "1"))
			l.write(user, "patch", "daemonsets", "agent", daemons("1", memory("128Mi"), restartDaemons, heldDaemons))
			l.restartDaemon(ours)
		}, ""},
		{"we let go of a hold whose limits the user has taken away", func(l *trail) {
			l.daemonSets(liveDaemons)
			l.write(user, "patch", "daemonsets", "agent", daemons("2", liveDaemons, heldDaemons, func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.RollingUpdate = nil }))
			l.letGoDaemons(liveDaemons)
		}, ""},
		{"we restart one for an edit, and its node is of a class", func(l *trail) {
			l.daemonSets(restartDaemons, largeDaemons)
			l.write(user, "patch", "nodes", "node-a", nil)
			l.restartDaemon(ours)
		}, ""},
		{"its node has no room for what comes", func(l *trail) {
			l.daemonSets()
			refused(l)
			l.restartDaemon(ours)
			pending := daemon("agent-c", "node-a", "2", "2", unbound("node-a"))
			pending.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			l.write("system:kube-scheduler", "patch", "pods/status", "agent-c", pending)
			l.atOnce(2)
		}, "room pods/agent-c"},
		{"another node has no room for what comes", func(l *trail) {
			l.daemonSets()
			refused(l)
			l.restartDaemon(ours)
			pending := daemon("agent-d", "node-d", "2", "2", unbound("node-d"))
			l.write(daemonSets, "create", "pods", "agent-d", pending)
			pending.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			l.write("system:kube-scheduler", "patch", "pods/status", "agent-d", pending)
			l.atOnce(3)
		}, ""},
		{"a set that was made anew adopts a pod beside the one that it has made, which goes", func(l *trail) {
			l.foundBeside(func(p *corev1.Pod) { p.OwnerReferences = nil })
		}, ""},
		{"a set has made two pods for a node, and one goes", func(l *trail) {
			l.foundBeside()
		}, "restart pods/agent-c"},
		{"a surge loses its pod to a hold", func(l *trail) {
			l.write(user, "create", "daemonsets", "agent", daemons("1", surgingDaemons, unfinishedDaemons))
			l.daemonRevision("1")
			l.write(daemonSets, "create", "pods", "agent-a", daemon("agent-a", "node-a", "1", "0"))
			l.write(daemonSets, "create", "pods", "agent-c", daemon("agent-c", "node-a", "1", "1"))
			l.write(user, "patch", "daemonsets", "agent", daemons("2", surgingDaemons, unfinishedDaemons, heldDaemons))
			l.write(daemonSets, "delete", "pods", "agent-c", nil)
		}, "restart pods/agent-c"},
		{"a surge goes on after an edit", func(l *trail) {
			l.write(user, "create", "daemonsets", "agent", daemons("1", surgingDaemons, unfinishedDaemons))
			l.daemonRevision("1")
			l.write(daemonSets, "create", "pods", "agent-a", daemon("agent-a", "node-a", "1", "0"))
			l.write(daemonSets, "create", "pods", "agent-c", daemon("agent-c", "node-a", "1", "1"))
			l.write(user, "patch", "daemonsets", "agent", daemons("2", surgingDaemons, unfinishedDaemons))
			l.write(daemonSets, "patch", "daemonsets/status", "agent", daemons("2", surgingDaemons))
			l.write(daemonSets, "delete", "pods", "agent-c", nil)
		}, ""},
		{"an edit is not held, and there is no surge", func(l *trail) {
			l.write(user, "create", "daemonsets", "agent", daemons("1", surgingDaemons))
			l.daemonRevision("1")
			l.write(daemonSets, "create", "pods", "agent-a", daemon("agent-a", "node-a", "1", "1"))
			l.write(user, "patch", "daemonsets", "agent", daemons("2", surgingDaemons))
			l.restartDaemon(daemonSets)
		}, "restart pods/agent-a"},
		{"Complete, and a pod has the size and not the label", func(l *trail) {
			l.daemonSets()
			for name, node := range map[string]string{"agent-a": "node-a", "agent-b": "node-b"} {
				l.write(ours, "patch", "pods/resize", name, daemon(name, node, "2", "1"))
				l.write("system:node:node", "patch", "pods/status", name, daemon(name, node, "2", "1"))
			}
			l.write(ours, "patch", "daemonsets/status", "agent", daemons("2", heldDaemons, completeDaemons))
		}, "complete daemonsets/agent"},
		{"Complete, and the pods have the size and the label", func(l *trail) {
			l.daemonSets()
			for name, node := range map[string]string{"agent-a": "node-a", "agent-b": "node-b"} {
				l.write(ours, "patch", "pods/resize", name, daemon(name, node, "2", "1"))
				l.write(ours, "patch", "pods", name, daemon(name, node, "2", "2"))
			}
			l.write(ours, "patch", "daemonsets/status", "agent", daemons("2", heldDaemons, completeDaemons))
		}, ""},
		{"Complete, and pods have the sizes of their nodes' classes", func(l *trail) {
			classes(l, "4", "2")
		}, ""},
		{"Complete, and a pod has the size of no class", func(l *trail) {
			classes(l, "4", "3")
		}, "complete daemonsets/agent"},
		{"Complete again, and a pod has yet to go back from its class's size", func(l *trail) {
			classes(l, "4", "2")
			l.again(largeDaemons)
		}, ""},
		{"Complete again, and a pod has another size, and never had a class's", func(l *trail) {
			l.daemonSets()
			for name, node := range map[string]string{"agent-a": "node-a", "agent-b": "node-b"} {
				l.write(ours, "patch", "pods/resize", name, daemon(name, node, "2", "1"))
				l.write(ours, "patch", "pods", name, daemon(name, node, "2", "2"))
			}
			l.write(ours, "patch", "daemonsets/status", "agent", daemons("2", heldDaemons, completeDaemons, revertingDaemons))
			l.write(ours, "patch", "pods/resize", "agent-a", daemon("agent-a", "node-a", "4", "2"))
			l.again()
		}, "complete daemonsets/agent"},
		{"Complete after an edit back, and a pod has yet to go back from its class's size", func(l *trail) {
			classes(l, "4", "2")
			l.editedBack()
		}, ""},
		{"Complete after an edit back, and a pod has the size of that edit", func(l *trail) {
			classes(l, "4", "2")
			l.editedBack("agent-a")
		}, "complete daemonsets/agent"},
		{"a pod gets the size of a class that has just gone", func(l *trail) {
			l.classGoes()
			l.atOnce(1)
		}, ""},
		{"a pod gets the size of a class that has gone long ago", func(l *trail) { l.classGoes() }, "revert pods/agent-a"},
		{"Complete, and a pod that is behind was on a node that is gone", func(l *trail) {
			l.daemonSets()
			l.write(ours, "patch", "pods/resize", "agent-a", daemon("agent-a", "node-a", "2", "1"))
			l.write(ours, "patch", "pods", "agent-a", daemon("agent-a", "node-a", "2", "2"))
			l.write(user, "delete", "nodes", "node-b", nil)
			l.write(ours, "patch", "daemonsets/status", "agent", daemons("2", heldDaemons, completeDaemons))
		}, ""},
		{"we switch the strategy that its user wants", func(l *trail) {
			l.daemonSets()
			l.letGoDaemons(onDelete)
		}, "fence daemonsets/agent"},
		{"what is not opted in is written", func(l *trail) {
			l.daemonSets(func(d *appsv1.DaemonSet) { d.Labels = nil })
			l.write(ours, "patch", "pods", "agent-a", daemon("agent-a", "node-a", "1", "2"))
		}, "opted in pods/agent-a"},
	})
}

// classes logs that it is Complete with pods of these sizes. The template says 2, and a class 4.
func classes(l *trail, a, b string) {
	l.t.Helper()
	l.daemonSets(largeDaemons)
	for name, p := range map[string]*corev1.Pod{"agent-a": daemon("agent-a", "node-a", a, "2"), "agent-b": daemon("agent-b", "node-b", b, "2")} {
		l.write(ours, "patch", "pods/resize", name, p)
		l.write(ours, "patch", "pods", name, p)
	}
	l.write(ours, "patch", "daemonsets/status", "agent", daemons("2", largeDaemons, heldDaemons, completeDaemons))
}

// classGoes logs that the user takes the classes away, and that a pod of the template's size gets one of theirs.
func (l *trail) classGoes() {
	l.daemonSets(largeDaemons)
	l.write(ours, "patch", "pods/resize", "agent-a", daemon("agent-a", "node-a", "2", "1"))
	l.write(user, "patch", "daemonsets", "agent", daemons("2", heldDaemons))
	l.write(ours, "patch", "pods/resize", "agent-a", daemon("agent-a", "node-a", "4", "2"))
}

// again logs that the condition is False, the user has changed the annotations of the DaemonSet, and the
// condition is True again.
func (l *trail) again(before ...func(*appsv1.DaemonSet)) {
	l.write(ours, "patch", "daemonsets/status", "agent", daemons("2", before...))
	l.write(user, "patch", "daemonsets", "agent", daemons("2"))
	l.atOnce(1)
	l.write(ours, "patch", "daemonsets/status", "agent", daemons("2", completeDaemons))
}

// editedBack logs that a DaemonSet with classes is edited, that a pod gets that size, and that it is edited back to no classes and
// Complete again.
func (l *trail) editedBack(resized ...string) {
	l.write(user, "patch", "daemonsets", "agent", daemons("3", largeDaemons, heldDaemons))
	for _, name := range resized {
		l.write(ours, "patch", "pods/resize", name, daemon(name, "node-a", "3", "2"))
	}
	l.write(user, "patch", "daemonsets", "agent", daemons("2", heldDaemons))
	l.write(ours, "patch", "daemonsets/status", "agent", daemons("2", heldDaemons, completeDaemons))
}

// atOnce has the last n events be a second after the one before them.
func (l *trail) atOnce(n int) {
	late := len(l.events) - n
	for i := range l.events[late:] {
		l.events[late+i].StageTimestamp.Time = l.events[late-1].StageTimestamp.Add(time.Second)
	}
}
