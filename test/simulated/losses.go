package simulated

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// quota is a controller that deletes each pod which has another size than the one that it was made with, as Kueue does.
type quota struct {
	Guarded

	born    map[types.UID]Version
	deleted []types.UID
}

func (q *quota) rounds(n int) {
	for range n {
		for _, pod := range q.Pods {
			if _, known := q.born[pod.UID]; !known {
				q.born[pod.UID] = SizeOf(pod)
			}
		}
		q.Try()
		for _, name := range slices.Sorted(maps.Keys(q.Pods)) {
			pod := q.Pods[name]
			if born, known := q.born[pod.UID]; !known || SizeOf(pod) == born || pod.DeletionTimestamp != nil {
				continue
			}
			q.deleted = append(q.deleted, pod.UID)
			q.DeletePod(name)
		}
	}
}

// DeletedAfterResize tries what becomes of a rollout whose resized pods are deleted by somebody else, again and again. New
// makes a world of three pods, one of which may be down. At the third one, another may have been asked beside it. OnDelete
// gives the workload that strategy; nil where there is none.
func DeletedAfterResize(t *testing.T, new func(t *testing.T) Guarded, onDelete func(Guarded)) {
	t.Helper()
	const most = 3
	start := func(t *testing.T, annotations map[string]string) *quota {
		t.Helper()
		q := &quota{Guarded: new(t), born: map[types.UID]Version{}}
		q.Annotate(annotations)
		return q
	}
	t.Run("the others are restarted", func(t *testing.T) {
		q := start(t, nil)
		q.Edit(Newer)
		q.rounds(200)
		if len(q.deleted) > most+1 || !q.Condition().Complete() {
			t.Errorf("%d pods were deleted, want %d at most: %+v", len(q.deleted), most, q.Condition())
		}
		if n := Count(q.Recorded(), rollout.EventDeletedAfterResize+" "); n != len(q.deleted) {
			t.Errorf("%d events: %q", n, q.Recorded())
		}
	})
	t.Run("none is restarted", func(t *testing.T) {
		q := start(t, map[string]string{api.ResizeActionAnnotation: string(policy.LiveResize)})
		q.Edit(Newer)
		q.rounds(60)
		stopped := func(deleted int) {
			t.Helper()
			if c := q.Condition(); len(q.deleted) < deleted || len(q.deleted) > deleted+deleted/most || c.Reason != rollout.ReasonDeletedAfterResize {
				t.Fatalf("%d pods were deleted, want %d: %+v", len(q.deleted), deleted, c)
			}
		}
		stopped(most)
		q.Restart() // which the condition tells
		q.rounds(60)
		stopped(most)
		q.Annotate(map[string]string{api.RetryAnnotation: "1"})
		q.rounds(60)
		if q.Condition().Complete() { // those that come are of the new size, as with a DaemonSet
			return
		}
		stopped(2 * most)
		q.Edit(Version{Image: 1, CPU: 3})
		q.rounds(60)
		stopped(3 * most)
	})
	for _, onFailure := range []string{policy.OnFailureHold, policy.OnFailureRevert} {
		t.Run("a canary, and "+onFailure, func(t *testing.T) {
			q := start(t, map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s", api.OnFailureAnnotation: onFailure})
			q.Edit(Newer)
			q.rounds(100)
			back := 0
			if onFailure == policy.OnFailureRevert { // what has come in its place may be of the new size
				back = most
			}
			if len(q.deleted) > 1+back || !rollout.Stopped(q.Condition()) {
				t.Errorf("%d pods were deleted, want 1, and %d on their way back: %+v", len(q.deleted), back, q.Condition())
			}
		})
	}
	if onDelete == nil {
		return
	}
	t.Run("under OnDelete", func(t *testing.T) {
		q := start(t, nil)
		onDelete(q.Guarded)
		q.Edit(Newer)
		q.rounds(100)
		if len(q.deleted) > most+1 || q.Held() {
			t.Errorf("%d pods were deleted, want %d at most; held: %t; %+v", len(q.deleted), most, q.Held(), q.Condition())
		}
	})
}
