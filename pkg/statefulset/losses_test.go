package statefulset

import (
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestDeletedAfterResize(t *testing.T) {
	var c *cluster
	simulated.DeletedAfterResize(t, func(t *testing.T) simulated.Guarded {
		c = newCluster(t, 3, controller.Options{})
		return c.guarded(t)
	}, func(simulated.Guarded) { underOnDelete(c) })
}
