//go:build integration

package integration

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// TestClaimBeingDeleted: a claim that goes as soon as no pod uses it takes its data with it, so its pod is kept.
func TestClaimBeingDeleted(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{
		Replicas: 1, Meta: "annotations: {" + setAction + ": Restart}",
		Spec: "volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: '', accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]",
		By: func(namespace, manifest string) {
			apply(t, namespace, `{apiVersion: v1, kind: PersistentVolume, metadata: {name: `+namespace+`}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce],
  storageClassName: '', hostPath: {path: /data}, claimRef: {namespace: `+namespace+`, name: data-web-0}}}`)
			apply(t, namespace, manifest)
		},
	})
	before := w.uids()
	w.kubectl("delete", "pvc", "data-web-0", "--wait=false")
	w.setResources("cpu=300m", "cpu=400m")
	w.waitCondition("NoNodeFits", "web-0: not restarted, because its claim data-web-0 is being deleted: a new pod could not use it")
	w.assertReplaced(before)
}

// TestTwoRolloutsForOneRoom: of two rollouts at once, one gets the room that is left, and the pod of the other one is kept.
func TestTwoRolloutsForOneRoom(t *testing.T) {
	parallel(t)
	addToPool(t, "shared", "shared", "1")
	of := options{
		Replicas: 1, Pod: "{nodeSelector: {pool: shared}, tolerations: [{key: pool, operator: Exists}]}", Meta: "annotations: {" + setAction + ": Restart}",
		Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}",
	}
	one, other := newDeployment(t, of), newDeployment(t, of)
	before := []map[string]types.UID{one.uids(), other.uids()}
	one.setResources("cpu=600m", "cpu=600m")
	other.setResources("cpu=600m", "cpu=600m")
	var kept, done *deployment
	eventually(t, "one is Complete, and the other one kept", func() (bool, string) {
		_, first, _ := complete(one.get())
		_, second, _ := complete(other.get())
		switch {
		case first == judge.ReasonNoNodeFits && isComplete(other.get()):
			kept, done = one, other
		case second == judge.ReasonNoNodeFits && isComplete(one.get()):
			kept, done = other, one
		}
		return kept != nil, first + " and " + second
	})
	if kept == one {
		kept.assertReplaced(before[0])
		done.assertAllReplaced(before[1])
	} else {
		kept.assertReplaced(before[1])
		done.assertAllReplaced(before[0])
	}
}
