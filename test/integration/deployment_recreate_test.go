//go:build integration

package integration

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestDeploymentRecreate: where a pod can only be restarted, all old pods are gone before the first
// new one is made, however long they take. They take until the test lets them go.
func TestDeploymentRecreate(t *testing.T) {
	parallel(t)
	const limited = "{requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 200m}}"
	for name, edit := range map[string]func(d *deployment) (cpu string){
		"infeasible": func(d *deployment) string {
			d.annotatePod(d.names()[1], simInfeasible)
			d.setResources("cpu=150m", "")
			return "150m"
		},
		"after an edit back": func(d *deployment) string {
			for _, name := range d.names() {
				d.annotatePod(name, simDeferred)
			}
			d.setResources("cpu=100m", "memory=200Mi")
			asked := ""
			eventually(d.t, "a pod to be asked", func() (bool, string) {
				for name, pod := range d.pods() {
					if !pod.Spec.Containers[0].Resources.Limits.Memory().IsZero() {
						asked = name
					}
				}
				return asked != "", d.kubectl("get", "pods")
			})
			d.annotatePod(asked, simAccepted)
			d.waitPod(asked, "to have the limit", func(pod corev1.Pod) bool {
				return !pod.Status.ContainerStatuses[0].Resources.Limits.Memory().IsZero()
			})
			d.kubectl("patch", d.ref, "--type=json", "--patch", `[{"op":"remove","path":"/spec/template/spec/containers/0/resources/limits/memory"}]`)
			return "100m"
		},
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{Replicas: 2, Resources: limited, Spec: "strategy: {type: Recreate}"})
			d.waitComplete()
			before := d.uids()
			for name := range before {
				d.patchPod(name, `{"metadata": {"finalizers": ["test.inplace-rollout.io/stays"]}}`)
			}
			log := d.logPods()
			d.markAudit()
			cpu := edit(d)
			eventually(t, "every old pod to be on its way", func() (bool, string) {
				going := 0
				for _, pod := range d.pods() {
					if pod.DeletionTimestamp != nil {
						going++
					}
				}
				return going == len(before), d.kubectl("get", "pods")
			})
			time.Sleep(2 * time.Second) // nothing is to come
			for name := range before {
				d.patchPod(name, `{"metadata": {"finalizers": null}}`)
			}
			d.waitComplete()
			d.assertSettled(cpu)
			d.assertAllReplaced(before)
			log.assertApart(before)
			if got := only(d.writes(), "create pods/eviction"); len(got) > 0 {
				t.Errorf("evicted %v", got)
			}
		})
	}
}

// TestDeploymentRecreateInFlight: an edit of the size while the old pods of an image rollout go brings none
// of the old image back.
func TestDeploymentRecreateInFlight(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2, Spec: "strategy: {type: Recreate}"})
	d.waitComplete()
	before := d.uids()
	for name := range before {
		d.patchPod(name, `{"metadata": {"finalizers": ["test.inplace-rollout.io/stays"]}}`)
	}
	log := d.logPods()
	d.kubectl("set", "image", d.ref, "app=app:2")
	d.waitFor("the Deployment controller to take the pods down", func(o *appsv1.Deployment) bool {
		return !held(o) && observed(o) && o.Status.Replicas == 0
	})
	d.setResources("cpu=150m", "")
	time.Sleep(2 * time.Second) // nothing is to come
	for name := range before {
		d.patchPod(name, `{"metadata": {"finalizers": null}}`)
	}
	d.waitComplete()
	d.assertSettled("150m")
	d.assertAllReplaced(before)
	log.assertApart(before)
}

// TestDeploymentRecreateAtRelease: an edit of the size in the very moment in which the hold of an image rollout is
// let go brings none of the old image back. No status says yet that the old pods go.
func TestDeploymentRecreateAtRelease(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2, Spec: "strategy: {type: Recreate}"})
	d.waitComplete()
	before := d.uids()
	for name := range before {
		d.patchPod(name, `{"metadata": {"finalizers": ["test.inplace-rollout.io/stays"]}}`)
	}
	log := d.logPods()
	events, err := client.AppsV1().Deployments(d.namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: d.get().ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	d.kubectl("set", "image", d.ref, "app=app:2")
	wasHeld := false
	for e := range events.ResultChan() {
		o, is := e.Object.(*appsv1.Deployment)
		if !is {
			t.Fatalf("the watch ended with %+v", e.Object)
		}
		if wasHeld && !held(o) {
			break
		}
		wasHeld = held(o)
	}
	edit := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}}}`)
	if _, err := client.AppsV1().Deployments(d.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, edit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err) // kubectl would take too long to start
	}
	time.Sleep(2 * time.Second) // nothing is to come
	for name := range before {
		d.patchPod(name, `{"metadata": {"finalizers": null}}`)
	}
	d.waitComplete()
	d.assertSettled("150m")
	d.assertAllReplaced(before)
	log.assertApart(before)
}

// TestDeploymentRecreateDuringAHold: a rollout tool sets the strategy Recreate, and paused, while an edit is held. A pod that can only be
// restarted is, and no more are down by that than the edit allowed.
func TestDeploymentRecreateDuringAHold(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4, Spec: "strategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}"})
	d.waitComplete()
	names, log := d.names(), d.logPods()
	for _, name := range names[1:] {
		d.annotatePod(name, simDeferred)
	}
	d.annotatePod(names[0], simInfeasible)
	d.setResources("cpu=150m", "")
	d.kubectl("patch", d.ref, "--patch", `{"spec": {"paused": true, "strategy": {"type": "Recreate", "rollingUpdate": null}}}`)
	if o := d.get(); !held(o) || o.Annotations[api.InForceStrategyAnnotation] != "0;1" {
		t.Fatalf("held: %t, %v", held(o), o.Annotations)
	}
	d.kubectl("annotate", d.ref, api.InForceStrategyAnnotation+"-")
	if o := d.get(); o.Annotations[api.InForceStrategyAnnotation] != "0;1" {
		t.Errorf("what is in force is lost: %v", o.Annotations)
	}
	for _, name := range names[1:] {
		d.annotatePod(name, simAccepted)
	}
	d.waitComplete()
	d.assertSettled("150m")
	log.assertReady(3)
	if o := d.get(); held(o) || o.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || o.Annotations[api.InForceStrategyAnnotation] != "" {
		t.Errorf("held: %t, %+v, %v", held(o), o.Spec.Strategy, o.Annotations)
	}
	after := d.uids()
	for _, name := range names[1:] {
		if after[name] == "" {
			t.Errorf("%s was replaced", name)
		}
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
