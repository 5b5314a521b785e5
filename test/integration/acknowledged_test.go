//go:build integration

package integration

import (
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestBuiltInControllersAreSlow stops the built-in controllers during an edit: what their status
// says is of the former template. They go on when the controller has had the time to believe it.
func TestBuiltInControllersAreSlow(t *testing.T) {
	w, d := newWorkload(t, options{}), newDeployment(t, options{Replicas: 2})
	ownController(t, controller.Options{})
	w.waitComplete()
	d.waitComplete()
	uidsOfSet, uids := w.uids(), d.uids()
	goOn := must.Get(cp.Pause("kube-controller-manager"))(t)
	t.Cleanup(goOn)
	mark := must.Get(cp.AuditMark())(t)
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	for _, namespace := range []string{w.namespace, d.namespace} {
		eventually(t, "the controller to look at the pods", func() (bool, string) {
			looks, err := cp.AuditAbout(namespace, mark, controlplane.ByUser(controller.User), controlplane.OnResource("pods", ""))
			return err == nil && len(looks) > 0, ""
		})
	}
	time.Sleep(time.Second) // so long it could do wrong
	goOn()
	w.waitComplete()
	d.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(uidsOfSet)
	d.assertMoved(uids, "150m")
}
