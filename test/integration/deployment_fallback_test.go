//go:build integration

package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestDeploymentInfeasiblePodIsReplacedAlone: only the pod whose node says no is
// replaced, by eviction.
func TestDeploymentInfeasiblePodIsReplacedAlone(t *testing.T) {
	parallel(t)
	for name, spec := range map[string]string{
		"RollingUpdate": "",
		"maxSurge 0":    "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}",
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{Replicas: 4, Spec: spec})
			before, first := d.uids(), d.active().Name
			stuck := d.names()[1]
			d.annotatePod(stuck, simInfeasible)
			d.markAudit()
			d.edit("150m")
			d.assertSettled("150m")
			d.assertReplaced(before, stuck)
			d.assertReplicaSets(2)
			if active := d.active().Name; active != first {
				t.Errorf("ReplicaSet %s has the pods, want %s as before", active, first)
			}
			if got := only(d.writes(), "create pods/eviction"); !slices.Equal(got, []string{stuck}) {
				t.Errorf("evicted %v, want %s alone", got, stuck)
			}
			d.waitEvent("RestartFallback", stuck)
			d.assertProgressing()
		})
	}
}

// TestDeploymentRespectsBudgets: a PodDisruptionBudget that allows nothing holds
// the eviction up, and nothing else; when it is relaxed, the rollout goes on.
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
	d.assertReplaced(before)
	if !held(d.get()) {
		t.Error("the rollout is not held")
	}
	d.budget("minAvailable: 3", 1)
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, stuck)
}

// TestDeploymentBudgetsKeepNothingBroken: where too few pods are Ready for any eviction, those that are
// not are deleted, as many at once as may be unavailable: they have nothing to lose.
func TestDeploymentBudgetsKeepNothingBroken(t *testing.T) {
	parallel(t)
	d := createDeployment(t, options{Pod: "readinessGates: [{conditionType: example.com/open}]", Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"})
	d.waitImage("app:1", 3)
	d.apply(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, minAvailable: 2}}`)
	before := d.uids()
	for name := range before {
		d.annotatePod(name, simInfeasible)
	}
	log := d.logPods()
	d.markAudit()
	d.setResources("cpu=150m", "")
	opened := map[string]types.UID{}
	for range before {
		name := d.newcomer(merged(before, opened))
		time.Sleep(time.Second) // nothing is to happen before it is Ready
		if left := len(d.uids()); left != 3 {
			t.Errorf("%d pods, want 3", left)
		}
		if got := d.podsWritten("delete"); len(got) != len(opened)+1 {
			t.Errorf("deleted %v, and only %d of those that have come are Ready", got, len(opened))
		}
		opened[name] = ""
		d.openGate(name)
	}
	d.waitComplete()
	d.assertSettled("150m")
	d.assertAllReplaced(before)
	log.assertMost(3)
	d.waitEvent("RestartFallback", "deleted, because it is not Ready: infeasible on node")
}

func merged(a, b map[string]types.UID) map[string]types.UID {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// surge is maxUnavailable 0: a replacement comes first.
const surge = "strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"

// TestDeploymentReplacementComesFirst: with maxUnavailable 0 there are never fewer
// Ready pods than replicas, nor more pods than maxSurge allows; a budget that allows
// no disruption, which then says the same, is no obstacle.
func TestDeploymentReplacementComesFirst(t *testing.T) {
	parallel(t)
	for name, prepare := range map[string]func(*deployment){
		"no budget":               func(*deployment) {},
		"budget":                  func(d *deployment) { d.budget("maxUnavailable: 0", 0) },
		"the new pod takes time":  func(d *deployment) { d.patch(`{"spec":{"minReadySeconds":2}}`) },
		"two have to be replaced": func(d *deployment) { d.annotatePod(d.names()[3], simInfeasible) },
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{Replicas: 4, Spec: surge})
			before, first := d.uids(), d.active().Name
			want := []string{d.names()[2]}
			d.annotatePod(want[0], simInfeasible)
			prepare(d)
			if strings.HasPrefix(name, "two") {
				want = append(want, d.names()[3])
			}
			log := d.logPods()
			d.edit("150m")
			d.assertSettled("150m")
			d.assertReplaced(before, want...)
			log.assertReady(4)
			log.assertMost(5)
			log.assertOwned()
			if active := d.active().Name; active != first {
				t.Errorf("ReplicaSet %s has the pods, want %s as before", active, first)
			}
		})
	}
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

// TestDeploymentReplacementThatIsNotReady: the old pod is kept as long as its
// replacement is not Ready.
func TestDeploymentReplacementThatIsNotReady(t *testing.T) {
	parallel(t)
	d := newGated(t)
	before := d.uids()
	stuck := d.names()[0]
	d.annotatePod(stuck, simInfeasible)
	log := d.logPods()
	d.setResources("cpu=150m", "")
	newcomer := d.newcomer(before)
	time.Sleep(2 * time.Second) // nothing is to happen, and nothing tells of it
	d.assertReplaced(before)
	d.openGate(newcomer)
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, stuck)
	log.assertReady(2)
}

// TestDeploymentEditDuringAReplacement: the edit comes while the replacement is not
// Ready, and makes it unnecessary. No pod is left over, and none is missed.
func TestDeploymentEditDuringAReplacement(t *testing.T) {
	parallel(t)
	d := newGated(t)
	before := d.uids()
	d.annotatePod(d.names()[0], simInfeasible)
	log := d.logPods()
	d.setResources("cpu=150m", "")
	d.newcomer(before)
	d.setResources("cpu=100m", "") // back
	d.waitComplete()
	d.assertSettled("100m")
	d.assertMoved(before, "100m")
	log.assertReady(2)
	log.assertMost(3)
}

// TestDeploymentOrphansDetached: the Deployment is deleted without its pods while one of them waits for
// another in its place. It goes back to its ReplicaSet, which then has the pods that it is to have.
func TestDeploymentOrphansDetached(t *testing.T) {
	parallel(t)
	d := newGated(t)
	before := d.uids()
	stuck, set := d.names()[0], d.active()
	d.annotatePod(stuck, simInfeasible)
	d.setResources("cpu=150m", "")
	d.newcomer(before)
	d.kubectl("delete", d.ref, "--cascade=orphan")
	eventually(t, "every pod to belong to the ReplicaSet", func() (bool, string) {
		pods := d.pods()
		for _, pod := range pods {
			if !metav1.IsControlledBy(&pod, &set) || pod.Labels[api.DetachedLabel] != "" || pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "" {
				return false, fmt.Sprintf("%s has the owners %v and the labels %v", pod.Name, pod.OwnerReferences, pod.Labels)
			}
		}
		return len(pods) == 2, fmt.Sprintf("%d pods", len(pods))
	})
	d.assertReplaced(before) // the one that was not Ready has gone again
}

// TestDeploymentLiveResizeReplacesNothing: and going back mends all.
func TestDeploymentLiveResizeReplacesNothing(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4, Meta: "annotations: {" + setAction + ": LiveResize}"})
	before := d.uids()
	stuck := d.names()[1]
	d.annotatePod(stuck, simInfeasible)
	d.setResources("cpu=150m", "")
	d.waitCondition("Infeasible", "3 of 4 pods resized; "+stuck)
	d.waitCondition("Infeasible", "left as it is")
	d.assertReplaced(before)
	d.edit("100m")
	d.assertMoved(before, "100m")
}

func TestDeploymentDeferred(t *testing.T) {
	parallel(t)
	const deferred = "sim.inplace-rollout.io/resize=deferred"
	t.Run("until there is room", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{})
		before := d.uids()
		stuck := d.names()[0]
		d.annotatePod(stuck, deferred)
		d.setResources("cpu=150m", "")
		d.waitCondition("Deferred", stuck+": deferred on node")
		d.assertReplaced(before)
		d.annotatePod(stuck, simAccepted)
		d.waitComplete()
		d.assertMoved(before, "150m")
	})
	t.Run("past its deadline", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Meta: "annotations: {" + setTimeout + ": 2s}"})
		before := d.uids()
		stuck := d.names()[0]
		d.annotatePod(stuck, deferred)
		d.edit("150m")
		d.assertSettled("150m")
		d.assertReplaced(before, stuck)
	})
	t.Run("past its deadline with LiveResize", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Meta: "annotations: {" + setTimeout + ": 2s, " + setAction + ": LiveResize}"})
		before := d.uids()
		stuck := d.names()[0]
		d.annotatePod(stuck, deferred)
		d.setResources("cpu=150m", "")
		d.waitCondition("Deferred", "left as it is")
		d.assertReplaced(before)
		d.annotatePod(stuck, simAccepted)
		d.waitComplete()
		d.assertMoved(before, "150m")
	})
}

// TestDeploymentResizeError: the kubelet does not get it done, and only a new pod helps.
func TestDeploymentResizeError(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{})
	before := d.uids()
	stuck := d.names()[2]
	d.annotatePod(stuck, "sim.inplace-rollout.io/resize=error")
	d.edit("150m")
	d.assertSettled("150m")
	d.assertReplaced(before, stuck)
}

// TestDeploymentQuota: a refusal that may pass is told, and asked again until it has.
func TestDeploymentQuota(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{})
	before := d.uids()
	d.setQuota("350m")
	d.waitQuota("300m")
	d.setResources("cpu=150m", "")
	d.waitCondition("QuotaExceeded", "exceeded quota")
	d.assertReplaced(before)
	d.setQuota("10")
	d.waitComplete()
	d.assertMoved(before, "150m")
}

// TestDeploymentUsersPolicy: no pod is evicted whose size the user's own policy refuses.
func TestDeploymentUsersPolicy(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{NS: map[string]string{"capped": "cap-deployments"}})
	before := d.uids()
	d.capped("cap-deployments", d.names()[0])
	d.setResources("cpu=150m", "")
	d.waitCondition("AdmissionDenied", "denied request: no more than 140m of cpu")
	d.assertReplaced(before)
	d.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "cap-deployments")
	d.waitComplete()
	d.assertMoved(before, "150m")
}

// TestDeploymentNoNodeFits: a running pod is not given up for one that no node can
// hold, until there is such a node.
func TestDeploymentNoNodeFits(t *testing.T) {
	parallel(t)
	for name, spec := range map[string]string{
		"room for a pod less": "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}",
		"a new pod first":     surge,
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			nodes := strings.ReplaceAll(name, " ", "-")
			d := newDeployment(t, options{Replicas: 2, Spec: spec, Pod: pool(t, nodes, "2", "2")})
			before := d.uids()
			d.markAudit()
			d.tooSmall(d.names()...)
			d.setResources("cpu=3", "cpu=3500m")
			d.waitCondition("NoNodeFits", "none of the 2 nodes that the pod may run on can hold cpu 3 (at most 2)")
			d.waitEvent("NoNodeFits", d.names()[0])
			d.assertReplaced(before)
			if created := d.podsWritten("create"); len(created) > 0 {
				t.Errorf("created %v, which no node can hold", created)
			}
			addToPool(t, nodes, nodes+"-new-1", "4")
			addToPool(t, nodes, nodes+"-new-2", "4")
			d.waitComplete()
			d.assertSettled("3")
			d.assertAllReplaced(before)
		})
	}
}

// TestDeploymentNoRoomBesideOthers: nor for one for which there is no room beside
// other pods.
func TestDeploymentNoRoomBesideOthers(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{
		Replicas: 2, Pod: crowd(t, "crowded-too"), Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}",
		Meta: "annotations: {" + setTimeout + ": 1s}",
	})
	before, stuck := d.uids(), d.names()[0]
	d.annotatePod(stuck, "sim.inplace-rollout.io/resize=deferred")
	d.crowd("crowded-too")
	d.setResources("cpu=300m", "cpu=400m")
	d.waitCondition("NoNodeFits", stuck+": not restarted, because the only node that is large enough has no room beside its pods: deferred on node crowded-too")
	d.waitEvent("NoNodeFits", stuck)
	d.assertReplaced(before)
	d.kubectl("delete", "pod", "crowd", "--now")
	d.waitComplete()
	d.assertSettled("300m")
	d.assertReplaced(before, stuck)
}

// TestDeploymentTooSmallNode: the API server refuses the new size for the pod on the
// small node (403 NodeCapacity), or the kubelet does; only that pod is replaced, and lands elsewhere.
func TestDeploymentTooSmallNode(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Pod: pool(t, "too-small", "2", "4", "4"), Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"})
	addToPool(t, "too-small", "too-small-new", "4")
	before := d.uids()
	small := ""
	for name, pod := range d.pods() {
		if pod.Spec.NodeName == "too-small-0" {
			small = name
		}
	}
	d.tooSmall(small)
	d.setResources("cpu=3", "cpu=3500m")
	d.waitComplete()
	d.assertSettled("3")
	d.assertReplaced(before, small)
}
