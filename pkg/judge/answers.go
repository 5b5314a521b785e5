package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Known is what is known of a kubelet by the pods of a workload whose resizes it was given time for: that it has not
// answered, and that its status does not show what it has allocated.
type Known struct {
	Silent      bool
	Unconfirmed bool
}

// nodeAnswers are the pods of a node whose kubelet was waited for until it was given up.
type nodeAnswers map[types.UID]lastAnswer

// lastAnswer is the answer of a kubelet that was given up at that time.
type lastAnswer struct {
	resize.Answer
	at time.Time
}

// remembered is how long a kubelet counts as silent that has not answered: later it may answer again.
const remembered = time.Hour

// answers notes what a verdict tells of its pod's kubelet.
func (n *PodNotes) answers(v *Verdict) {
	m := &v.Member
	node, answer := m.Node(), resize.Confirmed
	switch {
	case m.Target.Trusts():
		answer = resize.Unconfirmed
	case v.State == resize.FailingTooLong && m.Answer == resize.Unanswered:
		answer = resize.Unanswered
	case v.Observed != resize.Actuated || m.Target.Resized.IsZero():
		return
	}
	of := n.nodes[node]
	if answer == resize.Confirmed {
		delete(of, m.Pod.UID)
		for pod, was := range of { // it does answer
			if was.Answer == resize.Unanswered {
				delete(of, pod)
			}
		}
		return
	}
	if of == nil {
		if of = (nodeAnswers{}); n.nodes == nil {
			n.nodes = map[string]nodeAnswers{}
		}
		n.nodes[node] = of
	}
	of[m.Pod.UID] = lastAnswer{answer, m.GivenUp}
}

// enough is how many pods of a node tell that its kubelet never shows what it has carried out.
const enough = 2

// Known returns what other pods of its node tell of the kubelet of a pod at that time.
func (n *PodNotes) Known(pod *corev1.Pod, now time.Time) (k Known) {
	if n == nil || pod == nil {
		return k
	}
	unconfirmed := 0
	for other, last := range n.nodes[pod.Spec.NodeName] {
		k.Silent = k.Silent || last.Answer == resize.Unanswered && other != pod.UID && now.Before(last.at.Add(remembered))
		if last.Answer == resize.Unconfirmed && other != pod.UID {
			unconfirmed++
		}
	}
	k.Unconfirmed = unconfirmed >= enough
	return k
}

// briefly is for how long an answer is waited for that others of the node were waited for in vain.
const briefly = 10 * time.Second

// GivenUp returns when the last answer of a kubelet counts as final, by what was seen of it: after the timeout, or
// a short while if the kubelet is known for it.
func (n *PodNotes) GivenUp(pod *corev1.Pod, seen Sighting, timeout time.Duration) time.Time {
	wait, known := timeout, n.Known(pod, seen.Answered)
	if known.Silent && seen.Answer == resize.Unanswered || known.Unconfirmed && seen.Answer == resize.Unconfirmed {
		wait = min(wait, briefly)
	}
	return seen.Answered.Add(wait)
}
