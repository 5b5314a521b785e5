package estimate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestBounds: "the estimated value will be capped by min and max possible values if
// defined. It will prevent from situation when the pod is rejected due to too low or too
// high estimation."
func TestBounds(t *testing.T) {
	limits := func(spec string) *corev1.LimitRange {
		r := &corev1.LimitRange{}
		must.Do(t, yaml.UnmarshalStrict([]byte(spec), &r.Spec.Limits))
		return r
	}
	node := func(cpu, memory string, change ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
		for _, f := range change {
			f(n)
		}
		return n
	}
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: effect}} }
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }

	for name, tt := range map[string]struct {
		ranges   []*corev1.LimitRange
		nodes    []*corev1.Node
		resource corev1.ResourceName
		estimate string
		limits   corev1.ResourceList // of the container
		want     string
		capped   string
	}{
		"no bounds":          {nil, nil, cpu, "100m", nil, "100m", ""},
		"within":             {[]*corev1.LimitRange{limits("[{type: Container, min: {cpu: 100m}, max: {cpu: 100m}}]")}, nil, cpu, "100m", nil, "100m", ""},
		"below the min":      {[]*corev1.LimitRange{limits("[{type: Container, min: {cpu: 101m}}]")}, nil, cpu, "100m", nil, "101m", "LimitRange"},
		"above the max":      {[]*corev1.LimitRange{limits("[{type: Container, max: {cpu: 99m}}]")}, nil, cpu, "100m", nil, "99m", "LimitRange"},
		"of memory":          {[]*corev1.LimitRange{limits("[{type: Container, max: {cpu: 99m, memory: 64Mi}}]")}, nil, memory, "100Mi", nil, "64Mi", "LimitRange"},
		"an exponent":        {[]*corev1.LimitRange{limits("[{type: Container, max: {cpu: 9e-2, memory: 1e6}}]")}, nil, memory, "100Mi", nil, "1000000", "LimitRange"},
		"an exponent of cpu": {[]*corev1.LimitRange{limits("[{type: Container, min: {cpu: 1e1}}]")}, nil, cpu, "100m", nil, "10", "LimitRange"},
		"of another":         {[]*corev1.LimitRange{limits("[{type: Container, max: {cpu: 99m}}]")}, nil, memory, "100Mi", nil, "100Mi", ""},
		"of pods, claims":    {[]*corev1.LimitRange{limits("[{type: Pod, max: {cpu: 99m}}, {type: PersistentVolumeClaim, max: {cpu: 99m}}]")}, nil, cpu, "100m", nil, "100m", ""},
		"tightest max":       {[]*corev1.LimitRange{limits("[{type: Container, max: {cpu: 90m}}]"), limits("[{type: Container, max: {cpu: 80m}}]")}, nil, cpu, "100m", nil, "80m", "LimitRange"},
		"tightest min":       {[]*corev1.LimitRange{limits("[{type: Container, min: {cpu: 200m}}, {type: Container, min: {cpu: 150m}}]")}, nil, cpu, "100m", nil, "200m", "LimitRange"},
		"ratio":              {[]*corev1.LimitRange{limits("[{type: Container, default: {cpu: '1'}, maxLimitRequestRatio: {cpu: '4'}}]")}, nil, cpu, "100m", nil, "250m", "LimitRange"},
		"ratio kept":         {[]*corev1.LimitRange{limits("[{type: Container, default: {cpu: '1'}, maxLimitRequestRatio: {cpu: '4'}}]")}, nil, cpu, "300m", nil, "300m", ""},
		"ratio rounded up":   {[]*corev1.LimitRange{limits("[{type: Container, default: {cpu: '1'}, maxLimitRequestRatio: {cpu: '3'}}]")}, nil, cpu, "100m", nil, "334m", "LimitRange"},
		"ratio 1.5":          {[]*corev1.LimitRange{limits("[{type: Container, default: {memory: 300Mi}, maxLimitRequestRatio: {memory: '1.5'}}]")}, nil, memory, "100Mi", nil, "200Mi", "LimitRange"},
		"ratio, a default elsewhere": {[]*corev1.LimitRange{limits("[{type: Container, default: {cpu: '1'}}]"),
			limits("[{type: Container, default: {cpu: 500m}, maxLimitRequestRatio: {cpu: '4'}}]")}, nil, cpu, "100m", nil, "250m", "LimitRange"},
		"ratio of pods":         {[]*corev1.LimitRange{limits("[{type: Pod, maxLimitRequestRatio: {cpu: '4'}}, {type: Container, default: {cpu: '1'}}]")}, nil, cpu, "100m", nil, "250m", "LimitRange"},
		"ratio without default": {[]*corev1.LimitRange{limits("[{type: Container, maxLimitRequestRatio: {cpu: '4'}}]")}, nil, cpu, "100m", nil, "100m", ""},

		"default limit":             {[]*corev1.LimitRange{limits("[{type: Container, default: {memory: 64Mi}}]")}, nil, memory, "100Mi", nil, "64Mi", "LimitRange"},
		"own limit, not default":    {[]*corev1.LimitRange{limits("[{type: Container, default: {memory: 64Mi}}]")}, nil, memory, "100Mi", corev1.ResourceList{memory: resource.MustParse("1Gi")}, "100Mi", ""},
		"own limit":                 {nil, nil, memory, "100Mi", corev1.ResourceList{memory: resource.MustParse("80Mi")}, "80Mi", "limit"},
		"own limit of another":      {nil, nil, memory, "100Mi", corev1.ResourceList{cpu: resource.MustParse("1")}, "100Mi", ""},
		"the largest node":          {nil, []*corev1.Node{node("2", "4Gi"), node("4", "2Gi")}, cpu, "5", nil, "4", "node"},
		"memory of another node":    {nil, []*corev1.Node{node("2", "4Gi"), node("4", "2Gi")}, memory, "5Gi", nil, "4Gi", "node"},
		"a cordoned node":           {nil, []*corev1.Node{node("2", "4Gi"), node("4", "2Gi", cordoned)}, cpu, "5", nil, "2", "node"},
		"a node that takes none":    {nil, []*corev1.Node{node("2", "4Gi"), node("4", "2Gi", tainted("NoSchedule")), node("8", "2Gi", tainted("NoExecute"))}, cpu, "5", nil, "2", "node"},
		"a node that rather not":    {nil, []*corev1.Node{node("2", "4Gi"), node("4", "2Gi", tainted("PreferNoSchedule"))}, cpu, "5", nil, "4", "node"},
		"no node that takes any":    {nil, []*corev1.Node{node("4", "2Gi", tainted("NoSchedule"))}, cpu, "5", nil, "5", ""},
		"a node that is not ready":  {nil, []*corev1.Node{node("0", "0")}, cpu, "5", nil, "5", ""},
		"min above the largest":     {[]*corev1.LimitRange{limits("[{type: Container, min: {cpu: '3'}}]")}, []*corev1.Node{node("2", "4Gi")}, cpu, "5", nil, "3", "LimitRange"},
		"max above, node is larger": {[]*corev1.LimitRange{limits("[{type: Container, max: {cpu: '3'}}]")}, []*corev1.Node{node("2", "4Gi")}, cpu, "5", nil, "2", "node"},
	} {
		t.Run(name, func(t *testing.T) {
			bounds := estimate.NewBounds(tt.ranges, tt.nodes)
			e := bounds.ClampTo(estimate.Estimate{Resource: tt.resource, Request: resource.MustParse(tt.estimate)}, tt.limits)
			if e.Request.String() != tt.want || e.Capped != tt.capped {
				t.Errorf("%s, capped %q; want %s, %q", &e.Request, e.Capped, tt.want, tt.capped)
			}
		})
	}
}
