//go:build integration

package integration

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/faults"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestLateWrites lets writes of the controller arrive when it has been killed, and what they were
// planned for has changed.
func TestLateWrites(t *testing.T) {
	t.Run("a resize", func(t *testing.T) { // meets a pod of the same name that another set has made
		t.Parallel()
		w := newWorkload(t, options{})
		late := hold(t, w.sandbox, "/pods/web-2/resize", "")
		w.setResources("cpu=150m", "")
		late.strike()
		w.kubectl("delete", w.ref, "--cascade=foreground", "--wait")
		w.apply(manifest(t, w.namespace, options{Resources: "{requests: {cpu: 300m, memory: 100Mi}, limits: {cpu: 400m, memory: 200Mi}}"}))
		w.waitPod("web-2", "to run", func(pod corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
		late.arrivesInVain(http.StatusConflict)
		must.Equal(t, cpuOf(w.pods()["web-2"].Spec.Containers[0].Resources), "300m", "the cpu of another pod")
	})
	t.Run("a label", func(t *testing.T) { // says of a pod that it is of a size that it has no more
		t.Parallel()
		w := newWorkload(t, options{})
		uids := w.uids()
		late := hold(t, w.sandbox, "/pods/web-2", appsv1.ControllerRevisionHashLabelKey)
		w.setResources("cpu=150m", "")
		late.strike()
		w.kubectl("patch", "pod/web-2", "--subresource=resize", `--patch={"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "120m"}}}]}}`)
		late.arrivesInVain(http.StatusConflict)
		if w.pods()["web-2"].Labels[appsv1.ControllerRevisionHashLabelKey] == w.get().Status.UpdateRevision {
			t.Error("web-2 is labelled as updated")
		}
		w.ownController(t, controller.Options{})
		w.waitComplete()
		w.assertMoved(0)
		w.assertReplaced(uids)
	})
	t.Run("Complete", func(t *testing.T) { // after another edit
		t.Parallel()
		w := newWorkload(t, options{})
		late := hold(t, w.sandbox, "/statefulsets/web/status", `"True"`)
		w.setResources("cpu=150m", "")
		late.strike()
		w.setResources("cpu=170m", "")
		late.arrivesInVain(http.StatusConflict)
		if status, _, _ := complete(w.get()); status == corev1.ConditionTrue {
			t.Error("it is said to be complete")
		}
	})
	t.Run("the end of a set's hold", func(t *testing.T) { // lets another edit go
		t.Parallel()
		w := newWorkload(t, options{})
		uids := w.uids()
		late := hold(t, w.sandbox, "/statefulsets/web", api.HoldAnnotation)
		w.setResources("cpu=150m", "")
		late.strike()
		w.setResources("cpu=170m", "")
		late.arrivesInVain(http.StatusConflict)
		w.ownController(t, controller.Options{})
		w.waitComplete()
		w.assertMoved(0)
		w.assertReplaced(uids)
	})
	t.Run("an eviction", func(t *testing.T) { // of a pod that has got its size meanwhile
		t.Parallel()
		d := newDeployment(t, options{Replicas: 2, Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"})
		uids, stuck := d.uids(), d.names()[0]
		d.annotatePod(stuck, simInfeasible)
		late := hold(t, d.sandbox, "/pods/"+stuck+"/eviction", "")
		d.setResources("cpu=150m", "")
		late.strike()
		d.annotatePod(stuck, "sim.inplace-rollout.io/resize=accepted")
		d.waitPod(stuck, "to be resized", func(pod corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) > 0 && cpuOf(*pod.Status.ContainerStatuses[0].Resources) == "150m"
		})
		late.arrivesInVain(http.StatusConflict)
		d.ownController(t, controller.Options{})
		d.waitComplete()
		d.assertMoved(uids, "150m")
	})
}

// lateWrite is a write that is held on its way.
type lateWrite struct {
	t       *testing.T
	proxy   *faults.Proxy
	held    *faults.Held
	process *controller.Process
}

// hold starts a controller, and holds the first of its writes with that path and text.
func hold[W metav1.Object](t *testing.T, s *sandbox[W], path, text string) *lateWrite {
	t.Helper()
	proxy := newProxy(t)
	return &lateWrite{t: t, proxy: proxy,
		held: proxy.Hold(func(r *http.Request, body []byte) bool {
			return strings.HasSuffix(r.URL.Path, path) && bytes.Contains(body, []byte(text))
		}),
		process: s.ownController(t, controller.Options{Server: proxy.URL()}),
	}
}

// strike kills the controller when the write is on its way.
func (l *lateWrite) strike() {
	l.t.Helper()
	select {
	case <-l.held.Reached:
	case <-time.After(patience):
		l.t.Fatal("there was no such write")
	}
	l.process.Kill()
}

// arrivesInVain lets the write arrive, and checks how it is refused.
func (l *lateWrite) arrivesInVain(want int) {
	l.t.Helper()
	must.Equal(l.t, l.held.Release(), want, "the answer")
}

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
