package daemonset

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// sizes are those of pods by the class of their node, for one plan.
type sizes struct {
	classes policy.Classes
	nodes   map[string]*corev1.Node
	known   map[*policy.Class]size
}

// size is that of the pods of a class: the newest template with the values of the class. Where no
// pod can have it, void says why.
type size struct {
	class    *policy.Class
	template *corev1.PodTemplateSpec
	void     error
}

// readSizes reads the sizes from the set's annotation. It fails if that is malformed.
func (o *observation) readSizes() (err error) {
	o.sizes.classes, err = policy.ReadClasses(o.set.Annotations)
	if err != nil {
		return err
	}
	o.sizes.known = map[*policy.Class]size{}
	o.sizes.nodes = make(map[string]*corev1.Node, len(o.Nodes))
	for _, node := range o.Nodes {
		o.sizes.nodes[node.Name] = node
	}
	return nil
}

// sizeOf returns the size of a pod by the class of its node; that of the template if it has none.
func (o observation) sizeOf(pod *corev1.Pod) size {
	var class *policy.Class
	if node := o.sizes.nodes[capacity.TargetNode(pod)]; node != nil {
		class = o.sizes.classes.Of(node.Labels)
	}
	known, is := o.sizes.known[class]
	if !is {
		known.class = class
		known.template, known.void = class.Size(o.revision().Template)
		o.sizes.known[class] = known
	}
	return known
}

// fit sets what a pod of the newest revision is to have: the size of its node's class or, where it
// has none or that cannot be had in place, the template's.
//
// When a rollout is over, what is left is of a class that the pod has had before: no pod is
// restarted for that, either.
func (o observation) fit(p *rollout.Place) (err error) {
	own := o.sizeOf(p.Pod)
	p.Class, p.InPlaceOnly = own.class.String(), own.class != nil || o.over()
	sized, void := own.template, ""
	if own.void != nil {
		void = own.void.Error()
	} else {
		if p.Target, err = o.sizedTo(p.Pod, sized); err != nil {
			return err
		}
		if own.class != nil {
			void = o.inTheWay(p.Target)
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
	return !policy.Held(o.set) && Kind{}.Unheld(o.set).Over(condition(o.set))
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
	if own.class == nil || own.void != nil || o.Contests.Lost(pod.UID) {
		return o.Target(pod, older, newer)
	}
	kept, err := resize.ForKeeping(pod, older, newer, own.template)
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

// classed says, for the end of a condition's message, how many pods have the size of a class, or
// had it before. It is empty only if none has anything of a class.
func classed(verdicts []*rollout.Verdict) (said string) {
	have, all, back := 0, 0, 0
	for _, v := range verdicts {
		switch m := &v.Member; {
		case rollout.Gone(m.Pod):
		case m.Class != "":
			all++
			have += asInt(m.Updated && m.Void == "")
		default:
			back += asInt(m.InPlaceOnly && !m.Updated)
		}
	}
	switch {
	case all == 0:
	case have == all:
		said = fmt.Sprintf("; %d of them have the size of their node's class", have)
	default:
		said = fmt.Sprintf("; %d of %d have the size of their node's class", have, all)
	}
	if back > 0 {
		said += fmt.Sprintf("; %d of them have yet to go back to the template's size", back)
	}
	return said
}

// hasClasses reports whether pods of the set may have sizes by the class of their node.
func hasClasses(annotations map[string]string) bool {
	return strings.TrimSpace(annotations[api.NodeResourcesAnnotation]) != ""
}
