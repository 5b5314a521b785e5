package capacity

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func read[T any](t *testing.T, text string) T {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	return object
}

func TestAdmit(t *testing.T) {
	const app = "containers: [{name: app, resources: {requests: {cpu: 600m}}}]"
	tests := []struct {
		name     string
		spec     string
		limits   string // of the LimitRanges, each the items of one
		admitted string // the resources of the first container
		refusal  string
	}{
		{"nothing is said", app, "", "{requests: {cpu: 600m}}", ""},
		{"defaults are filled in where nothing is said", app, "[{type: Container, default: {cpu: 1, memory: 1Gi}, defaultRequest: {cpu: 500m, memory: 1Mi}}]",
			"{requests: {cpu: 600m, memory: 1Mi}, limits: {cpu: 1, memory: 1Gi}}", ""},
		{"a default limit below the request", app, "[{type: Container, default: {cpu: 500m}}]",
			"{requests: {cpu: 600m}, limits: {cpu: 500m}}", "app: the cpu request 600m is above the limit 500m, which LimitRange a fills in"},
		{"of two defaults the first counts", app, "[{type: Container, default: {cpu: 700m}}]\n[{type: Container, default: {cpu: 500m}}]",
			"{requests: {cpu: 600m}, limits: {cpu: 700m}}", ""},
		{"defaults of pods and claims are nobody's", app, "[{type: PersistentVolumeClaim, max: {storage: 1Gi}}]", "{requests: {cpu: 600m}}", ""},
		{"a request above the limit", "containers: [{name: app, resources: {requests: {cpu: 600m}, limits: {cpu: 500m}}}]", "", "", "app: the cpu request 600m is above the limit 500m"},
		{"of an init container", "{containers: [{name: app}], initContainers: [{name: init, resources: {requests: {memory: 2Mi}, limits: {memory: 1Mi}}}]}", "", "", "init: the memory request 2Mi is above the limit 1Mi"},
		{"a pod's request above its limit", "{containers: [{name: app}], resources: {requests: {cpu: 2}, limits: {cpu: 1}}}", "", "", "the pod's cpu request 2 is above its limit 1"},
		{"containers that request more than the pod", "{containers: [{name: app, resources: {requests: {cpu: 2}}}], resources: {requests: {cpu: 1}}}", "", "",
			"the containers' cpu requests of 2 are above the pod's 1"},
		{"a container's limit above the pod's", "{containers: [{name: app, resources: {limits: {cpu: 2}}}], resources: {limits: {cpu: 1}}}", "", "", "app: the cpu limit 2 is above the pod's 1"},
		{"more than the maximum", "containers: [{name: app, resources: {limits: {cpu: 2}}}]", "[{type: Container, max: {cpu: 1}}]", "", "app: cpu per Container must be at most 1, and the limit is 2 (LimitRange a)"},
		{"no limit where there is a maximum", app, "[{type: Container, max: {cpu: 1}}]", "", "app: cpu per Container must have a limit, at most 1 (LimitRange a)"},
		{"less than the minimum", app, "[{type: Container, min: {cpu: 1}}]", "", "app: cpu per Container must be at least 1, and 600m is requested (LimitRange a)"},
		{"a limit below the minimum", "containers: [{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 500m}}}]", "[{type: Container, min: {cpu: 1}}]", "",
			"app: the cpu request 1 is above the limit 500m, app: cpu per Container must be at least 1, and the limit is 500m (LimitRange a)"},
		{"no request where there is a minimum", "containers: [{name: app}]", "[{type: Container, min: {cpu: 1}}]", "", "app: cpu per Container must be requested, at least 1 (LimitRange a)"},
		{"all of the pod together", "containers: [{name: app, resources: {limits: {cpu: 1}}}, {name: log, resources: {limits: {cpu: 1}}}]", "[{type: Pod, max: {cpu: 1500m}}]", "",
			"cpu per Pod must be at most 1500m, and the limit is 2 (LimitRange a)"},
		{"a limit that is too high for the request", "containers: [{name: app, resources: {requests: {cpu: 100m}, limits: {cpu: 300m}}}]", "[{type: Container, maxLimitRequestRatio: {cpu: 2}}]", "",
			"app: cpu per Container must have a limit of at most 2 times the request, and they are 300m and 100m (LimitRange a)"},
		{"a ratio that is kept to", "containers: [{name: app, resources: {requests: {cpu: 100m}, limits: {cpu: 200m}}}]", "[{type: Container, maxLimitRequestRatio: {cpu: 2}}]", "", ""},
		{"a ratio of nothing", app, "[{type: Container, maxLimitRequestRatio: {cpu: 2}}]", "", "app: cpu per Container must have a request and a limit, at most 2 times as high (LimitRange a)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := read[corev1.PodSpec](t, tt.spec)
			before := spec.DeepCopy()
			var limits Limits
			for i, items := range strings.Split(tt.limits, "\n") {
				if items != "" {
					limits.Ranges = append(limits.Ranges, corev1.LimitRange{
						ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i))}, Spec: corev1.LimitRangeSpec{Limits: read[[]corev1.LimitRangeItem](t, items)},
					})
				}
			}
			admitted, refusal := limits.admit(&spec)
			if refusal != tt.refusal {
				t.Errorf("got the refusal %q, want %q", refusal, tt.refusal)
			}
			if want := read[corev1.ResourceRequirements](t, tt.admitted); tt.admitted != "" && !same(admitted.Containers[0].Resources, want) {
				t.Errorf("got %v, want %v", admitted.Containers[0].Resources, want)
			}
			if !same(spec.Containers[0].Resources, before.Containers[0].Resources) {
				t.Error("the spec that was asked about has changed")
			}
		})
	}
}

func same(a, b corev1.ResourceRequirements) bool {
	equal := func(a, b corev1.ResourceList) bool {
		for name, q := range a {
			if other, has := b[name]; !has || q.Cmp(other) != 0 {
				return false
			}
		}
		return len(a) == len(b)
	}
	return equal(a.Requests, b.Requests) && equal(a.Limits, b.Limits)
}
