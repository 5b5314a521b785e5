//go:build integration

package integration

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// simDone lets the simulated kubelet resize the pod after all.
const simDone = "sim.inplace-rollout.io/resize-"

// mallory may do in a sandbox's namespace what a ClusterRole allows, such as edit.
func (s *sandbox[W]) mallory(clusterRole string) (do func(args ...string)) {
	s.t.Helper()
	s.allow("mallory", "--clusterrole="+clusterRole, "get", "pods")
	return func(args ...string) {
		s.t.Helper()
		s.kubectl(append([]string{"--as=mallory"}, args...)...)
	}
}

// TestForgedMark: somebody who may patch ReplicaSets, and not create them, marks one as adopted
// from a template that mounts a Secret, with all of its pods to be restarted. The mark is
// written before an edit or in the middle of one.
func TestForgedMark(t *testing.T) {
	parallel(t)
	secret := func(template *corev1.PodTemplateSpec) {
		template.Spec.Volumes = []corev1.Volume{{Name: "stolen", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "stolen"}}}}
	}
	spelling := func(template *corev1.PodTemplateSpec) {
		template.Spec.Containers[0].TerminationMessagePath = ""
		template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("90m")
	}
	for _, tt := range []struct {
		name   string
		during bool
		forge  func(*corev1.PodTemplateSpec)
	}{
		{"at rest", false, secret},
		{"during a rollout", true, secret},
		{"in another spelling", true, spelling},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{Replicas: 2})
			d.waitComplete()
			d.kubectl("create", "role", "patch-replicasets", "--resource=replicasets.apps", "--verb=get,patch")
			d.allow("mallory", "--role=patch-replicasets", "patch", "replicasets.apps")
			live, before := d.active(), d.uids()
			template := templateOf(live)
			tt.forge(&template)
			mark, err := json.Marshal(map[string]any{
				"template": template, "annotations": map[string]string{revisionAnnotation: "7"}, "restarts": d.names(), "closed": true,
			})
			if err != nil {
				t.Fatal(err)
			}
			if tt.during {
				d.annotatePod(d.names()[0], simDeferred)
				d.begin("150m", d.names()[0])
			}
			d.kubectl("--as=mallory", "annotate", "replicaset/"+live.Name, api.AdoptedAnnotation+"="+string(mark))
			if tt.during {
				d.annotatePod(d.names()[0], simDone)
			} else {
				d.setResources("cpu=150m", "")
			}
			d.waitComplete()
			d.assertMoved(before, "150m")
			d.assertReplicaSets(3) // somebody who may patch ReplicaSets could make a revision of another size, too
			for _, rs := range d.replicaSets() {
				if len(rs.Spec.Template.Spec.Volumes) > 0 || rs.Annotations[api.AdoptedAnnotation] != "" {
					t.Errorf("ReplicaSet %s has the volumes %v and the annotations %v", rs.Name, rs.Spec.Template.Spec.Volumes, rs.Annotations)
				}
			}
			if after := summary(d.replicaSets()); !strings.Contains(after, "has 0 of 100m") {
				t.Errorf("the former template is not kept: %s", after)
			}
		})
	}
}

// TestForgedManager: somebody writes under the controller's name. What is said to be ours may
// be taken back, but it is no more than the edit role could do.
func TestForgedManager(t *testing.T) {
	parallel(t)
	w, d := newWorkload(t, options{}), newDeployment(t, options{})
	w.waitComplete()
	d.waitComplete()
	before, deploymentBefore := w.uids(), d.uids()
	w.mallory("edit")("annotate", "pod/web-0", "a=b", "--field-manager="+api.FieldManager)
	w.kubectl("--as=mallory", "label", "pod/web-1", "a=b", "--field-manager="+api.FieldManager)
	d.mallory("edit")("annotate", "pod/"+d.names()[0], "a=b", "--field-manager="+api.FieldManager)
	// managedFields can be written like any other field.
	w.kubectl("--as=mallory", "patch", "pod/web-2", "--type=merge", "--patch", `{"metadata":{"managedFields":[
	  {"manager":"`+api.FieldManager+`","operation":"Update","apiVersion":"v1","subresource":"resize","fieldsType":"FieldsV1","time":"2020-01-01T00:00:00Z",
	   "fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:cpu":{},"f:memory":{}},"f:requests":{"f:cpu":{},"f:memory":{}}}}}}}}]}}`)
	w.kubectl("--as=mallory", "set", "resources", w.ref, "--requests=cpu=150m", "--field-manager="+api.FieldManager)
	d.kubectl("--as=mallory", "set", "resources", d.ref, "--requests=cpu=150m", "--field-manager="+api.FieldManager)
	w.waitComplete()
	d.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	d.assertMoved(deploymentBefore, "150m")
}
