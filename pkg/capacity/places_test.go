package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// placeOf is the place of a pod of 1 cpu that is to have 2.
func placeOf(t *testing.T, pod *corev1.Pod) judge.Place {
	t.Helper()
	target := must.Get(resize.For(pod, templateOf(t, "1"), templateOf(t, "2")))(t)
	return judge.Place{Name: pod.Name, Pod: pod, Target: target}
}

// limitsOf demands that containers request so much cpu, and have a limit or the default one.
func limitsOf(least, limit string) Limits {
	return Limits{Ranges: []corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "sizes"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer,
		Min:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(least)}, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)},
	}}}}}}
}

// A pod of 1 cpu on a node of 2 is to become one of 2 cpus by a restart. What else a member
// needs for that to be asked is a test of pkg/controller.
func TestUnplaceable(t *testing.T) {
	const tooSmall = "it needs 3 cpu; the only node that it can run on has 2"
	admitted := func(pod *corev1.Pod) {
		tolerant(pod)
		pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}
	tests := []struct {
		name   string
		taints []corev1.Taint
		pod    func(*corev1.Pod)
		limits Limits
		want   judge.Refusal
	}{
		{name: "the node can hold it"},
		{name: "it may not run there", taints: tainted, want: judge.Refusal{Reason: "no node that is Ready matches the node selector, affinity and tolerations of the pod", Kind: judge.ReasonNoNodeFits}},
		{name: "admission lets it run there", taints: tainted, pod: tolerant},
		{name: "admission lets it run there, and makes it too large", taints: tainted, pod: admitted, want: judge.Refusal{Reason: tooSmall, Kind: judge.ReasonNoNodeFits}},
		{name: "a LimitRange lets it in", limits: limitsOf("1", "3")},
		{name: "a LimitRange does not let it in", limits: limitsOf("3", "3"), want: judge.Refusal{
			Reason: "a new pod of this size would be refused, too: app: cpu per Container must be at least 3, and 2 is requested (LimitRange sizes)",
			Kind:   judge.ReasonInvalid, Until: build.Start.Add(LookAgain)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := node("node", "2")
			node.Spec.Taints = tt.taints
			places := NewPlaces([]*corev1.Node{node}, false, tt.limits)
			for range 2 { // alike
				pod := podOf(t, "web", "node", "1")
				if tt.pod != nil {
					tt.pod(pod)
				}
				must.Equal(t, places.Unplaceable(placeOf(t, pod), build.Start), tt.want, "why it is unplaceable")
			}
		})
	}
}

// A kubelet that does not say what containers have, and is too old to, is not waited for. One that
// may not lower a memory limit is not asked to.
func TestUnsupported(t *testing.T) {
	const shrinks = ", before 1.34, and lowers memory limits only with the resizePolicy RestartContainer"
	for kubelet, want := range map[string]struct {
		unreported, shrinking string
		silent                bool
	}{
		"v1.32.9":           {"its kubelet is of version v1.32.9", "its kubelet is of version v1.32.9" + shrinks, true},
		"v1.33.0":           {"", "its kubelet is of version v1.33.0" + shrinks, true},
		"v1.33.5-gke.1080":  {"", "its kubelet is of version v1.33.5-gke.1080" + shrinks, true},
		"v1.33.13-eks-a1b2": {"", "its kubelet is of version v1.33.13-eks-a1b2" + shrinks, true},
		"v1.34.0":           {}, "v1.34.3-gke.1234": {}, "v1.35.1-eks-abc": {}, "v1.37.1+k3s1": {}, "v2.0": {}, "": {}, "none": {},
	} {
		its := node("node", "2")
		its.Status.NodeInfo.KubeletVersion = kubelet
		places := NewPlaces([]*corev1.Node{node("other", "2"), its}, false, Limits{})
		if got := places.Kubelet(podOf(t, "web", "node", "1"), build.Start); got != (resize.Kubelet{Version: kubelet, Silent: want.silent, Now: build.Start}) {
			t.Errorf("%q: got %+v, want silent %t", kubelet, got, want.silent)
		}
		for _, told := range []bool{true, false} {
			for _, memory := range []string{"", "1Gi"} {
				older, newer := build.Size(t, "requests: {memory: 1Mi}, limits: {memory: 2Gi}"), build.Size(t, "requests: {memory: 1Mi}, limits: {memory: 2Gi}")
				if memory != "" {
					newer.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse(memory)
				}
				pod := build.Pod("web", older)
				if !told {
					pod.Status.ContainerStatuses[0].Resources = nil
				}
				target := must.Get(resize.For(pod, older, newer))(t)
				expected := judge.Refusal{}
				why := want.shrinking
				if memory == "" {
					why = ""
				}
				if !told && want.unreported != "" {
					why = want.unreported
				}
				if why != "" {
					expected = judge.Refusal{Reason: why, Kind: judge.ReasonUnsupportedByNode, Final: true}
				}
				must.Equal(t, places.Unsupported(judge.Place{Pod: pod, Target: target}), expected, "%q, told %t, memory %q", kubelet, told, memory)
			}
		}
	}
	for _, pod := range []*corev1.Pod{nil, podOf(t, "web", "gone", "1"), podOf(t, "web", "", "1")} {
		must.Equal(t, NewPlaces([]*corev1.Node{node("node", "2")}, false, Limits{}).Kubelet(pod, build.Start), (resize.Kubelet{}), "without a node")
	}
}

func TestLost(t *testing.T) {
	ready := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		return node(name, "2", func(n *corev1.Node) {
			if ready != "" {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.Now()}}
			}
		})
	}
	all := []*corev1.Node{ready("good", corev1.ConditionTrue), ready("new", ""), ready("down", corev1.ConditionFalse), ready("silent", corev1.ConditionUnknown)}
	for name, want := range map[string]string{
		"": "", "good": "", "new": "", "down": "its node down is not Ready", "silent": "its node silent is not Ready", "none": "its node none is gone",
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: name}}
		must.Equal(t, NewPlaces(all, false, Limits{}).Lost(pod), want, "%q", name)
		must.Equal(t, NewPlaces(nil, false, Limits{}).Lost(pod), "", "%q, where no node is known", name)
	}
}

// TestDrained: whoever drains a node taints it, and the DaemonSet controller takes its pods from a node that it does not select any more.
func TestDrained(t *testing.T) {
	for disk, n := range map[string]*corev1.Node{"ssd": node("a", "2"), "hdd": node("a", "2"), "": node("a", "2", func(n *corev1.Node) { n.Spec.Taints = tainted })} {
		pod := podOf(t, "web", "a", "1")
		pinned(pod, "a")
		if disk != "" {
			pod.Spec.NodeSelector = map[string]string{"disk": disk}
		}
		must.Equal(t, NewPlaces([]*corev1.Node{n}, false, Limits{}).Drained(pod), disk != "ssd", "%q: drained", disk)
	}
}

// TestLostWhileDeleted: only people can have a pod go whose kubelet is away.
func TestLostWhileDeleted(t *testing.T) {
	silent := node("silent", "2", func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.Now())}, Spec: corev1.PodSpec{NodeName: "silent"}}
	const want = "its node silent is not Ready, so it stays until you delete the node, or the pod by force, or taint the node with node.kubernetes.io/out-of-service"
	must.Equal(t, NewPlaces([]*corev1.Node{silent}, false, Limits{}).Lost(pod), want, "on a silent node")
}

// TestOnNode asks what the API server asks before a resize: cpu and memory, and no more.
func TestOnNode(t *testing.T) {
	for _, tt := range []struct{ requests, want string }{
		{"cpu: 4, memory: 8Gi", ""},
		{"cpu: 1, ephemeral-storage: 1Gi, example.com/gpu: 1", ""},
		{"cpu: 5", "it needs 5 cpu; the node has 4"},
		{"memory: 9Gi, cpu: 4500m", "it needs 4.5 cpu and 9Gi memory; the node has 4 cpu and 8Gi memory"},
	} {
		pod := &corev1.Pod{Spec: build.Template(t, "containers: [{name: app, resources: {requests: {"+tt.requests+"}}}]").Spec}
		must.Equal(t, onNode(&pod.Spec, node("a", "4")), tt.want, "%s", tt.requests)
	}
}

// pinned has the pod run on the node only, as the DaemonSet controller does it.
func pinned(pod *corev1.Pod, nodes ...string) {
	required := &corev1.NodeSelector{}
	for _, name := range nodes {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
		}})
	}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
}

// A pod of a DaemonSet comes back to its own node, whatever room others have.
func TestUnplaceableOnItsNode(t *testing.T) {
	const none = "it can run only on node gone, which does not match its node selector, affinity or tolerations"
	for on, want := range map[string]string{
		"large": "",
		"small": "it needs 2 cpu; node small, the only one that it can run on, has 1",
		"gone":  none,
	} {
		pod := podOf(t, "web", on, "1")
		pinned(pod, on)
		places := NewPlaces([]*corev1.Node{node("large", "2"), node("small", "1")}, false, Limits{})
		for range 2 {
			if got := places.Unplaceable(placeOf(t, pod), build.Start); got.Reason != want || (got.Kind == judge.ReasonNoNodeFits) != (want != "") {
				t.Errorf("on %s: got %+v, want %q", on, got, want)
			}
		}
		if got := NewPlaces(nil, true, Limits{}).Unplaceable(placeOf(t, pod), build.Start); got.Reason != "" {
			t.Errorf("on %s, where no node is known: got %+v", on, got)
		}
	}
}

func TestTargetNode(t *testing.T) {
	for _, tt := range []struct {
		name, on string
		pod      func(*corev1.Pod)
		want     string
	}{
		{"anywhere", "", func(*corev1.Pod) {}, ""},
		{"on its node", "a", func(pod *corev1.Pod) { pinned(pod, "b") }, "a"},
		{"pinned", "", func(pod *corev1.Pod) { pinned(pod, "b") }, "b"},
		{"to one of two", "", func(pod *corev1.Pod) { pinned(pod, "b", "c") }, ""},
		{"to the same in two words", "", func(pod *corev1.Pod) { pinned(pod, "b", "b") }, "b"},
		{"to none", "", func(pod *corev1.Pod) { pinned(pod) }, ""},
		{"to one of a list", "", func(pod *corev1.Pod) {
			pinned(pod, "b")
			pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values = []string{"b", "c"}
		}, ""},
		{"away from one", "", func(pod *corev1.Pod) {
			pinned(pod, "b")
			pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Operator = corev1.NodeSelectorOpNotIn
		}, ""},
		{"or to nodes with a label", "", func(pod *corev1.Pod) {
			pinned(pod, "b")
			required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gpu", Operator: corev1.NodeSelectorOpExists}}})
		}, ""},
	} {
		pod := podOf(t, "web", tt.on, "1")
		tt.pod(pod)
		must.Equal(t, TargetNode(pod), tt.want, "%s", tt.name)
	}
}
