package daemonset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// rolling reports whether the user wants the DaemonSet controller to restart stale pods by itself.
// Only then is a set held, by another type.
func rolling(set *appsv1.DaemonSet) bool {
	return policy.Held(set) || set.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType
}

// bounds returns how many pods may be there beyond one on each node, and how many nodes may lack an
// available one, while pods are replaced; 1 of the latter if both would be 0 (updatedDesiredNodeCounts
// in pkg/controller/daemon of Kubernetes). A value that cannot be read counts as 0.
//
// Of 15 nodes and maxUnavailable 10%, 2 may lack one.
func bounds(set *appsv1.DaemonSet) (surge, unavailable int) {
	scaled := func(of *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(of, intstr.FromInt32(0)), int(set.Status.DesiredNumberScheduled), true)
		if err != nil {
			return 0
		}
		return n
	}
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		surge, unavailable = scaled(r.MaxSurge), scaled(r.MaxUnavailable)
	}
	if surge == 0 {
		unavailable = max(unavailable, 1)
	}
	return surge, unavailable
}

// observation is a set, as a plan is made from it.
type observation struct {
	rollout.Facts
	*history

	set    *appsv1.DaemonSet
	pods   []*corev1.Pod
	sizes  policy.Sizes
	byNode []nodePod // the pods, and
	nodes  int       // how many nodes have any: see sortByNode
	failed *revision // that is taken back, where a rollout is reverted
}

// options returns those of a rollout. The nodes that lack a pod take their shares.
func (o observation) options() rollout.Options {
	options := o.Options()
	surge, unavailable := bounds(o.set)
	options.Limit, options.Unavailable = max(surge, unavailable), unavailable
	options.Restarts, options.PassLost, options.PassDeferred = rollout.Independent, true, true
	if surge > 0 { // the new pod comes first, which is the DaemonSet controller's to do
		options.Restarts = rollout.AfterResizes
	}
	options.MinReadySeconds = o.set.Spec.MinReadySeconds
	if !rolling(o.set) {
		options.Strategy = policy.OnDelete
	}
	if policy.Held(o.set) || !rolling(o.set) {
		options.Guard = o.Guard(rollout.Edit{
			Version: rollout.TemplateGeneration(templateGeneration(o.set)), Newest: o.newest.hash, Former: o.former, Began: o.newest.template.Renewed,
		}, o.set.Spec.MinReadySeconds)
	}
	if n := o.lacking(); n > 0 {
		options.NonMembers = []judge.Member{{Place: judge.Place{Name: "a node without its pod", Alike: n - 1}}}
	}
	return options
}

// lacking returns how many nodes lack their pod: by the status, or by the pods if that is behind.
func (o observation) lacking() int {
	status := o.set.Status
	return max(int(status.DesiredNumberScheduled-status.CurrentNumberScheduled), int(status.DesiredNumberScheduled+status.NumberMisscheduled)-o.nodes)
}

// revision returns the newest revision.
func (o observation) revision() rollout.Revision {
	return rollout.Revision{
		Name: o.newest.name, Template: o.newest.template.PodTemplateSpec,
		Labels: map[string]string{appsv1.DefaultDaemonSetUniqueLabelKey: o.newest.hash},
	}
}

// Pods returns the pods of the set, and those that come for pods that go. Which nodes lack one otherwise, the DaemonSet controller knows.
func (o observation) Pods() ([]*corev1.Pod, []rollout.Coming) {
	var coming []rollout.Coming
	for _, pod := range o.pods {
		if pod.DeletionTimestamp != nil && o.newest != nil {
			coming = append(coming, rollout.Coming{Template: o.newest.template.PodTemplateSpec, Labels: o.revision().Labels, For: pod})
		}
	}
	return o.pods, coming
}

// LetLoose is that of rollout.Observation. A held set has the strategy OnDelete.
func (o observation) LetLoose() []rollout.Coming {
	if policy.Held(o.set) || !rolling(o.set) || o.newest == nil {
		return nil
	}
	var coming []rollout.Coming
	for _, pod := range o.pods {
		if !judge.Gone(pod) && !o.labelled(pod) {
			coming = append(coming, rollout.Coming{Template: o.newest.template.PodTemplateSpec, Labels: o.revision().Labels, For: pod})
		}
	}
	return coming
}

// Edit, Replicas and MadeOfNewest are those of rollout.Observation.
func (o observation) Edit() string                      { return templateGeneration(o.set) + " " + o.newest.hash }
func (o observation) Replicas() int                     { return int(o.set.Status.DesiredNumberScheduled) }
func (o observation) MadeOfNewest(pod *corev1.Pod) bool { return o.labelled(pod) }

// Unwanted is that of rollout.Observation. A node that has a pod, and would get none, counts as misscheduled.
func (o observation) Unwanted(_ *corev1.Pod, there []*corev1.Pod) bool {
	return len(there) > int(o.set.Status.DesiredNumberScheduled+o.set.Status.NumberMisscheduled)
}

// known returns the facts with what is known of new pods of the newest revision.
func (o observation) known() rollout.Facts {
	return o.Knowing(o.revision().Template, o.pods, func(pod *corev1.Pod) *corev1.PodTemplateSpec {
		if of := o.revisions[revisions.HashOf(pod)]; of != nil {
			return of.template.PodTemplateSpec
		}
		return nil
	})
}

// podsInOrder returns the pods in the order in which they are rolled: those that are not available
// first, then one of each zone in turn. Of a node that has a pod, those that are gone or about to
// go do not count.
//
// With a1, a2 and a3 in zone a, b1 and b2 in zone b, where b2 is not available: b2, a1, b1, a2, a3.
func (o observation) podsInOrder() []*corev1.Pod {
	var zones [][]nodePod
	all := o.byNode
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to].zone == all[from].zone {
			to++
		}
		zones, from = append(zones, all[from:to]), to
	}
	down, available := make([]*corev1.Pod, 0, len(all)), make([]*corev1.Pod, 0, len(all))
	for turn := 0; len(down)+len(available) < len(all); turn++ {
		for _, zone := range zones {
			switch {
			case turn >= len(zone):
			case zone[turn].available:
				available = append(available, zone[turn].pod)
			default:
				down = append(down, zone[turn].pod)
			}
		}
	}
	return append(down, available...)
}

// sortByNode sorts the pods by zone, node and name, without those that are gone or about to go from a node that has another.
func (o *observation) sortByNode() {
	all := make([]nodePod, len(o.pods))
	for i, pod := range o.pods {
		all[i] = nodePod{pod: pod, gone: judge.Gone(pod), node: capacity.TargetNode(pod)}
		if on := o.Places.Node(all[i].node); on != nil {
			all[i].zone = on.Labels[corev1.LabelTopologyZone]
		}
	}
	if len(o.order) != len(all) {
		o.order = make([]int, len(all))
		for i := range o.order {
			o.order[i] = i
		}
	}
	slices.SortFunc(o.order, func(i, j int) int { return all[i].compare(&all[j]) })
	o.byNode, o.nodes = make([]nodePod, 0, len(all)), 0
	for from := 0; from < len(all); o.nodes++ {
		to, kept, node := from, false, all[o.order[from]].node // those of one node are in one zone, one after the other
		for ; to < len(all) && all[o.order[to]].node == node; to++ {
			kept = kept || !all[o.order[to]].gone
		}
		for _, i := range o.order[from:to] {
			if s := all[i]; !s.gone || !kept {
				s.available = o.available(s.pod)
				o.byNode = append(o.byNode, s)
			}
		}
		from = to
	}
}

// nodePod is a pod of a node with what decides about its turn.
type nodePod struct {
	pod        *corev1.Pod
	gone       bool
	available  bool
	zone, node string
}

func (s *nodePod) compare(other *nodePod) int {
	switch {
	case s.zone != other.zone:
		return cmp.Compare(s.zone, other.zone)
	case s.node != other.node:
		return cmp.Compare(s.node, other.node)
	default:
		return cmp.Compare(s.pod.Name, other.pod.Name)
	}
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// look returns what judges the pods of the set.
func (o observation) look(options rollout.Options) *rollout.Look {
	basis := rollout.Basis{Generation: o.set.Generation, Annotations: o.set.Annotations, Condition: condition(o.set), CacheKey: cacheKey{o.newest.hash, o.over(), o.Admission.Shows(o.revision().Template)}}
	return o.Look(basis, options, o.revision(), o.place)
}

// cacheKey is what places of pods depend on besides.
type cacheKey struct {
	newest string
	over   bool
	shows  string
}

// judge judges the pods, in their order. All pods are members.
func (o observation) judge(options rollout.Options) (verdicts []*judge.Verdict, _ []judge.Member, found *rollout.Found, err error) {
	look, ordered := o.look(options), o.podsInOrder()
	verdicts = make([]*judge.Verdict, len(ordered))
	for i, pod := range ordered {
		if verdicts[i], err = look.At(i, pod); err != nil {
			return nil, nil, nil, err
		}
	}
	return verdicts, nil, look.Found(), nil
}

// former returns the revision of most of the pods that are not of the newest one; empty if there are none.
func (o observation) former() string {
	return revisions.Former(o.pods, func(pod *corev1.Pod) bool {
		r := o.revisions[revisions.HashOf(pod)]
		return !judge.Gone(pod) && r != nil && r != o.newest && r.template.Differs(o.newest.template) == ""
	})
}

// goBack completes the place of a pod that goes back to the revision that it is of.
func (o observation) goBack(p *judge.Place, of *revision) error {
	history := *o.history
	history.newest = of
	o.history = &history
	if err := o.readSizes(); err != nil {
		return err
	}
	p.Labelled = true
	return o.fit(p)
}

// reverting returns the observation whose pods that have the size of the newest revision go back: to that of the revision that each is of.
func (o observation) reverting(former *revision) (observation, error) {
	set, history := *o.set, *o.history
	set.Annotations = maps.Clone(set.Annotations)
	delete(set.Annotations, appsv1.DeprecatedTemplateGeneration) // the labels of the newest one count for nothing
	o.failed, history.newest = o.newest, former
	o.set, o.history = &set, &history
	return o, o.readSizes()
}

func (o observation) available(pod *corev1.Pod) bool {
	return !judge.Gone(pod) && podutils.IsPodAvailable(pod, o.set.Spec.MinReadySeconds, metav1.NewTime(o.Now))
}

// place compares the pod by what the revision says whose hash it carries. The DaemonSet controller
// goes by labels, which may name a template that the pod was not made from: a set that is deleted
// and created again counts its templates from 1.
func (o observation) place(_ int, pod *corev1.Pod) (judge.Place, error) {
	p := judge.Place{Name: pod.Name, Pod: pod}
	if judge.Gone(pod) {
		p.Updated = true // the next one is of the newest revision
		return p, nil
	}
	p.Available, p.Labelled, p.First = o.available(pod), o.labelled(pod), o.first(pod)
	carries := o.revisions[revisions.HashOf(pod)]
	if o.failed != nil && carries != nil && carries != o.failed {
		err := o.goBack(&p, carries)
		return p, err
	}
	var err error
	switch carries {
	case o.newest:
		err = o.fit(&p)
	case nil:
		p.Differs = fmt.Sprintf("its revision %q is not in the history", revisions.HashOf(pod))
	default:
		if p.Differs = carries.template.Differs(o.newest.template); p.Differs != "" {
			break
		}
		from, to := carries.template.PodTemplateSpec, o.newest.template.PodTemplateSpec
		p.Target, err = o.edit(pod, from)
		p.Class = o.sizeOf(pod).Class.String()
		p.Brings = resize.Describe(resize.Join(resize.Between(from, to), p.Target.Effects))
	}
	return p, err
}

// withItsNode is how long after its node a pod may come that is the first one there.
const withItsNode = time.Minute

// first reports whether the pod is the first one on its node. Both times are by the clock of the API server.
func (o observation) first(pod *corev1.Pod) bool {
	node := o.Places.Node(capacity.TargetNode(pod))
	return node != nil && pod.CreationTimestamp.Sub(node.CreationTimestamp.Time).Abs() <= withItsNode
}

// labelled reports whether the DaemonSet controller takes the pod for updated (IsPodUpdated in
// pkg/controller/daemon/util of Kubernetes).
func (o observation) labelled(pod *corev1.Pod) bool {
	generation := templateGeneration(o.set)
	return revisions.HashOf(pod) == o.newest.hash || generation != "" && pod.Labels[templateGenerationLabel] == generation
}

// unmarked returns the hash that a pod carries when the DaemonSet controller is not to take it for updated.
func (o observation) unmarked(pod *corev1.Pod) string {
	if carries := revisions.HashOf(pod); carries != o.newest.hash { // the generation alone marks it
		return carries
	}
	return o.newest.unmarked()
}

// templateGenerationLabel is on the pods of DaemonSets (DaemonSetTemplateGenerationKey in the API
// group extensions/v1beta1).
const templateGenerationLabel = "pod-template-generation"

// doubt returns for how long the DaemonSet controller may not have seen the label of some pod: let
// loose before it has, it would delete that pod. It watches pods and sets apart from each other. It
// is known to have seen all of them if its status counts as many pods as updated as there are.
//
// That number is no proof where pods come and go, or are on nodes that are none of the set's any
// more: these are not counted. Nor is it where one that is unmarked may still be counted in place of one that is marked. Then it is
// a matter of time: see [revisions.Doubt].
func (o observation) doubt() (counts bool, wait time.Duration) {
	oldest := o.oldest()
	updated, conceals := 0, o.set.Status.NumberMisscheduled > 0 || int(o.set.Status.CurrentNumberScheduled) != len(oldest)
	for _, pod := range oldest {
		_, marked := pod.Labels[templateGenerationLabel]
		updated, conceals = updated+asInt(o.labelled(pod)), conceals || !marked && !o.labelled(pod)
	}
	behind := updated - int(o.set.Status.UpdatedNumberScheduled)
	counts = behind >= 0 && behind <= int(o.set.Status.NumberMisscheduled)
	return counts, revisions.Doubt(o.Notes, o.pods, slices.Collect(maps.Values(oldest)), o.labelled, conceals, o.Now)
}

// settles returns for how long letting go of a new set waits; 0 if it does not, or the set is not new.
func (o observation) settles() time.Duration {
	if templateGeneration(o.set) != firstGeneration {
		return 0
	}
	return o.Settles(o.set.CreationTimestamp, o.set.Status.NumberAvailable >= o.set.Status.DesiredNumberScheduled)
}

// firstGeneration is that of a template that was never edited.
const firstGeneration = "1"

// oldest returns the oldest pod of each node that there is: the DaemonSet controller counts no
// other (updateDaemonSetStatus in pkg/controller/daemon of Kubernetes).
func (o observation) oldest() map[string]*corev1.Pod {
	oldest := map[string]*corev1.Pod{}
	for _, pod := range o.pods {
		node := capacity.TargetNode(pod)
		first := oldest[node]
		if o.Places.Node(node) != nil && (first == nil || older(pod, first)) && (pod.DeletionTimestamp == nil || !terminal(pod)) {
			oldest[node] = pod
		}
	}
	return oldest
}

// older is the order of pods of a node (podByCreationTimestampAndPhase in pkg/controller/daemon of
// Kubernetes).
func older(a, b *corev1.Pod) bool {
	return cmp.Or(asInt(b.Spec.NodeName != "")-asInt(a.Spec.NodeName != ""), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
