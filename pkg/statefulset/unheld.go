package statefulset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Unheld is that of controller.Kind. Under OnDelete nobody makes a rollout but the user.
func (Kind) Unheld(set *appsv1.StatefulSet) controller.Unheld {
	return controller.Unheld{
		Condition: unheldCondition(set), Of: allOf(set), BuiltIn: rolling(set), LeftTo: leftTo,
		Stale:   !rolling(set) && set.Status.UpdatedReplicas < set.Status.Replicas,
		Counted: int(set.Status.UpdatedReplicas) >= replicas(set)-keptBack(set), AllThere: int(set.Status.Replicas) == replicas(set),
	}
}

// allOf returns how the message ends of a condition that says Complete: it names the revision,
// and the partition if it keeps pods back.
func allOf(set *appsv1.StatefulSet) string {
	end := " pods are of revision " + set.Status.UpdateRevision
	if keptBack(set) > 0 {
		end += fmt.Sprintf("; partition %d keeps back the others", partition(set))
	}
	return end
}

// unheldCondition returns the condition of a rollout that the StatefulSet controller makes, or
// that is over. Once Complete, a set stays so until there is a new revision or a new hold: a
// pod that is lost later is no rollout. As for `kubectl rollout status`, the pods that the
// partition keeps back have to be available, too.
func unheldCondition(set *appsv1.StatefulSet) rollout.Condition {
	status, kept := set.Status, keptBack(set)
	c := condition(set)
	if c.Complete() ||
		int(status.UpdatedReplicas) >= replicas(set)-kept && int(status.AvailableReplicas) >= replicas(set) {
		return rollout.Condition{
			Complete: true, Reason: rollout.ReasonComplete, Message: fmt.Sprintf("%d of %d", status.UpdatedReplicas, replicas(set)) + allOf(set),
		}
	}
	counts := fmt.Sprintf("%d of %d pods updated, %d available", status.UpdatedReplicas, replicas(set)-kept, status.AvailableReplicas)
	if int(status.UpdatedReplicas) >= replicas(set)-kept {
		return rollout.Condition{Reason: rollout.ReasonProgressing, Message: "waiting for pods to become available: " + counts}
	}
	return rollout.Condition{Reason: rollout.ReasonProgressing, Message: leftTo + ": " + counts}
}

const leftTo = "left to the StatefulSet controller"
