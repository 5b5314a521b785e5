package judge

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestRejectionsAreOver: a rejected pod counts until one of the newest size is let in, not when one of the former size comes for it, which
// would be given up for it again. A controller that has just started sees the same.
func TestRejectionsAreOver(t *testing.T) {
	const newer = "newer"
	size := build.Size(t, "requests: {cpu: 100m}")
	pod := func(name, owner, of string, after time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
		p := build.Pod(name, size, change...)
		p.UID, p.CreationTimestamp = types.UID(name+of), metav1.NewTime(build.Start.Add(after))
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: ptr.To(true)}}
		p.Labels = map[string]string{"of": of}
		return p
	}
	rejected := func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: no room"}
	}
	for name, tt := range map[string]struct {
		there []*corev1.Pod
		want  bool
	}{
		"a new pod of a Deployment, and no other has come": {[]*corev1.Pod{pod("web-a", "ReplicaSet", newer, 0, rejected), pod("web-b", "ReplicaSet", "older", -time.Hour)}, true},
		"one of the newest size has come for it":           {[]*corev1.Pod{pod("web-a", "ReplicaSet", newer, 0, rejected), pod("web-b", "ReplicaSet", "older", -time.Hour), pod("web-c", "ReplicaSet", newer, time.Second)}, false},
		"one of the former size has":                       {[]*corev1.Pod{pod("web-a", "ReplicaSet", newer, 0, rejected), pod("web-b", "ReplicaSet", "older", -time.Hour), pod("web-c", "ReplicaSet", "older", 0)}, true},
		"of the former size was rejected":                  {[]*corev1.Pod{pod("web-a", "ReplicaSet", "older", 0, rejected), pod("web-b", "ReplicaSet", "older", -time.Hour), pod("web-c", "ReplicaSet", "older", 0)}, false},
		"of a StatefulSet, and the next one, too":          {[]*corev1.Pod{pod("web-1", "StatefulSet", newer, 0, rejected), pod("web-1", "StatefulSet", "older", time.Second), pod("web-0", "StatefulSet", "older", -time.Hour)}, true},
		"another one was lost since":                       {[]*corev1.Pod{pod("web-1", "StatefulSet", newer, 0, rejected), pod("web-1", "StatefulSet", newer, time.Second), pod("web-0", "StatefulSet", "older", time.Minute)}, false},
	} {
		for _, before := range []bool{false, true} { // it was seen before anything came for it
			r := &Rejections{}
			newest := func(p *corev1.Pod) bool { return p.Labels["of"] == newer }
			if before {
				r.See(slices.DeleteFunc(slices.Clone(tt.there), func(p *corev1.Pod) bool { return !Gone(p) }), 2, 2, newest, false)
			}
			r.See(tt.there, 0, 2, newest, false)
			must.Equal(t, r.First() != nil, tt.want, "%s, seen before %t: it counts", name, before)
		}
	}
}

// TestRejectedBeforeAnEdit: what was rejected before says nothing of an edit, though it may be like what that makes. It does, if its user
// has only had it tried again.
func TestRejectedBeforeAnEdit(t *testing.T) {
	rejected := func(name string) *corev1.Pod {
		return build.Pod(name, build.Size(t, "requests: {cpu: 100m}"), func(p *corev1.Pod) {
			p.UID, p.Status = types.UID(name), corev1.PodStatus{Phase: corev1.PodFailed, Message: "Pod was rejected: no room"}
		})
	}
	r, there := &Rejections{}, []*corev1.Pod{rejected("a")}
	for _, tt := range []struct{ edit, comes, want string }{{"1;", "", "a"}, {"1;again", "", "a"}, {"2;again", "", ""}, {"2;again", "b", "b"}} {
		if tt.comes != "" {
			there = append(there, rejected(tt.comes))
		}
		r.Begin(tt.edit)
		r.See(there, 1, 2, func(*corev1.Pod) bool { return true }, false)
		if first := r.First(); (first != nil) != (tt.want != "") || first != nil && first.Pod != tt.want {
			t.Errorf("%+v: %+v counts", tt, first)
		}
	}
}
