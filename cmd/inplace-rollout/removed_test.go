package main

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// fieldsOfSize are those of whoever has written a StatefulSet of size, and an environment variable.
const fieldsOfSize = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:name":{},"f:image":{},
"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},
	"f:resources":{"f:requests":{"f:cpu":{},"f:memory":{}},"f:limits":{"f:cpu":{},"f:memory":{}}}}}}}}}`

func entry(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	owned := &metav1.FieldsV1{}
	owned.SetRawString(fields)
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: owned}
}

// What a manifest does not say any more goes, where whoever applies it has set it.
func TestRemovedByAManifest(t *testing.T) {
	const (
		apply  = metav1.ManagedFieldsOperationApply
		update = metav1.ManagedFieldsOperationUpdate
		limits = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:memory":{}}}}}}}}}`
		all    = "map[limits:map[cpu:1 memory:1Gi] requests:map[cpu:100m memory:100Mi]]"
		some   = "map[requests:map[cpu:100m memory:100Mi]]"
	)
	type asked struct {
		manifest *unstructured.Unstructured // without the limits, if nil
		manager  string
		last     *unstructured.Unstructured // applied client-side
	}
	app, tuner, client := entry("kustomize-controller", apply, fieldsOfSize), entry("tuner", apply, limits), entry("kubectl-client-side-apply", update, fieldsOfSize)
	created := entry("kubectl-create", update, fieldsOfSize)
	mesh := entry("mesh", apply, strings.ReplaceAll(fieldsOfSize, "app", "mesh"))
	sizer := entry("sizer", apply, strings.NewReplacer(`"f:limits":{"f:memory`, `"f:requests":{"f:cpu`).Replace(limits))
	live := manifest(t, "StatefulSet", "replicas: 3", size+`}}, {name: mesh, image: "mesh:1", resources: {`)
	container := func(u *unstructured.Unstructured) map[string]any {
		containers, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "template", "spec", "containers")
		return containers.([]any)[0].(map[string]any)
	}
	container(live)["env"] = []any{map[string]any{"name": "A", "value": "1"}, map[string]any{"name": "B", "value": "2"}}
	container(live)["terminationMessagePath"] = "/dev/termination-log"
	without := manifest(t, "StatefulSet", "", "requests: {cpu: 100m, memory: 100Mi}")
	part := manifest(t, "StatefulSet", "", "requests: {cpu: 100m}")
	delete(container(part), "image")
	last := manifest(t, "StatefulSet", "", size)
	for _, tt := range []struct {
		what      string
		entries   []metav1.ManagedFieldsEntry
		resources string
		env       int
		unknown   string
		of        asked
	}{
		{"server-side apply", []metav1.ManagedFieldsEntry{app}, some, 1, "", asked{}},
		{"another one owns it, too", []metav1.ManagedFieldsEntry{app, tuner}, "map[limits:map[memory:1Gi] requests:map[cpu:100m memory:100Mi]]", 1, "", asked{}},
		{"who applies something else removes nothing", []metav1.ManagedFieldsEntry{sizer, created}, all, 2, "app: cpu limit, app: memory limit", asked{}},
		{"Helm", []metav1.ManagedFieldsEntry{entry("helm", update, strings.Replace(fieldsOfSize, `"f:image"`, `"f:terminationMessagePath":{},"f:image"`, 1))}, some, 1, "", asked{}},
		{"another one has applied another container since", []metav1.ManagedFieldsEntry{app, mesh}, some, 1, "", asked{}},
		{"so it has after client-side apply", []metav1.ManagedFieldsEntry{mesh, client}, some, 2, "", asked{last: last}},
		{"a part, and who applies all has applied since", []metav1.ManagedFieldsEntry{sizer, app}, all, 2, "", asked{manifest: part}},
		{"a part, beside client-side apply", []metav1.ManagedFieldsEntry{sizer, client}, all, 2, "", asked{manifest: part, last: last}},
		{"a part of nobody", []metav1.ManagedFieldsEntry{app}, all, 2, "app: memory request, app: cpu limit, app: memory limit", asked{manifest: part}},
		{"a part of a new one", []metav1.ManagedFieldsEntry{app}, all, 2, "", asked{manifest: part, manager: "sizer"}},
		{"the one that is named", []metav1.ManagedFieldsEntry{app, tuner}, all, 2, "", asked{manager: "tuner"}},
		{"what was applied client-side is long ago", []metav1.ManagedFieldsEntry{app}, some, 1, "", asked{last: without}},
		{"a new one takes over from client-side apply", []metav1.ManagedFieldsEntry{client}, some, 2, "", asked{manager: "kubectl", last: last}},
	} {
		was := live.DeepCopy()
		was.SetManagedFields(tt.entries)
		if tt.of.last != nil {
			was.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(must.Get(tt.of.last.MarshalJSON())(t))})
		}
		e := must.Get(newEdit(t.Context(), was, cmp.Or(tt.of.manifest, without), tt.of.manager))(t)
		if n := len(must.Get(templateOf(e.after))(t).Spec.Containers); n != 2 {
			t.Errorf("%s: %d containers, want 2", tt.what, n)
		}
		must.Equal(t, resourcesOf(e.after), tt.resources, "%s: resources", tt.what)
		if env, _ := container(e.after)["env"].([]any); len(env) != tt.env {
			t.Errorf("%s: environment %v, want %d", tt.what, env, tt.env)
		}
		if container(e.after)["terminationMessagePath"] == nil {
			t.Errorf("%s: what the API server has filled in is gone", tt.what)
		}
		must.Equal(t, strings.Join(e.unsaid, ", "), tt.unknown, "%s: what is unknown", tt.what)
	}
}

// Whoever plans an edit that removes a limit reads that it restarts pods, or that it is not known.
func TestPlanOfRemoved(t *testing.T) {
	manager := func(e metav1.ManagedFieldsEntry) begin {
		return setOf(2, func(s *stage) { s.set.ManagedFields = []metav1.ManagedFieldsEntry{e} })
	}
	for name, tt := range map[string]struct {
		stage begin
		fails []string
	}{
		"removed":         {manager(entry("kustomize-controller", metav1.ManagedFieldsOperationApply, fieldsOfSize)), []string{failRestart}},
		"removed-unknown": {manager(entry("kubectl-create", metav1.ManagedFieldsOperationUpdate, fieldsOfSize)), []string{failUnknown}},
		"removed-never": {changed(manager(entry("kubectl-create", metav1.ManagedFieldsOperationUpdate, fieldsOfSize)), func(s *stage) {
			s.set.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest(t, "StatefulSet", "", "requests: {cpu: 100m, memory: 100Mi}")
			out, _ := planned(t, tt.stage(t), m, planOptions{})
			golden.Assert(t, "plan-"+name+".txt", out)
			for _, what := range failures {
				_, code := planned(t, tt.stage(t), m, planOptions{failOn: []string{what}})
				must.Equal(t, code == 3, slices.Contains(tt.fails, what), "--fail-on=%s fails, with %d", what, code)
			}
		})
	}
}
