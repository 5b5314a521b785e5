//go:build integration

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// A running pod is not given up for one for which there is no room beside other pods.
func TestNoRoomBesideOthers(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2, Pod: crowd(t, "crowded"), Meta: "annotations: {" + setTimeout + ": 1s}"})
	before := w.uids()
	w.annotatePod("web-1", simDeferred)
	w.crowd("crowded")
	w.setResources("cpu=300m", "cpu=400m")
	w.waitCondition("NoNodeFits", "1 of 2 pods resized; web-1: not restarted, because the only node that is large enough has no room beside its pods: deferred on node crowded")
	w.waitEvent("NoNodeFits", "web-1")
	w.assertReplaced(before)
	w.kubectl("delete", "pod", "crowd", "--now")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
}

// crowd makes one node of 1 cpu, for pods that it returns the spec of.
func crowd(t *testing.T, name string) (pod string) {
	t.Helper()
	addToPool(t, name, name, "1")
	return fmt.Sprintf("{nodeSelector: {pool: %s}, tolerations: [{key: pool, operator: Exists}]}", name)
}

// crowd takes 700m of the node's cpu.
func (s *sandbox[W]) crowd(node string) {
	s.t.Helper()
	s.apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: crowd, namespace: %s}, spec: {nodeName: %s,
		containers: [{name: app, image: none, resources: {requests: {cpu: 700m}}}]}}`, s.namespace, node))
}

// newVolume makes a volume that is to be had only in one zone, for a claim.
func newVolume(t *testing.T, namespace, claim, zone string) {
	t.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/nowhere"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: claim},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}},
			}}},
		},
	}
	if _, err := client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting the volume: %v", err)
		}
	})
}

// A policy has pods restarted, for more cpu. There is room for all three when they are edited, but
// somebody else takes it while the first one comes up: so the second is kept, and so is the third.
// It alone proves that room is looked for anew before each restart, with a real scheduler that has taken it.
func TestRoomForOneRestartOfThree(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{
		Pod: crowd(t, "narrow"), Meta: "annotations: {" + setPolicy + ": cpu=RestartOnly}", Spec: "minReadySeconds: 15", Resources: cpu("50m"),
	})
	before := w.uids()
	w.setResources("cpu=200m", "cpu=200m")
	w.waitPod("web-2", "to be another one", func(pod corev1.Pod) bool { return pod.UID != before["web-2"] && pod.Spec.NodeName != "" })
	w.crowd("narrow") // takes the 700m that are left
	w.waitCondition("NoNodeFits", "1 of 3 pods resized; web-1: not restarted, because the only node that is large enough has no room beside its pods")
	w.assertReplaced(before, "web-2")
	for name, pod := range w.pods() {
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s is %s", name, pod.Status.Phase)
		}
	}
}

// A pod that is down waits for nobody, and gets its size by a restart. Room is looked for before those
// above it are restarted all the same: it may have gone meanwhile.
func TestRoomThatGoesWhileAPodIsDown(t *testing.T) {
	parallel(t)
	managements := []string{"OrderedReady", "Parallel"}
	if !cp.AtLeast("1.37") { // there the StatefulSet controller restarts the highest pod of a Parallel set first, whatever is down
		managements = managements[:1]
	}
	for _, management := range managements {
		t.Run(management, func(t *testing.T) {
			parallel(t)
			node := "leaving-" + strings.ToLower(management)
			w := newWorkload(t, options{
				Pod: crowd(t, node), Meta: "annotations: {" + setPolicy + ": cpu=RestartOnly}",
				Spec: "{minReadySeconds: 10, podManagementPolicy: " + management + "}",
			})
			before := w.uids()
			w.annotatePod("web-0", simNotReady)
			w.waitFor("a pod to be down", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 2 })
			w.setResources("cpu=200m", "cpu=200m")
			w.waitPod("web-0", "to be restarted", func(pod corev1.Pod) bool { return pod.UID != before["web-0"] && pod.Spec.NodeName != "" })
			w.crowd(node)
			w.waitCondition("NoNodeFits", "1 of 3 pods resized; web-2: not restarted, because the only node that is large enough has no room beside its pods")
			w.assertReplaced(before, "web-0")
			if moved := w.audited(func(e *auditv1.Event) bool {
				return e.ObjectRef.Resource == "statefulsets" && e.RequestObject != nil && strings.Contains(string(e.RequestObject.Raw), api.PartitionAnnotation)
			}); len(moved) > 0 {
				t.Errorf("the partition was moved %d times for web-0: others may follow before anybody looks for room", len(moved))
			}
		})
	}
}
