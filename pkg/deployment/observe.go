package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	deploymentutil "k8s.io/kubectl/pkg/util/deployment"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/plural"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// observation is a Deployment, as a plan is made from it.
type observation struct {
	rollout.Facts

	deployment *Deployment
	sets       []*replicaSet        // that the Deployment owns
	pods       []*corev1.Pod        // that it or they control
	active     map[types.UID]*group // those of them that are neither finished nor terminating, by what controls them; see podsOf
	history    judge.RefusalLog     // of former templates, by the ReplicaSet
	back       bool                 // its template is the one from before a rollout that has failed
}

// group are pods of one owner.
type group struct{ pods []*corev1.Pod }

// Pods returns the pods of the Deployment, and those that its ReplicaSets make next.
func (o observation) Pods() ([]*corev1.Pod, []rollout.Coming) { return o.pods, o.toCome() }

// LetLoose is that of rollout.Observation. A held Deployment is paused; of another one, the pods of older ReplicaSets go for those that
// the newest is to have yet.
func (o observation) LetLoose() []rollout.Coming {
	if policy.Held(o.deployment) || o.deployment.Spec.Paused {
		return nil
	}
	var coming []rollout.Coming
	lacking := o.deployment.replicas()
	for _, rs := range o.sets {
		if rs.template.Same(o.deployment.template) {
			lacking -= int(rs.replicas())
			continue
		}
		for _, pod := range o.podsOf(rs) {
			coming = append(coming, rollout.Coming{Template: o.deployment.template.PodTemplateSpec, Labels: o.nextLabels(), For: pod})
		}
	}
	return coming[:min(len(coming), max(lacking, 0))]
}

// Edit, Replicas and MadeOfNewest are those of rollout.Observation.
func (o observation) Edit() string  { return o.deployment.Annotations[api.EditAnnotation] }
func (o observation) Replicas() int { return o.deployment.replicas() }

func (o observation) MadeOfNewest(pod *corev1.Pod) bool {
	newest := o.deployment.template
	return slices.ContainsFunc(o.sets, func(rs *replicaSet) bool {
		if rs.adoption.Back && rs.template.Hash == newest.Hash { // it had the newest template until its canary was made
			return metav1.IsControlledBy(pod, rs) && resize.Has(pod, newest.PodTemplateSpec)
		}
		return rs.template.Same(newest) && o.madeOf(pod, rs)
	})
}

// Unwanted is that of rollout.Observation. Nobody knows which pods of a ReplicaSet go where it has too many.
func (o observation) Unwanted(pod *corev1.Pod, there []*corev1.Pod) bool {
	return slices.ContainsFunc(o.sets, func(rs *replicaSet) bool {
		return metav1.IsControlledBy(pod, rs) && controlled(there, rs) > o.wanted(rs)
	})
}

// controlled is how many of the pods are of rs.
func controlled(pods []*corev1.Pod, rs *replicaSet) (n int) {
	for _, pod := range pods {
		n += asInt(metav1.IsControlledBy(pod, rs))
	}
	return n
}

// wanted is how many pods rs is to have. Where the Deployment controller has yet to scale it, it is no more than all are to be.
func (o observation) wanted(rs *replicaSet) int {
	n, all := int(rs.replicas()), o.deployment.replicas()
	if of, err := strconv.Atoi(rs.Annotations[deploymentutil.DesiredReplicasAnnotation]); err == nil && of != all {
		return min(n, all)
	}
	return n
}

// scalesIn reports whether pods of rs are about to go because fewer are wanted, which one of the controllers has yet to carry out.
func (o observation) scalesIn(rs *replicaSet) bool {
	return len(o.podsOf(rs)) > o.wanted(rs) && (rs.lags() || o.wanted(rs) < int(rs.replicas()))
}

// madeOf reports whether a pod is of rs, and was made of the template that it has: a ReplicaSet that gets another one keeps
// the pods that have failed. What admission has made of a pod may be like no template.
func (o observation) madeOf(pod *corev1.Pod, rs *replicaSet) bool {
	if !metav1.IsControlledBy(pod, rs) || resize.Has(pod, rs.template.PodTemplateSpec) {
		return metav1.IsControlledBy(pod, rs)
	}
	former := rs.previous != nil && resize.Has(pod, rs.previous.template.PodTemplateSpec)
	return !former && !slices.ContainsFunc(o.sets, func(other *replicaSet) bool { return resize.Has(pod, other.template.PodTemplateSpec) })
}

// rejects reports whether a pod that base has made of a template that is not wanted any more was rejected by its kubelet, and
// not all are Ready: another one has come in its place already.
func (o observation) rejects(base *replicaSet) bool {
	if base.template.Same(o.deployment.template) || base.lags() {
		return false
	}
	ready := 0
	for _, pod := range o.podsOf(base) {
		ready += asInt(podutils.IsPodReady(pod))
	}
	return ready < int(base.replicas()) && slices.ContainsFunc(o.pods, func(pod *corev1.Pod) bool {
		return judge.Rejection(pod) != "" && o.madeOf(pod, base)
	})
}

// known returns the facts with what is known of new pods of the Deployment's template. One that has failed may be of a template that its
// ReplicaSet had before.
func (o observation) known() rollout.Facts {
	newest := o.deployment.template
	return o.Knowing(newest.PodTemplateSpec, o.pods, func(pod *corev1.Pod) *corev1.PodTemplateSpec {
		for _, rs := range o.sets {
			switch {
			case !metav1.IsControlledBy(pod, rs) || judge.Gone(pod) || rs.madeBefore(pod):
			case rs.template.Same(newest):
				return newest.PodTemplateSpec
			default:
				return rs.template.PodTemplateSpec
			}
		}
		return nil
	})
}

func (d *Deployment) replicas() int { return int(ptr.Deref(d.Spec.Replicas, 1)) }

// wishedPaused reports whether the user wants the Deployment paused, held or not.
func (d *Deployment) wishedPaused() bool { return policy.WishedPaused(d, d.Spec.Paused) }

// recreates reports whether no new pod may be there before the last old one has gone.
func (d *Deployment) recreates() bool {
	return d.wouldRecreate() && !d.switched()
}

// wouldRecreate reports whether the Deployment controller, let go, would take all pods of another template down together.
func (d *Deployment) wouldRecreate() bool {
	return d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// switched reports whether the strategy was changed to Recreate in the middle of the hold. What was there before
// counts for its pods.
func (d *Deployment) switched() bool {
	return policy.Held(d) && d.wouldRecreate() && d.Annotations[api.InForceStrategyAnnotation] != ""
}

// rollingUpdate returns what is in force of maxSurge and maxUnavailable.
func (d *Deployment) rollingUpdate() appsv1.RollingUpdateDeployment {
	if !d.switched() {
		return ptr.Deref(d.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
	}
	surge, unavailable, _ := strings.Cut(d.Annotations[api.InForceStrategyAnnotation], ";")
	return appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.Parse(surge)), MaxUnavailable: ptr.To(intstr.Parse(unavailable))}
}

// bounds returns maxSurge and maxUnavailable as numbers of pods; at least one of them is
// positive. The strategy Recreate lets all pods be down at once. It fails if they are no
// numbers and no percentages.
func (d *Deployment) bounds() (surge, unavailable int, err error) {
	if d.recreates() {
		return 0, max(d.replicas(), 1), nil
	}
	strategy := d.rollingUpdate()
	s, u, err := deploymentutil.ResolveFenceposts(strategy.MaxSurge, strategy.MaxUnavailable, int32(min(d.replicas(), 1<<30)))
	if err != nil {
		return 0, 0, fmt.Errorf("reading maxSurge and maxUnavailable: %w", err)
	}
	return int(s), int(u), nil
}

// base returns the ReplicaSet whose pods are resized; nil if there is none. It has pods, and a
// template that differs from the Deployment's in cpu and memory at most. Of several such
// ReplicaSets, it is the one that has the Deployment's very template, or else the newest. Of
// two that have it, it is the older one, as it is for the Deployment controller
// (FindNewReplicaSet in pkg/controller/deployment/util of Kubernetes).
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

// otherSize returns a ReplicaSet with pods other than base that has another size only, where the action does not let these pods be
// replaced for that; nil if there is none. In the middle of a built-in rollout it is the older one or, after an edit back, the newer.
func (o observation) otherSize(base *replicaSet) *replicaSet {
	newest := o.deployment.template
	for _, rs := range o.sets {
		if o.Settings.Action != policy.LiveResize || rs == base || !rs.active() || rs.template.Hash != newest.Hash {
			continue
		}
		may, _ := o.Settings.Resolve(resize.Between(rs.template.PodTemplateSpec, newest.PodTemplateSpec), newest.PodTemplateSpec, o.Defaults.ResizePolicy)
		if may != policy.RestartOnly {
			return rs
		}
	}
	return nil
}

// twin returns a ReplicaSet other than rs that has this template; nil if there is none.
func (o observation) twin(rs *replicaSet, template *hash.Template) *replicaSet {
	for _, other := range o.sets {
		if other.UID != rs.UID && other.template.Same(template) {
			return other
		}
	}
	return nil
}

// idleTwin returns a ReplicaSet without pods that has the template of rs; nil if there is
// none. It is used again to hold the former template of rs.
func (o observation) idleTwin(rs *replicaSet) *replicaSet {
	if twin := o.twin(rs, rs.template); twin != nil && twin.idle() {
		return twin
	}
	return nil
}

// newest returns the ReplicaSet that the Deployment controller takes for the new one; nil
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

// duplicate returns a ReplicaSet without pods that has the same template as another one; nil
// if there is none. Of two without pods it is the younger one. An edit in the middle of an
// adoption leaves one behind.
func (o observation) duplicate() *replicaSet {
	for _, rs := range o.sets {
		if twin := o.twin(rs, rs.template); twin != nil && rs.idle() && (!twin.idle() || byAge(twin, rs) < 0) {
			return rs
		}
	}
	return nil
}

// adopted returns a ReplicaSet that has a record of adoption; nil if there is none.
func (o observation) adopted() *replicaSet {
	if i := slices.IndexFunc(o.sets, (*replicaSet).adopted); i >= 0 {
		return o.sets[i]
	}
	return nil
}

// differs says where the Deployment's template differs in more than cpu and memory from that of
// the newest ReplicaSet that has pods; empty if it does not, or there are no pods.
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
			return fmt.Sprintf("ReplicaSet %s has another template and %s", rs.Name, plural.Of(int(rs.replicas()), "replica"))
		}
	}
	for _, pod := range o.pods {
		if judge.Gone(pod) {
			continue
		}
		if !of[metav1.GetControllerOfNoCopy(pod).UID] {
			return fmt.Sprintf("pod %s has another template", pod.Name)
		}
	}
	return ""
}

// podsOf returns the pods of owner that are neither finished nor terminating.
func (o observation) podsOf(owner metav1.Object) []*corev1.Pod {
	if o.active != nil {
		return o.active[owner.GetUID()].pods
	}
	var pods []*corev1.Pod
	for _, pod := range o.pods {
		if metav1.IsControlledBy(pod, owner) && !judge.Gone(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// missing returns how many pods a ReplicaSet has still to make.
func (o observation) missing(rs *replicaSet) int {
	return max(int(rs.replicas())-len(o.podsOf(rs)), 0)
}

// allMissing returns how many pods are still to be made.
func (o observation) allMissing() (n int) {
	for _, rs := range o.sets {
		n += o.missing(rs)
	}
	return n
}

// toCome returns the pods that the ReplicaSets make next, of those that are missing.
func (o observation) toCome() []rollout.Coming {
	var coming []rollout.Coming
	for _, rs := range o.sets {
		next := []rollout.Coming{{Template: rs.template.PodTemplateSpec, Labels: rs.labels(), Refused: rs.failure().Since}}
		coming = append(coming, slices.Repeat(next, min(o.missing(rs), rollout.Burst))...)
	}
	return coming
}

// labels are those that the ReplicaSet gives to its pods beside those of its template.
func (rs *replicaSet) labels() map[string]string {
	if rs.hash == nil {
		return nil
	}
	return map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: *rs.hash}
}

// nextLabels are those of the pods that are made next: of the ReplicaSet that has the Deployment's template, or else of the one that
// adopts it. Where the Deployment controller makes another ReplicaSet, its pods have a hash that no other pod has.
func (o observation) nextLabels() map[string]string {
	for _, rs := range o.sets {
		if rs.template.Same(o.deployment.template) {
			return rs.labels()
		}
	}
	if base := o.base(); base != nil && o.cannotHold() == "" && o.differs() == "" {
		return base.labels()
	}
	return map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "to-come"}
}

// detached returns the pods that we have taken out of their ReplicaSet, so that they are
// replaced before they go.
func (o observation) detached() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range o.podsOf(o.deployment) {
		if isDetached(pod) {
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
	return !judge.Gone(pod) && podutils.IsPodAvailable(pod, o.deployment.Spec.MinReadySeconds, metav1.NewTime(o.Now))
}

// options returns those of a rollout, but for the non-members. As many pods may be under way at
// once as maxSurge and maxUnavailable are together, and at least one. What takes a pod down
// keeps to maxUnavailable.
func (o observation) options(surge, unavailable int) rollout.Options {
	options := o.Options()
	options.Limit, options.Unavailable = max(surge+unavailable, 1), unavailable
	options.Restarts, options.PassDeferred = rollout.AfterResizes, true
	options.MinReadySeconds = o.deployment.Spec.MinReadySeconds
	return options
}

// nonMembers returns what takes a share of the limits besides the pods of base: pods of other
// ReplicaSets, and those that any ReplicaSet has still to make.
func (o observation) nonMembers(look *rollout.Look, base *replicaSet) []judge.Member {
	var missing, others []judge.Member
	for _, rs := range o.sets {
		if n := o.missing(rs); n > 0 {
			missing = append(missing, judge.Member{Place: judge.Place{Name: rs.Name, Alike: n - 1}, Refusal: rs.failure()})
		}
		if rs == base {
			continue
		}
		for _, pod := range o.podsOf(rs) {
			m := look.NonMember(pod, func() judge.Place {
				return judge.Place{Name: pod.Name, Pod: pod, Available: o.available(pod)}
			})
			if m != nil {
				others = append(others, *m)
			}
		}
	}
	return append(missing, others...)
}

// revision returns the newest revision. Its name is the resource-free hash: other revisions
// with that name differ from it in their size only.
func (o observation) revision() rollout.Revision {
	r := rollout.Revision{Name: o.deployment.template.Hash, Template: o.deployment.template.PodTemplateSpec}
	r.Labels = o.nextLabels()
	return r
}

// look returns what judges the pods of base.
func (o observation) look(base *replicaSet, options rollout.Options) *rollout.Look {
	return o.Look(rollout.Basis{
		Generation: o.deployment.Generation, Annotations: o.deployment.Annotations,
		CacheKey: cacheKey{base.UID, base.Generation, base.Annotations[api.AdoptedAnnotation], o.back, options.ReadyTimeout, o.Admission.Shows(o.deployment.template.PodTemplateSpec)},
	}, options, o.revision(), func(_ int, pod *corev1.Pod) (judge.Place, error) { return o.place(base, pod) })
}

// cacheKey is what places of pods depend on besides the Deployment's spec and annotations.
type cacheKey struct {
	base       types.UID
	generation int64
	adopted    string
	back       bool
	ready      time.Duration
	shows      string
}

// evaluator judges the pods of base: first those that need not be asked for a size
// any more, then the others. Each part is in the order in which the ReplicaSet controller
// would delete the pods.
func (o observation) evaluator(base *replicaSet) rollout.Evaluator {
	return func(options rollout.Options) (verdicts []*judge.Verdict, nonMembers []judge.Member, found *rollout.Found, err error) {
		look, pods := o.look(base, options), slices.Clone(o.podsOf(base))
		nonMembers = o.nonMembers(look, base)
		sortAsDeleted(pods)
		verdicts = make([]*judge.Verdict, len(pods))
		for i, pod := range pods {
			if verdicts[i], err = look.At(i, pod); err != nil {
				return nil, nil, nil, err
			}
		}
		slices.SortStableFunc(verdicts, func(a, b *judge.Verdict) int { return byRequest(&a.Member.Place, &b.Member.Place) })
		return verdicts, nonMembers, look.Found(), nil
	}
}

// byRequest orders places that are still to be asked for a size after the others.
func byRequest(a, b *judge.Place) int {
	return cmp.Compare(min(len(a.Target.Changes), 1), min(len(b.Target.Changes), 1))
}

func (o observation) place(base *replicaSet, pod *corev1.Pod) (judge.Place, error) {
	target, err := o.target(base, pod)
	return judge.Place{
		Name: pod.Name, Pod: pod, Target: target,
		Updated: target.Clean(), Available: o.available(pod), Brings: resize.Describe(target.Changes),
	}, err
}

// target returns the size that a pod of base must have.
//
// A pod that was made from another template must have the size of the Deployment's template.
// In a pod that was made from that template, only what an edit that was given up has left is
// taken back. Other differences are somebody else's, such as a vertical autoscaler's or an
// admission webhook's, and not ours to undo.
func (o observation) target(base *replicaSet, pod *corev1.Pod) (resize.Target, error) {
	wanted := o.deployment.template.PodTemplateSpec
	if base.template.Same(o.deployment.template) && !base.madeBefore(pod) {
		return o.By(resize.Leftover(pod, wanted))
	}
	switch {
	case base.adopted() && base.previous == nil:
		return o.Whole(pod, base.template.PodTemplateSpec, wanted)
	case base.previous != nil && (base.madeBefore(pod) || resize.Has(pod, base.previous.template.PodTemplateSpec)):
		// The ReplicaSet controller may have made it after the adoption, from base's former template.
		return o.Target(pod, base.origin(pod).PodTemplateSpec, wanted)
	default:
		return o.Target(pod, base.template.PodTemplateSpec, wanted)
	}
}

// madeBefore reports whether a pod of rs was made from the template that rs had before the
// adoption. Its record names the pods that had to be restarted at that time. The ReplicaSet
// controller may have made others then, or later because it had not seen the adoption yet. So
// until the record is closed, a pod that has the size of the former template counts too.
func (rs *replicaSet) madeBefore(pod *corev1.Pod) bool {
	switch {
	case !rs.adopted():
		return false
	case slices.Contains(rs.adoption.Restarts, pod.Name):
		return true
	case rs.adoption.Closed:
		return false
	case rs.previous == nil: // it was too large for the record
		return true
	}
	return resize.Has(pod, rs.previous.template.PodTemplateSpec)
}
