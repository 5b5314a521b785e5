package capacity

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// clusterOf has these objects.
func clusterOf(objects ...runtime.Object) *Cluster {
	return New(fake.NewClientset(objects...), All, build.Start)
}

// A forecast has one pod after the other take its room, too.
func TestWithoutRoom(t *testing.T) {
	objects := []runtime.Object{node("node", "3")}
	var members []judge.Member
	for _, name := range []string{"web-1", "web-0"} {
		pod := podOf(t, name, "node", "1")
		objects = append(objects, pod)
		members = append(members, judge.Member{Place: placeOf(t, pod)})
	}
	b := rollout.Revision{Name: "b"}
	full := must.Get(clusterOf(objects...).WithoutRoom(t.Context(), members, b, false))(t)
	for i, want := range []bool{false, true} {
		m := members[i]
		if got := full[m.Pod.UID]; (got.Reason != "") != want || want && got.Of != b.Size(m.Target.Changes) {
			t.Errorf("%s has no room: %+v, want that it has none: %t", m.Name, got, want)
		}
	}
}

// TestWithoutRoomBesideTheOld: a new pod that comes first may wait for room that others have, but not for what its own
// workload has: it needs room beside the old one.
func TestWithoutRoomBesideTheOld(t *testing.T) {
	port := func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	const none = "the only node that is large enough has no room beside its pods"
	for _, tt := range []struct {
		what string
		cpu  string // of the node
		pod  func(*corev1.Pod)
		want string
	}{
		{"beside the old one is none anywhere", "2", func(*corev1.Pod) {}, none},
		{"beside the old one is room", "3", func(pod *corev1.Pod) { pinned(pod, "node") }, ""},
		{"beside the old one is none", "2", func(pod *corev1.Pod) { pinned(pod, "node") }, none},
		{"the old one has the host port", "8", port, none},
	} {
		pod := podOf(t, "web", "node", "1", tt.pod)
		m, b := judge.Member{Place: placeOf(t, pod)}, rollout.Revision{Name: "b"}
		full, err := clusterOf(node("node", tt.cpu), pod).WithoutRoom(t.Context(), []judge.Member{m}, b, true)
		if got := full[pod.UID]; err != nil || got.Reason != tt.want || tt.want != "" && got.Of != b.Size(m.Target.Changes) {
			t.Errorf("%s: got %+v and %v, want %q", tt.what, got, err, tt.want)
		}
	}
}

// However many pods wait for a node, whoever made them: so many are read. Those of a node are few,
// and come from the API server's cache.
func TestPodsOn(t *testing.T) {
	client := fake.NewClientset()
	var asked []string
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, fmt.Sprintf("%s limit %d version %q", o.FieldSelector, o.Limit, o.ResourceVersion))
		return true, &corev1.PodList{Items: make([]corev1.Pod, 1)}, nil
	})
	c := New(client, All, build.Start)
	for range 2 { // it is read once
		for _, node := range []string{"", "node-1"} {
			if found, err := c.podsOn(t.Context(), node); err != nil || len(found) != 1 {
				t.Errorf("on node %q are %v: %v", node, found, err)
			}
		}
	}
	if want := []string{`spec.nodeName= limit 1000 version ""`, `spec.nodeName=node-1 limit 500 version "0"`}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}
