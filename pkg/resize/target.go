package resize

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubectl/pkg/util/qos"
)

// Target is the size that one pod must have, compared with what the pod has now.
type Target struct {
	// Changes lead from the pod's spec to the wanted size; none if the spec has it.
	Changes []Change
	// Effects lead from what the kubelet has allocated and applied to the wanted size; none
	// if the pod runs with it. A size that was asked for and not carried out is not counted
	// as what the pod has.
	Effects []Change
	// Obstacles are the reasons, known before any request, for which the API server
	// or the kubelet would not bring this pod to the wanted size in place. With any
	// of them only a new pod can have it.
	Obstacles []string
	// Unproved: nothing is in the way but values that the template says no more, and it is not known whether new pods
	// have them all the same. See [Target.Knowing].
	Unproved bool
	// Absent are the containers that the template sizes and the pod does not have: an injector has dropped or renamed
	// them, and would do so in a new pod. Their size is not the rollout's.
	Absent []string

	// Resized is when we last resized the pod, for this edit or another; zero if never.
	Resized time.Time
	// Others are the field managers, such as an autoscaler's, that have resized the pod too,
	// and own values that the template says.
	Others []string
	// Displaced lead from what the older template says to the wanted size, where somebody else has given the pod
	// another one, at its birth or later. Who does that for a while puts back what the older template says.
	Displaced []Change
	// Overrules: a change takes back what one of the others has set.
	Overrules bool
	// Conceded: what others have set again and again stays, though the wanted size is another one.
	Conceded bool

	pod     *corev1.Pod // as observed
	kubelet Kubelet     // that looks after it
	named   []part      // of the pod, that the template names
	wants   []part      // of the template; nil where the changes alone are wanted
	born    []Change    // lead, with Changes, from the pod's spec to that of a new pod
	filled  []Change    // take out what LimitRanges have filled in, and the template does not say
	removed []Change    // take out what the template says no more, each with an obstacle
	back    []Change    // of containers, to what the edit does not change, in place of what we have set before
	class   bool        // an obstacle is the QoS class
	lowered bool        // admission gave the pod a lower request at its birth than the older template says, with its limit
	asked   bool        // somebody has resized the pod
	trusted bool        // see Trusting
}

// For returns the size that pod, made from the older template, must have to be
// one of the newer. It fails if the pod's managedFields cannot be read.
//
// What the newer template says, after Kubernetes' own defaulting of pods, is set where it
// differs from the older one, and where anybody has set another value through the resize
// subresource. What only the older one says, or what we had set for an edit that was given up,
// would have to be removed. The API server refuses that, so it is an obstacle.
// Everything else stays as it is: admission gave it to the pod at its birth.
//
// So it does not matter how far an edit that was given up has come: for A→C→D, where a pod
// of A has C's cpu already, D's cpu is set even if A and D have the same.
//
// See the table of the package for what is done where admission has changed a value that is edited.
func For(pod *corev1.Pod, older, newer *corev1.PodTemplateSpec) (Target, error) {
	return edit(pod, older, newer, func(value) bool { return true })
}

// ForBut is like [For], but leaves what others have set through the resize subresource.
func ForBut(pod *corev1.Pod, older, newer *corev1.PodTemplateSpec) (Target, error) {
	return edit(pod, older, newer, func(v value) bool { return v.by.other == "" })
}

// ForKeeping is like [For], for a pod that is to have the size of sized next: a copy of the newer template in which some values are
// others. A pod that has all of that keeps what others have not set. Another one keeps what we have set before, and pods of the older
// template have otherwise, where keeps says so: of a change, and of whether sized has another value than the newer template. So an edit of
// values that sized has otherwise changes nothing in a pod that has them so already.
func ForKeeping(pod *corev1.Pod, older, newer, sized *corev1.PodTemplateSpec, keeps func(c Change, otherwise bool) bool) (Target, error) {
	others, has := parts(&sized.Spec), sized != newer && Has(pod, sized)
	return edit(pod, older, newer, func(v value) bool {
		if has && v.by.other == "" {
			return !v.otherwiseIn(others)
		}
		return !v.by.ours || v.From == nil || same(v.From, v.was) || !keeps(v.Change, v.otherwiseIn(others))
	})
}

// Whole is like [For], for a pod of which it is not known what it was made from: all that the newer template says is set.
func Whole(pod *corev1.Pod, older, newer *corev1.PodTemplateSpec) (Target, error) {
	return target(pod, older, newer, func(value) bool { return true })
}

// Has reports whether a pod has all values that a template says.
func Has(pod *corev1.Pod, template *corev1.PodTemplateSpec) bool {
	t, err := Whole(pod, template, template)
	return err == nil && len(t.Changes) == 0
}

// From reports whether the pods of the template have the value that a change starts from.
func From(template *corev1.PodTemplateSpec, c Change) bool {
	return slices.ContainsFunc(parts(&template.Spec), func(p part) bool {
		return p.name == c.Container && same(p.wanted(c.Side, c.Resource), c.From)
	})
}

// Leftover returns the target that takes back what an edit that was given up has left in a
// pod of template's revision: for A→C→A, C's values in a pod that has been one of A all the
// time. Only values that we have set are taken back. All others are somebody else's, such as
// a vertical autoscaler's or an admission webhook's. It fails as [For] does.
func Leftover(pod *corev1.Pod, template *corev1.PodTemplateSpec) (Target, error) {
	return Sized(pod, template, template)
}

// Sized is like [Leftover], for a pod that is to have the size of sized: a copy of its template in
// which some values are others. These are set as those of an edit, unless somebody else has set them.
func Sized(pod *corev1.Pod, template, sized *corev1.PodTemplateSpec) (Target, error) {
	return ForBut(pod, template, sized)
}

// SizedSince is like [Sized], for a rollout that has begun at that time. It takes back what others
// have set through the resize subresource since then, too: on an edit the template wins.
func SizedSince(pod *corev1.Pod, template, sized *corev1.PodTemplateSpec, began time.Time) (Target, error) {
	return edit(pod, template, sized, func(v value) bool { return v.by.other == "" || !v.by.at.Before(began) })
}

// value is one that the pod has, or the newer template wants.
type value struct {
	Change // from what the pod has

	kind    kind
	was, is *resource.Quantity // in pods of the older template, and of the newer one
	by      owner              // of what the pod has
	follows bool               // from values of containers that change
}

// edited reports whether the value is to be the newer template's: that says another one than the older, or the pod
// does not have it from its birth. What admission took away at its birth stays away: a new pod would lack it, too, and
// nobody could take it away again.
func (v value) edited() bool {
	switch {
	case v.by != owner{}:
		return true
	case v.was != nil && v.From == nil:
		return false
	default:
		return v.follows || !same(v.was, v.is)
	}
}

// admitted reports whether admission gave the pod another value at its birth than the older template says.
func (v value) admitted() bool { return v.by == owner{} && v.was != nil && !same(v.From, v.was) }

// lowered reports whether the value is a container's request that admission lowered at the pod's birth.
func (v value) lowered() bool {
	return v.Side == Request && v.kind != podLevel && v.admitted() && v.From != nil && v.From.Cmp(*v.was) < 0
}

// otherwiseIn reports whether the containers of another template have another value.
func (v value) otherwiseIn(other []part) bool {
	p := counterpart(other, part{name: v.Container})
	return v.kind != podLevel && (p == nil || !same(p.wanted(v.Side, v.Resource), v.To))
}

// edit returns the target of an edit, of which sets leaves out some values.
//
// Where admission decides about the QoS class, so that the pod has another one than its template says, or lowers
// requests and leaves their limits, it would do so with a new pod, too. So what it changed stays, if the class would
// change otherwise: of a template with requests of cpu 1 and memory 1Gi and equal limits, pods have requests of 250m and
// 256Mi. When all four values are doubled, the limits are, and the requests stay.
//
// A request that admission changed does not stay above a limit that is edited, nor a limit below a request: no pod can
// have that, a new one neither.
func edit(pod *corev1.Pod, older, newer *corev1.PodTemplateSpec, sets func(value) bool) (Target, error) {
	edited := func(v value) bool { return v.edited() && sets(v) }
	t, err := target(pod, older, newer, edited)
	if err == nil && t.class && (qos.GetPodQOS(pod) != qos.ComputePodQOS(&corev1.Pod{Spec: *Defaulted(older)}) || t.lowered) {
		edited = func(v value) bool { return v.edited() && !v.admitted() && sets(v) }
		t, err = target(pod, older, newer, edited)
	}
	if err != nil {
		return t, err
	}
	if spec := t.Spec(); aboveLimit(spec, "", "") {
		return target(pod, older, newer, func(v value) bool {
			return edited(v) || v.admitted() && sets(v) && aboveLimit(spec, v.Container, v.Resource)
		})
	}
	return t, nil
}

// aboveLimit reports whether a container requests more of something than its limit; without names, whether any does.
func aboveLimit(spec *corev1.PodSpec, container string, name corev1.ResourceName) bool {
	return slices.ContainsFunc(parts(spec), func(p part) bool {
		return p.kind != podLevel && (container == "" || p.name == container) && slices.ContainsFunc(resizable, func(r corev1.ResourceName) bool {
			request, limit := p.value(Request, r), p.value(Limit, r)
			return (name == "" || r == name) && request != nil && limit != nil && request.Cmp(*limit) > 0
		})
	})
}

func target(pod *corev1.Pod, older, newer *corev1.PodTemplateSpec, sets func(value) bool) (Target, error) {
	set, err := ownersOf(pod)
	if err != nil {
		return Target{}, err
	}
	mine, was, template := parts(&pod.Spec), parts(&older.Spec), parts(&newer.Spec)
	t := Target{Resized: set.last(), pod: pod, asked: asked(pod), wants: template}
	for _, want := range template {
		if want.kind == podLevel {
			continue
		}
		have := counterpart(mine, want)
		if have == nil {
			if resizableOf(want.requirements.Requests) != nil || resizableOf(want.requirements.Limits) != nil {
				t.Absent = append(t.Absent, want.name)
			}
			continue
		}
		t.apply(*have, want, want, counterpart(was, want), set.in(*have), sets)
		t.named = append(t.named, *have)
	}
	t.applyPod(&older.Spec, &newer.Spec, set, sets)
	t.filled = filled(pod, mine, template)
	t.checkPod()
	return t, nil
}

// apply notes the changes from have to the wanted values, and as obstacles those values of have
// that cannot be removed. Where sets says no of a value, it stays. Was and is are of pods of the older and the
// newer template, as nobody has changed them.
func (t *Target) apply(have, want, is part, was *part, set owners, sets func(value) bool) {
	for _, name := range resizable {
		for _, side := range sides {
			c, by := Change{have.name, name, side, have.value(side, name), want.wanted(side, name)}, set.of(side, name)
			v := value{Change: c, kind: have.kind, is: is.wanted(side, name), by: by}
			if was != nil {
				v.was = was.wanted(side, name)
				t.lowered = t.lowered || v.lowered() && (same(have.value(Limit, name), was.value(Limit, name)) || set.of(Limit, name).ours)
			}
			if c.To != nil {
				t.name(by)
			}
			switch {
			case c.To != nil && sets(v):
				t.set(have, v)
			case c.To != nil:
				t.born = appendChange(t.born, c)
			case c.From == nil:
			case by.ours && !sets(v):
				t.born = append(t.born, c)
			case by.ours, v.was != nil:
				t.Effects, t.born, t.removed = append(t.Effects, c), append(t.born, c), append(t.removed, c)
				t.obstruct("%s", isRemoved(c))
			}
		}
	}
}

// set notes that a value of have is to be another one, and what that takes back.
func (t *Target) set(have part, v value) {
	t.change(have, v)
	t.displace(v)
	if v.by.ours && same(v.was, v.is) {
		t.back = append(t.back, v.Change)
	}
}

// change notes that a value of have is to be another one.
func (t *Target) change(have part, v value) {
	c := v.Change
	t.Changes = appendChange(t.Changes, c)
	t.Overrules = t.Overrules || v.by.other != "" && !same(c.From, c.To)
	if c.Resource == corev1.ResourceMemory && c.To.MilliValue()%1000 != 0 {
		t.obstruct("%s: memory %s %s is not a whole number of bytes", have.label(), c.Side, c.To)
	}
	c.From = t.inForce(have, v)
	t.Effects = appendChange(t.Effects, c)
}

// name notes the owner of a wanted value, if it is somebody else.
func (t *Target) name(by owner) {
	if by.other != "" && !slices.Contains(t.Others, by.other) {
		t.Others = append(t.Others, by.other)
	}
}

// applyPod is apply for the resources of the pod as a whole. What the newer template does not say of them follows from the wanted size of the pod's containers,
// injected ones too, as it did when the pod was made.
//
// A value that only follows, and that the pod lacks, is not asked for: an API server that
// fills it in does so when it takes the resize, and an older one never does.
func (t *Target) applyPod(older, newer *corev1.PodSpec, set owners, sets func(value) bool) {
	says := newer.Resources
	if says == nil && t.pod.Spec.Resources == nil {
		return
	}
	have := part{kind: podLevel, requirements: cmp.Or(t.pod.Spec.Resources, &corev1.ResourceRequirements{})}
	want := part{kind: podLevel, requirements: &corev1.ResourceRequirements{}}
	if says != nil {
		full := *t.Spec()
		full.Resources = says.DeepCopy()
		defaultPod(&full)
		want.requirements = full.Resources
		for _, side := range sides {
			maps.DeleteFunc(*side.of(want.requirements), func(name corev1.ResourceName, _ resource.Quantity) bool {
				return lookup(*side.of(says), name) == nil && have.value(side, name) == nil
			})
		}
		t.named = slices.Insert(t.named, 0, have)
	}
	was, is := WithOwnLists(older), WithOwnLists(newer)
	setDefaults(was)
	setDefaults(is)
	newest := part{kind: podLevel, requirements: cmp.Or(is.Resources, &corev1.ResourceRequirements{})}
	changes, effects := t.Changes, t.Effects // of the containers: those of the pod come first
	t.Changes, t.Effects = nil, nil
	defer func() { t.back = nil }() // it has been worked out from the template's values of the containers
	t.apply(have, want, newest, counterpart(parts(was), want), set.in(want), func(v value) bool {
		said := says != nil && lookup(*v.Side.of(says), v.Resource) != nil
		v.follows = !said && slices.ContainsFunc(changes, func(c Change) bool { return c.Resource == v.Resource })
		return sets(v)
	})
	t.Changes, t.Effects = append(t.Changes, changes...), append(t.Effects, effects...)
}

// checkPod notes as obstacles what the API server has against a resize of this pod
// (ValidatePodResize in pkg/apis/core/validation of Kubernetes).
func (t *Target) checkPod() {
	if len(t.Changes) == 0 {
		return
	}
	if _, mirror := t.pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		t.obstruct("static pods cannot be resized")
	}
	if windows(t.pod) {
		t.obstruct("windows pods cannot be resized")
	}
	for _, p := range t.named {
		if p.kind == initContainer && !p.sidecar() && t.changes(p) && (p.restartsFor(corev1.ResourceCPU) || p.restartsFor(corev1.ResourceMemory)) {
			t.obstruct("init container %s with the resize policy RestartContainer cannot be resized", p.name)
		}
	}
	before, after := qos.GetPodQOS(t.pod), qos.ComputePodQOS(&corev1.Pod{Spec: *t.Spec()})
	if t.class = before != after; t.class {
		t.obstruct("%s from %s to %s", classChange, before, after)
	}
}

// classChange begins the obstacle that is the QoS class.
const classChange = "the QoS class would change"

// Unreported reports whether a container runs whose resources the kubelet does not report.
// The API server takes no resize of such a pod.
func (t Target) Unreported() bool {
	return slices.ContainsFunc(t.pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil && s.Resources == nil
	})
}

func windows(pod *corev1.Pod) bool {
	return pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows ||
		pod.Spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows)
}

func (t *Target) changes(p part) bool {
	return slices.ContainsFunc(t.Changes, func(c Change) bool { return c.Container == p.name })
}

// Spec returns the pod's spec with the wanted size. It is shared: do not change it.
func (t Target) Spec() *corev1.PodSpec { return withChanges(&t.pod.Spec, t.Changes...) }

// Beside returns what admission has changed beside what was asked for, in the pod as it has come back from a resize to the target: the
// changes that take it back. They are of values that the template says, and that the pod had so.
//
// The API server records who has set a value before it asks admission. So one that admission alone has set looks like one
// that the pod has from its birth, and stays. Once asked for, it is ours: see [Target.Owing].
func (t Target) Beside(resized *corev1.Pod) (beside []Change) {
	asked := parts(t.Spec())
	for _, have := range parts(&resized.Spec) {
		was, says := counterpart(asked, have), counterpart(t.wants, have)
		if was == nil || says == nil {
			continue
		}
		for _, c := range differing(have, *was) {
			if c.To != nil && same(c.To, says.wanted(c.Side, c.Resource)) && !slices.ContainsFunc(t.Changes, c.of) {
				beside = append(beside, c)
			}
		}
	}
	return beside
}

// Owing returns the target that takes back what admission has changed in the pod beside an earlier resize, too, as far as that is
// so still, and no container is restarted for it.
func (t Target) Owing(beside []Change) Target {
	var owed []Change
	for _, c := range beside {
		have, says := counterpart(t.named, part{name: c.Container}), counterpart(t.wants, part{name: c.Container})
		if have == nil || says == nil || have.restartsFor(c.Resource) || slices.ContainsFunc(t.Changes, c.of) {
			continue
		}
		if same(have.value(c.Side, c.Resource), c.From) && same(says.wanted(c.Side, c.Resource), c.To) {
			owed = append(owed, c)
		}
	}
	return t.setting(owed)
}

// Missed returns the changes that are still to be made in the pod as it has come back from a
// resize to the target.
func (t Target) Missed(resized *corev1.Pod) []Change {
	var missed []Change
	now := parts(&resized.Spec)
	for _, p := range t.named {
		have := counterpart(now, p)
		for _, c := range t.Changes {
			if c.Container != p.name {
				continue
			}
			if have != nil { // the pod's own resources may have been left out as a whole
				c.From = have.value(c.Side, c.Resource)
			}
			missed = appendChange(missed, c)
		}
	}
	return missed
}

// Newborn returns the spec of the pod that would come in this one's place, as far as that is
// known before. It has what the template says, and what else admission gave to this pod. It
// has nothing that only the older template said, or that an edit has set that was given up.
// If unfilled is set, it lacks what LimitRanges have filled in, as a new pod does before
// their admission plugin sees it. The spec is shared: do not change it.
func (t Target) Newborn(unfilled bool) *corev1.PodSpec {
	changes := slices.Concat(t.Changes, t.born)
	if unfilled {
		changes = append(changes, t.filled...)
	}
	return withChanges(&t.pod.Spec, changes...)
}

// Removed are the changes that take out what the template says no more: only a new pod is without.
func (t Target) Removed() []Change { return t.removed }

// Restarts reports whether a container that runs would be restarted, in place, for what
// changes. A container that waits to be started, as in a crash loop, does not count.
func (t Target) Restarts() bool { return t.restartsFor(t.sets) }

// WillRestart is like Restarts, for what the wanted size has and the kubelet has not carried out, whether the pod's spec asks for it
// already or not. What the kubelet does not report counts as such.
func (t Target) WillRestart() bool {
	return t.restartsFor(func(p part, side Side, name corev1.ResourceName) bool {
		value := p.value(side, name)
		return value != nil && !t.carriedOut(p, side, name, *value)
	})
}

// restartsFor reports whether a container that runs, an injected one too, is restarted for values that change.
func (t Target) restartsFor(changes func(part, Side, corev1.ResourceName) bool) bool {
	all := t.parts()
	return slices.ContainsFunc(all, func(p part) bool {
		status := t.status(p)
		return status != nil && status.State.Running != nil && p.restartedFor(all, changes)
	})
}

// parts are those of the pod with the wanted size.
func (t Target) parts() []part {
	if t.pod == nil {
		return nil
	}
	return parts(t.Spec())
}

// sets reports whether a value of p changes.
func (t Target) sets(p part, side Side, name corev1.ResourceName) bool {
	return slices.ContainsFunc(t.Changes, Change{Container: p.name, Resource: name, Side: side}.of)
}

// GivesRoom reports whether the changes ask for less of something, and for more of nothing.
func (t Target) GivesRoom() bool {
	return len(t.Changes) > 0 && !slices.ContainsFunc(t.Changes, func(c Change) bool {
		return c.From == nil || c.To == nil || c.To.Cmp(*c.From) > 0
	})
}

// AsksForMore reports whether the wanted size asks for more of something than the pod has: than its spec
// says, or its kubelet has allocated and applied.
func (t Target) AsksForMore() bool {
	return slices.ContainsFunc(slices.Concat(t.Changes, t.Effects), func(c Change) bool { return c.To != nil && (c.From == nil || c.To.Cmp(*c.From) > 0) })
}

// Takes reports whether the pod gets less of something than it has in force, or a limit that it lacks:
// that can break it, where more of everything cannot.
func (t Target) Takes() bool {
	return slices.ContainsFunc(t.Effects, func(c Change) bool {
		return c.To == nil || c.From == nil && c.Side == Limit || c.From != nil && c.To.Cmp(*c.From) < 0
	})
}

func (t *Target) obstruct(format string, args ...any) {
	obstacle := fmt.Sprintf(format, args...)
	if !slices.Contains(t.Obstacles, obstacle) {
		t.Obstacles = append(t.Obstacles, obstacle)
	}
}

// Back returns the target that brings a pod back to the size that is in force in it, after it
// was asked for the wanted size and has not taken it. A value that was added stays: it cannot be
// removed. Without any other there are no changes.
//
// The kubelet does not look again at a size that it has called infeasible. It does if the
// pod is asked for what it has, and then for that size once more.
func (t Target) Back() Target {
	back := t
	back.Changes = nil
	for _, c := range t.Effects {
		if len(t.Changes) == 0 && c.From != nil && c.To != nil {
			back.Changes = append(back.Changes, Change{c.Container, c.Resource, c.Side, c.To, c.From})
		}
	}
	return back
}

// Patch returns the strategic merge patch for the pod's resize subresource: the values
// that change and no others. The pod's version is a precondition: the size was worked out from
// that one, and a request may arrive late. The patch is nil if the pod's spec has the wanted size already.
func (t Target) Patch() ([]byte, error) {
	if len(t.Changes) == 0 {
		return nil, nil
	}
	spec := map[string]any{}
	for _, p := range t.named {
		changed := t.changed(p)
		if changed == nil {
			continue
		}
		switch p.kind {
		case podLevel:
			spec["resources"] = changed
		case initContainer:
			spec["initContainers"] = appendContainer(spec["initContainers"], p.name, changed)
		case regularContainer:
			spec["containers"] = appendContainer(spec["containers"], p.name, changed)
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": t.pod.UID, "resourceVersion": t.pod.ResourceVersion},
		"spec":     spec,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the resize of pod %s: %w", t.pod.Name, err)
	}
	return patch, nil
}

func appendContainer(list any, name string, changed *corev1.ResourceRequirements) []any {
	containers, _ := list.([]any)
	return append(containers, map[string]any{"name": name, "resources": changed})
}

// changed returns the wanted values of p that differ from the pod's spec; nil if none do.
func (t Target) changed(p part) *corev1.ResourceRequirements {
	var only corev1.ResourceRequirements
	for _, c := range t.Changes {
		if c.Container == p.name {
			setValue(c.Side.of(&only), c.Resource, *c.To)
		}
	}
	if only.Requests == nil && only.Limits == nil {
		return nil
	}
	return &only
}
