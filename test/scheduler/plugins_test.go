package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestJudge asks whether a pod of 600m comes for one of 300m on nodes of one cpu each.
func TestJudge(t *testing.T) {
	plugins := must.Get(NewPlugins(t.Context()))(t)
	on := func(s *scene, node, name, cpu string) *corev1.Pod {
		pod := s.other(name, home, db, cpu)
		pod.Spec.NodeName = node
		return pod
	}
	tests := []struct {
		name  string
		nodes []string
		world func(s *scene, comes *corev1.Pod)
		want  string
	}{
		{"it takes the place of the one that leaves", []string{"n0"}, func(s *scene, _ *corev1.Pod) { on(s, "n0", "a", "400m") }, "always"},
		{"others take too much", []string{"n0"}, func(s *scene, _ *corev1.Pod) { on(s, "n0", "a", "500m") }, "never"},
		{"it preempts others", []string{"n0"}, func(s *scene, _ *corev1.Pod) { on(s, "n0", "a", "500m").Spec.Priority = ptr.To(int32(-1)) }, "always, preempts"},
		{"it must not preempt others", []string{"n0"}, func(s *scene, comes *corev1.Pod) {
			on(s, "n0", "a", "500m").Spec.Priority, comes.Spec.PreemptionPolicy = ptr.To(int32(-1)), ptr.To(corev1.PreemptNever)
		}, "never"},
		{"one that waits is faster", []string{"n0"}, func(s *scene, _ *corev1.Pod) { on(s, "", "a", "500m") }, "never"},
		{"one that waits leaves a node", []string{"n0", "n1"}, func(s *scene, _ *corev1.Pod) { on(s, "", "a", "500m") }, "always"},
		{"two that wait may share a node, or not", []string{"n0", "n1"}, func(s *scene, _ *corev1.Pod) { on(s, "", "a", "500m"); on(s, "", "b", "500m") }, "depends"},
		{"one that waits may preempt others", []string{"n0", "n1"}, func(s *scene, _ *corev1.Pod) {
			on(s, "n1", "a", "900m")
			on(s, "n0", "b", "200m")
			on(s, "", "c", "900m").Spec.Priority = ptr.To(int32(1))
		}, "depends"},
		{"one that waits is gated", []string{"n0"}, func(s *scene, _ *corev1.Pod) {
			on(s, "", "a", "500m").Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
		}, "always"},
		{"the node is not Ready, and has no taint", []string{"n0"}, func(s *scene, _ *corev1.Pod) { s.Nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown }, "never"},
		{"it names a node that is cordoned", []string{"n0"}, func(s *scene, comes *corev1.Pod) {
			s.Nodes[0].Spec.Unschedulable, comes.Spec.NodeName = true, "n0"
		}, "depends"},
		{"it names a node that is full", []string{"n0", "n1"}, func(s *scene, comes *corev1.Pod) {
			on(s, "n1", "a", "500m")
			comes.Spec.NodeName = "n1"
		}, "never"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &scene{}
			for _, name := range tt.nodes {
				s.Nodes = append(s.Nodes, newNode(name, quantities("cpu", "1", "memory", "1Gi", "pods", "10")))
			}
			leaves := on(s, "n0", "leaves", "300m")
			comes := on(s, "", "comes", "600m")
			s.Pods = s.Pods[:1]
			tt.world(s, comes)
			verdicts := must.Get(plugins.Judge(s.World, []Replacement{{leaves, comes}}))(t)
			got := "depends"
			switch v := verdicts[0]; {
			case v.Always && v.Preempts:
				got = "always, preempts"
			case v.Always:
				got = "always"
			case v.Never:
				got = "never"
			}
			if got != tt.want {
				t.Errorf("%s, want %s: %v", got, tt.want, verdicts[0].Why)
			}
		})
	}
}
