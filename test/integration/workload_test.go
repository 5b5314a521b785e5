//go:build integration || around

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// workload is a StatefulSet in a sandbox.
type workload struct{ *sandbox[*appsv1.StatefulSet] }

// newWorkload creates the StatefulSet, waits until it is available, and lets go of it,
// whether a controller runs or not. The audit log begins then.
func newWorkload(t *testing.T, o options) *workload {
	t.Helper()
	w := createWorkload(t, o)
	w.waitAvailable()
	w.letGo()
	w.waitAvailable()
	w.markAudit()
	return w
}

func (w *workload) waitAvailable() {
	w.t.Helper()
	w.waitFor("all pods to be available", func(set *appsv1.StatefulSet) bool {
		return observed(set) && set.Status.AvailableReplicas == *set.Spec.Replicas &&
			set.Status.CurrentRevision == set.Status.UpdateRevision
	})
}

// waitPolicies waits until the mutating policies are in force in this namespace, or are
// not: what kubectl has written applies up to a second later. The one that is asked is
// the last that kubectl writes.
func (w *workload) waitPolicies(inForce bool) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the policies to be in force: %t", inForce), func() (bool, string) {
		conditions := w.kubectl("patch", w.ref, "--subresource=status", "--dry-run=server", "--type=merge",
			`--patch={"status": {"updateRevision": "another", "conditions": null}}`, "--output=jsonpath={.status.conditions}")
		return (conditions != "") == inForce, conditions
	})
}

func createWorkload(t *testing.T, o options) *workload {
	t.Helper()
	o.Kind = "StatefulSet"
	return &workload{newSandbox(t, o, func(namespace string) getter[*appsv1.StatefulSet] {
		return client.AppsV1().StatefulSets(namespace)
	})}
}

// assertMoved checks that everything at or above index from is where the
// template says: size in spec and status, revision, no restart; that the built-in
// controller agrees; and that no hold is left behind.
func (w *workload) assertMoved(from int) {
	w.t.Helper()
	set, pods := w.get(), w.pods()
	status := set.Status
	must.Equal(w.t, len(pods), int(*set.Spec.Replicas), "pods")
	if status.ObservedGeneration != set.Generation || int(status.UpdatedReplicas) != len(pods)-from || int(status.ReadyReplicas) != len(pods) {
		w.t.Errorf("the StatefulSet controller sees %+v of generation %d", status, set.Generation)
	}
	// Before 1.37, that controller lets the current revision be under OnDelete.
	promotes := set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType || cp.AtLeast("1.37")
	if from == 0 && promotes && status.CurrentRevision != status.UpdateRevision {
		w.t.Errorf("current revision %s, update revision %s: not complete", status.CurrentRevision, status.UpdateRevision)
	}
	if hold, held := set.Annotations[api.HoldAnnotation]; held {
		w.t.Errorf("still held: %q", hold)
	}
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && int(*r.Partition) != from {
		w.t.Errorf("partition %d, want the user's %d", *r.Partition, from)
	}
	start := 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	for i := from; i < len(pods); i++ {
		pod, exists := pods[fmt.Sprintf("web-%d", start+i)]
		if !exists {
			w.t.Errorf("web-%d does not exist", start+i)
			continue
		}
		w.assertPod(set, pod)
	}
}

func (w *workload) assertPod(set *appsv1.StatefulSet, pod corev1.Pod) {
	w.t.Helper()
	must.Equal(w.t, pod.Labels[appsv1.ControllerRevisionHashLabelKey], set.Status.UpdateRevision, "the revision of %s", pod.Name)
	w.assertNotRestarted(pod)
	w.assertSize(pod, &set.Spec.Template)
}

// assertReplaced checks that exactly these pods are not the ones that they were.
func (w *workload) assertReplaced(before map[string]types.UID, want ...string) {
	w.t.Helper()
	after := w.uids()
	replaced := slices.DeleteFunc(slices.Sorted(maps.Keys(before)), func(name string) bool {
		uid, exists := after[name]
		return !exists || uid == before[name]
	})
	must.EqualLists(w.t, replaced, want, "replaced pods")
}

// revisionAnnotation is where the Deployment controller numbers ReplicaSets.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// deployment is a Deployment in a sandbox.
type deployment struct{ *sandbox[*appsv1.Deployment] }

// newDeployment creates the Deployment and waits until it is available.
func newDeployment(t *testing.T, o options) *deployment {
	t.Helper()
	d := createDeployment(t, o)
	d.waitRolledOut()
	return d
}

func createDeployment(t *testing.T, o options) *deployment {
	t.Helper()
	o.Kind = "Deployment"
	return &deployment{newSandbox(t, o, func(namespace string) getter[*appsv1.Deployment] {
		return client.AppsV1().Deployments(namespace)
	})}
}

// rolledOut reports whether the Deployment controller has nothing left to do.
func rolledOut(d *appsv1.Deployment) bool {
	s, want := d.Status, *d.Spec.Replicas
	return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}

func (d *deployment) waitRolledOut() {
	d.t.Helper()
	d.waitFor("all pods to be of the newest ReplicaSet and available", rolledOut)
}

// waitObserved waits until the Deployment controller has seen the newest generation.
func (d *deployment) waitObserved() {
	d.t.Helper()
	d.waitFor("the Deployment controller to observe the newest generation", observed)
}

// waitComplete waits for our condition, and checks that it was true whenever it said so.
func (d *deployment) waitComplete() {
	d.t.Helper()
	d.sandbox.waitComplete()
	for _, v := range d.versions() {
		o := v.workload
		if status, _, _ := complete(o); status == corev1.ConditionTrue && o.Status.ObservedGeneration == o.Generation && o.Status.UpdatedReplicas < o.Status.Replicas {
			d.t.Errorf("at %s it is said to be complete with %d of %d pods updated", v.written, o.Status.UpdatedReplicas, o.Status.Replicas)
		}
	}
}

// edit changes the cpu request, and waits until the rollout is complete.
func (d *deployment) edit(cpu string) {
	d.t.Helper()
	d.setResources("cpu="+cpu, "")
	d.waitComplete()
}

// replicaSets in the order of their revisions.
func (d *deployment) replicaSets() []appsv1.ReplicaSet {
	d.t.Helper()
	list := must.Get(client.AppsV1().ReplicaSets(d.namespace).List(d.t.Context(), metav1.ListOptions{LabelSelector: "app=web"}))(d.t)
	slices.SortFunc(list.Items, func(a, b appsv1.ReplicaSet) int { return revision(a) - revision(b) })
	return list.Items
}

// revision of a ReplicaSet, 0 if it has none.
func revision(rs appsv1.ReplicaSet) int {
	n, _ := strconv.Atoi(rs.Annotations[revisionAnnotation])
	return n
}

// active is the only ReplicaSet that has replicas.
func (d *deployment) active() appsv1.ReplicaSet {
	d.t.Helper()
	sets := d.replicaSets()
	active := slices.DeleteFunc(slices.Clone(sets), func(rs appsv1.ReplicaSet) bool { return *rs.Spec.Replicas == 0 })
	if len(active) != 1 {
		d.t.Fatalf("%d of the ReplicaSets have replicas, want one: %s", len(active), summary(sets))
	}
	return active[0]
}

// summary of ReplicaSets: revision, name, replicas and cpu request of each.
func summary(sets []appsv1.ReplicaSet) string {
	lines := build.Each(sets, func(rs appsv1.ReplicaSet) string {
		return fmt.Sprintf("%d: %s has %d of %s", revision(rs), rs.Name, *rs.Spec.Replicas, cpuOf(rs.Spec.Template.Spec.Containers[0].Resources))
	})
	return strings.Join(lines, "; ")
}

// templateOf is a ReplicaSet's template as the Deployment has it.
func templateOf(rs appsv1.ReplicaSet) corev1.PodTemplateSpec {
	template := rs.Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return *template
}

// assertReplicaSets checks that there are at most so many ReplicaSets, all of them
// the Deployment's, and no two with the same template.
func (d *deployment) assertReplicaSets(most int) {
	d.t.Helper()
	owner, sets := d.get(), d.replicaSets()
	if len(sets) > most {
		d.t.Errorf("%d ReplicaSets, want at most %d: %s", len(sets), most, summary(sets))
	}
	for i, rs := range sets {
		if ref := metav1.GetControllerOf(&rs); ref == nil || ref.UID != owner.UID || ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion {
			d.t.Errorf("ReplicaSet %s has owner references %+v", rs.Name, rs.OwnerReferences)
		}
		for _, other := range sets[:i] {
			if apiequality.Semantic.DeepEqual(templateOf(rs), templateOf(other)) {
				d.t.Errorf("ReplicaSets %s and %s have the same template", rs.Name, other.Name)
			}
		}
	}
}

// assertMoved checks that the pods are those of before, and that all of them have the new size.
func (d *deployment) assertMoved(before map[string]types.UID, cpu string) {
	d.t.Helper()
	d.assertReplaced(before)
	d.assertSettled(cpu)
	for _, pod := range d.pods() {
		d.assertNotRestarted(pod)
	}
}

// assertSettled checks that everything is where the template says, with this cpu
// request: every pod in spec and status, the one ReplicaSet that owns them all, and
// the Deployment controller's view; and that no hold is left behind.
func (d *deployment) assertSettled(cpu string) {
	d.t.Helper()
	d.waitRolledOut()
	got, active := d.get(), d.active()
	if held(got) || got.Spec.Paused {
		d.t.Errorf("still held: paused %t, annotations %v", got.Spec.Paused, got.Annotations)
	}
	must.Equal(d.t, cpuOf(got.Spec.Template.Spec.Containers[0].Resources), cpu, "cpu request of the template")
	if !apiequality.Semantic.DeepEqual(templateOf(active), got.Spec.Template) {
		d.t.Errorf("ReplicaSet %s does not have the Deployment's template: %s", active.Name, summary(d.replicaSets()))
	}
	pods := d.pods()
	must.Equal(d.t, len(pods), int(*got.Spec.Replicas), "pods")
	for _, pod := range pods {
		d.assertPod(got, active, pod, cpu)
	}
}

func (d *deployment) assertPod(o *appsv1.Deployment, active appsv1.ReplicaSet, pod corev1.Pod, cpu string) {
	d.t.Helper()
	if owner := metav1.GetControllerOf(&pod); owner == nil || owner.UID != active.UID {
		d.t.Errorf("%s has owner references %+v, want ReplicaSet %s", pod.Name, pod.OwnerReferences, active.Name)
	}
	if got, want := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey], active.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey]; got != want {
		d.t.Errorf("%s has the hash %s, want its ReplicaSet's %s", pod.Name, got, want)
	}
	if !hasSize(pod, cpu) {
		d.t.Errorf("%s has %+v and runs with %+v, want cpu request %s", pod.Name, pod.Spec.Containers[0].Resources, pod.Status.ContainerStatuses, cpu)
	}
	d.assertSize(pod, &o.Spec.Template)
}

// assertProgressing checks that the Deployment was never said to be stuck.
func (d *deployment) assertProgressing() {
	d.t.Helper()
	for _, v := range d.versions() {
		for _, c := range v.workload.Status.Conditions {
			if c.Type == appsv1.DeploymentProgressing && c.Status != corev1.ConditionTrue && c.Reason != "DeploymentPaused" && c.Reason != "DeploymentResumed" {
				d.t.Errorf("at %s the Deployment is said not to progress: %s", v.written, c.Reason)
			}
		}
	}
}

// budget makes a PodDisruptionBudget with this rule, and waits until it allows so many disruptions.
func (d *deployment) budget(rule string, allowed int32) {
	d.t.Helper()
	d.apply(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, ` + rule + `}}`)
	eventually(d.t, "the budget to be counted", func() (bool, string) {
		pdb := must.Get(client.PolicyV1().PodDisruptionBudgets(d.namespace).Get(d.t.Context(), "web", metav1.GetOptions{}))(d.t)
		s := pdb.Status
		return s.ObservedGeneration == pdb.Generation && s.DisruptionsAllowed == allowed && s.CurrentHealthy == *d.get().Spec.Replicas, fmt.Sprintf("%+v", s)
	})
}

func (d *deployment) openGate(name string) {
	d.t.Helper()
	d.patchPod(name, `{"status":{"conditions":[{"type":"example.com/open","status":"True"}]}}`, "status")
}

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
		must.Do(t, client.CoreV1().Nodes().DeleteCollection(context.Background(), metav1.DeleteOptions{}, of))
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

// allOn are the pods on the i-th node.
func (d *daemonSet) allOn(i int) []corev1.Pod {
	d.t.Helper()
	return slices.DeleteFunc(slices.Collect(maps.Values(d.pods())), func(pod corev1.Pod) bool { return pod.Spec.NodeName != d.node(i) })
}

// on is the pod on the i-th node.
func (d *daemonSet) on(i int) corev1.Pod {
	d.t.Helper()
	found := d.allOn(i)
	if len(found) != 1 {
		d.t.Fatalf("%d pods on node %s, want one", len(found), d.node(i))
	}
	return found[0]
}

// waitOn waits until there is one pod on the i-th node, and it is as described.
func (d *daemonSet) waitOn(i int, what string, done func(corev1.Pod) bool) (now corev1.Pod) {
	d.t.Helper()
	eventually(d.t, fmt.Sprintf("the pod on node %d %s", i, what), func() (bool, string) {
		found := d.allOn(i)
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
	must.Equal(d.t, cpuOf(got.Spec.Template.Spec.Containers[0].Resources), cpu, "cpu request of the template")
	must.Equal(d.t, len(pods), int(got.Status.DesiredNumberScheduled), "pods")
	newest := revisions[len(revisions)-1].Labels[appsv1.ControllerRevisionHashLabelKey]
	for _, pod := range pods {
		if !metav1.IsControlledBy(&pod, got) {
			d.t.Errorf("%s has owner references %+v", pod.Name, pod.OwnerReferences)
		}
		must.Equal(d.t, pod.Labels[appsv1.ControllerRevisionHashLabelKey], newest, "the revision of %s", pod.Name)
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
	must.Equal(d.t, d.get().Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType, "the user's strategy")
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
