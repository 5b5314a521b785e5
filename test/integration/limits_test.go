//go:build integration

package integration

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

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
