//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestCreatedAgainAroundItsPods: a set is deleted without its pods, as to change its
// volumeClaimTemplates, and created again with another size.
func TestCreatedAgainAroundItsPods(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	w.waitComplete()
	before := w.uids()
	w.kubectl("delete", w.ref, "--cascade=orphan")
	again := manifest(t, w.namespace, options{Resources: largerThanBase})
	got := w.run("plan", "-f", writeFile(t, again))
	if strings.Count(got.stdout, " Live  ") != 3 || !strings.Contains(got.stdout, "it does not exist yet, and adopts these pods: ") {
		t.Errorf("plan ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
	w.apply(again)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

// TestCreate: holding a new set costs one write, makes no pod wait, and is nothing to
// tell of. Writes that lost against others do not count.
func TestCreate(t *testing.T) {
	parallel(t)
	w := createWorkload(t, options{})
	w.kubectl("rollout", "status", w.ref, "--timeout="+patience.String())
	w.waitComplete()
	w.assertMoved(0)
	writes := w.writes()
	lost := func(write string) bool { return strings.HasSuffix(write, " 409") }
	must.Equal(t, len(slices.DeleteFunc(only(writes, "patch statefulsets"), lost)), 1, "writes to the set among %v", writes)
	if pods, _ := tally(writes); len(pods) > 0 {
		t.Errorf("wrote to pods: %v", writes)
	}
	must.EqualLists(t, slices.Concat(w.events("RolloutStarted"), w.events("HandedOver")), nil, "events")
	w.waitEvent("RolloutComplete", "all pods")
}

// TestCreateWithoutController: a new set has all its pods, and they come back.
func TestCreateWithoutController(t *testing.T) {
	w := createWorkload(t, options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}"})
	w.waitAvailable()
	if set := w.get(); holdOf(set) != "1" || *set.Spec.UpdateStrategy.RollingUpdate.Partition != all {
		t.Errorf("created: %s", describe(set))
	}
	before := w.uids()
	w.kubectl("scale", w.ref, "--replicas=4")
	w.kubectl("delete", "pod", "web-2")
	w.waitPod("web-2", "to be another one", func(pod corev1.Pod) bool { return pod.UID != before["web-2"] })
	w.waitAvailable()
	w.assertReplaced(before, "web-2")
}

// TestCreateDaemonSetWithoutController: a new DaemonSet is held, and every node gets its pod all the same, also one that has lost it.
// So a cluster that is built again comes up, though nobody lets go of its network.
func TestCreateDaemonSetWithoutController(t *testing.T) {
	d := createDaemonSet(t, options{})
	d.waitAvailable(3)
	set := d.get()
	if set.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType || set.Annotations[api.HoldAnnotation] != "RollingUpdate" {
		t.Errorf("created: %s", describe(set))
	}
	before := d.on(1)
	d.kubectl("delete", "pod", before.Name)
	d.waitOn(1, "to be another one", func(pod corev1.Pod) bool { return pod.UID != before.UID })
	d.waitAvailable(3)
}

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
		inParallel(t, name, func(t *testing.T) {
			r.o.By = func(namespace, manifest string) {
				apply(t, namespace, r.refuses)
				eventually(t, "the quota to be counted", func() (bool, string) {
					out, err := cp.Kubectl(t.Context(), "-n", namespace, "get", "resourcequotas,limitranges", "-o", "jsonpath={.items[*].status.hard}{.items[*].spec.limits}")
					return err == nil && out != "", out + must.Said(err)
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
