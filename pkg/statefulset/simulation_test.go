package statefulset

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// simulation drives the controller in a world, and checks what is a matter of StatefulSets alone.
type simulation struct {
	*simulated.Simulation[*appsv1.StatefulSet, *memory]

	world    *world
	operator operator
}

// Place is that of a pod, by its index.
func (s *simulation) Place(set *appsv1.StatefulSet, pod *corev1.Pod) simulated.Place {
	index, _ := observation{set: set}.index(pod)
	return simulated.Place{Name: pod.Name, KeptBack: index < wishedPartition(set), Surplus: index >= replicas(set)}
}

// Down is maxUnavailable.
func (*simulation) Down(set *appsv1.StatefulSet) int { return maxUnavailable(set) }

// happenings, with how often each occurs.
var happenings = simulated.Often("kcm", map[string]int{"scale": 1, "partition": 1})

// Pod is that of a place.
func (s *simulation) Pod(n int) *corev1.Pod { return s.Pods[s.world.name(n%max(replicas(s.Set), 1))] }

// Happens: an operator may act. All else that is different is up to users.
func (s *simulation) Happens(happens simulated.Step) func() {
	if happens.Do == "operator" {
		return s.operate
	}
	return nil
}

// Uses is what users do to a StatefulSet.
func (s *simulation) Uses(set *appsv1.StatefulSet, happens simulated.Step, v version) version {
	strategy := &set.Spec.UpdateStrategy
	switch happens.Do {
	case "scale":
		set.Spec.Replicas = ptr.To(int32(1 + happens.Arg%6))
	case "scale to zero":
		set.Spec.Replicas = ptr.To[int32](0)
	case "partition":
		if rolling(set) {
			strategy.RollingUpdate.Partition = ptr.To(int32(happens.Arg % 6))
		}
	case "strategy":
		*strategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		if happens.Arg%3 > 0 {
			strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
			strategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(int32(happens.Arg % 4)), MaxUnavailable: ptr.To(intstr.FromInt32(1))}
		}
	}
	return v
}

// Helpless: an OrderedReady set would wait for that pod before it restarts any, so that we do. One
// deadlock is let pass (see TestNextStepDeadlocks): our restart waits for a stale or missing pod above,
// which waits for the StatefulSet controller, which waits for the pod that is not Ready. Under OnDelete, only its user restarts it.
func (s *simulation) Helpless(pod *corev1.Pod) bool {
	index, _ := observation{set: s.Set}.index(pod)
	above := false
	for i := index + 1; i < replicas(s.Set); i++ {
		other := s.Pods[s.world.name(i)]
		above = above || other == nil || s.world.Of(other) != s.Wanted(s.Set) || !podutils.IsPodReady(other)
	}
	return (above || !rolling(s.Set)) && s.NeedsRestart(pod, s.Set)
}

// Mend deletes what an operator takes for updated, and only a restart helps. The nodes are as usual.
func (s *simulation) Mend() {
	for _, name := range slices.Sorted(maps.Keys(s.Pods)) {
		if pod := s.Pods[name]; s.operator.there && label(pod) == s.Set.Status.UpdateRevision && s.NeedsRestart(pod, s.Set) {
			s.DeletePod(name)
		}
	}
}

// Describe is for the trace.
func (*simulation) Describe(set *appsv1.StatefulSet) string {
	return fmt.Sprintf("×%d, partition %d, observed %d, %d updated of %d", replicas(set), partition(set), set.Status.ObservedGeneration, set.Status.UpdatedReplicas, set.Status.Replicas)
}

// newSimulation has a set that begins with that version, and is at rest.
func newSimulation(t simulated.T, set *appsv1.StatefulSet, outcomes []simulated.Outcome) *simulation {
	w := newWorld(set, outcomes)
	s := &simulation{world: w}
	s.Simulation = simulated.NewSimulation(t, w.Workload, simulated.Setup[*appsv1.StatefulSet, *memory]{
		BuiltIn: "kcm", Templates: templates, Defaults: defaults,
		Kind: func(client *fake.Clientset) controller.Kind[*appsv1.StatefulSet, *memory] { return New(client) },
	})
	s.Start(s)
	return s
}

// maybeParallel has pods come and go all at once, in some runs.
func maybeParallel(t *rapid.T, set *appsv1.StatefulSet) {
	if rapid.Bool().Draw(t, "parallel") {
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
}

func TestSimulation(t *testing.T) {
	simulated.Pin(t, 1, 350)
	rapid.Check(t, func(t *rapid.T) {
		first := version{Image: rapid.SampledFrom([]int{1, 3}).Draw(t, "image"), CPU: 1, Memory: rapid.IntRange(0, 1).Draw(t, "memory")}
		set := webSet(first, rapid.IntRange(1, 6).Draw(t, "replicas"))
		if start := rapid.IntRange(0, 3).Draw(t, "start"); start > 0 {
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(start)}
		}
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(1, 3).Draw(t, "maxUnavailable")))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "partition")))
		maybeParallel(t, set)
		set.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "minReadySeconds"))
		outcomes := simulated.Outcomes(t)
		lags, happens := rapid.IntRange(0, 3).Draw(t, "lags"), simulated.Steps(happenings).Draw(t, "steps")

		s := newSimulation(t, set, outcomes)
		s.Lag.BuiltIn, s.Lag.Controller = lags&1 > 0, lags&2 > 0
		s.Ends(happens)
	})
}

// TestSimulationOfRoom: nodes have no room for a while, and users edit meanwhile. Others go on beside a pod
// that waits for room, but not where it has something to lose when it gets its size, such as that it had no limit.
func TestSimulationOfRoom(t *testing.T) {
	simulated.Pin(t, 1, 100)
	often := simulated.OfRoom(happenings)
	often["partition"] = 0
	rapid.Check(t, func(t *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 2).Draw(t, "memory")}, rapid.IntRange(2, 5).Draw(t, "replicas"))
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(1, 2).Draw(t, "maxUnavailable")))
		outcomes, happens := simulated.OutcomesOfRoom(t), simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, outcomes)
		s.Ends(happens)
	})
}

// TestSimulationOfCanaries: one size kills pods. Whatever happens, others do not get it.
func TestSimulationOfCanaries(t *testing.T) {
	simulated.Pin(t, 1, 150)
	often := simulated.OfCanaries(happenings, map[string]int{"opt": 1, "scale": 3, "scale to zero": 2})
	rapid.Check(t, func(t *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1}, rapid.IntRange(2, 5).Draw(t, "replicas"))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "partition")))
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(1, 3).Draw(t, "maxUnavailable")))
		maybeParallel(t, set)
		set.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "minReadySeconds"))
		onFailure := rapid.SampledFrom([]string{"", policy.OnFailureRevert}).Draw(t, "onFailure")
		lags, spares := rapid.IntRange(0, 3).Draw(t, "lags"), rapid.Bool().Draw(t, "spares")
		outcomes, happens := simulated.Outcomes(t), simulated.Steps(often).Draw(t, "steps")

		set.Annotations[api.CanaryDurationAnnotation] = simulated.CanaryDuration
		s := newSimulation(t, set, outcomes)
		s.Lag.BuiltIn, s.Lag.Controller = lags&1 > 0, lags&2 > 0
		s.GuardedEnds(onFailure, spares, happens)
	})
}

// TestSimulationOfImages: a size is edited while an image is rolled out, and pods are lost. None comes
// back of an older image than it has had.
func TestSimulationOfImages(t *testing.T) {
	simulated.Pin(t, 1, 150)
	often := maps.Clone(happenings)
	maps.Copy(often, map[string]int{"edit image": 5, "edit cpu": 5, "delete": 6, "scale": 2, "partition": 0, "kcm": 10})
	rapid.Check(t, func(t *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1}, rapid.IntRange(2, 5).Draw(t, "replicas"))
		maybeParallel(t, set)
		happens := simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, simulated.Outcomes(t))
		s.Ends(happens)
	})
}

// TestSimulationOfRefusedBirths: admission comes to refuse new pods of some sizes, by a LimitRange or for
// a reason that nobody knows. An edit to a size that it lets in brings every pod, of this size.
func TestSimulationOfRefusedBirths(t *testing.T) {
	simulated.Pin(t, 1, 150)
	often := maps.Clone(happenings)
	maps.Copy(often, map[string]int{"delete": 6, "scale": 3, "edit cpu": 5, "edit image": 0, "first template": 0})
	rapid.Check(t, func(t *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1}, rapid.IntRange(1, 5).Draw(t, "replicas"))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "partition")))
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(1, 2).Draw(t, "maxUnavailable")))
		maybeParallel(t, set)
		least := rapid.IntRange(2, 3).Draw(t, "least")
		known := rapid.Bool().Draw(t, "known")
		happens := simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, nil)
		s.world.refuses = func(pod *corev1.Pod) bool { return simulated.SizeOf(pod).CPU < least }
		if known {
			s.Ranges = []corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "least"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
				{Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(least), resource.DecimalSI)}},
			}}}}
		}
		s.All(slices.Concat(happens...))
		s.User(func(set *appsv1.StatefulSet) { s.EditTo(set, version{Image: 1, CPU: 3}) })
		for index := range wishedPartition(s.Set) { // those come back as they were: so they must be there
			if pod := s.Pods[s.world.name(index)]; index < replicas(s.Set) && (pod == nil || pod.DeletionTimestamp != nil || !podutils.IsPodReady(pod)) {
				t.Skip("a pod is missing that the user keeps back")
			}
		}
		s.Ends(nil)
	})
}

// TestSimulationOfHands: others move, drop, rename and add containers, and make other values of the template's, when a pod is
// born; kubelets answer otherwise, and pods are deleted because they were resized. No pod is restarted for what a new
// one would have, too, one edit restarts a pod at most once, no value is touched that nobody has edited, and each
// rollout completes, or its condition says who must act.
func TestSimulationOfHands(t *testing.T) {
	simulated.Pin(t, 1, 150)
	often := simulated.OfHands(happenings)
	rapid.Check(t, func(t *rapid.T) {
		set := webSet(version{Image: rapid.IntRange(simulated.Proxied, simulated.Proxied+1).Draw(t, "image"), CPU: 1, Memory: rapid.IntRange(0, 1).Draw(t, "memory")}, rapid.IntRange(1, 4).Draw(t, "replicas"))
		maybeParallel(t, set)
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(1, 2).Draw(t, "maxUnavailable")))
		set.Annotations[api.ResizeActionAnnotation] = rapid.SampledFrom([]string{"", "", string(policy.LiveResize)}).Draw(t, "action")
		outcomes, hands := simulated.OutcomesOfHands(t), simulated.DrawHands(t, "node", "twin")
		fromBirth, happens := rapid.IntRange(0, 3).Draw(t, "from birth") > 0, simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, outcomes)
		s.Nodes = map[string]*corev1.Node{"node": s.Nodes["node"], "twin": simulated.Twin(s.Nodes["node"], "twin")}
		s.Schedule = func(pod *corev1.Pod) string { return []string{"node", "twin"}[s.world.place(pod)%2] }
		s.HandsOn(hands, fromBirth)
		s.Converges(happens)
	})
}

// TestSimulationOfComplete: whatever users do to the strategy, the hold and the label, Complete is
// never said while a pod that may move is of another revision or size, and comes to be said.
func TestSimulationOfComplete(t *testing.T) {
	simulated.Pin(t, 1, 200)
	often := simulated.OfStrategy(happenings)
	rapid.Check(t, func(t *rapid.T) {
		first := version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 1).Draw(t, "memory")}
		set := webSet(first, rapid.IntRange(1, 4).Draw(t, "replicas"))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "partition")))
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]simulated.Outcome{{}, {Slow: 2}, {Deferred: 3}, {Infeasible: true}}), 0, 7).Draw(t, "outcomes")
		happens := simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, outcomes)
		s.Completes(happens)
	})
}
