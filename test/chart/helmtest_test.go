//go:build around

package chart

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// testName is what everything is called that there is for `helm test`.
const testName = "inplace-rollout-test"

// TestHelmTest runs `helm test`, beside a webhook that others have narrowed, and plays the part of its pod: by the rights that it has, it
// finds nothing to complain of. When it stays and goes is said by what TestWithTest looks at.
func TestHelmTest(t *testing.T) {
	w := newWorld(t, "webhook")
	w.helm("install", release, folder(), "--create-namespace", "--wait", "--timeout=2m", "--set",
		"hold=webhook,webhook.namespaceSelector.matchExpressions[0].key=cloud,webhook.namespaceSelector.matchExpressions[0].operator=DoesNotExist")
	t.Cleanup(func() {
		if _, _, err := helm(context.Background(), t, w.cp.Kubeconfig(), "uninstall", release, "--namespace", platform, "--no-hooks", "--wait"); err != nil {
			t.Error(err)
		}
	})
	w.startWebhook()
	w.startController()
	done := make(chan error, 1)
	go func() {
		_, _, err := helm(t.Context(), t, w.cp.Kubeconfig(), "test", release, "--namespace", platform, "--timeout=2m")
		done <- err
	}()
	var pod *corev1.Pod
	w.eventually("the pod of the test", func() (bool, string) {
		found, err := w.client.CoreV1().Pods(platform).Get(t.Context(), testName, metav1.GetOptions{})
		pod = found
		return err == nil && pod.Status.Phase == corev1.PodRunning, fmt.Sprint(err, mustMarshal(t, found))
	})
	if said := w.runAs(pod.Spec); strings.ContainsAny(said, "?✗") || !strings.HasPrefix(said, "Yes: ") || !strings.Contains(said, "as a dry run shows") {
		t.Errorf("it says %s", said)
	}
	must.Get(w.client.CoreV1().Pods(platform).Patch(t.Context(), testName, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"))(t)
	must.Do(t, <-done)
}

// runAs runs what a pod's container runs, as the pod's ServiceAccount: simulated nodes run no images. It returns what that printed.
func (w *world) runAs(pod corev1.PodSpec) string {
	w.t.Helper()
	kubeconfig := must.Get(w.cp.ServiceAccountKubeconfig(w.t.Context(), platform, pod.ServiceAccountName, ""))(w.t)
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(controller.Root(), "bin", "inplace-rollout"), pod.Containers[0].Args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	said, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v: %s", err, said)
	}
	return string(said)
}

// TestWithTest: which releases have a test, which may read only, but for its dry runs. Without a cluster there is none, so that nobody applies it with the rest.
func TestWithTest(t *testing.T) {
	all := []string{"ClusterRole", "ClusterRoleBinding", "Pod", "Role", "RoleBinding", "ServiceAccount"}
	for values, want := range map[string][]string{
		"hold=policy":                                  all,
		"hold=webhook":                                 all,
		"hold=policy,parts=cluster":                    all,
		"hold=policy,serviceAccount.name=resizer":      all,
		"hold=policy,test.enabled=false":               nil,
		"hold=policy,parts=controller":                 nil,
		"hold=policy,watch=namespace,parts=cluster":    nil,
		"hold=policy,watch=namespace,parts=controller": nil,
	} {
		for about, render := range map[string]func(*testing.T, string, string, ...string) ([]object, error){"with a cluster": connected, "without a cluster": template} {
			want := want
			if about == "without a cluster" {
				want = nil
			}
			objects, err := render(t, folder(), "platform", "--set", values)
			if err != nil {
				t.Errorf("%s, --set %s: %v", about, values, err)
				continue
			}
			var kinds []string
			for _, o := range objects {
				if o.metadata()["name"] == testName || o.annotation("helm.sh/hook") == "test" {
					kinds = append(kinds, o["kind"].(string))
				}
				if o.metadata()["name"] != testName {
					continue
				}
				rules, _ := o["rules"].([]any)
				for _, rule := range rules {
					rule := rule.(map[string]any)
					if verbs, names := fmt.Sprint(rule["verbs"]), fmt.Sprint(rule["resourceNames"]); verbs != "[get]" && verbs != "[list]" && verbs != "[get list]" && names != "[inplace-rollout-dry-run]" {
						t.Errorf("--set %s: the test may %s %v %s", values, verbs, rule["resources"], names)
					}
				}
				for name, want := range map[string]any{
					"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded", "helm.sh/hook-output-log-policy": "hook-succeeded,hook-failed",
				} {
					must.Equal(t, o.annotation(name), want, "--set %s: %s, its annotation %s", values, o, name)
				}
			}
			if slices.Sort(kinds); !slices.Equal(kinds, want) {
				t.Errorf("%s, --set %s: the test has %v, want %v", about, values, kinds, want)
			}
			if want != nil && !strings.Contains(mustMarshal(t, ofKind(objects, "Role", testName)), api.HeartbeatName) {
				t.Errorf("--set %s: it cannot read the heartbeat: %s", values, mustMarshal(t, ofKind(objects, "Role", testName)))
			}
		}
	}
}

func ofKind(objects []object, kind, name string) object {
	for _, o := range objects {
		if o["kind"] == kind && o.metadata()["name"] == name {
			return o
		}
	}
	return nil
}
