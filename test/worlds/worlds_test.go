//go:build around

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestWorlds plays a few random worlds; `make soak` plays many. It alone has faults and edits that nobody
// has thought of beside each other.
func TestWorlds(t *testing.T) {
	if err := soak(t.Context(), options{seed: 11, worlds: 20, atOnce: 10, out: os.Stdout}); err != nil {
		t.Fatal(err)
	}
}

// TestTrouble: the rounds of a soak have each kind of trouble, and it is shown.
func TestTrouble(t *testing.T) {
	o, said := options{atOnce: 10, restarts: true}, ""
	for seed := uint64(1); seed < 300; seed += 10 {
		said += o.trouble(seed).String() + "\n"
	}
	for _, what := range []string{"10 % of", "30 % of", "2 controllers", "etcd", "the heartbeat comes and goes", "all controllers are killed", "others start later", "all policies are deleted"} {
		if n := strings.Count(said, what); n < 3 || n > 30 {
			t.Errorf("%q is said %d times, in\n%s", what, n, said)
		}
	}
	o.calm = true
	if got := o.trouble(1).String(); got != "nothing" {
		t.Errorf("without faults, there is: %s", got)
	}
}

// TestLimited: a limit that no template says is in the way of a request above it, and of no other.
func TestLimited(t *testing.T) {
	size := func(request, limit string) corev1.PodSpec {
		r := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(request)}}
		if limit != "" {
			r.Limits = corev1.ResourceList{"cpu": resource.MustParse(limit)}
		}
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: r}}}
	}
	for _, tt := range []struct {
		pod, template corev1.PodSpec
		want          bool
	}{
		{size("50m", "120m"), size("150m", ""), true},
		{size("50m", "120m"), size("110m", ""), false},
		{size("50m", "120m"), size("150m", "200m"), false},
		{size("50m", ""), size("150m", ""), false},
	} {
		if got := limited(corev1.Pod{Spec: tt.pod}, tt.template); got != tt.want {
			t.Errorf("limited is %t for %v and the template %v", got, tt.pod.Containers[0].Resources, tt.template.Containers[0].Resources)
		}
	}
}

// TestExcused: a pod may lack what its node's class says only if something is in the way.
func TestExcused(t *testing.T) {
	says := func(limits ...string) corev1.ResourceRequirements {
		r := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}, Limits: corev1.ResourceList{}}
		for i, name := range []corev1.ResourceName{"memory", "cpu"}[:len(limits)] {
			r.Limits[name] = resource.MustParse(limits[i])
		}
		return r
	}
	spec := func(r corev1.ResourceRequirements) corev1.PodSpec {
		return corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "app", Resources: r}}}
	}
	for _, tt := range []struct {
		name                 string
		template, has, class corev1.ResourceRequirements
		want                 bool
	}{
		{"a LimitRange has given the pod the limit that only the class says", says("1Gi"), says("1Gi", "400m"), says("1Gi", "300m"), true},
		{"the template says that limit, too", says("1Gi", "400m"), says("1Gi", "400m"), says("1Gi", "300m"), false},
		{"the pod lacks it", says("1Gi", "400m"), says("1Gi"), says("1Gi", "300m"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			classes, err := json.Marshal([]class{{NodeSelector: map[string]string{classLabel: "small"}, Containers: map[string]corev1.ResourceRequirements{"app": tt.class}}})
			if err != nil {
				t.Fatal(err)
			}
			v := view{
				Object: &metav1.ObjectMeta{Annotations: map[string]string{api.NodeResourcesAnnotation: string(classes)}}, classed: true,
				template: corev1.PodTemplateSpec{Spec: spec(tt.template)}, nodes: map[string]map[string]string{"node": {classLabel: "small"}},
				complete: corev1.ConditionFalse, reason: "Infeasible", message: "web-1: …",
			}
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Spec: spec(tt.has)}
			if got := v.excused(pod); got != tt.want {
				t.Errorf("excused: %v, want %v", got, tt.want)
			}
		})
	}
}

// TestWorldOfASeed: a seed always makes the same world.
func TestWorldOfASeed(t *testing.T) {
	for seed := range uint64(100) {
		if newWorld(seed).String() != newWorld(seed).String() {
			t.Errorf("world %d is not the same again", seed)
		}
	}
}
