//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// restartsForMemory has the kubelet restart the container for another memory size.
const restartsForMemory = `containers: [{name: app, image: "app:1", resources: {requests: {cpu: 100m, memory: 100Mi}},
  resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]}]`

// restarts are how often the pods' containers have restarted.
func (s *sandbox[W]) restarts() map[string]int32 {
	s.t.Helper()
	counts := map[string]int32{}
	for name, pod := range s.pods() {
		counts[name] = pod.Status.ContainerStatuses[0].RestartCount
	}
	return counts
}

// TestRestartContainerBesideAPodThatIsDown: with maxUnavailable 1 no container is
// restarted beside a pod that is not Ready, however many edits come.
func TestRestartContainerBesideAPodThatIsDown(t *testing.T) {
	parallel(t)
	for _, down := range []string{"web-0", "web-2"} { // below the others, and above
		t.Run(down, func(t *testing.T) {
			parallel(t)
			w := newWorkload(t, options{Pod: restartsForMemory})
			before := w.uids()
			w.annotatePod(down, simNotReady)
			w.waitNotReady(down)
			for _, memory := range []string{"120Mi", "140Mi", "160Mi"} {
				w.setResources("cpu=100m,memory="+memory, "")
				w.waitPod(down, "to have "+memory, func(pod corev1.Pod) bool {
					return pod.Status.ContainerStatuses[0].Resources.Requests.Memory().String() == memory
				})
			}
			w.waitCondition("NotReadyAfterResize", down+": not Ready since its resize")
			for name, count := range w.restarts() {
				if name != down && count > 0 {
					t.Errorf("%s was restarted while %s was not Ready", name, down)
				}
			}
			w.annotatePod(down, simReady)
			w.waitComplete()
			w.assertReplaced(before)
			for name, count := range w.restarts() {
				if name != down && count != 1 {
					t.Errorf("%s restarted %d times for three edits, of which it saw one", name, count)
				}
			}
		})
	}
}

// TestRestartContainerBelowThePartition: a pod that is down below the user's partition
// takes its share, too.
func TestRestartContainerBelowThePartition(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Pod: restartsForMemory, Spec: "updateStrategy: {rollingUpdate: {partition: 1}}"})
	w.annotatePod("web-0", simNotReady)
	w.waitNotReady("web-0")
	w.setResources("cpu=100m,memory=120Mi", "")
	w.waitCondition("Progressing", "web-0: waiting for the pod to become available")
	time.Sleep(time.Second)
	if got := only(w.writes(), "patch pods/resize"); len(got) > 0 {
		t.Errorf("resized %v while web-0 is not Ready", got)
	}
	w.annotatePod("web-0", simReady)
	w.waitComplete()
}

// TestNodeBehind: the kubelet's clock is behind, so that a pod that the resize has made
// not Ready seems to have been so before.
func TestNodeBehind(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Pod: restartsForMemory})
	w.annotatePod("web-2", simLasting)
	w.setResources("cpu=100m,memory=120Mi", "")
	w.waitPod("web-2", "to be asked", func(pod corev1.Pod) bool { return pod.Generation > 1 })
	w.annotatePod("web-2", simNotReady)
	w.waitNotReady("web-2")
	early := time.Now().Add(-5 * time.Second).UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status": {"conditions": [{"type": "Ready", "lastTransitionTime": %q}]}}`, early)
	if _, err := client.CoreV1().Pods(w.namespace).Patch(t.Context(), "web-2", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	w.annotatePod("web-2", simAccepted)
	w.waitCondition("NotReadyAfterResize", "web-2: not Ready since its resize")
	if pod := w.pods()["web-2"]; readyTime(pod).After(time.Now().Add(-10 * time.Second)) {
		t.Errorf("web-2 says that it is not Ready since %s: the test shows nothing", readyTime(pod))
	}
	if got := only(w.writes(), "patch pods/resize"); !slices.Equal(got, []string{"web-2"}) {
		t.Errorf("resized %v, want web-2 alone", got)
	}
	w.annotatePod("web-2", simReady)
	w.waitComplete()
}

// TestSlowStart: maxSurge is no room for pods that their size makes not Ready. One is
// asked, and two when it is Ready; and the hold stays.
func TestSlowStart(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 6, PodMeta: simUntilResized, Spec: "strategy: {rollingUpdate: {maxSurge: 100%, maxUnavailable: 0}}"})
	before := d.uids()
	asked := func() []string { return only(d.writes(), "patch pods/resize") }
	d.setResources("cpu=150m", "")
	d.waitCondition("NotReadyAfterResize", "not Ready since its resize")
	if got := asked(); len(got) != 1 || !held(d.get()) {
		t.Errorf("asked %v, held %t, want one pod and the hold", got, held(d.get()))
	}
	d.annotatePod(asked()[0], simReady)
	eventually(t, "the next two to be asked", func() (bool, string) { return len(asked()) >= 3, fmt.Sprint(asked()) })
	d.waitCondition("NotReadyAfterResize", "not Ready since its resize")
	if got := asked(); len(got) != 3 || !held(d.get()) {
		t.Errorf("asked %v, held %t, want two more", got, held(d.get()))
	}
	for name := range before {
		d.annotatePod(name, simReady)
	}
	d.waitComplete()
	d.assertMoved(before, "150m")
}

// TestSlowStartOfAStatefulSet: the same with maxUnavailable 3.
func TestSlowStartOfAStatefulSet(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 4, PodMeta: simUntilResized, Spec: "updateStrategy: {rollingUpdate: {maxUnavailable: 3}}"})
	w.setResources("cpu=150m", "")
	w.waitCondition("NotReadyAfterResize", "web-3: not Ready since its resize")
	if got := only(w.writes(), "patch pods/resize"); !slices.Equal(got, []string{"web-3"}) {
		t.Errorf("asked %v before web-3 was Ready", got)
	}
	// A new edit: it may be the cure.
	w.setResources("cpu=100m", "")
	w.annotatePod("web-3", simReady)
	w.waitComplete()
	w.assertMoved(0)
}

// TestRestartContainerWithMaxUnavailable0: the only replica with the default strategy is
// never given up before another one is available.
func TestRestartContainerWithMaxUnavailable0(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 1, PodMeta: simUntilResized, Pod: restartsForMemory})
	before := d.uids()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watch, err := client.AppsV1().Deployments(d.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	least := make(chan int32, 1)
	go func() {
		lowest := int32(1)
		for event := range watch.ResultChan() {
			if o, is := event.Object.(*appsv1.Deployment); is {
				lowest = min(lowest, o.Status.AvailableReplicas)
			}
		}
		least <- lowest
	}()
	d.setResources("cpu=100m,memory=150Mi", "")
	d.waitComplete()
	d.waitEvent("HandedOver", "its resize would restart a container, and maxUnavailable is 0")
	watch.Stop()
	if n := <-least; n < 1 {
		t.Errorf("%d were available", n)
	}
	d.assertAllReplaced(before)
}

// TestNodeLost: a pod whose node is gone is not asked, and is told of; the rest of the
// limit is the others'.
func TestNodeLost(t *testing.T) {
	parallel(t)
	node := controlplane.Node{
		CPU: "8", Memory: "16Gi",
		Taints: []corev1.Taint{{Key: "pool", Value: "lost", Effect: corev1.TaintEffectNoSchedule}}, // no other test's pods are to be lost
	}
	if err := cp.AddNode(t.Context(), "lost", node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().Nodes().Delete(context.Background(), "lost", metav1.DeleteOptions{})
	})
	w := newWorkload(t, options{Replicas: 3, Spec: "updateStrategy: {rollingUpdate: {maxUnavailable: 2}}", Pod: `
tolerations: [{key: pool, value: lost}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [
  {key: kubernetes.io/hostname, operator: In, values: [lost, node-1, node-2]}]}]}}}`})
	lost := ""
	for name, pod := range w.pods() {
		if pod.Spec.NodeName == "lost" {
			lost = name
		}
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), "lost", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.setResources("cpu=150m", "")
	w.waitCondition("NodeLost", lost+": its node lost is gone")
	w.waitFor("the other two to be updated", func(set *appsv1.StatefulSet) bool { return set.Status.UpdatedReplicas == 2 })
	if slices.Contains(only(w.writes(), "patch pods/resize"), lost) {
		t.Errorf("%s was asked, whose node is gone", lost)
	}
	w.waitEvent("NodeLost", lost)
}

// TestNodeLostOfDeletedPod: a pod that is deleted, and whose node is silent, stays until people act: they are told so.
func TestNodeLostOfDeletedPod(t *testing.T) {
	parallel(t)
	const name = "stopped"
	if err := cp.AddNode(t.Context(), name, controlplane.Node{CPU: "8", Memory: "16Gi", Taints: []corev1.Taint{{Key: "pool", Value: name, Effect: corev1.TaintEffectNoSchedule}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	w := newWorkload(t, options{
		Replicas: 1, PodMeta: "annotations: {sim.inplace-rollout.io/termination-time: 1h}",
		Pod: `{terminationGracePeriodSeconds: 3600, nodeSelector: {kubernetes.io/hostname: stopped}, tolerations: [{operator: Exists}]}`,
	})
	w.unchecked = true // the pod goes by force
	w.kubectl("annotate", "node", name, simNotReady)
	w.setResources("cpu=150m", "")
	w.waitCondition("NodeLost", "web-0: its node stopped is not Ready")
	w.kubectl("delete", "pod", "web-0", "--wait=false")
	w.waitCondition("NodeLost", "web-0: its node stopped is not Ready, so it stays until you delete the node, or the pod by force, or taint the node with node.kubernetes.io/out-of-service")
	w.kubectl("annotate", "node", name, simReady)
	w.kubectl("delete", "pod", "web-0", "--force", "--grace-period=0")
	w.waitComplete()
}

// smallQuota has room for two pods of 100m.
const smallQuota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small}\nspec: {hard: {requests.cpu: 250m}}"

// TestSmallerSizeGivesRoom: pods that a quota keeps away do not keep those that there are
// from the smaller size that lets them in.
func TestSmallerSizeGivesRoom(t *testing.T) {
	parallel(t)
	inSmall := func(namespace, manifest string) {
		apply(t, namespace, smallQuota)
		apply(t, namespace, manifest)
	}
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := createWorkload(t, options{By: inSmall})
		w.waitFor("two pods", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 2 })
		before := w.uids()
		w.setResources("cpu=80m", "") // beside two of these there is no room for one of 100m
		w.waitComplete()
		w.assertKept(before, 3)
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := createDeployment(t, options{Replicas: 4, By: inSmall})
		d.waitFor("two pods", func(o *appsv1.Deployment) bool { return o.Status.AvailableReplicas == 2 })
		before := d.uids()
		d.setResources("cpu=110m", "") // gives no room
		d.waitCondition("QuotaExceeded", "waiting for the pod to be created: ")
		d.setResources("cpu=50m", "")
		d.waitComplete()
		d.assertKept(before, 4)
	})
}

// assertKept checks that the pods of before are there still, and how many there are in all.
func (s *sandbox[W]) assertKept(before map[string]types.UID, total int) {
	s.t.Helper()
	now := s.uids()
	for name, uid := range before {
		if now[name] != uid {
			s.t.Errorf("%s was replaced", name)
		}
	}
	if len(now) != total {
		s.t.Errorf("%d pods, want %d", len(now), total)
	}
}
