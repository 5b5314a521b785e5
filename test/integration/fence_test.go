//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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
	case "replicaset":
		_, err = s.client.AppsV1().ReplicaSets(s.namespace).Patch(s.t.Context(), name, form, []byte(patch), options, subresources...)
	default:
		if slices.Equal(subresources, []string{"resize"}) {
			form = types.StrategicMergePatchType
		}
		_, err = s.client.CoreV1().Pods(s.namespace).Patch(s.t.Context(), name, form, []byte(patch), options, subresources...)
	}
	return err
}

func (s taken) evict(pod *corev1.Pod) error {
	return s.client.CoreV1().Pods(s.namespace).EvictV1(s.t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun, Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}},
	})
}

// bare is a pod that nothing controls.
const bare = `{apiVersion: v1, kind: Pod, metadata: {name: bare, labels: {app: bare}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: app, image: "app:1", resources: ` + base + `}]}}`

// secretVolume mounts a Secret, as a JSON patch of a template.
const secretVolume = `{"op":"add","path":"/spec/template/spec/volumes","value":[{"name":"stolen","secret":{"secretName":"stolen"}}]}`

// TestFence does with the controller's own ServiceAccount what the controller never does.
// It may by its rights, but the policies let nothing of it through.
func TestFence(t *testing.T) {
	w := newWorkload(t, options{Replicas: 1})
	w.apply(strings.ReplaceAll(manifest(t, w.namespace, options{Replicas: 1, OptedOut: true}), "web", "out"))
	w.apply(bare)
	d := &deployment{newSandbox(t, options{Kind: "Deployment", Replicas: 1}, func(namespace string) getter[*appsv1.Deployment] { return client.AppsV1().Deployments(namespace) })}
	d.waitRolledOut()
	d.apply(bare)
	d.apply(strings.ReplaceAll(manifest(t, d.namespace, options{Replicas: 1, Kind: "Deployment", OptedOut: true}), "web", "out"))
	s, of := takeOver(t, w.namespace), takeOver(t, d.namespace)
	for _, pod := range []string{"pod/out-0", "pod/bare"} {
		w.kubectl("wait", "--for=condition=Ready", pod, "--timeout="+patience.String())
	}
	d.kubectl("wait", "--for=condition=Available", "deployment/out", "--timeout="+patience.String())
	live := d.active()
	set, pod := "replicaset/"+live.Name, "pod/"+d.names()[0]
	webPod, barePod := d.pods()[d.names()[0]], getPod(t, d.namespace, "bare")

	history := func(change func(*appsv1.ReplicaSet)) error {
		rs := &appsv1.ReplicaSet{ObjectMeta: *live.ObjectMeta.DeepCopy(), Spec: *live.Spec.DeepCopy()}
		rs.ObjectMeta = metav1.ObjectMeta{Name: "web-new", Labels: rs.Labels, OwnerReferences: rs.OwnerReferences}
		rs.Spec.Replicas = ptr.To[int32](0)
		change(rs)
		_, err := of.client.AppsV1().ReplicaSets(d.namespace).Create(t.Context(), rs, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	label := func(key, value string) string {
		return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	}
	bigger := `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`
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
		}, "nothing of a status but the condition"},
		{"more of a status", func() error { return s.patch(w.ref, `{"status":{"availableReplicas":0}}`, "status") }, "nothing of a status but the condition"},
		{"more of a Deployment's status", func() error { return of.patch(d.ref, `{"status":{"availableReplicas":null}}`, "status") }, "nothing of a status but the condition"},
		{"a label by way of the status", func() error { return s.patch(w.ref, label("a", "b"), "status") }, "nothing of a status but the condition"},
		{"an annotation by way of the status", func() error {
			return of.patch(d.ref, `{"metadata":{"annotations":{"inplace-rollout.io/in-force":"Restart;"}}}`, "status")
		}, "nothing of a status but the condition"},
		{"a status of what is not opted in", func() error {
			return s.patch("statefulset/out", `{"status":{"conditions":[{"type":"inplace-rollout.io/Complete","status":"True"}]}}`, "status")
		}, "only workloads with the label"},

		{"a ReplicaSet for the history", func() error { return history(func(*appsv1.ReplicaSet) {}) }, ""},
		{"a ReplicaSet with a pod", func() error { return history(func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To[int32](1) }) }, "only ReplicaSets of 0 replicas"},
		{"a ReplicaSet of nobody", func() error { return history(func(rs *appsv1.ReplicaSet) { rs.OwnerReferences = nil }) }, "only ReplicaSets that a Deployment controls"},
		{"a ReplicaSet of something else", func() error {
			return history(func(rs *appsv1.ReplicaSet) {
				rs.OwnerReferences[0].APIVersion, rs.OwnerReferences[0].BlockOwnerDeletion = "argoproj.io/v1", nil
			})
		}, "only ReplicaSets that a Deployment controls"},
		{"scaling a ReplicaSet", func() error { return of.patch(set, `{"spec":{"replicas":5}}`) }, "neither scale a ReplicaSet"},
		{"another size for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"test","path":"/metadata/uid","value":"`+string(live.UID)+`"},{"op":"add","path":"/spec/template/spec/containers/0/resizePolicy","value":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]},{"op":"replace","path":"/metadata/resourceVersion","value":"`+live.ResourceVersion+`"}]`, "")
		}, ""},
		{"a Secret for a ReplicaSet", func() error { return of.patch(set, "["+secretVolume+"]") }, "nothing of a ReplicaSet's template but cpu and memory"},
		{"an image for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`)
		}, "nothing of a ReplicaSet's template but cpu and memory"},
		{"a container for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"evil","image":"evil"}}]`)
		}, "nothing of a ReplicaSet's template but cpu and memory"},
		{"a first container for a ReplicaSet, which the others follow", func() error {
			return of.patch(set, `[{"op":"add","path":"/spec/template/spec/initContainers","value":[{"name":"evil","image":"evil"}]}]`)
		}, "nothing of a ReplicaSet's template but cpu and memory"},
		{"a device for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"add","path":"/spec/template/spec/containers/0/resources/limits/example.com~1gpu","value":"1"}]`)
		}, "nothing of a ReplicaSet's template but cpu and memory"},
		{"a resizePolicy that counts for a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"replace","path":"/spec/template/spec/containers/0/resizePolicy","value":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]}]`)
		}, "nothing of a ReplicaSet's template but cpu and memory"},
		{"a label for the pods of a ReplicaSet", func() error {
			return of.patch(set, `[{"op":"add","path":"/spec/template/metadata/labels/a","value":"b"}]`)
		}, "nothing of a ReplicaSet's template but cpu and memory"},
		{"a ReplicaSet's labels", func() error { return of.patch(set, label("a", "b")) }, "neither the labels nor the owners"},
		{"a ReplicaSet's owners", func() error { return of.patch(set, `{"metadata":{"ownerReferences":null}}`) }, "only ReplicaSets that a Deployment controls"},
		{"a ReplicaSet's revision", func() error {
			return of.patch(set, `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"9"}}}`)
		}, "not change the revision"},
		{"deleting a ReplicaSet that has pods", func() error {
			return of.client.AppsV1().ReplicaSets(d.namespace).Delete(t.Context(), live.Name, metav1.DeleteOptions{DryRun: dryRun})
		}, "only ReplicaSets of 0 replicas"},

		{"resizing", func() error { return s.patch("pod/web-0", bigger, "resize") }, ""},
		{"resizing a bare pod", func() error { return s.patch("pod/bare", bigger, "resize") }, "only pods of StatefulSets and Deployments"},
		{"relabelling", func() error { return s.patch("pod/web-0", label("controller-revision-hash", "web-1")) }, ""},
		{"relabelling to what is no revision of it", func() error { return s.patch("pod/web-0", label("controller-revision-hash", "out-1")) }, "no label of a pod but"},
		{"another label", func() error { return s.patch("pod/web-0", label("app", "out")) }, "no label of a pod but"},
		{"relabelling a Deployment's pod", func() error { return of.patch(pod, label("pod-template-hash", "other")) }, "no label of a pod but"},
		{"relabelling a bare pod", func() error { return s.patch("pod/bare", label("controller-revision-hash", "web-1")) }, "only pods of StatefulSets and Deployments"},
		{"an annotation of a pod", func() error { return s.patch("pod/web-0", `{"metadata":{"annotations":{"a":"b"}}}`) }, "nothing of a pod but"},
		{"an image of a pod", func() error {
			return s.patch("pod/web-0", `[{"op":"replace","path":"/spec/containers/0/image","value":"evil"}]`)
		}, "nothing of a pod but"},
		{"an end of a pod", func() error { return s.patch("pod/web-0", `{"spec":{"activeDeadlineSeconds":1}}`) }, "nothing of a pod but"},
		{"a pod set free", func() error { return of.patch(pod, `{"metadata":{"ownerReferences":null}}`) }, "owner of a pod only to its Deployment"},
		{"a pod detached without a trace", func() error {
			owner, _ := json.Marshal(metav1.NewControllerRef(d.get(), appsv1.SchemeGroupVersion.WithKind("Deployment")))
			return of.patch(pod, `{"metadata":{"labels":{"pod-template-hash":null},"ownerReferences":[`+strings.Replace(string(owner), `"blockOwnerDeletion":true,`, "", 1)+`]}}`)
		}, "owner of a pod only to its Deployment"},
		{"deleting a bare pod", func() error {
			return s.client.CoreV1().Pods(w.namespace).Delete(t.Context(), "bare", metav1.DeleteOptions{DryRun: dryRun})
		}, "may delete only pods of StatefulSets"},
		{"deleting a Deployment's pod", func() error {
			return of.client.CoreV1().Pods(d.namespace).Delete(t.Context(), webPod.Name, metav1.DeleteOptions{DryRun: dryRun})
		}, "may delete only pods of StatefulSets"},
		{"evicting a bare pod", func() error { return of.evict(&barePod) }, "may evict only pods of Deployments"},
		{"evicting a StatefulSet's pod", func() error { p := getPod(t, w.namespace, "web-0"); return s.evict(&p) }, "may evict only pods of Deployments"},
		{"evicting whatever has the name now", func() error {
			return of.client.CoreV1().Pods(d.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: webPod.Name}})
		}, "only in the version that it has seen"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := said(tt.do())
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) || got != "" && !strings.Contains(got, "ValidatingAdmissionPolicy 'inplace-rollout-fence-") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
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
