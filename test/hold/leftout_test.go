//go:build around

package hold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// What clouds add to the namespaceSelector of every webhook.
var (
	aks = []metav1.LabelSelectorRequirement{
		{Key: "control-plane", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"true"}},
		{Key: "control-plane", Operator: metav1.LabelSelectorOpDoesNotExist},
		{Key: "kubernetes.azure.com/managedby", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"aks"}},
	}
	gke = []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "gke-managed-system"}},
	}
)

// rewrite gives each webhook a namespaceSelector.
func rewrite(t *testing.T, requirements ...metav1.LabelSelectorRequirement) {
	t.Helper()
	configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	eventually(t, "the namespaceSelectors are rewritten", func() (bool, error) {
		c, err := configurations.Get(context.Background(), prerequisite.WebhookConfiguration, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for i := range c.Webhooks {
			c.Webhooks[i].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: requirements}
		}
		_, err = configurations.Update(context.Background(), c, metav1.UpdateOptions{})
		return err == nil, err
	})
}

// said are the warnings of the API server.
type said struct {
	mu   sync.Mutex
	what string
}

func (s *said) HandleWarningHeader(_ int, _, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.what += text + "\n"
}

func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := s.what
	s.what = ""
	return what
}

// someSet is a StatefulSet that goes with its test.
type someSet struct {
	namespace, name string
	client          kubernetes.Interface
}

func newSet(t *testing.T, c kubernetes.Interface, namespace, name string, annotations map[string]string) someSet {
	t.Helper()
	s := someSet{namespace, name, c}
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: annotations},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}},
		},
	}
	if _, err := c.AppsV1().StatefulSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.AppsV1().StatefulSets(namespace).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s someSet) edit(t *testing.T, cpu int, dryRun ...string) (*appsv1.StatefulSet, error) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"%dm"}}}]}}}}`, cpu)
	return s.client.AppsV1().StatefulSets(s.namespace).Patch(t.Context(), s.name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun})
}

// is waits until the set has a condition of this reason that says so, and is held or not.
func (s someSet) is(t *testing.T, reason, says string, holds bool) {
	t.Helper()
	eventually(t, s.name+" says "+reason, func() (bool, error) {
		set, err := client.AppsV1().StatefulSets(s.namespace).Get(t.Context(), s.name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range set.Status.Conditions {
			if c.Type == api.ConditionComplete && c.Reason == reason && strings.Contains(c.Message, says) && held(set) == holds {
				return holds || set.Spec.UpdateStrategy.RollingUpdate.Partition == nil || *set.Spec.UpdateStrategy.RollingUpdate.Partition == 0, nil
			}
		}
		return false, fmt.Errorf("it is held: %t, %+v", held(set), set.Status.Conditions)
	})
}

// TestRewrittenSelectors: what a cloud leaves out is rolled out as without us, is told, and stops nothing elsewhere.
func TestRewrittenSelectors(t *testing.T) {
	serve(t)
	for name, labels := range map[string]map[string]string{
		"gatekeeper-system": {"control-plane": "controller-manager", "kubernetes.azure.com/managedby": "aks"}, "gke-managed-system": nil,
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.OpenFile(filepath.Join(cp.Dir(), "log", "controller.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var p *controller.Process
	begin := func() {
		t.Helper()
		if p, err = controller.Start(t.Context(), cp, controller.Options{Log: log}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		if err := p.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	t.Cleanup(func() { rewrite(t) })
	warnings, config := &said{}, cp.RESTConfig()
	config.WarningHandler = warnings
	user, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := newSet(t, user, "default", "elsewhere", nil)
	out, cpu := map[string]someSet{}, 10
	for i, tt := range []struct {
		selector []metav1.LabelSelectorRequirement
		names    []string
	}{
		{aks, []string{"gatekeeper-system"}},
		{gke, []string{"gke-managed-system", "kube-system"}},
		{append(append([]metav1.LabelSelectorRequirement{}, aks...), gke...), []string{"gatekeeper-system", "gke-managed-system", "kube-system"}},
	} {
		rewrite(t, tt.selector...)
		eventually(t, "the policies know what is left out", func() (bool, error) {
			account, err := client.CoreV1().ServiceAccounts(controller.Namespace).Get(t.Context(), controller.ServiceAccount, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return account.Annotations[api.LeftOutAnnotation] == strings.Join(tt.names, ","), nil
		})
		for _, namespace := range tt.names {
			if namespace == "kube-system" {
				continue // opted in by a second word only
			}
			warnings.take()
			set, is := out[namespace]
			if !is {
				set = newSet(t, user, namespace, "left-out", nil)
				out[namespace] = set
				if got, want := warnings.take(), "excludes the namespace "+namespace+", so edits of this StatefulSet are rolled out as without inplace-rollout"; !strings.Contains(got, want) {
					t.Errorf("%d: who opts in in %s is told %q", i, namespace, got)
				}
			}
			eventually(t, "an edit goes through", func() (bool, error) { // API servers learn of the annotation a moment later
				_, err := set.edit(t, 5, metav1.DryRunAll)
				return err == nil, err
			})
			cpu++
			warnings.take()
			if after, err := set.edit(t, cpu); err != nil || held(after) {
				t.Errorf("%d: an edit in %s is held, or refused: %v", i, namespace, err)
			}
			if got := warnings.take(); strings.Count(got, "accepted: ") != 1 || !strings.Contains(got, "excludes the namespace "+namespace) {
				t.Errorf("%d: who edits in %s is told %q", i, namespace, got)
			}
			set.is(t, "NamespaceLeftOut", "excludes namespace "+namespace, false)
		}
		cpu++
		if after, err := elsewhere.edit(t, cpu); err != nil || !held(after) {
			t.Errorf("%d: an edit elsewhere is not held: %v", i, err)
		}
		if err := p.Ready(t.Context()); err != nil {
			t.Errorf("%d: not ready: %v", i, err)
		}
		if got, err := p.Metrics(t.Context()); err != nil || !strings.Contains(got, fmt.Sprintf("\ninplace_rollout_left_out_namespaces %d\n", len(tt.names))) {
			t.Errorf("%d: metrics do not say that %d are left out: %v", i, len(tt.names), err)
		}
		check := exec.CommandContext(t.Context(), filepath.Join(controller.Root(), "bin", "inplace-rollout"), "check", "--kubeconfig", cp.Kubeconfig(), "-n", "default")
		if said, _ := check.CombinedOutput(); !strings.Contains(string(said), "edits are not held in "+strings.Join(tt.names, ", ")+", because of the namespaceSelector") {
			t.Errorf("%d: check says\n%s", i, said)
		}
	}
	if logged, err := os.ReadFile(log.Name()); err != nil || !strings.Contains(string(logged), "Namespaces in which edits are not held") || !strings.Contains(string(logged), `"gke-managed-system"`) {
		t.Errorf("the log does not name what is left out: %v", err)
	}

	// Where it is not left out any more, edits are held again.
	rewrite(t)
	set := out["gatekeeper-system"]
	eventually(t, "edits are held again", func() (bool, error) {
		after, err := set.edit(t, 5, metav1.DryRunAll)
		return err == nil && held(after), err
	})

	// What is held when a namespace is left out is let go, unless that might restart what must not be.
	p.Stop()
	live := newSet(t, user, "gatekeeper-system", "live", map[string]string{api.ResizeActionAnnotation: "LiveResize"})
	for _, s := range []someSet{set, live} {
		if after, err := s.edit(t, 500); err != nil || !held(after) {
			t.Fatalf("an edit of %s is not held: %v", s.name, err)
		}
	}
	rewrite(t, aks...)
	begin()
	set.is(t, "NamespaceLeftOut", "edits are not held, and the StatefulSet controller makes the rollouts", false)
	live.is(t, "NamespaceLeftOut", "because its action is LiveResize. `kubectl inplace-rollout release` leaves it to the StatefulSet controller", true)
	events, err := client.CoreV1().Events("gatekeeper-system").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=HandedOver"})
	if err != nil || len(events.Items) != 1 || events.Items[0].InvolvedObject.Name != set.name || !strings.Contains(events.Items[0].Message, "excludes namespace") {
		t.Errorf("events: %v, %v", events, err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(controller.Root(), "bin", "inplace-rollout"), "release", "--kubeconfig", cp.Kubeconfig(), "-n", "gatekeeper-system", "statefulset/live", "--yes")
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatal(errors.Join(err, errors.New(string(said))))
	}
	live.is(t, "NamespaceLeftOut", "edits are not held, and the StatefulSet controller makes the rollouts", false)

	// Without a controller its word still counts: nobody's edit there is refused.
	p.Kill()
	if after, err := set.edit(t, 600); err != nil || held(after) {
		t.Errorf("an edit without a controller is held, or refused: %v", err)
	}
}

// TestOneNamespaceOfNarrowed: a controller with the rights of the whole cluster that looks after one namespace only looks whether
// that is one of those that are left out.
func TestOneNamespaceOfNarrowed(t *testing.T) {
	serve(t)
	t.Cleanup(func() { rewrite(t) })
	rewrite(t, aks...)
	p, err := controller.Start(t.Context(), cp, controller.Options{Args: []string{"--namespace=default"}, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}
