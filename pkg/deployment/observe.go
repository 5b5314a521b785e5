package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	deploymentutil "k8s.io/kubectl/pkg/util/deployment"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// observation is a Deployment, as a plan is made from it.
type observation struct {
	controller.Facts

	deployment *Deployment
	sets       []*replicaSet // that the Deployment owns
	pods       []*corev1.Pod // that it or they control
	evictions  rollout.Refusals
	history    rollout.Refusals
}

// Pods are those of the Deployment, and the templates of those that the ReplicaSets have
// still to make.
func (o observation) Pods() ([]*corev1.Pod, []*corev1.PodTemplateSpec) { return o.pods, o.toCome() }

func (d *Deployment) replicas() int { return int(ptr.Deref(d.Spec.Replicas, 1)) }

// wishedPaused reports whether the user wants the Deployment paused, held or not.
func (d *Deployment) wishedPaused() bool { return policy.WishedPaused(d, d.Spec.Paused) }

// bounds are maxSurge and maxUnavailable as numbers of pods; at least one of them is
// positive. Strategy Recreate lets all pods be down at once.
func (d *Deployment) bounds() (surge, unavailable int, err error) {
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return 0, max(d.replicas(), 1), nil
	}
	strategy := ptr.Deref(d.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
	s, u, err := deploymentutil.ResolveFenceposts(strategy.MaxSurge, strategy.MaxUnavailable, int32(min(d.replicas(), 1<<30)))
	if err != nil {
		return 0, 0, fmt.Errorf("reading maxSurge and maxUnavailable: %w", err)
	}
	return int(s), int(u), nil
}

// base is the ReplicaSet whose pods are resized: of those that have pods and differ
// from the Deployment's template in cpu and memory at most, the one that has that
// template, or else the newest. Of two that have it, it is the older, as it is for
// the Deployment controller (FindNewReplicaSet in pkg/controller/deployment/util of
// Kubernetes). It is nil if there is none.
func (o observation) base() *replicaSet {
	var base *replicaSet
	for _, rs := range o.sets {
		if !rs.active() || rs.template.Hash != o.deployment.template.Hash {
			continue
		}
		if base == nil || o.closer(rs, base) {
			base = rs
		}
	}
	return base
}

func (o observation) closer(a, b *replicaSet) bool {
	switch equalA, equalB := a.template.Same(o.deployment.template), b.template.Same(o.deployment.template); {
	case equalA && equalB:
		return byAge(a, b) < 0
	case equalA != equalB:
		return equalA
	default:
		return a.revision > b.revision
	}
}

// twin is a ReplicaSet other than rs that has this template; nil if there is none.
func (o observation) twin(rs *replicaSet, template *hash.Template) *replicaSet {
	for _, other := range o.sets {
		if other.UID != rs.UID && other.template.Same(template) {
			return other
		}
	}
	return nil
}

// idleTwin is a ReplicaSet without pods that has the template of rs, and is used
// again for what rs had before; nil if there is none.
func (o observation) idleTwin(rs *replicaSet) *replicaSet {
	if twin := o.twin(rs, rs.template); twin != nil && twin.idle() {
		return twin
	}
	return nil
}

// newest is the ReplicaSet that the Deployment controller takes for the new one; nil
// if there is none.
func (o observation) newest() *replicaSet {
	var newest *replicaSet
	for _, rs := range o.sets {
		if rs.template.Same(o.deployment.template) && (newest == nil || byAge(rs, newest) < 0) {
			newest = rs
		}
	}
	return newest
}

// duplicate is a ReplicaSet without pods that keeps the template of another one; nil
// if there is none. Of two without pods it is the younger. An edit in the middle of
// an adoption leaves one behind.
func (o observation) duplicate() *replicaSet {
	for _, rs := range o.sets {
		if twin := o.twin(rs, rs.template); twin != nil && rs.idle() && (!twin.idle() || byAge(twin, rs) < 0) {
			return rs
		}
	}
	return nil
}

// marked is a ReplicaSet that has the mark of adoption; nil if there is none.
func (o observation) marked() *replicaSet {
	if i := slices.IndexFunc(o.sets, (*replicaSet).adopted); i >= 0 {
		return o.sets[i]
	}
	return nil
}

// differs tells what makes the Deployment's template none for the pods that there are.
func (o observation) differs() string {
	var newest *replicaSet
	for _, rs := range o.sets {
		if rs.active() && (newest == nil || rs.revision > newest.revision) {
			newest = rs
		}
	}
	if newest == nil {
		return ""
	}
	return newest.template.Differs(o.deployment.template)
}

// stale names a ReplicaSet or a pod that is not of the Deployment's template; empty if
// there is none.
func (o observation) stale() string {
	of := map[types.UID]bool{}
	for _, rs := range o.sets {
		of[rs.UID] = rs.template.Same(o.deployment.template)
		if rs.active() && !of[rs.UID] {
			return fmt.Sprintf("ReplicaSet %s of another template is to have %d pods", rs.Name, rs.replicas())
		}
	}
	for _, pod := range o.pods {
		if rollout.Gone(pod) {
			continue
		}
		if !of[metav1.GetControllerOfNoCopy(pod).UID] {
			return fmt.Sprintf("pod %s is of another template", pod.Name)
		}
	}
	return ""
}

// podsOf lists the pods of rs that count: neither finished nor being deleted.
func (o observation) podsOf(rs *replicaSet) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range o.pods {
		if metav1.IsControlledBy(pod, rs) && !rollout.Gone(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (o observation) toCome() []*corev1.PodTemplateSpec {
	var templates []*corev1.PodTemplateSpec
	for _, rs := range o.sets {
		for range max(int(rs.replicas())-len(o.podsOf(rs)), 0) {
			templates = append(templates, rs.template.PodTemplateSpec)
		}
	}
	return templates
}

// detached lists the pods that we have taken out of their ReplicaSet, to be replaced
// before they go.
func (o observation) detached() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range o.pods {
		if isDetached(pod) && metav1.IsControlledBy(pod, o.deployment) && !rollout.Gone(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func isDetached(pod *corev1.Pod) bool {
	_, is := pod.Labels[api.DetachedLabel]
	return is
}

func (o observation) available(pod *corev1.Pod) bool {
	return !rollout.Gone(pod) && podutils.IsPodAvailable(pod, o.deployment.Spec.MinReadySeconds, metav1.NewTime(o.Now))
}

// options of a rollout of the pods of base: as many may be under way at once as the
// Deployment controller would have more or less than wanted, and at least one; what
// takes a pod down keeps to maxUnavailable.
func (o observation) options(base *replicaSet, surge, unavailable int) rollout.Options {
	options := o.Options()
	options.Limit, options.Unavailable = max(surge+unavailable, 1), unavailable
	options.Aside = o.aside(base)
	return options
}

// aside lists what is not available besides the pods of base: pods of other
// ReplicaSets, and those that any of them has still to make.
func (o observation) aside(base *replicaSet) []rollout.Member {
	var missing []rollout.Member
	var places []rollout.Place
	for _, rs := range o.sets {
		pods := o.podsOf(rs)
		for range int(rs.replicas()) - len(pods) {
			missing = append(missing, rollout.Member{Place: rollout.Place{Name: rs.Name}, Refusal: rs.failure()})
		}
		for _, pod := range pods {
			if rs != base {
				places = append(places, rollout.Place{Name: pod.Name, Pod: pod, Available: o.available(pod)})
			}
		}
	}
	return append(missing, o.Aside(places)...)
}

// revision is the newest one. Its name tells it from all templates that differ in more than
// their size.
func (o observation) revision() rollout.Revision {
	return rollout.Revision{Name: o.deployment.template.Hash, Template: o.deployment.template.PodTemplateSpec}
}

// members lists the pods of base: first those that have been asked already, then the
// others as the ReplicaSet controller would delete them.
func (o observation) members(base *replicaSet) ([]rollout.Member, error) {
	places, err := o.places(base)
	return o.Members(places, o.revision()), err
}

func (o observation) places(base *replicaSet) ([]rollout.Place, error) {
	pods := o.podsOf(base)
	sortAsDeleted(pods)
	places := make([]rollout.Place, len(pods))
	for i, pod := range pods {
		target, err := o.target(base, pod)
		if err != nil {
			return nil, err
		}
		places[i] = rollout.Place{
			Name: pod.Name, Index: i, Pod: pod, Target: target,
			Updated: target.Clean(), Available: o.available(pod), Brings: resize.Describe(target.Changes),
		}
	}
	slices.SortStableFunc(places, func(a, b rollout.Place) int {
		return cmp.Compare(min(len(a.Target.Changes), 1), min(len(b.Target.Changes), 1))
	})
	return places, nil
}

// target is the size that a pod of base must have.
//
// To a pod that was made from another template, the Deployment's says everything. In
// one that was made from it, only what an edit that was given up has left counts: other
// differences are somebody else's, such as a vertical autoscaler's or an admission
// webhook's, and not ours to undo.
func (o observation) target(base *replicaSet, pod *corev1.Pod) (resize.Target, error) {
	wanted := o.deployment.template.PodTemplateSpec
	if base.template.Same(o.deployment.template) && !base.madeBefore(pod) {
		return resize.Leftover(pod, wanted)
	}
	size := resize.For
	if o.Contests.Lost(pod.UID) {
		size = resize.ForBut
	}
	target, err := size(pod, base.template.PodTemplateSpec, wanted)
	if err != nil || base.outgoing == nil {
		return target, err
	}
	// The ReplicaSet controller may have made it after the adoption, of what base had before.
	late, err := size(pod, base.outgoing.template.PodTemplateSpec, wanted)
	if err == nil && len(late.Obstacles) > len(target.Obstacles) {
		target = late
	}
	return target, err
}

// madeBefore reports whether a pod of rs was made before rs adopted its template. Those
// that had to be restarted at the adoption are in its mark. The ReplicaSet controller may
// have made others at the same time, or may not have heard of the adoption yet: as long as
// the mark is not closed, a pod that has all that the former template says counts too.
func (rs *replicaSet) madeBefore(pod *corev1.Pod) bool {
	switch {
	case !rs.adopted():
		return false
	case slices.Contains(rs.mark.Restarts, pod.Name):
		return true
	case rs.mark.Closed:
		return false
	case rs.outgoing == nil: // it was too large for the mark
		return true
	}
	former := rs.outgoing.template.PodTemplateSpec
	size, err := resize.For(pod, former, former)
	return err == nil && len(size.Changes) == 0
}

// sortAsDeleted orders pods of one ReplicaSet as its controller would delete them,
// but for the last rules, which tell apart what is alike (ActivePodsWithRanks in
// pkg/controller of Kubernetes).
func sortAsDeleted(pods []*corev1.Pod) {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		if podutils.ActivePods([]*corev1.Pod{a, b}).Less(0, 1) {
			return -1
		}
		if podutils.ActivePods([]*corev1.Pod{b, a}).Less(0, 1) {
			return 1
		}
		return 0
	})
	ready := map[string]int{} // by node
	for _, pod := range pods {
		if podutils.IsPodReady(pod) {
			ready[pod.Spec.NodeName]++
		}
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		if !podutils.IsPodReady(a) || !podutils.IsPodReady(b) {
			return cmp.Compare(asInt(podutils.IsPodReady(a)), asInt(podutils.IsPodReady(b)))
		}
		return cmp.Or(cmp.Compare(deletionCost(a), deletionCost(b)), cmp.Compare(ready[b.Spec.NodeName], ready[a.Spec.NodeName]))
	})
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// deletionCost is what the user says about which pods are to be deleted first; what
// is no number is 0 (KEP-2255).
func deletionCost(pod *corev1.Pod) int64 {
	cost, _ := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32)
	return cost
}

// condition returns the Deployment's condition inplace-rollout.io/Complete, or nil.
func condition(d *Deployment) *controller.Condition {
	c := deploymentutil.GetDeploymentCondition(d.Status, api.ConditionComplete)
	if c == nil {
		return nil
	}
	return &controller.Condition{Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}
