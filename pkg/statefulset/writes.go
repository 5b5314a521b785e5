package statefulset

import (
	"fmt"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// lowerPartition lowers the partition, so that the StatefulSet controller restarts pods. It
// also raises one that would let a pod be restarted that must not be.
type lowerPartition struct {
	to       int
	restarts []rollout.Restart // the pods that the StatefulSet controller restarts because of it
}

func (w lowerPartition) String() string { return fmt.Sprintf("lower the partition to %d", w.to) }

// makeOf has pods that are lost made of the revision while the set is held: the StatefulSet controller makes those below the
// partition from the current revision of the status.
type makeOf struct{ revision, why string }

func (w makeOf) String() string {
	return "have missing pods created from revision " + w.revision + ": " + w.why
}
