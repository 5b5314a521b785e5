//go:build around

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// waitHealth waits until Argo CD would show the status, with a message that has the text.
func (s *sandbox[W]) waitHealth(status, text string) {
	s.t.Helper()
	eventually(s.t, "the health "+status+" with "+text, func() (bool, string) {
		got, message := health(s.t, s.kind, s.get())
		return got == status && strings.Contains(message, text), got + ": " + message
	})
}

// TestArgoHealthOfStatefulSets goes through what Argo CD shows of a StatefulSet.
func TestArgoHealthOfStatefulSets(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Meta: "annotations: {" + setAction + ": LiveResize}"})
	w.waitComplete()
	w.waitHealth("Healthy", "3 of 3 pods are updated")

	w.annotatePod("web-1", simDeferred)
	w.setResources("cpu=150m", "")
	if status, message := health(t, "StatefulSet", w.get()); status != "Progressing" {
		t.Errorf("right after the edit: %s: %s", status, message)
	}
	w.waitHealth("Progressing", "Deferred: 1 of 3 pods resized; web-1: ")
	w.annotatePod("web-1", simInfeasible)
	w.waitHealth("Degraded", "Infeasible: ")
	w.annotatePod("web-1", simAccepted)
	w.setResources("cpu=160m", "")
	w.waitComplete()
	w.waitHealth("Healthy", "3 of 3 pods are updated")

	// Complete, but no longer well: as Argo CD itself sees it.
	w.kubectl("annotate", "--overwrite", "pod", "web-0", "sim.inplace-rollout.io/ready=false")
	w.waitHealth("Progressing", "2 of 3 pods are ready")
}

// TestArgoHealthLeftOut: what the webhook is not asked about is as well as Argo CD itself finds it.
func TestArgoHealthLeftOut(t *testing.T) {
	condition := map[string]any{"type": api.ConditionComplete, "status": "False", "reason": rollout.ReasonNamespaceLeftOut, "message": "not held"}
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		for want, there := range map[string]int{"Healthy": 3, "Progressing": 2} {
			object := map[string]any{
				"metadata": map[string]any{"generation": 1, "labels": map[string]any{enabled: "true"}},
				"spec":     map[string]any{"replicas": 3},
				"status": map[string]any{
					"conditions": []any{condition}, "observedGeneration": 1,
					"replicas": 3, "readyReplicas": there, "updatedReplicas": 3, "availableReplicas": there,
					"desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": there,
				},
			}
			if status, message := health(t, kind, object); status != want || strings.Contains(message, "not held") {
				t.Errorf("a %s with %d of 3 pods is %s: %s", kind, there, status, message)
			}
		}
	}
}

func TestArgoHealthOnDelete(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Spec: "updateStrategy: {type: OnDelete}", Meta: "annotations: {" + setPolicy + ": cpu=RestartOnly}"})
	w.setResources("cpu=150m", "")
	w.waitHealth("Suspended", "WaitingForDelete: ")
}

// TestArgoHealthOfOthers: StatefulSets that are not opted in are judged as ever.
func TestArgoHealthOfOthers(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2, Meta: "annotations: {" + setAction + ": LiveResize}"})
	w.annotatePod("web-1", simInfeasible)
	w.setResources("cpu=150m", "")
	w.waitHealth("Degraded", "Infeasible: ")
	w.kubectl("label", w.ref, enabled+"-") // lets go, and the StatefulSet controller goes on
	w.waitHealth("Healthy", "2 of 2 pods are updated")
	w.waitWithdrawn()
	w.patch(`{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}}`)
	w.setResources("cpu=170m", "")
	w.waitHealth("Healthy", "1 of 2 pods are updated")
	w.kubectl("scale", w.ref, "--replicas=3")
	w.waitHealth("Healthy", "2 of 3 pods are updated")
	w.kubectl("annotate", "pod", "web-0", "sim.inplace-rollout.io/ready=false")
	w.waitHealth("Progressing", "2 of 3 pods are ready")
}

// TestArgoHealthOfDeployments goes through what Argo CD shows of a Deployment.
func TestArgoHealthOfDeployments(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2, Meta: "annotations: {" + setAction + ": LiveResize}"})
	d.waitComplete()
	d.waitHealth("Healthy", "2 of 2 pods are available")
	for name := range d.pods() {
		d.annotatePod(name, simDeferred)
	}
	d.setResources("cpu=150m", "")
	d.waitHealth("Progressing", "Deferred: 0 of 2 pods resized; ")
	for name := range d.pods() {
		d.annotatePod(name, simInfeasible)
	}
	d.waitHealth("Degraded", "Infeasible: ")
	for name := range d.pods() {
		d.annotatePod(name, simAccepted)
	}
	d.setResources("cpu=160m", "")
	d.waitComplete()
	d.waitHealth("Healthy", "2 of 2 pods are available")

	d.kubectl("rollout", "pause", d.ref)
	d.setResources("cpu=170m", "")
	d.waitHealth("Suspended", "Paused: ")
	d.kubectl("rollout", "resume", d.ref)
	d.waitComplete()

	// Left to the Deployment controller, whose own conditions speak.
	d.patch(`{"spec": {"progressDeadlineSeconds": 1, "template": {"metadata": {"annotations": {"sim.inplace-rollout.io/ready": "false"}}}}}`)
	d.waitHealth("Degraded", "has timed out progressing")
	d.kubectl("label", d.ref, enabled+"-")
	d.waitHealth("Degraded", "has timed out progressing")
	d.kubectl("rollout", "undo", d.ref)
	d.waitHealth("Healthy", "2 of 2 pods are available")
	d.kubectl("rollout", "pause", d.ref)
	d.waitHealth("Suspended", "the Deployment is paused")
}

// TestArgoHealthOfDaemonSets goes through what Argo CD shows of a DaemonSet.
func TestArgoHealthOfDaemonSets(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 2, Meta: liveOnly})
	d.waitComplete()
	d.waitHealth("Healthy", "2 of 2 pods are available")
	stuck := d.on(2).Name
	d.annotatePod(stuck, simDeferred)
	d.setResources("cpu=150m", "")
	if status, message := health(t, "DaemonSet", d.get()); status != "Progressing" {
		t.Errorf("right after the edit: %s: %s", status, message)
	}
	d.waitHealth("Progressing", "Deferred: 1 of 2 pods resized; "+stuck)
	d.annotatePod(stuck, simInfeasible)
	d.waitHealth("Degraded", "Infeasible: ")
	d.annotatePod(stuck, simAccepted)
	d.setResources("cpu=160m", "")
	d.waitComplete()
	d.waitHealth("Healthy", "2 of 2 pods are available")
	// Complete, but no longer well: as Argo CD itself sees it.
	d.annotatePod(stuck, "sim.inplace-rollout.io/ready=false")
	d.waitHealth("Progressing", "1 of 2 pods are available")
	d.annotatePod(stuck, "sim.inplace-rollout.io/ready-")
	d.waitAvailable(2)

	d.patch(`{"metadata": {"annotations": {"` + setPolicy + `": "cpu=RestartOnly"}}, "spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}`)
	d.kubectl("annotate", d.ref, setAction+"-")
	d.setResources("cpu=170m", "")
	d.waitHealth("Suspended", "WaitingForDelete: ")
	d.kubectl("label", d.ref, enabled+"-")
	d.waitHealth("Healthy", "0 of 2 pods are updated")
}

// TestKstatus is what Flux, and everything else that judges by kstatus, takes a rollout
// for: it is InProgress until it is over, also after an edit back.
func TestKstatus(t *testing.T) {
	parallel(t)
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{})
		kstatus(t, w.sandbox, w.waitComplete)
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{})
		kstatus(t, d.sandbox, d.waitComplete)
	})
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
		d := newDaemonSet(t, options{})
		kstatus(t, d.sandbox, d.waitComplete)
	})
}

// kstatus checks what a rollout is taken for.
func kstatus[W metav1.Object](t *testing.T, s *sandbox[W], waitComplete func()) {
	t.Helper()
	assert := func(when string, want status.Status) {
		t.Helper()
		result, err := status.Compute(untyped(t, s.kind, s.get()))
		if err != nil {
			t.Fatal(err)
		}
		if result.Status != want {
			t.Errorf("%s, it is %s: %s; want %s", when, result.Status, result.Message, want)
		}
	}
	waitComplete()
	assert("Before the edit", status.CurrentStatus)
	slow := s.names()[0]
	s.annotatePod(slow, simDeferred)
	s.setResources("cpu=150m", "")
	s.waitCondition("Deferred", slow)
	assert("In the middle", status.InProgressStatus)
	s.annotatePod(slow, simAccepted)
	waitComplete()
	assert("At the end", status.CurrentStatus)
	s.setResources("cpu=160m", "")
	s.setResources("cpu=150m", "")
	waitComplete()
	for _, v := range s.versions() {
		result, err := status.Compute(untyped(t, s.kind, v.workload))
		if err != nil {
			t.Fatal(err)
		}
		if held(v.workload) && v.workload.GetGeneration() > 1 && result.Status != status.InProgressStatus {
			t.Errorf("held, at %s, it is %s: %s", v.written, result.Status, result.Message)
		}
	}
}

// TestGitOpsSeesNoDrift: mid-rollout, a tool that compares by a dry run on the server
// side finds nothing to do, though its manifest has what holds.
func TestGitOpsSeesNoDrift(t *testing.T) {
	parallel(t)
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		o := options{Kind: "StatefulSet", Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}"}
		newWorkload(t, o).testNoDrift(t, o)
	})
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
		o := options{Kind: "DaemonSet", Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"}
		newDaemonSet(t, o).testNoDrift(t, o)
	})
}

func (s *sandbox[W]) testNoDrift(t *testing.T, o options) {
	t.Helper()
	s.waitComplete()
	slow := s.names()[0]
	s.annotatePod(slow, simDeferred)
	o.Resources = largerThanBase
	wanted := manifest(t, s.namespace, o)
	s.apply(wanted)
	s.waitCondition("Deferred", slow)
	same := writeFile(t, wanted)
	s.assertNoDrift("held", same)
	o.Spec += "\nminReadySeconds: 1"
	other := writeFile(t, manifest(t, s.namespace, o))
	if found, _ := s.drift(other); !strings.Contains(found, "+  minReadySeconds: 1") {
		t.Errorf("another minReadySeconds is no difference: the comparison sees\n%s", found)
	}
	s.apply(wanted)
	if !held(s.get()) {
		t.Error("not held any more after the same manifest")
	}
	s.annotatePod(slow, simAccepted)
	s.waitComplete()
	s.assertNoDrift("complete", same)
	for _, entry := range s.get().GetManagedFields() {
		if entry.Manager == api.FieldManager && strings.Contains(entry.FieldsV1.GetRawString(), "f:spec") {
			t.Errorf("%s owns a part of the spec: %s", entry.Manager, entry.FieldsV1.GetRawString())
		}
	}
}

// drift is what a comparison by a dry run on the server side finds.
func (s *sandbox[W]) drift(file string) (string, error) {
	s.t.Helper()
	return cp.Kubectl(s.t.Context(), "-n", s.namespace, "diff", "--server-side", "--field-manager=gitops", "--filename", file)
}

// assertNoDrift checks that a comparison finds nothing. It is repeated, because a status that is written between its
// two requests is a difference, too.
func (s *sandbox[W]) assertNoDrift(when, file string) {
	s.t.Helper()
	eventually(s.t, when+", no difference", func() (bool, string) {
		found, err := s.drift(file)
		return err == nil, fmt.Sprintf("%v\n%s", err, found)
	})
}

// TestSomebodyElseResizes is what docs/autoscalers.md says of a VerticalPodAutoscaler:
// between edits its sizes stay, and an edit overrides them.
func TestSomebodyElseResizes(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	w.waitComplete()
	before, resources := w.uids(), `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"170m","memory":"150Mi"}}}]}}`
	resizeAs := func(name string) {
		t.Helper()
		if _, err := client.CoreV1().Pods(w.namespace).Patch(context.Background(), name, types.StrategicMergePatchType, []byte(resources),
			metav1.PatchOptions{FieldManager: "vpa-updater"}, "resize"); err != nil {
			t.Fatal(err)
		}
	}
	w.markAudit()
	resizeAs("web-1")
	w.kubectl("scale", w.ref, "--replicas=4") // something for the controller to look at
	w.waitPod("web-3", "to be there", func(pod corev1.Pod) bool { return true })
	w.waitComplete()
	if writes := w.writes(); len(only(writes, "patch pods/resize")) > 0 {
		t.Errorf("between edits the controller wrote %q", writes)
	}

	w.annotatePod("web-0", simDeferred)
	w.setResources("cpu=150m", "")
	w.waitCondition("Deferred", "web-0")
	if got := w.pods()["web-1"].Spec.Containers[0].Resources.Requests; got.Cpu().String() != "150m" || got.Memory().String() != "100Mi" {
		t.Errorf("after the edit web-1 requests %v, want what the template says", got)
	}
	for _, name := range []string{"web-0", "web-1", "web-2"} { // one that waits, and two that are done
		resizeAs(name)
		w.waitPod(name, "to be resized again", func(pod corev1.Pod) bool {
			r := pod.Spec.Containers[0].Resources
			return cpuOf(r) == "150m" && r.Requests.Memory().String() == "100Mi"
		})
	}
	w.waitCondition("Deferred", "; also resized by vpa-updater")
	w.annotatePod("web-0", simAccepted)
	w.waitComplete()
	if _, _, message := complete(w.get()); !strings.HasSuffix(message, "; also resized by vpa-updater") {
		t.Errorf("the condition says %q", message)
	}
	if told := w.events("ResizedByOthers"); len(told) != 1 || !strings.HasPrefix(told[0], "vpa-updater also resizes pods of this StatefulSet") {
		t.Errorf("events %q, want one that names the autoscaler", told)
	}
	w.assertReplaced(before)
	if _, held := w.get().Annotations[api.HoldAnnotation]; held {
		t.Error("still held")
	}
}
