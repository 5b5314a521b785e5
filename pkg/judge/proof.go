package judge

import (
	"fmt"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Proof is since when a pod has been well with its size. A resize that restarts no container does
// not move the time at which the pod became Ready, so the pod is available at once, as the built-in
// controllers mean it, whatever the size is about to do to it.
type Proof struct {
	// Since is when the pod was first seen Ready with its resize done, by the same clock as
	// Terms.Now; zero if it is not so now.
	Since time.Time
	// Generation of the pod, how often its containers had restarted by then, and since when it was Ready. With
	// another one the proof begins anew.
	Generation int64
	Restarts   int32
	// Ready is since when the pod says that it is Ready, in seconds.
	Ready int64
}

// Of returns the proof as it is now. well: the pod is seen Ready, with its resize done.
func (p Proof) Of(pod *corev1.Pod, well bool, now time.Time) Proof {
	if !well {
		return Proof{}
	}
	seen := Proof{now, pod.Generation, restarts(pod), ReadySince(pod)}
	if p.Generation == seen.Generation && p.Restarts == seen.Restarts && p.Ready == seen.Ready && !p.Since.IsZero() {
		return p
	}
	return seen
}

// ReadySince is when the pod became Ready, by its kubelet's clock, in seconds; 0 if it is not.
func ReadySince(pod *corev1.Pod) int64 {
	if c := ConditionReady(pod); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Unix()
	}
	return 0
}

// restarts is how often containers of the pod have restarted.
func restarts(pod *corev1.Pod) (sum int32) {
	for s := range statusesOf(pod) {
		sum += s.RestartCount
	}
	return sum
}

// statusesOf returns what the kubelet says of each container of the pod.
func statusesOf(pod *corev1.Pod) iter.Seq[*corev1.ContainerStatus] {
	return func(yield func(*corev1.ContainerStatus) bool) {
		for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range statuses {
				if !yield(&statuses[i]) {
					return
				}
			}
		}
	}
}

// prove notes when a pod that has its size will have proved it. Until then an updated pod keeps the
// hold, as others wait for it.
func (v *Verdict) prove(o Terms) {
	m := v.Member
	if v.ProvedAt = v.provedAt(o); v.ProvedAt.IsZero() {
		return
	}
	v.changesAt(v.ProvedAt, o)
	if m.Updated {
		v.Decision = policy.Wait
	}
	if m.Updated && m.ClassSizeUnavailable == "" {
		v.Reason, v.Message = ReasonProgressing, o.waitsForProof()
	}
}

// waitsForProof says what others wait for.
func (o Terms) waitsForProof() string {
	return fmt.Sprintf("waiting until it has been Ready for %s since its resize", o.minReady())
}

// provedAt returns when the pod will have been well with its size for minReadySeconds; zero if it
// has been, is not well, or was never resized. Where nobody has looked since when it is, as for a
// forecast, the time of its resize has to do.
//
// The size is that of its spec, also where the pod is to have another one by now: for A→B→C, a pod
// that has got B a moment ago may still fail with it, so nobody is asked for C beside it.
func (v *Verdict) provedAt(o Terms) time.Time {
	m := v.Member
	if m.Target.Resized.IsZero() || m.Lost != "" || o.MinReadySeconds <= 0 {
		return time.Time{}
	}
	since := m.Proof.Since
	switch has := m.Updated || v.Decision == policy.MarkUpdated; {
	case len(m.Target.Changes) > 0 && !since.IsZero():
	case len(m.Target.Changes) > 0 && m.Since.IsZero() && m.Available:
		since = m.Target.Resized
	case !has || v.Observed != resize.Actuated:
		return time.Time{}
	case since.IsZero():
		since = m.Target.Resized
	}
	if at := since.Add(o.minReady()); at.After(o.Now) {
		return at
	}
	return time.Time{}
}

// WellSince is since when the pod has been well with its size; zero if it is not. Where nobody has watched it, as for a command, the
// time of its resize has to do, or since when it is Ready.
func (v *Verdict) WellSince() time.Time {
	m := &v.Member
	if !m.Proof.Since.IsZero() || !m.Since.IsZero() || v.Observed != resize.Actuated {
		return m.Proof.Since
	}
	return m.toldSince()
}

// Unproved reports whether the pod has yet to prove the size that it has.
func (v *Verdict) Unproved() bool { return !v.ProvedAt.IsZero() }

// minReady is for how long a pod has to be Ready.
func (o Terms) minReady() time.Duration { return time.Duration(o.MinReadySeconds) * time.Second }
