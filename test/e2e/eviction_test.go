//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// TestEviction has pods of a Deployment that their kubelet can never resize: each is evicted, when its budget lets it. It runs alone,
// because it restarts the kubelet. How many are available meanwhile is judged by test/invariant.
func TestEviction(t *testing.T) {
	giveOutProcessors(t)
	a := newApp(t, options{
		Kind: "Deployment", Replicas: 2, Resources: "{limits: {cpu: 80m, memory: 64Mi}}", Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}",
		Around: "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}}",
	})
	before := a.pods()
	a.kubectl("set", "resources", a.ref, "--containers=app", "--limits=cpu=120m,memory=96Mi")
	a.condition(judge.ReasonDisruptionBudget, "not evicted yet")
	a.event("Deployment", judge.EventDisruptionBudget, "")
	a.assertKept(before, 0)
	for _, pod := range before {
		a.podCondition(pod.Name, corev1.PodResizePending, corev1.PodReasonInfeasible)
		a.assertCgroup(&pod, parse(t, "{requests: {cpu: 80m, memory: 64Mi}, limits: {cpu: 80m, memory: 64Mi}}"))
	}

	a.kubectl("patch", "poddisruptionbudget/web", "--type=merge", "--patch", `{"spec":{"minAvailable":1}}`)
	// A write of the kubelet may break an eviction off that the budget has counted already:
	// its controller waits for the pod to go for two minutes (DeletionTimeout).
	a.completeWithin(patience + 2*time.Minute)
	a.assertEnlarged(before)
}

// assertEnlarged checks that all pods have been replaced by larger ones.
func (a *app) assertEnlarged(before []corev1.Pod) {
	a.t.Helper()
	after := a.pods()
	if len(after) != len(before) {
		a.t.Errorf("pods %v, before %v", names(after), names(before))
	}
	for _, pod := range after {
		if slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == pod.UID }) {
			a.t.Errorf("%s has not been replaced", pod.Name)
		}
		a.assertSize(&pod, parse(a.t, "{requests: {cpu: 120m, memory: 96Mi}, limits: {cpu: 120m, memory: 96Mi}}"))
	}
	if w := a.get(); !w.RolledOut() {
		a.t.Errorf("the built-in controller is not done: %+v", w)
	}
}
