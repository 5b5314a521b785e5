package statefulset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// rolling reports whether the StatefulSet controller restarts stale pods by itself.
func rolling(set *appsv1.StatefulSet) bool {
	return set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType
}

func replicas(set *appsv1.StatefulSet) int { return int(ptr.Deref(set.Spec.Replicas, 1)) }

// partition in force: pods whose index is lower are not rolled.
func partition(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return int(ptr.Deref(r.Partition, 0))
	}
	return 0
}

// keptBack is how many pods the partition in force keeps from being rolled.
func keptBack(set *appsv1.StatefulSet) int {
	if !rolling(set) {
		return 0
	}
	return min(partition(set), replicas(set))
}

// wishedPartition is the partition that the user wants, held or not.
func wishedPartition(set *appsv1.StatefulSet) int { return policy.WishedPartition(set, partition(set)) }

// maxUnavailable is how many pods may be under way at once, at least 1
// (getStatefulSetMaxUnavailable in pkg/controller/statefulset of Kubernetes).
func maxUnavailable(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxUnavailable, intstr.FromInt32(1)), replicas(set), false)
		if err == nil {
			return max(n, 1)
		}
	}
	return 1
}

// templateOf reads the template out of the patch that a ControllerRevision of a
// StatefulSet stores (getPatch in pkg/controller/statefulset of Kubernetes).
func templateOf(stored *appsv1.ControllerRevision) (*hash.Template, error) {
	var patch struct {
		Spec struct {
			Template json.RawMessage `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(stored.Data.Raw, &patch); err != nil {
		return nil, fmt.Errorf("decoding ControllerRevision %s: %w", stored.Name, err)
	}
	template, err := hash.NewTemplate(patch.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s: %w", stored.Name, err)
	}
	return template, nil
}

// observation is a set, as a plan is made from it.
type observation struct {
	controller.Facts

	set       *appsv1.StatefulSet
	pods      []*corev1.Pod
	orphans   []*corev1.Pod // that the set is about to adopt
	revisions map[string]*hash.Template
}

// options of a rollout of the places from index from on.
func (o observation) options(from int) rollout.Options {
	options := o.Options()
	options.InTurn = true
	options.Limit = maxUnavailable(o.set)
	options.Unavailable = options.Limit
	options.Aside = o.Aside(o.below(from))
	if !rolling(o.set) {
		options.Strategy = policy.OnDelete
	}
	return options
}

// newest is the revision that the set's template has; the caller has made sure
// that the StatefulSet controller has observed the set's generation.
func (o observation) newest() *hash.Template { return o.revisions[o.set.Status.UpdateRevision] }

// revision is the newest one, by its name in the status.
func (o observation) revision() rollout.Revision {
	return rollout.Revision{Name: o.set.Status.UpdateRevision, Template: o.newest().PodTemplateSpec}
}

// index returns the place of the pod in the set: its ordinal, counted from
// spec.ordinals.start. A partition counts the same way.
func (o observation) index(pod *corev1.Pod) (int, bool) {
	suffix, ours := strings.CutPrefix(pod.Name, o.set.Name+"-")
	ordinal, err := strconv.Atoi(suffix)
	if !ours || err != nil {
		return 0, false
	}
	return ordinal - o.start(), true
}

func (o observation) start() int {
	if o.set.Spec.Ordinals != nil {
		return int(o.set.Spec.Ordinals.Start)
	}
	return 0
}

func (o observation) byIndex() map[int]*corev1.Pod {
	at := make(map[int]*corev1.Pod, len(o.pods))
	for _, pod := range o.pods {
		if i, ok := o.index(pod); ok {
			at[i] = pod
		}
	}
	return at
}

// bornOld reports whether the next pod at the index is born from the old revision: it
// is below the partition, and there is an old revision, which a new set does not have.
func (o observation) bornOld(index int) bool {
	return rolling(o.set) && index < partition(o.set) && o.set.Status.CurrentRevision != o.set.Status.UpdateRevision
}

// orphaned reports whether the StatefulSet controller is about to adopt a pod at the index
// that is of an older revision.
func (o observation) orphaned(index int) bool {
	return slices.ContainsFunc(o.orphans, func(pod *corev1.Pod) bool {
		i, ok := o.index(pod)
		return ok && i == index && !o.labelled(pod)
	})
}

// Pods are those of the set, and the templates of those that are still to be born.
func (o observation) Pods() ([]*corev1.Pod, []*corev1.PodTemplateSpec) { return o.pods, o.toCome() }

func (o observation) toCome() []*corev1.PodTemplateSpec {
	var templates []*corev1.PodTemplateSpec
	at := o.byIndex()
	for i := range replicas(o.set) {
		if !rollout.Gone(at[i]) {
			continue
		}
		born := o.newest()
		if o.bornOld(i) {
			born = o.revisions[o.set.Status.CurrentRevision]
		}
		if born != nil { // else it is not in the history
			templates = append(templates, born.PodTemplateSpec)
		}
	}
	return templates
}

// members lists the places from index from on, the highest first.
func (o observation) members(from int) ([]rollout.Member, error) {
	places, err := o.places(from)
	return o.Members(places, o.revision()), err
}

func (o observation) places(from int) ([]rollout.Place, error) {
	at := o.byIndex()
	var places []rollout.Place
	for i := replicas(o.set) - 1; i >= from; i-- {
		place, err := o.place(i, at[i])
		if err != nil {
			return nil, err
		}
		places = append(places, place)
	}
	return places, nil
}

// below lists the places below index from. What is not available there, or is being resized
// for what the partition was before, is not to be down at the same time as pods above.
func (o observation) below(from int) []rollout.Place {
	at := o.byIndex()
	var places []rollout.Place
	for i := min(from, replicas(o.set)) - 1; i >= 0; i-- {
		places = append(places, rollout.Place{Name: o.name(i), Index: i, Pod: at[i], Available: o.available(at[i])})
	}
	return places
}

func (o observation) name(index int) string { return fmt.Sprintf("%s-%d", o.set.Name, o.start()+index) }

func (o observation) available(pod *corev1.Pod) bool {
	return !rollout.Gone(pod) && podutils.IsPodAvailable(pod, o.set.Spec.MinReadySeconds, metav1.NewTime(o.Now))
}

func (o observation) place(index int, pod *corev1.Pod) (rollout.Place, error) {
	p := rollout.Place{Name: o.name(index), Index: index, Pod: pod}
	if pod == nil || pod.DeletionTimestamp != nil {
		if o.bornOld(index) {
			p.Differs = o.differs(o.set.Status.CurrentRevision)
		} else {
			p.Updated = !o.orphaned(index)
		}
		return p, nil
	}
	p.Available = o.available(pod)
	carries := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	p.Labelled = o.labelled(pod)
	var err error
	switch {
	case p.Labelled:
		p.Target, err = o.leftover(pod)
		p.Updated = p.Target.Clean()
		p.Brings = resize.Describe(p.Target.Changes)
	case o.differs(carries) != "":
		p.Differs = o.differs(carries)
	default:
		from, to := o.revisions[carries].PodTemplateSpec, o.newest().PodTemplateSpec
		if p.Target, err = resize.For(pod, from, to); o.Contests.Lost(pod.UID) {
			p.Target, err = resize.ForBut(pod, from, to)
		}
		p.Brings = resize.Describe(resize.Join(resize.Between(from, to), p.Target.Effects))
	}
	return p, err
}

// clockSkew is by how much the clock of the API server may differ from ours.
const clockSkew = 10 * time.Second

// leftover is what is to be taken back in a pod that counts as updated. While the set's
// rollout is under way, others may have resized it again; between edits that is theirs to
// do. Nothing is restarted for it, which they could make us do again and again.
func (o observation) leftover(pod *corev1.Pod) (resize.Target, error) {
	c, template := condition(o.set), o.newest().PodTemplateSpec
	begun := c != nil && c.Status == corev1.ConditionFalse && c.Reason != rollout.ReasonPending && (policy.Held(o.set) || !rolling(o.set))
	if !begun || o.Contests.Lost(pod.UID) {
		return resize.Leftover(pod, template)
	}
	target, err := resize.LeftoverSince(pod, template, c.LastTransitionTime.Add(-clockSkew))
	if err != nil || !target.Overrules {
		return target, err
	}
	may, _ := o.Settings.Resolve(target.Effects, template, o.Defaults.ResizePolicy)
	if policy.Decide(may, o.Settings.Action, policy.RollingUpdate, resize.Unsent) != policy.Resize || len(target.Obstacles) > 0 ||
		o.Refused.Of(pod.UID, o.revision().Size(target.Changes)).Final {
		return resize.Leftover(pod, template)
	}
	return target, nil
}

// differs tells what, besides cpu and memory, the named revision has other than
// the newest one.
func (o observation) differs(name string) string {
	r := o.revisions[name]
	if r == nil {
		return fmt.Sprintf("its revision %q is not in the history", name)
	}
	return r.Differs(o.newest())
}

// caughtUp reports whether the StatefulSet controller counts as many pods as
// updated as there are. It watches pods and sets apart from each other: told to
// go on before it has seen a pod's new label, it would delete that pod. Where the only
// labels are those that pods were born with, as in a new set, there is nothing to see.
func (o observation) caughtUp() bool {
	relabelled := func(pod *corev1.Pod) bool { return !pods.Relabelled(pod).IsZero() }
	if o.set.Status.CurrentRevision == o.set.Status.UpdateRevision && !slices.ContainsFunc(o.pods, relabelled) {
		return true
	}
	updated := 0
	for _, pod := range o.pods {
		if pod.DeletionTimestamp == nil && o.labelled(pod) {
			updated++
		}
	}
	return int(o.set.Status.UpdatedReplicas) == updated
}

func (o observation) labelled(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == o.set.Status.UpdateRevision
}

// watchLag is how long the StatefulSet controller's watch of the pods may be behind
// where nothing shows that it is not.
const watchLag = 10 * time.Second

// doubt returns how much longer the number that caughtUp compares is no proof, and 0
// when it is one. The StatefulSet controller may still count a pod as updated that has
// gone, in place of one whose label it has not seen.
//
// Of the pods 0, 1 and 2, only 0 is updated: the number is 1. We relabel 2, and
// somebody deletes 0: the number is 1, whether the StatefulSet controller has seen both
// or nothing.
func (o observation) doubt() time.Duration {
	var last time.Time
	for _, pod := range o.pods {
		if at := pods.Relabelled(pod); at.After(last) {
			last = at
		}
	}
	at, conceals := o.byIndex(), int(o.set.Status.Replicas) != len(o.pods)
	for i := range replicas(o.set) {
		pod := at[i]
		switch {
		case pod == nil:
			conceals = true
		case o.labelled(pod):
			conceals = conceals || pod.DeletionTimestamp != nil
		default: // it may be in the place of one that was updated
			conceals = conceals || !pod.CreationTimestamp.Time.Before(last)
		}
	}
	if !conceals {
		return 0
	}
	return max(last.Add(watchLag).Sub(o.Now), 0)
}
