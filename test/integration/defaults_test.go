//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestDefaults compares what package resize takes for the pods of a template with
// what the API server makes of them, for many combinations of what the pod and its
// containers say. Nothing is stored.
func TestDefaults(t *testing.T) {
	parallel(t)
	namespace := newNamespace(t, nil)
	sizes := func(list ...string) []string { return append([]string{"{}"}, list...) }
	pods := sizes(
		"{requests: {cpu: 1}}", "{limits: {cpu: 4}}", "{requests: {memory: 1Gi}}", "{limits: {memory: 4Gi}}",
		"{requests: {cpu: 1, memory: 1Gi}}", "{requests: {cpu: 1}, limits: {memory: 4Gi}}", "{requests: {cpu: 4}, limits: {cpu: 4}}",
		"{limits: {hugepages-2Mi: 4Mi, memory: 4Gi}}", "{requests: {cpu: 1200.5m}}",
	)
	containers := sizes(
		"{requests: {cpu: 100m}}", "{limits: {cpu: 200m}}", "{requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 300m}}",
		"{limits: {cpu: 200m, memory: 128Mi}}", "{requests: {cpu: 100.5m, memory: 1000m}}", "{limits: {memory: 100Mi, hugepages-2Mi: 2Mi}}",
	)
	others := []string{
		"", "containers: {name: b, resources: {requests: {cpu: 50m}}}", "containers: {name: b, resources: {limits: {cpu: 150m, memory: 64Mi}}}",
		"initContainers: {name: b, resources: {limits: {cpu: 500m}}}", "initContainers: {name: b, resources: {requests: {memory: 256Mi}}}",
		"initContainers: {name: b, restartPolicy: Always, resources: {limits: {cpu: 50m, memory: 32Mi}}}",
	}
	accepted := 0
	for i, pod := range pods {
		for j, container := range containers {
			for k, other := range others {
				if k == 0 || (i+j)%len(others) == k { // each of them beside each pod, and beside each container
					accepted += compareDefaults(t, namespace, pod, container, other)
				}
			}
		}
	}
	if accepted < 70 { // the others are refused, such as a limit that is more than the pod's
		t.Errorf("only %d pods were compared", accepted)
	}
}

// compareDefaults returns 1 if the API server takes the pod.
func compareDefaults(t *testing.T, namespace, ofPod, ofContainer, other string) int {
	t.Helper()
	template := &corev1.PodTemplateSpec{}
	text := fmt.Sprintf("{resources: %s, containers: [{name: a, image: a, resources: %s}]}", ofPod, ofContainer)
	if list, fields, more := strings.Cut(other, ": "); more {
		text = strings.TrimSuffix(text, "}")
		if list == "containers" {
			text = strings.TrimSuffix(text, "]") + ", " + fields + "]}"
		} else {
			text += ", initContainers: [" + fields + "]}"
		}
	}
	must.Do(t, yaml.UnmarshalStrict([]byte(text), &template.Spec))
	for _, list := range [][]corev1.Container{template.Spec.Containers, template.Spec.InitContainers} {
		for i := range list {
			list[i].Image = "app:1"
		}
	}
	created, err := client.CoreV1().Pods(namespace).Create(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: template.Spec}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return 0
	}
	resize.RoundUp(&template.Spec)
	want, got := &created.Spec, resize.Defaulted(template)
	if !equality.Semantic.DeepEqual(sizesOf(want), sizesOf(got)) {
		t.Errorf("%s:\nthe API server makes %s\nwe take it for     %s", text, spell(t, sizesOf(want)), spell(t, sizesOf(got)))
	}
	return 1
}

// sizesOf are the resources of a pod and of its containers, by name.
func sizesOf(spec *corev1.PodSpec) map[string]corev1.ResourceRequirements {
	sizes := map[string]corev1.ResourceRequirements{}
	if spec.Resources != nil {
		sizes["the pod"] = *spec.Resources
	}
	for _, c := range append(append([]corev1.Container{}, spec.InitContainers...), spec.Containers...) {
		sizes[c.Name] = c.Resources
	}
	return sizes
}

func spell(t *testing.T, sizes any) string {
	t.Helper()
	text := must.Get(yaml.Marshal(sizes))(t)
	return string(text)
}

// TestWhatFollowsForThePod edits containers of pods that say something of the pod as a
// whole: what the API server makes of the rest goes with them.
func TestWhatFollowsForThePod(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Pod: "resources: {requests: {cpu: 100m}}"})
	before := w.uids()
	if limit := w.pods()["web-0"].Spec.Resources.Limits.Cpu().String(); limit != "200m" {
		t.Fatalf("the API server gives the pod the cpu limit %s, want that of its container", limit)
	}
	w.setResources("cpu=100m,memory=50Mi", "cpu=400m,memory=200Mi")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	for name, pod := range w.pods() {
		if limit, request := pod.Spec.Resources.Limits.Cpu().String(), pod.Spec.Resources.Requests.Memory().String(); limit != "400m" || request != "50Mi" {
			t.Errorf("%s has the cpu limit %s and the memory request %s, want 400m and 50Mi", name, limit, request)
		}
	}
	w.assertNoRefusals()
}

// TestHashIgnoresWhatTheServerDefaults sends each golden template through the
// real API server: what comes back, with everything defaulted, has the same hash.
func TestHashIgnoresWhatTheServerDefaults(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(controller.Root(), "pkg", "hash", "testdata", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("templates: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := must.Get(os.ReadFile(file))(t)
			var template map[string]any
			must.Do(t, yaml.Unmarshal(text, &template))
			delete(template, "$patch") // of a ControllerRevision
			must.Do(t, unstructured.SetNestedField(template, "true", "metadata", "labels", "served"))
			served := serve(t, template)
			bare := must.Get(json.Marshal(template))(t)
			paths, err := hash.Differences(bare, served)
			if err != nil || len(paths) > 0 {
				t.Errorf("the served template differs in %v, %v", paths, err)
			}
			if string(bare) == string(served) {
				t.Error("the API server has defaulted nothing: this shows nothing")
			}
		})
	}
}

// serve returns the template as the API server would store it in a StatefulSet.
func serve(t *testing.T, template map[string]any) []byte {
	t.Helper()
	set := map[string]any{
		"apiVersion": "apps/v1", "kind": "StatefulSet",
		"metadata": map[string]any{"name": "served", "namespace": "default"},
		"spec": map[string]any{
			"serviceName": "served", "template": template,
			"selector": map[string]any{"matchLabels": map[string]any{"served": "true"}},
			"volumeClaimTemplates": []any{map[string]any{
				"metadata": map[string]any{"name": "data"},
				"spec":     map[string]any{"accessModes": []string{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}},
			}},
		},
	}
	text := must.Get(yaml.Marshal(set))(t)
	file := filepath.Join(t.TempDir(), "served.yaml")
	must.Do(t, os.WriteFile(file, text, 0o600))
	out := must.Get(cp.Kubectl(t.Context(), "create", "--dry-run=server", "--output=json", "--filename", file))(t)
	var served struct {
		Spec struct {
			Template json.RawMessage `json:"template"`
		} `json:"spec"`
	}
	must.Do(t, json.Unmarshal([]byte(out), &served))
	return served.Spec.Template
}
