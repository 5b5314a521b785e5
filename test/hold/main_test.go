//go:build around

// Package hold tests what is different where a webhook holds rollouts: that it can fail, and that
// it has a certificate. What is held, is the same; see test/integration.
package hold

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

var (
	cp      *controlplane.ControlPlane
	client  kubernetes.Interface
	webhook *controller.Webhook
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "clients-")
	if err == nil {
		apiserver, err = shown(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := controlplane.RunTests(m, controlplane.Options{Flags: map[string][]string{
		"kube-apiserver": {"--admission-control-config-file", filepath.Join(dir, "admission.yaml")},
	}}, setUp)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func setUp(ctx context.Context, started *controlplane.ControlPlane) (tearDown func(), err error) {
	cp = started
	config := cp.RESTConfig()
	config.QPS = -1
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(cp.Dir(), "log", "webhook.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the webhook's log: %w", err)
	}
	if webhook, err = controller.StartWebhook(ctx, cp, controller.WebhookOptions{Log: file}); err != nil {
		return nil, err
	}
	return webhook.Stop, nil
}

// serve starts both replicas of the webhook again, for this test. They make a certificate of their own.
func serve(t *testing.T, args ...string) *controller.Webhook {
	t.Helper()
	must.Do(t, webhook.Renew(t.Context(), args...))
	return webhook
}

// restart kills both replicas and starts them again, with other arguments.
func restart(t *testing.T, args ...string) {
	t.Helper()
	for i := range 2 {
		webhook.Replica(i).Kill()
	}
	for i := range 2 {
		must.Do(t, webhook.Start(t.Context(), i, args...))
	}
	for i := range 2 {
		must.Do(t, webhook.Replica(i).WaitReady(t.Context()))
	}
}

// someSet is a StatefulSet that goes with its test. No node is there, so its pod stays Pending.
type someSet struct {
	namespace, name string
	client          kubernetes.Interface
}

func newSet(t *testing.T, c kubernetes.Interface, namespace, name string, change ...func(*appsv1.StatefulSet)) someSet {
	t.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.EnabledLabel: "true"}},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}},
		},
	}
	for _, f := range change {
		f(set)
	}
	must.Get(c.AppsV1().StatefulSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		must.Do(t, client.AppsV1().StatefulSets(namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
	return someSet{namespace, name, c}
}

// edit writes a template with so much cpu.
func (s someSet) edit(t *testing.T, cpu int, dryRun ...string) (*appsv1.StatefulSet, error) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"%dm"}}}]}}}}`, cpu)
	return s.client.AppsV1().StatefulSets(s.namespace).Patch(t.Context(), s.name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun})
}

// create makes a set in the namespace default, opted in or not.
func create(t *testing.T, name string, optedIn bool) {
	t.Helper()
	newSet(t, client, "default", name, func(set *appsv1.StatefulSet) { set.Labels[api.EnabledLabel] = fmt.Sprint(optedIn) })
}

// edit writes a template of such a set.
func edit(t *testing.T, name string, cpu int) (*appsv1.StatefulSet, error) {
	t.Helper()
	return someSet{"default", name, client}.edit(t, cpu)
}

// held reports whether no pod would be restarted for the template.
func held(set *appsv1.StatefulSet) bool {
	u := set.Spec.UpdateStrategy.RollingUpdate
	return set.Annotations[api.HoldAnnotation] == "0" && u != nil && u.Partition != nil && *u.Partition == 1<<31-1
}

// pause is between two questions or edits, so that they leave time to whom they ask, and to what else runs.
const pause = 50 * time.Millisecond

// eventually waits until the condition is met, for at most a minute.
func eventually(t *testing.T, what string, met func() (bool, error)) {
	t.Helper()
	must.Eventually(t, pause, time.Minute, what, func() (bool, string) {
		ok, err := met()
		return ok && err == nil, fmt.Sprint(err)
	})
}
