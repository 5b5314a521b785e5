//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

func TestSecondEditDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{PodMeta: simDelayed})
	before := w.uids()
	w.begin("150m", "web-1")
	w.setResources("cpu=180m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

func TestBackDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{PodMeta: simDelayed})
	before := w.uids()
	first := w.get().Status.UpdateRevision
	w.begin("150m", "web-1")
	w.setResources("cpu=100m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	if got := w.get().Status.UpdateRevision; got != first {
		t.Errorf("revision %s after going back, want the first, %s", got, first)
	}
}

// TestAbandonedEditLeavesNothingBehind is A→C→D: C changes cpu, D has A's cpu
// again and another memory.
func TestAbandonedEditLeavesNothingBehind(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.annotatePod("web-2", simLasting)
	w.begin("150m", "web-2")
	w.setResources("cpu=100m,memory=150Mi", "")
	w.annotatePod("web-2", simAccepted)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

// TestBackFromAnAddedLimit is A→C→A where C adds a limit and web-2 has it
// already: it cannot be taken away, and the StatefulSet controller takes web-2 for
// one of A. Only we can know, from managedFields, and only a new pod helps.
func TestBackFromAnAddedLimit(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Resources: "{requests: {cpu: 100m}}"})
	before := w.uids()
	w.annotatePod("web-2", simLasting)
	w.setResources("cpu=100m", "memory=1Gi")
	w.waitPod("web-2", "to have the limit", func(pod corev1.Pod) bool { return !pod.Spec.Containers[0].Resources.Limits.Memory().IsZero() })
	w.kubectl("rollout", "undo", "statefulset/web")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-2")
	if limit := w.pods()["web-2"].Spec.Containers[0].Resources.Limits; len(limit) > 0 {
		t.Errorf("web-2 still has limits %v", limit)
	}
}

func TestScaleUpDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{PodMeta: simDelayed})
	before := w.uids()
	w.begin("150m", "web-1")
	w.kubectl("scale", "statefulset/web", "--replicas=5")
	w.waitComplete()
	w.waitFor("five pods", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 5 })
	w.assertMoved(0)
	w.assertReplaced(before)
}

func TestScaleDownDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 4, PodMeta: simDelayed})
	before := w.uids()
	w.begin("150m", "web-3")
	w.kubectl("scale", "statefulset/web", "--replicas=2")
	w.waitComplete()
	w.waitFor("two pods", func(set *appsv1.StatefulSet) bool { return set.Status.Replicas == 2 })
	w.assertMoved(0)
	w.assertReplaced(before)
}

// TestPodLostDuringTheRollout deletes a pod that is done: under the hold it is
// born again from the old revision, and has to be resized again.
func TestPodLostDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.annotatePod("web-0", simLasting)
	w.begin("150m", "web-0")
	w.kubectl("delete", "pod", "web-2")
	w.annotatePod("web-0", simAccepted)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-2")
}

// TestPodLostAboveOneThatIsLeft: nothing waits for a pod that is left as it is, nor
// does one that is born again above it. The quota refuses that one its size before it
// is Ready: until then it waits for nobody anyway.
func TestPodLostAboveOneThatIsLeft(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Meta: "annotations: {" + setTimeout + ": 2s, " + setAction + ": LiveResize}"})
	before := w.uids()
	w.annotatePod("web-0", simDeferred)
	w.setResources("cpu=150m", "")
	w.waitCondition("Deferred", "2 of 3 pods resized; web-0: ")
	w.waitCondition("Deferred", "for more than 2s; left as it is")
	w.setQuota("400m")
	w.kubectl("delete", "pod", "web-2")
	w.waitPod("web-2", "to be Ready again", func(pod corev1.Pod) bool { return pod.UID != before["web-2"] && podutils.IsPodReady(&pod) })
	w.setQuota("10")
	w.waitPod("web-2", "to be resized again", func(pod corev1.Pod) bool { return cpuOf(pod.Spec.Containers[0].Resources) == "150m" })
	w.annotatePod("web-0", simAccepted)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-2")
}

// TestScaleUpAboveADeferredPod: web-3 waits for web-0 until its deadline; then web-0
// is to be restarted, and waits for web-3.
func TestScaleUpAboveADeferredPod(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	w.annotatePod("web-0", simDeferred)
	w.setResources("cpu=150m", "")
	w.waitCondition("Deferred", "2 of 3 pods resized; web-0: deferred on node")
	w.setQuota("550m")
	w.kubectl("scale", "statefulset/web", "--replicas=4")
	w.waitFor("four pods", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 4 })
	w.setQuota("10")
	before := w.uids()
	w.kubectl("annotate", "statefulset/web", setTimeout+"=1s")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-0")
}

// TestTerminatingPodHidesALabel is A→B→A with web-0 kept back, so of A all along.
// When web-1 is relabelled back and web-0 terminates, the StatefulSet controller
// counts one updated pod, as it did before: it may not have seen the label. So the
// hold stays for a while, and no longer, though web-0 terminates for ever.
func TestTerminatingPodHidesALabel(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.annotatePod("web-1", simLasting)
	w.begin("100m", "web-1")
	w.patchPod("web-0", `{"metadata": {"finalizers": ["test.inplace-rollout.io/stays"]}}`)
	w.kubectl("delete", "pod", "web-0", "--wait=false")
	w.markAudit()
	w.annotatePod("web-1", simAccepted)
	w.waitFor("the hold to go", func(set *appsv1.StatefulSet) bool { return !held(set) })
	w.patchPod("web-0", `{"metadata": {"finalizers": null}}`)

	relabelled, released := w.audit("patch", "pods", "", "web-1"), w.audit("patch", "statefulsets", "", "web")
	if len(relabelled) != 1 || len(released) != 1 {
		t.Fatalf("the controller wrote %v, want one label and one release", w.writes())
	}
	if waited := released[0].Sub(relabelled[0]); waited < 8*time.Second { // 10, less what managedFields cut off a second
		t.Errorf("let go %s after the label", waited)
	}
	w.waitPod("web-0", "to be made anew", func(pod corev1.Pod) bool { return pod.UID != before["web-0"] })
	w.assertReplaced(before, "web-0")
}

// TestInfeasiblePodIsRestartedAlone: only the pod whose node says no is replaced.
func TestInfeasiblePodIsRestartedAlone(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.annotatePod("web-1", simInfeasible)
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
	w.waitEvent("RestartFallback", "web-1: restarted by the StatefulSet controller: infeasible")
}

// TestEditWhileOnePodIsRestarted: while the partition is lowered for the restart
// of web-2, a new template holds everything again. Nothing but web-2 may be lost.
func TestEditWhileOnePodIsRestarted(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Spec: "minReadySeconds: 3"})
	before := w.uids()
	w.annotatePod("web-2", simInfeasible)
	w.setResources("cpu=150m", "")
	w.waitFor("the partition to be lowered to web-2", func(set *appsv1.StatefulSet) bool {
		return held(set) && *set.Spec.UpdateStrategy.RollingUpdate.Partition == 2
	})
	w.patch(`{"metadata":{"annotations":{"example.com/note":"a write that changes no template"}}}`)
	if got := *w.get().Spec.UpdateStrategy.RollingUpdate.Partition; got != 2 {
		t.Errorf("partition %d after an unrelated write, want it kept at 2", got)
	}
	w.setResources("cpu=180m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-2")
}

// TestStuckPodIsDeleted: an OrderedReady set is stuck at a pod that is not Ready;
// here one that no node can take at the old size, and whose QoS class would change.
func TestStuckPodIsDeleted(t *testing.T) {
	parallel(t)
	w := createWorkload(t, options{Replicas: 1, Resources: "{requests: {cpu: 64}}"})
	w.waitUnschedulable("web-0")
	before := w.uids()
	w.setResources("cpu=150m,memory=100Mi", "cpu=150m,memory=100Mi")
	w.waitFor("the new pod", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 1 && !held(set) })
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-0")
}

// TestPodWithoutNode: a pod that no node has room for has nothing to lose. It is
// resized, whatever the action, and runs; where that is not enough, the scheduler's
// words are told, and another edit helps.
func TestPodWithoutNode(t *testing.T) {
	parallel(t)
	for _, action := range []string{"LiveResize", "LiveResizePreferred"} {
		t.Run(action, func(t *testing.T) {
			parallel(t)
			w := createWorkload(t, options{
				Replicas: 2, Resources: "{requests: {cpu: 64}}", Spec: "podManagementPolicy: Parallel",
				Meta: "annotations: {inplace-rollout.io/resource-resize-action: " + action + "}",
			})
			w.waitUnschedulable("web-0")
			w.waitUnschedulable("web-1")
			before := w.uids()
			w.setResources("cpu=48", "")
			w.waitCondition("NoNodeFits", "web-1: no node has room for it at its new size, either: 0/")
			w.setResources("cpu=150m", "")
			w.waitComplete()
			w.assertMoved(0)
			w.assertReplaced(before)
		})
	}
}

func (s *sandbox[W]) waitUnschedulable(name string) {
	s.t.Helper()
	s.waitPod(name, "to be unschedulable", func(pod corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
	})
}

// TestNotReadyBelowARestart: the StatefulSet controller restarts web-1 only when
// web-0 is Ready, and only its new size makes web-0 Ready. So it does not wait for
// its turn.
func TestNotReadyBelowARestart(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	w.annotatePod("web-1", simInfeasible)
	w.annotatePod("web-0", "sim.inplace-rollout.io/ready=false")
	w.waitPod("web-0", "not to be Ready", func(pod corev1.Pod) bool { return !podutils.IsPodReady(&pod) })
	w.begin("150m", "web-0")
	w.annotatePod("web-0", "sim.inplace-rollout.io/ready-")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
}

// TestQoSChange: what the API server would refuse is not even sent.
func TestQoSChangeIsRestarted(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.setResources("cpu=200m,memory=200Mi", "cpu=200m,memory=200Mi")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-0", "web-1", "web-2")
	if resizes := only(w.writes(), "patch pods/resize"); len(resizes) > 0 {
		t.Errorf("resizes were sent: %v", resizes)
	}
	w.assertNoRefusals()
	w.waitEvent("HandedOver", "the QoS class would change from Burstable to Guaranteed")
}

// TestQuota: a refusal that may pass is told, and asked again until it has.
func TestQuota(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.setQuota("350m")
	w.waitQuota("300m")
	w.setResources("cpu=150m", "")
	w.waitFor("the condition to tell of the quota", func(set *appsv1.StatefulSet) bool {
		return slices.ContainsFunc(set.Status.Conditions, func(c appsv1.StatefulSetCondition) bool {
			return c.Reason == "QuotaExceeded" && strings.HasPrefix(c.Message, "1 of 3 pods resized; web-1: ") && strings.Contains(c.Message, "exceeded quota")
		})
	})
	w.waitEvent("QuotaExceeded", "exceeded quota")
	w.setQuota("10")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

// capping is a user's own policy for pods of a labelled namespace, and their resizes.
const capping = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {capped: %[1]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, pods/resize]}]
  validations:
  - expression: object.spec.containers.all(c, quantity(c.resources.requests["cpu"]).compareTo(quantity("140m")) <= 0)
    message: no more than 140m of cpu
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`

// capped applies the policy with this name, and waits until it is in force in the
// namespace, whose pod it refuses the size for.
func (s *sandbox[W]) capped(name, pod string) {
	s.t.Helper()
	apply(s.t, "", fmt.Sprintf(capping, name))
	eventually(s.t, "the policy to be in force", func() (bool, string) {
		err := s.try(s.t, "patch", "pod", pod, "--subresource=resize", "--dry-run=server", "--patch",
			`{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`)
		return err != nil, said(err)
	})
}

// TestUsersPolicy: what a policy of the user's refuses for a running pod, it would
// refuse for a new one too. So the pod is kept until the policy takes the size.
func TestUsersPolicy(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{NS: map[string]string{"capped": "cap-sets"}})
	before := w.uids()
	w.capped("cap-sets", "web-2")
	w.setResources("cpu=150m", "")
	w.waitCondition("AdmissionDenied", `web-2: pods "web-2" is forbidden: ValidatingAdmissionPolicy 'cap-sets' with binding 'cap-sets' denied request: no more than 140m of cpu`)
	w.waitEvent("AdmissionDenied", "no more than 140m of cpu")
	w.assertReplaced(before)
	w.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "cap-sets")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

func TestRemovedLimitIsRestarted(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	w.kubectl("patch", "statefulset/web", "--type=json", "--patch", `[{"op":"remove","path":"/spec/template/spec/containers/0/resources/limits/memory"}]`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-0", "web-1")
	w.assertNoRefusals()
	w.waitEvent("HandedOver", "app: the memory limit is removed")
}

// TestAbandonedPodLevelResources: the API server lets the pod's own resources be
// added, but not removed. Before 1.36 it lets them be neither.
func TestAbandonedPodLevelResources(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	if !cp.AtLeast("1.36") {
		w.patch(`{"spec":{"template":{"spec":{"resources":{"limits":{"cpu":"1"}}}}}}`)
		w.waitComplete()
		w.assertReplaced(before, "web-0", "web-1")
		w.waitEvent("RestartFallback", "the API server does not set pod-level resources of a running pod")
		return
	}
	w.annotatePod("web-1", simLasting)
	w.patch(`{"spec":{"template":{"spec":{"resources":{"limits":{"cpu":"1"}}}}}}`)
	w.waitPod("web-1", "to have resources of its own", func(pod corev1.Pod) bool { return pod.Spec.Resources != nil })
	w.patch(`{"spec":{"template":{"spec":{"resources":null}}}}`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
	if pod := w.pods()["web-1"]; pod.Spec.Resources != nil {
		t.Errorf("web-1 still has resources of its own: %+v", pod.Spec.Resources)
	}
	w.assertNoRefusals()
	w.waitEvent("RestartFallback", "pod: the cpu limit is removed")
}

// TestRolloutRestart: `kubectl rollout restart` means a restart.
func TestRolloutRestart(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	w.kubectl("rollout", "restart", "statefulset/web")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-0", "web-1")
	w.waitEvent("HandedOver", "metadata.annotations[kubectl.kubernetes.io/restartedAt]")
}

// TestOptOutWithoutController: what was opted out while no controller was there loses its condition when one is there again.
func TestOptOutWithoutController(t *testing.T) {
	t.Run("StatefulSet", func(t *testing.T) {
		w := newWorkload(t, options{Replicas: 1})
		optOutWithoutController(t, w.sandbox, w.waitComplete)
	})
	t.Run("Deployment", func(t *testing.T) {
		d := newDeployment(t, options{Replicas: 1})
		optOutWithoutController(t, d.sandbox, d.waitComplete)
	})
	t.Run("DaemonSet", func(t *testing.T) {
		d := newDaemonSet(t, options{Replicas: 1})
		optOutWithoutController(t, d.sandbox, d.waitComplete)
	})
}

func optOutWithoutController[W metav1.Object](t *testing.T, s *sandbox[W], waitComplete func()) {
	t.Helper()
	t.Parallel()
	first := s.ownController(t, controller.Options{})
	waitComplete()
	first.Stop()
	s.kubectl("label", s.ref, enabled+"-")
	if _, reason, _ := complete(s.get()); reason == "" {
		t.Error("the condition has gone without a controller: the test proves nothing")
	}
	s.ownController(t, controller.Options{})
	s.waitWithdrawn()
}

func TestOptOutDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.annotatePod("web-1", simLasting)
	w.begin("150m", "web-1")
	w.kubectl("label", "statefulset/web", "inplace-rollout.io/enabled-")
	if set := w.get(); held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 0 {
		t.Errorf("still held: %v %+v", set.Annotations, set.Spec.UpdateStrategy)
	}
	w.waitWithdrawn()
	w.kubectl("rollout", "status", "statefulset/web", "--timeout="+patience.String())
	w.assertMoved(0)
	w.assertReplaced(before, "web-0", "web-1")
	w.waitWithdrawn()
}

func TestSwitchToOnDeleteDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.annotatePod("web-1", simLasting)
	w.begin("150m", "web-1")
	w.patch(`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	if hold := holdOf(w.get()); hold != "OnDelete" {
		t.Errorf("it is held by %q", hold)
	}
	w.annotatePod("web-1", simAccepted)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

func TestOnDeleteWaitsForTheDelete(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Spec: "updateStrategy: {type: OnDelete}"})
	before := w.uids()
	w.annotatePod("web-1", simInfeasible)
	w.setResources("cpu=150m", "")
	w.waitFor("the condition WaitingForDelete", func(set *appsv1.StatefulSet) bool {
		return slices.ContainsFunc(set.Status.Conditions, func(c appsv1.StatefulSetCondition) bool {
			return c.Reason == "WaitingForDelete" && strings.HasPrefix(c.Message, "2 of 3 pods resized; web-1: restarts when it is deleted: infeasible")
		})
	})
	w.assertReplaced(before)
	w.kubectl("delete", "pod", "web-1")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
}

func TestDeletedDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	w.annotatePod("web-1", simLasting)
	w.begin("150m", "web-1")
	w.kubectl("delete", "statefulset/web", "--cascade=foreground", "--timeout="+patience.String())
	_, err := client.AppsV1().StatefulSets(w.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the set is still there: %v", err)
	}
	if pods := w.pods(); len(pods) > 0 {
		t.Errorf("%d pods are still there", len(pods))
	}
}
