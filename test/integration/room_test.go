//go:build integration

package integration

import (
	"testing"
)

// A running pod is not given up for one for which there is no room beside other pods.
func TestNoRoomBesideOthers(t *testing.T) {
	parallel(t)
	addToPool(t, "crowded", "crowded", "1")
	w := newWorkload(t, options{
		Replicas: 2, Pod: "{nodeSelector: {pool: crowded}, tolerations: [{key: pool, operator: Exists}]}", Meta: "annotations: {" + setTimeout + ": 1s}",
	})
	before := w.uids()
	w.annotatePod("web-1", simDeferred)
	w.apply(`{apiVersion: v1, kind: Pod, metadata: {name: crowd, namespace: ` + w.namespace + `}, spec: {nodeName: crowded, containers: [{name: app, image: none, resources: {requests: {cpu: 700m}}}]}}`)
	w.setResources("cpu=300m", "cpu=400m")
	w.waitCondition("NoNodeFits", "1 of 2 pods resized; web-1: not restarted, because the only node that is large enough has no room beside its pods: deferred on node crowded")
	w.waitEvent("NoNodeFits", "web-1")
	w.assertReplaced(before)
	w.kubectl("delete", "pod", "crowd", "--now")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
}
