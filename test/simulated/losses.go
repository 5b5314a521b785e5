package simulated

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
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

// deletedAfterResize tries what becomes of a rollout whose resized pods are deleted by somebody else, again and again. New
// makes a world of three pods at least, one of which may be down.
func deletedAfterResize(t *testing.T, new func(t *testing.T) Guarded) {
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
		if len(q.deleted) > most || !q.Condition().Complete() {
			t.Errorf("%d pods were deleted, want %d at most: %+v", len(q.deleted), most, q.Condition())
		}
		must.Equal(t, Count(q.Recorded(), judge.EventDeletedAfterResize+" "), len(q.deleted), "events of deleted pods: %q", q.Recorded())
	})
	t.Run("none is restarted", func(t *testing.T) {
		q := start(t, map[string]string{api.ResizeActionAnnotation: string(policy.LiveResize)})
		q.Edit(Newer)
		q.rounds(60)
		stopped := func(deleted int) {
			t.Helper()
			if c := q.Condition(); len(q.deleted) != deleted || c.Reason != judge.ReasonDeletedAfterResize {
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
		q.Edit(Next)
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
			if len(q.deleted) > 1+back || !Stopped(q.Condition()) {
				t.Errorf("%d pods were deleted, want 1, and %d on their way back: %+v", len(q.deleted), back, q.Condition())
			}
		})
	}
	t.Run("under OnDelete", func(t *testing.T) {
		q := start(t, nil)
		if q.OnDelete == nil {
			t.Skip("there is no such strategy")
		}
		q.OnDelete()
		q.Edit(Newer)
		q.rounds(100)
		if len(q.deleted) > most || q.Held() {
			t.Errorf("%d pods were deleted, want %d at most; held: %t; %+v", len(q.deleted), most, q.Held(), q.Condition())
		}
	})
}

// tries has rounds, which may fail.
func (g Guarded) tries(n int) {
	for range n {
		g.Try()
	}
}

// RejectedByKubelet tries what becomes of a rollout whose pods can only be restarted, and whose new pods are rejected by
// their kubelets. New makes a world of at least three pods, of which so many are gone then: one, or none where new ones come first
// and no pod is a canary. Back are the values of on-failure with which a guarded rollout has its pods made of the size from before again.
func RejectedByKubelet(t *testing.T, gone int, new func(t *testing.T) Guarded, back ...string) {
	t.Helper()
	const why = "TopologyAffinityError: Resources cannot be allocated with Topology locality"
	larger := Next // so that no pod gives room for others on its way back
	start := func(t *testing.T) (g Guarded, before map[types.UID]bool) {
		t.Helper()
		g, before = new(t), map[types.UID]bool{}
		g.Edit(larger)
		g.tries(60)
		if c := g.Condition(); !c.Complete() {
			t.Fatalf("the setup: %+v", c)
		}
		for _, pod := range g.Pods {
			before[pod.UID] = true
		}
		g.Infeasible(func(pod *corev1.Pod) bool { return SizeOf(pod).CPU == Newer.CPU })
		g.Rejects = func(pod *corev1.Pod) bool { return SizeOf(pod).CPU == Newer.CPU }
		return g, before
	}
	lost := func(g Guarded, before map[types.UID]bool) int {
		return len(before) - g.Having(func(pod *corev1.Pod) bool { return before[pod.UID] })
	}
	for name, edit := range map[string]Version{"no other is restarted": Newer, "the built-in controller is left to it": {Image: 2, CPU: Newer.CPU}} {
		t.Run(name+", and an edit back helps", func(t *testing.T) {
			g, before := start(t)
			g.Edit(edit)
			g.tries(60)
			if c := g.Condition(); lost(g, before) != gone || c.Reason != judge.ReasonPodRejected || !strings.Contains(c.Message, why) {
				t.Fatalf("%d pods are gone, want %d: %+v", lost(g, before), gone, c)
			}
			must.Equal(t, Count(g.Recorded(), " "+judge.EventPodRejected+" "), 1, "events: %q", g.Recorded())
			g.Edit(larger)
			g.tries(30)
			if c := g.Condition(); !c.Complete() || lost(g, before) != gone {
				t.Errorf("%d pods are gone, want %d, and after an edit back the condition says %+v", lost(g, before), gone, c)
			}
		})
	}
	t.Run("a kubelet that takes the next one has the rollout go on", func(t *testing.T) {
		g, _ := start(t)
		g.Edit(Newer)
		g.tries(30)
		g.Rejects = nil
		g.tries(100)
		if c := g.Condition(); !c.Complete() {
			t.Errorf("the condition says %+v", c)
		}
	})
	for _, onFailure := range []string{policy.OnFailureHold, policy.OnFailureRevert} {
		if gone == 0 {
			return
		}
		t.Run("a canary, and "+onFailure, func(t *testing.T) {
			g, before := start(t)
			g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s", api.OnFailureAnnotation: onFailure})
			g.Edit(Newer)
			g.tries(60)
			stopped := func(tries int) {
				t.Helper()
				c, rejected := g.Condition(), g.Having(func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
				if lost(g, before) != 1 || !Stopped(c) || !strings.Contains(c.Message, why) || !strings.Contains(c.Message, "edit it back") {
					t.Errorf("%d pods are gone, want 1: %+v", lost(g, before), c)
				}
				helps, reverts := slices.Contains(back, onFailure), onFailure == policy.OnFailureRevert
				if helps && (len(g.Pods)-rejected != len(before) || rejected > 3*tries) || helps && reverts && (c.Reason != judge.ReasonReverted || len(g.Sized(larger)) != len(before)) {
					t.Errorf("%d pods of %d are rejected, and %d have the size from before: %+v", rejected, len(g.Pods), len(g.Sized(larger)), c)
				}
			}
			stopped(1)
			g.Annotate(map[string]string{api.RetryAnnotation: cmp.Or(g.Name(), "1")})
			g.tries(60)
			stopped(2)
			g.Edit(larger)
			g.tries(15)
			if c := g.Condition(); !c.Complete() {
				t.Errorf("after an edit back the condition says %+v", c)
			}
		})
	}
}
