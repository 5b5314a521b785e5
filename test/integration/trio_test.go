//go:build integration || around

package integration

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// beat writes one heartbeat, as a controller does, that counts so long.
func beat(t *testing.T, valid time.Duration) {
	t.Helper()
	must.Do(t, controller.Beat(t.Context(), cp, valid))
}

// heartbeat is the value of the annotation.
func heartbeat(t *testing.T) string {
	t.Helper()
	account := must.Get(client.CoreV1().ServiceAccounts(controller.Namespace).Get(t.Context(), api.HeartbeatName, metav1.GetOptions{}))(t)
	return account.Annotations[api.ReadyUntilAnnotation]
}

// trio is a workload of each kind.
type trio struct {
	t  *testing.T
	w  *workload
	d  *deployment
	ds *daemonSet
}

func newTrio(t *testing.T, o options) trio {
	t.Helper()
	return trio{t, newWorkload(t, o), newDeployment(t, o), newDaemonSet(t, o)}
}

// all are the workloads as they are, by what kubectl calls them.
func (x trio) all() map[string]metav1.Object {
	x.t.Helper()
	return map[string]metav1.Object{x.w.ref: x.w.get(), x.d.ref: x.d.get(), x.ds.ref: x.ds.get()}
}

// patchAs edits each of them as kubectl would.
func (x trio) patchAs(manager, patch string) {
	x.t.Helper()
	x.w.patchAs(manager, patch)
	x.d.patchAs(manager, patch)
	x.ds.patchAs(manager, patch)
}

// app is a patch of their container.
func app(fields string) string {
	return "{spec: {template: {spec: {containers: [{name: app, " + fields + "}]}}}}"
}

func (x trio) setImage(image string) {
	x.t.Helper()
	x.patchAs("kubectl-set", app("image: "+strconv.Quote(image)))
}

func (x trio) setCPU(cpu string) {
	x.t.Helper()
	x.patchAs("kubectl-set", app("resources: {requests: {cpu: "+cpu+"}}"))
}

func (x trio) annotate(key, value string) {
	x.t.Helper()
	x.patchAs("kubectl-annotate", "{metadata: {annotations: {"+key+": "+value+"}}}")
}

// waitThere waits until the API server takes it that a controller is there, or that none is: it hears of heartbeats by a watch.
func (x trio) waitThere(there bool) {
	x.t.Helper()
	edit, asked := []byte(`{"spec": {"template": {"metadata": {"labels": {"probe": "probe"}}}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	eventually(x.t, fmt.Sprintf("a controller to be there: %t", there), func() (bool, string) {
		d, err := client.AppsV1().Deployments(x.d.namespace).Patch(x.t.Context(), "web", types.StrategicMergePatchType, edit, asked)
		return err == nil && held(d) == there, must.Said(err)
	})
}

// assertHeld checks for each of them whether its rollout is held.
func (x trio) assertHeld(what string, want bool) {
	x.t.Helper()
	for ref, w := range x.all() {
		must.Equal(x.t, held(w), want, "%s: %s is held", what, ref)
	}
}

// waitRolledOut waits until the built-in controllers have nothing left to do.
func (x trio) waitRolledOut() {
	x.t.Helper()
	x.w.waitAvailable()
	x.d.waitRolledOut()
	x.ds.waitRolledOut()
}

// waitComplete waits until we have nothing left to do.
func (x trio) waitComplete() {
	x.t.Helper()
	x.w.waitComplete()
	x.d.waitComplete()
	x.ds.waitComplete()
}

// uids are those of all their pods.
func (x trio) uids() [3]map[string]types.UID {
	x.t.Helper()
	return [3]map[string]types.UID{x.w.uids(), x.d.uids(), x.ds.uids()}
}

// assertMoved checks that the pods are those of before, and that all of them have the new size.
func (x trio) assertMoved(before [3]map[string]types.UID, cpu string) {
	x.t.Helper()
	x.w.assertMoved(0)
	x.w.assertReplaced(before[0])
	x.d.assertMoved(before[1], cpu)
	x.ds.assertMoved(before[2], cpu)
}

// assertAsBefore checks that their users' own fields are there.
func (x trio) assertAsBefore(partition int32) {
	x.t.Helper()
	if got := x.w.get().Spec.UpdateStrategy.RollingUpdate; got == nil || *got.Partition != partition {
		x.t.Errorf("the set has %+v, want partition %d", got, partition)
	}
	if x.d.get().Spec.Paused {
		x.t.Error("the Deployment is paused")
	}
	must.Equal(x.t, x.ds.get().Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType, "the update strategy of the DaemonSet")
}

// assertMarked checks whether each of them says that it was not held.
func (x trio) assertMarked(want bool) {
	x.t.Helper()
	for ref, w := range x.all() {
		if is, said := w.GetAnnotations()[api.NotHeldAnnotation]; said != want {
			x.t.Errorf("%s says that it was not held: %q, want that: %t", ref, is, want)
		}
	}
}
