//go:build integration

package integration

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// beat writes one heartbeat, as a controller does, that counts so long.
func beat(t *testing.T, valid time.Duration) {
	t.Helper()
	administer(t, "annotate", "--overwrite", "-n", controller.Namespace, "serviceaccount/"+controller.ServiceAccount,
		api.ReadyUntilAnnotation+"="+time.Now().Add(valid).UTC().Format(time.RFC3339))
}

// heartbeat is the value of the annotation.
func heartbeat(t *testing.T) string {
	t.Helper()
	account, err := client.CoreV1().ServiceAccounts(controller.Namespace).Get(t.Context(), controller.ServiceAccount, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
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

// each does something with each of them.
func (x trio) each(do func(kind string, kubectl func(args ...string) string, get func() metav1.Object)) {
	x.t.Helper()
	do(x.w.ref, x.w.kubectl, func() metav1.Object { return x.w.get() })
	do(x.d.ref, x.d.kubectl, func() metav1.Object { return x.d.get() })
	do(x.ds.ref, x.ds.kubectl, func() metav1.Object { return x.ds.get() })
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

func (x trio) addEnv() {
	x.t.Helper()
	x.patchAs("kubectl-set", app("env: [{name: A, value: b}]"))
}

func (x trio) removeEnv() {
	x.t.Helper()
	x.patchAs("kubectl-set", app("env: [{name: A, $patch: delete}]"))
}

func (x trio) annotate(key, value string) {
	x.t.Helper()
	x.patchAs("kubectl-annotate", "{metadata: {annotations: {"+key+": "+value+"}}}")
}

// assertHeld checks for each of them whether its rollout is held.
func (x trio) assertHeld(what string, want bool) {
	x.t.Helper()
	x.each(func(ref string, _ func(args ...string) string, get func() metav1.Object) {
		if got := held(get()); got != want {
			x.t.Errorf("%s: %s is held: %t, want %t", what, ref, got, want)
		}
	})
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

// assertAsBefore checks that their users' own fields are there.
func (x trio) assertAsBefore(partition int32) {
	x.t.Helper()
	if got := x.w.get().Spec.UpdateStrategy.RollingUpdate; got == nil || *got.Partition != partition {
		x.t.Errorf("the set has %+v, want partition %d", got, partition)
	}
	if x.d.get().Spec.Paused {
		x.t.Error("the Deployment is paused")
	}
	if got := x.ds.get().Spec.UpdateStrategy.Type; got != appsv1.RollingUpdateDaemonSetStrategyType {
		x.t.Errorf("the DaemonSet has the update strategy %s", got)
	}
}

// TestAbsent edits a workload of each kind while a controller is there and while none is. The heartbeat is ours, so that
// there is no controller that would make the rollouts.
func TestAbsent(t *testing.T) {
	x := newTrio(t, options{Replicas: 1})
	live := newTrio(t, options{Replicas: 1, Meta: "annotations: {" + api.ResizeActionAnnotation + ": LiveResize}"})
	letsGo(t)
	t.Cleanup(func() { fall(t) })

	beat(t, time.Minute)
	x.setCPU("150m")
	x.assertHeld("an edit while a controller is there", true)
	fall(t)
	x.annotate("a", "b")
	x.assertHeld("the next write of anybody when it has gone", false)
	x.assertAsBefore(0)
	x.waitRolledOut()

	x.setImage("app:2")
	x.assertHeld("an edit while no controller is there", false)
	x.each(func(ref string, _ func(args ...string) string, get func() metav1.Object) {
		if _, said := get().GetAnnotations()[api.NotHeldAnnotation]; !said {
			t.Errorf("%s does not say that it was not held", ref)
		}
	})
	x.waitRolledOut()
	x.annotate("c", "d")
	x.each(func(ref string, _ func(args ...string) string, get func() metav1.Object) {
		if is, said := get().GetAnnotations()[api.NotHeldAnnotation]; said {
			t.Errorf("%s says of a write that needs no hold that it was not held: %s", ref, is)
		}
	})

	live.setImage("app:2")
	live.assertHeld("an edit with the action LiveResize", true)
	live.annotate("a", "b")
	live.assertHeld("another write with the action LiveResize", true)
	live.annotate(api.ResizeActionAnnotation, "null")
	live.assertHeld("taking the action away, which comes into force with the next edit", true)
	live.setImage("app:3")
	live.assertHeld("that edit", false)
	live.waitRolledOut()

	// What only takes away leaves no time in managedFields.
	x.addEnv()
	x.waitRolledOut()
	x.removeEnv()
	x.assertHeld("an edit that only takes away", false)
	x.waitRolledOut()
	x.addEnv()
	x.waitRolledOut()
	x.setImage("app:3")
	x.waitRolledOut()
	beat(t, 2*time.Second)
	time.Sleep(4 * time.Second)
	x.removeEnv()
	x.assertHeld("an edit that only takes away, when nobody can know that the heartbeat is out of date", true)
	x.setImage("app:4")
	x.assertHeld("an edit when the heartbeat is out of date", false)
	x.waitRolledOut()

	beat(t, time.Minute)
	x.setCPU("160m")
	x.assertHeld("an edit when a controller is back", true)
	process := ownController(t, letGo)
	x.waitComplete()
	if heartbeat(t) == "" {
		t.Error("the controller does not beat")
	}
	process.Stop()
	if is := heartbeat(t); is != "" {
		t.Errorf("a controller that ends leaves its heartbeat %s", is)
	}
}

// TestAbsentServiceAccount deletes the ServiceAccount of the controller, as goes with its namespace, and leaves the policies:
// nothing is held then, and nothing is refused.
func TestAbsentServiceAccount(t *testing.T) {
	one := options{Replicas: 1}
	keeps := options{Replicas: 2, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}"}
	x := trio{t, newWorkload(t, keeps), newDeployment(t, one), newDaemonSet(t, one)}
	live := newTrio(t, options{Replicas: 1, Meta: "annotations: {" + api.ResizeActionAnnotation + ": LiveResize}"})
	defer reinstall(t)()
	letsGo(t)
	beat(t, time.Minute)
	x.setCPU("150m")
	x.assertHeld("an edit while a controller is there", true)

	administer(t, "delete", "serviceaccount", "-n", controller.Namespace, controller.ServiceAccount)
	// By dry runs: an edit that is held before that stays so.
	eventually(t, "the API server to see that", func() (bool, string) {
		out, err := cp.Kubectl(t.Context(), "-n", live.d.namespace, "set", "image", live.d.ref, "app=app:2", "--dry-run=server", "-o", "jsonpath={.metadata.annotations}")
		return err == nil && !strings.Contains(out, api.HoldAnnotation), out + said(err)
	})
	live.setImage("app:2")
	live.assertHeld("an edit without the ServiceAccount", false)
	live.waitRolledOut()
	x.setImage("app:2")
	x.assertHeld("an edit of what was held before", true)
	for _, s := range []interface{ run(args ...string) ran }{x.w, x.d, x.ds} {
		if got := s.run("release", "--all", "--yes"); got.code != 0 {
			t.Errorf("release ended with %d: %s%s", got.code, got.stdout, got.stderr)
		}
	}
	x.assertHeld("what was released", false)
	x.assertAsBefore(1)
	x.setImage("app:3")
	x.assertHeld("an edit after that", false)
	x.d.waitRolledOut()
	x.ds.waitRolledOut()
}

// took is how long it takes to roll out another image.
func (x trio) took(image string) map[string]time.Duration {
	x.t.Helper()
	took, edit := map[string]time.Duration{}, app("image: "+strconv.Quote(image))
	for ref, rollOut := range map[string]func(){
		"StatefulSet": func() { x.w.patchAs("kubectl-set", edit); x.w.waitAvailable() },
		"Deployment":  func() { x.d.patchAs("kubectl-set", edit); x.d.waitRolledOut() },
		"DaemonSet":   func() { x.ds.patchAs("kubectl-set", edit); x.ds.waitRolledOut() },
	} {
		began := time.Now()
		rollOut()
		took[ref] = time.Since(began)
	}
	return took
}

// TestAbsentController ends controllers, in the order of things that go wrong, and looks at how long another image takes
// then, which somebody may need at once.
func TestAbsentController(t *testing.T) {
	letsGo(t)
	x, others := newTrio(t, options{Replicas: 2}), newTrio(t, options{Replicas: 2, OptedOut: true})
	images := 1
	// On a busy machine one of three tries is enough: a hold would delay each of them.
	assertFast := func() {
		t.Helper()
		var slow []string
		for range 3 {
			slow, images = nil, images+1
			image := "app:" + strconv.Itoa(images)
			without := others.took(image)
			took := x.took(image)
			x.assertHeld("an edit while no controller is there", false)
			for kind, most := range without {
				t.Logf("%s: %s, and without the label %s", kind, took[kind], most)
				if took[kind] > most+time.Second {
					slow = append(slow, kind)
				}
			}
			if len(slow) == 0 {
				return
			}
		}
		t.Errorf("%v: it took more than a second longer than without the label", slow)
	}

	process := ownController(t, letGo)
	x.waitComplete()
	process.Stop()
	assertFast()

	// Two take turns. One that was killed counts as there for a while.
	elected := controller.Options{Args: append([]string{"--leader-elect"}, letGo.Args...)}
	first, second := ownController(t, elected), ownController(t, elected)
	eventually(t, "one to beat", func() (bool, string) { return heartbeat(t) != "", "" })
	x.setCPU("150m")
	x.waitComplete()
	killed := time.Now()
	first.Kill()
	second.Kill()
	until := heartbeat(t)
	eventually(t, "the heartbeat to be out of date", func() (bool, string) { return time.Now().UTC().Add(-time.Second).Format(time.RFC3339) > until, until })
	if took := time.Since(killed); took > time.Minute {
		t.Errorf("controllers that were killed count as there for %s", took)
	}
	assertFast()

	// One that comes back in the middle of what the built-in controllers have begun lets them.
	stuck, before := newWorkload(t, options{Replicas: 3}), map[string]types.UID(nil)
	before = stuck.uids()
	stuck.setResources("cpu=9", "cpu=9")
	stuck.waitFor("the last pod to be replaced", func(*appsv1.StatefulSet) bool { return stuck.uids()["web-2"] != before["web-2"] })
	ownController(t, letGo)
	stuck.waitFor("the controller to have looked", func(set *appsv1.StatefulSet) bool {
		status, _, _ := complete(set)
		return status != ""
	})
	if held(stuck.get()) {
		t.Error("a rollout that the built-in controller has begun is held")
	}
	stuck.setResources("cpu=150m", "cpu=200m")
	stuck.waitComplete()
	stuck.assertReplaced(before, "web-2")
}

// TestAbsentLast ends the leader while another replica waits for the lead: that is no moment in which edits are not held.
func TestAbsentLast(t *testing.T) {
	letsGo(t)
	x := newTrio(t, options{Replicas: 1})
	elected := controller.Options{Args: append([]string{"--leader-elect"}, letGo.Args...)}
	first := ownController(t, elected)
	x.waitComplete()
	ownController(t, elected)
	before := x.uids()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		first.Stop()
	}()
	for i, over := 0, false; !over; i++ {
		select {
		case <-gone:
			over = true
		default:
		}
		x.setCPU(strconv.Itoa(110+i%2*10) + "m")
		time.Sleep(250 * time.Millisecond)
	}
	x.waitComplete()
	if after := x.uids(); !maps.Equal(before, after) {
		t.Errorf("pods %v became %v", before, after)
	}
}

// uids are those of the pods of all.
func (x trio) uids() map[string]types.UID {
	x.t.Helper()
	all := x.w.uids()
	maps.Copy(all, x.d.uids())
	maps.Copy(all, x.ds.uids())
	return all
}

// TestAbsentReinstalled takes everything away and installs it again, three times: the API server still sees whether a
// controller is there. Of other kinds of parameters it keeps what it knew (kubernetes/kubernetes#130887).
func TestAbsentReinstalled(t *testing.T) {
	needsPolicies(t)
	x := newTrio(t, options{Replicas: 1})
	defer reinstall(t)()
	t.Cleanup(func() { fall(t) })
	for i := range 3 {
		if err := controller.Uninstall(t.Context(), cp); err != nil {
			t.Fatal(err)
		}
		if err := controller.Install(t.Context(), cp); err != nil {
			t.Fatal(err)
		}
		letsGo(t)
		beat(t, time.Minute)
		x.setImage("app:" + strconv.Itoa(2*i+2))
		x.assertHeld("an edit while a controller is there", true)
		fall(t)
		x.setImage("app:" + strconv.Itoa(2*i+3))
		x.assertHeld("an edit while none is there", false)
		x.waitRolledOut()
	}
}

// TestOptedOutUnseen lets go of workloads that were opted out while they were held, and no policy was there to let go of them.
func TestOptedOutUnseen(t *testing.T) {
	x := newTrio(t, options{Replicas: 1, OptedOut: true})
	x.w.kubectl("patch", x.w.ref, "-p", `{"metadata": {"annotations": {"inplace-rollout.io/hold": "1"}}, "spec": {"updateStrategy": {"rollingUpdate": {"partition": 2147483647}}}}`)
	x.d.kubectl("patch", x.d.ref, "-p", `{"metadata": {"annotations": {"inplace-rollout.io/hold": "false"}}, "spec": {"paused": true}}`)
	x.ds.kubectl("patch", x.ds.ref, "-p", `{"metadata": {"annotations": {"inplace-rollout.io/hold": "RollingUpdate"}}, "spec": {"updateStrategy": {"type": "OnDelete"}}}`)
	for namespace, ref := range map[string]string{x.w.namespace: x.w.ref, x.d.namespace: x.d.ref, x.ds.namespace: x.ds.ref} {
		if got := command(t, cp.Kubeconfig(), namespace, "", "release", ref, "--yes"); got.code != 0 {
			t.Errorf("releasing %s: %s", ref, got.stderr)
		}
	}
	x.assertHeld("released", false)
	x.assertAsBefore(1)
}
