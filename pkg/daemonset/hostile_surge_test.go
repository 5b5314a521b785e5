package daemonset

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// TestSurgeNeedsRoomForBoth: with maxSurge, the new pod comes beside the old one. Where its node has no room for both, the old one is kept,
// and the condition says so, be it that the DaemonSet controller takes it for updated or not.
func TestSurgeNeedsRoomForBoth(t *testing.T) {
	for _, counted := range []bool{false, true} {
		c := newCluster(t, 2, controller.Options{})
		c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
		c.Rest()
		for name := range c.world.Nodes { // the pod fits, and no other one beside it
			c.changeNode(name, func(node *corev1.Node) { node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1m") })
		}
		c.nodesChange()
		before := maps.Clone(c.Pods)
		c.edit(limited)
		if counted { // one has the limit when the edit is taken back, and the label from before
			c.Until(20, func() bool { return simulated.Count(c.Writes, "patch pods/resize") > 0 })
		} else { // all have it, and the label, too
			c.Rest()
		}
		c.Events = nil
		c.edit(former)
		most := len(c.Pods)
		for range 60 {
			c.Rounds(1)
			most = max(most, len(c.Pods))
		}
		if most > len(before) || c.replaced(before) != "" {
			t.Errorf("counted as updated %t: up to %d pods on %d nodes, each of which has room for one; replaced on %q: %+v; writes %q", counted, most, len(before), c.replaced(before), condition(c.Set), c.Writes)
		}
		if n := simulated.Count(c.Events, "Normal "+judge.EventHandedOver); n > 0 {
			t.Errorf("counted as updated %t: handed over without a warning: %q", counted, c.Events)
		}
	}
}
