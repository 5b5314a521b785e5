//go:build integration || around

package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

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
	var lines []string
	for _, rs := range sets {
		lines = append(lines, fmt.Sprintf("%d: %s has %d of %s", revision(rs), rs.Name, *rs.Spec.Replicas, cpuOf(rs.Spec.Template.Spec.Containers[0].Resources)))
	}
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
	if want := cpuOf(got.Spec.Template.Spec.Containers[0].Resources); want != cpu {
		d.t.Errorf("the template has cpu request %s, want %s", want, cpu)
	}
	if !apiequality.Semantic.DeepEqual(templateOf(active), got.Spec.Template) {
		d.t.Errorf("ReplicaSet %s does not have the Deployment's template: %s", active.Name, summary(d.replicaSets()))
	}
	pods := d.pods()
	if len(pods) != int(*got.Spec.Replicas) {
		d.t.Errorf("%d pods, want %d", len(pods), *got.Spec.Replicas)
	}
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
