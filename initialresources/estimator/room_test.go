package estimator

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestLargest(t *testing.T) {
	node := func(name, cpu, memory, pods string) *corev1.Node {
		return build.Parsed[corev1.Node](t, "{metadata: {name: "+name+"}, status: {allocatable: {cpu: '"+cpu+"', memory: "+memory+", pods: '"+pods+"'}}}")
	}
	on := func(name string, cpu, memory int64) *pod {
		return &pod{node: name, load: capacity.Load{MilliCPU: cpu, Memory: memory, Pods: 1}}
	}
	nodes := []*corev1.Node{node("a", "4", "1000", "10"), node("b", "2", "5000", "10"), node("full", "64", "64000", "1")}
	taken := loads([]*pod{on("a", 1500, 100), on("a", 500, 100), on("b", 1000, 1000), on("full", 0, 0), on("", 9000, 9000)})
	must.Equal(t, largest(nodes, taken), (capacity.Load{MilliCPU: 2000, Memory: 4000}), "the most")
	// More is taken than there is, as after a resize of a node.
	must.Equal(t, largest(nodes[:1], loads([]*pod{on("a", 5000, 5000)})), (capacity.Load{}), "the most on an overfull node")
}

func TestSteady(t *testing.T) {
	for _, tt := range []struct{ before, now, want int64 }{
		{-1, 7999, 7999}, // nothing was published
		{7999, 7999, 7999},
		{8000, 7990, 7900}, // less than was promised
		{7900, 7950, 7900}, // still true
		{7900, 7900, 7900},
		{7000, 8000, 7000}, // not much more
		{7000, 8001, 8001}, // much more
		{500, 99, 99},
		{500, 100, 100},
		{500, 0, 0},
		{0, 0, 0},
		{0, 1, 1},
	} {
		must.Equal(t, steady(tt.before, tt.now, 1), tt.want, "what is published after %d, of %d", tt.before, tt.now)
	}
	const mebibyte = 1 << 20
	must.Equal(t, steady(16384*mebibyte, 16383*mebibyte+5, mebibyte), 16000*mebibyte, "how much memory is published")
	data := roomEntries(map[string]string{"room.cpu": "4", "room.memory": "1Gi"}, capacity.Load{MilliCPU: 3950, Memory: 2 << 30})
	if want := map[string]string{"room.cpu": "3900m", "room.memory": "2Gi"}; !maps.Equal(data, want) {
		t.Errorf("%v, want %v", data, want)
	}
}

func TestQuotaLeft(t *testing.T) {
	quota := func(spec, hard, used string) *corev1.ResourceQuota {
		return build.Parsed[corev1.ResourceQuota](t, "{spec: "+spec+", status: {hard: "+hard+", used: "+used+"}}")
	}
	for name, tt := range map[string]struct {
		quotas []*corev1.ResourceQuota
		want   map[string]string
	}{
		"none":                     {nil, map[string]string{}},
		"by either name":           {[]*corev1.ResourceQuota{quota("{}", "{requests.cpu: 2, memory: 1Gi}", "{requests.cpu: 500m, memory: 1Mi}")}, map[string]string{"quota.cpu": "1500m", "quota.memory": "1023Mi"}},
		"the tightest":             {[]*corev1.ResourceQuota{quota("{}", "{cpu: 2}", "{cpu: 0}"), quota("{}", "{requests.cpu: 3}", "{requests.cpu: 2500m}")}, map[string]string{"quota.cpu": "500m"}},
		"more is used":             {[]*corev1.ResourceQuota{quota("{}", "{cpu: 2}", "{cpu: 3}")}, map[string]string{"quota.cpu": "0"}},
		"nothing is known yet":     {[]*corev1.ResourceQuota{quota("{}", "{cpu: 2}", "{}")}, map[string]string{}},
		"of limits":                {[]*corev1.ResourceQuota{quota("{}", "{limits.cpu: 2, pods: 1}", "{limits.cpu: 0, pods: 0}")}, map[string]string{}},
		"for BestEffort pods":      {[]*corev1.ResourceQuota{quota("{scopes: [BestEffort]}", "{cpu: 2}", "{cpu: 0}")}, map[string]string{}},
		"for them, by a selector":  {[]*corev1.ResourceQuota{quota("{scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: Exists}]}}", "{cpu: 2}", "{cpu: 0}")}, map[string]string{}},
		"for all other pods":       {[]*corev1.ResourceQuota{quota("{}", "{cpu: 2}", "{cpu: 0}"), quota("{scopes: [NotBestEffort]}", "{limits.cpu: 2}", "{limits.cpu: 0}")}, map[string]string{"quota.cpu": "0", "quota.memory": "0"}},
		"for some PriorityClasses": {[]*corev1.ResourceQuota{quota("{scopes: [PriorityClass]}", "{cpu: 2}", "{cpu: 0}")}, map[string]string{"quota.cpu": "2"}},
	} {
		if got := entries(quotaEntry, quotaLeft(tt.quotas)); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestPodMax(t *testing.T) {
	ranges := []*corev1.LimitRange{
		build.Parsed[corev1.LimitRange](t, "{spec: {limits: [{type: Pod, max: {cpu: 4}}, {type: Container, max: {cpu: 1, memory: 1Gi}}]}}"),
		build.Parsed[corev1.LimitRange](t, "{spec: {limits: [{type: Pod, min: {cpu: 10m}, max: {cpu: 3, memory: 8Gi}}, {type: Pod, min: {cpu: 20m}}, {type: Container, min: {cpu: 1}}]}}"),
	}
	if got, want := entries(podMinEntry, podMin(ranges)), map[string]string{"pod-min.cpu": "20m"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := entries(podMaxEntry, podMax(ranges)), map[string]string{"pod-max.cpu": "3", "pod-max.memory": "8Gi"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestRatios(t *testing.T) {
	ranges := []*corev1.LimitRange{
		build.Parsed[corev1.LimitRange](t, "{spec: {limits: [{type: Pod, maxLimitRequestRatio: {cpu: 4}}, {type: PersistentVolumeClaim, maxLimitRequestRatio: {cpu: 1}}, "+
			"{type: Container, max: {cpu: 1}, maxLimitRequestRatio: {memory: 3}}]}}"),
		build.Parsed[corev1.LimitRange](t, "{spec: {limits: [{type: Container, maxLimitRequestRatio: {memory: 2}}]}}"),
	}
	if got, want := entries(ratioEntry, ratios(ranges)), map[string]string{"ratio.cpu": "4", "ratio.memory": "2"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestStripPod keeps of most pods what they take of their nodes.
func TestStripPod(t *testing.T) {
	p := build.Parsed[corev1.Pod](t, `
metadata: {namespace: shop, name: web, uid: u, labels: {app: web}, annotations: {kept: no}}
spec:
  nodeName: a
  containers: [{name: app, image: nginx, resources: {requests: {cpu: 200m}, limits: {memory: 1Gi}}}, {name: side, image: envoy, resources: {requests: {cpu: 100m, memory: 10}}}]
`)
	kept := stripPod(p)
	if kept.whole != nil || kept.node != "a" || kept.load != (capacity.Load{MilliCPU: 300, Memory: 10, Pods: 1}) || len(kept.lacks) != 0 || kept.Labels != nil || kept.Annotations != nil {
		t.Errorf("kept is %+v", kept)
	}
	p.Status.Phase = corev1.PodSucceeded
	if kept := stripPod(p); kept.node != "" || kept.load != (capacity.Load{}) {
		t.Errorf("of one that is over, kept is %+v", kept)
	}
	metav1.SetMetaDataLabel(&p.ObjectMeta, "inplace-rollout.io/initial-resources", "enabled")
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, "inplace-rollout.io/initial-resources-estimate", "{}")
	whole := stripPod(p).whole
	if whole == nil || whole.Spec.Containers[1].Image != "envoy" || whole.Annotations["inplace-rollout.io/initial-resources-estimate"] != "{}" || whole.Annotations["kept"] != "" {
		t.Errorf("of one that opts in, kept is %+v", whole)
	}
	if want := resource.MustParse("200m"); !whole.Spec.Containers[0].Resources.Requests.Cpu().Equal(want) {
		t.Errorf("its containers are %+v", whole.Spec.Containers)
	}
}
