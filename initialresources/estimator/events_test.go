package estimator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func parsedQuantity(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }

func TestNews(t *testing.T) {
	const why = `"from":"image:tag","window":"7d","percentile":90,"samples":80,"scope":"namespace"`
	for _, tt := range []struct{ name, containers, annotation, reason, message string }{
		{"set", "[{name: app, resources: {requests: {cpu: 100m}}}]", `{"app":{"cpu":{"request":"100m",` + why + `}}}`,
			"InitialResourcesSet", "app: cpu 100m (percentile 90 of 80 samples of the image:tag in 7d, in the namespace), app: no memory usage of "},
		{"capped, and raised", "[{name: app, resources: {requests: {memory: 1Gi}, limits: {cpu: 1}}}]", `{"app":{"memory":{"request":"1Gi","capped":"LimitRange","oomKills":3,` + why + `}}}`,
			"InitialResourcesSet", "in the namespace, raised for 3 OOM kills, kept within the bounds of the LimitRange)"},
		{"one of each", "[{name: app, resources: {requests: {memory: 1Gi}, limits: {cpu: 1}}}]", `{"app":{"memory":{"request":"1Gi","oomKills":1,"from":"image:tag","window":"7d","percentile":90,"samples":1,"scope":"namespace"}}}`,
			"InitialResourcesSet", "app: memory 1Gi (percentile 90 of 1 sample of the image:tag in 7d, in the namespace, raised for 1 OOM kill)"},
		{"in place of another", "[{name: app, resources: {requests: {cpu: 100m}}}]", `{"app":{"cpu":{"request":"100m","was":"55m",` + why + `}}}`,
			"InitialResourcesSet", "in the namespace) instead of 55m, app: no memory"},
		{"a default", "[{name: app, resources: {requests: {cpu: 70m}}}]", `{"app":{"cpu":{"request":"70m","from":"default"}}}`,
			"InitialResourcesSet", "app: cpu 70m (the default for the image), "},
		{"told only", "[{name: app, resources: {requests: {cpu: 1}}}]", `{"app":{"cpu":{"skipped":"annotate","request":"100m",` + why + `}}}`,
			"InitialResourcesEstimated", "in the namespace) would be set"},
		{"no quota", "[{name: app}]", `{"app":{"cpu":{"skipped":"quota","request":"100m",` + why + `}}}`,
			"InitialResourcesSkipped", ") not set: a ResourceQuota has no room for what the pod would request"},
		{"a reason that is new", "[{name: app}]", `{"app":{"cpu":{"skipped":"moon","request":"100m",` + why + `}}}`, "InitialResourcesSkipped", ") not set: moon"},
		{"one is set, and one is not", "[{name: app, resources: {requests: {cpu: 100m}}}]", `{"app":{"cpu":{"request":"100m"},"memory":{"skipped":"room","request":"1Gi"}}}`, "InitialResourcesSet", "app: cpu 100m"},
		{"nothing is known", "[{name: app, image: nginx}]", "", "InitialResourcesUnknown", "app: no cpu usage of nginx is known, app: no memory usage of nginx is known"},
		{"the user says all", "[{name: app, resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}}]", "", "", ""},
	} {
		p := build.Parsed[corev1.Pod](t, "{spec: {containers: "+tt.containers+"}}")
		if tt.annotation != "" {
			p.Annotations = map[string]string{api.EstimateAnnotation: tt.annotation}
		}
		kept := stripPod(p)
		reason, message := news(kept, readAnnotation(p))
		if reason != tt.reason || !strings.Contains(message, tt.message) {
			t.Errorf("%s: %s: %s", tt.name, reason, message)
		}
	}
}

// TestLacks: who would get no estimate in any case lacks none.
func TestLacks(t *testing.T) {
	const spec = "spec: {containers: [{name: app}]}"
	for meta, want := range map[string]int{
		"{}": 2,
		"{labels: {inplace-rollout.io/initial-resources: enabled}}":                                                                 2,
		"{labels: {inplace-rollout.io/initial-resources: off}}":                                                                     0,
		"{annotations: {inplace-rollout.io/initial-resources: never}}":                                                              0,
		"{annotations: {inplace-rollout.io/initial-resources: always}}":                                                             2,
		"{annotations: {kubernetes.io/config.mirror: a}}":                                                                           0,
		"{ownerReferences: [{kind: ReplicaSet, controller: true}]}":                                                                 2,
		"{ownerReferences: [{kind: DaemonSet, controller: true}]}":                                                                  0,
		"{ownerReferences: [{kind: DaemonSet, controller: true}], annotations: {inplace-rollout.io/initial-resources: if-not-set}}": 2,
	} {
		pod := build.Parsed[corev1.Pod](t, "{metadata: "+strings.ReplaceAll(meta, ": off}", `: "off"}`)+", "+spec+"}")
		must.Equal(t, len(lacksOf(pod)), want, "lacks of %s", meta)
	}
	if got := lacksOf(build.Parsed[corev1.Pod](t, "{spec: {resources: {requests: {cpu: 1}}, containers: [{name: app}]}}")); len(got) > 0 {
		t.Errorf("with resources of the pod as a whole: %v", got)
	}
}
