package daemonset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestDeletedAfterResize(t *testing.T) {
	var c *cluster
	simulated.DeletedAfterResize(t, func(t *testing.T) simulated.Guarded {
		c = newCluster(t, 6, controller.Options{})
		return c.guarded(t)
	}, func(simulated.Guarded) {
		c.strategy(appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType})
	})
}

func TestRejectedByKubelet(t *testing.T) {
	for gone, strategy := range []appsv1.DaemonSetUpdateStrategy{strategies[3], strategies[0]} { // maxSurge, maxUnavailable
		simulated.RejectedByKubelet(t, gone, func(t *testing.T) simulated.Guarded {
			c := newCluster(t, 3, controller.Options{})
			c.strategy(strategy)
			return c.guarded(t)
		})
	}
}
