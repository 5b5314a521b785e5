package statefulset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// builtInStatus returns what the status says of a rollout that nobody holds. Under OnDelete nobody makes a rollout but the user.
func builtInStatus(set *appsv1.StatefulSet) rollout.BuiltInStatus {
	return rollout.BuiltInStatus{
		Condition: builtInCondition(set), Over: over(set), HandedOver: handedOver(""), BuiltIn: rolling(set),
		Stale:   !rolling(set) && set.Status.UpdatedReplicas < set.Status.Replicas,
		Counted: int(set.Status.UpdatedReplicas) >= replicas(set)-keptBack(set),
	}
}

// over returns the condition of a set whose rollout is over. It names the partition if that keeps pods back.
func over(set *appsv1.StatefulSet) rollout.Condition {
	from := 0
	if keptBack(set) > 0 {
		from = partition(set)
	}
	return rollout.Over(rollout.RevisionNamed(set.Status.UpdateRevision), from)
}

// handedOver returns the condition of a rollout that the StatefulSet controller makes.
func handedOver(why string) rollout.Condition {
	return rollout.HandedOver(kindName, "", why)
}

// builtInCondition returns the condition of a rollout that the StatefulSet controller makes, or
// that is over. Once Complete, a set stays so until there is a new revision or a new hold: a
// pod that is lost later is no rollout. As for `kubectl rollout status`, the pods that the
// partition keeps back have to be available, too.
func builtInCondition(set *appsv1.StatefulSet) rollout.Condition {
	status, kept := set.Status, keptBack(set)
	c := condition(set)
	if c.Complete() ||
		int(status.UpdatedReplicas) >= replicas(set)-kept && int(status.AvailableReplicas) >= replicas(set) {
		return over(set)
	}
	counts := fmt.Sprintf("%d of %d pods updated, %d available", status.UpdatedReplicas, replicas(set)-kept, status.AvailableReplicas)
	if int(status.UpdatedReplicas) >= replicas(set)-kept {
		return rollout.Unavailable(counts)
	}
	return handedOver(counts)
}
