package resize_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// What a startup booster is about to put back is read from what it has noted on the pod, and counts where
// an edit has changed it.
func TestPutBack(t *testing.T) {
	const boost, vertical = "autoscaling.x-k8s.io/startup-cpu-boost", "vpaCpuStartupBoost/app"
	edited := build.Size(t, "requests: {cpu: 150m, memory: 100Mi}, limits: {cpu: 300m}")
	for _, tt := range []struct {
		name, key, note string
		size            *corev1.PodTemplateSpec // of the pod, where that is not the edited one
		want            string
	}{
		{name: "nobody", key: "example.com/note", note: "{}"},
		{name: "the request", key: boost, note: `{"state":"Active","timestamp":"2026-01-01T00:00:00Z","initCPURequests":{"app":"100m"}}`, want: "app: cpu request 150m→100m"},
		{name: "request and limit", key: boost, note: `{"state":"Active","initCPURequests":{"app":"100m"},"initCPULimits":{"app":"200m"}}`,
			want: "app: cpu request 150m→100m, app: cpu limit 300m→200m"},
		{name: "an older one, which notes no state", key: boost, note: `{"initCPURequests":{"app":"100m"}}`, want: "app: cpu request 150m→100m"},
		{name: "it is done", key: boost, note: `{"state":"Reverted","initCPURequests":{"app":"100m"}}`},
		{name: "what the template says by now, too", key: boost, note: `{"state":"Active","initCPURequests":{"app":"0.15"},"initCPULimits":{"app":"300m"}}`},
		{name: "of another container", key: boost, note: `{"state":"Active","initCPURequests":{"sidecar":"100m"}}`},
		{name: "not readable", key: boost, note: `{"state":`},
		{name: "by the Vertical Pod Autoscaler", key: vertical, note: `{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{}}`, want: "app: cpu request 150m→100m"},
		{name: "by that, and memory with it", key: vertical, note: `{"requests":{"cpu":"150m","memory":"50Mi"},"limits":{"cpu":"300m"}}`, want: "app: memory request 100Mi→50Mi"},
		{name: "by that, in another container", key: "vpaCpuStartupBoost/sidecar", note: `{"requests":{"cpu":"100m"}}`},
		{name: "by that, not readable", key: vertical, note: `100m`},
		{name: "somebody else has the say about the pod", key: boost, note: `{"state":"Active","initCPURequests":{"app":"100m"}}`,
			size: build.Size(t, "requests: {cpu: 170m, memory: 100Mi}, limits: {cpu: 300m}")},
		{name: "the template says nothing of it", key: vertical, note: `{"requests":{"cpu":"150m"},"limits":{"cpu":"300m","memory":"1Gi"}}`},
	} {
		if tt.size == nil {
			tt.size = edited
		}
		pod := build.Pod("web-0", tt.size, func(pod *corev1.Pod) { pod.Annotations = map[string]string{tt.key: tt.note} })
		target := must.Get(resize.Leftover(pod, edited))(t)
		if got := resize.Describe(target.PutBack(edited)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// What somebody else has given a pod, at its birth or later, is displaced by an edit, and when they put back what the
// older template says, that is undone once more.
func TestAgain(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	boosted := build.Size(t, "requests: {cpu: 500m}")
	began := build.Start.Add(time.Minute)
	for _, tt := range []struct {
		name   string
		before []func(*corev1.Pod) // the edit
		after  []func(*corev1.Pod)
		want   string
	}{
		{name: "born with more, and put back", before: []func(*corev1.Pod){build.Resized(boosted)},
			after: []func(*corev1.Pod){build.Resized(older), build.ResizedBy("manager", began, build.CPURequest)}, want: "app: cpu request 100m→150m"},
		{name: "resized to more, and put back", before: []func(*corev1.Pod){build.Resized(boosted), build.ResizedBy("manager", build.Start, build.CPURequest)},
			after: []func(*corev1.Pod){build.Resized(older), build.ResizedBy("manager", began, build.CPURequest)}, want: "app: cpu request 100m→150m"},
		{name: "set to something else", before: []func(*corev1.Pod){build.Resized(boosted)},
			after: []func(*corev1.Pod){build.Resized(boosted), build.ResizedBy("manager", began, build.CPURequest)}},
		{name: "not put back", before: []func(*corev1.Pod){build.Resized(boosted)},
			after: []func(*corev1.Pod){build.Resized(newer), build.Ours(build.CPURequest)}},
		{name: "put back by an edit of ours", before: []func(*corev1.Pod){build.Resized(boosted)},
			after: []func(*corev1.Pod){build.Resized(older), build.Ours(build.CPURequest)}},
		{name: "nobody had given it anything", after: []func(*corev1.Pod){build.Resized(older), build.ResizedBy("manager", began, build.CPURequest)}},
		{name: "of an edit that was given up", before: []func(*corev1.Pod){build.Resized(boosted), build.Ours(build.CPURequest)},
			after: []func(*corev1.Pod){build.Resized(older), build.ResizedBy("manager", began, build.CPURequest)}},
	} {
		edit := must.Get(resize.For(build.Pod("web-0", older, tt.before...), older, newer))(t)
		pod := build.Pod("web-0", newer, tt.after...)
		again := must.Get(resize.Again(pod, edit.Displaced))(t)
		if got := resize.Describe(again.Changes); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if patch, err := again.Patch(); err != nil || tt.want != "" && !strings.Contains(string(patch), `"cpu":"150m"`) {
			t.Errorf("%s: the patch is %s, %v", tt.name, patch, err)
		}
	}
}
