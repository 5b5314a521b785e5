package statefulset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// under is a place that the rollout of one edit has taken.
type under struct {
	edit string
	uid  types.UID // of the pod that is resized, or must be gone
	gone bool
}

// simulation drives the controller in a world, and checks after every step what
// must never happen.
type simulation struct {
	*world
	*simulated.Driver

	t    simulated.T
	eyes simulated.Eyes[*appsv1.StatefulSet, *memory]
	lag  struct{ KCM, Controller bool } // whose view of the pods is a round behind

	listed map[string]*corev1.Pod // as they were before
	turns  simulated.Turns

	first  version
	anyhow bool // users opt out, let go, and choose OnDelete: then the StatefulSet controller restarts what it likes
	under  map[int]under
	doomed map[types.UID]string // needed a restart when the partition was moved for this edit
	sick   map[types.UID]bool   // crashed for good while the set was held

	excused map[types.UID]bool // born unknown to a plan, or from a revision that was out of date

	admits bool // admission sets the requests of new pods, as a vertical autoscaler does
	births map[types.UID]birth

	partitioned bool        // a partition of the user's has kept pods back at some time
	wanted      map[int]int // when each image was last wanted: the number of that edit
	planned     int64       // the generation that a sync has planned for
	had         map[int]int // the image that was wanted last of those that each index has had
}

// birth is what is known of a pod that the pod itself does not show.
type birth struct{ revision, edit string }

// must fails where something has happened that must not, unless the users do what lets it.
func (s *simulation) must(format string, args ...any) {
	if !s.anyhow {
		s.t.Fatalf(format, args...)
	}
}

// editAnnotation numbers the users' changes of the template.
const editAnnotation = "test/edit"

func edit(set *appsv1.StatefulSet) string { return set.Annotations[editAnnotation] }

// Restart puts a new controller in the place of the one that there is.
func (s *simulation) Restart() {
	client := &fake.Clientset{}
	s.serve(client)
	s.eyes.Open(s.Driver, s.Cluster, New(client), client, simulated.NewNodes(largeNode()), defaults)
	s.sees(true, true)
}

// sees lets the watches of the controller catch up.
func (s *simulation) sees(set, pods bool) {
	if set {
		s.eyes.See(s.set)
	}
	if pods {
		s.eyes.SeePods()
	}
}

// Sync has the controller take one step.
func (s *simulation) Sync() (time.Duration, error) {
	s.turns.Batch, s.listed = nil, maps.Clone(s.Pods)
	saw := s.eyes.Seen.Workload
	after, err := s.eyes.Sync()
	if err == nil && saw.Status.ObservedGeneration == s.set.Generation {
		s.planned = s.set.Generation
	}
	return after, err
}

// mayRequest checks each of the controller's writes before it is carried out.
func (s *simulation) mayRequest(action clienttesting.Action) {
	if action.Matches("patch", "pods/resize") {
		request := action.(clienttesting.PatchAction)
		pod := s.Shown[request.GetName()]
		asked, err := simulated.Patched(pod, &corev1.Pod{}, request.GetPatch())
		s.NoError(err)
		set := s.eyes.Kind.Planned
		if why := s.rules(set).MayAsk(pod, simulated.SizeOf(asked)); why != "" {
			s.must("%s", why)
		}
		s.mayResize(observation{set: set, pods: slices.Collect(maps.Values(s.Shown))}, pod)
		s.turns.Batch = append(s.turns.Batch, pod)
	}
}

// rules are those of the set's rollout.
func (s *simulation) rules(set *appsv1.StatefulSet) simulated.Rules {
	want := simulated.VersionOf(&set.Spec.Template.Spec)
	return simulated.Rules{
		Cluster: s.Cluster, Want: want, InForce: set.Annotations[api.InForceAnnotation], Edit: edit(set), MinReady: time.Duration(set.Spec.MinReadySeconds) * time.Second, Most: maxUnavailable(set),
		PassDeferred: set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement,

		Labelled:  func(pod *corev1.Pod) bool { return label(pod) == revisionOf(want) },
		Available: observation{set: set, Facts: rollout.Facts{Now: s.Clock.Now()}}.available,
		Admitted:  func(pod *corev1.Pod) bool { return s.admitted(pod, want) },
	}
}

// hasWritten checks each of the controller's writes that has been carried out; before is what was there before.
func (s *simulation) hasWritten(action clienttesting.Action, before simulated.Object) {
	set := s.eyes.Kind.Planned
	switch pod, _ := before.(*corev1.Pod); {
	case action.Matches("patch", "pods/resize"):
		index, _ := observation{set: set}.index(pod)
		s.turns.Asked(s.rules(set), pod.Name, s.Shown[pod.Name])
		if podutils.IsPodReady(s.Shown[pod.Name]) { // otherwise it was not available anyway
			s.takes(set, index, under{edit: edit(set), uid: pod.UID})
		} else {
			s.keptBack(set, index)
		}
	case action.Matches("patch", "pods"):
		want := versions[set.Status.UpdateRevision]
		if have := simulated.AppliedSize(pod); simulated.VersionOf(&pod.Spec) != want || pod.Spec.NodeName != "" && (have.CPU != want.CPU || have.Memory != want.Memory) {
			s.t.Fatalf("settled %s, which has %+v, as %+v", pod.Name, have, want)
		}
	case action.Matches("delete", "pods"):
		s.stays(set, pod)
		if !s.needsRestart(s.Shown[pod.Name], set) {
			s.must("deleted %s, which needs no restart", pod.Name)
		}
		o := observation{set: set, Facts: rollout.Facts{Now: s.Clock.Now()}}
		if index, _ := o.index(pod); o.available(s.Shown[pod.Name]) {
			s.takes(set, index, under{edit: edit(set), uid: pod.UID, gone: true})
		}
	case action.Matches("patch", "statefulsets/status"):
		had, has := condition(before.(*appsv1.StatefulSet)), condition(s.set)
		if has.Status == corev1.ConditionTrue && (had == nil || had.Status != corev1.ConditionTrue) {
			s.isComplete()
		}
	default:
		s.exposes()
	}
}

// isComplete checks the pods when the condition says that the rollout is over.
// One may have been lost since they were looked at, but none is of an older revision, or
// has the size of another, or has yet to prove its own.
func (s *simulation) isComplete() {
	newest := revisionOf(simulated.VersionOf(&s.set.Spec.Template.Spec))
	for i := keptBack(s.set); i < replicas(s.set); i++ {
		if pod := s.Pods[s.name(i)]; pod != nil && s.Unproved(pod, time.Duration(s.set.Spec.MinReadySeconds)*time.Second) {
			s.t.Fatalf("the set says Complete, and %s has yet to prove its size", pod.Name)
		}
		if pod := s.Pods[s.name(i)]; pod != nil && pod.DeletionTimestamp == nil && (label(pod) != newest || !s.admitted(pod, versions[newest]) && simulated.VersionOf(&pod.Spec) != versions[newest]) {
			s.t.Fatalf("the set says Complete, and %s is of %s with %+v", pod.Name, label(pod), simulated.VersionOf(&pod.Spec))
		}
	}
}

// mayResize checks what a pod may be asked beside those that the step has asked before.
func (s *simulation) mayResize(o observation, pod *corev1.Pod) {
	index, _ := o.index(pod)
	var others []simulated.Other
	for i, other := range o.podsByOrdinal() {
		if i != index {
			wish := wishedPartition(o.set)
			others = append(others, simulated.Other{Pod: other, KeptBack: i < wish, Lost: other == nil && wish > 0 && i >= wish && s.neverComes(o.set)})
		}
	}
	if why := s.turns.MayResize(s.rules(o.set), pod.Name, pod, others); why != "" {
		s.must("%s", why)
	}
}

// neverComes reports whether admission refuses pods of the older size. They are made of the newest in their
// turn: so those above them do not wait for them.
func (s *simulation) neverComes(set *appsv1.StatefulSet) bool {
	current := versions[set.Status.CurrentRevision]
	return current != (version{}) && s.refuses(&corev1.Pod{Spec: templates[current].Spec})
}

// keptBack checks the user's partition for a place that is touched.
func (s *simulation) keptBack(set *appsv1.StatefulSet, index int) {
	if wish := wishedPartition(set); index < wish {
		s.must("touched index %d, which the user's partition %d keeps back", index, wish)
	}
}

// takes checks the user's partition and maxUnavailable for a place that is taken.
func (s *simulation) takes(set *appsv1.StatefulSet, index int, u under) {
	s.keptBack(set, index)
	s.under[index] = u
	taken := 0
	for i, other := range s.under {
		if pod := s.Shown[s.name(i)]; i != index && !other.gone && pod != nil && pod.UID == other.uid && s.rules(set).WaitsForRoom(pod) {
			continue
		}
		if other.edit == u.edit {
			taken++
		}
	}
	if taken > maxUnavailable(set) {
		s.must("%d places are under way, more than maxUnavailable %d", taken, maxUnavailable(set))
	}
}

// exposes checks the pods that a moved partition lets the StatefulSet controller restart, by
// what there was when the controller began to look: it has to ask the API server.
func (s *simulation) exposes() {
	newest := revisionOf(simulated.VersionOf(&s.set.Spec.Template.Spec))
	for _, pod := range s.Pods {
		index, _ := observation{set: s.set}.index(pod)
		if index < partition(s.set) || label(pod) == newest || pod.DeletionTimestamp != nil {
			continue
		}
		known := s.listed[pod.Name]
		switch {
		case known == nil || known.UID != pod.UID:
			s.excused[pod.UID] = true
		case s.needsRestart(known, s.set):
			s.doomed[pod.UID] = edit(s.set)
		case index >= replicas(s.set):
			s.excused[pod.UID] = true // about to be scaled away; the user may scale up again before that
		default:
			s.must("partition %d exposes %s, which can be resized live", partition(s.set), pod.Name)
		}
	}
}

// needsRestart reports, by the rules of the world, whether only a new pod can be one of set's template.
func (s *simulation) needsRestart(pod *corev1.Pod, set *appsv1.StatefulSet) bool {
	return s.rules(set).NeedsRestart(pod)
}

// restarted checks each pod that the StatefulSet controller is about to delete for its revision.
func (s *simulation) restarted(pod *corev1.Pod) {
	set := s.seenSet
	s.stays(set, pod)
	index, _ := observation{set: set}.index(pod)
	if wish := wishedPartition(set); index < wish {
		s.must("the StatefulSet controller restarts %s, which the user's partition %d keeps back", pod.Name, wish)
	}
	if !s.excused[pod.UID] && s.doomed[pod.UID] != edit(set) && !s.needsRestart(pod, set) {
		s.must("the StatefulSet controller restarts %s, which needs no restart", pod.Name)
	}
	if policy.Held(set) && podutils.IsPodReady(pod) { // otherwise it was not available anyway
		s.under[index] = under{edit: edit(set), uid: pod.UID, gone: true}
	}
}

// born checks each new pod. The StatefulSet controller may make one from what
// it saw of the set before we let go, and restart it when it sees that we did.
func (s *simulation) born(pod *corev1.Pod) {
	s.births[pod.UID] = birth{label(pod), edit(s.set)}
	if s.admits {
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2m")
	}
	if partition(s.seenSet) != partition(s.set) {
		s.excused[pod.UID] = true
	}
	index, _ := observation{set: s.set}.index(pod)
	wish := wishedPartition(s.set)
	s.notDowngraded(index, pod)
	if u := s.under[index]; u.gone && index >= wish && u.edit == edit(s.set) && label(pod) != revisionOf(simulated.VersionOf(&s.set.Spec.Template.Spec)) {
		s.must("restarted %s for nothing: it is born again from the old revision", pod.Name)
	}
}

// notDowngraded checks that no pod is made of an older image than the newest that its place has had,
// unless the user went back to it. The StatefulSet controller may do so before it has seen an edit, or
// written of it, and where the user keeps pods back: those come back as they were. And where the user
// goes back to an image, it may make a pod of the one that is left, until it has seen our write.
func (s *simulation) notDowngraded(index int, pod *corev1.Pod) {
	s.partitioned = s.partitioned || wishedPartition(s.set) > 0
	image, want := simulated.VersionOf(&pod.Spec).Image, simulated.VersionOf(&s.set.Spec.Template.Spec)
	seen := s.seenSet.Generation == s.set.Generation && s.seenSet.Status.UpdateRevision == revisionOf(want) && s.seenSet.Status.CurrentRevision == s.set.Status.CurrentRevision
	before, any := s.had[index]
	if any && s.wanted[image] < s.wanted[before] && seen && !s.partitioned && (before != want.Image || s.planned == s.set.Generation) {
		s.must("%s has had image %d, and is made of image %d, which is older", pod.Name, before, image)
	}
	if !any || s.wanted[image] > s.wanted[before] {
		s.had[index] = image
	}
}

// stays checks that no place is restarted twice for one edit: a pod that was born of its
// revision is done, whatever admission has made of it.
func (s *simulation) stays(set *appsv1.StatefulSet, pod *corev1.Pod) {
	if newest := revisionOf(simulated.VersionOf(&set.Spec.Template.Spec)); s.births[pod.UID] == (birth{newest, edit(set)}) {
		s.must("%s is restarted, which was born of %s", pod.Name, newest)
	}
}

// admitted reports whether the pod was born of that version, and is what admission has made of it.
func (s *simulation) admitted(pod *corev1.Pod, v version) bool {
	return s.admits && s.births[pod.UID].revision == revisionOf(v) && simulated.SizeOf(pod).CPU == 2
}

// Check gives back the places whose pod has come through, or has been refused its size.
func (s *simulation) Check() {
	for name, uid := range s.turns.Restarting {
		pod := s.Pods[name]
		if pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil || simulated.SizeOf(pod) == simulated.AppliedSize(pod) && podutils.IsPodReady(pod) {
			delete(s.turns.Restarting, name)
		}
	}
	for index, u := range s.under {
		pod := s.Pods[s.name(index)]
		if index >= replicas(s.set) || pod != nil && (pod.UID != u.uid || !u.gone && (simulated.SizeOf(pod) == simulated.AppliedSize(pod) || s.needsRestart(pod, s.set) && simulated.Pending(pod))) &&
			pod.DeletionTimestamp == nil && podutils.IsPodAvailable(pod, s.set.Spec.MinReadySeconds, metav1.NewTime(s.Clock.Now())) {
			delete(s.under, index)
		}
	}
}

type step = simulated.Step

// happenings, with how often each occurs.
var happenings = map[string]int{
	"round": 8, "kubelet": 8, "kubelets": 3, "kcm sees the set": 3, "kcm sees the pods": 3, "kcm": 6,
	"sees the set": 2, "sees the pods": 2, "sees": 2, "sync": 4, simulated.Meanwhile: 4, "syncs": 4, "sync and die": 2, "sync and lose": 2, "restart": 1, "time": 1,
	"edit cpu": 2, "edit memory": 2, "edit image": 1, "first template": 1, "scale": 1, "partition": 1, "delete": 1, "crash": 1,
	"action": 1, "policy": 1,
}

// ofStrategy are those after which the StatefulSet controller may restart what it likes.
var ofStrategy = map[string]int{"opt": 2, "release": 1, "abandon": 2, "strategy": 2}

// Pod is that of a place.
func (s *simulation) Pod(n int) *corev1.Pod { return s.Pods[s.name(n%replicas(s.set))] }

// Do is one thing that happens.
func (s *simulation) Do(happens step, pod *corev1.Pod) {
	switch happens.Do {
	case "kubelet":
		if pod != nil {
			s.Kubelet(pod.Name)
		}
	case "kcm sees the set":
		s.kcmSees(true, false)
	case "kcm sees the pods":
		s.kcmSees(false, true)
	case "kcm":
		s.kcm()
	case "sees the set":
		s.sees(true, false)
	case "sees the pods":
		s.sees(false, true)
	case "sees":
		s.sees(true, true)
	case "syncs":
		s.sees(true, true)
		s.One(step{Do: "sync"})
	case "edit cpu", "edit memory", "edit image", "first template":
		v := simulated.VersionOf(&s.set.Spec.Template.Spec)
		if edited := happens.Edited(v, s.first); edited != v {
			s.user(func(set *appsv1.StatefulSet) {
				set.Spec.Template = *templates[edited]
				n, _ := strconv.Atoi(edit(set))
				set.Annotations[editAnnotation] = strconv.Itoa(n + 1)
				s.wanted[edited.Image] = n + 1
			})
		}
	case "action", "policy":
		s.user(func(set *appsv1.StatefulSet) { happens.Annotate(set.Annotations) })
	case "scale":
		s.user(func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(int32(1 + happens.Arg%6)) })
	case "partition":
		s.user(func(set *appsv1.StatefulSet) {
			if !rolling(set) {
				return
			}
			set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(happens.Arg % 6))
			s.partitioned = s.partitioned || happens.Arg%6 > 0
		})
	case "opt":
		s.user(func(set *appsv1.StatefulSet) {
			set.Labels = map[string]string{api.EnabledLabel: strconv.FormatBool(happens.Arg%3 > 0)}
		})
	case "release": // inplace-rollout release
		if policy.Held(s.set) {
			s.releasing = true
			s.user(func(*appsv1.StatefulSet) {})
			s.releasing = false
		}
	case "abandon": // an edit, which is undone and let go of while no controller runs
		s.One(step{Do: "edit cpu", Arg: happens.Arg})
		for range 1 + happens.Arg/3 {
			s.Round()
		}
		s.One(step{Do: "first template"})
		s.One(step{Do: "release"})
	case "strategy":
		s.user(func(set *appsv1.StatefulSet) {
			set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
			if happens.Arg%3 > 0 {
				set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
					Type:          appsv1.RollingUpdateStatefulSetStrategyType,
					RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(int32(happens.Arg % 4)), MaxUnavailable: ptr.To(intstr.FromInt32(1))},
				}
			}
		})
	case "crash":
		if pod != nil && pod.DeletionTimestamp == nil {
			forGood := happens.Arg > 5
			if forGood {
				s.sick[pod.UID] = policy.Held(s.set) && !s.Syncing()
			}
			s.Crash(pod, forGood)
		}
	}
}

// Round lets everybody do one thing, in the order that lag makes of it.
func (s *simulation) Round() {
	s.Pass(time.Second)
	if s.lag.Controller {
		s.sees(true, true)
	}
	s.Kubelets()
	s.Check()
	s.kcmSees(true, !s.lag.KCM)
	s.kcm()
	s.kcmSees(true, true)
	if !s.lag.Controller {
		s.sees(true, true)
	}
	s.Look()
	if s.lag.KCM { // time for two steps before it has seen the first
		s.sees(true, false)
		s.Look()
	}
}

// cured checks, at rest, that no pod is left not Ready that we could make Ready, by a new size
// or by a restart that we force. An OrderedReady set would wait for that pod before it
// restarts any. One deadlock is let pass (see TestNextStepDeadlocks): our restart waits for a
// stale or missing pod above, which waits for the StatefulSet controller, which waits for the
// pod that is not Ready.
func (s *simulation) cured() {
	want := simulated.VersionOf(&s.set.Spec.Template.Spec)
	for _, pod := range s.Pods {
		index, _ := observation{set: s.set}.index(pod)
		wish := wishedPartition(s.set)
		if !s.sick[pod.UID] || podutils.IsPodReady(pod) || index < wish || index >= replicas(s.set) || simulated.VersionOf(&pod.Spec).Image != want.Image {
			continue
		}
		above := false
		for i := index + 1; i < replicas(s.set); i++ {
			other := s.Pods[s.name(i)]
			above = above || other == nil || label(other) != revisionOf(want) || !podutils.IsPodReady(other)
		}
		if s.needsRestart(pod, s.set) && above {
			continue
		}
		if s.admitted(pod, want) {
			continue
		}
		if have := simulated.AppliedSize(pod); s.needsRestart(pod, s.set) || have.CPU != want.CPU || have.Memory != want.Memory {
			s.t.Fatalf("%s is not Ready, has %+v, needs a restart: %t, and nobody does anything about it", pod.Name, have, s.needsRestart(pod, s.set))
		}
	}
}

// trace logs each change of an object; rapid shows it when a check fails.
func (s *simulation) trace(object runtime.Object, gone bool) {
	at := s.Clock.Now().Format(time.TimeOnly)
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		s.t.Logf("%s StatefulSet: %v ×%d, partition %d, held %q, observed %d of %d, %d updated of %d, %+v", at, simulated.VersionOf(&o.Spec.Template.Spec), replicas(o), partition(o),
			o.Annotations[api.HoldAnnotation], o.Status.ObservedGeneration, o.Generation, o.Status.UpdatedReplicas, o.Status.Replicas, ptr.Deref(condition(o), rollout.StoredCondition{}))
	case *corev1.Pod:
		s.t.Logf("%s %s: gone %t, deleted %t, of %s, %v, has %v, ready %t", at, o.Name, gone, o.DeletionTimestamp != nil, label(o), simulated.VersionOf(&o.Spec), simulated.AppliedSize(o), podutils.IsPodReady(o))
	}
}

// Unfinished returns what of the rollout is not done; empty if nothing.
func (w *world) Unfinished() string {
	return w.unfinishedBut(func(*corev1.Pod, version) bool { return false })
}

// Unfinished leaves out what admission has made of pods.
func (s *simulation) Unfinished() string { return s.unfinishedBut(s.admitted) }

func (w *world) unfinishedBut(admitted func(*corev1.Pod, version) bool) string {
	if policy.Held(w.set) {
		return fmt.Sprintf("the set is held: %+v", w.set.Status.Conditions)
	}
	want := simulated.VersionOf(&w.set.Spec.Template.Spec)
	for i := partition(w.set); i < replicas(w.set); i++ {
		pod := w.Pods[w.name(i)]
		if pod == nil || label(pod) != revisionOf(want) || !admitted(pod, want) && simulated.VersionOf(&pod.Spec) != want || simulated.AppliedSize(pod) != simulated.SizeOf(pod) || !podutils.IsPodReady(pod) {
			return fmt.Sprintf("index %d is not a Ready pod of %s", i, revisionOf(want))
		}
	}
	if c := condition(w.set); c == nil || c.Status != corev1.ConditionTrue {
		return "the condition does not say Complete"
	}
	return ""
}

// newSimulation has a set that begins with that version, and is at rest.
func newSimulation(t simulated.T, set *appsv1.StatefulSet, outcomes []simulated.Outcome) *simulation {
	s := &simulation{
		world: newWorld(set, outcomes), t: t, first: simulated.VersionOf(&set.Spec.Template.Spec),
		under: map[int]under{}, doomed: map[types.UID]string{}, excused: map[types.UID]bool{}, sick: map[types.UID]bool{}, births: map[types.UID]birth{},
		turns: simulated.NewTurns(), wanted: map[int]int{}, had: map[int]int{},
	}
	s.restarts, s.birth, s.Requested, s.Wrote = s.restarted, s.born, s.mayRequest, s.hasWritten
	s.Driver = simulated.NewDriver(t, s.Cluster, s)
	s.Changed = s.trace
	s.Begin(30)
	return s
}

func TestSimulation(t *testing.T) {
	load(t)
	simulated.Pin(t, 1, 700)
	rapid.Check(t, func(t *rapid.T) {
		first := version{Image: rapid.SampledFrom([]int{1, 3}).Draw(t, "image"), CPU: 1, Memory: rapid.IntRange(0, 1).Draw(t, "memory")}
		set := webSet(first, rapid.IntRange(1, 6).Draw(t, "replicas"))
		if start := rapid.IntRange(0, 3).Draw(t, "start"); start > 0 {
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(start)}
		}
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(1, 3).Draw(t, "maxUnavailable")))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "partition")))
		if rapid.Bool().Draw(t, "parallel") {
			set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		}
		set.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "minReadySeconds"))
		outcomes := simulated.Outcomes(t)
		admits := rapid.IntRange(0, 3).Draw(t, "admission") == 3
		lags, happens := rapid.IntRange(0, 3).Draw(t, "lags"), simulated.Steps(happenings).Draw(t, "steps")

		s := newSimulation(t, set, outcomes)
		defer s.Stop()
		s.lag.KCM, s.lag.Controller = lags&1 > 0, lags&2 > 0
		s.admits = admits // from now on
		s.All(slices.Concat(happens...))
		s.Finish(s.Unfinished, s.cured)
	})
}

// TestSimulationOfImages: a size is edited while an image is rolled out, and pods are lost. None comes
// back of an older image than it has had.
func TestSimulationOfImages(t *testing.T) {
	load(t)
	simulated.Pin(t, 1, 300)
	often := maps.Clone(happenings)
	maps.Copy(often, map[string]int{"edit image": 5, "edit cpu": 5, "delete": 6, "scale": 2, "partition": 0, "kcm": 10})
	rapid.Check(t, func(t *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1}, rapid.IntRange(2, 5).Draw(t, "replicas"))
		if rapid.Bool().Draw(t, "parallel") {
			set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		}
		happens := simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, simulated.Outcomes(t))
		defer s.Stop()
		s.All(slices.Concat(happens...))
		s.Finish(s.Unfinished, s.cured)
	})
}

// TestSimulationOfRefusedBirths: admission comes to refuse new pods of some sizes, by a LimitRange or for
// a reason that nobody knows. An edit to a size that it lets in brings every pod, of this size.
func TestSimulationOfRefusedBirths(t *testing.T) {
	load(t)
	simulated.Pin(t, 1, 300)
	often := maps.Clone(happenings)
	maps.Copy(often, map[string]int{"delete": 6, "scale": 3, "edit cpu": 5, "edit image": 0, "first template": 0})
	rapid.Check(t, func(t *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1}, rapid.IntRange(1, 5).Draw(t, "replicas"))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "partition")))
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(1, 2).Draw(t, "maxUnavailable")))
		if rapid.Bool().Draw(t, "parallel") {
			set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		}
		least := rapid.IntRange(2, 3).Draw(t, "least")
		known := rapid.Bool().Draw(t, "known")
		happens := simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, nil)
		defer s.Stop()
		s.refuses = func(pod *corev1.Pod) bool { return simulated.SizeOf(pod).CPU < least }
		if known {
			s.limits = []corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "least"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
				{Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(least), resource.DecimalSI)}},
			}}}}
		}
		s.All(slices.Concat(happens...))
		s.user(func(set *appsv1.StatefulSet) {
			set.Spec.Template = *templates[version{Image: 1, CPU: 3}]
			set.Annotations[editAnnotation] = "last"
		})
		s.wanted[1]++
		for index := range wishedPartition(s.set) { // those come back as they were: so they must be there
			if pod := s.Pods[s.name(index)]; index < replicas(s.set) && (pod == nil || pod.DeletionTimestamp != nil || !podutils.IsPodReady(pod)) {
				t.Skip("a pod is missing that the user keeps back")
			}
		}
		s.Finish(s.Unfinished, s.cured)
	})
}

// TestSimulationOfComplete: whatever users do to the strategy, the hold and the label, Complete is
// never said while a pod that may move is of another revision or size, and comes to be said.
func TestSimulationOfComplete(t *testing.T) {
	load(t)
	simulated.Pin(t, 1, 400)
	often := maps.Clone(happenings)
	maps.Copy(often, ofStrategy)
	rapid.Check(t, func(t *rapid.T) {
		first := version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 1).Draw(t, "memory")}
		set := webSet(first, rapid.IntRange(1, 4).Draw(t, "replicas"))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "partition")))
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]simulated.Outcome{{}, {Slow: 2}, {Deferred: 3}, {Infeasible: true}}), 0, 7).Draw(t, "outcomes")
		happens := simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, outcomes)
		defer s.Stop()
		s.anyhow = true
		s.All(slices.Concat(happens...))
		clear(s.Broken)
		s.user(func(set *appsv1.StatefulSet) { set.Labels = map[string]string{api.EnabledLabel: "true"} })
		s.Rest()
		if c := condition(s.set); c != nil && c.Status == corev1.ConditionTrue {
			s.isComplete()
		}
		if !rolling(s.set) {
			for name := range s.Pods { // what waits for it
				s.DeletePod(name)
			}
			s.Rest()
		}
		if left := s.Unfinished(); left != "" {
			t.Fatalf("%s: %+v", left, condition(s.set))
		}
		s.isComplete()
	})
}

// TestWatchOfPodsIsBehind: a pod whose resize is infeasible, by what the controller has seen, has
// been replaced a moment ago by one that can be resized. So the StatefulSet controller is not let
// loose, which would delete that one.
func TestWatchOfPodsIsBehind(t *testing.T) {
	load(t)
	for _, tt := range []struct {
		name     string
		replicas int // the last one is infeasible
	}{
		{"letting go", 1},
		{"lowering the partition", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSimulation(t, webSet(older, tt.replicas), nil)
			defer s.Stop()
			infeasible := s.Pods[s.name(tt.replicas-1)]
			s.Infeasible(func(pod *corev1.Pod) bool { return pod.UID == infeasible.UID })
			s.user(func(set *appsv1.StatefulSet) { set.Spec.Template = *templates[newer] })
			s.Others(1)
			s.sees(true, true)
			s.Look() // asks the pod
			s.Others(1)
			s.sees(true, true)
			s.DeletePod(infeasible.Name)
			s.Others(4)
			s.sees(true, false)
			now := s.Pods[infeasible.Name]
			if s.eyes.Seen.Pods[now.Name].UID != infeasible.UID || now.UID == infeasible.UID || !podutils.IsPodReady(now) {
				t.Fatalf("saw %s, and now it is %s", s.eyes.Seen.Pods[now.Name].UID, now.UID)
			}
			s.Look()
			if !policy.Held(s.set) || partition(s.set) != everything {
				t.Errorf("by a watch that is behind, it let go: %t, or lowered the partition to %d", !policy.Held(s.set), partition(s.set))
			}
			s.Rest()
			if left := s.Unfinished(); left != "" || s.Pods[now.Name].UID != now.UID {
				t.Errorf("unfinished: %q; %s restarted: %t", left, now.Name, s.Pods[now.Name].UID != now.UID)
			}
		})
	}
}
