package statefulset

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// births is what is known of pods that the StatefulSet controller should make now, and has not.
type births struct {
	// due is since when, by our own clock, it has been the turn of an empty place, by its index.
	due map[int]time.Time
	// quotas of the namespace, as they were when they were read; nil if they have not been.
	quotas *capacity.Quotas
	read   time.Time
	// limits of the namespace.
	limits capacity.Limits
	// refused are the revisions of which the quotas let in no pod.
	refused sets.Set[string]
}

// How long a pod may be missing until quotas are looked at for it, how long that is believed, and how
// long until it counts as one that cannot be made, for a reason that we do not know, such as a webhook.
const (
	lookAtQuotas   = time.Second
	believeQuotas  = 5 * time.Second
	neverCameAfter = 30 * time.Second
)

// due returns the indexes of the empty places to which the StatefulSet controller should give a pod
// now. Unless the set is Parallel, it waits for every pod below to be available.
func (o observation) due() []int {
	var due []int
	for _, s := range o.spans() {
		if s.pod == nil && !s.later {
			due = append(due, s.index)
		}
		if o.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement && !o.available(s.pod) {
			break
		}
	}
	return due
}

// ofOldSize reports whether the next pod at the index differs from the newest revision in its size only.
func (o observation) ofOldSize(index int) bool {
	return o.bornOld(index) && o.differs(o.set.Status.CurrentRevision) == ""
}

// awaits returns for which place an empty one waits: itself if its pod is due, or the lowest one below it that has to
// come first.
func (o observation) awaits(index int) (place int, waits bool) {
	if _, due := o.births.due[index]; due {
		return index, true
	}
	first := index
	for lower := range o.births.due {
		first = min(first, lower)
	}
	return first, first < index
}

// keptOut returns since when a quota has kept out the next pod at the index, or the one that has to come first; zero if none does.
func (o observation) keptOut(index int) (since time.Time) {
	since, due := o.births.due[index]
	if !due && o.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
		index, _ = o.awaits(index)
		since, due = o.births.due[index]
	}
	if !due || !o.births.refused.Has(o.nextRevision(index)) {
		return time.Time{}
	}
	return since
}

// unborn says why no pod comes to an empty place that waits for one of the older size, and whether one of
// the newest would come. Nothing is lost by that: what has no pod cannot be restarted.
func (o observation) unborn(index int) (why judge.Refusal, remade bool) {
	first, waits := o.awaits(index)
	if !waits || !o.ofOldSize(first) {
		return judge.Refusal{}, false
	}
	since := o.births.due[first]
	newest, waited := o.newest().PodTemplateSpec, o.Now.Sub(since)
	older := o.births.quotas.Refusal(o.revisions[o.set.Status.CurrentRevision].PodTemplateSpec, o.births.limits)
	newer := o.births.quotas.Refusal(newest, o.births.limits)
	switch {
	case older.Reason == "" && waited < neverCameAfter:
		return judge.Refusal{}, false
	case older.Reason == "":
		older = judge.Refusal{Kind: judge.ReasonAdmissionDenied, Reason: fmt.Sprintf("no pod has been created for %s", neverCameAfter)}
		if newer.Reason == "" {
			newer = judge.Refusal{Kind: judge.ReasonNoNodeFits, Reason: o.Places.TooLarge(newest)}
		}
	}
	if newer.Reason != "" {
		older.Kind = newer.Kind
		older.Reason += "; a pod of the new size could not be created either: " + newer.Reason
	}
	return older, newer.Reason == ""
}

// nextBirth returns when to look again for pods that do not come; 0 if none is due.
func (o observation) nextBirth() time.Duration {
	next := time.Duration(0)
	for _, since := range o.births.due {
		wait := believeQuotas
		if waited := o.Now.Sub(since); waited < lookAtQuotas {
			wait = lookAtQuotas - waited
		}
		if next == 0 || wait < next {
			next = wait
		}
	}
	return next
}
