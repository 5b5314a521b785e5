package daemonset

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// readSizes reads the sizes from the set's annotation. It fails if that is malformed.
func (o *observation) readSizes() error {
	classes, err := policy.ReadClasses(o.set.Annotations)
	o.sizes = classes.Sizes(o.revision().Template)
	return err
}

// sizeOf returns the size of a pod by the class of its node; that of the template if it has none.
func (o observation) sizeOf(pod *corev1.Pod) policy.Size {
	return o.sizes.On(o.Node(capacity.TargetNode(pod)))
}

// fit sets what a pod of the newest revision is to have: the size of its node's class or, where it
// has none or that cannot be had in place, the template's.
//
// When a rollout is over, what is left is of a class that the pod has had before: no pod is
// restarted for that, either.
func (o observation) fit(p *rollout.Place) (err error) {
	own := o.sizeOf(p.Pod)
	p.Class, p.InPlaceOnly = own.Class.String(), own.Class != nil || o.over()
	sized, void := own.Template, ""
	if own.Void != nil {
		void = own.Void.Error()
	} else {
		if p.Target, err = o.sizedTo(p.Pod, sized); err != nil {
			return err
		}
		if own.Class != nil {
			void = o.inTheWay(p.Target)
		}
	}
	if refused := o.Refused.Of(p.Pod.UID, o.revision().Size(p.Target.Changes)); refused.Final && void == "" {
		// It may still have the size of another class: it goes back to the template's first.
		if back, err := o.sizedTo(p.Pod, o.revision().Template); err == nil && len(back.Changes) > 0 {
			void = refused.Reason
		}
	}
	if void != "" {
		p.Void = fmt.Sprintf("it has the template's size: it cannot have that of class %s in place on node %s: %s", p.Class, p.Pod.Spec.NodeName, void)
		if p.Target, err = o.sizedTo(p.Pod, o.revision().Template); err != nil {
			return err
		}
	}
	if p.Updated = p.Target.Clean(); !p.InPlaceOnly {
		p.Brings = resize.Describe(p.Target.Changes)
	}
	return nil
}

// over reports whether the rollout of the newest template is over.
func (o observation) over() bool {
	return !policy.Held(o.set) && over(o.set)
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
// restarted for the size of a class.
func (o observation) edit(pod *corev1.Pod, older *corev1.PodTemplateSpec) (resize.Target, error) {
	newer, own := o.revision().Template, o.sizeOf(pod)
	if own.Class == nil || own.Void != nil || o.Contests.Lost(pod.UID) {
		return o.Target(pod, older, newer)
	}
	kept, err := resize.ForKeeping(pod, older, newer, own.Template)
	if err != nil {
		return kept, err
	}
	state, _ := kept.Observe()
	hopeless := slices.Contains([]resize.State{resize.Deferred, resize.Infeasible, resize.Failing}, state)
	if hopeless || len(kept.Obstacles) > 0 || o.Refused.Of(pod.UID, o.revision().Size(kept.Changes)).Final {
		return o.Target(pod, older, newer)
	}
	return kept, nil
}
