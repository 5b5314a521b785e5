package capacity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
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

// TestListOfNodes: the list is the very same one until a node changes in what matters. What is
// kept of pods depends on that.
func TestListOfNodes(t *testing.T) {
	client := fake.NewClientset()
	write := func(n *corev1.Node) {
		t.Helper()
		must.Get(client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
	}
	for i := range 20 {
		must.Do(t, client.Tracker().Add(node(fmt.Sprintf("node-%d", i), "2")))
	}
	nodes := must.Get(NewNodes(client))(t)
	changed := make(chan struct{}, 100)
	nodes.OnChange(func() { changed <- struct{}{} })
	go nodes.Run(t.Context())
	next := func() {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal("no change is told")
		}
	}
	for range 20 {
		next()
	}
	before := nodes.List()
	if len(before) != 20 || !slices.Equal(before, nodes.List()) {
		t.Fatalf("listed %d nodes, and others the next time", len(before))
	}
	beats := node("node-3", "2")
	beats.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	write(beats)
	write(node("node-4", "4"))
	next()
	after := nodes.List()
	if slices.Equal(before, after) || len(after) != 20 {
		t.Errorf("a node has grown, and the list of %d is the same", len(after))
	}
	if !slices.Equal(after, nodes.List()) {
		t.Error("listed others the next time")
	}
}
