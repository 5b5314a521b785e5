package workload

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Size names what the API server is asked for: these changes, for this revision.
func Size(revision string, changes []resize.Change) string {
	return revision + " " + resize.Describe(changes)
}

// Resize asks for the pod's new size, that of template, whose revision is named.
// The API server's final refusal is kept, so that the next plan takes the pod for
// one that cannot be resized; a controller that is restarted meanwhile hears it
// again.
func (c *Controller[W, X]) Resize(ctx context.Context, s *Session[X], w W, m rollout.Member, revision string, template *corev1.PodTemplateSpec) error {
	again, target := len(m.Target.Changes) == 0, m.Target
	if again { // the kubelet has had the size before, and looks at it anew after another one
		target = m.Target.Back()
	}
	resized, err := pods.Resize(ctx, c.Client.CoreV1(), m.Pod, target)
	if err != nil {
		return c.refused(s, w, m, revision, err)
	}
	s.Pods.Wrote(resized)
	if again {
		s.Seen.Asked(m)
		c.Enqueue(nameOf(w))
		return nil
	}
	s.asked[m.Pod.UID] = resize.Describe(m.Target.Changes)
	s.Seen.Asked(m)
	if m.Target.Overrules {
		if s.Contests[m.Pod.UID]++; s.Contests.Lost(m.Pod.UID) {
			c.EventBoth(w, m.Pod, corev1.EventTypeWarning, rollout.EventResizedByOthers,
				strings.Join(m.Target.Others, ", ")+" resizes this pod again and again: what it sets next stays until the next edit")
		}
	}
	if left, err := resize.Leftover(resized, template); err == nil && len(left.Changes) > 0 { // it would do so with a new pod, too
		s.Refusals.Keep(m.Pod.UID, Size(revision, left.Changes), rollout.Refusal{
			Reason: "another admission plugin changed the size on its way: " + resize.Describe(left.Changes), Kind: rollout.ReasonAdmissionDenied,
		}, c.Clock.Now())
	} else if r := s.Refusals[m.Pod.UID]; r != nil && !r.Final {
		delete(s.Refusals, m.Pod.UID)
	}
	klog.FromContext(ctx).V(2).Info("Asked for a resize", "pod", m.Name, "changes", resize.Describe(m.Target.Changes))
	return nil
}

// refused keeps what the API server said, unless it was only that the pod has
// changed: the next plan knows what to make of it, and when to ask again.
func (c *Controller[W, X]) refused(s *Session[X], w W, m rollout.Member, revision string, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return err
	}
	said := pods.Refusal(err)
	if said.Final && s.Refusals.Of(m.Pod.UID, Size(revision, m.Target.Changes)).Reason == "" {
		c.metrics.pod(outcomeRefused)
	}
	s.Refusals.Keep(m.Pod.UID, Size(revision, m.Target.Changes), said, c.Clock.Now())
	c.Enqueue(nameOf(w))
	return nil
}
