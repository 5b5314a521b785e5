//go:build around

package admission

import (
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// container is one that a webhook adds.
func container(name, image, cpu string) map[string]any {
	c := map[string]any{"name": name, "image": image}
	if cpu != "" {
		c["resources"] = map[string]any{"requests": map[string]any{"cpu": cpu}}
	}
	return c
}

// inject returns a webhook's mutation that adds containers, once.
func inject(list string, added ...any) webhook.Mutate {
	return func(_ *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
		containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", list)
		_ = unstructured.SetNestedSlice(pod.Object, append(added, containers...), "spec", list)
		seen(pod)
	}
}

// change returns a webhook's mutation that sets a field of a list's first container.
func change(list string, value any, field ...string) webhook.Mutate {
	return func(_ *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
		containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", list)
		_ = unstructured.SetNestedField(containers[0].(map[string]any), value, field...)
		_ = unstructured.SetNestedSlice(pod.Object, containers, "spec", list)
		seen(pod)
	}
}

// set returns a webhook's mutation that sets a field of the pod.
func set(value any, field ...string) webhook.Mutate {
	return func(_ *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(pod.Object, value, field...)
		seen(pod)
	}
}

// both returns a webhook's mutation that does both.
func both(one, other webhook.Mutate) webhook.Mutate {
	return func(r *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
		one(r, pod)
		other(r, pod)
	}
}

// seen marks the pod, so that tests know that the webhook is asked.
func seen(pod *unstructured.Unstructured) {
	_ = unstructured.SetNestedField(pod.Object, "true", "metadata", "labels", "seen")
}

// TestAskedAgain has a webhook change the pod between the two times that the policy is asked.
func TestAskedAgain(t *testing.T) {
	for _, tt := range []struct {
		sentence  string
		namespace namespace
		mutate    webhook.Mutate
		pod       string
		requests  string
		says      string
	}{
		{"a container that a webhook adds is estimated, too", namespace{name: "again", label: "enabled", table: known},
			inject("containers", container("proxy", "small:1", "")),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"proxy cpu=10m memory=16Mi; app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag); proxy cpu=10m(image:tag) memory=16Mi(image:tag)"},
		{"a sidecar, too, and what is known of nothing else", namespace{name: "again-sidecar", label: "enabled", table: known},
			inject("initContainers", map[string]any{"name": "proxy", "image": "small:1", "restartPolicy": "Always"}),
			`spec: {containers: [{name: app, image: "new:1"}]}`,
			"proxy cpu=10m memory=16Mi; app", "proxy cpu=10m(image:tag) memory=16Mi(image:tag)"},
		{"what LimitRanger said the first time is not forgotten", namespace{name: "again-filled", label: "enabled", table: known, ranges: defaults},
			inject("containers", container("proxy", "small:1", "")),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"proxy cpu=10m memory=16Mi; app cpu=120m memory=300Mi", "app cpu=120m(image:tag,was 55m) memory=300Mi(image:tag,was 55Mi); proxy cpu=10m(image:tag,was 55m) memory=16Mi(image:tag,was 55Mi)"},
		{"containers may be called as resources are", namespace{name: "again-names", label: "enabled", table: known},
			inject("containers", container("memory", "small:1", ""), container("request", "onlycpu:1", "")),
			`spec: {containers: [{name: cpu, image: "web:1"}, {name: app, image: "onlycpu:1"}, {name: own, image: "web:1", resources: {requests: {cpu: 120m}}}]}`,
			"memory cpu=10m memory=16Mi; request cpu=30m; cpu cpu=120m memory=300Mi; app cpu=30m; own cpu=120m memory=300Mi", "app cpu=30m(image:tag); cpu cpu=120m(image:tag) memory=300Mi(image:tag); memory cpu=10m(image:tag) memory=16Mi(image:tag); own memory=300Mi(image:tag); request cpu=30m(image:tag)"},
		{"what a webhook requests is its own", namespace{name: "again-other", label: "enabled", table: known},
			change("containers", "33m", "resources", "requests", "cpu"),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"app cpu=33m memory=300Mi", "app cpu=120m(image:tag,changed) memory=300Mi(image:tag)"},
		{"an estimate is taken back if a webhook adds more than the quota has left", namespace{name: "again-quota", label: "enabled", table: with(map[string]string{"quota.cpu": "200m"})},
			inject("containers", container("proxy", "new:1", "100m")),
			`spec: {containers: [{name: app, image: "web:1"}, {name: own, image: "new:1", resources: {requests: {cpu: 20m}}}]}`,
			"proxy cpu=100m; app memory=300Mi; own cpu=20m", "app cpu=120m(image:tag,quota) memory=300Mi(image:tag)"},
		{"of memory, too", namespace{name: "again-quota-memory", label: "enabled", table: with(map[string]string{"quota.memory": "350Mi"})},
			inject("containers", map[string]any{"name": "proxy", "image": "new:1", "resources": map[string]any{"requests": map[string]any{"memory": "100Mi"}}}),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"proxy memory=100Mi; app cpu=120m", "app cpu=120m(image:tag) memory=300Mi(image:tag,quota)"},
		{"and gives back what LimitRanger has filled in", namespace{name: "again-given-back", label: "enabled", table: with(map[string]string{"quota.cpu": "200m"}), ranges: defaults},
			inject("containers", container("proxy", "new:1", "100m")),
			`spec: {initContainers: [{name: prepare, image: "web:1"}], containers: [{name: app, image: "web:1"}]}`,
			"prepare cpu=55m memory=300Mi; proxy cpu=100m memory=55Mi; app cpu=55m memory=300Mi", "app cpu=120m(image:tag,quota) memory=300Mi(image:tag,was 55Mi); prepare cpu=120m(image:tag,quota) memory=300Mi(image:tag,was 55Mi)"},
		{"or what the user has requested", namespace{name: "again-always", label: "enabled", table: with(map[string]string{"quota.memory": "350Mi"})},
			inject("containers", map[string]any{"name": "proxy", "image": "new:1", "resources": map[string]any{"requests": map[string]any{"memory": "100Mi"}}}),
			`{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 50m, memory: 60Mi}}}]}}`,
			"proxy memory=100Mi; app cpu=120m memory=60Mi", "app cpu=120m(image:tag,was 50m) memory=300Mi(image:tag,quota)"},
		{"also in place of what LimitRanger has filled in", namespace{name: "again-other-filled", label: "enabled", table: known, ranges: defaults},
			change("containers", "33m", "resources", "requests", "cpu"),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"app cpu=33m memory=300Mi", "app cpu=120m(image:tag,changed) memory=300Mi(image:tag,was 55Mi)"},
		{"and of a pod that says always", namespace{name: "again-other-always", label: "enabled", table: known},
			change("containers", "33m", "resources", "requests", "cpu"),
			`{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 50m}}}]}}`,
			"app cpu=33m memory=300Mi", "app cpu=120m(image:tag,changed) memory=300Mi(image:tag)"},
		{"a lower limit that a webhook sets holds", namespace{name: "again-limit", label: "enabled", table: known},
			change("containers", map[string]any{"cpu": "100m", "memory": "200Mi"}, "resources", "limits"),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"app cpu=100m limit-cpu=100m limit-memory=200Mi memory=200Mi", "app cpu=100m(image:tag,limit) memory=200Mi(image:tag,limit)"},
		{"a limit that is too far above says what is requested", namespace{name: "again-ratio", label: "enabled", table: with(map[string]string{"ratio.memory": "2"}), ranges: doubled},
			change("containers", map[string]any{"memory": "1Gi"}, "resources", "limits"),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"app cpu=120m limit-memory=1Gi memory=1Gi", "app cpu=120m(image:tag)"},
		{"no more is given back than a limit that has come since", namespace{name: "again-back-limit", label: "enabled", table: with(map[string]string{"room.cpu": "600m"})},
			both(change("containers", map[string]any{"cpu": "120m"}, "resources", "limits"), inject("containers", container("proxy", "new:1", "500m"))),
			`{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 500m}}}]}}`,
			"proxy cpu=500m; app cpu=120m limit-cpu=120m memory=300Mi", "app cpu=120m(image:tag,room) memory=300Mi(image:tag)"},
		{"nor less than a LimitRange wants beside one", namespace{name: "again-back-ratio", label: "enabled", table: with(map[string]string{"room.memory": "500Mi", "ratio.memory": "2"}), ranges: doubled},
			both(change("containers", map[string]any{"memory": "300Mi"}, "resources", "limits"), inject("containers", map[string]any{
				"name": "proxy", "image": "new:1", "resources": map[string]any{"limits": map[string]any{"memory": "250Mi"}},
			})),
			`{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {memory: 100Mi}}}]}}`,
			"proxy limit-memory=250Mi memory=250Mi; app cpu=120m limit-memory=300Mi memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag,room)"},
		{"a webhook gives the pod resources as a whole", namespace{name: "again-whole", label: "enabled", table: known},
			set(map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "100Mi"}}, "spec", "resources"),
			`{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 50m}}}]}}`,
			"app cpu=50m", ""},
		{"or overhead", namespace{name: "again-overhead", label: "enabled", table: with(map[string]string{"quota.cpu": "200m"}), ranges: defaults},
			set("sandbox", "spec", "runtimeClassName"),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"app cpu=55m memory=300Mi", "app cpu=120m(image:tag,quota) memory=300Mi(image:tag,was 55Mi)"},
		{"or makes a sidecar of an init container", namespace{name: "again-restart", label: "enabled", table: with(map[string]string{"quota.cpu": "200m"}), ranges: defaults},
			change("initContainers", "Always", "restartPolicy"),
			`spec: {initContainers: [{name: prepare, image: "web:1"}], containers: [{name: app, image: "web:1"}]}`,
			"prepare cpu=55m memory=300Mi; app cpu=55m memory=300Mi", "app cpu=120m(image:tag,quota) memory=300Mi(image:tag,was 55Mi); prepare cpu=120m(image:tag,quota) memory=300Mi(image:tag,was 55Mi)"},
		{"or takes a container away", namespace{name: "again-fewer", label: "enabled", table: with(map[string]string{"pod-min.cpu": "100m"}), ranges: atLeast},
			func(_ *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
				containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
				_ = unstructured.SetNestedSlice(pod.Object, containers[:1], "spec", "containers")
				seen(pod)
			},
			`spec: {containers: [{name: app, image: "small:1"}, {name: gone, image: "web:1"}]}`,
			"app cpu=100m memory=16Mi", "app cpu=10m(image:tag,pod-min) memory=16Mi(image:tag)"},
		{"or annotations that leave no room for ours", namespace{name: "again-long", label: "enabled", table: known},
			set(strings.Repeat("x", 262000), "metadata", "annotations", "long"),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"app", ""},
		{"or a container that is larger than anything", namespace{name: "again-large", label: "enabled", table: with(map[string]string{"quota.cpu": "200m"}), ranges: defaults},
			inject("containers", map[string]any{"name": "large", "image": "new:1", "resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "16Pi"}}}),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"large cpu=100m memory=16Pi; app cpu=55m memory=300Mi", "app cpu=120m(image:tag,quota) memory=300Mi(image:tag,was 55Mi)"},
		{"where it is only said, all of it is said", namespace{name: "again-told", label: "annotate", table: known},
			inject("containers", container("proxy", "small:1", "")),
			`spec: {containers: [{name: app, image: "web:1"}]}`,
			"proxy; app", "app cpu=120m(image:tag,annotate) memory=300Mi(image:tag,annotate); proxy cpu=10m(image:tag,annotate) memory=16Mi(image:tag,annotate)"},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			t.Parallel()
			must.Do(t, tt.namespace.create(t.Context()))
			webhook.Serve(t, client, webhook.Options{Namespace: tt.namespace.name, Resources: []string{"pods"}, Mutate: tt.mutate})
			pod := must.Get(newPod(tt.pod))(t)
			var made *corev1.Pod
			must.Do(t, await(t.Context(), func() (err error) {
				made, err = client.CoreV1().Pods(tt.namespace.name).Create(t.Context(), pod, metav1.CreateOptions{})
				if err == nil && made.Labels["seen"] == "" {
					err = errors.New("the webhook is not asked yet")
				}
				return err
			}))
			check(t, made, tt.requests, tt.says)
		})
	}
}
