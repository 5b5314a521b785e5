package statefulset

import (
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// newOldCluster has kubelets of that version, which say no generation.
func newOldCluster(t *testing.T, kubelet string) *cluster {
	t.Helper()
	c := newCluster(t, 3, controller.Options{})
	node := largeNode()
	node.Status.NodeInfo.KubeletVersion = kubelet
	c.Nodes.Set(node)
	c.Silent = true
	c.Lives()
	c.Sees()
	return c
}

// complete reports whether the condition says so.
func (c *cluster) complete() bool {
	got := condition(c.Set)
	return got != nil && got.Status == corev1.ConditionTrue
}

// TestSilentKubelets: kubelets of 1.33 say no generation, and their pods are resized all the same.
// Of later ones, that is waited for.
func TestSilentKubelets(t *testing.T) {
	for kubelet, done := range map[string]bool{"v1.33.5-gke.1080": true, "v1.34.3-gke.1234": false, "": false} {
		t.Run(kubelet, func(t *testing.T) {
			c := newOldCluster(t, kubelet)
			before := c.UIDs()
			c.edit(newer)
			c.Rounds(300)
			if uids := c.UIDs(); !maps.Equal(uids, before) {
				t.Errorf("pods %v became %v", before, uids)
			}
			if c.complete() != done {
				t.Errorf("the condition is %+v, want Complete: %t", condition(c.Set), done)
			}
		})
	}
}

// TestMemoryLimitOfOldKubelet: Kubernetes 1.33 lowers no memory limit live. The pods are restarted
// at once, or stay as they are; none is asked.
func TestMemoryLimitOfOldKubelet(t *testing.T) {
	large, small := version{Image: 1, CPU: 1, Memory: 2}, version{Image: 1, CPU: 1, Memory: 1}
	for action, restarts := range map[string]bool{"": true, "LiveResize": false} {
		t.Run(action, func(t *testing.T) {
			c := newOldCluster(t, "v1.33.5")
			c.edit(large)
			c.Rest()
			before, writes := c.UIDs(), len(c.Writes)
			c.Change(func() {
				if action != "" {
					c.User(func(set *appsv1.StatefulSet) { set.Annotations[api.ResizeActionAnnotation] = action })
				}
				c.users(small)
			})
			c.Rounds(60)
			for name, uid := range c.UIDs() {
				if restarted := uid != before[name]; restarted != restarts {
					t.Errorf("%s restarted: %t", name, restarted)
				}
			}
			if asked := simulated.Count(c.Writes[writes:], "patch pods/resize"); asked > 0 {
				t.Errorf("asked %d times for a size that cannot be had", asked)
			}
			const says = "node node does not support it: its kubelet is of version v1.33.5, before 1.34, and lowers memory limits only with the resizePolicy RestartContainer"
			if got := condition(c.Set); !restarts && (got.Reason != rollout.ReasonUnsupportedByNode || !strings.Contains(got.Message, says)) {
				t.Errorf("the condition is %s: %s", got.Reason, got.Message)
			}
			if told := simulated.Count(c.Events, says) > 0; !told {
				t.Errorf("no event says why: %q", c.Events)
			}
		})
	}
}
