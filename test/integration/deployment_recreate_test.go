//go:build integration

package integration

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// newRecreate makes two pods that are to be recreated, and that stay on their way until they are let go.
func newRecreate(t *testing.T) (d *deployment, before map[string]types.UID, letGo func()) {
	t.Helper()
	d = newDeployment(t, options{Replicas: 2, Spec: "strategy: {type: Recreate}"})
	d.waitComplete()
	before = d.uids()
	finalizers := func(are string) {
		for name := range before {
			d.patchPod(name, `{"metadata": {"finalizers": `+are+`}}`)
		}
	}
	finalizers(`["test.inplace-rollout.io/stays"]`)
	return d, before, func() {
		time.Sleep(2 * time.Second) // nothing is to come
		finalizers("null")
	}
}

// TestDeploymentRecreate: where a pod can only be restarted, all old pods are gone before the first
// new one is made, however long they take. They take until the test lets them go.
func TestDeploymentRecreate(t *testing.T) {
	parallel(t)
	d, before, letGo := newRecreate(t)
	log := d.logPods()
	d.markAudit()
	d.annotatePod(d.names()[1], simInfeasible)
	d.setResources("cpu=150m", "")
	eventually(t, "every old pod to be on its way", func() (bool, string) {
		going := 0
		for _, pod := range d.pods() {
			if pod.DeletionTimestamp != nil {
				going++
			}
		}
		return going == len(before), d.kubectl("get", "pods")
	})
	letGo()
	d.waitComplete()
	d.assertSettled("150m")
	d.assertAllReplaced(before)
	log.assertApart(before)
	if got := only(d.writes(), "create pods/eviction"); len(got) > 0 {
		t.Errorf("evicted %v", got)
	}
}

// TestDeploymentRecreateInFlight: an edit of the size while the old pods of an image rollout go brings none
// of the old image back.
func TestDeploymentRecreateInFlight(t *testing.T) {
	parallel(t)
	d, before, letGo := newRecreate(t)
	log := d.logPods()
	d.kubectl("set", "image", d.ref, "app=app:2")
	d.waitFor("the Deployment controller to take the pods down", func(o *appsv1.Deployment) bool {
		return !held(o) && observed(o) && o.Status.Replicas == 0
	})
	d.setResources("cpu=150m", "")
	letGo()
	d.waitComplete()
	d.assertSettled("150m")
	d.assertAllReplaced(before)
	log.assertApart(before)
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
