package deployment

import (
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestDeletedAfterResize(t *testing.T) {
	simulated.DeletedAfterResize(t, func(t *testing.T) simulated.Guarded { return newCluster(t, 3, controller.Options{}).guarded(t) }, nil)
}
