package simulated

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/qos"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Hands change what the template says, or what becomes of it: see the table in pkg/resize/doc.go. The zero value changes
// nothing.
type Hands struct {
	// Proxy is what becomes, at birth, of the template's container of that name, Adds what is injected beside it, and
	// Values what admission makes of the app's values.
	Proxy, Adds, Values string
	// Answers are how the kubelets of the nodes answer, by the node's name; "" is as usual.
	Answers map[string]string
	// Fits is the most cpu that a new pod may have: its kubelet rejects others. 0 is any.
	Fits int
	// Deletes: a controller deletes each pod whose requests are not those that it was born with, as Kueue does.
	Deletes bool
}

// What hands do.
const (
	moved, dropped, renamed               = "moved to the init containers", "dropped", "renamed"
	plain, sizedToo                       = "without a size", "with a size"
	share, noLimit, filledIn, requestsToo = "request: half of the limit", "cpu limit dropped", "memory limit filled in", "memory request of its own"
	byWebhook, byLimitRange               = "a webhook has a default limit of memory", "a LimitRange has one"
	noQuota, another, mirrored, deaf      = "reports no new cpu limit", "reports another cpu limit", "observes the generation of another pod", "does nothing"
)

// DrawHands draws what hands do. The nodes have these names.
func DrawHands(t *rapid.T, nodes ...string) Hands {
	h := Hands{
		Proxy:   rapid.SampledFrom([]string{"", moved, moved, dropped, renamed}).Draw(t, "proxy"),
		Adds:    rapid.SampledFrom([]string{"", "", plain, sizedToo}).Draw(t, "adds"),
		Values:  rapid.SampledFrom([]string{"", "", share, noLimit, filledIn, requestsToo, byWebhook, byLimitRange}).Draw(t, "values"),
		Answers: map[string]string{},
	}
	for _, node := range nodes {
		h.Answers[node] = rapid.SampledFrom([]string{"", "", noQuota, another, mirrored, deaf}).Draw(t, "answers")
	}
	h.Fits = rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "fits")
	h.Deletes = rapid.IntRange(0, 5).Draw(t, "deletes") == 5
	return h
}

// admit is what mutating admission makes of a new pod.
func (h Hands) admit(pod *corev1.Pod) {
	spec := &pod.Spec
	for i := range spec.Containers {
		if r := &spec.Containers[i].Resources; (h.Values == byWebhook || h.Values == byLimitRange) && r.Limits.Memory().IsZero() {
			if r.Limits == nil {
				r.Limits = corev1.ResourceList{}
			}
			r.Limits[corev1.ResourceMemory], r.Requests[corev1.ResourceMemory] = defaultLimit, defaultLimit
		}
	}
	if i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == proxy }); i >= 0 && h.Proxy != "" {
		c := spec.Containers[i]
		spec.Containers = slices.Delete(spec.Containers, i, i+1)
		switch h.Proxy {
		case moved:
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			spec.InitContainers = append(spec.InitContainers, c)
		case renamed:
			c.Name = "injected"
			spec.Containers = append(spec.Containers, c)
		}
	}
	if h.Adds != "" {
		c := corev1.Container{Name: "added", Image: "added:1"}
		if h.Adds == sizedToo {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
		}
		spec.Containers = append(spec.Containers, c)
	}
	r := &spec.Containers[0].Resources
	switch limit, limited := r.Limits[corev1.ResourceCPU]; {
	case h.Values == share && limited:
		r.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity((limit.MilliValue()+1)/2, resource.DecimalSI)
	case h.Values == noLimit:
		delete(r.Limits, corev1.ResourceCPU)
	case h.Values == filledIn && limited && r.Limits.Memory().IsZero():
		r.Limits[corev1.ResourceMemory], r.Requests[corev1.ResourceMemory] = resource.MustParse("100Mi"), resource.MustParse("100Mi")
		pod.Annotations = map[string]string{resize.LimitRangerAnnotation: "LimitRanger plugin set: memory request for container app; memory limit for container app"}
	case h.Values == requestsToo:
		r.Requests[corev1.ResourceMemory] = resource.MustParse("512Ki")
	}
	pod.Status.QOSClass = qos.ComputePodQOS(pod)
}

// givesBack has admission give new pods a limit that an edit removes. One pod is restarted, which shows that, also by the clock of an API
// server that is behind the one that made the others. They get it in place, and keep it when something else is edited.
func (g Guarded) givesBack(t *testing.T) {
	t.Helper()
	for i, edit := range []Version{{Image: 1, CPU: 1, Memory: 2}, {Image: 1, CPU: 2}, {Image: 1, CPU: 3}} {
		before, kept := g.UIDs(), 0
		g.Edit(edit)
		g.Rounds(60)
		for name, pod := range g.Pods {
			kept += asInt(pod.UID == before[name])
			must.Equal(t, SizeOf(pod), (Version{CPU: edit.CPU, Memory: max(edit.Memory, 1)}), "%v: the size of %s", edit, name)
		}
		if c := g.Condition(); kept != len(before)-i%2 || !c.Complete() {
			t.Errorf("%v: %d of %d pods are as before: %+v", edit, kept, len(before), c)
		}
		g.HandsOn(Hands{Values: byWebhook})
		g.Ahead -= 10 * time.Minute
	}
}

// defaultLimit is what some hands give to containers without a limit of memory; a version has it, too.
var defaultLimit = resource.MustParse("1Mi")

// Ranges are the LimitRanges that have a hand in it.
func (h Hands) Ranges() []corev1.LimitRange {
	if h.Values != byLimitRange {
		return nil
	}
	list := corev1.ResourceList{corev1.ResourceMemory: defaultLimit}
	return []corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Default: list, DefaultRequest: list},
	}}}}
}

// HandsOn has hands change what happens from now on.
func (c *Cluster) HandsOn(h Hands) {
	c.Hands, c.Rejects = &h, h.Rejects
	for node, how := range h.Answers {
		if how != "" {
			c.misreporting = append(c.misreporting, node)
		}
	}
}

// HandsOff has kubelets answer as usual, and nobody delete or reject pods.
func (c *Cluster) HandsOff() { c.Hands.Answers, c.Hands.Fits, c.Hands.Deletes = nil, 0, false }

// proxy is the second container of some templates.
const proxy = "proxy"

// born is what is known of a pod since its birth.
type born struct {
	said, is map[value]int64 // before admission, and after
	asked    map[value]bool  // what has been set through resize
}

// value is one of a container, in whichever list that stands.
type value struct {
	container, side string
	resource        corev1.ResourceName
}

func values(spec *corev1.PodSpec) map[value]int64 {
	all := map[value]int64{}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for side, list := range map[string]corev1.ResourceList{"request": c.Resources.Requests, "limit": c.Resources.Limits} {
			for name, quantity := range list {
				all[value{c.Name, side, name}] = quantity.MilliValue()
			}
		}
	}
	return all
}

// names are those of the containers of a list.
func names(list []corev1.Container) []string {
	return build.Each(list, func(c corev1.Container) string { return c.Name })
}

// sameContainers reports whether two pods have the same, in the same lists.
func sameContainers(a, b *corev1.Pod) bool {
	return slices.Equal(names(a.Spec.Containers), names(b.Spec.Containers)) && slices.Equal(names(a.Spec.InitContainers), names(b.Spec.InitContainers))
}

// bear has admission make of a new pod what it does.
func (c *Cluster) bear(pod *corev1.Pod) {
	if c.births[pod.UID] != nil {
		return
	}
	b := &born{said: values(&pod.Spec), asked: map[value]bool{}}
	if c.Hands != nil {
		c.Hands.admit(pod)
	}
	b.is = values(&pod.Spec)
	c.births[pod.UID] = b
}

// next is the pod that would come of the template now.
func (c *Cluster) next(template *corev1.PodTemplateSpec) *corev1.Pod {
	pod := NewPod("", "next", template)
	if c.Hands != nil {
		c.Hands.admit(pod)
	}
	return pod
}

// Lacks says what a pod lacks of what the template says, but for what nobody has edited since its birth, or admission has
// made another one then, and what a new one would not have, either.
func (c *Cluster) Lacks(pod *corev1.Pod, template *corev1.PodTemplateSpec) string {
	b, has, would := c.births[pod.UID], values(&pod.Spec), values(&c.next(template).Spec)
	there := append(names(pod.Spec.Containers), names(pod.Spec.InitContainers)...)
	for v, want := range values(resize.Defaulted(template)) {
		if slices.Contains(there, v.container) && has[v] != want && has[v] != would[v] && b.said[v] != want && (has[v] != b.is[v] || b.is[v] == b.said[v]) {
			return fmt.Sprintf("%s has %d as the %s %s of %s, not %d", pod.Name, has[v], v.resource, v.side, v.container, want)
		}
	}
	return ""
}

// Unedited says which value a resize by us changes that the edit from one template to another does not, and no resize
// has set before.
func (c *Cluster) Unedited(old, pod *corev1.Pod, from, to *corev1.PodTemplateSpec) string {
	b, was := c.births[pod.UID], values(&old.Spec)
	said, says := values(resize.Defaulted(from)), values(resize.Defaulted(to))
	for v, is := range values(&pod.Spec) {
		if had, there := was[v]; (!there || had != is) && said[v] == says[v] && !b.asked[v] {
			return fmt.Sprintf("the %s %s of container %s is made %d in %s, which nobody has edited", v.resource, v.side, v.container, is, pod.Name)
		}
	}
	return ""
}

// resized notes what is set.
func (c *Cluster) resized(old, pod *corev1.Pod) {
	was := values(&old.Spec)
	for v, is := range values(&pod.Spec) {
		if had, there := was[v]; !there || had != is {
			c.births[pod.UID].asked[v] = true
		}
	}
}

// answers is how the pod's kubelet answers.
func (c *Cluster) answers(pod *corev1.Pod) string {
	if c.Hands == nil {
		return ""
	}
	return c.Hands.Answers[pod.Spec.NodeName]
}

// Rejects reports whether the pod's kubelet rejects it.
func (h *Hands) Rejects(pod *corev1.Pod) bool { return h.Fits > 0 && SizeOf(pod).CPU > h.Fits }

// truth is what is in force in a pod whose kubelet says another thing.
type truth struct{ init, regular []corev1.ContainerStatus }

// report has the status say what the pod's kubelet says, which was before.
func (c *Cluster) report(before, pod *corev1.Pod) {
	how := c.answers(pod)
	if how == "" || how == deaf {
		delete(c.truths, pod.UID)
		return
	}
	c.truths[pod.UID] = truth{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses}
	if how == mirrored {
		pod.Status.ObservedGeneration = []int64{1, 7}[c.place(pod)%2]
		return
	}
	said := map[string]corev1.ContainerStatus{}
	for _, s := range slices.Concat(before.Status.InitContainerStatuses, before.Status.ContainerStatuses) {
		said[s.Name] = s
	}
	for _, list := range []*[]corev1.ContainerStatus{&pod.Status.InitContainerStatuses, &pod.Status.ContainerStatuses} {
		*list = slices.Clone(*list)
		for i := range *list {
			s := &(*list)[i]
			limit, limited := s.Resources.Limits[corev1.ResourceCPU]
			was, there := said[s.Name]
			s.Resources = s.Resources.DeepCopy()
			switch {
			case how == another && limited:
				s.Resources.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(limit.MilliValue()*5, resource.DecimalSI)
			case how == noQuota && limited && there:
				delete(s.Resources.Limits, corev1.ResourceCPU)
				if old, had := was.Resources.Limits[corev1.ResourceCPU]; had {
					s.Resources.Limits[corev1.ResourceCPU] = old
				}
			}
		}
	}
}

// carriedOut reports whether all that the spec says is in force.
func carriedOut(pod *corev1.Pod) bool {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	return !slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		return i < 0 || !equality.Semantic.DeepEqual(*statuses[i].Resources, c.Resources)
	})
}

// reap is the turn of the controller that deletes what was resized.
func (c *Cluster) reap() {
	if c.Hands == nil || !c.Hands.Deletes {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.Pods)) {
		pod := c.Pods[name]
		for v, is := range values(&pod.Spec) {
			if pod.DeletionTimestamp == nil && v.side == "request" && c.births[pod.UID].is[v] != is {
				terminating := pod.DeepCopy()
				terminating.Status.Conditions = append(terminating.Status.Conditions, corev1.PodCondition{Type: "TerminationTarget", Status: corev1.ConditionTrue, Reason: "WorkloadEvicted"})
				c.WritePod(terminating)
				c.DeletePod(name)
				break
			}
		}
	}
}

// Twin is a Ready node like that one.
func Twin(node *corev1.Node, name string) *corev1.Node {
	twin := node.DeepCopy()
	twin.Name, twin.Status.Conditions = name, []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return twin
}
