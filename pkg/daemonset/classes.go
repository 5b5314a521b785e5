package daemonset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// readSizes reads the sizes from the set's annotation. It fails if that is malformed.
func (o *observation) readSizes() error {
	classes, err := policy.ReadClasses(o.set.Annotations)
	o.sizes = classes.Sizes(o.revision().Template)
	return err
}

// sizeOf returns the size of a pod by the class of its node; that of the template if it has none.
func (o observation) sizeOf(pod *corev1.Pod) policy.Size {
	return o.sizes.On(o.Places.Node(capacity.TargetNode(pod)))
}

// fit sets what a pod of the newest revision is to have: the size of its node's class or, where it
// has none or that cannot be had in place, the template's.
//
// What is left of a class that its node had before restarts no pod, either, and when a rollout is
// over there is nothing else left. What an edit that was given up has left is taken back first,
// by a restart if need be, whatever the class of the node.
func (o observation) fit(p *judge.Place) (err error) {
	own := o.sizeOf(p.Pod)
	p.Class = own.Class.String()
	unavailable, err := o.fitClass(p, own, o.sizedTo)
	if err != nil {
		return err
	}
	if unavailable != "" {
		p.ClassSizeUnavailable = keepsTemplates(p, unavailable)
		if p.Target, err = o.sizedTo(p.Pod, o.revision().Template); err != nil {
			return err
		}
	}
	left := !o.over() && slices.ContainsFunc(p.Target.Effects, o.givenUp)
	if left && own.Class != nil && unavailable == "" && o.hopeless(p.Target) {
		if p.Target, err = o.sizedTo(p.Pod, o.revision().Template); err != nil {
			return err
		}
	}
	p.InPlaceOnly = o.over() || !left && (own.Class != nil || len(p.Target.Effects) > 0)
	if p.Updated = p.Target.Clean() && !o.toMark(p); !p.InPlaceOnly {
		p.Brings = resize.Describe(p.Target.Changes)
	}
	return nil
}

func keepsTemplates(p *judge.Place, why string) string {
	return fmt.Sprintf("it keeps the template's size, because it cannot get the size of class %s in place on node %s: %s", p.Class, p.Pod.Spec.NodeName, why)
}

// toMark reports whether the pod was unmarked for its restart. If it has its size before that, it is marked again: it would be restarted.
func (o observation) toMark(p *judge.Place) bool { return !p.Labelled && policy.Held(o.set) }

// fitClass has a pod get the size of its node's class, by the target that to returns, and returns why it cannot have that in place; empty if
// it can.
func (o observation) fitClass(p *judge.Place, own policy.Size, to func(*corev1.Pod, *corev1.PodTemplateSpec) (resize.Target, error)) (unavailable string, err error) {
	if own.Unavailable != nil {
		unavailable = own.Unavailable.Error()
	} else {
		if p.Target, err = to(p.Pod, own.Template); err != nil {
			return "", err
		}
		if own.Class != nil {
			unavailable = o.inTheWay(p.Target)
		}
	}
	if refused := o.Notes.Of(p.Pod.UID).Size.Of(o.revision().Size(p.Target.Changes)); refused.Final && unavailable == "" {
		// It may still have the size of another class: it goes back to the template's first.
		if back, err := o.sizedTo(p.Pod, o.revision().Template); err == nil && len(back.Changes) > 0 {
			unavailable = refused.Reason
		}
	}
	return unavailable, nil
}

// over reports whether the rollout of the newest template is over.
func (o observation) over() bool {
	return !policy.Held(o.set) && saysOver(o.set)
}

// sizedTo returns the target that gives a pod of the newest revision this size.
func (o observation) sizedTo(pod *corev1.Pod, sized *corev1.PodTemplateSpec) (resize.Target, error) {
	underWay := policy.Held(o.set) || !rolling(o.set) && !o.over()
	return o.Sized(pod, o.revision(), sized, condition(o.set), underWay)
}

// inTheWay returns why a pod cannot get, or may not be given, the size of its node's class in
// place, as far as that is known before it is asked for; empty if nothing is in the way.
func (o observation) inTheWay(t resize.Target) string {
	may, why := o.Settings.Resolve(t.Effects, o.revision().Template, o.Defaults.ResizePolicy)
	switch {
	case len(t.Obstacles) > 0:
		return strings.Join(t.Obstacles, ", ")
	case may == policy.RestartOnly:
		return why
	case o.Settings.Action == policy.Restart && len(t.Effects) > 0:
		return "the action is Restart"
	default:
		return ""
	}
}

// edit returns the target of a pod of an older revision: the size of the newest template. Values
// that the pod has for the class of its node stay as they are, and so does the pod if the edit is
// about nothing else. Where that cannot be had, the pod gets the template's size first: no pod is
// restarted for the size of a class. Nor is it for going back from that of a class that its node
// had before: that size stays where the edit can be had live with it, and only so.
func (o observation) edit(pod *corev1.Pod, older *corev1.PodTemplateSpec) (resize.Target, error) {
	newer := o.revision().Template
	if o.Notes.Of(pod.UID).ContestLost() {
		return o.Target(pod, older, newer)
	}
	sized := cmp.Or(o.sizeOf(pod).Template, newer)
	target, err := o.By(resize.ForKeeping(pod, older, newer, sized, func(c resize.Change, otherwise bool) bool { return otherwise && !o.edited(c) }))
	if err == nil && sized != newer && o.hopeless(target) {
		sized = newer
		target, err = o.Target(pod, older, sized)
	}
	if may, _ := o.Settings.Resolve(resize.Between(older, newer), newer, o.Defaults.ResizePolicy); err != nil || may == policy.RestartOnly {
		return target, err
	}
	live := func(t resize.Target) bool {
		return o.Live(judge.Place{Name: pod.Name, Pod: pod, Available: o.available(pod), Target: t}, o.options(), o.revision())
	}
	kept, err := o.By(resize.ForKeeping(pod, older, newer, sized, func(c resize.Change, _ bool) bool { return !o.edited(c) }))
	if len(kept.Changes) < len(target.Changes) && policy.WithinLimits(kept.Spec()) && !live(target) && live(kept) {
		return kept, err
	}
	return target, err
}

// hopeless reports whether a pod will not get that size in place.
func (o observation) hopeless(t resize.Target) bool {
	state, _ := t.Observe()
	return slices.Contains([]resize.State{resize.Deferred, resize.Infeasible, resize.Failing}, state) ||
		len(t.Obstacles) > 0 || o.Notes.Of(t.Pod().UID).Size.Of(o.revision().Size(t.Changes)).Final
}

// givenUp reports whether the value that a change of a pod of the newest revision starts from is of another edit.
func (o observation) givenUp(c resize.Change) bool {
	return o.edited(c) && !resize.From(o.revision().Template, c)
}

// edited reports whether the value that a change starts from is of an edit: a revision says it. If
// none does, and we have set it, it is of the class that the pod's node had before.
func (o observation) edited(c resize.Change) bool {
	said := func(r *revision) bool { return r != nil && resize.From(r.template.PodTemplateSpec, c) }
	return c.From == nil || slices.ContainsFunc(slices.Collect(maps.Values(o.revisions)), said)
}
