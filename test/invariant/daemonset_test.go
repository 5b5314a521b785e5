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

	"github.com/inplace-rollout/inplace-rollout/test/must"
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
func daemonRevision(cpu string, change ...func(*appsv1.DaemonSet)) step {
	return func(l *trail) {
		l.t.Helper()
		raw := must.Get(json.Marshal(map[string]any{"spec": map[string]any{"template": daemons(cpu, change...).Spec.Template}}))(l.t)
		created(daemonSets, &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Name: "agent-" + cpu, UID: types.UID("revision-" + cpu), Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: cpu},
				OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", UID: "daemons", Controller: ptr.To(true)}},
			},
			Data: runtime.RawExtension{Raw: raw},
		})(l)
	}
}

// podA and podB are those of the two nodes, of a size and a hash.
func podA(cpu, hash string, change ...func(*corev1.Pod)) *corev1.Pod {
	return daemon("agent-a", "node-a", cpu, hash, change...)
}

func podB(cpu, hash string, change ...func(*corev1.Pod)) *corev1.Pod {
	return daemon("agent-b", "node-b", cpu, hash, change...)
}

// firstDaemons logs a DaemonSet of 1 cpu with two pods.
func firstDaemons(change ...func(*appsv1.DaemonSet)) step {
	return together(created(user, daemons("1", change...)), daemonRevision("1", change...), created(daemonSets, podA("1", "1")), created(daemonSets, podB("1", "1")))
}

// editedDaemons logs that, and an edit to 2.
func editedDaemons(change ...func(*appsv1.DaemonSet)) step {
	return together(firstDaemons(change...), wrote(user, daemons("2", append(change, heldDaemons)...)), daemonRevision("2"))
}

// daemonsSay logs what we write as the status of the set that is held.
func daemonsSay(change ...func(*appsv1.DaemonSet)) step {
	return wroteStatus(ours, daemons("2", append(change, heldDaemons)...))
}

// restarted logs that somebody has the pod on node-a go, and another comes.
func restarted(by string) step { return together(deleted(by, "agent-a"), daemonComes) }

var daemonComes = created(daemonSets, daemon("agent-c", "node-a", "2", "2", unbound("node-a")))

// changed logs that a node was changed by somebody.
func changed(by, node string) step {
	return func(l *trail) { l.write(by, "patch", "nodes", node, nil) }
}

// sized logs that a pod gets a size and a hash.
func sized(p *corev1.Pod) step { return together(asked(p), wrote(ours, p)) }

// TestCheckDaemonSets is TestCheck for what is different there.
func TestCheckDaemonSets(t *testing.T) {
	onDelete := func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }
	limitless := func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.RollingUpdate = nil }
	elsewhere := func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "another"} }
	optedOut := func(d *appsv1.DaemonSet) { d.Labels = nil }
	goes, letGo := deleted(daemonSets, "agent-a"), func(change ...func(*appsv1.DaemonSet)) step { return wrote(ours, daemons("2", change...)) }
	refuses, bIsDown := refused("agent-a"), wroteStatus("system:node:node-b", podB("1", "1", unready))
	tainted := created(user, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "node-a"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "own", Effect: corev1.TaintEffectNoExecute}}}})
	// readyUnseen logs that one pod is restarted after the other, and then that the one that has come has been
	// Ready since a while after the scheduler has bound it.
	readyUnseen := func(d time.Duration) history {
		return history{editedDaemons(restartDaemons), letGo(restartDaemons), restarted(daemonSets), func(l *trail) {
			since := metav1.NewTime(l.events[len(l.events)-1].StageTimestamp.Add(d))
			deleted(daemonSets, "agent-b")(l)
			wrote(user, daemon("agent-c", "node-a", "2", "2", func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = since }))(l)
		}, after(4 * time.Minute)}
	}
	// foundBeside logs that the DaemonSet controller makes a pod beside one that was changed so until then,
	// and takes it away.
	foundBeside := func(change ...func(*corev1.Pod)) history {
		return history{
			created(user, daemons("1", liveDaemons)), daemonRevision("1"), created(daemonSets, podA("1", "1")), wrote(user, podA("1", "1", change...)),
			created(daemonSets, daemon("agent-c", "node-a", "1", "1")), wrote(daemonSets, podA("1", "1")), deleted(daemonSets, "agent-c"),
		}
	}
	// surge logs a DaemonSet with a surge under way.
	surge := together(
		created(user, daemons("1", surgingDaemons, unfinishedDaemons)), daemonRevision("1"),
		created(daemonSets, podA("1", "0")), created(daemonSets, daemon("agent-c", "node-a", "1", "1")),
	)
	// classes logs that it is Complete with pods of these sizes. The template says 2, and a class 4.
	classes := func(a, b string) step {
		return together(editedDaemons(largeDaemons), sized(podA(a, "2")), sized(podB(b, "2")), daemonsSay(largeDaemons, completeDaemons))
	}
	// again logs that the condition is False, the user has changed the annotations of the DaemonSet, and the
	// condition is True again.
	again := func(before ...func(*appsv1.DaemonSet)) step {
		return together(wroteStatus(ours, daemons("2", before...)), wrote(user, daemons("2")), atOnce(1), wroteStatus(ours, daemons("2", completeDaemons)))
	}
	// editedBack logs that a DaemonSet with classes is edited, that pods are resized, and that it is edited back to no classes and
	// Complete again.
	editedBack := func(resized ...step) step {
		return together(
			wrote(user, daemons("3", largeDaemons, heldDaemons)), together(resized...), wrote(user, daemons("2", heldDaemons)), daemonsSay(completeDaemons),
		)
	}
	// classGoes logs that the user takes the classes away, and that a pod of the template's size gets one of theirs.
	classGoes := together(editedDaemons(largeDaemons), asked(podA("2", "1")), wrote(user, daemons("2", heldDaemons)), asked(podA("4", "2")))
	unlabelled := func(p *corev1.Pod) step { return together(asked(p), reported(p)) }
	bGoes := func(l *trail) { l.write(user, "delete", "nodes", "node-b", nil) }
	// mixed has a class of another memory, too. ofMemory logs that a pod is asked for 2 cpus with so much of it.
	mixed := func(d *appsv1.DaemonSet) {
		memory("100Mi")(d)
		d.Annotations["inplace-rollout.io/node-resources"] = `[{"nodeSelector": {"size": "large"}, "containers": {"app": {"requests": {"cpu": "4", "memory": "200Mi"}}}}]`
	}
	ofMemory := func(request string) history {
		of := func(request string) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(request)
			}
		}
		return history{
			created(user, daemons("1", mixed)), daemonRevision("1", mixed), created(daemonSets, podA("1", "1", of("100Mi"))), created(daemonSets, podB("1", "1", of("100Mi"))),
			wrote(user, daemons("2", mixed, heldDaemons)), daemonRevision("2", mixed), asked(podA("2", "1", of(request))), wrote(ours, podA("2", "2", of(request))),
		}
	}
	checkAll(t, []promised{
		{"the built-in controller restarts a pod that we have not held", history{
			editedDaemons(liveDaemons), letGo(liveDaemons), restarted(daemonSets),
		}, "restart pods/agent-a"},
		{"a pod goes from a node that takes none any more", history{editedDaemons(liveDaemons), goes}, ""},
		{"a pod goes, the node has changed, and another comes", history{editedDaemons(liveDaemons), goes, changed(user, "node-a"), daemonComes}, ""},
		{"a node has changed, its pod goes, and another comes", history{
			editedDaemons(liveDaemons), changed(user, "node-a"), restarted(daemonSets), atOnce(2),
		}, ""},
		{"Kubernetes has changed a node, its pod goes, and another comes", history{
			editedDaemons(liveDaemons), changed("system:serviceaccount:kube-system:node-controller", "node-a"), restarted(daemonSets), atOnce(2),
		}, "restart pods/agent-a"},
		{"a pod goes, another node has changed, and another comes", history{
			editedDaemons(liveDaemons), goes, changed(user, "node-b"), daemonComes,
		}, "restart pods/agent-a"},
		{"a pod goes when its node is another one, and comes", history{
			editedDaemons(liveDaemons), goes, wrote(user, daemons("2", liveDaemons, elsewhere)), daemonComes,
		}, ""},
		{"the built-in controller restarts a pod whose policy says so", history{
			editedDaemons(restartDaemons), letGo(restartDaemons), restarted(daemonSets),
		}, ""},
		{"it restarts one while another is down", history{
			editedDaemons(restartDaemons), bIsDown, letGo(restartDaemons), restarted(daemonSets),
		}, "availability daemonsets/agent"},
		{"one goes from a node that lets it stay no more, while another is down", history{editedDaemons(restartDaemons), bIsDown, tainted, goes}, ""},
		{"one of two pods on a node goes, and we restart the other one", history{
			editedDaemons(restartDaemons), created(daemonSets, daemon("agent-c", "node-a", "1", "1")), deleted(daemonSets, "agent-c"), deleted(ours, "agent-a"),
		}, ""},
		{"a pod keeps of its class what the edit does not change", ofMemory("200Mi"), ""},
		{"and nothing else", ofMemory("300Mi"), "complete pods/agent-a"},
		{"it restarts one while another is down, whose node has left", history{
			editedDaemons(restartDaemons), bIsDown, letGo(restartDaemons), bGoes, restarted(daemonSets),
		}, ""},
		{"it restarts one, and the log lacks by which write the one before has become Ready", readyUnseen(0), ""},
		{"it restarts one, and the one before has become Ready after that, by a write that the log lacks", readyUnseen(2 * time.Minute), "availability daemonsets/agent"},
		{"we restart one that cannot be resized", history{editedDaemons(), refuses, restarted(ours)}, ""},
		{"we restart one that can be resized", history{editedDaemons(), restarted(ours)}, "restart pods/agent-a"},
		{"we restart one that is to be left", history{editedDaemons(liveDaemons), refuses, restarted(ours)}, "restart pods/agent-a"},
		{"we restart one that its user is to delete", history{
			created(user, daemons("1", onDelete)), daemonRevision("1"), created(daemonSets, podA("1", "1")),
			wrote(user, daemons("2", onDelete)), refuses, restarted(ours),
		}, "restart pods/agent-a"},
		{"we restart one while another is down", history{editedDaemons(), bIsDown, refuses, restarted(ours)}, "availability daemonsets/agent"},
		{"we restart one where only a surge may", history{
			editedDaemons(surgingDaemons), refuses, wroteStatus("system:node:node-a", podA("1", "1", unready)), restarted(ours),
		}, "availability pods/agent-a"},
		{"we restart one and do not hold the set", history{editedDaemons(), refuses, letGo(), restarted(ours)}, "fence pods/agent-a"},
		{"we restart one for the size of its node's class", history{
			firstDaemons(restartDaemons), wrote(user, daemons("1", restartDaemons, heldDaemons, largeDaemons)), restarted(ours),
		}, "restart pods/agent-a"},
		{"we restart one for an edit of nothing but the spelling", history{
			firstDaemons(memory("134217728"), restartDaemons), wrote(user, daemons("1", memory("128Mi"), restartDaemons, heldDaemons)), restarted(ours),
		}, ""},
		{"we let go of a hold whose limits the user has taken away", history{
			editedDaemons(liveDaemons), wrote(user, daemons("2", liveDaemons, heldDaemons, limitless)), letGo(liveDaemons),
		}, ""},
		{"we restart one for an edit, and its node is of a class", history{
			editedDaemons(restartDaemons, largeDaemons), changed(user, "node-a"), restarted(ours),
		}, ""},
		{"its node has no room for what comes", history{
			editedDaemons(), refuses, deleted(ours, "agent-a"), unschedulable(daemonSets, daemon("agent-c", "node-a", "2", "2", unbound("node-a"))), atOnce(2),
		}, "room pods/agent-c"},
		{"another node has no room for what comes", history{
			editedDaemons(), refuses, restarted(ours), unschedulable(daemonSets, daemon("agent-d", "node-d", "2", "2", unbound("node-d"))), atOnce(3),
		}, ""},
		{"a set that was made anew adopts a pod beside the one that it has made, which goes", foundBeside(func(p *corev1.Pod) { p.OwnerReferences = nil }), ""},
		{"a set has made two pods for a node, and one goes", foundBeside(), "restart pods/agent-c"},
		{"a surge loses its pod to a hold", history{
			surge, wrote(user, daemons("2", surgingDaemons, unfinishedDaemons, heldDaemons)), deleted(daemonSets, "agent-c"),
		}, "restart pods/agent-c"},
		{"a surge loses its pod to its user", history{surge, wrote(user, daemons("1")), wrote(user, daemons("2", heldDaemons)), deleted(daemonSets, "agent-c")}, ""},
		{"a surge loses its pod to its user, beside one that has just gone", history{
			surge, wrote(user, daemons("1")), deleted(daemonSets, "agent-a"), deleted(daemonSets, "agent-c"), atOnce(1),
			created(daemonSets, daemon("agent-d", "node-a", "1", "1")),
		}, ""},
		{"a surge loses its pod to nobody", history{
			surge, wrote(user, daemons("1")), deleted(daemonSets, "agent-a"), after(time.Minute), deleted(daemonSets, "agent-c"),
			created(daemonSets, daemon("agent-d", "node-a", "1", "1")),
		}, "restart pods/agent-c"},
		{"a surge goes on after an edit", history{
			surge, wrote(user, daemons("2", surgingDaemons, unfinishedDaemons)),
			wroteStatus(daemonSets, daemons("2", surgingDaemons)), deleted(daemonSets, "agent-c"),
		}, ""},
		{"an edit is not held, and there is no surge", history{
			created(user, daemons("1", surgingDaemons)), daemonRevision("1"), created(daemonSets, podA("1", "1")),
			wrote(user, daemons("2", surgingDaemons)), restarted(daemonSets),
		}, "restart pods/agent-a"},
		{"Complete, and a pod has the size and not the label", history{
			editedDaemons(), unlabelled(podA("2", "1")), unlabelled(podB("2", "1")), daemonsSay(completeDaemons),
		}, "complete daemonsets/agent"},
		{"Complete, and the pods have the size and the label", history{
			editedDaemons(), sized(podA("2", "2")), sized(podB("2", "2")), daemonsSay(completeDaemons),
		}, ""},
		{"Complete, and pods have the sizes of their nodes' classes", history{classes("4", "2")}, ""},
		{"Complete, and a pod has the size of no class", history{classes("4", "3")}, "complete daemonsets/agent"},
		{"Complete again, and a pod has yet to go back from its class's size", history{classes("4", "2"), again(largeDaemons)}, ""},
		{"Complete again, and a pod has another size, and never had a class's", history{
			editedDaemons(), sized(podA("2", "2")), sized(podB("2", "2")), daemonsSay(completeDaemons, revertingDaemons), asked(podA("4", "2")), again(),
		}, "complete daemonsets/agent"},
		{"Complete after an edit back, and a pod has yet to go back from its class's size", history{classes("4", "2"), editedBack()}, ""},
		{"Complete after an edit back, and a pod has the size of that edit", history{
			classes("4", "2"), editedBack(asked(podA("3", "2"))),
		}, "complete daemonsets/agent"},
		{"a pod gets the size of a class that has just gone", history{classGoes, atOnce(1)}, ""},
		{"a pod gets the size of a class that has gone long ago", history{classGoes}, "revert pods/agent-a"},
		{"Complete, and a pod that is behind was on a node that is gone", history{
			editedDaemons(), sized(podA("2", "2")), bGoes, daemonsSay(completeDaemons),
		}, ""},
		{"we switch the strategy that its user wants", history{editedDaemons(), letGo(onDelete)}, "fence daemonsets/agent"},
		{"what is not opted in is written", history{editedDaemons(optedOut), wrote(ours, podA("1", "2"))}, "opted in pods/agent-a"},
	})
}
