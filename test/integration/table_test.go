//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// cell is what the table says of one outcome of web-1's resize.
type cell struct {
	action, strategy string
	outcome          string
	want             policy.Decision
}

// liveCells are those of the proposal's rows for LiveResizeable; the outcomes of
// the last column are what becomes of web-1 in the end. No action is LiveResizePreferred:
// that this is so for every outcome is proven by TestDecide in pkg/policy.
func liveCells() (cells []cell) {
	for strategy, fallback := range map[string]policy.Decision{"RollingUpdate": policy.RestartByController, "OnDelete": policy.WaitForDelete} {
		for action, fails := range map[string]policy.Decision{"": fallback, "LiveResize": policy.Leave} {
			for _, outcome := range []string{"actuated", "deferred, then clears", "quota"} {
				cells = append(cells, cell{action, strategy, outcome, policy.MarkUpdated})
			}
			for _, outcome := range []string{"deferred past its deadline", "infeasible", "error"} {
				cells = append(cells, cell{action, strategy, outcome, fails})
			}
		}
		cells = append(cells, cell{"LiveResizePreferred", strategy, "infeasible", fallback}, cell{"Restart", strategy, "actuated", fallback})
	}
	return cells
}

// TestTable runs the table on the real control plane: web-1 of two has the
// outcome, web-0 can be resized. It alone proves each cell of the table
// of pkg/policy with the real API server and the real built-in controllers.
func TestTable(t *testing.T) {
	parallel(t)
	for _, c := range liveCells() {
		t.Run(c.name(), func(t *testing.T) {
			parallel(t)
			w := newWorkload(t, options{Replicas: 2, Spec: "updateStrategy: {type: " + c.strategy + "}"})
			runCell(c, w.sandbox, "web-1", "web-0", func() { w.assertMoved(0) })
		})
	}
}

// TestTableOfDaemonSets does the same with the pod on the first of two nodes.
func TestTableOfDaemonSets(t *testing.T) {
	parallel(t)
	for _, c := range liveCells() {
		t.Run(c.name(), func(t *testing.T) {
			parallel(t)
			d := newDaemonSet(t, options{Replicas: 2, Spec: "updateStrategy: {type: " + c.strategy + "}"})
			runCell(c, d.sandbox, d.on(1).Name, d.on(2).Name, func() {
				d.assertSettled(cpuOf(d.get().Spec.Template.Spec.Containers[0].Resources))
				must.Equal(t, string(d.get().Spec.UpdateStrategy.Type), c.strategy, "the user's strategy")
			})
		})
	}
}

func (c cell) name() string {
	action := c.action
	if action == "" {
		action = "none"
	}
	return strings.NewReplacer(" ", "-", ",", "").Replace(action + "/" + c.strategy + "/" + c.outcome)
}

// runCell edits a workload of two pods, of which stuck is the first in the order, and has the outcome.
func runCell[W metav1.Object](c cell, s *sandbox[W], stuck, other string, assertMoved func()) {
	before := s.uids()
	if c.action != "" {
		s.kubectl("annotate", s.ref, setAction+"="+c.action)
	}
	switch c.outcome {
	case "infeasible":
		s.annotatePod(stuck, simInfeasible)
	case "error":
		s.annotatePod(stuck, "sim.inplace-rollout.io/resize=error")
	case "deferred, then clears":
		s.annotatePod(stuck, simDeferred)
	case "deferred past its deadline":
		s.kubectl("annotate", s.ref, setTimeout+"=2s")
		s.annotatePod(stuck, simDeferred)
	case "quota":
		s.apply(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota}, spec: {hard: {requests.cpu: 220m}}}`)
		s.waitQuota("200m")
	}
	s.setResources("cpu=150m", "")
	switch c.outcome {
	case "deferred, then clears":
		done := map[bool]string{true: "0", false: "1"}[s.kind == "StatefulSet"] // which keeps its order
		s.waitCondition("Deferred", done+" of 2 pods resized; "+stuck+": deferred on node")
		s.assertReplaced(before)
		s.annotatePod(stuck, simAccepted)
	case "quota":
		s.waitCondition("QuotaExceeded", "0 of 2 pods resized; "+stuck)
		s.assertReplaced(before)
		s.kubectl("delete", "resourcequota/quota")
	}
	checkCell(c, s, before, stuck, other, assertMoved)
}

func checkCell[W metav1.Object](c cell, s *sandbox[W], before map[string]types.UID, stuck, other string, assertMoved func()) {
	restarts := []string{stuck}
	if c.action == "Restart" {
		restarts = append(restarts, other)
	}
	switch c.want {
	case policy.MarkUpdated:
		s.waitComplete()
		assertMoved()
		s.assertReplaced(before)
	case policy.RestartByController:
		s.waitComplete()
		assertMoved()
		s.assertReplaced(before, restarts...)
	case policy.WaitForDelete:
		s.waitCondition("WaitingForDelete", fmt.Sprintf("%d of 2 pods resized; %s: restarts when it is deleted", 2-len(restarts), stuck))
		s.waitEvent("WaitingForDelete", stuck)
		s.assertReplaced(before)
		s.kubectl(append([]string{"delete", "pod"}, restarts...)...)
		s.waitComplete()
		assertMoved()
		s.assertReplaced(before, restarts...)
	case policy.Leave:
		reason := map[string]string{"infeasible": "Infeasible", "error": "ResizeError"}[c.outcome]
		if reason == "" {
			reason = "Deferred"
		}
		s.waitCondition(reason, "1 of 2 pods resized; "+stuck)
		s.waitCondition(reason, "left as it is")
		s.assertReplaced(before)
		s.setResources("cpu=100m", "") // back: it mends every pod
		s.annotatePod(stuck, simAccepted)
		s.waitComplete()
		assertMoved()
		s.assertReplaced(before)
	}
}

// pool makes nodes that only this test's pods can use.
func pool(t *testing.T, name string, cpus ...string) (pod string) {
	t.Helper()
	for i, cpu := range cpus {
		addToPool(t, name, fmt.Sprintf("%s-%d", name, i), cpu)
	}
	return fmt.Sprintf(`
nodeSelector: {pool: %s}
tolerations: [{key: pool, operator: Exists}]
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: web}}, topologyKey: kubernetes.io/hostname}]}}
`, name)
}

// apart is a pool for the pods of a test that asks for more than any node has. Before 1.36 API servers take
// that, and then the nodes are full of it: no other test is to find that out.
func apart(t *testing.T, name string) (pod string) {
	t.Helper()
	if cp.AtLeast("1.36") {
		return ""
	}
	return pool(t, name, "8", "8", "8")
}

// TestFlow is the flow T=0…T=12 of KEP-1287, driven by edits of the template: 1,
// 1.5, 2 (deferred), 1.6, 100 (infeasible).
func TestFlow(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 1, Resources: "{requests: {cpu: 1}}", Meta: "annotations: {" + setAction + ": LiveResize}", Pod: apart(t, "flow")})
	before := w.uids()
	step := func(what, spec, allocated, pending string) {
		t.Helper()
		w.waitPod("web-0", what, func(pod corev1.Pod) bool {
			status := pod.Status.ContainerStatuses[0]
			reason := ""
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
					reason = c.Reason
				}
			}
			return pod.Spec.Containers[0].Resources.Requests.Cpu().String() == spec &&
				status.AllocatedResources.Cpu().String() == allocated && status.Resources.Requests.Cpu().String() == allocated && reason == pending
		})
		w.assertReplaced(before)
	}
	step("T=2: runs", "1", "1", "")
	w.setResources("cpu=1500m", "")
	w.waitComplete()
	step("T=6: the first resize is actuated", "1500m", "1500m", "")
	w.annotatePod("web-0", "sim.inplace-rollout.io/resize=deferred")
	w.setResources("cpu=2", "")
	step("T=7: the second is deferred", "2", "1500m", "Deferred")
	w.waitCondition("Deferred", "0 of 1 pods resized; web-0: deferred on node")
	w.setResources("cpu=1600m", "")
	w.annotatePod("web-0", simAccepted)
	w.waitComplete()
	step("T=10: the third is actuated", "1600m", "1600m", "")
	w.tooSmall("web-0")
	w.setResources("cpu=100", "")
	if cp.AtLeast("1.36") { // the API server itself says so, and the pod's spec stays
		w.waitCondition("Infeasible", "cpu, requested: 100")
		step("T=12: the fourth is infeasible", "1600m", "1600m", "")
	} else {
		w.waitCondition("Infeasible", "cpu, requested: ")
		step("T=12: the fourth is infeasible", "100", "1600m", "Infeasible")
	}
}
