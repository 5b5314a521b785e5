//go:build integration

package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// letsGo has edits go unheld while no controller is there, for the rest of the test.
func letsGo(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := controller.WhenAbsent(context.Background(), cp, api.Hold); err != nil {
			t.Error(err)
		}
	})
	if err := controller.WhenAbsent(t.Context(), cp, api.LetGo); err != nil {
		t.Fatal(err)
	}
}

// beat writes one heartbeat, as a controller does, that counts so long.
func beat(t *testing.T, valid time.Duration) {
	t.Helper()
	administer(t, "annotate", "--overwrite", "-n", controller.Namespace, "serviceaccount/"+controller.ServiceAccount,
		api.ReadyUntilAnnotation+"="+time.Now().Add(valid).UTC().Format(time.RFC3339))
}

// fall takes the heartbeat away, as a controller does that ends.
func fall(t *testing.T) {
	t.Helper()
	if _, err := cp.Kubectl(context.Background(), "annotate", "-n", controller.Namespace, "serviceaccount/"+controller.ServiceAccount, api.ReadyUntilAnnotation+"-"); err != nil {
		t.Error(err)
	}
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

// kubectl runs it for each of them, with its name put in for WEB.
func (x trio) kubectl(args ...string) {
	x.t.Helper()
	x.each(func(ref string, kubectl func(args ...string) string, _ func() metav1.Object) {
		var with []string
		for _, arg := range args {
			with = append(with, strings.ReplaceAll(arg, "WEB", ref))
		}
		kubectl(with...)
	})
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
	x.kubectl("set", "resources", "WEB", "--requests=cpu=150m")
	x.assertHeld("an edit while a controller is there", true)
	fall(t)
	x.kubectl("annotate", "WEB", "a=b")
	x.assertHeld("the next write of anybody when it has gone", false)
	x.assertAsBefore(0)
	x.waitRolledOut()

	x.kubectl("set", "image", "WEB", "app=app:2")
	x.assertHeld("an edit while no controller is there", false)
	x.each(func(ref string, _ func(args ...string) string, get func() metav1.Object) {
		if _, said := get().GetAnnotations()[api.NotHeldAnnotation]; !said {
			t.Errorf("%s does not say that it was not held", ref)
		}
	})
	x.waitRolledOut()
	x.kubectl("annotate", "WEB", "c=d")
	x.each(func(ref string, _ func(args ...string) string, get func() metav1.Object) {
		if is, said := get().GetAnnotations()[api.NotHeldAnnotation]; said {
			t.Errorf("%s says of a write that needs no hold that it was not held: %s", ref, is)
		}
	})

	live.kubectl("set", "image", "WEB", "app=app:2")
	live.assertHeld("an edit with the action LiveResize", true)
	live.kubectl("annotate", "WEB", "a=b")
	live.assertHeld("another write with the action LiveResize", true)
	live.kubectl("annotate", "WEB", api.ResizeActionAnnotation+"-")
	live.assertHeld("taking the action away, which comes into force with the next edit", true)
	live.kubectl("set", "image", "WEB", "app=app:3")
	live.assertHeld("that edit", false)
	live.waitRolledOut()

	// What only takes away leaves no time in managedFields.
	x.kubectl("set", "env", "WEB", "A=b")
	x.waitRolledOut()
	x.kubectl("set", "env", "WEB", "A-")
	x.assertHeld("an edit that only takes away", false)
	x.waitRolledOut()

	beat(t, time.Minute)
	x.kubectl("set", "resources", "WEB", "--requests=cpu=160m")
	x.assertHeld("an edit when a controller is back", true)
	process := ownController(t, controller.Options{Args: []string{"--when-absent=" + api.LetGo}})
	x.waitComplete()
	if heartbeat(t) == "" {
		t.Error("the controller does not beat")
	}
	process.Stop()
	if is := heartbeat(t); is != "" {
		t.Errorf("a controller that ends leaves its heartbeat %s", is)
	}
}
