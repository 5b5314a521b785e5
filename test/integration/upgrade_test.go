//go:build around

package integration

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
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
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	versioninfo "github.com/inplace-rollout/inplace-rollout/pkg/version"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// restore creates what an earlier commit left, with its status. The UIDs are those of now,
// wherever one object names another. No controller may run.
func restore(t *testing.T, namespace, file string) {
	t.Helper()
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	golden, err := os.ReadFile(filepath.Join("testdata", "upgrade", file))
	if err != nil {
		t.Fatal(err)
	}
	for rest := string(golden); rest != ""; {
		var text string
		text, rest, _ = strings.Cut(rest, "\n---\n")
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), object); err != nil {
			t.Fatal(err)
		}
		gv, err := schema.ParseGroupVersion(object.GetAPIVersion())
		if err != nil {
			t.Fatal(err)
		}
		of := objects.Resource(gv.WithResource(strings.ToLower(object.GetKind()) + "s")).Namespace(namespace)
		uid, status, managed := object.GetUID(), object.Object["status"], object.GetManagedFields()
		created, err := of.Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rest = strings.ReplaceAll(rest, string(uid), string(created.GetUID()))
		if len(managed) > 0 { // whoever creates an object owns all of it
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": append(created.GetManagedFields(), managed...)}})
			if err != nil {
				t.Fatal(err)
			}
			if created, err = of.Patch(t.Context(), created.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(created.GetManagedFields(), resize.Ours) {
				t.Fatalf("pod %s has the managedFields %v", created.GetName(), created.GetManagedFields())
			}
		}
		if status, is := status.(map[string]any); is {
			status["observedGeneration"] = created.GetGeneration()
			created.Object["status"] = status
			if _, err := of.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestUpgradeFromEarlierCommits: rollouts that controllers of earlier commits have begun, and
// left in the middle, end in place. testdata/upgrade has what those really wrote.
func TestUpgradeFromEarlierCommits(t *testing.T) {
	other := newWorkload(t, options{Replicas: 1})
	install := reinstall(t)
	defer install()
	if err := controller.Uninstall(t.Context(), cp); err != nil {
		t.Fatal(err)
	}
	other.waitPolicies(false)
	// Otherwise the built-in controllers would make pods before those of the file are there.
	resume, err := cp.Pause("kube-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := cp.Restart(t.Context(), "kube-controller-manager"); err != nil {
		t.Fatal(err)
	}
	ownController(t, controller.Options{})

	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(setBefore)
	held.waitComplete()
	held.assertMoved(heldBefore, "150m")
	if got := held.history(); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("the history is %v", got)
	}
	for d, newcomer := range newcomers {
		d.openGate(newcomer)
		d.waitComplete()
		d.assertSettled("150m")
		d.assertReplicaSets(2)
		want := slices.Sorted(maps.Keys(befores[d]))
		want = slices.DeleteFunc(want, func(name string) bool { return name == detached[d] })
		if got := d.names(); !slices.Equal(got, want) {
			t.Errorf("the pods are %v, want %v", got, want)
		}
		if got := d.history(); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("the history is %v", got)
		}
		for _, rs := range d.replicaSets() {
			if mark, marked := rs.Annotations[api.AdoptedAnnotation]; marked {
				t.Errorf("ReplicaSet %s is marked: %s", rs.Name, mark)
			}
		}
	}
}

// installable is a version that can be installed and run.
type installable struct {
	deploy string // the folder
	binary string
}

// install applies what the version has in deploy/, but runs no pods of it.
func (v installable) install(t *testing.T) {
	t.Helper()
	if v.deploy == "" {
		if err := controller.Install(t.Context(), cp); err != nil {
			t.Fatal(err)
		}
		return
	}
	applyFolder(t, v.deploy)
	administer(t, "scale", "-n", controller.Namespace, "deployment/inplace-rollout", "--replicas=0")
}

// before is the last commit of the version before this one.
const before = "1d71e2c2141465a70f36c56506c060d1c4d378d3"

// earlier builds that version, from the history of this repository.
func earlier(t *testing.T) installable {
	t.Helper()
	folder := t.TempDir()
	for _, command := range [][]string{
		{"git", "-C", controller.Root(), "archive", "--output", filepath.Join(folder, "sources.tar"), before},
		{"tar", "--extract", "--file", filepath.Join(folder, "sources.tar"), "--directory", folder},
		{"go", "build", "-C", folder, "-o", "inplace-rollout", "./cmd/inplace-rollout"},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("building the version before this one, from commit %s (is it in this clone? A shallow one lacks it: git fetch --unshallow): %v: %v\n%s", before, command, err, out)
		}
	}
	return installable{filepath.Join(folder, "deploy"), filepath.Join(folder, "inplace-rollout")}
}

// TestUpgrade applies another version of deploy/ in the middle of rollouts, and replaces the replicas of
// the controller one by one: the rollouts end in place. Where the policies differ, the old replicas
// rest from then on. docs/install.md promises the same for the way back.
// It alone proves that two versions get along, as it builds the one before.
func TestUpgrade(t *testing.T) {
	if way := controller.Hold(cp); way != prerequisite.Policy {
		t.Skipf("not applicable to %s: the version before holds by MutatingAdmissionPolicy only", way)
	}
	now, before := installable{}, earlier(t)
	defer reinstall(t)()
	t.Run("from the version before", func(t *testing.T) {
		testUpgrade(t, before, now)
		var said struct {
			Client      versioninfo.Info
			Controllers []struct{ Version string }
		}
		got := command(t, cp.Kubeconfig(), controller.Namespace, "", "version", "--output=json")
		if err := json.Unmarshal([]byte(got.stdout), &said); err != nil || got.code != 0 || len(said.Controllers) != 1 || said.Controllers[0].Version != said.Client.LabelValue() {
			t.Errorf("version ended with %d: %v: %s%s", got.code, err, got.stdout, got.stderr)
		}
	})
	t.Run("to the same version", func(t *testing.T) { testUpgrade(t, now, now) })
	t.Run("back to the version before", func(t *testing.T) { testUpgrade(t, now, before) })
}

func testUpgrade(t *testing.T, from, to installable) {
	elected := func(of installable) *controller.Process {
		return ownController(t, controller.Options{Binary: of.binary, Args: []string{"--leader-elect"}})
	}
	from.install(t)
	old := []*controller.Process{elected(from), elected(from)}
	w, d, ds := newWorkload(t, options{}), newDeployment(t, options{}), newDaemonSet(t, options{})
	w.waitComplete()
	d.waitComplete()
	ds.waitComplete()
	setBefore, before, daemonsBefore := w.uids(), d.uids(), ds.uids()
	slow, daemon := d.names()[1], ds.on(2).Name
	w.annotatePod("web-1", simDeferred)
	d.annotatePod(slow, simDeferred)
	ds.annotatePod(daemon, simDeferred)
	w.markAudit()
	d.markAudit()
	ds.markAudit()
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	ds.setResources("cpu=150m", "")
	w.waitCondition("Deferred", "web-1")
	d.waitCondition("Deferred", slow)
	ds.waitCondition("Deferred", daemon)

	to.install(t)
	if !held(w.get()) || !held(d.get()) || !held(ds.get()) {
		t.Error("applying deploy/ lets go")
	}
	for _, process := range old {
		elected(to)
		process.Stop()
	}
	w.annotatePod("web-1", simAccepted)
	d.annotatePod(slow, simAccepted)
	ds.annotatePod(daemon, simAccepted)
	w.waitComplete()
	d.waitComplete()
	ds.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(setBefore)
	d.assertMoved(before, "150m")
	ds.assertMoved(daemonsBefore, "150m")
	w.assertNoRefusals()
	d.assertNoRefusals()
	ds.assertNoRefusals()
	for _, writes := range [][]string{w.writes(), d.writes(), ds.writes()} {
		if got := only(writes, "patch pods/resize"); len(got) != 3 {
			t.Errorf("resized %v, want each of three pods once", got)
		}
	}
}
