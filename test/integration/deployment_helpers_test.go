//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
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
	d.waitFor("the Deployment controller to observe the newest generation", func(o *appsv1.Deployment) bool {
		return o.Status.ObservedGeneration == o.Generation
	})
}

// waitComplete waits for our condition, and checks that it was true whenever it said so.
func (d *deployment) waitComplete() {
	d.t.Helper()
	d.sandbox.waitComplete()
	for _, v := range d.versions() {
		o := v.deployment
		if status, _, _ := complete(&o); status == corev1.ConditionTrue && o.Status.ObservedGeneration == o.Generation && o.Status.UpdatedReplicas < o.Status.Replicas {
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

// beginAny starts a rollout to cpu and returns when one of the pods has that size
// in its spec: the rollout is under way.
func (d *deployment) beginAny(cpu string) {
	d.t.Helper()
	d.setResources("cpu="+cpu, "")
	eventually(d.t, "a pod to be resized to "+cpu, func() (bool, string) {
		for _, pod := range d.pods() {
			if cpuOf(pod.Spec.Containers[0].Resources) == cpu {
				return true, ""
			}
		}
		return false, summary(d.replicaSets())
	})
}

// replicaSets in the order of their revisions.
func (d *deployment) replicaSets() []appsv1.ReplicaSet {
	d.t.Helper()
	list, err := client.AppsV1().ReplicaSets(d.namespace).List(d.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		d.t.Fatal(err)
	}
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

// history is what `kubectl rollout history` lists.
func (d *deployment) history() []int {
	d.t.Helper()
	var revisions []int
	for line := range strings.Lines(d.kubectl("rollout", "history", d.ref)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			if n, err := strconv.Atoi(fields[0]); err == nil {
				revisions = append(revisions, n)
			}
		}
	}
	return revisions
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
	for name, pod := range d.pods() {
		for _, c := range pod.Status.ContainerStatuses {
			if c.RestartCount != 0 {
				d.t.Errorf("%s: container %s restarted %d times", name, c.Name, c.RestartCount)
			}
		}
	}
}

// assertReplaced checks that exactly these of the pods from before are gone.
func (d *deployment) assertReplaced(before map[string]types.UID, want ...string) {
	d.t.Helper()
	after := d.uids()
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(want)
	if !slices.Equal(gone, want) {
		d.t.Errorf("pods that are gone: %v, want %v", gone, want)
	}
}

// assertAllReplaced checks that none of the pods from before is there any more.
func (d *deployment) assertAllReplaced(before map[string]types.UID) {
	d.t.Helper()
	d.assertReplaced(before, slices.Collect(maps.Keys(before))...)
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
	target, err := resize.For(&pod, &o.Spec.Template, &o.Spec.Template)
	if err != nil {
		d.t.Fatal(err)
	}
	if state, message := target.Observe(); state != resize.Actuated {
		d.t.Errorf("%s: %s %s %s, want the template's size", pod.Name, state, message, resize.Describe(target.Changes))
	}
}

// hasSize reports whether a pod has the cpu request in its spec, and runs with it.
func hasSize(pod corev1.Pod, cpu string) bool {
	if cpuOf(pod.Spec.Containers[0].Resources) != cpu || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	status := pod.Status.ContainerStatuses[0]
	return status.AllocatedResources.Cpu().String() == cpu && status.Resources != nil && cpuOf(*status.Resources) == cpu
}

// waitSize waits until a pod runs with the cpu request.
func (d *deployment) waitSize(name, cpu string) {
	d.t.Helper()
	d.waitPod(name, "to run with "+cpu, func(pod corev1.Pod) bool { return hasSize(pod, cpu) })
}

// rolloutStatus is `kubectl rollout status` in the background.
type rolloutStatus struct {
	done chan struct{}
	out  string
	err  error
}

func (d *deployment) rolloutStatus() *rolloutStatus {
	d.t.Helper()
	s := &rolloutStatus{done: make(chan struct{})}
	ctx := d.t.Context()
	go func() {
		defer close(s.done)
		s.out, s.err = cp.Kubectl(ctx, "-n", d.namespace, "rollout", "status", d.ref, "--timeout="+patience.String())
	}()
	return s
}

// wait for it to return, successfully.
func (s *rolloutStatus) wait(t *testing.T) {
	t.Helper()
	<-s.done
	if s.err != nil || !strings.Contains(s.out, "successfully rolled out") {
		t.Errorf("kubectl rollout status: %v, it said\n%s", s.err, s.out)
	}
}

// podsWritten names the pods that somebody has created, or deleted or evicted, since markAudit.
func (d *deployment) podsWritten(verb string) []string {
	d.t.Helper()
	var names []string
	for _, e := range d.audited(succeeded, func(e *auditv1.Event) bool { return e.ObjectRef.Resource == "pods" }) {
		switch {
		case e.ObjectRef.Subresource == "eviction" && verb == "delete":
			names = append(names, e.ObjectRef.Name)
		case e.ObjectRef.Subresource == "" && e.Verb == verb:
			var pod corev1.Pod
			if err := json.Unmarshal(e.ResponseObject.Raw, &pod); err != nil {
				d.t.Fatalf("parsing %s: %v", e.ResponseObject.Raw, err)
			}
			names = append(names, pod.Name)
		}
	}
	return names
}

func succeeded(e *auditv1.Event) bool { return e.ResponseStatus != nil && e.ResponseStatus.Code < 300 }

// version of the Deployment, as a write of it or of its status was answered, with
// the times when the write arrived and was done.
type version struct {
	user              string
	received, written time.Time
	deployment        appsv1.Deployment
}

func (d *deployment) versions() []version {
	d.t.Helper()
	var versions []version
	for _, e := range d.audited(succeeded, func(e *auditv1.Event) bool {
		return e.ObjectRef.Resource == "deployments" && e.ObjectRef.Subresource != "scale" && e.Verb != "delete"
	}) {
		v := version{user: e.User.Username, received: e.RequestReceivedTimestamp.Time, written: e.StageTimestamp.Time}
		if err := json.Unmarshal(e.ResponseObject.Raw, &v.deployment); err != nil {
			d.t.Fatalf("parsing %s: %v", e.ResponseObject.Raw, err)
		}
		versions = append(versions, v)
	}
	return versions
}

// assertProgressing checks that the Deployment was never said to be stuck.
func (d *deployment) assertProgressing() {
	d.t.Helper()
	for _, v := range d.versions() {
		for _, c := range v.deployment.Status.Conditions {
			if c.Type == appsv1.DeploymentProgressing && c.Status != corev1.ConditionTrue && c.Reason != "DeploymentPaused" && c.Reason != "DeploymentResumed" {
				d.t.Errorf("at %s the Deployment is said not to progress: %s", v.written, c.Reason)
			}
		}
	}
}

// podLog is every change of the pods since it was begun.
type podLog struct {
	d       *deployment
	initial map[types.UID]corev1.Pod
	mu      sync.Mutex
	changes []watch.Event
}

func (d *deployment) logPods() *podLog {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	d.t.Cleanup(cancel)
	pods := client.CoreV1().Pods(d.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	l := &podLog{d: d, initial: map[types.UID]corev1.Pod{}}
	for _, pod := range list.Items {
		l.initial[pod.UID] = pod
	}
	changes, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		d.t.Fatal(err)
	}
	go func() {
		for e := range changes.ResultChan() {
			l.mu.Lock()
			l.changes = append(l.changes, e)
			l.mu.Unlock()
		}
	}()
	return l
}

// replay calls f with all pods as they were after each change; the last of them are those of now.
func (l *podLog) replay(f func(map[types.UID]corev1.Pod)) {
	l.d.t.Helper()
	var changes []watch.Event
	eventually(l.d.t, "the watch to have told everything", func() (bool, string) {
		l.mu.Lock()
		changes = slices.Clone(l.changes)
		l.mu.Unlock()
		seen := maps.Clone(l.initial)
		for _, e := range changes {
			l.step(seen, e)
		}
		now := l.d.pods()
		for _, pod := range seen {
			if now[pod.Name].ResourceVersion != pod.ResourceVersion {
				return false, fmt.Sprintf("%s has changed since", pod.Name)
			}
		}
		return len(now) == len(seen), fmt.Sprintf("%d pods seen, %d exist", len(seen), len(now))
	})
	pods := maps.Clone(l.initial)
	f(pods)
	for _, e := range changes {
		l.step(pods, e)
		f(pods)
	}
}

func (l *podLog) step(pods map[types.UID]corev1.Pod, e watch.Event) {
	l.d.t.Helper()
	pod, ok := e.Object.(*corev1.Pod)
	switch {
	case !ok:
		l.d.t.Fatalf("the watch of the pods ended with %+v", e.Object)
	case e.Type == watch.Deleted:
		delete(pods, pod.UID)
	default:
		pods[pod.UID] = *pod
	}
}

// assertReady checks that there were never fewer Ready pods.
func (l *podLog) assertReady(least int) {
	l.d.t.Helper()
	fewest := least
	l.replay(func(pods map[types.UID]corev1.Pod) {
		ready := 0
		for _, pod := range pods {
			if podutils.IsPodReady(&pod) && pod.DeletionTimestamp == nil {
				ready++
			}
		}
		fewest = min(fewest, ready)
	})
	if fewest < least {
		l.d.t.Errorf("at some time only %d pods were Ready, want never fewer than %d", fewest, least)
	}
}

// assertMost checks that there were never more pods.
func (l *podLog) assertMost(most int) {
	l.d.t.Helper()
	seen := 0
	l.replay(func(pods map[types.UID]corev1.Pod) { seen = max(seen, len(pods)) })
	if seen > most {
		l.d.t.Errorf("at some time there were %d pods, want never more than %d", seen, most)
	}
}

// assertOwned checks that every pod had a controller at any time.
func (l *podLog) assertOwned() {
	l.d.t.Helper()
	orphans := map[string]bool{}
	l.replay(func(pods map[types.UID]corev1.Pod) {
		for _, pod := range pods {
			if metav1.GetControllerOf(&pod) == nil {
				orphans[pod.Name] = true
			}
		}
	})
	if len(orphans) > 0 {
		l.d.t.Errorf("pods without an owner at some time: %v", slices.Sorted(maps.Keys(orphans)))
	}
}

// budget makes a PodDisruptionBudget with this rule, and waits until it allows so many disruptions.
func (d *deployment) budget(rule string, allowed int32) {
	d.t.Helper()
	d.apply(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, ` + rule + `}}`)
	eventually(d.t, "the budget to be counted", func() (bool, string) {
		pdb, err := client.PolicyV1().PodDisruptionBudgets(d.namespace).Get(d.t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			d.t.Fatal(err)
		}
		s := pdb.Status
		return s.ObservedGeneration == pdb.Generation && s.DisruptionsAllowed == allowed && s.CurrentHealthy == *d.get().Spec.Replicas, fmt.Sprintf("%+v", s)
	})
}

// editBoth edits a StatefulSet and a Deployment, and checks that both are rolled out in place, with
// the pods that they had before.
func editBoth(w *workload, d *deployment, ofSet, ofDeployment map[string]types.UID) {
	w.t.Helper()
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	w.waitComplete()
	d.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(ofSet)
	d.assertMoved(ofDeployment, "150m")
}
