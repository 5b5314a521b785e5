//go:build integration || around

package integration

import (
	"context"
	"fmt"
	"path/filepath"
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
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
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
	kubeconfig := must.Get(cp.ServiceAccountKubeconfig(t.Context(), controller.Namespace, controller.ServiceAccount, ""))(t)
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	c := must.Get(kubernetes.NewForConfig(config))(t)
	return taken{t, c, namespace}
}

// patch an object, named as kubectl does: statefulset/web. A patch is a JSON patch if it is a
// list, or else a merge patch.
func (s taken) patch(ref, patch string, subresources ...string) error {
	kind, name, _ := strings.Cut(ref, "/")
	form := types.MergePatchType
	switch {
	case strings.HasPrefix(patch, "["):
		form = types.JSONPatchType
	case strings.HasPrefix(patch, `{"apiVersion"`):
		form = types.ApplyPatchType
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

// patches is a patch that is still to be made.
func (s taken) patches(ref, patch string, subresources ...string) func() error {
	return func() error { return s.patch(ref, patch, subresources...) }
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

// histories creates a ReplicaSet beside another one, as for the history, when it is called.
func (s taken) histories(live appsv1.ReplicaSet, change func(*appsv1.ReplicaSet)) func() error {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-new", Labels: live.Labels, OwnerReferences: slices.Clone(live.OwnerReferences)},
		Spec:       *live.Spec.DeepCopy(),
	}
	rs.Spec.Replicas = ptr.To[int32](0)
	change(rs)
	return func() error {
		_, err := s.client.AppsV1().ReplicaSets(s.namespace).Create(s.t.Context(), rs, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
}

// label is a patch that sets a label.
func label(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
}

// bigger is a patch that resizes a pod.
const bigger = `{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`

// component applies a policy of deploy/components until the test ends, and waits until it is in force.
func component(t *testing.T, name string, inForce func() bool) {
	t.Helper()
	file := filepath.Join(controller.Root(), "deploy", "components", name, name+".yaml")
	administer(t, "apply", "-f", file)
	t.Cleanup(func() { must.Get(cp.Kubectl(context.Background(), "delete", "-f", file))(t) })
	eventually(t, file+" to be in force", func() (bool, string) { return inForce(), "it is not" })
}

func podsOf(t *testing.T, namespace, selector string) []corev1.Pod {
	t.Helper()
	list := must.Get(client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector}))(t)
	return list.Items
}
