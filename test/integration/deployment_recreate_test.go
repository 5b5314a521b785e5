//go:build integration

package integration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
	if got := only(d.writes(), "create pods/eviction"); len(got) > 0 {
		t.Errorf("evicted %v", got)
	}
}

// assertApart checks that at no time a pod of before was there beside another one, terminating or not.
func (l *podLog) assertApart(before map[string]types.UID) {
	l.t.Helper()
	old := map[types.UID]bool{}
	for _, uid := range before {
		old[uid] = true
	}
	together := false
	l.replay(func(pods map[types.UID]corev1.Pod) {
		count := 0
		for uid := range pods {
			if old[uid] {
				count++
			}
		}
		together = together || count > 0 && count < len(pods)
	})
	if together {
		l.t.Error("old and new pods were there at the same time")
	}
}
