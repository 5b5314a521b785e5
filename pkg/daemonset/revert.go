package daemonset

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// former returns the revision of most of the pods that are not of the newest one; empty if there are none.
func (o observation) former() string {
	return revisions.Former(o.pods, func(pod *corev1.Pod) bool {
		r := o.revisions[revisions.HashOf(pod)]
		return !rollout.Gone(pod) && r != nil && r != o.newest && r.template.Differs(o.newest.template) == ""
	})
}

// goBack completes the place of a pod that goes back to the revision that it is of.
func (o observation) goBack(p *rollout.Place, of *revision) error {
	history := *o.history
	history.newest = of
	o.history = &history
	if err := o.readSizes(); err != nil {
		return err
	}
	p.Labelled = true
	return o.fit(p)
}

// revert plans the way back of the pods that have the size of the newest revision: to that of the revision that each is of. The
// set stays held, and its template is not written.
func (o observation) revert(options rollout.Options, former *revision) (rollout.Plan, error) {
	guard := options.Guard
	forth, err := o.verdicts(o.look(options))
	if err != nil {
		return rollout.Plan{}, err
	}
	set, history := *o.set, *o.history
	set.Annotations = maps.Clone(set.Annotations)
	delete(set.Annotations, appsv1.DeprecatedTemplateGeneration) // the labels of the newest one count for nothing
	o.failed, history.newest = o.newest, former
	o.set, o.history = &set, &history
	if err := o.readSizes(); err != nil {
		return rollout.Plan{}, err
	}
	options = options.Back()
	look := o.look(options)
	back, err := o.verdicts(look)
	if err != nil {
		return rollout.Plan{}, err
	}
	return rollout.Plan{Step: rollout.Next(rollout.Reverting(back, forth), options)}.Revert(guard, o.revision(), o.newest.hash, look.Found()), nil
}
