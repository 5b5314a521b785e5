package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestDeletedAfterResize(t *testing.T) {
	simulated.DeletedAfterResize(t, func(t *testing.T) simulated.Guarded { return newCluster(t, 3, controller.Options{}).guarded(t) }, nil)
}

func TestRejectedByKubelet(t *testing.T) {
	simulated.RejectedByKubelet(t, func(t *testing.T) simulated.Guarded {
		return newCluster(t, 3, controller.Options{}, func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0))}
		}).guarded(t)
	}, false)
}
