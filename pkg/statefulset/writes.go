package statefulset

import (
	"fmt"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// markUpdated has a pod that has the new size count as updated.
type markUpdated struct {
	member   rollout.Member
	revision string
}

// Loose is that of rollout.Write.
func (markUpdated) Loose() bool { return false }

func (w markUpdated) String() string { return "mark pod " + w.member.Name + " as updated" }

// remove deletes a pod that only a new one can help.
type remove struct{ restart rollout.Restart }

// Loose is that of rollout.Write.
func (remove) Loose() bool { return true }

func (w remove) String() string {
	return "delete pod " + w.restart.Member.Name + ": " + w.restart.Reason
}

// lowerPartition lets the StatefulSet controller restart pods.
type lowerPartition struct {
	to       int
	restarts []rollout.Restart // by that
}

// Loose is that of rollout.Write.
func (lowerPartition) Loose() bool { return true }

func (w lowerPartition) String() string { return fmt.Sprintf("lower the partition to %d", w.to) }

// release lets go of the hold.
type release struct{ handOver, revision string }

// Loose is that of rollout.Write.
func (release) Loose() bool { return true }

func (w release) String() string {
	if w.handOver != "" {
		return "let go of the hold: " + w.handOver
	}
	return "let go of the hold"
}
