package statefulset

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// operator deletes pods of a set under OnDelete that are not of the newest revision, as soon as the status
// speaks of the set's generation. It knows nothing of us. Its watch of the pods may be as far behind as that
// of the StatefulSet controller, and it cares for no limit.
type operator struct{ there bool }

// operate is one turn of the operator.
func (s *simulation) operate() {
	if !s.operator.there || rolling(s.Set) || s.Set.Status.ObservedGeneration < s.Set.Generation {
		return
	}
	defer s.As(simulated.Operator)()
	for name, saw := range s.Saw.Pods {
		pod := s.Pods[name]
		if pod == nil || pod.UID != saw.UID || pod.DeletionTimestamp != nil || label(saw) == s.Set.Status.UpdateRevision {
			continue
		}
		s.DeletePod(name)
	}
}

// Round is followed by a turn of the operator.
func (s *simulation) Round() {
	s.Simulation.Round()
	s.operate()
}

// TestSimulationOfOperators: beside an operator that deletes pods by their revision, none is deleted that can be
// resized, whatever users edit and whenever the controller is restarted. And what can only be restarted is: no
// hold stays for ever.
func TestSimulationOfOperators(t *testing.T) {
	simulated.Pin(t, 1, 150)
	often := maps.Clone(happenings)
	maps.Copy(often, map[string]int{"operator": 4, "partition": 0, "round": 6})
	rapid.Check(t, func(t *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 1).Draw(t, "memory")}, rapid.IntRange(1, 5).Draw(t, "replicas"))
		set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		set.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "minReadySeconds"))
		lag, happens := rapid.Bool().Draw(t, "lag"), simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, simulated.Outcomes(t))
		s.operator.there, s.Lag.BuiltIn = true, lag
		s.Ends(happens)
	})
}
