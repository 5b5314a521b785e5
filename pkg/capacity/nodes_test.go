package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

func TestSameRoom(t *testing.T) {
	ready := func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	}
	earlier, later := node("good", "2", ready), node("good", "2", ready)
	earlier.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(build.Start)
	earlier.Status.Conditions, later.Status.Conditions = readiness(earlier), readiness(later)
	if !sameRoom(earlier, later) {
		t.Error("a heartbeat is news")
	}
	later.Status.Conditions[0].Status = corev1.ConditionUnknown
	if sameRoom(earlier, later) {
		t.Error("a node that is lost is no news")
	}
}
