package daemonset

import (
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// TestRejectedBesideALostNode: the next pod on that node is let in, so the others follow, whatever has become of another node.
func TestRejectedBesideALostNode(t *testing.T) {
	c := newCluster(t, 6, controller.Options{})
	g := c.guarded(t)
	g.MayBeDown(2)
	g.Annotate(map[string]string{api.ResizeActionAnnotation: string(policy.Restart)})
	c.Rounds(5)
	for _, pod := range c.Pods {
		if capacity.TargetNode(pod) == "node-5" {
			c.Crash(pod, true)
		}
	}
	c.changeNode("node-5", func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown })
	c.nodesChange()
	c.Rounds(5)
	rejected := false
	c.Rejects = func(pod *corev1.Pod) bool {
		reject := !rejected && simulated.SizeOf(pod).CPU == newer.CPU
		rejected = rejected || reject
		return reject
	}
	g.Edit(newer)
	c.Rounds(300)
	if n := len(c.Sized(newer)); !rejected || n < 5 {
		t.Errorf("%d of 6 have the size: %+v", n, g.Condition())
	}
}

// goneMeanwhile returns on which of three nodes a pod is replaced, where the kubelet of node-0 refuses an edit, and something happens while
// room is looked for.
func goneMeanwhile(t *testing.T, happens func(*cluster)) string {
	t.Helper()
	c := newCluster(t, 3, controller.Options{})
	g := c.guarded(t)
	g.MayBeDown(2)
	c.Rounds(5)
	c.Judge = func(pod *corev1.Pod, v version) simulated.Outcome {
		if v.CPU != newer.CPU {
			return simulated.Outcome{}
		}
		return simulated.Outcome{Infeasible: capacity.TargetNode(pod) == "node-0", Slow: simulated.Never}
	}
	before, looked := maps.Clone(c.Pods), false
	c.Client.PrependReactor("list", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !looked {
			looked = true
			happens(c)
		}
		return false, nil, nil
	})
	g.Edit(newer)
	c.Rounds(60, func(error) bool { return true })
	if !looked {
		t.Error("nobody has looked for room")
	}
	return c.replaced(before)
}

// TestEditedWhileRoomIsLookedFor: no pod goes for an edit that is taken back meanwhile, or of a set that is opted out, once the watch
// shows that.
func TestEditedWhileRoomIsLookedFor(t *testing.T) {
	for _, opted := range []string{"true", "false"} {
		gone := goneMeanwhile(t, func(c *cluster) {
			c.User(func(set *appsv1.DaemonSet) {
				set.Labels[api.EnabledLabel], set.Spec.Template = opted, *templates[former]
			})
			_ = c.Kind.Workloads.Show(c.Set)
		})
		must.Equal(t, gone, "", "enabled %s: what is replaced", opted)
	}
}

// TestRoomIsLookedForTooLong: no pod goes by what was seen before that, if others have gone down meanwhile.
func TestRoomIsLookedForTooLong(t *testing.T) {
	for down, want := range map[bool]string{false: "node-0", true: ""} {
		gone := goneMeanwhile(t, func(c *cluster) {
			for _, pod := range c.Pods {
				if down && capacity.TargetNode(pod) != "node-0" {
					c.Crash(pod, true)
				}
			}
			c.Clock.SetTime(c.Clock.Now().Add(3 * time.Second))
		})
		must.Equal(t, gone, want, "others went down: %t; what is replaced", down)
	}
}
