package capacity

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestQuotas(t *testing.T) {
	const (
		small  = "containers: [{name: app, resources: {requests: {cpu: 300m, memory: 1Mi}, limits: {cpu: 300m, memory: 1Mi}}}]"
		medium = "containers: [{name: app, resources: {requests: {cpu: 500m, memory: 1Mi}}}]"
		large  = "containers: [{name: app, resources: {requests: {cpu: 400m, memory: 1Mi}, limits: {cpu: 400m, memory: 1Mi}}}]"
	)
	tests := []struct {
		name    string
		quota   string
		others  []string
		gone    []string
		there   []string
		pod     string
		instead bool              // of the first of the others
		resized bool              // it is the first of the others
		change  func(*corev1.Pod) // of the pods that are gone
		refusal string
	}{
		{name: "room", quota: "status: {hard: {requests.cpu: 1}, used: {requests.cpu: 900m}}", others: []string{small, small}, pod: large},
		{name: "no room", quota: "status: {hard: {requests.cpu: 1}, used: {requests.cpu: 0}}", others: []string{small, small, small}, pod: large,
			refusal: "quota q has no room for requests.cpu 400m (used: 900m of 1)"},
		{name: "room for one in another's place", quota: "status: {hard: {requests.cpu: 1}, used: {requests.cpu: 900m}}", others: []string{small, small}, gone: []string{small}, pod: large},
		{name: "but not for a second one", quota: "status: {hard: {requests.cpu: 1}, used: {requests.cpu: 900m}}", others: []string{small}, gone: []string{small, small}, there: []string{large}, pod: large,
			refusal: "quota q has no room for requests.cpu 400m (used: 700m of 1)"},
		{name: "or for a larger one there: what is used is what the quota's status says", quota: "status: {hard: {requests.cpu: 1}, used: {requests.cpu: 900m}}",
			others: []string{small, small, small}, instead: true, pod: medium, refusal: "quota q has no room for requests.cpu 500m in place of 300m (used: 900m of 1)"},
		{name: "of a pod whose resize is infeasible, what it has counts", quota: "status: {hard: {cpu: 1}, used: {cpu: 1}}", others: []string{small, small}, gone: []string{large}, pod: large,
			change: func(pod *corev1.Pod) {
				had := build.Parsed[corev1.PodSpec](t, small).Containers[0].Resources
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", AllocatedResources: had.Requests, Resources: &had}}
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
			}},
		{name: "of a pod whose resize was put off, the larger size counts", quota: "status: {hard: {cpu: 1}, used: {cpu: 1}}", others: []string{small, small}, gone: []string{small}, pod: large,
			change: func(pod *corev1.Pod) {
				had := build.Parsed[corev1.PodSpec](t, large).Containers[0].Resources
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", AllocatedResources: had.Requests, Resources: &had}}
			}},
		{name: "a pod that is over takes nothing", quota: "status: {hard: {cpu: 1}, used: {cpu: 900m}}", others: []string{small, small}, gone: []string{large}, pod: large,
			change: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }},
		{name: "nor one that should be gone long since", quota: "status: {hard: {cpu: 900m}, used: {cpu: 900m}}", others: []string{small, small}, gone: []string{large}, pod: large,
			change: func(pod *corev1.Pod) {
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(now.Add(-time.Minute))), ptr.To[int64](30)
			},
			refusal: "quota q has no room for cpu 400m (used: 600m of 900m)"},
		{name: "limits", quota: "status: {hard: {limits.memory: 1Mi}, used: {limits.memory: 1Mi}}", others: []string{small}, pod: small, refusal: "quota q has no room for limits.memory 1Mi (used: 1Mi of 1Mi)"},
		{name: "numbers of pods", quota: "status: {hard: {pods: 3, count/pods: 4}, used: {pods: 3, count/pods: 3}}", others: []string{small, small, small}, pod: small, refusal: "quota q has no room for pods 1 (used: 3 of 3)"},
		{name: "a number of pods that stays the same", quota: "status: {hard: {pods: 3, count/pods: 3}, used: {pods: 3, count/pods: 3}}", others: []string{small, small}, gone: []string{small}, pod: large},
		{name: "a smaller pod under a quota that was lowered", quota: "status: {hard: {cpu: 600m}, used: {cpu: 900m}}", others: []string{medium}, gone: []string{large}, pod: small,
			refusal: "quota q has no room for cpu 300m (used: 500m of 600m)"},
		{name: "a resize to less under a quota that was lowered", quota: "status: {hard: {cpu: 200m, memory: 0}, used: {cpu: 500m, memory: 1Mi}}", others: []string{medium}, resized: true, pod: small},
		{name: "a resize to more of what was lowered", quota: "status: {hard: {cpu: 300m, memory: 0}, used: {cpu: 400m, memory: 1Mi}}", others: []string{large}, resized: true, pod: medium,
			refusal: "quota q has no room for cpu 500m in place of 400m (used: 400m of 300m)"},
		{name: "a resize under a quota that has come to demand a limit", quota: "status: {hard: {limits.cpu: 1}, used: {limits.cpu: 0}}", others: []string{medium}, resized: true, pod: medium,
			refusal: "quota q: must specify limits.cpu for app"},
		{name: "a quota that demands a limit", quota: "status: {hard: {limits.cpu: 1}, used: {limits.cpu: 0}}", pod: "containers: [{name: app, resources: {requests: {cpu: 1}}}]", refusal: "quota q: must specify limits.cpu for app"},
		{name: "a pod's own resources will do", quota: "status: {hard: {limits.cpu: 1}, used: {limits.cpu: 0}}", pod: "{containers: [{name: app}], resources: {limits: {cpu: 1}}}"},
		{name: "a quota that is not counted yet", quota: "status: {hard: {cpu: 1}}", pod: small, refusal: "the status of quota q has no usage of cpu yet"},
		{name: "other objects", quota: "status: {hard: {configmaps: 1}, used: {configmaps: 1}}", pod: small},
		{name: "devices", quota: "status: {hard: {requests.example.com/gpu: 1}, used: {requests.example.com/gpu: 1}}",
			others: []string{"containers: [{name: app, resources: {requests: {example.com/gpu: 1}, limits: {example.com/gpu: 1}}}]"},
			pod:    "containers: [{name: app, resources: {requests: {example.com/gpu: 1}, limits: {example.com/gpu: 1}}}]", refusal: "quota q has no room for requests.example.com/gpu 1 (used: 1 of 1)"},
		{name: "another scope: BestEffort", quota: "{spec: {scopes: [BestEffort]}, status: {hard: {pods: 0}, used: {pods: 0}}}", pod: small},
		{name: "the scope NotBestEffort", quota: "{spec: {scopes: [NotBestEffort]}, status: {hard: {pods: 0}, used: {pods: 0}}}", pod: small, refusal: "quota q has no room for pods 1 (used: 0 of 0)"},
		{name: "the scope NotTerminating", quota: "{spec: {scopes: [NotTerminating]}, status: {hard: {pods: 0}, used: {pods: 0}}}", pod: small, refusal: "quota q has no room for pods 1 (used: 0 of 0)"},
		{name: "another scope: Terminating", quota: "{spec: {scopes: [Terminating]}, status: {hard: {pods: 0}, used: {pods: 0}}}", pod: small},
		{name: "another priority class", quota: "{spec: {scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}}, status: {hard: {pods: 0}, used: {pods: 0}}}",
			pod: "{priorityClassName: low, " + small + "}"},
		{name: "its priority class", quota: "{spec: {scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}}, status: {hard: {pods: 0}, used: {pods: 0}}}",
			pod: "{priorityClassName: high, " + small + "}", refusal: "quota q has no room for pods 1 (used: 0 of 0)"},
		{name: "no priority class", quota: "{spec: {scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: DoesNotExist}]}}, status: {hard: {pods: 0}, used: {pods: 0}}}",
			pod: small, refusal: "quota q has no room for pods 1 (used: 0 of 0)"},
		{name: "affinity within the namespace", quota: "{spec: {scopes: [CrossNamespacePodAffinity]}, status: {hard: {pods: 0}, used: {pods: 0}}}", pod: small},
		{name: "affinity across namespaces", quota: "{spec: {scopes: [CrossNamespacePodAffinity]}, status: {hard: {pods: 0}, used: {pods: 0}}}",
			pod:     "{affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, namespaces: [a]}}]}}, " + small + "}",
			refusal: "quota q has no room for pods 1 (used: 0 of 0)"},
		{name: "a scope that nobody knows", quota: "{spec: {scopes: [New]}, status: {hard: {pods: 0}, used: {pods: 0}}}", pod: small},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			quota := *build.Parsed[corev1.ResourceQuota](t, tt.quota)
			quota.Name = "q"
			stored := quota.DeepCopy()
			var others []*corev1.Pod
			for _, spec := range append(tt.others, tt.gone...) {
				pod := &corev1.Pod{Spec: *build.Parsed[corev1.PodSpec](t, spec)}
				pod.UID = types.UID(strconv.Itoa(len(others)))
				others = append(others, pod)
			}
			for _, pod := range others[len(tt.others):] {
				if tt.change != nil {
					tt.change(pod)
				}
			}
			quotas := newQuotas([]corev1.ResourceQuota{quota}, others, now)
			for _, gone := range others[len(tt.others):] {
				quotas.remove(gone)
				quotas.remove(gone) // it goes once
			}
			for _, there := range tt.there {
				quotas.add(&corev1.Pod{Spec: *build.Parsed[corev1.PodSpec](t, there)})
			}
			pod, old := &corev1.Pod{Spec: *build.Parsed[corev1.PodSpec](t, tt.pod)}, (*corev1.Pod)(nil)
			if tt.instead {
				old = others[0]
			}
			ask := func() string { return quotas.refusal(pod, old, nil) }
			if tt.resized {
				ask = func() string { return quotas.clone().refuseResize(others[0], &pod.Spec) }
			}
			must.Equal(t, ask(), tt.refusal, "the refusal")
			quotas.clone().add(pod)
			must.Equal(t, ask(), tt.refusal, "after what a clone has counted")
			for name, used := range quota.Status.Used {
				if before := stored.Status.Used[name]; used.Cmp(before) != 0 {
					t.Errorf("the quota itself has changed: %s of %s", &used, name)
				}
			}
		})
	}
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

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
		{"a ratio that is kept to", "containers: [{name: app, resources: {requests: {cpu: 90m}, limits: {cpu: 270m}}}]", "[{type: Container, maxLimitRequestRatio: {cpu: 3}}]", "", ""},
		{"a ratio that is not one of integers", "containers: [{name: app, resources: {requests: {cpu: 2}, limits: {cpu: 3001m}}}]", "[{type: Container, maxLimitRequestRatio: {cpu: 1500m}}]", "",
			"app: cpu per Container must have a limit of at most 1500m times the request, and they are 3001m and 2 (LimitRange a)"},
		{"a ratio of large quantities", "containers: [{name: app, resources: {requests: {memory: 8Pi}, limits: {memory: 16Pi}}}]", "[{type: Container, maxLimitRequestRatio: {memory: 2}}]", "", ""},
		{"a ratio of nothing", app, "[{type: Container, maxLimitRequestRatio: {cpu: 2}}]", "", "app: cpu per Container must have a request and a limit, at most 2 times as high (LimitRange a)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := *build.Parsed[corev1.PodSpec](t, tt.spec)
			before := spec.DeepCopy()
			var limits Limits
			for i, items := range strings.Split(tt.limits, "\n") {
				if items != "" {
					limits.Ranges = append(limits.Ranges, corev1.LimitRange{
						ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i))}, Spec: corev1.LimitRangeSpec{Limits: *build.Parsed[[]corev1.LimitRangeItem](t, items)},
					})
				}
			}
			admitted, refusal := limits.admit(&spec)
			must.Equal(t, refusal, tt.refusal, "the refusal")
			if want := *build.Parsed[corev1.ResourceRequirements](t, tt.admitted); tt.admitted != "" && !same(admitted.Containers[0].Resources, want) {
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
