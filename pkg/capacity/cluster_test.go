package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// A forecast has one pod after the other take its room, too.
func TestFull(t *testing.T) {
	cluster := Cluster{Nodes: []*corev1.Node{node("node", "3")}}
	var members []rollout.Member
	for _, name := range []string{"web-1", "web-0"} {
		pod := podOf(t, name, "node", "1")
		cluster.Pods = append(cluster.Pods, pod)
		members = append(members, rollout.Member{Place: placeOf(t, pod)})
	}
	b := rollout.Revision{Name: "b"}
	full := cluster.Full(t.Context(), members, b, false)
	for i, want := range []bool{false, true} {
		m := members[i]
		if got := full.Of(m.Pod.UID, b.Size(m.Target.Changes)).Reason; (got != "") != want {
			t.Errorf("%s has no room: %q, want that it has none: %t", m.Name, got, want)
		}
	}
}
