//go:build around

package integration

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	versioninfo "github.com/inplace-rollout/inplace-rollout/pkg/version"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// installable is a version that can be installed and run.
type installable struct {
	deploy string // the folder
	binary string
}

// install applies what the version has in deploy/, but runs no pods of it.
func (v installable) install(t *testing.T) {
	t.Helper()
	applyFolder(t, v.deploy)
	administer(t, "scale", "-n", controller.Namespace, "deployment/inplace-rollout", "--replicas=0")
}

// before is a commit that this version must be able to go back to: the first that writes the heartbeat where the policies of this one look,
// while its own look elsewhere.
const before = "54278b71142c9c9193114a26a2c4ef870383320b"

// earlier builds that version, from the history of this repository.
func earlier(t *testing.T) installable {
	t.Helper()
	folder := t.TempDir()
	for _, command := range [][]string{
		{"git", "-C", controller.Root(), "archive", "--output", filepath.Join(folder, "sources.tar"), before},
		{"tar", "--extract", "--file", filepath.Join(folder, "sources.tar"), "--directory", folder},
		{"go", "build", "-C", folder, "-o", "inplace-rollout", "./cmd/inplace-rollout"},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("building the version before this one, from commit %s (is it in this clone? A shallow one lacks it: git fetch --unshallow): %v: %v\n%s", before, command, err, out)
		}
	}
	return installable{filepath.Join(folder, "deploy"), filepath.Join(folder, "inplace-rollout")}
}

// TestUpgrade applies another version of deploy/ in the middle of rollouts, and replaces the replicas of
// the controller one by one: the rollouts end in place, and each edit meanwhile is held, by the policies of either version, as
// controllers of either say that they are there. Where the policies differ, the old replicas
// rest from then on. docs/install.md promises the same for the way back.
// It alone proves that two versions get along, as it builds the one before.
func TestUpgrade(t *testing.T) {
	if way := controller.Hold(cp); way != prerequisite.Policy {
		t.Skipf("not applicable to %s: the version before holds by MutatingAdmissionPolicy only", way)
	}
	now, before := installable{shipped("deploy"), shipped("bin", "inplace-rollout")}, earlier(t)
	defer reinstall(t)()
	t.Run("from the version before", func(t *testing.T) {
		testUpgrade(t, before, now)
		var said struct {
			Client      versioninfo.Info
			Controllers []struct{ Version string }
		}
		got := command(t, cp.Kubeconfig(), controller.Namespace, "", "version", "--output=json")
		if err := json.Unmarshal([]byte(got.stdout), &said); err != nil || got.code != 0 || len(said.Controllers) != 1 || said.Controllers[0].Version != said.Client.LabelValue() {
			t.Errorf("version ended with %d: %v: %s%s", got.code, err, got.stdout, got.stderr)
		}
	})
	t.Run("to the same version", func(t *testing.T) { testUpgrade(t, now, now) })
	t.Run("back to the version before", func(t *testing.T) { testUpgrade(t, now, before) })
}

func testUpgrade(t *testing.T, from, to installable) {
	elected := func(of installable) *controller.Process {
		return ownController(t, controller.Options{Binary: of.binary, Args: []string{"--leader-elect"}})
	}
	from.install(t)
	old := []*controller.Process{elected(from), elected(from)}
	w, d, ds, guarded := newWorkload(t, options{}), newDeployment(t, options{}), newDaemonSet(t, options{}), newWorkload(t, options{})
	guarded.waitComplete()
	guardedBefore := guarded.uids()
	guarded.guard("canary", "1", "canary-duration", "manual")
	guarded.setResources("cpu=150m", "")
	w.waitComplete()
	d.waitComplete()
	ds.waitComplete()
	setBefore, before, daemonsBefore := w.uids(), d.uids(), ds.uids()
	slow, daemon := d.names()[1], ds.on(2).Name
	w.annotatePod("web-1", simDeferred)
	d.annotatePod(slow, simDeferred)
	ds.annotatePod(daemon, simDeferred)
	x := trio{t, w, d, ds}
	edit := func(when, cpu string) {
		t.Helper()
		x.setCPU(cpu)
		x.assertHeld("an edit "+when, true)
		x.assertMarked(false)
	}
	w.markAudit()
	d.markAudit()
	ds.markAudit()
	edit("before", "150m")
	guarded.waitSize("web-2", "150m")
	guarded.waitCondition("Progressing", "canary of ")
	w.waitCondition("Deferred", "web-1")
	d.waitCondition("Deferred", slow)
	ds.waitCondition("Deferred", daemon)

	to.install(t)
	if !held(w.get()) || !held(d.get()) || !held(ds.get()) {
		t.Error("applying deploy/ lets go")
	}
	edit("when the policies have been replaced", "160m")
	if from.deploy != shipped("deploy") {
		slices.Reverse(old) // a leader of that version takes its heartbeat away also where the next one may not beat
	}
	for _, process := range old {
		elected(to)
		process.Stop()
	}
	edit("when the controllers have been replaced, too", "170m")
	w.annotatePod("web-1", simAccepted)
	d.annotatePod(slow, simAccepted)
	ds.annotatePod(daemon, simAccepted)
	w.waitComplete()
	d.waitComplete()
	ds.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(setBefore)
	d.assertMoved(before, "170m")
	ds.assertMoved(daemonsBefore, "170m")
	w.assertNoRefusals()
	d.assertNoRefusals()
	ds.assertNoRefusals()
	// A guarded rollout goes no further by that. The version before does not know the record, and goes by what else there is.
	if asked := guarded.askedPods(); len(asked) != 1 || !held(guarded.get()) {
		t.Errorf("%v have got a size that is not promoted, held: %t", asked, held(guarded.get()))
	}
	if to.deploy == shipped("deploy") {
		guarded.run("promote", guarded.ref)
		guarded.waitComplete()
		guarded.assertMoved(0)
	}
	guarded.assertReplaced(guardedBefore)
}
