package daemonset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Unheld is that of controller.Kind. Under OnDelete nobody makes a rollout but the user.
func (Kind) Unheld(set *appsv1.DaemonSet) controller.Unheld {
	status := set.Status
	u := controller.Unheld{
		Condition: unheldCondition(set), Of: allOf(set), BuiltIn: rolling(set), Standing: policy.HasClasses(set.Annotations),
		Stale:   !rolling(set) && status.UpdatedNumberScheduled < status.CurrentNumberScheduled,
		Counted: status.UpdatedNumberScheduled >= status.CurrentNumberScheduled, AllThere: status.CurrentNumberScheduled == status.DesiredNumberScheduled,
	}
	u.LeftTo, u.Rollout = leftTo, rolloutOf(set)
	if surge, _ := bounds(set); surge > 0 && u.BuiltIn {
		u.NotHeld = "it was edited, or opted in, during a rollout with maxSurge, which goes on"
	}
	return u
}

// allOf returns how the message of a condition ends that says Complete; what it says of classes
// comes after that.
func allOf(set *appsv1.DaemonSet) string {
	return " pods are of template generation " + templateGeneration(set)
}

// over reports whether the set's condition says that the rollout of its template is over.
func over(set *appsv1.DaemonSet) bool {
	return controller.Unheld{Of: allOf(set)}.Over(condition(set))
}

// unheldCondition returns the condition of a rollout that the DaemonSet controller makes, or that
// is over. Once Complete, a set stays so until there is a new template or a new hold: a pod that
// is lost later is no rollout. Before that, every node has to have an updated pod that is
// available, as for `kubectl rollout status`.
func unheldCondition(set *appsv1.DaemonSet) rollout.Condition {
	status := set.Status
	if over(set) || condition(set).Complete() ||
		status.UpdatedNumberScheduled >= status.DesiredNumberScheduled && status.NumberAvailable >= status.DesiredNumberScheduled {
		return rollout.Condition{
			Complete: true, Reason: rollout.ReasonComplete,
			Message: fmt.Sprintf("%d of %d", status.UpdatedNumberScheduled, status.DesiredNumberScheduled) + allOf(set),
		}
	}
	counts := fmt.Sprintf("%d of %d pods updated, %d available", status.UpdatedNumberScheduled, status.DesiredNumberScheduled, status.NumberAvailable)
	if status.UpdatedNumberScheduled >= status.CurrentNumberScheduled {
		return rollout.Condition{Reason: rollout.ReasonProgressing, Message: "waiting for pods to become available: " + counts}
	}
	return rollout.Condition{Reason: rollout.ReasonProgressing, Message: leftTo + rolloutOf(set) + ": " + counts}
}

const leftTo = "left to the DaemonSet controller"

func rolloutOf(set *appsv1.DaemonSet) string {
	return ", template generation " + templateGeneration(set)
}
