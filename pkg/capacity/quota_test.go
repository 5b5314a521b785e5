package capacity

import (
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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
		change  func(*corev1.Pod) // of the pods that are gone
		refusal string
	}{
		{name: "room", quota: "status: {hard: {requests.cpu: 1}, used: {requests.cpu: 900m}}", others: []string{small, small}, pod: large},
		{name: "no room", quota: "status: {hard: {requests.cpu: 1}, used: {requests.cpu: 0}}", others: []string{small, small, small}, pod: large,
			refusal: "quota q has no room for requests.cpu 400m (used: 900m of 1)"},
		{name: "room for one in another's place", quota: "status: {hard: {requests.cpu: 1}, used: {requests.cpu: 900m}}", others: []string{small, small}, gone: []string{small}, pod: large},
		{name: "but not for a second one", quota: "status: {hard: {requests.cpu: 1}, used: {requests.cpu: 900m}}", others: []string{small}, gone: []string{small, small}, there: []string{large}, pod: large,
			refusal: "quota q has no room for requests.cpu 400m (used: 700m of 1)"},
		{name: "of a pod whose resize is infeasible, what it has counts", quota: "status: {hard: {cpu: 1}, used: {cpu: 1}}", others: []string{small, small}, gone: []string{large}, pod: large,
			change: func(pod *corev1.Pod) {
				had := read[corev1.PodSpec](t, small).Containers[0].Resources
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", AllocatedResources: had.Requests, Resources: &had}}
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
			}},
		{name: "of a pod whose resize was put off, the larger size counts", quota: "status: {hard: {cpu: 1}, used: {cpu: 1}}", others: []string{small, small}, gone: []string{small}, pod: large,
			change: func(pod *corev1.Pod) {
				had := read[corev1.PodSpec](t, large).Containers[0].Resources
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
			quota := read[corev1.ResourceQuota](t, tt.quota)
			quota.Name = "q"
			stored := quota.DeepCopy()
			var others []*corev1.Pod
			for _, spec := range append(tt.others, tt.gone...) {
				pod := &corev1.Pod{Spec: read[corev1.PodSpec](t, spec)}
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
				quotas.add(&corev1.Pod{Spec: read[corev1.PodSpec](t, there)})
			}
			pod := &corev1.Pod{Spec: read[corev1.PodSpec](t, tt.pod)}
			if got := quotas.refusal(pod); got != tt.refusal {
				t.Errorf("got %q, want %q", got, tt.refusal)
			}
			quotas.clone().add(pod)
			if got := quotas.refusal(pod); got != tt.refusal {
				t.Errorf("what a clone has counted counts: %q", got)
			}
			for name, used := range quota.Status.Used {
				if before := stored.Status.Used[name]; used.Cmp(before) != 0 {
					t.Errorf("the quota itself has changed: %s of %s", &used, name)
				}
			}
		})
	}
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
