//go:build around

package admission

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func with(bounds map[string]string) map[string]string { return table(known, bounds) }

// What LimitRanges say: a default for requests; limits of no more than twice the request; and at least 100m for a pod,
// which is the default for a container, too.
var (
	defaults = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: amounts("55m", "55Mi")}}
	doubled  = []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2")},
	}}
	atLeast = []corev1.LimitRangeItem{
		{Type: corev1.LimitTypePod, Min: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		{Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
	}
)

// capping is a LimitRange that allows no more than this.
var capping = corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: amounts("100m", "128Mi")}

// clamped is what the estimator publishes in a namespace with that LimitRange.
func clamped() map[string]string {
	bounds := estimate.NewBounds([]*corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{capping}}}}, nil)
	e := bounds.Clamp(estimate.Estimate{Resource: corev1.ResourceMemory, Request: resource.MustParse("300Mi"), From: estimate.FromTag})
	return map[string]string{"docker.io-_library-_web_-1.memory": e.Value()}
}

var namespaces = []*namespace{
	{name: "off", table: known},
	{name: "on", label: "enabled", table: known},
	{name: "told", label: "annotate", table: with(map[string]string{estimate.AnnotateEntry: "true"})},
	{name: "unknown", label: "enabled"}, // to the estimator
	{name: "filled-requests", label: "enabled", table: known, ranges: defaults},
	{name: "filled-limits", label: "enabled", table: known, ranges: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: amounts("100m", "128Mi"),
	}}},
	{name: "filled-both", label: "enabled", table: known, ranges: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: amounts("500m", "320Mi"), DefaultRequest: amounts("55m", "55Mi"),
	}}},
	{name: "filled-cpu", label: "enabled", table: known, ranges: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("55m")},
	}}},
	{name: "capped", label: "enabled", table: clamped(), ranges: []corev1.LimitRangeItem{capping}},
	{name: "ratio", label: "enabled", table: with(map[string]string{"ratio.memory": "2"}), ranges: doubled},
	{name: "quota", label: "enabled", table: with(map[string]string{"quota.cpu": "200m"})},
	{name: "room", label: "enabled", table: with(map[string]string{"room.memory": "500Mi", "room.cpu": "240m"})},
	{name: "pod-max", label: "enabled", table: with(map[string]string{"pod-max.cpu": "500m", "pod-max.memory": "300Mi"}), ranges: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypePod, Max: corev1.ResourceList{},
	}}},
	{name: "pod-min", label: "enabled", table: with(map[string]string{"pod-min.cpu": "100m"}), ranges: atLeast},
	{name: "overhead", label: "enabled", table: with(map[string]string{"quota.cpu": "200m", "pod-max.memory": "300Mi"})},
	{name: "roles", label: "enabled", table: table(roleEntries("web:1", "app", "11m", "11Mi"), roleEntries("web:1", "proxy", "22m", "22Mi"), map[string]string{estimate.RolesEntry: "container"})},
	{name: "nonsense", label: "enabled", table: map[string]string{
		"docker.io-_library-_web_-1.cpu":            "a lot",
		"docker.io-_library-_web_-1.memory":         `{"request":"300Mi","from":"image:tag"}`,
		"docker.io-_library-_negative_-1.cpu":       `-1 {"request":"-1","from":"image:tag"}`,
		"docker.io-_library-_negative_-1.memory":    `0 {"request":"0","from":"image:tag"}`,
		"docker.io-_library-_bare_-1.cpu":           "120m",
		"docker.io-_library-_bare_-1.memory":        "",
		"docker.io-_library-_long_-1.cpu":           `120m {"request":"120m","from":"` + strings.Repeat("x", 600) + `"}`,
		"docker.io-_library-_nested_-1.cpu":         `120m {"request":"120m","from":{"a":"b"}}`,
		"docker.io-_library-_unfinished_-1.memory":  `120Mi {"request":"120Mi",`,
		"docker.io-_library-_unfinished_-1.storage": `120Mi {"request":"120Mi","from":"image:tag"}`,
	}},
	{name: "nonsense-bounds", label: "enabled", table: with(map[string]string{"quota.cpu": "nothing"})},
}

// TestRules has a row for each rule. It creates the pod, and looks at what is stored.
func TestRules(t *testing.T) {
	for _, n := range namespaces {
		must.Do(t, n.create(t.Context()))
	}
	for _, tt := range []struct {
		sentence  string
		namespace string
		pod       string
		requests  string
		says      string // of the containers, in alphabetical order
	}{
		{"a pod is left alone where nobody has asked for it", "off", `spec: {containers: [{name: app, image: "web:1"}]}`,
			"app", ""},
		{"a pod in a namespace with the label gets what was estimated", "on", `spec: {containers: [{name: app, image: "web:1"}]}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"a pod with the label gets it, too", "off", `{metadata: {labels: {inplace-rollout.io/initial-resources: enabled}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"a pod with another value in its label is refused, but not one that a controller has made: it is left alone", "on", `{metadata: {labels: {inplace-rollout.io/initial-resources: "off"}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: "1", controller: true}]}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app", ""},
		{"and so is one with another value in its annotation", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: "sometimes"}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: "1", controller: true}]}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app", ""},
		{"a pod that says never gets nothing", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: never}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app", ""},
		{"a pod that says if-not-set gets what it lacks", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: if-not-set}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 50m}}}]}}`,
			"app cpu=50m memory=300Mi", "app memory=300Mi(image:tag)"},
		{"a pod that says always gets it in place of its own requests", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 50m, memory: 1Gi}}}]}}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag,was 50m) memory=300Mi(image:tag,was 1Gi)"},
		{"but no more than its limits", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 50m}, limits: {cpu: 100m, memory: 1Gi}}}]}}`,
			"app cpu=100m limit-cpu=100m limit-memory=1Gi memory=300Mi", "app cpu=100m(image:tag,was 50m,limit) memory=300Mi(image:tag,was 1Gi)"},
		{"nor less than a LimitRange wants beside a limit", "ratio", `{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 50m, memory: 600Mi}, limits: {cpu: 1, memory: 1Gi}}}]}}`,
			"app cpu=120m limit-cpu=1 limit-memory=1Gi memory=600Mi", "app cpu=120m(image:tag,was 50m)"},
		{"what an image does not tell stays, also if the pod says always", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "new:1", resources: {requests: {cpu: 50m}}}]}}`,
			"app cpu=50m", ""},
		{"a container's own requests stay", "on", `spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 50m, memory: 60Mi}}}]}`,
			"app cpu=50m memory=60Mi", ""},
		{"a limit says what is requested, too", "on", `spec: {containers: [{name: app, image: "web:1", resources: {limits: {memory: 60Mi}}}]}`,
			"app cpu=120m limit-memory=60Mi memory=60Mi", "app cpu=120m(image:tag)"},
		{"a request of nothing is one", "on", `spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: "0"}}}]}`,
			"app cpu=0 memory=300Mi", "app memory=300Mi(image:tag)"},
		{"other resources stay", "on", `spec: {containers: [{name: app, image: "web:1", resources: {requests: {ephemeral-storage: 1Gi}, limits: {example.com/gpu: "1"}}}]}`,
			"app cpu=120m ephemeral-storage=1Gi example.com/gpu=1 limit-example.com/gpu=1 memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"other annotations stay", "on", `{metadata: {annotations: {a: b}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"each container gets what is known of its image", "on", `spec: {containers: [{name: app, image: "web:1"}, {name: proxy, image: "small:1"}, {name: agent, image: "new:1"}]}`,
			"app cpu=120m memory=300Mi; proxy cpu=10m memory=16Mi; agent", "app cpu=120m(image:tag) memory=300Mi(image:tag); proxy cpu=10m(image:tag) memory=16Mi(image:tag)"},
		{"init containers and sidecars, too", "on", `spec: {initContainers: [{name: prepare, image: "web:1"}, {name: sidecar, image: "small:1", restartPolicy: Always}], containers: [{name: app, image: "small:1"}]}`,
			"prepare cpu=120m memory=300Mi; sidecar cpu=10m memory=16Mi; app cpu=10m memory=16Mi", "app cpu=10m(image:tag) memory=16Mi(image:tag); prepare cpu=120m(image:tag) memory=300Mi(image:tag); sidecar cpu=10m(image:tag) memory=16Mi(image:tag)"},
		{"of a new version there is what is known of the image", "on", `spec: {containers: [{name: app, image: "web:2"}]}`,
			"app cpu=200m memory=400Mi", "app cpu=200m(image) memory=400Mi(image)"},
		{"each resource falls back by itself", "on", `spec: {containers: [{name: app, image: "counted:1"}]}`,
			"app cpu=30m memory=50Mi", "app cpu=30m(image:tag) memory=50Mi(image)"},
		{"what is known of cpu only sets cpu only", "on", `spec: {containers: [{name: app, image: "onlycpu:1"}]}`,
			"app cpu=30m", "app cpu=30m(image:tag)"},
		{"of an image nobody knows there is nothing", "on", `spec: {containers: [{name: app, image: "new:1"}]}`,
			"app", ""},
		{"where roles are told apart, the container's name counts", "roles", `spec: {containers: [{name: app, image: "web:1"}, {name: proxy, image: "web:1"}, {name: other, image: "web:1"}]}`,
			"app cpu=11m memory=11Mi; proxy cpu=22m memory=22Mi; other", "app cpu=11m(image:tag) memory=11Mi(image:tag); proxy cpu=22m(image:tag) memory=22Mi(image:tag)"},
		{"a DaemonSet's pod is left alone", "on", `{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: "1", controller: true}]}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app", ""},
		{"unless it has the label itself", "on", `{metadata: {labels: {inplace-rollout.io/initial-resources: enabled}, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: "1", controller: true}]}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"or the annotation", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: if-not-set}, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: "1", controller: true}]}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"a mirror pod is left alone", "on", `{metadata: {annotations: {kubernetes.io/config.mirror: abc, inplace-rollout.io/initial-resources: always}}, spec: {nodeName: node, containers: [{name: app, image: "web:1"}]}}`,
			"app", ""},
		{"a pod that has resources as a whole is left alone", "on", `spec: {resources: {requests: {cpu: "1"}}, containers: [{name: app, image: "web:1"}]}`,
			"app", ""},
		{"requests that LimitRanger has filled in are not the user's", "filled-requests", `spec: {initContainers: [{name: prepare, image: "small:1"}], containers: [{name: app, image: "web:1"}, {name: own, image: "web:1", resources: {requests: {cpu: 5m}}}, {name: new, image: "new:1"}]}`,
			"prepare cpu=10m memory=16Mi; app cpu=120m memory=300Mi; own cpu=5m memory=300Mi; new cpu=55m memory=55Mi", "app cpu=120m(image:tag,was 55m) memory=300Mi(image:tag,was 55Mi); own memory=300Mi(image:tag,was 55Mi); prepare cpu=10m(image:tag,was 55m) memory=16Mi(image:tag,was 55Mi)"},
		{"also if it has filled in one of two resources", "filled-cpu", `spec: {containers: [{name: app, image: "web:1"}, {name: own, image: "web:1", resources: {requests: {memory: 5Mi}}}]}`,
			"app cpu=120m memory=300Mi; own cpu=120m memory=5Mi", "app cpu=120m(image:tag,was 55m) memory=300Mi(image:tag); own cpu=120m(image:tag,was 55m)"},
		{"limits that it has filled in hold", "filled-limits", `spec: {initContainers: [{name: prepare, image: "web:1"}], containers: [{name: app, image: "web:1"}, {name: small, image: "small:1"}]}`,
			"prepare cpu=100m limit-cpu=100m limit-memory=128Mi memory=128Mi; app cpu=100m limit-cpu=100m limit-memory=128Mi memory=128Mi; small cpu=10m limit-cpu=100m limit-memory=128Mi memory=16Mi", "app cpu=100m(image:tag,was 100m,limit) memory=128Mi(image:tag,was 128Mi,limit); prepare cpu=100m(image:tag,was 100m,limit) memory=128Mi(image:tag,was 128Mi,limit); small cpu=10m(image:tag,was 100m) memory=16Mi(image:tag,was 128Mi)"},
		{"both are heard", "filled-both", `spec: {containers: [{name: app, image: "web:1"}, {name: large, image: "web:2"}, {name: own, image: "web:1", resources: {limits: {cpu: 300m, memory: 290Mi}}}]}`,
			"app cpu=120m limit-cpu=500m limit-memory=320Mi memory=300Mi; large cpu=200m limit-cpu=500m limit-memory=320Mi memory=320Mi; own cpu=300m limit-cpu=300m limit-memory=290Mi memory=290Mi", "app cpu=120m(image:tag,was 55m) memory=300Mi(image:tag,was 55Mi); large cpu=200m(image,was 55m) memory=320Mi(image,was 55Mi,limit)"},
		{"what the estimator has capped says so", "capped", `spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 1m}, limits: {memory: 100Mi}}}, {name: other, image: "web:1", resources: {requests: {cpu: 1m}}}]}`,
			"app cpu=1m limit-cpu=100m limit-memory=100Mi memory=100Mi; other cpu=1m limit-cpu=100m limit-memory=128Mi memory=128Mi", "other memory=128Mi(image:tag,was 128Mi,LimitRange)"},
		{"also if a limit is lower", "capped", `{metadata: {annotations: {inplace-rollout.io/initial-resources: always}}, spec: {containers: [{name: app, image: "web:1", resources: {limits: {memory: 100Mi, cpu: 1m}}}]}}`,
			"app cpu=1m limit-cpu=1m limit-memory=100Mi memory=100Mi", "app memory=100Mi(image:tag,was 100Mi,limit)"},
		{"it is only said where the namespace says annotate", "told", `spec: {initContainers: [{name: prepare, image: "small:1"}], containers: [{name: app, image: "web:1"}]}`,
			"prepare; app", "app cpu=120m(image:tag,annotate) memory=300Mi(image:tag,annotate); prepare cpu=10m(image:tag,annotate) memory=16Mi(image:tag,annotate)"},
		{"also of containers with requests", "told", `spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1}}}]}`,
			"app cpu=1 limit-cpu=1 memory=1Gi", "app cpu=120m(image:tag,annotate) memory=300Mi(image:tag,annotate)"},
		{"and where the pod says so", "on", `{metadata: {labels: {inplace-rollout.io/initial-resources: annotate}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app", "app cpu=120m(image:tag,annotate) memory=300Mi(image:tag,annotate)"},
		{"and there of containers with requests, too", "on", `{metadata: {labels: {inplace-rollout.io/initial-resources: annotate}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 1, memory: 1Gi}}}]}}`,
			"app cpu=1 memory=1Gi", "app cpu=120m(image:tag,annotate) memory=300Mi(image:tag,annotate)"},
		{"what the pod says counts before what the namespace says", "told", `{metadata: {labels: {inplace-rollout.io/initial-resources: enabled}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"and never is never", "told", `{metadata: {annotations: {inplace-rollout.io/initial-resources: never}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app", ""},
		{"what the quota has left is kept to", "quota", `spec: {containers: [{name: app, image: "web:1"}, {name: other, image: "web:1"}]}`,
			"app memory=300Mi; other memory=300Mi", "app cpu=120m(image:tag,quota) memory=300Mi(image:tag); other cpu=120m(image:tag,quota) memory=300Mi(image:tag)"},
		{"to the last thousandth", "quota", `spec: {containers: [{name: app, image: "web:1"}, {name: other, image: "web:1", resources: {requests: {cpu: 80m}}}]}`,
			"app cpu=120m memory=300Mi; other cpu=80m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag); other memory=300Mi(image:tag)"},
		{"what the user requests counts", "quota", `spec: {containers: [{name: app, image: "web:1"}, {name: other, image: "web:1", resources: {requests: {cpu: 81m}}}]}`,
			"app memory=300Mi; other cpu=81m memory=300Mi", "app cpu=120m(image:tag,quota) memory=300Mi(image:tag); other memory=300Mi(image:tag)"},
		{"what the nodes have room for is kept to, by init containers, too, but not by all at once", "room", `spec: {initContainers: [{name: one, image: "web:1"}, {name: two, image: "web:1"}], containers: [{name: app, image: "web:1"}]}`,
			"one cpu=120m memory=300Mi; two cpu=120m memory=300Mi; app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag); one cpu=120m(image:tag) memory=300Mi(image:tag); two cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"a sidecar takes room all the time", "room", `spec: {initContainers: [{name: sidecar, image: "web:1", restartPolicy: Always}], containers: [{name: app, image: "web:1"}]}`,
			"sidecar cpu=120m; app cpu=120m", "app cpu=120m(image:tag) memory=300Mi(image:tag,room); sidecar cpu=120m(image:tag) memory=300Mi(image:tag,room)"},
		{"also beside an init container", "room", `spec: {initContainers: [{name: sidecar, image: "web:1", restartPolicy: Always}, {name: prepare, image: "web:2"}], containers: [{name: app, image: "small:1"}]}`,
			"sidecar; prepare; app", "app cpu=10m(image:tag,room) memory=16Mi(image:tag,room); prepare cpu=200m(image,room) memory=400Mi(image,room); sidecar cpu=120m(image:tag,room) memory=300Mi(image:tag,room)"},
		{"and so is what a LimitRange allows to a pod", "pod-max", `spec: {containers: [{name: app, image: "web:1"}, {name: other, image: "small:1"}]}`,
			"app cpu=120m; other cpu=10m", "app cpu=120m(image:tag) memory=300Mi(image:tag,pod-max); other cpu=10m(image:tag) memory=16Mi(image:tag,pod-max)"},
		{"less than it wants of a pod is not set", "pod-min", `spec: {containers: [{name: app, image: "small:1"}]}`,
			"app cpu=100m memory=16Mi", "app cpu=10m(image:tag,pod-min) memory=16Mi(image:tag)"},
		{"just as much is", "pod-min", `spec: {containers: [{name: app, image: "small:1"}, {name: own, image: "new:1", resources: {requests: {cpu: 90m}}}]}`,
			"app cpu=10m memory=16Mi; own cpu=90m", "app cpu=10m(image:tag,was 100m) memory=16Mi(image:tag)"},
		{"what its RuntimeClass takes counts, but not for LimitRanges", "overhead", `spec: {runtimeClassName: sandbox, containers: [{name: app, image: "web:1"}]}`,
			"app memory=300Mi", "app cpu=120m(image:tag,quota) memory=300Mi(image:tag)"},
		{"where there is no room to say why, nothing is set", "on", `{metadata: {annotations: {long: ` + strings.Repeat("x", 262000) + `}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app", ""},
		{"without a table a pod is as it was written", "unknown", `spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 5m}}}]}`,
			"app cpu=5m", ""},
		{"nonsense in the table is no estimate", "nonsense", `spec: {containers: [{name: a, image: "web:1"}, {name: b, image: "negative:1"}, {name: c, image: "bare:1"}, {name: d, image: "long:1"}, {name: e, image: "nested:1"}, {name: f, image: "unfinished:1"}]}`,
			"a; b; c; d; e; f", ""},
		{"with nonsense for a bound a pod is as it was written", "nonsense-bounds", `spec: {containers: [{name: app, image: "web:1"}]}`,
			"app", ""},
		{"an annotation that somebody has made up is overwritten", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources-estimate: "hello"}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"also if it is empty", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources-estimate: ""}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"or removed, if there is nothing to say", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources-estimate: "hello"}}, spec: {containers: [{name: app, image: "new:1"}]}}`,
			"app", ""},
		{"also if the pod says never", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: never, inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"request":"1m"}}}'}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app", ""},
		{"if it tells of requests that are not there, it is not believed", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"request":"1m"},"memory":{"request":"1Mi"}}}'}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {memory: 2Mi}}}]}}`,
			"app cpu=120m memory=2Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag,changed)"},
		{"nor if it says that something was skipped", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"skipped":"quota","request":"120m"},"memory":{"skipped":"quota","request":"300Mi"}}}'}}, spec: {containers: [{name: app, image: "web:1"}]}}`,
			"app cpu=120m memory=300Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag)"},
		{"a copy of a pod keeps its estimates with what is said of them", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"request":"77m","from":"image"},"memory":{"request":"77Mi","from":"image"}}}'}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 77m, memory: 77Mi}}}]}}`,
			"app cpu=77m memory=77Mi", "app cpu=77m(image) memory=77Mi(image)"},
		{"and if it has another container, all that was estimated is estimated anew", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"request":"77m","from":"image"},"memory":{"request":"77Mi","from":"image"}}}'}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 77m, memory: 78Mi}}}, {name: other, image: "small:1"}]}}`,
			"app cpu=120m memory=78Mi; other cpu=10m memory=16Mi", "app cpu=120m(image:tag) memory=300Mi(image:tag,changed); other cpu=10m(image:tag) memory=16Mi(image:tag)"},
		{"if one that fitted before does not fit any more, it has what was requested without it", "quota", `{metadata: {annotations: {inplace-rollout.io/initial-resources: always, inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"request":"77m","was":"5m","from":"image"},"memory":{"request":"77Mi","was":"77Ki","from":"image"}}}'}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 77m, memory: 77Mi}}}, {name: own, image: "new:1", resources: {requests: {cpu: 100m}}}]}}`,
			"app cpu=5m memory=300Mi; own cpu=100m", "app cpu=120m(image:tag,quota) memory=300Mi(image:tag,was 77Ki)"},
		{"where it is only said, a copy keeps what it has", "told", `{metadata: {annotations: {inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"request":"77m","was":"5m","from":"image"}}}'}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 77m, memory: 78Mi}}}]}}`,
			"app cpu=77m memory=78Mi", "app cpu=120m(image:tag,annotate) memory=300Mi(image:tag,annotate)"},
		{"and where the pod says never", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: never, inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"request":"77m","was":"5m","from":"image"}}}'}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 77m}}}]}}`,
			"app cpu=77m", ""},
		{"what somebody has changed of a copy is theirs", "on", `{metadata: {annotations: {inplace-rollout.io/initial-resources: always, inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"request":"77m","was":"55m","from":"image"}}}'}}, spec: {containers: [{name: app, image: "web:1", resources: {requests: {cpu: 700m, memory: 70Mi}}}]}}`,
			"app cpu=700m memory=300Mi", "app cpu=120m(image:tag,changed) memory=300Mi(image:tag,was 70Mi)"},
		{"but nothing that is no request", "quota", `{metadata: {annotations: {inplace-rollout.io/initial-resources-estimate: '{"app":{"cpu":{"request":"77m","was":"-5m"}},"other":{"cpu":{"request":"78m","was":"much"}},"third":{"cpu":{"request":"79m","was":""}}}'}}, spec: {containers: [{name: app, image: "onlycpu:1", resources: {requests: {cpu: 77m}}}, {name: other, image: "onlycpu:1", resources: {requests: {cpu: 78m}}}, {name: third, image: "onlycpu:1", resources: {requests: {cpu: 79m}}}, {name: own, image: "new:1", resources: {requests: {cpu: 150m}}}]}}`,
			"app; other; third; own cpu=150m", "app cpu=30m(image:tag,quota); other cpu=30m(image:tag,quota); third cpu=30m(image:tag,quota)"},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			t.Parallel()
			pod := must.Get(newPod(tt.pod))(t)
			annotations := maps.Clone(pod.Annotations)
			dry := must.Get(client.CoreV1().Pods(tt.namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(t)
			pod = must.Get(client.CoreV1().Pods(tt.namespace).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
			for _, pod := range []*corev1.Pod{dry, pod} {
				check(t, pod, tt.requests, tt.says)
				for _, name := range []string{api.EstimateAnnotation, "kubernetes.io/limit-ranger"} {
					delete(pod.Annotations, name)
					delete(annotations, name)
				}
				must.Equal(t, fmt.Sprint(pod.Annotations), fmt.Sprint(annotations), "its other annotations")
			}
		})
	}
}

// TestManyContainers has a pod with as many containers as anybody has seen.
func TestManyContainers(t *testing.T) {
	t.Parallel()
	var containers, want, said []string
	for i := range 50 {
		containers = append(containers, fmt.Sprintf(`{name: container-%02d, image: "registry.example.com:5000/some-team/some-folder/some-service:v1.2.3@sha256:%s"}`, i, strings.Repeat("ab", 32)))
		want = append(want, fmt.Sprintf("container-%02d cpu=120m memory=300Mi", i))
		said = append(said, fmt.Sprintf("container-%02d cpu=120m(image:tag) memory=300Mi(image:tag)", i))
	}
	n := namespace{name: "many", label: "enabled", table: entries("registry.example.com:5000/some-team/some-folder/some-service:v1.2.3", "120m", "300Mi")}
	n.table["quota.cpu"], n.table["quota.memory"] = "100", "100Gi"
	must.Do(t, n.create(t.Context()))
	pod := must.Get(newPod("spec: {containers: [" + strings.Join(containers, ", ") + "]}"))(t)
	pod = must.Get(client.CoreV1().Pods(n.name).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	check(t, pod, strings.Join(want, "; "), strings.Join(said, "; "))
}
