//go:build around

package chart

import (
	"context"
	"errors"
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

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// testName is what everything is called that there is for `helm test`.
const testName = "inplace-rollout-test"

// TestHelmTest runs `helm test`, with the policies and with a webhook that others have narrowed: it fails while no controller is
// ready, and the pod stays; with one it succeeds, again and again, and nothing stays.
func TestHelmTest(t *testing.T) {
	for hold, values := range map[string]string{
		"policy":  "hold=policy",
		"webhook": "hold=webhook,webhook.namespaceSelector.matchExpressions[0].key=cloud,webhook.namespaceSelector.matchExpressions[0].operator=DoesNotExist",
	} {
		t.Run(hold, func(t *testing.T) {
			w := newWorld(t, hold)
			w.helm("install", release, folder(), "--create-namespace", "--wait", "--timeout=2m", "--set", values)
			t.Cleanup(w.remove)
			if hold == "webhook" {
				w.startWebhook()
			}

			said, first := w.helmTest(corev1.PodFailed)
			if !strings.Contains(said, "Controller: no controller is ready") {
				t.Errorf("without a controller it says %s", said)
			}
			if left := w.ofTest(); left != "pod/"+testName {
				t.Errorf("after a failure there is %q, want the pod", left)
			}

			w.startController()
			for range 2 {
				said, pod := w.helmTest(corev1.PodSucceeded)
				if pod.UID == first.UID {
					t.Error("it is the pod of the first test")
				}
				if strings.ContainsAny(said, "?✗") || !strings.Contains(said, "✓ Dry run: ") {
					t.Errorf("it says %s", said)
				}
				if left := w.ofTest(); left != "" {
					t.Errorf("after a success there is %q", left)
				}
			}
		})
	}
}

// remove uninstalls the release as it is.
func (w *world) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, _, err := helm(ctx, w.t, w.cp.Kubeconfig(), "uninstall", release, "--namespace", platform, "--no-hooks", "--wait"); err != nil {
		w.t.Error(err)
	}
	if _, err := w.cp.Kubectl(ctx, "delete", "--ignore-not-found", "pod/"+testName, "serviceaccount/"+testName, "role/"+testName, "rolebinding/"+testName,
		"clusterrole/"+testName, "clusterrolebinding/"+testName, "--namespace", platform); err != nil {
		w.t.Error(err)
	}
}

// ofTest are the objects of the test that there are.
func (w *world) ofTest() string {
	w.t.Helper()
	out, err := w.cp.Kubectl(w.t.Context(), "get", "pods,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings", "--namespace", platform,
		"--selector=app.kubernetes.io/instance="+release, "--output=name")
	if err != nil {
		w.t.Fatal(err)
	}
	var ours []string
	for name := range strings.FieldsSeq(out) {
		if strings.HasSuffix(name, "/"+testName) {
			ours = append(ours, name)
		}
	}
	return strings.Join(ours, " ")
}

// helmTest runs `helm test`, and plays the part of its pod, which must end so. It returns what the pod's container printed,
// and the pod.
func (w *world) helmTest(want corev1.PodPhase) (said string, pod *corev1.Pod) {
	w.t.Helper()
	var before types.UID
	if old, err := w.client.CoreV1().Pods(platform).Get(w.t.Context(), testName, metav1.GetOptions{}); err == nil {
		before = old.UID
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := helm(w.t.Context(), w.t, w.cp.Kubeconfig(), "test", release, "--namespace", platform, "--timeout=2m")
		done <- err
	}()
	w.eventually("the pod of the test", func() (bool, string) {
		found, err := w.client.CoreV1().Pods(platform).Get(w.t.Context(), testName, metav1.GetOptions{})
		pod = found
		return err == nil && pod.UID != before && pod.Status.Phase == corev1.PodRunning, fmt.Sprint(err, mustMarshal(w.t, found))
	})
	said, err := w.check(pod.Spec.ServiceAccountName, pod.Spec.Containers[0].Args)
	phase := corev1.PodSucceeded
	if err != nil {
		phase = corev1.PodFailed
	}
	if phase != want {
		w.t.Fatalf("it ends as %s, want %s: %v\n%s", phase, want, err, said)
	}
	if _, err := w.client.CoreV1().Pods(platform).Patch(w.t.Context(), testName, types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status"); err != nil {
		w.t.Fatal(err)
	}
	if err := <-done; (err == nil) != (want == corev1.PodSucceeded) {
		w.t.Fatalf("the pod ended as %s, and helm test with %v", want, err)
	}
	return said, pod
}

// check runs what the pod's container runs, as the pod's ServiceAccount: simulated nodes run no images. It fails if that ends with
// another exit code than 0 or 1.
func (w *world) check(account string, args []string) (string, error) {
	w.t.Helper()
	kubeconfig, err := w.cp.ServiceAccountKubeconfig(w.t.Context(), platform, account, "")
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(controller.Root(), "bin", "inplace-rollout"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	said, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		w.t.Fatalf("%v: %s", err, said)
	}
	return string(said), err
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
					if got := o.annotation(name); got != want {
						t.Errorf("--set %s: %s has %s: %v, want %v", values, o, name, got, want)
					}
				}
			}
			if slices.Sort(kinds); !slices.Equal(kinds, want) {
				t.Errorf("%s, --set %s: the test has %v, want %v", about, values, kinds, want)
			}
			if want != nil && strings.Contains(values, "resizer") != strings.Contains(mustMarshal(t, ofKind(objects, "Role", testName)), "resizer") {
				t.Errorf("--set %s: it reads another ServiceAccount than the controller's: %s", values, mustMarshal(t, ofKind(objects, "Role", testName)))
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
