//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// onKubelet has the pods run on a node of their own, whose kubelet is of that version.
func onKubelet(t *testing.T, node, version string, o options) options {
	t.Helper()
	if err := cp.AddNode(t.Context(), node, controlplane.Node{
		CPU: "8", Memory: "16Gi", Labels: map[string]string{"pool": node}, Old: strings.HasPrefix(version, "v1.33."), Kubelet: version,
		Taints: []corev1.Taint{{Key: "pool", Value: node, Effect: corev1.TaintEffectNoSchedule}},
	}); err != nil {
		t.Fatal(err)
	}
	o.Pod = "{nodeSelector: {pool: " + node + "}, tolerations: [{key: pool, operator: Exists}]}"
	if strings.HasPrefix(version, "v1.33.") {
		o.PodMeta = "{annotations: {" + simKubelet + `: "1.33"}}`
	}
	return o
}

// TestSilentKubelet: a kubelet of 1.33 says no observedGeneration. Its pods are resized live all the
// same, and one whose size it refuses is restarted.
func TestSilentKubelet(t *testing.T) {
	parallel(t)
	w := newWorkload(t, onKubelet(t, "silent", "v1.33.5-gke.1080000", options{Replicas: 2}))
	before := w.uids()
	for i, edit := range [][2]string{{"cpu=150m,memory=150Mi", "cpu=250m,memory=250Mi"}, {"", "cpu=300m"}, {"memory=160Mi", ""}, {"", "memory=300Mi"}} {
		w.setResources(edit[0], edit[1])
		w.waitComplete()
		w.assertMoved(0)
		w.assertReplaced(before)
		for name, pod := range w.pods() {
			if pod.Status.ObservedGeneration != 0 || pod.Generation != int64(i)+2 {
				t.Errorf("%s: the kubelet has observed generation %d of %d, want 0 of %d", name, pod.Status.ObservedGeneration, pod.Generation, i+2)
			}
		}
	}
	w.annotatePod("web-1", "sim.inplace-rollout.io/resize=infeasible")
	w.setResources("cpu=200m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
	w.waitEvent("RestartFallback", "web-1: restarted by the StatefulSet controller: infeasible on node silent")
}

// TestMemoryLimitOfOldKubelet: Kubernetes 1.33 lowers no memory limit live. That is foreseen, and
// nobody is asked.
func TestMemoryLimitOfOldKubelet(t *testing.T) {
	parallel(t)
	const why = "its kubelet is of version v1.33.5, before 1.34, and lowers memory limits only with the resizePolicy RestartContainer"
	for action, fate := range map[string]string{"LiveResize": "Infeasible", "LiveResizePreferred": "PodRestart"} {
		t.Run(action, func(t *testing.T) {
			parallel(t)
			node := "shrink-" + strings.ToLower(action)
			w := newWorkload(t, onKubelet(t, node, "v1.33.5", options{
				Replicas: 2, Meta: "annotations: {inplace-rollout.io/resource-resize-action: " + action + "}",
			}))
			w.oldKubelets = []string{node}
			before := w.uids()
			edited := w.kubectl("set", "resources", w.ref, "--containers=app", "--limits=memory=150Mi", "--dry-run=client", "--output=yaml")
			plan := command(t, cp.Kubeconfig(), w.namespace, edited, "plan", "-f", "-").stdout
			if want := fmt.Sprintf("node %s does not support it: %s", node, why); strings.Count(plan, fate) != 2 || !strings.Contains(plan, want) {
				t.Errorf("the plan does not say %s, because %s:\n%s", fate, want, plan)
			}
			w.setResources("", "memory=150Mi")
			if action == "LiveResize" {
				w.waitCondition("UnsupportedByNode", fmt.Sprintf("web-1: node %s does not support it: %s; left as it is", node, why))
				w.assertReplaced(before)
			} else {
				w.waitComplete()
				w.assertReplaced(before, "web-0", "web-1")
			}
			for name, pod := range w.pods() {
				if pod.Generation != 1 {
					t.Errorf("%s was asked for another size", name)
				}
			}
		})
	}
}

// TestKnownFaultOfKubelet: plan and the condition say where a resize may meet one.
func TestKnownFaultOfKubelet(t *testing.T) {
	parallel(t)
	w := newWorkload(t, onKubelet(t, "faulty", "v1.36.3-eks-1a2b3c", options{Replicas: 2}))
	before := w.uids()
	w.kubectl("patch", "pod", "web-1", "--subresource=status", "--type=json", "--patch",
		`[{"op": "add", "path": "/status/containerStatuses/0/lastState", "value": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]`)
	w.annotatePod("web-1", "sim.inplace-rollout.io/resize=deferred")
	const note = "kubernetes#138760 may affect web-1 on node faulty (kubelet v1.36.3-eks-1a2b3c): the kubelet raises the memory limit"
	edited := w.kubectl("set", "resources", w.ref, "--containers=app", "--limits=memory=300Mi", "--dry-run=client", "--output=yaml")
	if plan := command(t, cp.Kubeconfig(), w.namespace, edited, "plan", "-f", "-").stdout; !strings.Contains(plan, "Known fault of kubelets: "+note) {
		t.Errorf("the plan does not say that %s:\n%s", note, plan)
	}
	w.setResources("", "memory=300Mi")
	w.waitCondition("Deferred", note)
	w.annotatePod("web-1", "sim.inplace-rollout.io/resize=accepted")
	w.waitComplete()
	w.assertReplaced(before)
}
