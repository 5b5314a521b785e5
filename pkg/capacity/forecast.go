package capacity

import (
	"context"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Facts returns the facts that a forecast for a workload of the namespace is made from.
func (c Cluster) Facts(namespace string, settings policy.Settings, defaults policy.Defaults) rollout.Facts {
	return rollout.Facts{
		Places:   NewPlaces(c.Nodes, len(c.Nodes) == 0, c.LimitsOf(namespace)),
		Settings: settings, Defaults: defaults, Now: time.Now(),
	}
}

// Forecast returns the members as a rollout will find them, without asking for any resize.
// A size that is larger than the pod's node counts as refused, as the API server will do. A
// restart that has no room in the cluster counts as such. The facts are those of
// [Cluster.Facts].
func (c Cluster) Forecast(ctx context.Context, f rollout.Facts, places []rollout.Place, revision rollout.Revision, newFirst bool) []rollout.Member {
	f.Notes = &rollout.PodNotes{Foreseen: true}
	for _, place := range places {
		if why := infeasible(f, place); why.Reason != "" {
			why.Of = revision.Size(place.Target.Changes)
			f.Notes.Note(place.Pod.UID).Size = &rollout.Refused{Refusal: why}
		}
	}
	for pod, why := range c.WithoutRoom(ctx, f.Members(places, revision), revision, newFirst) {
		f.Notes.Note(pod).Room = &rollout.Refused{Refusal: why}
	}
	return f.Members(places, revision)
}
