package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Facts are what a plan is made from besides the workload and its pods. A plan only reads them.
type Facts struct {
	// Nodes of the cluster. If they are unknown, nothing depends on them.
	Nodes        []*corev1.Node
	NodesUnknown bool
	// Limits of the namespace.
	Limits capacity.Limits
	// Refused are the sizes that the API server has refused, by the pod.
	Refused rollout.Refusals
	// Full are the pods for whose replacements there was no room.
	Full rollout.Refusals
	// Contests are those over pods that somebody else resizes too.
	Contests Contests
	// Seen is what has been seen of the pods' resizes; nil if nothing has.
	Seen *Sightings
	// Firsts are when the pods were first seen as they are; nil if nobody has looked before.
	Firsts Firsts
	// Settings in force for the rollout.
	Settings policy.Settings
	// Defaults where the workload says nothing.
	Defaults policy.Defaults
	// Now is the time.
	Now time.Time
	// Kept is what was found of the pods for the plans before; nil keeps nothing.
	Kept *Kept

	room *capacity.Places // of the nodes and the limits; nil if that is still to be made
}

// Plan reads the settings from the workload's annotations, and returns the next step that the
// observation makes of the facts. If the annotations are invalid, the plan has no writes, and
// its condition says why.
func (f Facts) Plan(o Observation, annotations map[string]string) (p rollout.Plan, err error) {
	if f.Settings, err = policy.InForce(annotations); err != nil {
		return rollout.Plan{Condition: rollout.Invalid(err)}, nil
	}
	return o.Plan(f)
}

// Options returns what the settings and the defaults say about a rollout. The limits, what is
// aside, and a strategy other than RollingUpdate are left for the kind to set.
func (f Facts) Options() rollout.Options {
	return rollout.Options{
		Strategy: policy.RollingUpdate, Action: f.Settings.Action,
		DeferredTimeout: ptr.Deref(f.Settings.DeferredTimeout, f.Defaults.DeferredTimeout),
		ErrorTimeout:    f.Defaults.ErrorTimeout, Now: f.Now,
	}
}

// Target returns the size that a pod, made from the older template, must have to be one of the
// newer. What somebody else sets again and again stays as it is.
func (f Facts) Target(pod *corev1.Pod, older, newer *corev1.PodTemplateSpec) (resize.Target, error) {
	if f.Contests.Lost(pod.UID) {
		return f.By(resize.ForBut(pod, older, newer))
	}
	return f.By(resize.For(pod, older, newer))
}

// By returns the target with what is known of its pod's kubelet.
func (f Facts) By(t resize.Target, err error) (resize.Target, error) {
	if err != nil {
		return t, err
	}
	return t.By(f.kubelet(t.Pod(), f.places())), nil
}

// kubelet returns what is known of the kubelet of a pod, which may be nil, and since when it may know
// of the pod's spec.
func (f Facts) kubelet(pod *corev1.Pod, room *capacity.Places) resize.Kubelet {
	k := room.Kubelet(pod, f.Now)
	if k.Silent && f.Firsts != nil {
		k.Asked = f.Firsts.specified(pod, f.Now)
	}
	return k
}

// clockSkew is by how much the clocks of the API servers of a cluster may differ.
const clockSkew = 10 * time.Second

// Leftover returns the target that takes back what a pod that counts as updated has otherwise
// than the revision: what an edit that was given up has left and, while a rollout is under way,
// what others have set since it began. The condition, which may be nil, says when it did. Between
// edits others may resize pods.
//
// No pod is restarted for what others have set: they could make us do so again and again.
func (f Facts) Leftover(pod *corev1.Pod, revision rollout.Revision, c *rollout.StoredCondition, underWay bool) (resize.Target, error) {
	return f.Sized(pod, revision, revision.Template, c, underWay)
}

// Sized is Leftover for a pod that is to have the size of sized: a copy of the revision's template
// in which some values are others.
func (f Facts) Sized(pod *corev1.Pod, revision rollout.Revision, sized *corev1.PodTemplateSpec, c *rollout.StoredCondition, underWay bool) (resize.Target, error) {
	begun := underWay && c != nil && c.Status == corev1.ConditionFalse && c.Reason != rollout.ReasonPending
	if !begun || f.Contests.Lost(pod.UID) {
		return f.By(resize.Sized(pod, revision.Template, sized))
	}
	target, err := f.By(resize.SizedSince(pod, revision.Template, sized, c.LastTransitionTime.Add(-clockSkew)))
	if err != nil || !target.Overrules {
		return target, err
	}
	may, _ := f.Settings.Resolve(target.Effects, revision.Template, f.Defaults.ResizePolicy)
	if policy.Decide(may, f.Settings.Action, policy.RollingUpdate, resize.Unsent) != policy.Resize || len(target.Obstacles) > 0 ||
		f.Refused.Of(pod.UID, revision.Size(target.Changes)).Final {
		return f.By(resize.Sized(pod, revision.Template, sized))
	}
	return target, nil
}

// TooLarge returns why no node could hold a pod that is made from the template; empty if one could.
func (f Facts) TooLarge(template *corev1.PodTemplateSpec) string {
	return f.places().TooLarge(template)
}

// Node returns the node of that name; nil if it is not known.
func (f Facts) Node(name string) *corev1.Node { return f.places().Node(name) }

// places answers what the nodes, and the limits, have room for.
func (f Facts) places() *capacity.Places {
	if f.room != nil {
		return f.room
	}
	return capacity.NewPlaces(f.Nodes, f.NodesUnknown, f.Limits)
}

// Members returns the places with what the facts say of each, for a rollout to the revision.
func (f Facts) Members(places []rollout.Place, revision rollout.Revision) []rollout.Member {
	members, room := make([]rollout.Member, len(places)), f.places()
	for i, place := range places {
		members[i] = f.member(place, revision, room)
	}
	return members
}

func (f Facts) member(place rollout.Place, revision rollout.Revision, room *capacity.Places) rollout.Member {
	m := rollout.Member{Place: place, Refusal: place.Unborn, Lost: room.Lost(place.Pod), Kubelet: f.kubelet(place.Pod, room), Policy: policy.LiveResizeable}
	if rollout.Gone(place.Pod) || place.Differs != "" {
		return m
	}
	m.Sighting = f.Seen.Of(place, f.Now)
	m.Policy, m.Why = f.Settings.Resolve(place.Target.Effects, revision.Template, f.Defaults.ResizePolicy)
	size := revision.Size(place.Target.Changes)
	m.Refusal = f.Refused.Of(place.Pod.UID, size)
	full := f.Full.Of(place.Pod.UID, size)
	if place.Updated { // it may have to go all the same, with others
		if f.Now.Before(full.Until) {
			m.Unplaceable = full
		}
		return m
	}
	if unsupported := room.Unsupported(place); unsupported.Reason != "" {
		m.Refusal = unsupported
	}
	m.Barred = room.Barred(place)
	m.Unplaceable = room.Unplaceable(place, f.Now)
	if m.Unplaceable.Reason == "" && f.Now.Before(full.Until) {
		m.Unplaceable = full
	}
	return m
}

// Live reports whether the pod of a place gets its size, or has it, without a restart, as far as
// the facts say.
func (f Facts) Live(place rollout.Place, options rollout.Options, revision rollout.Revision) bool {
	decision := f.Members([]rollout.Place{place}, revision)[0].Judge(options).Decision
	return decision == policy.Resize || decision == policy.Wait || decision == policy.MarkUpdated
}

// Forecast returns the members as a rollout will find them, without asking for any resize.
// A size that is larger than the pod's node counts as refused, as the API server will do. A
// restart that has no room in the cluster counts as such. The facts are those of
// [ForecastFacts].
func (f Facts) Forecast(ctx context.Context, cluster capacity.Cluster, places []rollout.Place, revision rollout.Revision, newFirst bool) []rollout.Member {
	f.Refused = rollout.Refusals{}
	room := f.places()
	for _, place := range places {
		if why := room.Infeasible(place, f.Now); why.Reason != "" {
			why.Of = revision.Size(place.Target.Changes)
			f.Refused[place.Pod.UID] = why
		}
	}
	f.Full = cluster.Full(ctx, f.Members(places, revision), revision, newFirst)
	return f.Members(places, revision)
}

// ForecastFacts returns the facts that a forecast for a workload of the namespace is made from.
func ForecastFacts(cluster capacity.Cluster, namespace string, settings policy.Settings, defaults policy.Defaults) Facts {
	f := Facts{
		Nodes: cluster.Nodes, NodesUnknown: len(cluster.Nodes) == 0, Limits: cluster.LimitsOf(namespace),
		Settings: settings, Defaults: defaults, Now: time.Now(),
	}
	f.room = f.places()
	return f
}
