package statefulset

import (
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// operator deletes pods of a set under OnDelete that are not of the newest revision, as soon as the status
// speaks of the set's generation. It knows nothing of us. Its watch of the pods may be as far behind as that
// of the StatefulSet controller, and it cares for no limit.
type operator struct {
	there bool
	// When a pod last got its size, and of what.
	moved   time.Time
	edit    string
	updated int
}

// operate is one turn of the operator.
func (s *simulation) operate() {
	if !s.operator.there || rolling(s.Set) || s.Set.Status.ObservedGeneration < s.Set.Generation {
		return
	}
	for name, saw := range s.Saw.Pods {
		pod := s.Pods[name]
		if pod == nil || pod.UID != saw.UID || pod.DeletionTimestamp != nil || label(saw) == s.Set.Status.UpdateRevision {
			continue
		}
		if !s.NeedsRestart(pod, s.Set) && !s.Excused[pod.UID] && !s.stands() {
			s.Must("the operator deletes %s, which needs no restart", name)
		}
		s.DeletePod(name)
	}
}

// Check notes whether pods have got their size.
func (s *simulation) Check() {
	o, updated := &s.operator, 0
	for _, pod := range s.Pods {
		if label(pod) == s.Set.Status.UpdateRevision {
			updated++
		}
	}
	if edit := s.Edit(s.Set); o.edit != edit || updated > o.updated {
		o.edit, o.updated, o.moved = edit, updated, s.Clock.Now()
	}
	s.Simulation.Check()
}

// stands reports whether no pod has got its size for so long that whoever waits has waited enough.
func (s *simulation) stands() bool {
	patience := max(defaults.DeferredTimeout, defaults.ErrorTimeout) + time.Duration(s.Set.Spec.MinReadySeconds)*time.Second
	return s.Clock.Since(s.operator.moved) >= patience
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
	load(t)
	simulated.Pin(t, 1, 300)
	often := maps.Clone(happenings)
	maps.Copy(often, map[string]int{"operator": 4, "partition": 0, "round": 6})
	rapid.Check(t, func(t *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 1).Draw(t, "memory")}, rapid.IntRange(1, 5).Draw(t, "replicas"))
		set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		set.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "minReadySeconds"))
		lag, happens := rapid.Bool().Draw(t, "lag"), simulated.Steps(often).Draw(t, "steps")

		s := newSimulation(t, set, simulated.Outcomes(t))
		defer s.Stop()
		s.operator.there, s.Lag.BuiltIn = true, lag
		s.Ends(happens)
	})
}
