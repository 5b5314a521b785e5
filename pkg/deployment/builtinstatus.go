package deployment

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// builtInStatus returns what the status says of a rollout that nobody holds. Of an edit that was made while the Deployment was opted
// out and paused, only its pods say something.
func builtInStatus(d *Deployment) rollout.BuiltInStatus {
	wanted, status := int32(d.replicas()), d.Status
	stale := status.Replicas > status.UpdatedReplicas
	return rollout.BuiltInStatus{
		Condition: builtInCondition(d), Over: over, HandedOver: handedOver(""), BuiltIn: true, Stale: stale,
		Counted:  status.UpdatedReplicas >= wanted && !stale,
		Standing: leaves(condition(d)),
	}
}

// leaves reports whether a condition says that a pod cannot have its size for now. Where nobody holds
// the rollout, it may be let go of all the same: see letGoLeaving.
func leaves(c *rollout.StoredCondition) bool {
	return c != nil && c.Status == corev1.ConditionFalse && !slices.Contains(
		[]string{judge.ReasonProgressing, judge.ReasonPending, judge.ReasonPaused, judge.ReasonInvalidPolicy, judge.ReasonNamespaceLeftOut, judge.ReasonPodRejected}, c.Reason)
}

// over is the condition of a Deployment whose rollout is over. Its status tells if a pod is of another revision than the newest one.
var over = rollout.Over("", 0)

// handedOver returns the condition of a rollout that the Deployment controller makes.
func handedOver(why string) rollout.Condition { return rollout.HandedOver(kindName, "", why) }

// builtInCondition returns the condition of a rollout that the Deployment controller makes, or
// that is over, or that the user has paused. Once Complete, a Deployment stays so until there is a
// new edit: a pod that is lost later is no rollout.
func builtInCondition(d *Deployment) rollout.Condition {
	status, replicas := d.Status, int32(d.replicas())
	stays := condition(d).Complete()
	if status.Replicas <= status.UpdatedReplicas && (stays || status.UpdatedReplicas >= replicas && status.AvailableReplicas >= replicas) {
		return over
	}
	counts := fmt.Sprintf("%d of %d pods updated, %d of an older template, %d available",
		status.UpdatedReplicas, replicas, status.Replicas-status.UpdatedReplicas, status.AvailableReplicas)
	if !d.Spec.Paused && status.Replicas <= status.UpdatedReplicas && status.UpdatedReplicas >= replicas {
		return rollout.Unavailable(counts)
	}
	return d.incomplete(counts)
}

// incomplete returns the condition of a Deployment whose rollout is neither held nor over.
func (d *Deployment) incomplete(progress string) rollout.Condition {
	if d.Spec.Paused {
		return rollout.Paused(progress)
	}
	return handedOver(progress)
}
