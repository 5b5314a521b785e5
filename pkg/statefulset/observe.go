package statefulset

import (
	"fmt"
	"maps"
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

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// rolling reports whether the StatefulSet controller restarts stale pods by itself: with every
// strategy but OnDelete, for all that we know.
func rolling(set *appsv1.StatefulSet) bool {
	return set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType
}

// holdable reports whether a partition keeps the StatefulSet controller from that. Admission lets no
// other set be opted in, but it may have been before.
func holdable(set *appsv1.StatefulSet) bool {
	return set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType
}

func replicas(set *appsv1.StatefulSet) int { return int(ptr.Deref(set.Spec.Replicas, 1)) }

// partition returns the partition in force: the StatefulSet controller updates no pod whose
// index is lower.
func partition(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return int(ptr.Deref(r.Partition, 0))
	}
	return 0
}

// keptBack returns how many pods the partition in force keeps back; 0 under OnDelete.
func keptBack(set *appsv1.StatefulSet) int {
	if !rolling(set) {
		return 0
	}
	return min(partition(set), replicas(set))
}

// wishedPartition returns the partition that the user wants, held or not.
func wishedPartition(set *appsv1.StatefulSet) int { return policy.WishedPartition(set, partition(set)) }

// maxUnavailable returns how many pods may be under way at once: at least 1, and 1 if the
// field is absent or cannot be read (getStatefulSetMaxUnavailable in
// pkg/controller/statefulset of Kubernetes).
func maxUnavailable(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxUnavailable, intstr.FromInt32(1)), replicas(set), false)
		if err == nil {
			return max(n, 1)
		}
	}
	return 1
}

// observation is a set, as a plan is made from it.
type observation struct {
	rollout.Facts

	set       *appsv1.StatefulSet
	pods      []*corev1.Pod
	places    []span        // once they are known: see spans
	orphans   []*corev1.Pod // that the set is about to adopt
	revisions map[string]*hash.Template
	births    births
	renewed   time.Time // see [memory]
	moved     time.Time // see [movement]
	failed    string    // the revision that is taken back, where a rollout is reverted
}

// options returns those of a rollout, but for the non-members.
func (o observation) options() rollout.Options {
	options := o.Options()
	options.Restarts = rollout.Ordered
	options.PassDeferred = o.set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
	options.Limit = maxUnavailable(o.set)
	options.Unavailable = options.Limit
	options.MinReadySeconds = o.set.Spec.MinReadySeconds
	if !rolling(o.set) {
		options.Strategy = policy.OnDelete
	}
	if policy.Held(o.set) || !rolling(o.set) {
		options.Guard = o.Guard(rollout.Edit{
			Version: rollout.RevisionNamed(o.set.Status.UpdateRevision), Newest: o.set.Status.UpdateRevision, Former: o.former, Began: o.newest().Renewed,
		}, o.set.Spec.MinReadySeconds)
	}
	if policy.Held(o.set) && rolling(o.set) {
		options.ReadyTimeout = o.ReadyTimeout(options)
	}
	return options
}

// newest returns the set's template, as its newest revision has it. The caller has made sure
// that the StatefulSet controller has observed the set's generation.
func (o observation) newest() *hash.Template { return o.revisions[o.set.Status.UpdateRevision] }

// revision returns the newest revision, by its name in the status.
func (o observation) revision() rollout.Revision {
	return rollout.Revision{Name: o.set.Status.UpdateRevision, Template: o.newest().PodTemplateSpec, Labels: revisionLabels(o.set.Status.UpdateRevision)}
}

// index returns the place of the pod in the set, and whether its name is one of the set's. The
// place is the ordinal, counted from spec.ordinals.start. A partition counts the same way.
func (o observation) index(pod *corev1.Pod) (int, bool) {
	suffix, ours := strings.CutPrefix(pod.Name, o.set.Name)
	if !ours || !strings.HasPrefix(suffix, "-") {
		return 0, false
	}
	ordinal, err := strconv.Atoi(suffix[1:])
	if err != nil {
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

// span is the place of a pod, or an empty one, or so many empty ones of which the same is to be said.
type span struct {
	index int // of the highest
	alike int // how many more there are, below it
	pod   *corev1.Pod
	// later: the StatefulSet controller has others to make first.
	later bool
}

// spans returns the places of the set, the lowest first. Of those that are empty, each counts by itself that the StatefulSet controller
// may give a pod to now. The others wait for them, and so as many of them are one as the partitions and orphans leave alike: somebody may
// want ever so many pods.
func (o observation) spans() []span {
	if o.places != nil {
		return o.places
	}
	at := map[int]*corev1.Pod{}
	for i, pod := range slices.Concat(o.orphans, o.pods) {
		if index, ok := o.index(pod); ok && index >= 0 && index < replicas(o.set) {
			if at[index] = pod; i < len(o.orphans) {
				at[index] = nil
			}
		}
	}
	ends := append(slices.Collect(maps.Keys(at)), partition(o.set), wishedPartition(o.set), replicas(o.set))
	slices.Sort(ends)
	var spans []span
	next, empty := 0, 0
	for _, end := range slices.Compact(ends) {
		for end = min(end, replicas(o.set)); next < end; empty++ {
			s := span{index: next, later: empty >= rollout.Burst}
			if s.later {
				s.index, s.alike = end-1, end-1-next
			}
			spans, next = append(spans, s), s.index+1
		}
		if pod, is := at[end]; is {
			spans, next = append(spans, span{index: end, pod: pod}), end+1
		}
	}
	return spans
}

// surplus returns how many pods are there that are not to be: the StatefulSet controller takes them away
// one by one.
func (o observation) surplus() int {
	n := 0
	if o.allPlaced() {
		return n
	}
	for _, pod := range o.pods {
		if o.Unwanted(pod, nil) && !judge.Gone(pod) {
			n++
		}
	}
	return n
}

// Unwanted is that of rollout.Observation: the pod is none of those that the set is to have.
func (o observation) Unwanted(pod *corev1.Pod, _ []*corev1.Pod) bool {
	i, ok := o.index(pod)
	return ok && (i < 0 || i >= replicas(o.set))
}

// allPlaced reports whether every pod has a place of its own.
func (o observation) allPlaced() bool { return len(o.placed()) == len(o.pods) }

// placed returns the pods that have a place, the lowest first.
func (o observation) placed() (pods []*corev1.Pod) {
	for _, s := range o.spans() {
		if s.pod != nil {
			pods = append(pods, s.pod)
		}
	}
	return pods
}

// bornOld reports whether the next pod at the index will be made from the old revision: the
// index is below the partition, and there is an old revision. A new set has none.
func (o observation) bornOld(index int) bool {
	return rolling(o.set) && index < partition(o.set) && !o.madeOfUpdate()
}

// nextRevision is that of the next pod at the index.
func (o observation) nextRevision(index int) string {
	if o.bornOld(index) {
		return o.set.Status.CurrentRevision
	}
	return o.set.Status.UpdateRevision
}

// orphaned reports whether the StatefulSet controller is about to adopt a pod at the index
// that is of an older revision.
func (o observation) orphaned(index int) bool {
	return slices.ContainsFunc(o.orphans, func(pod *corev1.Pod) bool {
		i, ok := o.index(pod)
		return ok && i == index && !o.labelled(pod)
	})
}

// Pods returns the pods of the set, and those that are made next.
func (o observation) Pods() ([]*corev1.Pod, []rollout.Coming) { return o.pods, o.toCome() }

// LetLoose is that of rollout.Observation: the partition does not keep back these pods any more.
func (o observation) LetLoose() []rollout.Coming {
	if !rolling(o.set) {
		return nil
	}
	var coming []rollout.Coming
	for _, s := range o.spans() {
		if s.index >= partition(o.set) && !judge.Gone(s.pod) && !o.labelled(s.pod) {
			coming = append(coming, rollout.Coming{Template: o.newest().PodTemplateSpec, Labels: o.revision().Labels, For: s.pod})
		}
	}
	return coming
}

// Edit, Replicas and MadeOfNewest are those of rollout.Observation.
func (o observation) Edit() string                      { return o.set.Status.UpdateRevision }
func (o observation) Replicas() int                     { return replicas(o.set) }
func (o observation) MadeOfNewest(pod *corev1.Pod) bool { return o.labelled(pod) }

// known returns the facts with what is known of new pods of the newest revision.
func (o observation) known() rollout.Facts {
	return o.Knowing(o.newest().PodTemplateSpec, o.pods, func(pod *corev1.Pod) *corev1.PodTemplateSpec {
		if of := o.revisions[revisions.HashOf(pod)]; of != nil {
			return of.PodTemplateSpec
		}
		return nil
	})
}

func revisionLabels(of string) map[string]string {
	return map[string]string{appsv1.StatefulSetRevisionLabel: of}
}

func (o observation) toCome() []rollout.Coming {
	var coming []rollout.Coming
	for _, s := range o.spans() {
		if !judge.Gone(s.pod) || s.later {
			continue
		}
		of := o.nextRevision(s.index)
		if born := o.revisions[of]; born != nil { // else it is not in the history
			coming = append(coming, rollout.Coming{Template: born.PodTemplateSpec, Labels: revisionLabels(of), For: s.pod, Refused: o.keptOut(s.index)})
		}
	}
	return coming
}

// look returns what judges the pods of the set, by the index of their span.
func (o observation) look(options rollout.Options) *rollout.Look {
	basis := rollout.Basis{
		Generation: o.set.Generation, Annotations: o.set.Annotations, Condition: condition(o.set),
		CacheKey: cacheKey{o.set.Status.UpdateRevision, o.set.Status.CurrentRevision, options.ReadyTimeout, o.Admission.Shows(o.newest().PodTemplateSpec)},
	}
	spans := o.spans()
	return o.Look(basis, options, o.revision(), func(i int, _ *corev1.Pod) (judge.Place, error) { return o.place(spans[i]) })
}

// cacheKey is what places of pods, and the verdicts on them, depend on besides.
type cacheKey struct {
	updateRevision, currentRevision string
	readyTimeout                    time.Duration
	shows                           string
}

// judge judges the places that the partition does not keep back, the highest first.
func (o observation) judge(options rollout.Options) (verdicts []*judge.Verdict, nonMembers []judge.Member, found *rollout.Found, err error) {
	look, spans, from := o.look(options), o.spans(), o.from()
	kept := slices.IndexFunc(spans, func(s span) bool { return s.index >= from })
	if kept < 0 {
		kept = len(spans)
	}
	nonMembers = o.below(look, spans[:kept])
	for i := len(spans) - 1; i >= kept; i-- {
		v, err := look.At(i, spans[i].pod)
		if err != nil {
			return nil, nil, nil, err
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, nonMembers, look.Found(), nil
}

// from is the first index that the partition of the user does not keep back.
func (o observation) from() int {
	if !rolling(o.set) {
		return 0
	}
	return wishedPartition(o.set)
}

// former returns the revision of most of the pods that are not of the newest one; empty if there are none. Where all pods have gone
// since the edit, such as by scaling to zero, it is what they are made of when they come back.
func (o observation) former() string {
	if !slices.ContainsFunc(o.pods, func(pod *corev1.Pod) bool { return !judge.Gone(pod) }) && o.bornOld(0) && o.differs(o.set.Status.CurrentRevision) == "" {
		return o.set.Status.CurrentRevision
	}
	return revisions.Former(o.pods, func(pod *corev1.Pod) bool {
		return !judge.Gone(pod) && !o.labelled(pod) && o.differs(revisions.HashOf(pod)) == ""
	})
}

// below returns what takes a share of the limits in the places that the partition keeps back. A pod may be unavailable
// there, or be resized still because the partition was lower before.
func (o observation) below(look *rollout.Look, kept []span) []judge.Member {
	var nonMembers []judge.Member
	for _, s := range slices.Backward(kept) {
		m := look.NonMember(s.pod, func() judge.Place {
			return judge.Place{Name: o.name(s.index), Index: s.index, Alike: s.alike, Pod: s.pod, Available: o.available(s.pod)}
		})
		if m != nil {
			nonMembers = append(nonMembers, *m)
		}
	}
	return nonMembers
}

func (o observation) name(index int) string { return fmt.Sprintf("%s-%d", o.set.Name, o.start()+index) }

func (o observation) available(pod *corev1.Pod) bool {
	return !judge.Gone(pod) && podutils.IsPodAvailable(pod, o.set.Spec.MinReadySeconds, metav1.NewTime(o.Now))
}

func (o observation) place(s span) (judge.Place, error) {
	index, pod := s.index, s.pod
	p := judge.Place{Name: o.name(index), Index: index, Alike: s.alike, Pod: pod}
	if pod == nil || pod.DeletionTimestamp != nil {
		if o.bornOld(index) {
			p.Differs = o.differs(o.set.Status.CurrentRevision)
		} else {
			p.Updated = !o.orphaned(index)
		}
		if pod == nil {
			var remade bool
			p.Unborn, remade = o.unborn(index)
			p.Remade = remade && wishedPartition(o.set) > 0 // else all are made of the newest: see renew
		}
		return p, nil
	}
	p.Available = o.available(pod)
	carries := revisions.HashOf(pod)
	p.Labelled, p.Differs = o.labelled(pod), o.differs(carries)
	var err error
	switch {
	case o.failed != "" && carries != o.failed && o.revisions[carries] != nil: // it goes back to what it was
		p.Labelled, p.Differs = true, ""
		p.Target, err = o.Leftover(pod, rollout.Revision{Name: carries, Template: o.revisions[carries].PodTemplateSpec}, condition(o.set), true)
		p.Updated = p.Target.Clean()
		p.Brings = resize.Describe(p.Target.Changes)
	case p.Labelled:
		p.Target, err = o.Leftover(pod, o.revision(), condition(o.set), policy.Held(o.set) || !rolling(o.set))
		p.Updated = p.Target.Clean()
		p.Brings = resize.Describe(p.Target.Changes)
	case p.Differs == "":
		from, to := o.revisions[carries].PodTemplateSpec, o.newest().PodTemplateSpec
		p.Target, err = o.Target(pod, from, to)
		p.Brings = resize.Describe(resize.Join(resize.Between(from, to), p.Target.Effects))
	}
	return p, err
}

// differs says where the named revision differs from the newest one in more than cpu and
// memory; empty if it does not. A revision that is not in the history does.
func (o observation) differs(name string) string {
	r := o.revisions[name]
	if r == nil {
		return fmt.Sprintf("its revision %q is not in the history", name)
	}
	return r.Differs(o.newest())
}

// caughtUp reports whether the StatefulSet controller counts as many pods as updated as there
// are. It watches pods and sets apart from each other: let loose before it has seen a pod's
// new label, it would delete that pod. Where pods have no other labels than they were made
// with, as in a new set, it has nothing to catch up with.
func (o observation) caughtUp() bool {
	if o.asMade() {
		return true
	}
	return int(o.set.Status.UpdatedReplicas) == o.updated()
}

// asMade reports whether pods have no other labels than they were made with, all of one revision.
func (o observation) asMade() bool {
	relabelled := func(pod *corev1.Pod) bool { return !judge.Relabelled(pod).IsZero() }
	return o.madeOfUpdate() && !slices.ContainsFunc(o.pods, relabelled)
}

// settles returns for how long letting go of a new set waits; 0 if it does not, or the set is not new.
func (o observation) settles() time.Duration {
	if o.set.Generation > 1 { // it was edited, or let go before
		return 0
	}
	return o.Settles(o.set.CreationTimestamp, int(o.set.Status.AvailableReplicas) >= replicas(o.set))
}

// patience is for how long the hold of a set under OnDelete stays while no pod gets its size.
func (observation) patience(options rollout.Options) time.Duration {
	proof := time.Duration(options.MinReadySeconds) * time.Second
	if options.Guard != nil {
		proof = max(proof, options.Guard.Duration)
	}
	return max(options.DeferredTimeout, options.ErrorTimeout) + proof
}

// updated is how many pods the StatefulSet controller takes for updated when it has seen their labels.
func (o observation) updated() int {
	n := 0
	for _, pod := range o.pods {
		if pod.DeletionTimestamp == nil && o.labelled(pod) {
			n++
		}
	}
	return n
}

func (o observation) labelled(pod *corev1.Pod) bool {
	return revisions.HashOf(pod) == o.set.Status.UpdateRevision
}

// doubt returns for how long the number that caughtUp compares is still no proof; 0 if it is one.
func (o observation) doubt() time.Duration {
	there := o.placed()
	conceals := int(o.set.Status.Replicas) != len(o.pods) || len(there) < replicas(o.set)
	return revisions.Doubt(o.Notes, o.pods, there, o.labelled, conceals, o.Now)
}
