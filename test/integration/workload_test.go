//go:build integration || around

package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// workload is a StatefulSet in a sandbox.
type workload struct{ *sandbox[*appsv1.StatefulSet] }

// newWorkload creates the StatefulSet, waits until it is available, and lets go of it,
// whether a controller runs or not. The audit log begins then.
func newWorkload(t *testing.T, o options) *workload {
	t.Helper()
	w := createWorkload(t, o)
	w.waitAvailable()
	w.letGo()
	w.waitAvailable()
	w.markAudit()
	return w
}

func (w *workload) waitAvailable() {
	w.t.Helper()
	w.waitFor("all pods to be available", func(set *appsv1.StatefulSet) bool {
		return observed(set) && set.Status.AvailableReplicas == *set.Spec.Replicas &&
			set.Status.CurrentRevision == set.Status.UpdateRevision
	})
}

// waitPolicies waits until the mutating policies are in force in this namespace, or are
// not: what kubectl has written applies up to a second later. The one that is asked is
// the last that kubectl writes.
func (w *workload) waitPolicies(inForce bool) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the policies to be in force: %t", inForce), func() (bool, string) {
		conditions := w.kubectl("patch", w.ref, "--subresource=status", "--dry-run=server", "--type=merge",
			`--patch={"status": {"updateRevision": "another", "conditions": null}}`, "--output=jsonpath={.status.conditions}")
		return (conditions != "") == inForce, conditions
	})
}

func createWorkload(t *testing.T, o options) *workload {
	t.Helper()
	o.Kind = "StatefulSet"
	return &workload{newSandbox(t, o, func(namespace string) getter[*appsv1.StatefulSet] {
		return client.AppsV1().StatefulSets(namespace)
	})}
}

// assertMoved checks that everything at or above index from is where the
// template says: size in spec and status, revision, no restart; that the built-in
// controller agrees; and that no hold is left behind.
func (w *workload) assertMoved(from int) {
	w.t.Helper()
	set, pods := w.get(), w.pods()
	status := set.Status
	if len(pods) != int(*set.Spec.Replicas) {
		w.t.Errorf("%d pods, want %d", len(pods), *set.Spec.Replicas)
	}
	if status.ObservedGeneration != set.Generation || int(status.UpdatedReplicas) != len(pods)-from || int(status.ReadyReplicas) != len(pods) {
		w.t.Errorf("the StatefulSet controller sees %+v of generation %d", status, set.Generation)
	}
	// Before 1.37, that controller lets the current revision be under OnDelete.
	promotes := set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType || cp.AtLeast("1.37")
	if from == 0 && promotes && status.CurrentRevision != status.UpdateRevision {
		w.t.Errorf("current revision %s, update revision %s: not complete", status.CurrentRevision, status.UpdateRevision)
	}
	if hold, held := set.Annotations[api.HoldAnnotation]; held {
		w.t.Errorf("still held: %q", hold)
	}
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && int(*r.Partition) != from {
		w.t.Errorf("partition %d, want the user's %d", *r.Partition, from)
	}
	start := 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	for i := from; i < len(pods); i++ {
		pod, exists := pods[fmt.Sprintf("web-%d", start+i)]
		if !exists {
			w.t.Errorf("web-%d does not exist", start+i)
			continue
		}
		w.assertPod(set, pod)
	}
}

func (w *workload) assertPod(set *appsv1.StatefulSet, pod corev1.Pod) {
	w.t.Helper()
	if got := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; got != set.Status.UpdateRevision {
		w.t.Errorf("%s is of revision %s, want %s", pod.Name, got, set.Status.UpdateRevision)
	}
	w.assertNotRestarted(pod)
	w.assertSize(pod, &set.Spec.Template)
}

// assertReplaced checks that exactly these pods are not the ones that they were.
func (w *workload) assertReplaced(before map[string]types.UID, want ...string) {
	w.t.Helper()
	var replaced []string
	after := w.uids()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if uid, exists := after[name]; exists && uid != before[name] {
			replaced = append(replaced, name)
		}
	}
	if !slices.Equal(replaced, want) {
		w.t.Errorf("replaced pods: %v, want %v", replaced, want)
	}
}
