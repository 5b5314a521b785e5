//go:build around

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// updateOrRollBack plays one update by an operator with a deadline, as Altinity's for ClickHouse has: it writes the size, waits until
// the generation is observed and, as long again, until all pods are updated and Ready. Otherwise it writes the former size and deletes the pod. It
// reports whether it had to.
func (w *workload) updateOrRollBack(cpu string, deadline time.Duration) (rolledBack bool) {
	w.t.Helper()
	sets, before := client.AppsV1().StatefulSets(w.namespace), cpuOf(w.get().Spec.Template.Spec.Containers[0].Resources)
	write := func(cpu string) {
		w.t.Helper()
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "app", "resources": map[string]any{"requests": map[string]any{"cpu": cpu}}}},
		}}}})
		if err == nil {
			_, err = sets.Patch(w.t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "operator"})
		}
		if err != nil {
			w.t.Fatalf("the operator: %v", err)
		}
	}
	reaches := func(state func(*appsv1.StatefulSet) bool) bool {
		return wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, deadline, true, func(ctx context.Context) (bool, error) {
			set, err := sets.Get(ctx, "web", metav1.GetOptions{})
			return err == nil && set.Status.ObservedGeneration == set.Generation && state(set), nil
		}) == nil
	}
	write(cpu)
	if reaches(func(*appsv1.StatefulSet) bool { return true }) && reaches(func(set *appsv1.StatefulSet) bool {
		return set.Status.ReadyReplicas == 1 && set.Status.UpdatedReplicas == 1
	}) {
		return false
	}
	write(before)
	w.kubectl("delete", "pod", "web-0")
	return true
}

// TestOperatorWithADeadline is what docs/operators.md says: where a node has no room, a rollout must be over before the deadline of the
// operator. Then its pod is lost once at most, and not again by a rollback.
func TestOperatorWithADeadline(t *testing.T) {
	parallel(t)
	for _, tt := range []struct {
		what     string
		deferred time.Duration
		rolls    bool
	}{
		{"below the operator's", 2 * time.Second, false},
		{"above the operator's", time.Hour, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			parallel(t)
			w := newWorkload(t, options{Replicas: 1, Meta: fmt.Sprintf("annotations: {%s: %s}", setTimeout, tt.deferred)})
			w.waitComplete()
			before := w.uids()
			w.annotatePod("web-0", simDeferred)
			w.markAudit()
			if rolled := w.updateOrRollBack("150m", 20*time.Second); rolled != tt.rolls {
				t.Errorf("the operator rolls back: %t, want %t", rolled, tt.rolls)
			}
			w.waitComplete()
			w.assertReplaced(before, "web-0")
			if lost := w.podsWritten("delete"); len(lost) != 1 {
				t.Errorf("the pods %q were deleted, want one", lost)
			}
			want := "150m"
			if tt.rolls {
				want = cpuOf(w.get().Spec.Template.Spec.Containers[0].Resources)
			}
			w.waitSize("web-0", want)
		})
	}
}
