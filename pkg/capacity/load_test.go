package capacity

import (
	"math"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestForAny(t *testing.T) {
	with := func(name string, change ...func(*corev1.Node)) *corev1.Node {
		n := node(name, "4")
		for _, f := range change {
			f(n)
		}
		return n
	}
	cordon := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	taint := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: effect}} }
	}
	for name, tt := range map[string]struct {
		nodes []*corev1.Node
		want  []string
	}{
		"all":              {[]*corev1.Node{with("a"), with("b")}, []string{"a", "b"}},
		"one is cordoned":  {[]*corev1.Node{with("a", cordon), with("b")}, []string{"b"}},
		"one is tainted":   {[]*corev1.Node{with("a"), with("b", taint(corev1.TaintEffectNoExecute))}, []string{"a"}},
		"better not":       {[]*corev1.Node{with("a", taint(corev1.TaintEffectPreferNoSchedule))}, []string{"a"}},
		"each is tainted":  {[]*corev1.Node{with("a", taint(corev1.TaintEffectNoSchedule)), with("b", taint(corev1.TaintEffectNoSchedule), cordon)}, []string{"a"}},
		"each is cordoned": {[]*corev1.Node{with("a", cordon)}, nil},
		"none":             {nil, nil},
	} {
		var got []string
		for _, n := range ForAny(tt.nodes) {
			got = append(got, n.Name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestLeft(t *testing.T) {
	load := LoadOf(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}).
		Plus(LoadOf(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("24")}))
	n := node("a", "4")
	n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("1Ki")
	if got, want := load.Left(n), (Load{2500, 1000, math.MaxInt64}); got != want {
		t.Errorf("%v is left, want %v", got, want)
	}
	n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("2")
	if got, want := load.Left(n), (Load{2500, 1000, 0}); got != want {
		t.Errorf("%v is left, want %v", got, want)
	}
}
