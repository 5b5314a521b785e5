package capacity

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Question is what a forecast for a workload depends on besides it.
type Question struct {
	*Cluster
	Settings policy.Settings
	Defaults policy.Defaults
	// Unanswerable is that of [rollout.Facts].
	Unanswerable func(names []string) string
	// NotHeld is why the edit is left to the built-in controller, whatever the workload says; empty if it is not.
	NotHeld string
	// Next: what comes next of the rollout that is under way is asked, and no more.
	Next bool
}

// Unseen reports whether something may not be read that decides about the pods of that forecast, such as nodes or LimitRanges.
func (q Question) Unseen(f rollout.WorkloadForecast, namespace string) bool {
	return f.RoomUnknown != "" || q.limits[namespace].Unknown
}

// Facts returns the facts that a forecast for a workload of the namespace is made from.
func (q Question) Facts(ctx context.Context, namespace string) (rollout.Facts, error) {
	nodes, unknown, err := q.knownNodes(ctx)
	if err != nil {
		return rollout.Facts{}, err
	}
	limits, err := q.LimitsOf(ctx, namespace)
	return rollout.Facts{
		Places: NewPlaces(nodes, len(nodes) == 0, limits), Settings: q.Settings, Defaults: q.Defaults, Unanswerable: q.Unanswerable, Now: q.now, RoomUnknown: unknown,
	}, err
}

// Forecast returns the members as a rollout will find them, without asking for any resize, and the facts that they are made of.
// A size that is larger than the pod's node, or that a quota has no room for, counts as refused, as the API server will do. A
// restart that has no room in the cluster counts as such. The facts are those of
// [Question.Facts].
func (q Question) Forecast(ctx context.Context, f rollout.Facts, places []judge.Place, revision rollout.Revision, terms judge.Terms, newFirst bool) (rollout.Facts, []judge.Member, error) {
	f.Notes = &judge.PodNotes{Foreseen: true}
	var quotas *Quotas
	for _, place := range places {
		why := infeasible(f, place)
		if !judge.Gone(place.Pod) && why.Reason == "" && place.Differs == "" && len(place.Target.Changes) > 0 && len(place.Target.Obstacles) == 0 {
			var err error
			if quotas == nil {
				quotas, err = q.Quotas(ctx, place.Pod.Namespace)
			}
			if err != nil {
				return f, nil, err
			}
			why = judge.Refusal{Reason: quotas.refuseResize(place.Pod, place.Target.Spec()), Kind: judge.ReasonQuotaExceeded}
		}
		if why.Reason != "" {
			why.Of, why.Until = revision.Size(place.Target.Changes), f.Now.Add(time.Hour)
			f.Notes.Note(place.Pod.UID).Size = &judge.Refused{Refusal: why}
		}
	}
	members := f.Members(places, revision)
	restarts := members
	if q.Next { // others need no room now
		restarts = slices.DeleteFunc(slices.Clone(members), func(m judge.Member) bool { return m.Judge(terms).Decision != policy.RestartByController })
	}
	full, unknown, err := q.withoutRoom(ctx, restarts, podsIn(members), revision, newFirst)
	f.RoomUnknown = cmp.Or(f.RoomUnknown, unknown)
	for pod, why := range full {
		f.Notes.Note(pod).Room = &judge.Refused{Refusal: why}
	}
	return f, f.Members(places, revision), err
}

// Planned returns a forecast with what is unknown by the facts of [Question.Forecast], and the next step of the rollout that is under way,
// where that is asked, as they have the observation make it.
func (q Question) Planned(f rollout.WorkloadForecast, facts rollout.Facts, o rollout.Observation, annotations map[string]string) (_ rollout.WorkloadForecast, err error) {
	if f.RoomUnknown = cmp.Or(f.RoomUnknown, facts.RoomUnknown); q.Next {
		f.Plan, err = facts.Plan(o, annotations)
	}
	return f, err
}

// withoutRoom looks for room for the successors of some members of a workload that has these pods, in their order, and returns for
// which there is none, and why; or why that is unknown. Each that has found room has taken it. Where others come first
// (newFirst), they may wait for the room that other workloads have.
func (c *Cluster) withoutRoom(ctx context.Context, members []judge.Member, there []*corev1.Pod, revision rollout.Revision, newFirst bool) (full map[types.UID]judge.Refusal, unknown string, err error) {
	full = map[types.UID]judge.Refusal{}
	var room *Room
	for _, m := range members {
		if m.Pod == nil || m.Differs != "" || m.Pod.DeletionTimestamp != nil || m.Pod.Spec.NodeName == "" || m.Unplaceable.Reason != "" {
			continue
		}
		if room == nil {
			if room, err = c.Room(ctx, "", m.Pod.Namespace, there, nil, false); err != nil {
				return nil, unknown, err
			}
		}
		why, err := room.Replace(ctx, m, revision, newFirst)
		if unknown = room.unknown; err != nil {
			return nil, unknown, err
		}
		if why.Reason != "" {
			why.Of, why.Until = revision.Size(m.Target.Changes), c.now.Add(time.Hour)
			full[m.Pod.UID] = why
		}
	}
	return full, unknown, nil
}

func podsIn(members []judge.Member) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, m := range members {
		if m.Pod != nil {
			pods = append(pods, m.Pod)
		}
	}
	return pods
}
