//go:build integration

package integration

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	policyv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// injecting returns what makes a workload in a namespace where a webhook changes the containers of new pods.
func injecting(t *testing.T, change func(pod *unstructured.Unstructured, containers []any) []any) func(namespace, manifest string) {
	t.Helper()
	const injected = "injected"
	return func(namespace, manifest string) {
		webhook.Serve(t, client, webhook.Options{Namespace: namespace, Resources: []string{"pods"}, Mutate: func(r *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
			if r.Operation != admissionv1.Create {
				return
			}
			pod.SetAnnotations(map[string]string{injected: "true"})
			containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
			_ = unstructured.SetNestedSlice(pod.Object, change(pod, containers), "spec", "containers")
		}})
		eventually(t, "the webhook to be asked", func() (bool, string) {
			probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}
			made, err := client.CoreV1().Pods(namespace).Create(t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil && made.Annotations[injected] != "", fmt.Sprint(err)
		})
		apply(t, namespace, manifest)
	}
}

// TestGivenBack: admission gives new pods the limit that an edit removes, or another one. Where a LimitRange does, no pod is restarted, and
// where a webhook does, one is, which shows that. The others get what it shows in place, and keep it when something else is edited.
func TestGivenBack(t *testing.T) {
	parallel(t)
	for name, given := range map[string]struct {
		by       func(*testing.T) func(namespace, manifest string)
		restarts int
		limit    string
	}{
		"LimitRange": {func(t *testing.T) func(string, string) {
			return limited(t, "{type: Container, default: {memory: 200Mi}, defaultRequest: {memory: 100Mi}}")
		}, 0, "200Mi"},
		"webhook": {func(t *testing.T) func(string, string) {
			return injecting(t, func(_ *unstructured.Unstructured, containers []any) []any {
				app := containers[0].(map[string]any)
				if _, limited, _ := unstructured.NestedString(app, "resources", "limits", "memory"); !limited {
					_ = unstructured.SetNestedField(app, "300Mi", "resources", "limits", "memory")
				}
				return containers
			})
		}, 1, "300Mi"},
	} {
		inParallel(t, name+" StatefulSet", func(t *testing.T) {
			w := createWorkload(t, options{By: given.by(t)})
			w.waitAvailable()
			loses(w.sandbox, given.restarts, given.limit)
		})
		inParallel(t, name+" Deployment", func(t *testing.T) {
			d := createDeployment(t, options{By: given.by(t)})
			d.waitRolledOut()
			loses(d.sandbox, given.restarts, given.limit)
		})
		inParallel(t, name+" DaemonSet", func(t *testing.T) {
			o := options{By: given.by(t), Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"}
			d := createDaemonSet(t, o)
			d.waitAvailable(o.replicas())
			loses(d.sandbox, given.restarts, given.limit)
		})
	}
}

// loses removes the memory limit from a workload, which restarts so many pods, and gives all of them this one.
func loses[W metav1.Object](s *sandbox[W], restarts int, limit string) {
	s.t.Helper()
	for _, edit := range []struct {
		cpu      string
		restarts int
	}{{"150m", restarts}, {"180m", 0}} {
		s.waitComplete()
		before := s.uids()
		s.patch(`{"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "` + edit.cpu + `"}, "limits": {"memory": null}}}]}}}}`)
		s.waitComplete()
		kept := 0
		for name, pod := range s.pods() {
			if pod.UID == before[name] {
				kept++
			}
			if r := pod.Spec.Containers[0].Resources; cpuOf(r) != edit.cpu || r.Limits.Memory().String() != limit {
				s.t.Errorf("%s has %+v", name, r)
			}
		}
		must.Equal(s.t, kept, len(before)-edit.restarts, "%s: pods of %d that were not restarted", edit.cpu, len(before))
	}
}

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
			x := newTrio(t, options{})
			before := x.uids()
			x.w.serve(again, sizedBy)
			x.d.serve(again, sizedBy)
			x.ds.serve(again, sizedBy)
			x.annotate(cpuAnnotation, "150m")
			must.Equal(t, cpuOf(x.w.get().Spec.Template.Spec.Containers[0].Resources), "150m", "what the webhook has made of the template")
			x.waitComplete()
			x.assertMoved(before, "150m")
		})
	}
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
	must.Equal(t, len(created), 1, "ReplicaSets that were created for the history")
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
		if !strings.Contains(must.Said(err), tt.want) || !strings.Contains(must.Said(err), why) {
			t.Errorf("%s: %s, want %s", tt.ref, must.Said(err), tt.want)
		}
		// What changes no template is nobody's business.
		must.Fails(t, tt.ref, tt.try(t, "annotate", tt.ref, "a=b"), "")
	}
	// Whoever really means it opts out.
	w.kubectl("label", w.ref, enabled+"-")
	d.waitObserved()
	must.Equal(t, d.running(), deploymentBefore, "what runs")
	w.assertReplaced(before)
	ds.assertReplaced(daemonsBefore)
}

// A policy of others changes the memory in each request that resizes a pod: that is told, and put right as soon as it lets it be.
func TestAdmissionBesideTheEdit(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	set := `Object{spec: Object.spec{containers: [Object.spec.containers{name: "app", resources: Object.spec.containers.resources{requests: {"memory": "101Mi"}}}]}}`
	remove := otherPolicy(t, w.namespace, w.namespace, "", func(spec *policyv1.MutatingAdmissionPolicySpec) {
		spec.MatchConstraints.ResourceRules[0].Rule = policyv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/resize"}}
		spec.Mutations = []policyv1.Mutation{{PatchType: policyv1.PatchTypeApplyConfiguration, ApplyConfiguration: &policyv1.ApplyConfiguration{Expression: set}}}
	})
	eventually(t, "the policy to be in force", func() (bool, string) {
		out := w.kubectl("patch", "pod", "web-0", "--subresource=resize", "--dry-run=server", "--output=yaml",
			`--patch={"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"101m"}}}]}}`)
		return strings.Contains(out, "101Mi"), out
	})
	w.setResources("cpu=150m", "")
	w.waitCondition("AdmissionDenied", "an admission plugin changed the size in the request: app: memory request 101Mi→100Mi")
	remove()
	w.waitComplete()
	w.assertReplaced(before)
	for name, pod := range w.pods() {
		must.Equal(t, pod.Spec.Containers[0].Resources.Requests.Memory().String(), "100Mi", "memory request of %s", name)
	}
}
