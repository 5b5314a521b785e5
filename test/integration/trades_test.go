//go:build integration

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// either is a workload of one of the kinds.
type either interface {
	setResources(requests, limits string)
	setQuota(cpu string)
	waitQuota(used string)
	waitCondition(reason, text string)
	waitEvent(reason, containing string)
	waitComplete()
	names() []string
	tooSmall(pods ...string)
	uids() map[string]types.UID
	assertReplaced(before map[string]types.UID, want ...string)
	writes() []string
	run(args ...string) ran
}

func aSet(t *testing.T, o options) either        { return newWorkload(t, o) }
func aDeployment(t *testing.T, o options) either { return newDeployment(t, o) }

func ref(w either) string {
	if _, is := w.(*deployment); is {
		return "deployment/web"
	}
	return "statefulset/web"
}

// A pod is not evicted, nor restarted by its controller, whose successor a quota would
// not let in: also where the first answer to its resize is that its node is too small.
func TestNoQuotaForTheNext(t *testing.T) {
	const oneGoes, oneComes = "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}", "strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"
	tests := []struct {
		name, spec string
		make       func(*testing.T, options) either
		beside     string // of the quota, for the first new pod
	}{
		{"statefulset", "", aSet, "100m"},
		{"evicted", oneGoes, aDeployment, "100m"},
		{"detached", oneComes, aDeployment, "200m"},
	}
	parallel(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			parallel(t)
			name := "quota-" + tt.name
			w := tt.make(t, options{Replicas: 2, Pod: pool(t, name, "1", "1"), Spec: tt.spec})
			for i := range 3 {
				addToPool(t, name, fmt.Sprintf("%s-large-%d", name, i), "4")
			}
			w.setQuota("1")
			w.waitQuota("200m")
			before := w.uids()
			w.tooSmall(w.names()...)
			w.setResources("cpu=1500m", "cpu=2")
			if cp.AtLeast("1.36") {
				w.waitCondition("QuotaExceeded", "not restarted, because quota quota has no room for requests.cpu 1500m (used: "+tt.beside+" of 1): infeasible on node "+name)
				w.waitEvent("QuotaExceeded", "quota quota has no room")
				if plan := w.run("plan", ref(w)); !strings.Contains(plan.stdout, "quota quota has no room") {
					t.Errorf("plan does not tell of the quota:\n%s%s", plan.stdout, plan.stderr)
				}
			} else { // the quota is asked before the kubelet is
				w.waitCondition("QuotaExceeded", "exceeded quota: quota")
			}
			w.assertReplaced(before)
			for _, write := range w.writes() {
				if strings.Contains(write, "pods/eviction") {
					t.Errorf("asked for an eviction: %s", write)
				}
			}
			w.setQuota("10")
			w.waitComplete()
			w.assertReplaced(before, slices.Sorted(maps.Keys(before))...)
		})
	}
}

// limited has a LimitRange in the namespace before the pods are made.
func limited(t *testing.T, limits string) func(namespace, manifest string) {
	return func(namespace, manifest string) {
		apply(t, namespace, "{apiVersion: v1, kind: LimitRange, metadata: {name: sizes}, spec: {limits: ["+limits+"]}}")
		eventually(t, "the LimitRange to be in force", func() (bool, string) {
			out, err := cp.Kubectl(t.Context(), "-n", namespace, "run", "probe", "--image=none", "--dry-run=server", "-o", "jsonpath={.metadata.annotations}")
			return strings.Contains(out, "LimitRanger"), out + said(err)
		})
		apply(t, namespace, manifest)
	}
}

// A size that no new pod can have either is asked of nobody, restarts nothing, and is
// told: here a request above the limit that a LimitRange gives to all pods.
func TestInvalidSize(t *testing.T) {
	const limit = "{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m}}"
	tests := []struct {
		name, spec, meta string
		make             func(*testing.T, options) either
	}{
		{"parallel", "{podManagementPolicy: Parallel, updateStrategy: {rollingUpdate: {maxUnavailable: 3}}}", "", aSet},
		{"live only", "", "annotations: {inplace-rollout.io/resource-resize-action: LiveResize}", aSet},
		{"restart only", "", "annotations: {inplace-rollout.io/resource-resize-policy: cpu=RestartOnly}", aSet},
		{"deployment", "", "", aDeployment},
		{"deployment restart only", "", "annotations: {inplace-rollout.io/resource-resize-policy: cpu=RestartOnly}", aDeployment},
	}
	parallel(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			parallel(t)
			w := tt.make(t, options{Resources: "{requests: {cpu: 100m}}", Spec: tt.spec, Meta: tt.meta, By: limited(t, limit)})
			before := w.uids()
			w.setResources("cpu=600m", "")
			const why = "a new pod of this size would be refused, too: app: the cpu request 600m is above the limit 500m, which LimitRange sizes fills in"
			w.waitCondition("Invalid", why+"; left as it is")
			w.waitEvent("Invalid", why)
			if plan := w.run("plan", ref(w)); !strings.Contains(plan.stdout, why) || !strings.Contains(plan.stdout, "Infeasible") {
				t.Errorf("plan does not tell of the limit:\n%s%s", plan.stdout, plan.stderr)
			}
			w.assertReplaced(before)
			if asked := only(w.writes(), "patch pods/resize"); len(asked) > 0 {
				t.Errorf("asked for what cannot be: %q", asked)
			}
			w.setResources("cpu=400m", "")
			w.waitComplete()
			if tt.meta == "" {
				w.assertReplaced(before)
			}
		})
	}
}

// Once the LimitRange is gone, a new pod can have the size, and only a new one.
func TestInvalidSizeNoMore(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2, Resources: "{requests: {cpu: 100m}}", By: limited(t, "{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m}}")})
	before := w.uids()
	w.setResources("cpu=600m", "")
	w.waitCondition("Invalid", "above the limit 500m")
	w.assertReplaced(before)
	w.kubectl("delete", "limitrange", "sizes")
	w.waitComplete()
	w.assertReplaced(before, "web-0", "web-1")
}

// Under OnDelete it is told that a pod that is deleted would not come back.
func TestInvalidSizeOnDelete(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{
		Replicas: 2, Resources: "{requests: {cpu: 100m}}", Spec: "updateStrategy: {type: OnDelete}",
		By: limited(t, "{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m}}"),
	})
	w.setResources("cpu=600m", "")
	w.waitCondition("Invalid", "fills in; do not delete it; left as it is")
}

// What breaks a LimitRange is refused for a running pod and for a new one alike.
func TestLimitRangeMaximum(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2, By: limited(t, "{type: Container, max: {cpu: 300m}}")})
	before := w.uids()
	w.setResources("cpu=150m", "cpu=400m")
	w.waitCondition("Invalid", "app: cpu per Container must be at most 300m, and the limit is 400m (LimitRange sizes)")
	w.assertReplaced(before)
	w.kubectl("delete", "limitrange", "sizes")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

// A kubelet that is too old to resize an init container is named; with LiveResize the
// pod is left, otherwise it is restarted.
func TestUnsupportedByNode(t *testing.T) {
	const init = "initContainers: [{name: init, image: none, resources: {requests: {cpu: 100m}}}]"
	bigger := `{"spec":{"template":{"spec":{"initContainers":[{"name":"init","resources":{"requests":{"cpu":"150m"}}}]}}}}`
	parallel(t)
	for _, action := range []string{"LiveResize", "LiveResizePreferred"} {
		t.Run(action, func(t *testing.T) {
			parallel(t)
			pool := "old-" + strings.ToLower(action)
			if err := cp.AddNode(t.Context(), pool, controlplane.Node{
				CPU: "4", Memory: "16Gi", Labels: map[string]string{"pool": pool}, Old: true,
				Taints: []corev1.Taint{{Key: "pool", Value: pool, Effect: corev1.TaintEffectNoSchedule}},
			}); err != nil {
				t.Fatal(err)
			}
			w := newWorkload(t, options{
				Replicas: 2, Pod: "{nodeSelector: {pool: " + pool + "}, tolerations: [{key: pool, operator: Exists}], " + init + "}",
				Meta: "annotations: {inplace-rollout.io/resource-resize-action: " + action + "}",
			})
			before := w.uids()
			w.patch(bigger)
			if action == "LiveResize" {
				if cp.AtLeast("1.36") {
					w.waitCondition("UnsupportedByNode", "node "+pool+" does not support it: pods \"web-1\" is forbidden: pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node")
					w.waitEvent("UnsupportedByNode", "web-1")
				} else { // it is so on every node
					w.waitCondition("Infeasible", "resources for non-sidecar init containers are immutable")
					w.waitEvent("ResizeInfeasible", "web-1")
				}
				w.assertReplaced(before)
				return
			}
			w.waitComplete()
			w.assertReplaced(before, "web-0", "web-1")
			if told := w.events("ResizeError"); len(told) > 0 {
				t.Errorf("what admission refuses is called an error of the kubelet: %q", told)
			}
		})
	}
}

// A kubelet that does not tell what containers have is waited for: here it tells at last.
func TestUntoldResources(t *testing.T) {
	ownController(t, controller.Options{})
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	w.forget("web-1")
	w.setResources("cpu=150m", "")
	w.waitCondition("Progressing", "web-1: waiting for the kubelet of node")
	w.assertReplaced(before)
	w.annotatePod("web-1", simAccepted)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

// One that never tells cannot resize.
func TestUntoldResourcesForTooLong(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	w.forget("web-1")
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
	w.waitEvent("RestartFallback", "does not support it: Pod \"web-1\" is invalid: spec: Forbidden: Pod running on node without support for resize, for more than 3s")
}

// forget has the kubelet tell no more what the pod's container has.
func (s *sandbox[W]) forget(pod string) {
	s.t.Helper()
	s.annotatePod(pod, "sim.inplace-rollout.io/resize=lasting")
	s.kubectl("patch", "pod", pod, "--subresource=status", "--type=json", "--patch", `[{"op":"remove","path":"/status/containerStatuses/0/resources"}]`)
}

// What changes a size on its way may do so to a new pod, too: the pod is kept.
func TestSizeChangedOnItsWay(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	stop, err := webhook.Start(t.Context(), client, webhook.Options{
		Namespace: w.namespace, Resources: []string{"pods/resize"}, Mutate: requesting(map[string]string{"cpu": "120m"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceValue(func() error { return stop(context.Background()) })
	t.Cleanup(func() { _ = ended() })
	eventually(t, "the webhook to be asked", func() (bool, string) {
		out, err := cp.Kubectl(t.Context(), "-n", w.namespace, "patch", "pod", "web-1", "--subresource=resize", "--dry-run=server", "-o", "jsonpath={.spec.containers[0].resources.requests.cpu}",
			"--patch", `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`)
		return out == "120m", out + said(err)
	})
	w.setResources("cpu=150m", "")
	w.waitCondition("AdmissionDenied", "web-1: an admission plugin changed the size in the request: app: cpu request 120m→150m")
	w.assertReplaced(before)
	if err := ended(); err != nil {
		t.Fatal(err)
	}
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}
