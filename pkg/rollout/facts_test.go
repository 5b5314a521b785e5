package rollout_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestUnplaceableMembers: a pod of 100m cpu is to become one of 150m by a restart. The only node
// is not open to the pod, or it is, and had no room at the last look.
func TestUnplaceableMembers(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	closed := judge.Refusal{Reason: "no node that is Ready matches the node selector, affinity and tolerations of the pod", Kind: judge.ReasonNoNodeFits}
	later := build.Start.Add(time.Second)
	for _, tt := range []struct {
		name   string
		closed bool
		change func(*judge.Place)
		full   string // the revision whose size was found to have no room
		until  time.Time
		want   judge.Refusal
	}{
		{name: "it may not run there", closed: true, want: closed},
		{name: "it may not run there, which was full, too", closed: true, full: "b", until: later, want: closed},
		{name: "the node was full", full: "b", until: later, want: judge.Refusal{Reason: "full", Until: later}},
		{name: "the node was full long ago", full: "b", until: build.Start},
		{name: "the node was full for another edit", full: "a", until: later},
		{name: "it has its size", closed: true, change: func(p *judge.Place) { p.Updated = true }},
		{name: "another template is handed over", closed: true, change: func(p *judge.Place) { p.Differs = "image" }},
		{name: "it is not there", closed: true, change: func(p *judge.Place) { p.Pod, p.Target = nil, resize.Target{} }},
		{name: "it goes", closed: true, change: func(p *judge.Place) { build.Terminating(p.Pod) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := build.Pod("web-0", older)
			target := must.Get(resize.For(pod, older, newer))(t)
			place := judge.Place{Name: pod.Name, Pod: pod, Target: target}
			if tt.change != nil {
				tt.change(&place)
			}
			size := rollout.Revision{Name: tt.full}.Size(target.Changes)
			if tt.want.Reason == "full" {
				tt.want.Of = size
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{Unschedulable: tt.closed}}
			node.Status.Allocatable = pod.Spec.Containers[0].Resources.Requests.DeepCopy()
			node.Status.Allocatable[corev1.ResourceCPU] = *target.Changes[0].To
			facts := rollout.Facts{
				Places: capacity.NewPlaces([]*corev1.Node{node}, false, capacity.Limits{}), Defaults: policy.Standard, Now: build.Start,
				Notes: &judge.PodNotes{Foreseen: true},
			}
			facts.Notes.Note(pod.UID).Room = &judge.Refused{Refusal: judge.Refusal{Of: size, Reason: "full", Until: tt.until}}
			if got := facts.Members([]judge.Place{place}, rollout.Revision{Name: "b", Template: newer})[0].Unplaceable; got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestSilentKubeletByOurClock: a kubelet that says no generation has looked at a size two minutes
// after that was first seen, whatever the API server's clock says.
func TestSilentKubeletByOurClock(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.NodeInfo.KubeletVersion = "v1.33.5"
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		pod := build.Pod("web-0", older, build.Resized(newer), build.ResizedAt(build.Start.Add(ahead)))
		pod.Status.ObservedGeneration = 0
		notes := &judge.PodNotes{}
		for _, tt := range []struct {
			after time.Duration
			want  resize.State
		}{{0, resize.InProgress}, {119 * time.Second, resize.InProgress}, {2 * time.Minute, resize.Actuated}} {
			f := rollout.Facts{Now: build.Start.Add(tt.after), Places: capacity.NewPlaces([]*corev1.Node{node}, false, capacity.Limits{}), Notes: notes}
			target := must.Get(f.Target(pod, older, newer))(t)
			if state, says := target.Observe(); state != tt.want {
				t.Errorf("the clock is %s ahead: after %s it is %s: %s", ahead, tt.after, state, says)
			}
			notes.Look(f.Now, pod)
		}
	}
}

// TestUnsupportedMember: what the node does not support counts as refused.
func TestUnsupportedMember(t *testing.T) {
	older, newer := build.Size(t, "limits: {memory: 2Gi}"), build.Size(t, "limits: {memory: 1Gi}")
	node, pod := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, build.Pod("web-0", older)
	node.Status.NodeInfo.KubeletVersion = "v1.33.5"
	target := must.Get(resize.For(pod, older, newer))(t)
	f := rollout.Facts{Places: capacity.NewPlaces([]*corev1.Node{node}, false, capacity.Limits{}), Defaults: policy.Standard, Now: build.Start, Notes: &judge.PodNotes{}}
	place := judge.Place{Name: pod.Name, Pod: pod, Target: target}
	if got := f.Members([]judge.Place{place}, rollout.Revision{Name: "b", Template: newer})[0].Refusal; got.Kind != judge.ReasonUnsupportedByNode {
		t.Errorf("the refusal is %+v", got)
	}
}
