//go:build integration

package integration

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestCreatedAgainAroundItsPods: a set is deleted without its pods, as to change its
// volumeClaimTemplates, and created again with another size.
func TestCreatedAgainAroundItsPods(t *testing.T) {
	parallel(t)
	for name, o := range map[string]options{
		"by partition 0": {},
		"LiveResize":     {Meta: "annotations: {" + api.ResizeActionAnnotation + ": LiveResize}"},
		"by partition 2": {Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}"},
		"OnDelete":       {Spec: "updateStrategy: {type: OnDelete}"},
		"not Ready":      {Spec: "minReadySeconds: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			w := newWorkload(t, o)
			w.waitComplete()
			before := w.uids()
			w.kubectl("delete", w.ref, "--cascade=orphan")
			o.Resources = largerThanBase
			again := manifest(t, w.namespace, o)
			got := w.run("plan", "-f", writeFile(t, again))
			if strings.Count(got.stdout, " Live  ") != map[bool]int{true: 1, false: 3}[name == "by partition 2"] || !strings.Contains(got.stdout, "it does not exist yet, and adopts these pods: ") {
				t.Errorf("plan ended with %d: %s%s", got.code, got.stdout, got.stderr)
			}
			w.apply(again)
			w.waitComplete()
			w.assertReplaced(before)
			if name == "by partition 2" {
				w.waitFor("the partition to come back", func(set *appsv1.StatefulSet) bool { return *set.Spec.UpdateStrategy.RollingUpdate.Partition == 2 })
				w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
				w.waitComplete()
			}
			w.assertMoved(0)
			w.assertReplaced(before)
		})
	}
}

// TestCreate: holding a new set costs one write, makes no pod wait, and is nothing to
// tell of. Writes that lost against others do not count here: TestComingUpIsNotRaced has those.
func TestCreate(t *testing.T) {
	parallel(t)
	w := createWorkload(t, options{})
	w.kubectl("rollout", "status", w.ref, "--timeout="+patience.String())
	w.waitComplete()
	w.assertMoved(0)
	writes := w.writes()
	if n := len(slices.DeleteFunc(only(writes, "patch statefulsets"), conflicted)); n != 1 {
		t.Errorf("wrote %v, want one write to the set", writes)
	}
	if pods, _ := tally(writes); len(pods) > 0 {
		t.Errorf("wrote to pods: %v", writes)
	}
	if began := slices.Concat(w.events("RolloutStarted"), w.events("HandedOver")); len(began) > 0 {
		t.Errorf("told of %v", began)
	}
	w.waitEvent("RolloutComplete", "3 of 3 pods")
}

// TestComingUpIsNotRaced: while the pods of a new set come up, which changes its status all the time, our writes do not race
// for it. A DaemonSet's come at once. One write may still be refused: on a busy machine the built-in controller's
// last word can come later than we wait for it.
func TestComingUpIsNotRaced(t *testing.T) {
	parallel(t)
	for _, management := range []string{"OrderedReady", "Parallel"} {
		t.Run(management, func(t *testing.T) {
			parallel(t)
			w := createWorkload(t, options{Replicas: 20, Spec: "podManagementPolicy: " + management})
			w.waitComplete()
			w.waitFor("the hold to end", func(set *appsv1.StatefulSet) bool { return !held(set) })
			assertNotRaced(t, w.writes())
		})
	}
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
		d := createDaemonSet(t, options{})
		d.waitComplete()
		assertNotRaced(t, d.writes())
	})
}

// assertNotRaced fails the test if more than one of the writes met a newer version.
func assertNotRaced(t *testing.T, writes []string) {
	t.Helper()
	n := 0
	for _, write := range writes {
		if conflicted(write) {
			n++
		}
	}
	if n > 1 {
		t.Errorf("wrote %v, and %d were refused", writes, n)
	}
}

// conflicted reports whether a write met a newer version.
func conflicted(write string) bool { return strings.HasSuffix(write, " 409") }

// TestCreateWithoutController: a new set has all its pods, and they come back.
func TestCreateWithoutController(t *testing.T) {
	w := createWorkload(t, options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}"})
	w.waitAvailable()
	if set := w.get(); holdOf(set) != "1" || *set.Spec.UpdateStrategy.RollingUpdate.Partition != all {
		t.Errorf("created: %s", describe(set))
	}
	before := w.uids()
	w.kubectl("scale", w.ref, "--replicas=4")
	w.kubectl("delete", "pod", "web-2")
	w.waitPod("web-2", "to be another one", func(pod corev1.Pod) bool { return pod.UID != before["web-2"] })
	w.waitAvailable()
	w.assertReplaced(before, "web-2")
}

// TestCreateDaemonSetWithoutController: a new DaemonSet is held, and every node gets its pod all the same, also one that has lost it.
// So a cluster that is built again comes up, though nobody lets go of its network.
func TestCreateDaemonSetWithoutController(t *testing.T) {
	d := createDaemonSet(t, options{})
	d.waitAvailable(3)
	set := d.get()
	if set.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType || set.Annotations[api.HoldAnnotation] != "RollingUpdate" {
		t.Errorf("created: %s", describe(set))
	}
	before := d.on(1)
	d.kubectl("delete", "pod", before.Name)
	d.waitOn(1, "to be another one", func(pod corev1.Pod) bool { return pod.UID != before.UID })
	d.waitAvailable(3)
}

// TestCanaryIsLostDuringTheHold: no controller runs; the partition is lowered, and the
// canary that is lost comes back as it was.
func TestCanaryIsLostDuringTheHold(t *testing.T) {
	w := newWorkload(t, options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}"})
	w.kubectl("set", "image", w.ref, "app=app:2")
	if got := w.run("release", w.ref, "--yes"); got.code != 0 {
		t.Fatal(got.stderr)
	}
	image := func(pod corev1.Pod) string { return pod.Spec.Containers[0].Image }
	w.waitPod("web-2", "to be the canary", func(pod corev1.Pod) bool { return image(pod) == "app:2" })
	w.waitFor("the canary", func(set *appsv1.StatefulSet) bool {
		return set.Status.UpdatedReplicas == 1 && set.Status.AvailableReplicas == 3
	})
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	if set := w.get(); holdOf(set) != "0" || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 2 {
		t.Errorf("lowered: %s", describe(set))
	}
	before := w.uids()
	w.kubectl("delete", "pod", "web-2", "web-0")
	for name, want := range map[string]string{"web-2": "app:2", "web-0": "app:1"} {
		w.waitPod(name, "to be back", func(pod corev1.Pod) bool { return pod.UID != before[name] })
		if got := image(w.pods()[name]); got != want {
			t.Errorf("%s came back with %s, want %s", name, got, want)
		}
	}
	w.waitFor("all of them to be available", func(set *appsv1.StatefulSet) bool {
		return set.Status.UpdatedReplicas == 1 && set.Status.AvailableReplicas == 3
	})
}

// TestCanaryBySteps: a size goes from partition 3 by 2 to 0, in place.
func TestCanaryBySteps(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 4, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(3)
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`)
	w.waitComplete()
	w.assertMoved(2)
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

// TestStartIsLowered: web-6 and web-7 are kept back by partition 1; the start of the
// ordinals goes from 6 to 5, and partition 1 keeps back only the new web-5.
func TestStartIsLowered(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2, Spec: "{ordinals: {start: 6}, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.patch(`{"spec":{"replicas":3,"ordinals":{"start":5}}}`)
	w.waitComplete()
	w.waitFor("three pods", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 3 })
	w.assertReplaced(before)
	if got := cpuOf(w.pods()["web-7"].Spec.Containers[0].Resources); got != "150m" {
		t.Errorf("web-7 has %s", got)
	}
	if got := cpuOf(w.pods()["web-6"].Spec.Containers[0].Resources); got != "100m" {
		t.Errorf("web-6, which is kept back, has %s", got)
	}
}

// TestSavedDuringAHold: what was saved in the middle of a rollout is applied when it is over.
func TestSavedDuringAHold(t *testing.T) {
	parallel(t)
	w, d, ds := newWorkload(t, options{}), newDeployment(t, options{}), newDaemonSet(t, options{})
	before, deploymentBefore, daemonsBefore := w.uids(), d.uids(), ds.uids()
	daemon := ds.on(1).Name
	w.annotatePod("web-0", simLasting)
	d.annotatePod(d.names()[0], simLasting)
	ds.annotatePod(daemon, simLasting)
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	ds.setResources("cpu=150m", "")
	saved := []string{}
	for _, s := range []interface{ kubectl(...string) string }{w, d, ds} {
		saved = append(saved, s.kubectl("get", "statefulset,deployment,daemonset", "-o", "yaml"))
	}
	w.annotatePod("web-0", simAccepted)
	d.annotatePod(d.names()[0], simAccepted)
	ds.annotatePod(daemon, simAccepted)
	w.waitComplete()
	d.waitComplete()
	ds.waitComplete()
	for i, s := range []interface{ replace(string) }{w, d, ds} {
		s.replace(saved[i])
	}
	w.waitComplete()
	d.waitComplete()
	ds.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	d.assertMoved(deploymentBefore, "150m")
	ds.assertMoved(daemonsBefore, "150m")
	if d.get().Spec.Paused {
		t.Error("paused")
	}
}

// replace writes what was saved, whatever version it is of.
func (s *sandbox[W]) replace(saved string) {
	s.t.Helper()
	var lines []string
	for line := range strings.Lines(saved) {
		if !strings.Contains(line, "resourceVersion:") && !strings.Contains(line, "uid:") {
			lines = append(lines, line)
		}
	}
	s.kubectl("replace", "-f", writeFile(s.t, strings.Join(lines, "")))
}

// TestDeploymentCreatedAgain: nobody can hold a new Deployment, and plan says so.
func TestDeploymentCreatedAgain(t *testing.T) {
	d := newDeployment(t, options{Replicas: 2})
	d.kubectl("delete", d.ref, "--cascade=orphan")
	o := options{Kind: "Deployment", Replicas: 2}
	same := d.run("plan", "-f", writeFile(t, manifest(t, d.namespace, o)), "--fail-on-restart")
	if same.code != 0 || !strings.Contains(same.stdout, "0 live, 0 restart, 0 infeasible, 2 unchanged") {
		t.Errorf("the same: plan ended with %d: %s%s", same.code, same.stdout, same.stderr)
	}
	o.Resources = largerThanBase
	got := d.run("plan", "-f", writeFile(t, manifest(t, d.namespace, o)), "--fail-on-restart")
	if got.code != 3 || strings.Count(got.stdout, "a new Deployment cannot be held") != 2 ||
		!strings.Contains(got.stdout, "deployment/web: it does not exist yet, and adopts these pods: 0 live, 2 restart") {
		t.Errorf("plan ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

// TestReplicaSetOfTheUser: a Deployment takes over a ReplicaSet that somebody has made before, whose
// pods have no pod-template-hash.
func TestReplicaSetOfTheUser(t *testing.T) {
	parallel(t)
	o := options{Kind: "Deployment", Replicas: 2}
	d := newDeployment(t, o)
	d.kubectl("delete", d.ref, "--cascade=foreground")
	d.apply(manifest(t, d.namespace, options{Kind: "ReplicaSet", Replicas: 2, OptedOut: true, Meta: "labels: {app: web}"}))
	d.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "replicaset/web", "--timeout="+patience.String())
	before := d.uids()
	d.apply(manifest(t, d.namespace, o))
	d.waitRolledOut()

	d.edit("150m")

	d.assertMoved(before, "150m")
	if active := d.active(); active.Name != "web" {
		t.Errorf("the pods belong to %s", summary(d.replicaSets()))
	}
}

// TestCreateOfWhatNeverComes: a new set whose pods have no node is let go all the same.
func TestCreateOfWhatNeverComes(t *testing.T) {
	parallel(t)
	w := createWorkload(t, options{Pod: "nodeSelector: {nowhere: nowhere}"})
	w.waitUnschedulable("web-0")
	w.waitFor("the set to be let go", func(set *appsv1.StatefulSet) bool { return !held(set) })
}
