package statefulset

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// former returns the revision of most of the pods that are not of the newest one; empty if there are none.
func (o observation) former() string {
	return revisions.Former(o.pods, func(pod *corev1.Pod) bool {
		return !rollout.Gone(pod) && !o.labelled(pod) && o.differs(revisions.HashOf(pod)) == ""
	})
}

// revert plans the way back of the pods that have the size of the newest revision: to that of the revision that each is of. The
// set stays held, and its template is not written. The hold of a set under OnDelete goes as ever.
func (o observation) revert(options rollout.Options, from int, former string) (rollout.Plan, error) {
	guard, patience := options.Guard, plan{}
	if policy.Held(o.set) && !rolling(o.set) {
		patience.giveUp(o, options)
	}
	forth, err := o.verdicts(o.look(options), o.podsByOrdinal(), from)
	if err != nil {
		return rollout.Plan{}, err
	}
	set := *o.set
	o.failed, set.Status.UpdateRevision = set.Status.UpdateRevision, former
	o.set = &set
	options = options.Back()
	look, pods := o.look(options), o.podsByOrdinal()
	options.NonMembers = o.below(look, pods, from)
	back, err := o.verdicts(look, pods, from)
	if err != nil {
		return rollout.Plan{}, err
	}
	p := rollout.Plan{Step: rollout.Next(rollout.Reverting(back, forth), options)}.Revert(guard, o.revision(), former, look.Found())
	if rolling(o.set) && partition(o.set) < math.MaxInt32 {
		// It was lowered for restarts: of a pod there that is of the former revision, or is marked as one, the StatefulSet controller would
		// make another one, with the size that has failed. It has seen the partition when the set is looked at next.
		p.Writes = []rollout.Write{lowerPartition{to: math.MaxInt32}}
	}
	o.show(&p)
	p.RequeueWithin(patience.RequeueAfter)
	if patience.release {
		p.Writes = append(p.Writes, rollout.Release{HandOver: patience.givenUp})
	}
	return p, nil
}
