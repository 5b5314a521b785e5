package daemonset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// simulation drives the controller in a world, and checks what is a matter of DaemonSets alone.
type simulation struct {
	*simulated.Simulation[*appsv1.DaemonSet, *history]

	world *world
}

// Place is that of a pod: its node.
func (*simulation) Place(_ *appsv1.DaemonSet, pod *corev1.Pod) simulated.Place {
	return simulated.Place{Name: capacity.TargetNode(pod)}
}

// Down is maxUnavailable.
func (*simulation) Down(set *appsv1.DaemonSet) int {
	_, unavailable := bounds(set)
	return unavailable
}

// requested checks that the node of a pod which the controller deletes could hold a new one: no audit log has the sizes of nodes.
func (s *simulation) requested(action clienttesting.Action) {
	if !action.Matches("delete", "pods") {
		return
	}
	pod := s.Pods[action.(clienttesting.DeleteActionImpl).Name]
	if pod == nil {
		return
	}
	want, node := simulated.VersionOf(&s.PlannedTemplate().Spec), s.SeenNodes[capacity.TargetNode(pod)]
	resized := simulated.VersionOf(&pod.Spec).Image == want.Image // otherwise nobody asks whether there is room
	if resized && (node == nil || !runs(node) || node.Status.Allocatable.Cpu().MilliValue() < int64(want.CPU)) {
		s.Never("deletes %s, whose node %s cannot have another of %v", pod.Name, capacity.TargetNode(pod), want)
	}
}

// happenings, with how often each occurs.
var happenings = simulated.Often("dsc", map[string]int{
	"dsc sees the nodes": 2, "sees the nodes": 2, "collect": 1, "undo": 1, "limit": 1,
	"join": 1, "leave": 1, "away": 1, "back": 1, "taint": 1, "cordon": 1, "shrink": 1, "collide": 1,
})

// Happens is what becomes of nodes and names.
func (s *simulation) Happens(happens simulated.Step) func() {
	node := nodeName(happens.Arg % 6)
	return map[string]func(){
		"join":  func() { s.join(happens.Arg % 6) },
		"leave": func() { s.leave(node) },
		"away":  func() { s.world.readiness(node, false) },
		"back":  func() { s.world.readiness(node, true) },
		"taint": func() {
			s.world.taint(node, []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}[happens.Arg/2%3])
		},
		"cordon": func() { s.cordon(node, happens.Arg > 5) },
		"shrink": func() { s.resize(node, strconv.Itoa(1+happens.Arg/4)+"m") },
		"collide": func() {
			s.world.taken[version{Image: 1 + happens.Arg%2, CPU: 1 + happens.Arg%3, Memory: happens.Arg % 3}.String()] = happens.Arg > 5
		},
		"orphan": s.world.recreate,
	}[happens.Do]
}

// Uses is what users do to a DaemonSet.
func (s *simulation) Uses(set *appsv1.DaemonSet, happens simulated.Step, v version) version {
	switch happens.Do {
	case "undo": // kubectl rollout undo
		if all := s.world.revisions; len(all) > 0 {
			return versionOf(all[happens.Arg%len(all)])
		}
	case "limit": // of a held set they see the hold's type, and may leave it
		held := set.Spec.UpdateStrategy.Type
		set.Spec.UpdateStrategy = strategies[happens.Arg%len(strategies)]
		if happens.Arg > 5 {
			set.Spec.UpdateStrategy.Type = held
		}
	case "strategy":
		set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		if happens.Arg%3 > 0 {
			set.Spec.UpdateStrategy = strategies[happens.Arg%len(strategies)]
		}
	}
	return v
}

// strategies that the users choose from.
var strategies = []appsv1.DaemonSetUpdateStrategy{
	rollingUpdate(intstr.FromInt32(1), intstr.FromInt32(0)), rollingUpdate(intstr.FromInt32(2), intstr.FromInt32(0)),
	rollingUpdate(intstr.FromString("40%"), intstr.FromInt32(0)), rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)),
	rollingUpdate(intstr.FromInt32(0), intstr.FromString("50%")),
}

func (s *simulation) join(i int) {
	if s.Nodes[nodeName(i)] == nil {
		s.Nodes = maps.Clone(s.Nodes)
		s.Nodes[nodeName(i)] = newNode(i)
		s.NextRV()
		s.Changes("create", s.Nodes[nodeName(i)])
	}
}

// leave removes a node, unless it is the last one.
func (s *simulation) leave(name string) {
	if len(s.Nodes) > 1 && s.Nodes[name] != nil {
		s.Changes("delete", s.Nodes[name])
		s.Nodes = maps.Clone(s.Nodes)
		delete(s.Nodes, name)
		s.Away = maps.Clone(s.Away)
		delete(s.Away, name)
		s.NextRV()
	}
}

func (s *simulation) cordon(name string, cordoned bool) {
	s.world.changeNode(name, func(node *corev1.Node) {
		node.Spec.Unschedulable, node.Spec.Taints = cordoned, taints(node, corev1.TaintNodeUnschedulable)
		if cordoned {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}
	})
}

// resize has the node have so much cpu.
func (s *simulation) resize(name, cpu string) {
	s.world.changeNode(name, func(node *corev1.Node) { node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(cpu) })
}

// Mend has every node be a usual one again.
func (s *simulation) Mend() {
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		s.world.readiness(name, true)
		s.world.taint(name, "")
		s.cordon(name, false)
		s.resize(name, "8")
	}
	clear(s.world.taken)
}

// Helpless: with maxSurge restarts come last, and may wait for pods that are kept. Where a container
// restarts for the size, the pod may wait for one that is not Ready with it.
func (s *simulation) Helpless(pod *corev1.Pod) bool {
	node, want := s.Nodes[capacity.TargetNode(pod)], s.Wanted(s.Set)
	surge, _ := bounds(s.Set)
	return node == nil || !runs(node) || s.Away[node.Name] || s.world.tooSmall(pod, want) || simulated.Restarts(pod, want) || surge > 0 && s.NeedsRestart(pod, s.Set)
}

// Describe is for the trace.
func (*simulation) Describe(set *appsv1.DaemonSet) string {
	r, status := ptr.Deref(set.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{}), set.Status
	return fmt.Sprintf("%s %v %v, template %s, observed %d, %d updated of %d of %d, %d misscheduled", set.Spec.UpdateStrategy.Type, r.MaxUnavailable, r.MaxSurge, templateGeneration(set),
		status.ObservedGeneration, status.UpdatedNumberScheduled, status.CurrentNumberScheduled, status.DesiredNumberScheduled, status.NumberMisscheduled)
}

// newSimulation has a set that begins with that version, and is at rest.
func newSimulation(t testing.TB, r simulated.T, set *appsv1.DaemonSet, nodes int, outcomes []simulated.Outcome) *simulation {
	w := newWorld(t, set, nodes, outcomes)
	s := &simulation{world: w}
	s.Simulation = simulated.NewSimulation(r, w.Workload, simulated.Setup[*appsv1.DaemonSet, *history]{
		BuiltIn: "dsc", Templates: templates, Defaults: defaults,
		Kind: func(client *fake.Clientset) controller.Kind[*appsv1.DaemonSet, *history] { return New(client) },
	})
	s.Requested = s.requested
	s.Start(s)
	return s
}

func TestSimulation(t *testing.T) {
	simulated.Pin(t, 1, 500)
	rapid.Check(t, func(r *rapid.T) {
		set := webSet(version{Image: rapid.SampledFrom([]int{1, 3}).Draw(r, "image"), CPU: 1, Memory: rapid.IntRange(0, 1).Draw(r, "memory")})
		set.Spec.UpdateStrategy = rapid.SampledFrom(strategies).Draw(r, "strategy")
		set.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(r, "minReadySeconds"))
		nodes := rapid.IntRange(1, 6).Draw(r, "nodes")
		outcomes := simulated.Outcomes(r)
		lags, happens := rapid.IntRange(0, 3).Draw(r, "lags"), simulated.Steps(happenings).Draw(r, "steps")

		s := newSimulation(t, r, set, nodes, outcomes)
		s.Lag.BuiltIn, s.Lag.Controller = lags&1 > 0, lags&2 > 0
		s.Ends(happens)
	})
}

// TestSimulationOfRoom: nodes have no room for a while, and users edit meanwhile. Others go on beside a pod
// that waits for room, but not where it has something to lose when it gets its size, such as that it had no limit.
func TestSimulationOfRoom(t *testing.T) {
	simulated.Pin(t, 1, 150)
	often := simulated.OfRoom(happenings)
	rapid.Check(t, func(r *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 2).Draw(r, "memory")})
		set.Spec.UpdateStrategy = rapid.SampledFrom(strategies).Draw(r, "strategy")
		nodes := rapid.IntRange(2, 5).Draw(r, "nodes")
		outcomes, happens := simulated.OutcomesOfRoom(r), simulated.Steps(often).Draw(r, "steps")

		s := newSimulation(t, r, set, nodes, outcomes)
		s.Ends(happens)
	})
}

// TestSimulationOfCanaries: one size kills pods. Whatever happens, others do not get it.
func TestSimulationOfCanaries(t *testing.T) {
	simulated.Pin(t, 1, 200)
	often := simulated.OfCanaries(happenings, map[string]int{"opt": 1})
	rapid.Check(t, func(r *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1})
		set.Spec.UpdateStrategy = rapid.SampledFrom(strategies).Draw(r, "strategy")
		set.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(r, "minReadySeconds"))
		nodes := rapid.IntRange(2, 5).Draw(r, "nodes")
		onFailure := rapid.SampledFrom([]string{"", policy.OnFailureRevert}).Draw(r, "onFailure")
		lags, spares := rapid.IntRange(0, 3).Draw(r, "lags"), rapid.Bool().Draw(r, "spares")
		outcomes, happens := simulated.Outcomes(r), simulated.Steps(often).Draw(r, "steps")

		set.Annotations[api.CanaryDurationAnnotation] = simulated.CanaryDuration
		s := newSimulation(t, r, set, nodes, outcomes)
		s.Lag.BuiltIn, s.Lag.Controller = lags&1 > 0, lags&2 > 0
		s.GuardedEnds(onFailure, spares, happens)
	})
}

// TestSimulationOfHands: whatever others make of pods and containers at their birth, and whatever kubelets answer, no pod
// is restarted for what a new one would have, too, one edit restarts a pod at most once, no value is touched that nobody has
// edited, and each rollout completes, or its condition says who must act.
func TestSimulationOfHands(t *testing.T) {
	simulated.Pin(t, 1, 150)
	often := simulated.OfHands(happenings)
	rapid.Check(t, func(r *rapid.T) {
		set := webSet(version{Image: rapid.IntRange(simulated.Proxied, simulated.Proxied+1).Draw(r, "image"), CPU: 1, Memory: rapid.IntRange(0, 1).Draw(r, "memory")})
		set.Spec.UpdateStrategy = rapid.SampledFrom(strategies).Draw(r, "strategy")
		set.Annotations[api.ResizeActionAnnotation] = rapid.SampledFrom([]string{"", "", string(policy.LiveResize)}).Draw(r, "action")
		nodes := rapid.IntRange(1, 4).Draw(r, "nodes")
		outcomes, hands := simulated.OutcomesOfHands(r), simulated.DrawHands(r, nodeName(0), nodeName(1), nodeName(2))
		fromBirth, happens := rapid.IntRange(0, 3).Draw(r, "from birth") > 0, simulated.Steps(often).Draw(r, "steps")

		s := newSimulation(t, r, set, nodes, outcomes)
		s.HandsOn(hands, fromBirth)
		s.Converges(happens)
	})
}

// TestSimulationOfComplete: whatever users do to the strategy, the hold and the label, Complete is
// never said while a pod is of another revision or size, and comes to be said.
func TestSimulationOfComplete(t *testing.T) {
	simulated.Pin(t, 1, 250)
	often := simulated.OfStrategy(happenings)
	often["orphan"] = 2
	rapid.Check(t, func(r *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 1).Draw(r, "memory")})
		set.Spec.UpdateStrategy = rapid.SampledFrom(strategies).Draw(r, "strategy")
		nodes := rapid.IntRange(1, 4).Draw(r, "nodes")
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]simulated.Outcome{{}, {Slow: 2}, {Deferred: 3}, {Infeasible: true}}), 0, 7).Draw(r, "outcomes")
		happens := simulated.Steps(often).Draw(r, "steps")

		s := newSimulation(t, r, set, nodes, outcomes)
		s.Completes(happens)
	})
}
