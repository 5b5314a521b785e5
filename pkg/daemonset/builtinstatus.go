package daemonset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// builtInStatus returns what the status says of a rollout that nobody holds. Under OnDelete nobody makes a rollout but the user.
func builtInStatus(set *appsv1.DaemonSet) rollout.BuiltInStatus {
	status := set.Status
	u := rollout.BuiltInStatus{
		Condition: builtInCondition(set), Over: over(set), HandedOver: handedOver(set, ""), BuiltIn: rolling(set), Standing: policy.HasClasses(set.Annotations),
		Stale:   !rolling(set) && status.UpdatedNumberScheduled < status.CurrentNumberScheduled,
		Counted: status.UpdatedNumberScheduled >= status.CurrentNumberScheduled,
	}
	if surge, _ := bounds(set); surge > 0 && u.BuiltIn {
		u.NotHeld = "it was edited or opted in during a rollout with maxSurge, which continues"
	}
	return u
}

// over returns the condition of a set whose rollout is over. What there is to say of classes comes as its details.
func over(set *appsv1.DaemonSet) rollout.Condition {
	return rollout.Over(templateVersion(set), 0)
}

// handedOver returns the condition of a rollout that the DaemonSet controller makes.
func handedOver(set *appsv1.DaemonSet, why string) rollout.Condition {
	return rollout.HandedOver(kindName, templateVersion(set), why)
}

func templateVersion(set *appsv1.DaemonSet) rollout.Version {
	return rollout.TemplateGeneration(templateGeneration(set))
}

// saysOver reports whether the set's condition says that the rollout of its template is over. A version before this one has not
// noted of which template it is Complete: else an upgrade would take sizes of classes for those of an edit that was given up.
func saysOver(set *appsv1.DaemonSet) bool {
	c := condition(set)
	return c.SpeaksOf().Over(over(set)) || c.Complete() && c.Of == (rollout.Spoken{})
}

// builtInCondition returns the condition of a rollout that the DaemonSet controller makes, or that
// is over. Once Complete, a set stays so until there is a new template or a new hold: a pod that
// is lost later is no rollout. Before that, every node has to have an updated pod that is
// available, as for `kubectl rollout status`.
func builtInCondition(set *appsv1.DaemonSet) rollout.Condition {
	status := set.Status
	if saysOver(set) || condition(set).Complete() ||
		status.UpdatedNumberScheduled >= status.DesiredNumberScheduled && status.NumberAvailable >= status.DesiredNumberScheduled {
		return over(set)
	}
	counts := fmt.Sprintf("%d of %d pods updated, %d available", status.UpdatedNumberScheduled, status.DesiredNumberScheduled, status.NumberAvailable)
	if status.UpdatedNumberScheduled >= status.CurrentNumberScheduled {
		return rollout.Unavailable(counts)
	}
	return handedOver(set, counts)
}
