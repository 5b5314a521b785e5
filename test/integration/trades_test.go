//go:build integration

package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// limited has a LimitRange in the namespace before the pods are made.
func limited(t *testing.T, limits string) func(namespace, manifest string) {
	return func(namespace, manifest string) {
		apply(t, namespace, "{apiVersion: v1, kind: LimitRange, metadata: {name: sizes}, spec: {limits: ["+limits+"]}}")
		eventually(t, "the LimitRange to be in force", func() (bool, string) {
			out, err := cp.Kubectl(t.Context(), "-n", namespace, "run", "probe", "--image=none", "--dry-run=server", "-o", "jsonpath={.metadata.annotations}")
			return strings.Contains(out, "LimitRanger"), out + must.Said(err)
		})
		apply(t, namespace, manifest)
	}
}

// A size that no new pod can have either is asked of nobody, restarts nothing, and is
// told: here a request above the limit that a LimitRange gives to all pods.
func TestInvalidSize(t *testing.T) {
	parallel(t)
	s := newWorkload(t, options{Resources: "{requests: {cpu: 100m}}", By: limited(t, "{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m}}")})
	before := s.uids()
	s.setResources("cpu=600m", "")
	const why = "a new pod of this size would be refused, too: app: the cpu request 600m is above the limit 500m, which LimitRange sizes fills in"
	s.waitCondition("Invalid", why+"; left as it is")
	s.waitEvent("Invalid", why)
	must.EqualLists(t, only(s.writes(), "patch pods/resize"), nil, "resizes that cannot be")
	s.setResources("cpu=400m", "")
	s.waitComplete()
	s.assertReplaced(before)
}

// A kubelet that is too old to resize an init container is named.
func TestUnsupportedByNode(t *testing.T) {
	parallel(t)
	must.Do(t, cp.AddNode(t.Context(), "old", controlplane.Node{
		CPU: "4", Memory: "16Gi", Labels: map[string]string{"pool": "old"}, Old: true,
		Taints: []corev1.Taint{{Key: "pool", Value: "old", Effect: corev1.TaintEffectNoSchedule}},
	}))
	w := newWorkload(t, options{Replicas: 2, Meta: liveOnly, Pod: "{nodeSelector: {pool: old}, tolerations: [{key: pool, operator: Exists}], " +
		"initContainers: [{name: init, image: none, resources: {requests: {cpu: 100m}}}]}"})
	before := w.uids()
	w.patch(`{"spec":{"template":{"spec":{"initContainers":[{"name":"init","resources":{"requests":{"cpu":"150m"}}}]}}}}`)
	if cp.AtLeast("1.36") {
		w.waitCondition("UnsupportedByNode", "node old does not support it: pods \"web-1\" is forbidden: pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node")
		w.waitEvent("UnsupportedByNode", "web-1")
	} else { // it is so on every node
		w.waitCondition("Infeasible", "resources for non-sidecar init containers are immutable")
		w.waitEvent("ResizeInfeasible", "web-1")
	}
	w.assertReplaced(before)
}
