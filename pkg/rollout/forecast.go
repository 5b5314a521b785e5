package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// WorkloadForecast is what a rollout does to the pods of a workload.
type WorkloadForecast struct {
	// Pods in the order in which the rollout comes to them.
	Pods []judge.PodForecast
	// HandOver is why the built-in controller makes all of the rollout; empty if it does not.
	HandOver string
	// Stale names the pods that the built-in controller would restart if it were let go now.
	Stale []string
	// Awaits names the pods that have to be Ready before it restarts any, and that it does not restart for that.
	Awaits []string
	// Revision is the number of the one that the pods go to, where the workload does not name it yet.
	Revision string
	// Unknown is why nothing can be told of the pods; empty if something can.
	Unknown string
	// RoomUnknown is why not all is known that decides what room the nodes have; empty if it is.
	RoomUnknown string
	// Plan is the next step of a rollout that is under way, where that was asked.
	Plan Plan
}

// Guarded returns how many of the pods get their size first in a rollout that is guarded so, and how many such pods there are: of each
// class by itself. There are none where nothing is to be resized, or restarted for its size.
func (f WorkloadForecast) Guarded(g policy.Guard) (canaries, pods int) {
	of, moves := map[string]int{}, map[string]bool{}
	for _, p := range f.Pods {
		m := p.Member
		if m.Differs != "" || p.Forecast == judge.KeptBack || p.Forecast == judge.ScaledIn {
			continue
		}
		of[m.Class]++
		moves[m.Class] = moves[m.Class] || !m.InPlaceOnly && p.Moves()
	}
	for class, n := range of {
		if moves[class] {
			canaries, pods = canaries+min(g.Canaries(n), n), pods+n
		}
	}
	return canaries, pods
}

// Stop keeps back what is still to come of a guarded rollout that was stopped.
func (f WorkloadForecast) Stop() {
	for i, p := range f.Pods {
		if !slices.Contains([]judge.Forecast{judge.Unchanged, judge.New, judge.ScaledIn, judge.KeptBack}, p.Forecast) {
			f.Pods[i].Forecast, f.Pods[i].Reason = judge.KeptBack, "the rollout was stopped"
		}
	}
}

// AwaitChecks keeps back the pods of a guarded rollout that do not have the size yet: nobody can tell whether they would pass the checks,
// for this reason. Those that it can only do good get it all the same.
func (f WorkloadForecast) AwaitChecks(why string) {
	for i, p := range f.Pods {
		m := &p.Member
		if p.Moves() && m.Differs == "" && len(m.Target.Changes)+len(m.Target.Obstacles) > 0 && !m.Cures() {
			f.Pods[i].Forecast, f.Pods[i].Reason = judge.KeptBack, why
		}
	}
}

// Adopts reports whether w will adopt the orphan when it is created, if its selector matches.
// It is false if w exists already, or something controls the orphan.
func Adopts(w, orphan metav1.Object) bool {
	return w.GetUID() == "" && metav1.GetControllerOfNoCopy(orphan) == nil
}

// Adoptable returns those of the pods that w controls, or will adopt when it is created.
func Adoptable(w metav1.Object, selector labels.Selector, all []*corev1.Pod) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range all {
		adopts := Adopts(w, pod) && pod.Namespace == w.GetNamespace() && selector.Matches(labels.Set(pod.Labels)) && pod.DeletionTimestamp == nil
		if metav1.IsControlledBy(pod, w) || adopts {
			pods = append(pods, pod)
		}
	}
	return pods
}
