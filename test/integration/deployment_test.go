//go:build integration

package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestDeployment(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 6})
	before, first := d.uids(), d.active().Name
	d.waitComplete()
	d.markAudit()

	d.setResources("cpu=150m,memory=150Mi", "cpu=300m,memory=300Mi")
	status := d.rolloutStatus()
	d.waitComplete()
	status.wait(t)

	d.assertMoved(before, "150m")
	d.assertReplicaSets(2)
	must.Equal(t, d.active().Name, first, "the ReplicaSet that has the pods")
	if created, deleted := d.podsWritten("create"), d.podsWritten("delete"); len(created)+len(deleted) > 0 {
		t.Errorf("created %v and deleted %v, want no pod touched", created, deleted)
	}
	if got := d.history(); len(got) != 2 {
		t.Errorf("the history lists %v, want two revisions", got)
	}
	d.assertProgressing()
	d.assertFew(d.writes(), 1, 9)
	d.waitEvent("RolloutStarted", "app: cpu request 100m→150m, app: cpu limit 200m→300m, app: memory request 100Mi→150Mi, app: memory limit 200Mi→300Mi")
	d.waitEvent("RolloutComplete", "all pods")

	d.kubectl("scale", d.ref, "--replicas=8")
	d.waitRolledOut()
	d.assertMoved(before, "150m")
	if resizes := only(d.writes(), "patch pods/resize"); len(resizes) != 6 {
		t.Errorf("resized %v, want the two new pods born at the new size", resizes)
	}
}

// TestDeploymentBackAndForth edits A→B→A→B→C and goes back through the history;
// an older ReplicaSet that equals the new template must not become the new one.
func TestDeploymentBackAndForth(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2})
	before, first := d.uids(), d.active().Name
	d.markAudit()
	moved := func(cpu string) {
		t.Helper()
		d.assertMoved(before, cpu)
		d.assertReplicaSets(3)
		if active := d.active().Name; active != first {
			t.Errorf("at %s ReplicaSet %s has the pods, want %s: %s", cpu, active, first, summary(d.replicaSets()))
		}
	}
	const a, b, c = "100m", "150m", "180m"
	for _, cpu := range []string{b, a, b, c} {
		d.edit(cpu)
		moved(cpu)
	}
	if got := d.history(); len(got) != 3 {
		t.Errorf("the history lists %v, want three revisions: %s", got, summary(d.replicaSets()))
	}
	d.kubectl("rollout", "undo", d.ref)
	d.waitComplete()
	moved(b)
	d.undoTo(a)
	moved(a)
	if created, deleted := d.podsWritten("create"), d.podsWritten("delete"); len(created)+len(deleted) > 0 {
		t.Errorf("created %v and deleted %v, want no pod touched", created, deleted)
	}
	d.assertProgressing()
}

// TestDeploymentStrategies resizes under strategies that a Deployment can have. It alone proves that the real
// Deployment controller replaces nothing under them; the pure tests know only what it is said to do.
func TestDeploymentStrategies(t *testing.T) {
	parallel(t)
	for name, spec := range map[string]string{"Recreate": "strategy: {type: Recreate}", "maxUnavailable 0": surge} {
		inParallel(t, name, func(t *testing.T) {
			d := newDeployment(t, options{Spec: spec})
			before := d.uids()
			log := d.logPods()
			for _, cpu := range []string{"150m", "100m"} {
				d.edit(cpu)
				d.assertMoved(before, cpu)
			}
			log.assertReady(3)
			log.assertMost(3)
		})
	}
}

// surge is maxUnavailable 0: a replacement comes first. Without surge, there is room for a pod less.
const (
	surge   = "strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"
	noSurge = "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"
)

// TestTableOfDeployments is TestTable with one of two pods of a Deployment, which has no OnDelete. Nobody knows which of
// them a quota would refuse.
func TestTableOfDeployments(t *testing.T) {
	parallel(t)
	for _, c := range liveCells() {
		if c.strategy != "RollingUpdate" || c.outcome == "quota" {
			continue
		}
		inParallel(t, c.name(), func(t *testing.T) {
			d := newDeployment(t, options{Replicas: 2, Spec: noSurge})
			names := d.names()
			runCell(c, d.sandbox, names[0], names[1], func() {
				d.assertSettled(cpuOf(d.get().Spec.Template.Spec.Containers[0].Resources))
			})
		})
	}
}

// TestDeploymentRespectsBudgets: a PodDisruptionBudget that allows nothing holds the eviction up, and nothing else. So do two that
// select the pod, of which the API server speaks in another way. When it is relaxed, the rollout goes on.
func TestDeploymentRespectsBudgets(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4})
	before := d.uids()
	stuck := d.names()[0]
	d.annotatePod(stuck, simInfeasible)
	d.budget("minAvailable: 4", 0)
	d.setResources("cpu=150m", "")
	d.waitCondition("DisruptionBudget", stuck)
	d.waitEvent("DisruptionBudget", stuck)
	for name := range before {
		if name != stuck {
			d.waitSize(name, "150m")
		}
	}
	if !held(d.get()) {
		t.Error("the rollout is not held")
	}
	d.apply(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: other}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}`)
	d.budget("minAvailable: 3", 1)
	d.waitCondition("DisruptionBudget", "more than one PodDisruptionBudget")
	d.assertReplaced(before)
	d.kubectl("delete", "poddisruptionbudget", "other")
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, stuck)
}

// TestDeploymentReplacementComesFirst: with maxUnavailable 0 there are never fewer
// Ready pods than replicas, nor more pods than maxSurge allows; a budget that allows
// no disruption, which then says the same, is no obstacle.
func TestDeploymentReplacementComesFirst(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4, Spec: surge})
	before, first, stuck := d.uids(), d.active().Name, d.names()[2:]
	for _, name := range stuck {
		d.annotatePod(name, simInfeasible)
	}
	d.budget("maxUnavailable: 0", 0)
	log := d.logPods()
	d.edit("150m")
	d.assertSettled("150m")
	d.assertReplaced(before, stuck...)
	log.assertReady(4)
	log.assertMost(5)
	log.assertOwned()
	must.Equal(t, d.active().Name, first, "the ReplicaSet that has the pods")
}

// newGated makes two pods with maxUnavailable 0. Those that come later are not Ready
// before somebody has opened their gate.
func newGated(t *testing.T) *deployment {
	t.Helper()
	d := createDeployment(t, options{Replicas: 2, Spec: surge, Pod: "readinessGates: [{conditionType: example.com/open}]"})
	for _, name := range d.waitImage("app:1", 2) {
		d.openGate(name)
	}
	d.waitRolledOut()
	return d
}

// newcomer waits for a pod that is not one of before, and returns its name.
func (d *deployment) newcomer(before map[string]types.UID) string {
	d.t.Helper()
	var newcomer string
	eventually(d.t, "a new pod", func() (bool, string) {
		for name, pod := range d.pods() {
			if _, old := before[name]; !old && pod.Status.Phase == corev1.PodRunning {
				newcomer = name
			}
		}
		return newcomer != "", summary(d.replicaSets())
	})
	return newcomer
}

// TestDeploymentDeletedDuringAReplacement: a replacement that has no owner yet would stay for ever.
func TestDeploymentDeletedDuringAReplacement(t *testing.T) {
	parallel(t)
	d := newGated(t)
	before := d.uids()
	d.annotatePod(d.names()[0], simInfeasible)
	d.setResources("cpu=150m", "")
	d.newcomer(before)
	d.kubectl("delete", d.ref, "--timeout="+patience.String())
	eventually(t, "everything to be gone", func() (bool, string) {
		return len(d.replicaSets()) == 0 && len(d.pods()) == 0, summary(d.replicaSets())
	})
}

// TestDeploymentOrphansDetached: the Deployment is deleted without its pods while one of them waits for
// another in its place. It goes back to its ReplicaSet, which then has the pods that it is to have. What owns it besides stays.
func TestDeploymentOrphansDetached(t *testing.T) {
	parallel(t)
	d := newGated(t)
	before := d.uids()
	stuck, set := d.names()[0], d.active()
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ServiceAccount", Name: "default"}
	other.UID = must.Get(client.CoreV1().ServiceAccounts(d.namespace).Get(t.Context(), other.Name, metav1.GetOptions{}))(t).UID
	d.kubectl("patch", "pod", stuck, "--type=json", "-p", fmt.Sprintf(`[{"op":"add","path":"/metadata/ownerReferences/0",`+
		`"value":{"apiVersion":"v1","kind":"ServiceAccount","name":"default","uid":"%s"}}]`, other.UID))
	d.annotatePod(stuck, simInfeasible)
	d.setResources("cpu=150m", "")
	d.newcomer(before)
	d.kubectl("delete", d.ref, "--cascade=orphan")
	eventually(t, "every pod to belong to the ReplicaSet", func() (bool, string) {
		pods := d.pods()
		for _, pod := range pods {
			if !metav1.IsControlledBy(&pod, &set) || pod.Name == stuck && !slices.Contains(pod.OwnerReferences, other) || pod.Labels[api.DetachedLabel] != "" || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "" {
				return false, fmt.Sprintf("%s has the owners %v and the labels %v", pod.Name, pod.OwnerReferences, pod.Labels)
			}
		}
		return len(pods) == 2, fmt.Sprintf("%d pods", len(pods))
	})
	d.assertReplaced(before) // the one that was not Ready has gone again
}

// TestDeploymentRecreate: where a pod can only be restarted, all old pods are gone before the first
// new one is made, however long they take. They take until the test lets them go.
func TestDeploymentRecreate(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2, Spec: "strategy: {type: Recreate}"})
	d.waitComplete()
	before := d.uids()
	finalizers := func(are string) {
		for name := range before {
			d.patchPod(name, `{"metadata": {"finalizers": `+are+`}}`)
		}
	}
	finalizers(`["test.inplace-rollout.io/stays"]`)
	log := d.logPods()
	d.markAudit()
	d.annotatePod(d.names()[1], simInfeasible)
	d.setResources("cpu=150m", "")
	eventually(t, "every old pod to be on its way", func() (bool, string) {
		for _, pod := range d.pods() {
			if pod.DeletionTimestamp == nil {
				return false, pod.Name
			}
		}
		return true, ""
	})
	time.Sleep(2 * time.Second) // nothing is to come
	finalizers("null")
	d.waitComplete()
	d.assertSettled("150m")
	d.assertAllReplaced(before)
	log.assertApart(before)
	must.EqualLists(t, only(d.writes(), "create pods/eviction"), nil, "evictions")
}

// assertApart checks that at no time a pod of before was there beside another one, terminating or not.
func (l *podLog) assertApart(before map[string]types.UID) {
	l.t.Helper()
	old, together := slices.Collect(maps.Values(before)), false
	l.replay(func(pods map[types.UID]corev1.Pod) {
		count := build.Count(slices.Collect(maps.Keys(pods)), func(uid types.UID) bool { return slices.Contains(old, uid) })
		together = together || count > 0 && count < len(pods)
	})
	if together {
		l.t.Error("old and new pods were there at the same time")
	}
}
