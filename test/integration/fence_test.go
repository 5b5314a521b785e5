//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// bare is a pod that nothing controls.
const bare = `{apiVersion: v1, kind: Pod, metadata: {name: bare, labels: {app: bare}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: app, image: "app:1", resources: ` + base + `}]}}`

// secretVolume mounts a Secret, as a JSON patch of a template.
const secretVolume = `{"op":"add","path":"/spec/template/spec/volumes","value":[{"name":"stolen","secret":{"secretName":"stolen"}}]}`

// TestFence does with the controller's own ServiceAccount what the controller never does.
// It may by its rights, but the policies let nothing of it through.
func TestFence(t *testing.T) {
	w := newWorkload(t, options{Replicas: 1})
	w.apply(strings.NewReplacer("web", "out", "terminationGracePeriodSeconds: 0", "terminationGracePeriodSeconds: 30").
		Replace(manifest(t, w.namespace, options{Replicas: 1, OptedOut: true})))
	w.apply(bare)
	d := &deployment{newSandbox(t, options{Kind: "Deployment", Replicas: 1}, func(namespace string) getter[*appsv1.Deployment] { return client.AppsV1().Deployments(namespace) })}
	d.waitRolledOut()
	d.apply(bare)
	d.apply(strings.ReplaceAll(manifest(t, d.namespace, options{Replicas: 1, Kind: "Deployment", OptedOut: true}), "web", "out"))
	ds := newDaemonSet(t, options{Replicas: 1, Pod: "terminationGracePeriodSeconds: 1"})
	ds.apply(strings.ReplaceAll(manifest(t, ds.namespace, options{Kind: "DaemonSet", OptedOut: true}), "web", "out"))
	w.unchecked, d.unchecked, ds.unchecked = true, true, true // the ServiceAccount does what the controller never does
	s, of, ofNodes := takeOver(t, w.namespace), takeOver(t, d.namespace), takeOver(t, ds.namespace)
	own, account := takeOver(t, controller.Namespace), "serviceaccount/"+controller.ServiceAccount
	heart := "serviceaccount/" + api.HeartbeatName
	beats := func(more, annotation string) string {
		return `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"inplace-rollout-heartbeat","annotations":{"` + annotation + `":"a"}},"automountServiceAccountToken":false` + more + "}"
	}
	holdAfterwards(t)
	administer(t, "delete", "-n", controller.Namespace, heart, "--ignore-not-found")
	daemon := ds.on(1)
	for _, pod := range []string{"pod/out-0", "pod/bare"} {
		w.kubectl("wait", "--for=condition=Ready", pod, "--timeout="+patience.String())
	}
	d.kubectl("wait", "--for=condition=Available", "deployment/out", "--timeout="+patience.String())
	live := d.active()
	set, pod := "replicaset/"+live.Name, "pod/"+d.names()[0]
	webPod, barePod := d.pods()[d.names()[0]], *must.Get(client.CoreV1().Pods(d.namespace).Get(t.Context(), "bare", metav1.GetOptions{}))(t)

	history := func(change func(*appsv1.ReplicaSet)) func() error { return of.histories(live, change) }
	for _, tt := range []struct {
		name string
		do   func() error
		want string // of the answer; empty if it is to be let through
	}{
		{"another image of a StatefulSet", s.patches(w.ref, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`), "changes spec.template"},
		{"another image of a Deployment", of.patches(d.ref, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`), "changes spec.template"},
		{"a template that mounts a Secret", of.patches(d.ref, "["+secretVolume+"]"), "changes spec.template"},
		{"another size", of.patches(d.ref, `[{"op":"replace","path":"/spec/template/spec/containers/0/resources/requests/cpu","value":"150m"}]`), "changes spec.template"},
		{"a template that hides behind the mark of the policy", of.patches(d.ref, `[{"op":"add","path":"/metadata/annotations/inplace-rollout.io~1refused","value":""},`+secretVolume+"]"), "changes spec.template"},
		{"scaling a StatefulSet", s.patches(w.ref, `{"spec":{"replicas":5}}`), "changes spec.replicas"},
		{"scaling a Deployment", of.patches(d.ref, `{"spec":{"replicas":5}}`), "changes spec.replicas"},
		{"another strategy", s.patches(w.ref, `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`), "changes spec.updateStrategy.type"},
		{"more pods at once", s.patches(w.ref, `{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":9}}}}`), "changes spec.updateStrategy.rollingUpdate.maxUnavailable"},
		{"another strategy of a Deployment", of.patches(d.ref, `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`), "changes spec.strategy"},
		{"a label, and two things at once", s.patches(w.ref, `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}`), "changes metadata.labels, metadata.annotations.c"},
		{"opting out", s.patches(w.ref, label(api.EnabledLabel, "false")), "changes metadata.labels"},
		{"an action", s.patches(w.ref, `{"metadata":{"annotations":{"inplace-rollout.io/resource-resize-action":"Restart"}}}`), "changes metadata.annotations.inplace-rollout.io/resource-resize-action"},
		{"a finalizer", s.patches(w.ref, `{"metadata":{"finalizers":["example.com/stays"]}}`), "changes metadata.finalizers"},
		{"a hold is let go", s.patches(w.ref, `{"metadata":{"annotations":{"inplace-rollout.io/hold":null}}}`), ""},
		{"a StatefulSet that is not opted in", s.patches("statefulset/out", `{"metadata":{"annotations":{"inplace-rollout.io/hold":null}}}`), "only workloads with the label"},
		{"a StatefulSet that is opted in by it", s.patches("statefulset/out", label(api.EnabledLabel, "true")), "only workloads with the label"},

		{"the condition", s.patches(w.ref, `{"metadata":{"annotations":{"inplace-rollout.io/said-of":"Over;revision web-1;"}},"status":{"conditions":[{"type":"inplace-rollout.io/Complete","status":"False","reason":"Progressing","message":"fine"}]}}`, "status"), ""},
		{"what it speaks of, in another write", s.patches(w.ref, `{"metadata":{"annotations":{"inplace-rollout.io/said-of":"Over;revision web-2;"}}}`), "changes metadata.annotations.inplace-rollout.io/said-of"},
		{"another annotation in a status", s.patches(w.ref, `{"metadata":{"annotations":{"inplace-rollout.io/retry":"1"}}}`, "status"), "only these parts of a status: the condition"},
		{"another condition", s.patches(w.ref, `{"status":{"conditions":[{"type":"Other","status":"True"}]}}`, "status"), "only these parts of a status: the condition"},
		{"more of a status", s.patches(w.ref, `{"status":{"availableReplicas":0}}`, "status"), "only these parts of a status: the condition"},
		{"a generation that is observed", s.patches(w.ref, `{"status":{"observedGeneration":99}}`, "status"), "only these parts of a status: the condition"},
		{"more of a Deployment's status", of.patches(d.ref, `{"status":{"availableReplicas":null}}`, "status"), "only these parts of a status: the condition"},
		{"another revision for lost pods", s.patches(w.ref, `{"status":{"currentRevision":"web-1"}}`, "status"), "only these parts of a status: the condition"},
		{"a label by way of the status", s.patches(w.ref, label("a", "b"), "status"), "only these parts of a status: the condition"},
		{"an annotation by way of the status", of.patches(d.ref, `{"metadata":{"annotations":{"inplace-rollout.io/in-force":"Restart;"}}}`, "status"), "only these parts of a status: the condition"},
		{"a finalizer by way of the status", s.patches(w.ref, `{"metadata":{"finalizers":["example.com/stays"]}}`, "status"), "only these parts of a status: the condition"},
		{"a status of what is not opted in", s.patches("statefulset/out", `{"status":{"conditions":[{"type":"inplace-rollout.io/Complete","status":"True"}]}}`, "status"), "only workloads with the label"},
		{"the condition of what is not opted in goes", s.patches("statefulset/out", `{"status":{"conditions":null}}`, "status"), ""},
		{"more of a status of what is not opted in", s.patches("statefulset/out", `{"status":{"availableReplicas":0}}`, "status"), "can change only these parts of a status: the condition"},
		{"another condition of what is not opted in goes", of.patches("deployment/out", `{"status":{"conditions":null}}`, "status"), "can change only these parts of a status: the condition"},

		{"a ReplicaSet for the history", history(func(*appsv1.ReplicaSet) {}), ""},
		{"a ReplicaSet with a pod", history(func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To[int32](1) }), "only ReplicaSets of 0 replicas"},
		{"a ReplicaSet that takes a bare pod, and deletes it", history(func(rs *appsv1.ReplicaSet) {
			rs.Spec.Selector.MatchLabels = map[string]string{"app": "bare"}
			rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
		}), "only ReplicaSets that select pods by their pod-template-hash"},
		{"a ReplicaSet of nobody", history(func(rs *appsv1.ReplicaSet) { rs.OwnerReferences = nil }), "only ReplicaSets that a Deployment controls"},
		{"a ReplicaSet of something else", history(func(rs *appsv1.ReplicaSet) {
			rs.OwnerReferences[0].APIVersion, rs.OwnerReferences[0].BlockOwnerDeletion = "argoproj.io/v1", nil
		}), "only ReplicaSets that a Deployment controls"},
		{"scaling a ReplicaSet", of.patches(set, `{"spec":{"replicas":5}}`), "only the template of a ReplicaSet, not its replicas"},
		{"another size for a ReplicaSet", of.patches(set, `[{"op":"test","path":"/metadata/uid","value":"`+string(live.UID)+`"},{"op":"add","path":"/spec/template/spec/containers/0/resizePolicy","value":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]},{"op":"replace","path":"/metadata/resourceVersion","value":"`+live.ResourceVersion+`"}]`, ""), ""},
		{"a Secret for a ReplicaSet", of.patches(set, "["+secretVolume+"]"), "only cpu and memory in the template of a ReplicaSet"},
		{"an image for a ReplicaSet", of.patches(set, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`), "only cpu and memory in the template of a ReplicaSet"},
		{"a container for a ReplicaSet", of.patches(set, `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"evil","image":"evil"}}]`), "only cpu and memory in the template of a ReplicaSet"},
		{"a first container for a ReplicaSet, which the others follow", of.patches(set, `[{"op":"add","path":"/spec/template/spec/initContainers","value":[{"name":"evil","image":"evil"}]}]`), "only cpu and memory in the template of a ReplicaSet"},
		{"a device for a ReplicaSet", of.patches(set, `[{"op":"add","path":"/spec/template/spec/containers/0/resources/limits/example.com~1gpu","value":"1"}]`), "only cpu and memory in the template of a ReplicaSet"},
		{"a resizePolicy that counts for a ReplicaSet", of.patches(set, `[{"op":"replace","path":"/spec/template/spec/containers/0/resizePolicy","value":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]}]`), "only cpu and memory in the template of a ReplicaSet"},
		{"a label for the pods of a ReplicaSet", of.patches(set, `[{"op":"add","path":"/spec/template/metadata/labels/a","value":"b"}]`), "only cpu and memory in the template of a ReplicaSet"},
		{"a ReplicaSet's labels", of.patches(set, label("a", "b")), "neither the labels nor the owners"},
		{"a ReplicaSet's owners", of.patches(set, `{"metadata":{"ownerReferences":null}}`), "only ReplicaSets that a Deployment controls"},
		{"a ReplicaSet's revision", of.patches(set, `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"9"}}}`), "not change the revision"},
		{"deleting a ReplicaSet that has pods", func() error {
			return of.client.AppsV1().ReplicaSets(d.namespace).Delete(t.Context(), live.Name, metav1.DeleteOptions{DryRun: dryRun})
		}, "only ReplicaSets of 0 replicas"},

		{"resizing", s.patches("pod/web-0", bigger, "resize"), ""},
		{"resizing a bare pod", s.patches("pod/bare", bigger, "resize"), "only pods of StatefulSets, Deployments and DaemonSets"},
		{"relabelling", s.patches("pod/web-0", label("controller-revision-hash", "web-1")), ""},
		{"taking the label away", s.patches("pod/web-0", `{"metadata":{"labels":{"controller-revision-hash":null}}}`), "only the revision label of a pod"},
		{"relabelling to what is no revision of it", s.patches("pod/web-0", label("controller-revision-hash", "out-1")), "only the revision label of a pod"},
		{"another label", s.patches("pod/web-0", label("app", "out")), "only the revision label of a pod"},
		{"relabelling a Deployment's pod", of.patches(pod, label("pod-template-hash", "other")), "only the revision label of a pod"},
		{"relabelling a bare pod", s.patches("pod/bare", label("controller-revision-hash", "web-1")), "only pods of StatefulSets, Deployments and DaemonSets"},
		{"an annotation of a pod", s.patches("pod/web-0", `{"metadata":{"annotations":{"a":"b"}}}`), "only labels and owners of a pod"},
		{"an image of a pod", s.patches("pod/web-0", `[{"op":"replace","path":"/spec/containers/0/image","value":"evil"}]`), "only labels and owners of a pod"},
		{"an end of a pod", s.patches("pod/web-0", `{"spec":{"activeDeadlineSeconds":1}}`), "only labels and owners of a pod"},
		{"a pod set free", of.patches(pod, `{"metadata":{"ownerReferences":null}}`), "owner of a pod only to its Deployment"},
		{"a pod detached without a trace", func() error {
			owner, _ := json.Marshal(metav1.NewControllerRef(d.get(), appsv1.SchemeGroupVersion.WithKind("Deployment")))
			return of.patch(pod, `{"metadata":{"labels":{"pod-template-hash":null},"ownerReferences":[`+strings.Replace(string(owner), `"blockOwnerDeletion":true,`, "", 1)+`]}}`)
		}, "owner of a pod only to its Deployment"},
		{"a pod detached, with an owner more", func() error {
			return of.patch(pod, fmt.Sprintf(`{"metadata":{"labels":{"pod-template-hash":null,"%s":"%s"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"a"},`+
				`{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"%s","controller":true}]}}`, api.DetachedLabel, live.UID, d.get().UID))
		}, "owner of a pod only to its Deployment"},
		{"deleting a bare pod", func() error { return s.remove("bare", nil) }, "can delete only pods of StatefulSets"},
		{"deleting a Deployment's pod that is Ready", func() error { return of.remove(webPod.Name, nil) }, "can delete only pods of StatefulSets"},
		{"deleting a StatefulSet's pod", func() error { return s.remove("out-0", nil) }, ""},
		{"deleting it at once", func() error { return s.remove("out-0", ptr.To[int64](0)) }, "only with their grace period"},
		{"evicting at once", func() error {
			return of.client.CoreV1().Pods(d.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: webPod.Name},
				DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun, GracePeriodSeconds: ptr.To[int64](0),
					Preconditions: &metav1.Preconditions{UID: &webPod.UID, ResourceVersion: &webPod.ResourceVersion}}})
		}, "with their own grace period"},
		{"evicting a pod of any name, which may be of a ReplicaSet that a Deployment has adopted", func() error { return of.evict(&barePod) }, ""},
		{"evicting whatever has the name now", func() error {
			return of.client.CoreV1().Pods(d.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: webPod.Name}})
		}, "with preconditions on uid and resourceVersion"},

		{"its heartbeat", own.patches(account, `{"metadata":{"annotations":{"inplace-rollout.io/ready-until":"2026-11-24T03:00:00Z","inplace-rollout.io/when-absent":null}}}`), ""},
		{"another annotation of its ServiceAccount", own.patches(account, `{"metadata":{"annotations":{"eks.amazonaws.com/role-arn":"admin"}}}`), "only the heartbeat annotations of a ServiceAccount"},
		{"a label of its ServiceAccount", own.patches(account, label("a", "b")), "only the heartbeat annotations of a ServiceAccount"},
		{"a secret of its ServiceAccount", own.patches(account, `{"secrets":[{"name":"stolen"}]}`), "only the heartbeat annotations of a ServiceAccount"},
		{"a ServiceAccount for its heartbeat", own.patches(heart, beats("", "inplace-rollout.io/ready-until")), ""},
		{"its defaults with it", own.patches(heart, beats("", "inplace-rollout.io/defaults")), ""},
		{"names of checks with it", own.patches(heart, beats("", "inplace-rollout.io/checks")), ""},
		{"names of checks elsewhere", own.patches(account, `{"metadata":{"annotations":{"inplace-rollout.io/checks":"a"}}}`), "only the heartbeat annotations of a ServiceAccount"},
		{"one with the rights of a cloud", own.patches(heart, beats("", "eks.amazonaws.com/role-arn")), "only the heartbeat annotations of a ServiceAccount"},
		{"one with a secret", own.patches(heart, beats(`,"secrets":[{"name":"stolen"}]`, "inplace-rollout.io/ready-until")), "only the heartbeat annotations of a ServiceAccount"},
		{"what its pods are pulled with", own.patches(account, `{"imagePullSecrets":[{"name":"stolen"}]}`), "only the heartbeat annotations of a ServiceAccount"},

		{"whether a StatefulSet would be held", func() error { return own.create(dryRun) }, ""},
		{"creating it", func() error { return own.create(nil) }, "can neither create nor delete workloads"},

		{"another image of a DaemonSet", ofNodes.patches(ds.ref, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`), "changes spec.template"},
		{"more of its pods at once", ofNodes.patches(ds.ref, `{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":9}}}}`), "changes spec.updateStrategy.rollingUpdate.maxUnavailable"},
		{"less time for its pods", ofNodes.patches(ds.ref, `{"spec":{"minReadySeconds":9}}`), "changes spec.minReadySeconds"},
		{"sizes for its nodes", ofNodes.patches(ds.ref, `{"metadata":{"annotations":{"`+api.NodeResourcesAnnotation+`":"[]"}}}`), "changes metadata.annotations." + api.NodeResourcesAnnotation},
		{"its hold is let go", ofNodes.patches(ds.ref, `{"metadata":{"annotations":{"inplace-rollout.io/hold":null}}}`), ""},
		{"a DaemonSet that is not opted in", ofNodes.patches("daemonset/out", `{"metadata":{"annotations":{"inplace-rollout.io/hold":null}}}`), "only workloads with the label"},
		{"the condition of a DaemonSet", ofNodes.patches(ds.ref, `{"status":{"conditions":[{"type":"inplace-rollout.io/Complete","status":"False","reason":"Progressing","message":"fine"}]}}`, "status"), ""},
		{"more of its status", ofNodes.patches(ds.ref, `{"status":{"numberReady":0}}`, "status"), "only these parts of a status: the condition"},
		{"resizing its pod", ofNodes.patches("pod/"+daemon.Name, bigger, "resize"), ""},
		{"relabelling it", ofNodes.patches("pod/"+daemon.Name, label("controller-revision-hash", "5d8f9c4b7")), ""},
		{"relabelling it to what is no hash", ofNodes.patches("pod/"+daemon.Name, label("controller-revision-hash", "web-1")), "only the revision label of a pod"},
		{"another label of it", ofNodes.patches("pod/"+daemon.Name, label("pod-template-generation", "7")), "only the revision label of a pod"},
		{"marking it as not updated", ofNodes.patches("pod/"+daemon.Name, `{"metadata":{"labels":{"controller-revision-hash":"89bcdfwxz4","pod-template-generation":null}}}`), ""},
		{"setting it free", ofNodes.patches("pod/"+daemon.Name, `{"metadata":{"ownerReferences":null}}`), "owner of a pod only to its Deployment"},
		{"deleting it", func() error { return ofNodes.remove(daemon.Name, nil) }, ""},
		{"deleting it at once", func() error { return ofNodes.remove(daemon.Name, ptr.To[int64](0)) }, "only with their grace period"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := must.Said(tt.do())
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) || got != "" && !strings.Contains(got, "ValidatingAdmissionPolicy 'inplace-rollout-fence-") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	// The garbage collector deletes what belongs to an owner that there is not. This user may delete the
	// workload: else the API server of the tests, unlike most, would refuse such an owner by itself.
	owner := `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"gone","uid":"gone"}]}}`
	masters := []string{"--as=" + controller.User, "--as-group=system:masters"}
	if err := d.try(t, slices.Concat(masters, []string{"patch", d.ref, "--subresource=status", "--patch", owner, "--dry-run=server"})...); !strings.Contains(must.Said(err), "only these parts of a status: the condition") {
		t.Errorf("an owner by way of the status: %v", err)
	}
	for _, fence := range prerequisite.ValidatingPolicies {
		if out := w.kubectl("get", "validatingadmissionpolicy", fence, "-o", "jsonpath={.status.typeChecking.expressionWarnings}"); out != "" {
			t.Errorf("type checking of %s: %s", fence, out)
		}
	}
}
