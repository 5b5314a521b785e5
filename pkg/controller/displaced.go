package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// askAgain asks the pods of a workload at rest once more for the size that somebody else has taken from them soon after
// the rollout. It returns for how long to go on looking; 0 if nothing is expected any more.
//
// Only a pod that was asked for its size instead of theirs is asked, once, and only where they go back to what it would have
// had without the edit: everything else that others do between edits is theirs to decide. No container is restarted for it.
func (c *Controller[W, K]) askAgain(ctx context.Context, w W) (more time.Duration, err error) {
	c.mu.Lock()
	s := c.sessions[cache.MetaObjectToName(w)]
	c.mu.Unlock()
	if s == nil || s.workload != w.GetUID() || policy.Held(w) { // put away for room, of another one, or edited
		return 0, nil
	}
	now := c.clock.Now()
	if s.Notes.AwaitsDisplaced(now) == 0 {
		return 0, nil
	}
	s.standing = true
	watched, err := s.Pods.List()
	if err != nil {
		return 0, err
	}
	for _, pod := range watched {
		d := s.Notes.Of(pod.UID).Displaced
		if d == nil || judge.Gone(pod) {
			continue
		}
		if err := c.askOnceMore(ctx, s, w, pod, d.Changes); err != nil {
			return 0, err
		}
	}
	return s.Notes.AwaitsDisplaced(now), nil
}

// askOnceMore asks a pod for those of the changes that somebody else has undone.
func (c *Controller[W, K]) askOnceMore(ctx context.Context, s *Session[W, K], w W, pod *corev1.Pod, changes []resize.Change) error {
	target, err := resize.Again(pod, changes)
	if err != nil {
		return err
	}
	if len(target.Changes) == 0 || target.Restarts() {
		return nil
	}
	resized, err := pods.Resize(ctx, c.client.CoreV1(), target, api.FieldManager)
	if err != nil && (!pods.Answered(err) || apierrors.IsConflict(err)) {
		return err
	}
	s.Notes.Note(pod.UID).Displaced = nil // a refusal is an answer, too
	if err == nil {
		s.Pods.Wrote(resized)
		s.RecordPod(w, pod, corev1.EventTypeWarning, judge.EventResizedByOthers,
			"somebody put the old size back soon after the rollout, so the pod was resized once more: "+resize.Describe(target.Changes)+". If they do it again, their size stays until the next edit")
	}
	return nil
}
