//go:build integration || around

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// daemonSet is a DaemonSet in a sandbox, with nodes of its own, to which no other pods come.
type daemonSet struct{ *sandbox[*appsv1.DaemonSet] }

// newDaemonSet creates the DaemonSet and its nodes, waits until it is available on all of them,
// and lets go of it, whether a controller runs or not. The audit log begins then.
func newDaemonSet(t *testing.T, o options) *daemonSet {
	t.Helper()
	d := createDaemonSet(t, o)
	d.waitAvailable(o.replicas())
	d.letGo()
	d.waitAvailable(o.replicas())
	d.markAudit()
	return d
}

func createDaemonSet(t *testing.T, o options) *daemonSet {
	t.Helper()
	o.Kind = "DaemonSet"
	create := o.By
	if create == nil {
		create = func(namespace, manifest string) { apply(t, namespace, manifest) }
	}
	o.By = func(namespace, manifest string) {
		addNodes(t, namespace, o)
		create(namespace, manifest)
	}
	return &daemonSet{newSandbox(t, o, func(namespace string) getter[*appsv1.DaemonSet] {
		return client.AppsV1().DaemonSets(namespace)
	})}
}

// addNodes makes the nodes of a DaemonSet, which go after the test.
func addNodes(t *testing.T, namespace string, o options) {
	t.Helper()
	t.Cleanup(func() {
		of := metav1.ListOptions{LabelSelector: "pool=" + namespace}
		if err := client.CoreV1().Nodes().DeleteCollection(context.Background(), metav1.DeleteOptions{}, of); err != nil {
			t.Errorf("deleting the nodes: %v", err)
		}
	})
	var nodes errgroup.Group
	nodes.SetLimit(10)
	for i := range o.replicas() {
		node := controlplane.Node{}
		if o.Node != nil {
			node = o.Node(i + 1)
		}
		nodes.Go(func() error { return addNode(t.Context(), namespace, i+1, node) })
	}
	must.Do(t, nodes.Wait())
}

// addNode makes the i-th node of a DaemonSet.
func addNode(ctx context.Context, namespace string, i int, node controlplane.Node) error {
	if node.CPU == "" {
		node.CPU, node.Memory = "8", "16Gi"
	}
	labels := map[string]string{"pool": namespace}
	maps.Copy(labels, node.Labels)
	node.Labels = labels
	node.Taints = append([]corev1.Taint{{Key: "pool", Value: namespace, Effect: corev1.TaintEffectNoSchedule}}, node.Taints...)
	return cp.AddNode(ctx, nodeName(namespace, i), node)
}

// nodeName has the namespace in it, so that promises are checked with what happens to nodes.
func nodeName(namespace string, i int) string { return fmt.Sprintf("%s-%d", namespace, i) }

// node is the name of the i-th node, from 1.
func (d *daemonSet) node(i int) string { return nodeName(d.namespace, i) }

// addNode adds the i-th node.
func (d *daemonSet) addNode(i int, node controlplane.Node) {
	d.t.Helper()
	must.Do(d.t, addNode(d.t.Context(), d.namespace, i, node))
}

// notReady has the i-th node and its pod not be Ready, with a silent kubelet.
func (d *daemonSet) notReady(i int) {
	d.t.Helper()
	d.annotatePod(d.on(i).Name, simLasting)
	d.annotatePod(d.on(i).Name, "sim.inplace-rollout.io/ready=false")
	d.kubectl("annotate", "node", d.node(i), "sim.inplace-rollout.io/ready=false")
	d.kubectl("wait", "--for=condition=Ready=False", "node/"+d.node(i), "--timeout="+patience.String())
}

// readyAgain is the end of that.
func (d *daemonSet) readyAgain(i int) {
	d.t.Helper()
	d.kubectl("annotate", "node", d.node(i), "sim.inplace-rollout.io/ready-")
	d.annotatePod(d.on(i).Name, simAccepted)
	d.annotatePod(d.on(i).Name, "sim.inplace-rollout.io/ready-")
}

// on is the pod on the i-th node.
func (d *daemonSet) on(i int) corev1.Pod {
	d.t.Helper()
	var found []corev1.Pod
	for _, pod := range d.pods() {
		if pod.Spec.NodeName == d.node(i) {
			found = append(found, pod)
		}
	}
	if len(found) != 1 {
		d.t.Fatalf("%d pods on node %s, want one", len(found), d.node(i))
	}
	return found[0]
}

// waitOn waits until there is one pod on the i-th node, and it is as described.
func (d *daemonSet) waitOn(i int, what string, done func(corev1.Pod) bool) (now corev1.Pod) {
	d.t.Helper()
	eventually(d.t, fmt.Sprintf("the pod on node %d %s", i, what), func() (bool, string) {
		var found []corev1.Pod
		for _, pod := range d.pods() {
			if pod.Spec.NodeName == d.node(i) {
				found = append(found, pod)
			}
		}
		if len(found) != 1 {
			return false, fmt.Sprintf("%d pods", len(found))
		}
		now = found[0]
		return done(now), fmt.Sprintf("%s has the conditions %v", now.Name, now.Status.Conditions)
	})
	return now
}

// rolledOutDaemons reports whether the DaemonSet controller has nothing left to do.
func rolledOutDaemons(d *appsv1.DaemonSet) bool {
	return d.Status.ObservedGeneration == d.Generation && availableDaemons(d)
}

// availableDaemons reports whether all pods are updated and available, held or not.
func availableDaemons(d *appsv1.DaemonSet) bool {
	s, want := d.Status, d.Status.DesiredNumberScheduled
	return observed(d) && s.UpdatedNumberScheduled == want && s.CurrentNumberScheduled == want &&
		s.NumberAvailable == want && s.NumberMisscheduled == 0
}

func (d *daemonSet) waitRolledOut() {
	d.t.Helper()
	d.waitFor("all pods to be updated and available", rolledOutDaemons)
}

// waitAvailable waits until there are available pods on so many nodes.
func (d *daemonSet) waitAvailable(nodes int) {
	d.t.Helper()
	d.waitFor(fmt.Sprintf("available pods on %d nodes", nodes), func(o *appsv1.DaemonSet) bool {
		return availableDaemons(o) && int(o.Status.DesiredNumberScheduled) == nodes
	})
}

// waitComplete waits for our condition, and checks that it was true whenever we said so.
func (d *daemonSet) waitComplete() {
	d.t.Helper()
	d.sandbox.waitComplete()
	for _, v := range d.versions() {
		s := v.workload.Status
		if status, _, _ := complete(v.workload); v.user == controller.User && status == corev1.ConditionTrue && s.UpdatedNumberScheduled < s.DesiredNumberScheduled {
			d.t.Errorf("at %s it is said to be complete with %d of %d pods updated", v.written, s.UpdatedNumberScheduled, s.DesiredNumberScheduled)
		}
	}
}

// edit changes the cpu request, and waits until the rollout is complete.
func (d *daemonSet) edit(cpu string) {
	d.t.Helper()
	d.setResources("cpu="+cpu, "")
	d.waitComplete()
}

// revisions are the ControllerRevisions, the newest last.
func (d *daemonSet) revisions() []appsv1.ControllerRevision {
	d.t.Helper()
	list := must.Get(client.AppsV1().ControllerRevisions(d.namespace).List(d.t.Context(), metav1.ListOptions{LabelSelector: "app=web"}))(d.t)
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return list.Items
}

// assertSettled checks that everything is where the template says, with this cpu request: every
// pod in spec and status and revision, and the DaemonSet controller's view; and that no hold is
// left behind.
func (d *daemonSet) assertSettled(cpu string) {
	d.t.Helper()
	d.waitRolledOut()
	got, revisions, pods := d.get(), d.revisions(), d.pods()
	if held(got) {
		d.t.Errorf("still held: %s", describe(got))
	}
	if want := cpuOf(got.Spec.Template.Spec.Containers[0].Resources); want != cpu {
		d.t.Errorf("the template has cpu request %s, want %s", want, cpu)
	}
	if len(pods) != int(got.Status.DesiredNumberScheduled) {
		d.t.Errorf("%d pods, want %d", len(pods), got.Status.DesiredNumberScheduled)
	}
	newest := revisions[len(revisions)-1].Labels[appsv1.ControllerRevisionHashLabelKey]
	for _, pod := range pods {
		if !metav1.IsControlledBy(&pod, got) {
			d.t.Errorf("%s has owner references %+v", pod.Name, pod.OwnerReferences)
		}
		if hash := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; hash != newest {
			d.t.Errorf("%s is of revision %s, want %s", pod.Name, hash, newest)
		}
		if !hasSize(pod, cpu) {
			d.t.Errorf("%s has %+v and runs with %+v, want cpu request %s", pod.Name, pod.Spec.Containers[0].Resources, pod.Status.ContainerStatuses, cpu)
		}
		d.assertSize(pod, &got.Spec.Template)
	}
}

// assertMoved checks that the pods are those of before, that all of them have the new size, and
// that the DaemonSet controller rolls out again.
func (d *daemonSet) assertMoved(before map[string]types.UID, cpu string) {
	d.t.Helper()
	d.assertReplaced(before)
	d.assertSettled(cpu)
	if got := d.get().Spec.UpdateStrategy.Type; got != appsv1.RollingUpdateDaemonSetStrategyType {
		d.t.Errorf("the strategy is %s, want the user's RollingUpdate", got)
	}
	for _, pod := range d.pods() {
		d.assertNotRestarted(pod)
	}
}

// waitSays waits until the condition says Complete with this message.
func (s *sandbox[W]) waitSays(message string) {
	s.t.Helper()
	s.waitFor("the condition Complete with "+message, func(workload W) bool {
		status, _, got := complete(workload)
		return status == corev1.ConditionTrue && got == message
	})
}
