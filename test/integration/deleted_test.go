//go:build around

package integration

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// quota deletes each pod whose requests are not those that it was made with, and says why in a condition of the pod, as
// Kueue does.
type quota struct {
	namespace string
	born      map[types.UID]string
	deleted   atomic.Int32
}

// admits runs one until the test ends.
func admits(t *testing.T, namespace string) *quota {
	t.Helper()
	q := &quota{namespace: namespace, born: map[types.UID]string{}}
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // the context is done before that
	running.Go(func() {
		for ctx := t.Context(); ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if err := q.turn(ctx); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				t.Errorf("the quota: %v", err)
			}
		}
	})
	return q
}

func (q *quota) turn(ctx context.Context) error {
	pods := client.CoreV1().Pods(q.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		cpu := cpuOf(pod.Spec.Containers[0].Resources)
		if q.born[pod.UID] == "" {
			q.born[pod.UID] = cpu
		}
		if q.born[pod.UID] == cpu || pod.DeletionTimestamp != nil {
			continue
		}
		patch := `{"metadata": {"uid": "` + string(pod.UID) + `"}, "status": {"conditions": [{"type": "TerminationTarget", "status": "True", "reason": "NoMatchingWorkload", "message": "No matching Workload"}]}}`
		if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
		if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), GracePeriodSeconds: ptr.To[int64](2)}); err != nil {
			return err
		}
		q.deleted.Add(1)
	}
	return nil
}

func (q *quota) assertDeleted(t *testing.T) {
	t.Helper()
	if n := q.deleted.Load(); n != 3 {
		t.Errorf("%d pods were deleted after their resize, want 3", n)
	}
}

// lives has the pod say for how long it terminates, so that its last conditions are seen.
const lives = `{terminationGracePeriodSeconds: 2}`

const terminates = `annotations: {sim.inplace-rollout.io/termination-time: 1s}`

// TestDeletedAfterResize: somebody deletes each pod that was resized. After three of them, the pods are replaced, and come with
// their size.
func TestDeletedAfterResize(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Pod: lives, PodMeta: terminates})
	q := admits(t, w.namespace)
	w.setResources("cpu=150m", "")
	w.waitComplete()
	q.assertDeleted(t)
	w.waitEvent("DeletedAfterResize", "after its resize, TerminationTarget NoMatchingWorkload: No matching Workload")
	w.assertMoved(0)
}

// TestDeletedAfterLiveResize: with the action LiveResize nobody else is asked, and the condition says what to do.
func TestDeletedAfterLiveResize(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Pod: lives, PodMeta: terminates, Meta: liveOnly})
	q := admits(t, w.namespace)
	w.setResources("cpu=150m", "")
	w.waitCondition("DeletedAfterResize", "pods were deleted soon after their resize, the last: web-")
	w.waitCondition("DeletedAfterResize", "TerminationTarget NoMatchingWorkload: No matching Workload; left as it is until it is tried again, restarted by the action Restart, or opted out")
	q.assertDeleted(t)
	eventually(t, "all pods to have the size of before", func() (bool, string) {
		for _, pod := range w.pods() {
			if cpu := cpuOf(pod.Spec.Containers[0].Resources); cpu != "100m" {
				return false, pod.Name + " has cpu " + cpu
			}
		}
		return true, ""
	})
	if got := w.run("retry", w.ref, "--action=Restart"); got.code != 0 {
		t.Fatal(got.stderr)
	}
	w.waitComplete()
	q.assertDeleted(t)
	w.assertMoved(0)
}
