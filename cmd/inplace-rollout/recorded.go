package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// recorded is the record of a guarded rollout with what people want to know besides.
type recorded struct {
	*rollout.Record
	guard    policy.Guard
	duration time.Duration // for how long a canary has to be well
	promoted bool
	awaits   string // why no pod can pass the checks; empty if they can
	back     bool   // the size is the one from before: nothing is to be proved
	blocker  string // the pod that the others wait for; empty if they wait for none
	there    map[types.UID]*judge.PodForecast
	now      time.Time
}

// recordedOf returns that of a workload with these pods; nil if it has none that can be read, or no controller has looked at the edit.
func recordedOf(u *unstructured.Unstructured, g *policy.Guard, f rollout.WorkloadForecast, unanswerable func(checks []string) string, now time.Time) *recorded {
	r, err := rollout.ReadRecord(u.GetAnnotations())
	if err != nil || r == nil || r.Phase == rollout.PhasePending || g == nil || !policy.Enabled(u) {
		return nil
	}
	of := &recorded{r, *g, canaryDuration(u, g), r.PromotedBy(u.GetAnnotations()), unanswerable(g.Checks), f.Plan.Back() || f.Plan.Condition.Phase == rollout.PhaseReverted, blocker(f.Plan), map[types.UID]*judge.PodForecast{}, now}
	for i := range f.Pods {
		if pod := f.Pods[i].Member.Pod; !judge.Gone(pod) {
			of.there[pod.UID] = &f.Pods[i]
		}
	}
	return of
}

// until returns when a canary has been well for long enough; zero if the pod is none, or that is not known.
func (r *recorded) until(pod types.UID) time.Time {
	if r == nil {
		return time.Time{}
	}
	i := slices.IndexFunc(r.Canaries, func(c rollout.Canary) bool { return c.UID == pod })
	f := r.there[pod]
	if i < 0 || f == nil || r.guard.Manual || f.Observed != resize.Actuated || r.Canaries[i].Well == nil {
		return time.Time{}
	}
	c := r.Canaries[i]
	if ready := judge.ConditionReady(f.Member.Pod); ready == nil || ready.Status != corev1.ConditionTrue || ready.LastTransitionTime.Unix() != c.Ready {
		return time.Time{}
	}
	return c.Well.Add(r.duration)
}

// made returns the canaries that a restart has given the size: the record has those that were asked for it.
func (r *recorded) made() (pods []*corev1.Pod) {
	for uid, f := range r.there {
		pod := f.Member.Pod
		if f.Member.Updated && !pod.CreationTimestamp.Time.Before(r.Began.Time) && !slices.ContainsFunc(r.Canaries, func(c rollout.Canary) bool { return c.UID == uid }) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// asked reports whether a canary has been asked for the size, or made with it.
func (r *recorded) asked() bool { return r != nil && len(r.Canaries)+len(r.made()) > 0 }

// awaitsPromotion reports whether the canary has proved its size by the plan that is made now, and the others wait for somebody who
// promotes it.
func (r *recorded) awaitsPromotion(p rollout.Plan) bool {
	return r.asked() && r.guard.Manual && !r.promoted && p.Canary && p.Proved && !p.Guarding
}

// next says what comes next.
func (r *recorded) next() string {
	switch r.Phase {
	case rollout.PhaseCanary:
		return r.canary()
	case rollout.PhaseStopped:
		return "No other pod gets this size until you edit, undo or retry."
	case rollout.PhaseReverting:
		if r.blocker != "" {
			return "The pods go back to their size from before, when " + r.blocker + " is available."
		}
		return "The pods go back to their size from before."
	case rollout.PhaseReverted:
		return "The pods that have gone back stay so until you edit, undo or retry."
	default:
		switch {
		case r.back:
			return "Complete when each pod has its size from before."
		case r.awaits != "":
			return r.noneFollows()
		}
		return "Complete when each pod has been Ready at its new size for " + r.duration.String() + r.checks() + "."
	}
}

// reverts ends a sentence about pods that go back; empty if none do.
func (r *recorded) reverts() string {
	if r == nil || r.Phase != rollout.PhaseReverting {
		return ""
	}
	return ", as the rollout is reverted"
}

// noneFollows says why.
func (r *recorded) noneFollows() string {
	return "No further pod is resized before the checks are mended: " + r.awaits + "."
}

// canary says who it is, since when, what it has still to prove, and what comes then.
func (r *recorded) canary() string {
	names, since, until := r.canaries()
	said, made := "Canary: ", r.made()
	switch {
	case len(names) == 0 && r.awaits != "":
		return r.noneFollows()
	case len(names)+len(made) == 0:
		return said + "no resize has been requested yet."
	case len(names) == 0:
		for _, pod := range made {
			names = append(names, pod.Name)
		}
		said += few(names) + ", created " + duration.HumanDuration(r.now.Sub(made[0].CreationTimestamp.Time)) + " ago"
	case since.IsZero():
		said += few(names) + ", asked"
	default:
		said += few(names) + ", watched at its new size for " + duration.HumanDuration(r.now.Sub(since))
	}
	switch {
	case r.awaits != "":
		return said + ". " + r.noneFollows()
	case r.promoted:
		return said + ". It was promoted: the others follow."
	case r.guard.Manual:
		return said + ". The others follow when you promote it."
	}
	said += ". The others follow when it has been Ready for " + r.duration.String()
	if left := until.Sub(r.now); left > 0 {
		return said + ", in " + duration.HumanDuration(left) + r.checks() + "."
	}
	return said + r.checks() + "."
}

// canaries returns who is there, since when the first one has the size, and when the last one has been well for long enough; zero if
// that is not known.
func (r *recorded) canaries() (names []string, since, until time.Time) {
	known := true
	for _, c := range r.Canaries {
		if r.there[c.UID] == nil {
			continue
		}
		names = append(names, c.Name)
		if c.Done != nil && (since.IsZero() || c.Done.Time.Before(since)) {
			since = c.Done.Time
		}
		at := r.until(c.UID)
		if known = known && (c.Proved || !at.IsZero()); !c.Proved && at.After(until) {
			until = at
		}
	}
	if !known {
		until = time.Time{}
	}
	return names, since, until
}

// checks says that a pod has to pass some besides.
func (r *recorded) checks() string {
	if len(r.guard.Checks) == 0 {
		return ""
	}
	return ", and has passed " + strings.Join(r.guard.Checks, ", ")
}
