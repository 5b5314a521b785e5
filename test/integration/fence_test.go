//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// dryRun makes a write go through admission and no further.
var dryRun = []string{metav1.DryRunAll}

// taken is the controller's ServiceAccount in the hands of somebody else, in one namespace. It
// writes nothing: what admission answers is all that is asked for.
type taken struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
}

func takeOver(t *testing.T, namespace string) taken {
	t.Helper()
	kubeconfig, err := cp.ServiceAccountKubeconfig(t.Context(), controller.Namespace, controller.ServiceAccount, "")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return taken{t, c, namespace}
}

// patch an object, named as kubectl does: statefulset/web. A patch is a JSON patch if it is a
// list, or else a merge patch.
func (s taken) patch(ref, patch string, subresources ...string) error {
	kind, name, _ := strings.Cut(ref, "/")
	form := types.MergePatchType
	if strings.HasPrefix(patch, "[") {
		form = types.JSONPatchType
	}
	var err error
	options := metav1.PatchOptions{FieldManager: api.FieldManager, DryRun: dryRun}
	switch kind {
	case "statefulset":
		_, err = s.client.AppsV1().StatefulSets(s.namespace).Patch(s.t.Context(), name, form, []byte(patch), options, subresources...)
	case "deployment":
		_, err = s.client.AppsV1().Deployments(s.namespace).Patch(s.t.Context(), name, form, []byte(patch), options, subresources...)
	case "daemonset":
		_, err = s.client.AppsV1().DaemonSets(s.namespace).Patch(s.t.Context(), name, form, []byte(patch), options, subresources...)
	case "replicaset":
		_, err = s.client.AppsV1().ReplicaSets(s.namespace).Patch(s.t.Context(), name, form, []byte(patch), options, subresources...)
	case "serviceaccount":
		_, err = s.client.CoreV1().ServiceAccounts(s.namespace).Patch(s.t.Context(), name, form, []byte(patch), options, subresources...)
	default:
		if slices.Equal(subresources, []string{"resize"}) {
			form = types.StrategicMergePatchType
		}
		_, err = s.client.CoreV1().Pods(s.namespace).Patch(s.t.Context(), name, form, []byte(patch), options, subresources...)
	}
	return err
}

// create applies a StatefulSet of the only name that it may create.
func (s taken) create(dryRun []string) error {
	const set = `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"` + api.DryRunName + `"},"spec":{"selector":{"matchLabels":{"app":"evil"}},"template":{"metadata":{"labels":{"app":"evil"}},` +
		`"spec":{"containers":[{"name":"evil","image":"evil"}]}}}}`
	_, err := s.client.AppsV1().StatefulSets(s.namespace).Patch(s.t.Context(), api.DryRunName, types.ApplyPatchType, []byte(set), metav1.PatchOptions{FieldManager: api.FieldManager, DryRun: dryRun})
	return err
}

// remove deletes a pod.
func (s taken) remove(pod string, grace *int64) error {
	return s.client.CoreV1().Pods(s.namespace).Delete(s.t.Context(), pod, metav1.DeleteOptions{DryRun: dryRun, GracePeriodSeconds: grace})
}

func (s taken) evict(pod *corev1.Pod) error {
	return s.client.CoreV1().Pods(s.namespace).EvictV1(s.t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun, Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}},
	})
}

// history creates a ReplicaSet beside another one, as for the history.
func (s taken) history(live appsv1.ReplicaSet, change func(*appsv1.ReplicaSet)) error {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-new", Labels: live.Labels, OwnerReferences: slices.Clone(live.OwnerReferences)},
		Spec:       *live.Spec.DeepCopy(),
	}
	rs.Spec.Replicas = ptr.To[int32](0)
	change(rs)
	_, err := s.client.AppsV1().ReplicaSets(s.namespace).Create(s.t.Context(), rs, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// label is a patch that sets a label.
func label(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
}

// bigger is a patch that resizes a pod.
const bigger = `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`

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
	daemon := ds.on(1)
	for _, pod := range []string{"pod/out-0", "pod/bare"} {
		w.kubectl("wait", "--for=condition=Ready", pod, "--timeout="+patience.String())
	}
	d.kubectl("wait", "--for=condition=Available", "deployment/out", "--timeout="+patience.String())
	live := d.active()
	set, pod := "replicaset/"+live.Name, "pod/"+d.names()[0]
	webPod, barePod := d.pods()[d.names()[0]], getPod(t, d.namespace, "bare")

	history := func(change func(*appsv1.ReplicaSet)) error { return of.history(live, change) }
	for _, tt := range []struct {
		name string
		do   func() error
		want string // of the answer; empty if it is to be let through
	}{
		{"another image of a StatefulSet", func() error {
			return s.patch(w.ref, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`)
		}, "changes spec.template"},
		{"another image of a Deployment", func() error {
			return of.patch(d.ref, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`)
		}, "changes spec.template"},
		{"a template that mounts a Secret", func() error { return of.patch(d.ref, "["+secretVolume+"]") }, "changes spec.template"},
		{"another size", func() error {
			return of.patch(d.ref, `[{"op":"replace","path":"/spec/template/spec/containers/0/resources/requests/cpu","value":"150m"}]`)
		}, "changes spec.template"},
		{"a template that hides behind the mark of the policy", func() error {
			return of.patch(d.ref, `[{"op":"add","path":"/metadata/annotations/inplace-rollout.io~1refused","value":""},`+secretVolume+"]")
		}, "changes spec.template"},
		{"scaling a StatefulSet", func() error { return s.patch(w.ref, `{"spec":{"replicas":5}}`) }, "changes spec.replicas"},
		{"scaling a Deployment", func() error { return of.patch(d.ref, `{"spec":{"replicas":5}}`) }, "changes spec.replicas"},
		{"another strategy", func() error {
			return s.patch(w.ref, `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
		}, "changes spec.updateStrategy.type"},
		{"more pods at once", func() error {
			return s.patch(w.ref, `{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":9}}}}`)
		}, "changes spec.updateStrategy.rollingUpdate.maxUnavailable"},
		{"another strategy of a Deployment", func() error {
			return of.patch(d.ref, `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
		}, "changes spec.strategy"},
		{"a label, and two things at once", func() error {
			return s.patch(w.ref, `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}`)
		}, "changes metadata.labels, metadata.annotations.c"},
		{"opting out", func() error { return s.patch(w.ref, label(api.EnabledLabel, "false")) }, "changes metadata.labels"},
		{"an action", func() error {
			return s.patch(w.ref, `{"metadata":{"annotations":{"inplace-rollout.io/resource-resize-action":"Restart"}}}`)
		}, "changes metadata.annotations.inplace-rollout.io/resource-resize-action"},
		{"a finalizer", func() error { return s.patch(w.ref, `{"metadata":{"finalizers":["example.com/stays"]}}`) }, "changes metadata.finalizers"},
		{"a hold is let go", func() error { return s.patch(w.ref, `{"metadata":{"annotations":{"inplace-rollout.io/hold":null}}}`) }, ""},
		{"a StatefulSet that is not opted in", func() error {
			return s.patch("statefulset/out", `{"metadata":{"annotations":{"inplace-rollout.io/hold":null}}}`)
		}, "only workloads with the label"},
		{"a StatefulSet that is opted in by it", func() error { return s.patch("statefulset/out", label(api.EnabledLabel, "true")) }, "only workloads with the label"},

		{"the condition", func() error {
			return s.patch(w.ref, `{"status":{"conditions":[{"type":"inplace-rollout.io/Complete","status":"False","reason":"Progressing","message":"fine"}]}}`, "status")
		}, ""},
		{"another condition", func() error {
			return s.patch(w.ref, `{"status":{"conditions":[{"type":"Other","status":"True"}]}}`, "status")
		}, "only these parts of a status: the condition"},
		{"more of a status", func() error { return s.patch(w.ref, `{"status":{"availableReplicas":0}}`, "status") }, "only these parts of a status: the condition"},
		{"a generation that is observed", func() error { return s.patch(w.ref, `{"status":{"observedGeneration":99}}`, "status") }, "only these parts of a status: the condition"},
		{"more of a Deployment's status", func() error { return of.patch(d.ref, `{"status":{"availableReplicas":null}}`, "status") }, "only these parts of a status: the condition"},
		{"another revision for lost pods", func() error { return s.patch(w.ref, `{"status":{"currentRevision":"web-1"}}`, "status") }, "only these parts of a status: the condition"},
		{"a label by way of the status", func() error { return s.patch(w.ref, label("a", "b"), "status") }, "only these parts of a status: the condition"},
		{"an annotation by way of the status", func() error {
			return of.patch(d.ref, `{"metadata":{"annotations":{"inplace-rollout.io/in-force":"Restart;"}}}`, "status")
		}, "only these parts of a status: the condition"},
		{"a finalizer by way of the status", func() error {
			return s.patch(w.ref, `{"metadata":{"finalizers":["example.com/stays"]}}`, "status")
		}, "only these parts of a status: the condition"},
		{"a status of what is not opted in", func() error {
			return s.patch("statefulset/out", `{"status":{"conditions":[{"type":"inplace-rollout.io/Complete","status":"True"}]}}`, "status")
		}, "only workloads with the label"},
		{"the condition of what is not opted in goes", func() error { return s.patch("statefulset/out", `{"status":{"conditions":null}}`, "status") }, ""},
		{"more of a status of what is not opted in", func() error { return s.patch("statefulset/out", `{"status":{"availableReplicas":0}}`, "status") }, "may change only these parts of a status: the condition"},
		{"another condition of what is not opted in goes", func() error { return of.patch("deployment/out", `{"status":{"conditions":null}}`, "status") }, "may change only these parts of a status: the condition"},

		{"a ReplicaSet for the history", func() error { return history(func(*appsv1.ReplicaSet) {}) }, ""},
		{"a ReplicaSet with a pod", func() error { return history(func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To[int32](1) }) }, "only ReplicaSets of 0 replicas"},
		{"a ReplicaSet that takes a bare pod, and deletes it", func() error {
			return history(func(rs *appsv1.ReplicaSet) {
				rs.Spec.Selector.MatchLabels = map[string]string{"app": "bare"}
				rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
			})
		}, "only ReplicaSets that select pods by their pod-template-hash"},
		{"a ReplicaSet of nobody", func() error { return history(func(rs *appsv1.ReplicaSet) { rs.OwnerReferences = nil }) }, "only ReplicaSets that a Deployment controls"},
		{"a ReplicaSet of something else", func() error {
			return history(func(rs *appsv1.ReplicaSet) {
				rs.OwnerReferences[0].APIVersion, rs.OwnerReferences[0].BlockOwnerDeletion = "argoproj.io/v1", nil
			})
		}, "only ReplicaSets that a Deployment controls"},
		{"scaling a ReplicaSet", func() error { return of.patch(set, `{"spec":{"replicas":5}}`) }, "only the template of a ReplicaSet, not its replicas"},
		{"another size for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"test","path":"/metadata/uid","value":"`+string(live.UID)+`"},{"op":"add","path":"/spec/template/spec/containers/0/resizePolicy","value":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]},{"op":"replace","path":"/metadata/resourceVersion","value":"`+live.ResourceVersion+`"}]`, "")
		}, ""},
		{"a Secret for a ReplicaSet", func() error { return of.patch(set, "["+secretVolume+"]") }, "only cpu and memory in the template of a ReplicaSet"},
		{"an image for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`)
		}, "only cpu and memory in the template of a ReplicaSet"},
		{"a container for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"evil","image":"evil"}}]`)
		}, "only cpu and memory in the template of a ReplicaSet"},
		{"a first container for a ReplicaSet, which the others follow", func() error {
			return of.patch(set, `[{"op":"add","path":"/spec/template/spec/initContainers","value":[{"name":"evil","image":"evil"}]}]`)
		}, "only cpu and memory in the template of a ReplicaSet"},
		{"a device for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"add","path":"/spec/template/spec/containers/0/resources/limits/example.com~1gpu","value":"1"}]`)
		}, "only cpu and memory in the template of a ReplicaSet"},
		{"a resizePolicy that counts for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"replace","path":"/spec/template/spec/containers/0/resizePolicy","value":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]}]`)
		}, "only cpu and memory in the template of a ReplicaSet"},
		{"a label for the pods of a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"add","path":"/spec/template/metadata/labels/a","value":"b"}]`)
		}, "only cpu and memory in the template of a ReplicaSet"},
		{"a ReplicaSet's labels", func() error { return of.patch(set, label("a", "b")) }, "neither the labels nor the owners"},
		{"a ReplicaSet's owners", func() error { return of.patch(set, `{"metadata":{"ownerReferences":null}}`) }, "only ReplicaSets that a Deployment controls"},
		{"a ReplicaSet's revision", func() error {
			return of.patch(set, `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"9"}}}`)
		}, "not change the revision"},
		{"deleting a ReplicaSet that has pods", func() error {
			return of.client.AppsV1().ReplicaSets(d.namespace).Delete(t.Context(), live.Name, metav1.DeleteOptions{DryRun: dryRun})
		}, "only ReplicaSets of 0 replicas"},

		{"resizing", func() error { return s.patch("pod/web-0", bigger, "resize") }, ""},
		{"resizing a bare pod", func() error { return s.patch("pod/bare", bigger, "resize") }, "only pods of StatefulSets, Deployments and DaemonSets"},
		{"relabelling", func() error { return s.patch("pod/web-0", label("controller-revision-hash", "web-1")) }, ""},
		{"taking the label away", func() error { return s.patch("pod/web-0", `{"metadata":{"labels":{"controller-revision-hash":null}}}`) }, "only the revision label of a pod"},
		{"relabelling to what is no revision of it", func() error { return s.patch("pod/web-0", label("controller-revision-hash", "out-1")) }, "only the revision label of a pod"},
		{"another label", func() error { return s.patch("pod/web-0", label("app", "out")) }, "only the revision label of a pod"},
		{"relabelling a Deployment's pod", func() error { return of.patch(pod, label("pod-template-hash", "other")) }, "only the revision label of a pod"},
		{"relabelling a bare pod", func() error { return s.patch("pod/bare", label("controller-revision-hash", "web-1")) }, "only pods of StatefulSets, Deployments and DaemonSets"},
		{"an annotation of a pod", func() error { return s.patch("pod/web-0", `{"metadata":{"annotations":{"a":"b"}}}`) }, "only labels and owners of a pod"},
		{"an image of a pod", func() error {
			return s.patch("pod/web-0", `[{"op":"replace","path":"/spec/containers/0/image","value":"evil"}]`)
		}, "only labels and owners of a pod"},
		{"an end of a pod", func() error { return s.patch("pod/web-0", `{"spec":{"activeDeadlineSeconds":1}}`) }, "only labels and owners of a pod"},
		{"a pod set free", func() error { return of.patch(pod, `{"metadata":{"ownerReferences":null}}`) }, "owner of a pod only to its Deployment"},
		{"a pod detached without a trace", func() error {
			owner, _ := json.Marshal(metav1.NewControllerRef(d.get(), appsv1.SchemeGroupVersion.WithKind("Deployment")))
			return of.patch(pod, `{"metadata":{"labels":{"pod-template-hash":null},"ownerReferences":[`+strings.Replace(string(owner), `"blockOwnerDeletion":true,`, "", 1)+`]}}`)
		}, "owner of a pod only to its Deployment"},
		{"deleting a bare pod", func() error { return s.remove("bare", nil) }, "may delete only pods of StatefulSets"},
		{"deleting a Deployment's pod that is Ready", func() error { return of.remove(webPod.Name, nil) }, "may delete only pods of StatefulSets"},
		{"deleting a StatefulSet's pod", func() error { return s.remove("out-0", nil) }, ""},
		{"deleting it at once", func() error { return s.remove("out-0", ptr.To[int64](0)) }, "only with their grace period"},
		{"evicting at once", func() error {
			return of.client.CoreV1().Pods(d.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: webPod.Name},
				DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun, GracePeriodSeconds: ptr.To[int64](0),
					Preconditions: &metav1.Preconditions{UID: &webPod.UID, ResourceVersion: &webPod.ResourceVersion}}})
		}, "with their own grace period"},
		{"evicting a bare pod", func() error { return of.evict(&barePod) }, "may evict only pods of Deployments"},
		{"evicting a StatefulSet's pod", func() error { p := getPod(t, w.namespace, "web-0"); return s.evict(&p) }, "may evict only pods of Deployments"},
		{"evicting whatever has the name now", func() error {
			return of.client.CoreV1().Pods(d.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: webPod.Name}})
		}, "with preconditions on uid and resourceVersion"},

		{"its heartbeat", func() error {
			return own.patch(account, `{"metadata":{"annotations":{"inplace-rollout.io/ready-until":"2026-11-24T03:00:00Z","inplace-rollout.io/when-absent":null}}}`)
		}, ""},
		{"another annotation of its ServiceAccount", func() error {
			return own.patch(account, `{"metadata":{"annotations":{"eks.amazonaws.com/role-arn":"admin"}}}`)
		}, "only the heartbeat annotations of a ServiceAccount"},
		{"a label of its ServiceAccount", func() error { return own.patch(account, label("a", "b")) }, "only the heartbeat annotations of a ServiceAccount"},
		{"a secret of its ServiceAccount", func() error { return own.patch(account, `{"secrets":[{"name":"stolen"}]}`) }, "only the heartbeat annotations of a ServiceAccount"},
		{"what its pods are pulled with", func() error { return own.patch(account, `{"imagePullSecrets":[{"name":"stolen"}]}`) }, "only the heartbeat annotations of a ServiceAccount"},

		{"whether a StatefulSet would be held", func() error { return own.create(dryRun) }, ""},
		{"creating it", func() error { return own.create(nil) }, "may neither create nor delete workloads"},

		{"another image of a DaemonSet", func() error {
			return ofNodes.patch(ds.ref, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`)
		}, "changes spec.template"},
		{"more of its pods at once", func() error {
			return ofNodes.patch(ds.ref, `{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":9}}}}`)
		},
			"changes spec.updateStrategy.rollingUpdate.maxUnavailable"},
		{"less time for its pods", func() error { return ofNodes.patch(ds.ref, `{"spec":{"minReadySeconds":9}}`) }, "changes spec.minReadySeconds"},
		{"sizes for its nodes", func() error {
			return ofNodes.patch(ds.ref, `{"metadata":{"annotations":{"`+api.NodeResourcesAnnotation+`":"[]"}}}`)
		}, "changes metadata.annotations." + api.NodeResourcesAnnotation},
		{"its hold is let go", func() error {
			return ofNodes.patch(ds.ref, `{"metadata":{"annotations":{"inplace-rollout.io/hold":null}}}`)
		}, ""},
		{"a DaemonSet that is not opted in", func() error {
			return ofNodes.patch("daemonset/out", `{"metadata":{"annotations":{"inplace-rollout.io/hold":null}}}`)
		}, "only workloads with the label"},
		{"the condition of a DaemonSet", func() error {
			return ofNodes.patch(ds.ref, `{"status":{"conditions":[{"type":"inplace-rollout.io/Complete","status":"False","reason":"Progressing","message":"fine"}]}}`, "status")
		}, ""},
		{"more of its status", func() error { return ofNodes.patch(ds.ref, `{"status":{"numberReady":0}}`, "status") }, "only these parts of a status: the condition"},
		{"resizing its pod", func() error { return ofNodes.patch("pod/"+daemon.Name, bigger, "resize") }, ""},
		{"relabelling it", func() error { return ofNodes.patch("pod/"+daemon.Name, label("controller-revision-hash", "5d8f9c4b7")) }, ""},
		{"relabelling it to what is no hash", func() error { return ofNodes.patch("pod/"+daemon.Name, label("controller-revision-hash", "web-1")) }, "only the revision label of a pod"},
		{"another label of it", func() error { return ofNodes.patch("pod/"+daemon.Name, label("pod-template-generation", "7")) }, "only the revision label of a pod"},
		{"marking it as not updated", func() error {
			return ofNodes.patch("pod/"+daemon.Name, `{"metadata":{"labels":{"controller-revision-hash":null,"pod-template-generation":null}}}`)
		}, ""},
		{"setting it free", func() error { return ofNodes.patch("pod/"+daemon.Name, `{"metadata":{"ownerReferences":null}}`) }, "owner of a pod only to its Deployment"},
		{"deleting it", func() error { return ofNodes.remove(daemon.Name, nil) }, ""},
		{"deleting it at once", func() error { return ofNodes.remove(daemon.Name, ptr.To[int64](0)) }, "only with their grace period"},
		{"evicting it", func() error { return ofNodes.evict(&daemon) }, "may evict only pods of Deployments"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := said(tt.do())
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) || got != "" && !strings.Contains(got, "ValidatingAdmissionPolicy 'inplace-rollout-fence-") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	// The garbage collector deletes what belongs to an owner that there is not. This user may delete the
	// workload: else the API server of the tests, unlike most, would refuse such an owner by itself.
	owner := `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"gone","uid":"gone"}]}}`
	masters := []string{"--as=" + controller.User, "--as-group=system:masters"}
	if err := d.try(t, slices.Concat(masters, []string{"patch", d.ref, "--subresource=status", "--patch", owner, "--dry-run=server"})...); !strings.Contains(said(err), "only these parts of a status: the condition") {
		t.Errorf("an owner by way of the status: %v", err)
	}
	for _, fence := range prerequisite.ValidatingPolicies {
		if out := w.kubectl("get", "validatingadmissionpolicy", fence, "-o", "jsonpath={.status.typeChecking.expressionWarnings}"); out != "" {
			t.Errorf("type checking of %s: %s", fence, out)
		}
	}
}

func getPod(t *testing.T, namespace, name string) corev1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *pod
}

// component applies a policy of deploy/components until the test ends, and waits until it is in force.
func component(t *testing.T, name string, inForce func() bool) {
	t.Helper()
	file := filepath.Join(controller.Root(), "deploy", "components", name, name+".yaml")
	administer(t, "apply", "-f", file)
	t.Cleanup(func() {
		if out, err := cp.Kubectl(context.Background(), "delete", "-f", file); err != nil {
			t.Errorf("%s: %v", out, err)
		}
	})
	eventually(t, file+" to be in force", func() (bool, string) { return inForce(), "it is not" })
}

// TestResizeRight: with deploy/components/resize-right, who opts in must have the right to
// resize pods. The ClusterRole edit has it not.
func TestResizeRight(t *testing.T) {
	w, d := newWorkload(t, options{Replicas: 1, OptedOut: true}), newDeployment(t, options{Replicas: 1})
	w.allow("mallory", "--clusterrole=edit", "get", "pods")
	d.allow("mallory", "--clusterrole=edit", "get", "pods")
	w.allow("alice", "--clusterrole=edit", "get", "pods")
	w.kubectl("create", "role", "resize", "--resource=pods/resize", "--verb=patch")
	w.allow("alice", "--role=resize", "patch", "pods/resize")
	optIn := func(user string) error {
		return w.try(t, "--as="+user, "label", "--overwrite", w.ref, enabled+"=true", "--dry-run=server")
	}
	if err := optIn("mallory"); err != nil {
		t.Fatalf("without the policy: %v", err)
	}
	const want = "mallory may not patch pods/resize in the namespace "
	component(t, "resize-right", func() bool { return strings.Contains(said(optIn("mallory")), want) })
	fresh := writeFile(t, strings.ReplaceAll(manifest(t, w.namespace, options{Kind: "Deployment"}), "web", "fresh"))
	daemons := writeFile(t, strings.ReplaceAll(manifest(t, w.namespace, options{Kind: "DaemonSet"}), "web", "daemons"))
	for _, file := range []string{fresh, daemons} {
		if err := w.try(t, "--as=mallory", "create", "-f", file); !strings.Contains(said(err), want) {
			t.Errorf("creating: %v", err)
		}
	}
	for _, args := range [][]string{{"create", "-f", fresh, "--dry-run=server"}, {"label", "--overwrite", w.ref, enabled + "=true"}} {
		if err := w.try(t, append([]string{"--as=alice"}, args...)...); err != nil {
			t.Errorf("kubectl %v: %v", args, err)
		}
	}
	// What is opted in may be edited, scaled and opted out by all who may edit it.
	for _, args := range [][]string{
		{"set", "resources", d.ref, "--requests=cpu=150m"}, {"scale", d.ref, "--replicas=2"}, {"label", "--overwrite", d.ref, enabled + "=false"},
	} {
		if err := d.try(t, append([]string{"--as=mallory"}, args...)...); err != nil {
			t.Errorf("kubectl %v: %v", args, err)
		}
	}
}

// TestFenceOwners: with deploy/components/fence-owners, the controller's ServiceAccount may
// touch nothing of workloads that are not opted in, and the controller does all that it does.
func TestFenceOwners(t *testing.T) {
	w := newWorkload(t, options{})
	d := newDeployment(t, options{Replicas: 2, Spec: surge})
	out := options{Replicas: 1, OptedOut: true}
	w.apply(strings.ReplaceAll(manifest(t, w.namespace, out), "web", "out"))
	out.Kind = "Deployment"
	d.apply(strings.ReplaceAll(manifest(t, d.namespace, out), "web", "out"))
	w.kubectl("wait", "--for=condition=Ready", "pod/out-0", "--timeout="+patience.String())
	d.kubectl("wait", "--for=condition=Available", "deployment/out", "--timeout="+patience.String())
	ds := newDaemonSet(t, options{Replicas: 1})
	out.Kind = "DaemonSet"
	ds.apply(strings.ReplaceAll(manifest(t, ds.namespace, out), "web", "out"))
	ds.kubectl("rollout", "status", "daemonset/out", "--timeout="+patience.String())
	w.unchecked, d.unchecked, ds.unchecked = true, true, true // the ServiceAccount does what the controller never does
	s, of, ofNodes := takeOver(t, w.namespace), takeOver(t, d.namespace), takeOver(t, ds.namespace)
	daemon, otherDaemon := ds.on(1), podsOf(t, ds.namespace, "app=out")[0]
	outside := podsOf(t, d.namespace, "app=out")[0]
	outsideSet := metav1.GetControllerOf(&outside).Name
	inside, live := d.pods()[d.names()[0]], d.active()
	const ofSet, ofDeployment, ofDaemonSet = "pods of a StatefulSet that is not opted in", "pods of a Deployment that is not opted in", "pods of a DaemonSet that is not opted in"
	annotate := func() error {
		return of.patch("replicaset/"+outsideSet, `{"metadata":{"annotations":{"a":"b"}}}`)
	}
	const ofReplicaSet = "ReplicaSets of a Deployment that is not opted in"
	// The API server takes up each policy, and the workloads that it asks about, by itself.
	component(t, "fence-owners", func() bool {
		return strings.Contains(said(s.remove("out-0", nil)), ofSet) && strings.Contains(said(of.evict(&outside)), ofDeployment) &&
			strings.Contains(said(ofNodes.remove(otherDaemon.Name, nil)), ofDaemonSet) && strings.Contains(said(annotate()), ofReplicaSet)
	})
	for _, tt := range []struct {
		name string
		do   func() error
		want string // of the answer; empty if it is to be let through
	}{
		{"resizing a set's pod", func() error { return s.patch("pod/web-0", bigger, "resize") }, ""},
		{"relabelling one", func() error { return s.patch("pod/web-0", label("controller-revision-hash", "web-1")) }, ""},
		{"deleting one", func() error { return s.remove("web-0", nil) }, ""},
		{"resizing another set's pod", func() error { return s.patch("pod/out-0", bigger, "resize") }, ofSet},
		{"relabelling one of it", func() error { return s.patch("pod/out-0", label("controller-revision-hash", "out-1")) }, ofSet},
		{"resizing a Deployment's pod", func() error { return of.patch("pod/"+inside.Name, bigger, "resize") }, ""},
		{"evicting one", func() error { return of.evict(&inside) }, ""},
		{"resizing another Deployment's pod", func() error { return of.patch("pod/"+outside.Name, bigger, "resize") }, ofDeployment},
		{"resizing a DaemonSet's pod", func() error { return ofNodes.patch("pod/"+daemon.Name, bigger, "resize") }, ""},
		{"deleting one of it", func() error { return ofNodes.remove(daemon.Name, nil) }, ""},
		{"resizing another DaemonSet's pod", func() error { return ofNodes.patch("pod/"+otherDaemon.Name, bigger, "resize") }, ofDaemonSet},
		{"another Deployment's ReplicaSet", annotate, ofReplicaSet},
		{"a ReplicaSet of another size", func() error {
			return of.history(live, func(rs *appsv1.ReplicaSet) {
				rs.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("90m")
			})
		}, ""},
		{"a ReplicaSet of another image", func() error {
			return of.history(live, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.Containers[0].Image = "evil" })
		}, "but for cpu and memory"},
		{"a ReplicaSet that mounts a Secret", func() error {
			return of.history(live, func(rs *appsv1.ReplicaSet) {
				rs.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "stolen", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "stolen"}}}}
			})
		}, "but for cpu and memory"},
		{"a ReplicaSet with a container more", func() error {
			return of.history(live, func(rs *appsv1.ReplicaSet) {
				rs.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "evil", Image: "evil"}}
			})
		}, "but for cpu and memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := said(tt.do()); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	w.ownController(t, controller.Options{})
	d.ownController(t, controller.Options{})
	ds.ownController(t, controller.Options{})
	before, daemons := d.uids(), ds.uids()
	ds.setResources("cpu=150m", "")
	d.annotatePod(inside.Name, simInfeasible) // it is detached, evicted, and replaced
	w.setResources("cpu=150m", "")
	d.edit("150m")
	w.waitComplete()
	w.assertMoved(0)
	d.assertReplaced(before, inside.Name)
	d.assertSettled("150m")
	d.assertReplicaSets(2)
	ds.waitComplete()
	ds.assertMoved(daemons, "150m")
	// A label of now counts.
	w.kubectl("label", "statefulset/out", "--overwrite", enabled+"=true")
	eventually(t, "the opt-in to be known to the policy", func() (bool, string) {
		err := s.patch("pod/out-0", bigger, "resize")
		return err == nil, said(err)
	})
}

func podsOf(t *testing.T, namespace, selector string) []corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}
