package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// A forecast has one pod after the other take its room, too.
func TestWithoutRoom(t *testing.T) {
	cluster := Cluster{Nodes: []*corev1.Node{node("node", "3")}}
	var members []rollout.Member
	for _, name := range []string{"web-1", "web-0"} {
		pod := podOf(t, name, "node", "1")
		cluster.Pods = append(cluster.Pods, pod)
		members = append(members, rollout.Member{Place: placeOf(t, pod)})
	}
	b := rollout.Revision{Name: "b"}
	full := cluster.WithoutRoom(t.Context(), members, b, false)
	for i, want := range []bool{false, true} {
		m := members[i]
		if got := full[m.Pod.UID]; (got.Reason != "") != want || want && got.Of != b.Size(m.Target.Changes) {
			t.Errorf("%s has no room: %+v, want that it has none: %t", m.Name, got, want)
		}
	}
}

// TestWithoutRoomBesideTheOld: a new pod that comes first may wait for room, unless it can come to one node
// only: there it needs room beside the old one.
func TestWithoutRoomBesideTheOld(t *testing.T) {
	for _, tt := range []struct {
		what string
		cpu  string // of the node
		pins bool
		want string
	}{
		{"may come to other nodes", "2", false, ""},
		{"beside the old one is room", "3", true, ""},
		{"beside the old one is none", "2", true, "the only node that is large enough has no room beside its pods"},
	} {
		pod := podOf(t, "web", "node", "1")
		if tt.pins {
			pinned(pod, "node")
		}
		cluster := Cluster{Nodes: []*corev1.Node{node("node", tt.cpu)}, Pods: []*corev1.Pod{pod}}
		m, b := rollout.Member{Place: placeOf(t, pod)}, rollout.Revision{Name: "b"}
		if got := cluster.WithoutRoom(t.Context(), []rollout.Member{m}, b, true)[pod.UID]; got.Reason != tt.want || tt.want != "" && got.Of != b.Size(m.Target.Changes) {
			t.Errorf("%s: got %+v, want %q", tt.what, got, tt.want)
		}
	}
}
