//go:build around

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestFenceOfALargeTemplate: the API server gives up on an expression that costs too much. That
// must not be for a template as large as some are.
// It alone proves that of an edit and its whole rollout.
func TestFenceOfALargeTemplate(t *testing.T) {
	parallel(t)
	var pod strings.Builder
	fmt.Fprintf(&pod, "containers:\n- {name: app, image: app:1, resources: %s}\n", base)
	for i := range 50 {
		fmt.Fprintf(&pod, "- {name: sidecar-%d, image: app:1, resources: {requests: {cpu: 1m}}, env: [", i)
		for j := range 50 {
			fmt.Fprintf(&pod, "{name: VARIABLE_%d, value: %s}, ", j, strings.Repeat("x", 20))
		}
		pod.WriteString("]}\n")
	}
	o := options{Replicas: 1, Pod: pod.String()}
	w, d, ds := newWorkload(t, o), newDeployment(t, o), newDaemonSet(t, o)
	w.waitComplete()
	d.waitComplete()
	ds.waitComplete()
	ofSet, ofDeployment, before := w.uids(), d.uids(), ds.uids()
	w.setResources("cpu=150m", "")
	d.edit("150m")
	ds.edit("150m")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(ofSet)
	d.assertMoved(ofDeployment, "150m")
	ds.assertMoved(before, "150m")
	if got := d.history(); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("the history is %v", got)
	}
}

// TestDaemonSetOnManyNodes: a tenth of the pods is under way at once, none is replaced, and a pod
// takes two writes.
func TestDaemonSetOnManyNodes(t *testing.T) {
	parallel(t)
	const nodes, limit = 100, 10
	d := newDaemonSet(t, options{Replicas: nodes, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}"})
	d.waitComplete()
	before, log := d.uids(), d.logPods()
	d.markAudit()
	d.edit("150m")
	d.assertMoved(before, "150m")
	most := 0
	log.replay(func(pods map[types.UID]corev1.Pod) {
		underWay := 0
		for _, pod := range pods {
			if cpuOf(pod.Spec.Containers[0].Resources) == "150m" && !hasSize(pod, "150m") {
				underWay++
			}
		}
		most = max(most, underWay)
	})
	if most > limit || most < 2 {
		t.Errorf("%d pods were under way at once, want %d at most", most, limit)
	}
	log.assertReady(nodes)
	log.assertMost(nodes)
	if writes := len(d.writes()); writes > 2.1*nodes {
		t.Errorf("%d writes for %d pods, want at most 2.1 for each", writes, nodes)
	}
	d.assertNoRefusals()
}

// TestControlPlaneRestarts has the API server, etcd and the controller die in the middle of
// rollouts.
func TestControlPlaneRestarts(t *testing.T) {
	slow := `annotations: {sim.inplace-rollout.io/resize-time: "500ms"}`
	w := newWorkload(t, options{Replicas: 4, PodMeta: slow})
	d := newDeployment(t, options{Replicas: 4, PodMeta: slow})
	process := ownController(t, controller.Options{})
	uidsOfSet, uids := w.uids(), d.uids()
	for i, dies := range []func() error{
		func() error { return cp.Restart(t.Context(), "kube-apiserver") },
		func() error { return cp.Restart(t.Context(), "etcd") },
		func() error {
			process.Kill()
			process = ownController(t, controller.Options{})
			return nil
		},
	} {
		cpu := fmt.Sprintf("%dm", 110+10*i)
		w.begin(cpu, "web-3")
		d.beginAny(cpu)
		must.Do(t, dies())
		w.waitComplete()
		d.waitComplete()
		w.assertMoved(0)
		w.assertReplaced(uidsOfSet)
		d.assertMoved(uids, cpu)
	}
}
