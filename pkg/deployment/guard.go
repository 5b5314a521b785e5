package deployment

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// guard returns how the rollout is guarded, where base has the pods; nil if it is not.
func (o observation) guard(base *replicaSet) *rollout.Guard {
	if !policy.Held(o.deployment) {
		return nil
	}
	d := o.deployment
	back := o.Settings.Guard != nil && base != nil && base.template.Same(d.template) && (!base.adopted() || base.adoption.Back)
	g := o.Guard(rollout.Edit{Version: rollout.EditNamed(d.Annotations[api.EditAnnotation]), Began: editedAt(d), Back: back}, d.Spec.MinReadySeconds)
	if g != nil {
		g.NotReadyTimeout = time.Duration(ptr.Deref(d.Spec.ProgressDeadlineSeconds, int32(g.NotReadyTimeout.Seconds()))) * time.Second
	}
	return g
}

// editedAt is when the Deployment itself, but for its status and its replicas, was written last, by the clock of the API server.
func editedAt(d *Deployment) (last time.Time) {
	for _, entry := range d.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// deserted returns the step of a guarded rollout whose Deployment was scaled to zero in the midst of it: it stays as it is, and so
// its pods come back as they were before. Where they would come back as something else, it is let go: without pods of any
// ReplicaSet, a Deployment that is paused scales the newest one, unless there is one of its template (FindActiveOrLatest in
// pkg/controller/deployment/util of Kubernetes). Where none is left, because of the revisionHistoryLimit, only a stop stays.
func (o observation) deserted() rollout.Step {
	options := rollout.Options{Now: o.Now, Guard: o.guard(nil)}
	next := func(rs *replicaSet) bool {
		return !slices.ContainsFunc(o.sets, func(other *replicaSet) bool { return byAge(rs, other) < 0 })
	}
	if options.Guard == nil || o.deployment.replicas() > 0 && len(o.sets) == 0 && !options.Guard.Stopped() ||
		slices.ContainsFunc(o.sets, func(rs *replicaSet) bool {
			return rs.template.Same(o.deployment.template) || next(rs) && rs.template.Hash != o.deployment.template.Hash
		}) {
		return rollout.Step{}
	}
	return rollout.Next(nil, options)
}

// givesBack reports whether base, which has taken the Deployment's template over, is to have its former one back: the rollout was
// stopped, and is to be reverted, or a kubelet rejects what base makes of that template, again and again.
func (o observation) givesBack(base *replicaSet, guard *rollout.Guard) bool {
	return guard.Stopped() && (guard.Revert || o.Rejections.First() != nil) && base.previous != nil && base.template.Same(o.deployment.template)
}

// madeSince names the pods of base that were made of the template that it has taken over.
func (o observation) madeSince(base *replicaSet) (names []string) {
	for _, pod := range o.podsOf(base) {
		if !base.madeBefore(pod) {
			names = append(names, pod.Name)
		}
	}
	return names
}

// reverting returns the observation whose pods that have the size of the Deployment's template go back: to the template that base has.
func (o observation) reverting(base *replicaSet) observation {
	deployment := *o.deployment
	deployment.template = base.template
	o.deployment, o.Admission, o.back = &deployment, resize.Admission{}, true
	return o
}
