package controller

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// displaced is what a pod was asked for instead of what somebody else had given it. If that was for a while, as for
// its start, they put back what the pod would have had without the edit. Where they leave a note of that on the pod,
// the rollout waits for it. Where they do not, the pods of the workload are watched for a while when the rollout is
// over: few workloads have such pods. A controller that is restarted does not know of it any more.
type displaced struct {
	changes []resize.Change // from what they put back to what the pod is to have
	until   time.Time       // they are waited for; zero before the rollout is over
}

// displace notes what was displaced in the pod when it was asked last. The caller has locked m.mu.
func (m *memory) displace(pod types.UID, changes []resize.Change) {
	delete(m.displaced, pod)
	if len(changes) > 0 {
		m.displaced[pod] = displaced{changes: changes}
	}
}

// awaitDisplaced has what was displaced waited for, now that the rollout is over.
func (m *memory) awaitDisplaced(until time.Time) {
	for pod, d := range m.displaced {
		if d.until.IsZero() {
			d.until = until
			m.displaced[pod] = d
		}
	}
}

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
	maps.DeleteFunc(s.displaced, func(_ types.UID, d displaced) bool { return !now.Before(d.until) })
	if len(s.displaced) == 0 {
		return 0, nil
	}
	s.standing = true
	watched, err := s.Pods.List()
	if err != nil {
		return 0, err
	}
	for _, pod := range watched {
		d, is := s.displaced[pod.UID]
		if !is || rollout.Gone(pod) {
			continue
		}
		if err := c.askOnceMore(ctx, s, w, pod, d.changes); err != nil {
			return 0, err
		}
	}
	for _, d := range s.displaced {
		more = max(more, d.until.Sub(now))
	}
	return more, nil
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
	resized, err := pods.Resize(ctx, c.client.CoreV1(), pod, target)
	if err != nil && !pods.Answered(err) {
		return err
	}
	delete(s.displaced, pod.UID) // a refusal is an answer, too
	if err == nil {
		s.Pods.Wrote(resized)
		s.RecordPod(w, pod, corev1.EventTypeWarning, rollout.EventResizedByOthers,
			"put back soon after the rollout, and asked once more: "+resize.Describe(target.Changes)+": what others set next stays until the next edit")
	}
	return nil
}
