//go:build integration

package integration

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func cpu(request string) string {
	return fmt.Sprintf("{requests: {cpu: %s, memory: 100Mi}, limits: {cpu: %s, memory: 100Mi}}", request, request)
}

// TestRefusedBirths: where no pod of the older size can be made, because admission refuses it, it is made of the newest. It alone proves
// that with the words of the real admission; the simulation of refused births has every other situation.
func TestRefusedBirths(t *testing.T) {
	parallel(t)
	for name, r := range map[string]struct {
		refuses string // a manifest of what does it
		o       options
		there   int32  // pods that come all the same
		edit    string // to this cpu, which lets the others in
	}{
		"no pods by a LimitRange": {
			refuses: "apiVersion: v1\nkind: LimitRange\nmetadata: {name: most}\nspec: {limits: [{type: Container, max: {cpu: 1}}]}",
			o:       options{Resources: cpu("2")}, edit: "500m",
		},
		"two pods by a quota": {
			refuses: "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small}\nspec: {hard: {requests.cpu: 200m}}",
			o:       options{Resources: cpu("100m"), Spec: "podManagementPolicy: Parallel"}, there: 2, edit: "60m",
		},
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			r.o.By = func(namespace, manifest string) {
				apply(t, namespace, r.refuses)
				eventually(t, "the quota to be counted", func() (bool, string) {
					out, err := cp.Kubectl(t.Context(), "-n", namespace, "get", "resourcequotas,limitranges", "-o", "jsonpath={.items[*].status.hard}{.items[*].spec.limits}")
					return err == nil && out != "", out + said(err)
				})
				apply(t, namespace, manifest)
			}
			w := createWorkload(t, r.o)
			w.waitFor("the pods that are let in", func(set *appsv1.StatefulSet) bool {
				return set.Status.UpdateRevision != "" && set.Status.AvailableReplicas == r.there
			})
			before := w.uids()
			w.setResources("cpu="+r.edit, "cpu="+r.edit)
			w.waitComplete()
			w.assertReplaced(before)
			w.waitFor("all pods", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 3 })
			w.assertMoved(0)
		})
	}
}
