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

// TestForgedHold: the annotations of a hold are there before the workload is opted in.
func TestForgedHold(t *testing.T) {
	parallel(t)
	for _, forged := range []string{"0", "2", "2147483647", "-1", "false", "true", "nonsense", "RollingUpdate", "OnDelete"} {
		t.Run(forged, func(t *testing.T) {
			parallel(t)
			annotations := []string{api.HoldAnnotation + "=" + forged, api.PartitionAnnotation + "=0", api.InForceAnnotation + "=Restart;", api.EditAnnotation + "=1"}
			w, d, ds := newWorkload(t, options{OptedOut: true}), newDeployment(t, options{OptedOut: true}), newDaemonSet(t, options{OptedOut: true})
			w.mallory("edit")(append([]string{"annotate", w.ref}, annotations...)...)
			d.mallory("edit")(append([]string{"annotate", d.ref}, annotations...)...)
			ds.mallory("edit")(append([]string{"annotate", ds.ref}, annotations...)...)
			before, deploymentBefore, daemonsBefore := w.uids(), d.uids(), ds.uids()
			w.kubectl("label", "--overwrite", w.ref, enabled+"=true")
			d.kubectl("label", "--overwrite", d.ref, enabled+"=true")
			ds.kubectl("label", "--overwrite", ds.ref, enabled+"=true")
			w.waitComplete()
			d.waitComplete()
			ds.waitComplete()
			if set := w.get(); held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 0 {
				t.Errorf("after the opt-in: %s", describe(set))
			}
			if got := d.get(); held(got) || got.Spec.Paused {
				t.Errorf("after the opt-in: %s", describe(got))
			}
			editBoth(w, d, before, deploymentBefore)
			ds.edit("150m")
			ds.assertMoved(daemonsBefore, "150m")
		})
	}
}

// TestForgedInForce: a new workload says what was in force at an edit that never was.
func TestForgedInForce(t *testing.T) {
	parallel(t)
	for _, forged := range []string{"Restart;cpu=RestartOnly", "nonsense", ";;;"} {
		t.Run(forged, func(t *testing.T) {
			parallel(t)
			meta := `annotations: {inplace-rollout.io/in-force: "` + forged + `", inplace-rollout.io/hold: "0", inplace-rollout.io/edit: "7"}`
			w, d, ds := newWorkload(t, options{Meta: meta}), newDeployment(t, options{Meta: meta}), newDaemonSet(t, options{Meta: meta})
			w.waitComplete()
			d.waitComplete()
			ds.waitComplete()
			editBoth(w, d, w.uids(), d.uids())
			before := ds.uids()
			ds.edit("150m")
			ds.assertMoved(before, "150m")
		})
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

// TestForgedDetachment: pods that are none of ours have the label of one that waits for another
// in its place.
func TestForgedDetachment(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2})
	d.apply(strings.ReplaceAll(bare, "app: bare", "app: web"))
	d.apply(strings.ReplaceAll(manifest(t, d.namespace, options{Replicas: 1, OptedOut: true}), "web", "out"))
	for _, pod := range []string{"pod/bare", "pod/out-0"} {
		d.kubectl("wait", "--for=create", pod, "--timeout="+patience.String())
		d.kubectl("wait", "--for=condition=Ready", pod, "--timeout="+patience.String())
	}
	live, before := d.active(), d.uids()
	do := d.mallory("edit")
	do("label", "pod/bare", api.DetachedLabel+"="+string(live.UID))
	do("label", "pod/out-0", api.DetachedLabel+"=no-replicaset")
	foreign := func() []corev1.Pod {
		var pods []corev1.Pod
		for _, name := range []string{"bare", "out-0"} {
			pod := getPod(t, d.namespace, name)
			pod.ManagedFields, pod.ResourceVersion = nil, ""
			pods = append(pods, pod)
		}
		return pods
	}
	want, _ := json.Marshal(foreign())
	d.edit("150m")
	d.kubectl("label", "--overwrite", d.ref, enabled+"=false") // which gives detached pods back
	d.waitObserved()
	for name, uid := range before {
		if pod := getPod(t, d.namespace, name); pod.UID != uid {
			t.Errorf("%s was replaced", name)
		}
	}
	if got, _ := json.Marshal(foreign()); string(got) != string(want) {
		t.Errorf("the pods of others became\n%s\nwere\n%s", got, want)
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

// TestForgedCondition: somebody who may write statuses says Complete in the middle of a rollout.
func TestForgedCondition(t *testing.T) {
	parallel(t)
	w, d, ds := newWorkload(t, options{}), newDeployment(t, options{}), newDaemonSet(t, options{})
	w.waitComplete()
	d.waitComplete()
	ds.waitComplete()
	before, deploymentBefore, daemonsBefore := w.uids(), d.uids(), ds.uids()
	name, daemon := d.names()[0], ds.on(1).Name
	w.annotatePod("web-2", simDeferred)
	d.annotatePod(name, simDeferred)
	ds.annotatePod(daemon, simDeferred)
	w.begin("150m", "web-2")
	d.begin("150m", name)
	ds.begin("150m", daemon)
	forged := `{"status":{"conditions":[{"type":"` + api.ConditionComplete + `","status":"True","reason":"Complete","message":"all is well"}]}}`
	w.kubectl("patch", w.ref, "--subresource=status", "--patch", forged)
	d.kubectl("patch", d.ref, "--subresource=status", "--patch", forged)
	ds.kubectl("patch", ds.ref, "--subresource=status", "--patch", forged)
	for _, object := range []any{w.get(), d.get(), ds.get()} {
		if status, _, message := complete(object); status == corev1.ConditionTrue {
			t.Errorf("Complete is true: %s", message)
		}
	}
	w.annotatePod("web-2", simDone)
	d.annotatePod(name, simDone)
	ds.annotatePod(daemon, simDone)
	w.waitComplete()
	w.assertMoved(0)
	d.waitComplete()
	d.assertMoved(deploymentBefore, "150m")
	w.assertReplaced(before)
	ds.waitComplete()
	ds.assertMoved(daemonsBefore, "150m")
}
