//go:build integration

package integration

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// restore creates what an earlier commit left, with its status. The UIDs are those of now,
// wherever one object names another. No controller may run.
func restore(t *testing.T, namespace, file string) {
	t.Helper()
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	golden := must.Get(os.ReadFile(filepath.Join("testdata", "upgrade", file)))(t)
	for rest := string(golden); rest != ""; {
		var text string
		text, rest, _ = strings.Cut(rest, "\n---\n")
		object := &unstructured.Unstructured{}
		must.Do(t, yaml.Unmarshal([]byte(text), object))
		gv := must.Get(schema.ParseGroupVersion(object.GetAPIVersion()))(t)
		of := objects.Resource(gv.WithResource(strings.ToLower(object.GetKind()) + "s")).Namespace(namespace)
		uid, status, managed := object.GetUID(), object.Object["status"], object.GetManagedFields()
		created := must.Get(of.Create(t.Context(), object, metav1.CreateOptions{}))(t)
		rest = strings.ReplaceAll(rest, string(uid), string(created.GetUID()))
		if len(managed) > 0 { // whoever creates an object owns all of it
			patch := must.Get(json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": append(created.GetManagedFields(), managed...)}}))(t)
			created = must.Get(of.Patch(t.Context(), created.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}))(t)
			if !slices.ContainsFunc(created.GetManagedFields(), resize.Ours) {
				t.Fatalf("pod %s has the managedFields %v", created.GetName(), created.GetManagedFields())
			}
		}
		if status, is := status.(map[string]any); is {
			status["observedGeneration"] = created.GetGeneration()
			created.Object["status"] = status
			must.Get(of.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}))(t)
		}
	}
}

// TestUpgradeFromEarlierCommits: rollouts that controllers of earlier commits have begun, and
// left in the middle, end in place. testdata/upgrade has what those really wrote.
func TestUpgradeFromEarlierCommits(t *testing.T) {
	other := newWorkload(t, options{Replicas: 1})
	install := reinstall(t)
	defer install()
	must.Do(t, controller.Uninstall(t.Context(), cp))
	other.waitPolicies(false)
	// Otherwise the built-in controllers would make pods before those of the file are there.
	resume := must.Get(cp.Pause("kube-controller-manager"))(t)
	t.Cleanup(resume) // a failure must not keep it from the other tests
	from := func(file string) options {
		return options{By: func(namespace, _ string) { restore(t, namespace, file) }}
	}
	w, held := createWorkload(t, from("4ea9376-statefulset.yaml")), createDeployment(t, from("122664e-deployment.yaml"))
	marked, adopted := createDeployment(t, from("7e7bb44-detached.yaml")), createDeployment(t, from("122664e-detached.yaml"))
	setBefore, heldBefore := w.uids(), held.uids()
	newcomers := map[*deployment]string{}
	detached := map[*deployment]string{}
	befores := map[*deployment]map[string]string{}
	for _, d := range []*deployment{marked, adopted} {
		befores[d] = map[string]string{}
		for name, pod := range d.pods() {
			befores[d][name] = string(pod.UID)
			d.waitPod(name, "to run", func(pod corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
			if slices.ContainsFunc(pod.ManagedFields, resize.Ours) {
				d.openGate(name)
			} else {
				newcomers[d] = name
			}
			if pod.Labels[api.DetachedLabel] != "" {
				detached[d] = name
			}
		}
	}
	install()
	must.Do(t, cp.Restart(t.Context(), "kube-controller-manager"))
	ownController(t, controller.Options{})

	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(setBefore)
	held.waitComplete()
	held.assertMoved(heldBefore, "150m")
	must.EqualLists(t, held.history(), []int{1, 2}, "the history")
	for d, newcomer := range newcomers {
		d.openGate(newcomer)
		d.waitComplete()
		d.assertSettled("150m")
		d.assertReplicaSets(2)
		want := slices.Sorted(maps.Keys(befores[d]))
		want = slices.DeleteFunc(want, func(name string) bool { return name == detached[d] })
		must.EqualLists(t, d.names(), want, "the pods")
		must.EqualLists(t, d.history(), []int{1, 2}, "the history")
		for _, rs := range d.replicaSets() {
			if mark, marked := rs.Annotations[api.AdoptedAnnotation]; marked {
				t.Errorf("ReplicaSet %s is marked: %s", rs.Name, mark)
			}
		}
	}
}
