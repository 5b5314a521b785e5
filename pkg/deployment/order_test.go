package deployment

import (
	"cmp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// TestSortAsActivePods: of pods of one node and without a cost, the order is that of kubectl and
// of the ReplicaSet controller.
func TestSortAsActivePods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := rapid.SliceOfN(rapid.Custom(drawPod), 0, 8).Draw(t, "pods")
		want := slices.Clone(pods)
		slices.SortStableFunc(want, func(a, b *corev1.Pod) int {
			less := func(a, b *corev1.Pod) bool { return podutils.ActivePods([]*corev1.Pod{a, b}).Less(0, 1) }
			ready := cmp.Compare(asInt(podutils.IsPodReady(a)), asInt(podutils.IsPodReady(b)))
			return cmp.Or(ready, asInt(less(b, a))-asInt(less(a, b)))
		})
		if sortAsDeleted(pods); !slices.Equal(pods, want) {
			t.Errorf("got\n%+v\nwant\n%+v", ranksOf(pods), ranksOf(want))
		}
	})
}

// TestSortEquals: whatever the order in which pods are listed, equals are sorted alike.
func TestSortEquals(t *testing.T) {
	named := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	a, b, c := named("web-a"), named("web-b"), named("web-c")
	for _, pods := range [][]*corev1.Pod{{a, b, c}, {c, b, a}, {b, c, a}} {
		if sortAsDeleted(pods); !slices.Equal(pods, []*corev1.Pod{a, b, c}) {
			t.Errorf("got %s, %s, %s", pods[0].Name, pods[1].Name, pods[2].Name)
		}
	}
}

func ranksOf(pods []*corev1.Pod) []rank {
	ranks := make([]rank, len(pods))
	for i, pod := range pods {
		ranks[i] = rankOf(pod)
		ranks[i].pod = nil
	}
	return ranks
}

func drawPod(t *rapid.T) *corev1.Pod {
	someTime := func() metav1.Time {
		if seconds := rapid.IntRange(0, 2).Draw(t, "seconds"); seconds > 0 {
			return metav1.NewTime(time.Unix(int64(seconds), 0))
		}
		return metav1.Time{}
	}
	someRestarts := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: rapid.Int32Range(0, 2).Draw(t, "restarts of "+name)}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: someTime()}}
	pod.Spec.NodeName = "node"
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}).Draw(t, "phase")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{someRestarts("app"), someRestarts("log")}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{someRestarts("setup"), someRestarts("proxy")}
	if rapid.Bool().Draw(t, "has no node") {
		pod.Spec.NodeName = ""
	} else {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, LastTransitionTime: someTime(),
			Status: rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}).Draw(t, "Ready"),
		}}
	}
	return pod
}
