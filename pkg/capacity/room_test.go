package capacity

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func templateOf(t *testing.T, cpu string) *corev1.PodTemplateSpec {
	t.Helper()
	return build.Template(t, "containers: [{name: app, resources: {requests: {cpu: "+cpu+"}}}]")
}

// podOf is a pod of the node, or one that waits for one if that has no name.
func podOf(t *testing.T, name, node, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: templateOf(t, cpu).Spec}
	pod.Spec.NodeName, pod.Spec.Priority = node, ptr.To[int32](5)
	for _, f := range change {
		f(pod)
	}
	return pod
}

// tainted are taints of nodes for pods that are tolerant.
var tainted = []corev1.Taint{{Key: "sandbox", Effect: corev1.TaintEffectNoSchedule}}

func tolerant(pod *corev1.Pod) {
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}}
}

// web-1 and web-0 of 1 cpu each run on a node, beside others, and pods of 2 cpus are
// to take their places, web-1's first.
func TestRoom(t *testing.T) {
	const (
		full      = "the only node that is large enough has no room beside its pods"
		contested = full + " and those that wait for a node"
	)
	priority := func(n int32) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.Priority = &n } }
	gated := func(pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} }
	pod := func(name, node, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
		return podOf(t, name, node, cpu, change...)
	}
	var many []*corev1.Pod
	for i := range maxLooks + 1 {
		many = append(many, pod(fmt.Sprint("other-", i), "", "2", func(pod *corev1.Pod) { // whose claim is not there
			pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "lost"}}}}
		}))
	}
	tests := []struct {
		name       string
		cpu        string // of the node
		others     []*corev1.Pod
		taints     []corev1.Taint    // of the node
		next       string            // the cpu of another node
		all        func(*corev1.Pod) // what the workload's pods have
		seen       []*corev1.Pod     // of the workload, besides the two
		toCome     []string          // what requests of the workload's pods that are still to be made
		web1, web0 string
	}{
		{name: "room for both", cpu: "4"},
		{name: "room for one", cpu: "3", web0: full},
		{name: "room for none", cpu: "4", others: []*corev1.Pod{pod("other", "node", "2")}, web1: full, web0: full},
		{name: "room for both on another node", cpu: "2", next: "4"},
		{name: "another pod waits for the room", cpu: "3", others: []*corev1.Pod{pod("other", "", "2")}, web1: contested, web0: contested},
		{name: "one waits for what is left", cpu: "4", others: []*corev1.Pod{pod("other", "", "1")}, web0: contested},
		{name: "two wait for more than there is", cpu: "4", others: []*corev1.Pod{pod("other", "", "1"), pod("more", "", "1")}, web1: contested, web0: contested},
		{name: "the one that waits is more important", cpu: "3", others: []*corev1.Pod{pod("other", "", "2", priority(6))}, web1: contested, web0: contested},
		{name: "the one that waits is less important", cpu: "3", others: []*corev1.Pod{pod("other", "", "2", priority(4))}, web0: contested},
		{name: "the one that waits is too large", cpu: "3", others: []*corev1.Pod{pod("other", "", "2500m")}, web0: full},
		{name: "so many wait that none gets a closer look", cpu: "3", others: many, web1: contested, web0: contested},
		{name: "the one that waits may not be scheduled", cpu: "3", others: []*corev1.Pod{pod("other", "", "2", gated)}, web0: full},
		{name: "the one that waits is deleted", cpu: "3", others: []*corev1.Pod{pod("other", "", "2", build.Terminating)}, web0: full},

		{name: "another of the workload is to come", cpu: "4", toCome: []string{"2"}, web1: contested, web0: contested},
		{name: "another of the workload is to come, and admission lets all of them run there", cpu: "4", taints: tainted, all: tolerant,
			toCome: []string{"2"}, web1: contested, web0: contested},
		{name: "another of the workload waits", cpu: "4", seen: []*corev1.Pod{pod("web-2", "", "2")}, web1: contested, web0: contested},
		{name: "another of the workload has just come", cpu: "4", seen: []*corev1.Pod{pod("web-2", "node", "2")}, web1: full, web0: full},
		{name: "another of the workload goes, and one comes for it", cpu: "6",
			others: []*corev1.Pod{pod("web-2", "node", "1")}, seen: []*corev1.Pod{pod("web-2", "node", "1", build.Terminating)}, toCome: []string{"2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nodes := []*corev1.Node{node("node", tt.cpu)}
			nodes[0].Spec.Taints = tt.taints
			if tt.next != "" {
				nodes = append(nodes, node("next", tt.next))
			}
			if tt.all == nil {
				tt.all = func(*corev1.Pod) {}
			}
			web := []*corev1.Pod{pod("web-1", "node", "1", tt.all), pod("web-0", "node", "1", tt.all)}
			var objects []runtime.Object
			for _, p := range slices.Concat(web, tt.others) {
				objects = append(objects, p)
			}
			var toCome []rollout.Coming
			for _, cpu := range tt.toCome {
				toCome = append(toCome, rollout.Coming{Template: templateOf(t, cpu)})
			}
			client := fake.NewClientset(objects...)
			r := must.Get(At(client, nodes, NewLedger(), build.Start).Room(t.Context(), "web", "", slices.Concat(web, tt.seen), toCome, true))(t)
			for i, want := range []string{tt.web1, tt.web0} {
				got, err := refusal(r.find(t.Context(), pod(web[i].Name, "", "2", tt.all), "node", false))
				if err != nil || got.Reason != want {
					t.Errorf("%s: got %q and %v, want %q", web[i].Name, got.Reason, err, want)
				}
			}
			asked := map[string]int{}
			for _, action := range client.Actions() {
				if asked[fmt.Sprint(action)]++; asked[fmt.Sprint(action)] > 1 {
					t.Errorf("asked twice: %v", action)
				}
			}
		})
	}
}
