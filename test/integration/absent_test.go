//go:build integration

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestAbsent edits a workload of each kind while a controller is there and while none is. At first the heartbeat is ours, so that
// there is no controller that would make the rollouts.
func TestAbsent(t *testing.T) {
	x := newTrio(t, options{Replicas: 1})
	letsGo(t)
	t.Cleanup(func() { fall(t) })

	beat(t, time.Minute)
	x.waitThere(true)
	x.setCPU("150m")
	x.assertHeld("an edit while a controller is there", true)
	fall(t)
	x.waitThere(false)
	x.annotate("a", "b")
	x.assertHeld("the next write of anybody when it has gone", false)
	x.assertAsBefore(0)
	x.waitRolledOut()

	x.setImage("app:2")
	x.assertHeld("an edit while no controller is there", false)
	x.assertMarked(true)
	x.waitRolledOut()
	x.annotate("c", "d")
	x.assertMarked(false) // it needs no hold

	// What only takes away leaves no time in managedFields.
	x.patchAs("kubectl-set", app("env: [{name: A, value: b}]"))
	x.waitRolledOut()
	x.patchAs("kubectl-set", app("env: [{name: A, $patch: delete}]"))
	x.assertHeld("an edit that only takes away", false)
	x.waitRolledOut()
	beat(t, -time.Minute)
	x.setImage("app:4")
	x.assertHeld("an edit when the heartbeat is out of date", false)
	x.waitRolledOut()

	beat(t, time.Minute)
	x.waitThere(true)
	x.setCPU("160m")
	x.assertHeld("an edit when a controller is back", true)
	process := ownController(t, letGo)
	x.waitComplete()
	if heartbeat(t) == "" {
		t.Error("the controller does not beat")
	}
	process.Stop()
	must.Equal(t, heartbeat(t), "", "the heartbeat that a controller leaves at its end")
	x.waitThere(false)
	x.setImage("app:5")
	x.assertHeld("an edit after that", false)
	x.waitRolledOut()

	beat(t, time.Minute)
	x.waitThere(true)
	x.annotate(api.CanaryAnnotation, `"1"`)
	x.setCPU("170m")
	const optsOut = `--patch={"metadata": {"labels": {"inplace-rollout.io/enabled": null}}}`
	x.w.kubectl("patch", x.w.ref, "--subresource=status", optsOut)
	x.ds.kubectl("patch", x.ds.ref, "--subresource=status", optsOut)
	if w, ds := x.w.get(), x.ds.get(); !policy.Enabled(w) || !policy.Enabled(ds) {
		t.Errorf("a status opts out: %v, %v", w.Labels, ds.Labels)
	}
	fall(t)
	x.waitThere(false)
	x.annotate("e", "f")
	x.assertHeld("an edit with a canary that no controller has looked at", true)
	if ran := x.w.run("release", x.w.ref, "--dry-run"); !strings.Contains(ran.stdout, "goes back to its template from before, because its canary has not proved the size") {
		t.Errorf("%+v", ran)
	}
	x.setImage("app:6")
	x.assertHeld("another edit", false)
	x.waitRolledOut()
}

// TestAbsentServiceAccount deletes the object with the heartbeat, as goes with its namespace, and leaves the policies:
// nothing is held then, and nothing is refused. The next controller makes it again.
func TestAbsentServiceAccount(t *testing.T) {
	x := newTrio(t, options{Replicas: 1})
	defer reinstall(t)()
	letsGo(t)
	administer(t, "delete", "serviceaccount", "-n", controller.Namespace, api.HeartbeatName)
	// By dry runs: an edit that is held before that stays so.
	eventually(t, "the API server to see that", func() (bool, string) {
		out, err := cp.Kubectl(t.Context(), "-n", x.d.namespace, "set", "image", x.d.ref, "app=app:2", "--dry-run=server", "-o", "jsonpath={.metadata.annotations}")
		return err == nil && !strings.Contains(out, api.HoldAnnotation) && !strings.Contains(out, api.NotHeldAnnotation), out + must.Said(err)
	})
	x.setImage("app:2")
	x.assertHeld("an edit without the heartbeat's object", false)
	x.waitRolledOut()
	ownController(t, letGo)
	x.waitThere(true)
	x.setCPU("150m")
	x.waitComplete()
}
