package resize_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestNewborn(t *testing.T) {
	filled := func(entries string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{"kubernetes.io/limit-ranger": "LimitRanger plugin set: " + entries}
		}
	}
	tests := []struct {
		name              string
		older, newer, pod string // the containers
		change            func(*corev1.Pod)
		kept, unfilled    string // the containers of a new pod: with what LimitRanges have filled into this one, and without
	}{
		{
			name: "what the template says", older: "[{name: app, resources: {requests: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 2}}}]",
			kept: "[{name: app, resources: {requests: {cpu: 2}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 2}}}]",
		},
		{
			name: "not what it says no more", older: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 2}}}]",
			kept: "[{name: app, resources: {requests: {cpu: 2}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 2}}}]",
		},
		{
			name: "what was injected", older: "[{name: app, resources: {requests: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 2}}}]",
			pod:  "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 3}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]",
			kept: "[{name: app, resources: {requests: {cpu: 2}, limits: {cpu: 3}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 2}, limits: {cpu: 3}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]",
		},
		{
			name: "what a LimitRange fills in is another's to say", older: "[{name: app, resources: {requests: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 2}}}]",
			pod:    "[{name: app, resources: {requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 3, memory: 2Mi}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]",
			change: filled("memory request for container app; cpu, memory limit for container app; cpu request for container log; cpu limit for container log; cpu limit for container gone; cpu limit for init container app"),
			kept:   "[{name: app, resources: {requests: {cpu: 2, memory: 1Mi}, limits: {cpu: 3, memory: 2Mi}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 2}}}, {name: log}]",
		},
		{
			name: "unless the template says it by now", older: "[{name: app, resources: {requests: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 4}}}]",
			pod: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 3}}}]", change: filled("cpu limit for container app"),
			kept: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 4}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 4}}}]",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			older, newer := build.Template(t, "containers: "+tt.older), build.Template(t, "containers: "+tt.newer)
			made := older
			if tt.pod != "" {
				made = build.Template(t, "containers: "+tt.pod)
			}
			pod := build.Pod("web-0", made)
			if tt.change != nil {
				tt.change(pod)
			}
			target := must.Get(resize.For(pod, older, newer))(t)
			for unfilled, containers := range map[bool]string{false: tt.kept, true: tt.unfilled} {
				got, want := target.Newborn(unfilled), build.Template(t, "containers: "+containers)
				if changes := resize.Between(&corev1.PodTemplateSpec{Spec: *got}, want); len(changes) > 0 {
					t.Errorf("unfilled %t: want %s", unfilled, resize.Describe(changes))
				}
			}
		})
	}
}
