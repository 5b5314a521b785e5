//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// waitNotReady waits until a controller is not ready and says this.
func waitNotReady(t *testing.T, process *controller.Process, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the controller to say %q", want), func() (bool, string) {
		err := process.Ready(t.Context())
		return strings.Contains(said(err), want), said(err)
	})
}

// assertEditsHeld checks of which kinds the metric says that edits are held.
func assertEditsHeld(t *testing.T, process *controller.Process, want func(kind string) bool) {
	t.Helper()
	eventually(t, "the metrics to say which edits are held", func() (bool, string) { // a dry run without an answer shows nothing
		metrics, err := process.Metrics(t.Context())
		if err != nil {
			return false, err.Error()
		}
		for _, kind := range prerequisite.HeldKinds {
			is := 0
			if want(kind) {
				is = 1
			}
			if line := fmt.Sprintf("inplace_rollout_edits_held{kind=%q} %d", kind, is); !strings.Contains(metrics, line+"\n") {
				return false, "they lack " + line
			}
		}
		return true, ""
	})
}

func everyKind(string) bool { return true }
func noKind(string) bool    { return false }

// interfere serves a webhook in the namespace of the controller, of which nobody there knows, and waits until it is asked.
func interfere(t *testing.T, resources []string, ask []string, mutate webhook.Mutate) (stop func()) {
	t.Helper()
	var asked atomic.Bool
	end, err := webhook.Start(t.Context(), client, webhook.Options{
		Namespace: controller.Namespace, Resources: resources, Again: true, Mutate: func(r *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
			asked.Store(true)
			mutate(r, object)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop = func() {
		t.Helper()
		if err := end(t.Context()); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "the webhook to be asked", func() (bool, string) {
		administer(t, append(ask, "--dry-run=server", "-n", controller.Namespace)...)
		return asked.Load(), ""
	})
	return stop
}

var letGo = controller.Options{Args: []string{"--when-absent=" + api.LetGo}}

// TestHeldIsUndone: everything is installed, and a webhook of somebody else takes the hold of one kind away. A controller
// finds that out at its start, and when something of its own has changed.
func TestHeldIsUndone(t *testing.T) {
	letsGo(t)
	process := ownController(t, letGo)
	assertEditsHeld(t, process, everyKind)
	for kind, undo := range map[string]struct {
		path  []string
		value any
	}{
		"StatefulSet": {[]string{"spec", "updateStrategy", "rollingUpdate", "partition"}, int64(0)},
		"Deployment":  {[]string{"spec", "paused"}, false},
		"DaemonSet":   {[]string{"spec", "updateStrategy", "type"}, "RollingUpdate"},
	} {
		stop := interfere(t, nil, []string{"create", "deployment", "some", "--image=some"}, func(_ *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
			if object.GetKind() == kind {
				_ = unstructured.SetNestedField(object.Object, undo.value, undo.path...)
			}
		})
		want := "edits of " + kind + "s are not held: another policy or a mutating webhook removes the hold"
		others := func(other string) bool { return other != kind }
		fresh, err := launch(letGo)
		if err != nil {
			t.Fatal(err)
		}
		waitNotReady(t, fresh, want)
		assertEditsHeld(t, fresh, others)
		fresh.Stop()
		administer(t, "annotate", "validatingadmissionpolicy", "inplace-rollout-guard-statefulsets", "--overwrite", "example.com/for="+kind)
		waitNotReady(t, process, want)
		assertEditsHeld(t, process, others)
		stop()
		if err := process.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		assertEditsHeld(t, process, everyKind)
	}
}

// TestHeldByNobody: the heartbeat does not reach the policies, because somebody takes it away. Then edits are not held, and
// the leader says so; what is held all the same, it goes on with. The other replica is ready, or no upgrade would go on.
func TestHeldByNobody(t *testing.T) {
	letsGo(t)
	w := newWorkload(t, options{Meta: "annotations: {" + api.ResizeActionAnnotation + ": LiveResize}"})
	stop := interfere(t, []string{"serviceaccounts"}, []string{"annotate", "serviceaccount", "default", "a=b"}, func(_ *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations", api.ReadyUntilAnnotation)
	})
	elected := controller.Options{Args: append([]string{"--leader-elect"}, letGo.Args...)}
	leader, err := launch(elected)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leader.Stop)
	waitNotReady(t, leader, "edits of StatefulSets, Deployments, DaemonSets are not held: the annotation "+api.ReadyUntilAnnotation+" of ServiceAccount "+controller.Namespace+"/"+
		controller.ServiceAccount+" does not say that a controller is there")
	assertEditsHeld(t, leader, noKind)
	other := ownController(t, elected)
	assertEditsHeld(t, other, noKind)
	before := w.uids()
	w.setResources("cpu=150m", "")
	if !held(w.get()) {
		t.Error("an edit with the action LiveResize is not held")
	}
	w.waitComplete()
	w.assertReplaced(before)
	if err := leader.Ready(t.Context()); err == nil {
		t.Error("the leader is ready")
	}
	stop()
	if err := leader.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	assertEditsHeld(t, leader, everyKind)
	eventually(t, "the other replica to find that edits are held", func() (bool, string) {
		metrics, err := other.Metrics(t.Context())
		return strings.Contains(metrics, `inplace_rollout_edits_held{kind="DaemonSet"} 1`), said(err)
	})
}

// TestReadyMeansHeld takes away what holds, three times, and installs it again. As soon as a controller is ready then, edits
// are held: API servers apply what they have accepted a second later.
func TestReadyMeansHeld(t *testing.T) {
	x := newTrio(t, options{Replicas: 1})
	defer reinstall(t)()
	letsGo(t)
	process := ownController(t, letGo)
	x.waitComplete()
	for i := range 3 {
		if controller.Hold(cp) == prerequisite.Webhook {
			administer(t, "delete", "mutatingwebhookconfiguration", prerequisite.WebhookConfiguration)
			waitNotReady(t, process, "is missing")
		} else {
			administer(t, append([]string{"delete", "mutatingadmissionpolicybindings"}, prerequisite.MutatingPolicies...)...)
			waitNotReady(t, process, "MutatingAdmissionPolicyBinding inplace-rollout-hold-statefulsets is missing")
			administer(t, append([]string{"delete", "mutatingadmissionpolicies"}, prerequisite.MutatingPolicies...)...)
		}
		assertEditsHeld(t, process, noKind)
		process.Stop()
		if controller.Hold(cp) == prerequisite.Policy {
			administer(t, "apply", "-k", filepath.Join(controller.Root(), "deploy", "cluster"))
		} else if err := install(t.Context()); err != nil {
			t.Fatal(err)
		}
		process = ownController(t, letGo)
		before := x.uids()
		x.setCPU(fmt.Sprintf("%dm", 150+10*i))
		x.waitComplete()
		if after := x.uids(); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("pods %v became %v", before, after)
		}
	}
	x.assertAsBefore(0)
}

// TestHeldByNoPolicy: everything is installed, as it should be, and the API server applies none of it.
func TestHeldByNoPolicy(t *testing.T) {
	needsPolicies(t)
	without, err := controlplane.Start(t.Context(), controlplane.Options{Flags: map[string][]string{"kube-apiserver": {"--disable-admission-plugins=MutatingAdmissionPolicy"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := without.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := without.Kubectl(t.Context(), "apply", "-k", filepath.Join(controller.Root(), "deploy")); err != nil {
		t.Fatal(err)
	}
	process, err := controller.Start(t.Context(), without, letGo)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Stop)
	for _, policy := range []string{"inplace-rollout-hold-statefulsets", "inplace-rollout-hold-deployments", "inplace-rollout-hold-daemonsets"} {
		waitNotReady(t, process, "the API server does not apply MutatingAdmissionPolicy "+policy+", though it is installed. The admission plugin MutatingAdmissionPolicy may be off")
	}
	assertEditsHeld(t, process, noKind)
	if until, err := without.Kubectl(t.Context(), "get", "serviceaccount", controller.ServiceAccount, "-n", controller.Namespace, "-o", "jsonpath={.metadata.annotations}"); err != nil || strings.Contains(until, api.ReadyUntilAnnotation) {
		t.Errorf("the controller says that it is there: %s %v", until, err)
	}
	for _, args := range [][]string{
		{"create", "deployment", "web", "--image=app:1", "--replicas=1"}, {"label", "deployment/web", api.EnabledLabel + "=true"},
		{"set", "image", "deployment/web", "*=app:2"},
	} {
		if _, err := without.Kubectl(t.Context(), args...); err != nil {
			t.Errorf("nothing is held, and so nothing is to be refused: %v", err)
		}
	}
}

// TestHeldIsAskedByDryRunsOnly: nothing is ever there of what is asked, and an idle controller asks seldom.
func TestHeldIsAskedByDryRunsOnly(t *testing.T) {
	letsGo(t)
	mark, err := cp.AuditMark()
	if err != nil {
		t.Fatal(err)
	}
	process := ownController(t, letGo)
	if err := process.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	asked, err := cp.AuditAbout(api.DryRunName, mark, controlplane.ByUser(controller.User))
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) < len(prerequisite.HeldKinds) {
		t.Errorf("%d dry runs until the controller was ready", len(asked))
	}
	for _, e := range asked {
		if !strings.Contains(e.RequestURI, "dryRun=All") || e.ResponseStatus.Code != 201 {
			t.Errorf("%s %s: %d %s", e.Verb, e.RequestURI, e.ResponseStatus.Code, e.ResponseStatus.Message)
		}
	}
	if found := administer(t, "get", "statefulsets,deployments,daemonsets", "-n", controller.Namespace, "-o", "name"); strings.Contains(found, api.DryRunName) {
		t.Errorf("there are %s", found)
	}
}
