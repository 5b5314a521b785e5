//go:build integration

package integration

import (
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// cpuAnnotation of a workload is what sizedBy sets its template's cpu request from.
const cpuAnnotation = "example.com/cpu"

// setCPU sets the cpu request of the template's first container.
func setCPU(object *unstructured.Unstructured, cpu string) {
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	container := containers[0].(map[string]any)
	_ = unstructured.SetNestedField(container, cpu, "resources", "requests", "cpu")
	_ = unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers")
}

// sizedBy sets the template's cpu from an annotation of the workload, as Kyverno may.
func sizedBy(_ *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
	if cpu := object.GetAnnotations()[cpuAnnotation]; cpu != "" {
		setCPU(object, cpu)
	}
}

// TestWebhookEditsTheTemplate: a write that brings only an annotation has its template
// changed after the hold policy was asked.
func TestWebhookEditsTheTemplate(t *testing.T) {
	parallel(t)
	for name, again := range map[string]bool{"asked once": false, "asked again": true} {
		inParallel(t, name, func(t *testing.T) {
			w, d, ds := newWorkload(t, options{}), newDeployment(t, options{}), newDaemonSet(t, options{})
			before, deploymentBefore, daemonsBefore := w.uids(), d.uids(), ds.uids()
			w.serve(again, sizedBy)
			d.serve(again, sizedBy)
			ds.serve(again, sizedBy)
			w.kubectl("annotate", w.ref, cpuAnnotation+"=150m")
			d.kubectl("annotate", d.ref, cpuAnnotation+"=150m")
			ds.kubectl("annotate", ds.ref, cpuAnnotation+"=150m")
			w.waitFor("the template to be changed", func(set *appsv1.StatefulSet) bool { return templateCPU(set) == "150m" })
			w.waitComplete()
			d.waitComplete()
			ds.waitComplete()
			w.assertMoved(0)
			w.assertReplaced(before)
			d.assertMoved(deploymentBefore, "150m")
			ds.assertMoved(daemonsBefore, "150m")
		})
	}
}

func templateCPU(set *appsv1.StatefulSet) string {
	return set.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String()
}

// TestWebhookChangesTheHistory: one that changes the templates of ReplicaSets lets none have the
// former template. That must not be tried for ever.
func TestWebhookChangesTheHistory(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{})
	before := d.uids()
	var asked atomic.Bool
	webhook.Serve(t, client, webhook.Options{
		Namespace: d.namespace, Resources: []string{"replicasets"}, Mutate: func(r *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
			asked.Store(true)
			if r.Operation == admissionv1.Create {
				_ = unstructured.SetNestedField(object.Object, "yes", "spec", "template", "metadata", "annotations", "example.com/injected")
			}
		},
	})
	eventually(t, "the webhook to be asked", func() (bool, string) {
		d.kubectl("label", "replicaset/"+d.active().Name, "--overwrite", "example.com/asks=yes", "--dry-run=server")
		return asked.Load(), ""
	})
	d.waitComplete()
	d.markAudit()
	d.edit("150m")
	d.assertMoved(before, "150m")
	d.waitEvent("RevisionNotKept", "a mutating webhook changes the template")
	created := d.audited(succeeded, func(e *auditv1.Event) bool { return e.Verb == "create" && e.ObjectRef.Resource == "replicasets" })
	if len(created) != 1 {
		t.Errorf("%d ReplicaSets were created for the history", len(created))
	}
}

// TestWebhookUndoesTheHold: one that has the last word is refused.
func TestWebhookUndoesTheHold(t *testing.T) {
	w, d, ds := newWorkload(t, options{}), newDeployment(t, options{}), newDaemonSet(t, options{})
	before, deploymentBefore, daemonsBefore := w.uids(), d.running(), ds.uids()
	w.serve(true, func(_ *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(object.Object, int64(0), "spec", "updateStrategy", "rollingUpdate", "partition")
	})
	d.serve(true, func(_ *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(object.Object, false, "spec", "paused")
	})
	ds.serve(true, func(_ *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(object.Object, "RollingUpdate", "spec", "updateStrategy", "type")
	})
	const why = "A mutating webhook or another policy must have changed this write of "
	for _, tt := range []struct {
		try  func(*testing.T, ...string) error
		ref  string
		want string
	}{
		{w.try, w.ref, "the pod template changes, and the partition was set to 0 after inplace-rollout had held the rollout"},
		{d.try, d.ref, "the pod template changes, and paused was set to false after inplace-rollout had held the rollout"},
		{ds.try, ds.ref, "the pod template changes, and the update strategy was set to RollingUpdate after inplace-rollout had held the rollout"},
	} {
		err := tt.try(t, "set", "resources", tt.ref, "--requests=cpu=150m")
		if !strings.Contains(said(err), tt.want) || !strings.Contains(said(err), why) {
			t.Errorf("%s: %s, want %s", tt.ref, said(err), tt.want)
		}
		// What changes no template is nobody's business.
		if err := tt.try(t, "annotate", tt.ref, "a=b"); err != nil {
			t.Errorf("%s: %s", tt.ref, said(err))
		}
	}
	// Whoever really means it opts out.
	w.kubectl("label", w.ref, enabled+"-")
	d.waitObserved()
	if after := d.running(); after != deploymentBefore {
		t.Errorf("%s became %s", deploymentBefore, after)
	}
	w.assertReplaced(before)
	ds.assertReplaced(daemonsBefore)
}
