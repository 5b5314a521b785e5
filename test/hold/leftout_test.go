//go:build around

package hold

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// clouds is what AKS and GKE add to the namespaceSelector of every webhook, in a cluster that would be both.
var clouds = []metav1.LabelSelectorRequirement{
	{Key: "control-plane", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"true"}},
	{Key: "control-plane", Operator: metav1.LabelSelectorOpDoesNotExist},
	{Key: "kubernetes.azure.com/managedby", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"aks"}},
	{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "gke-managed-system"}},
}

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

// TestRewrittenSelectors: what a cloud leaves out is rolled out as without us, is told, and stops nothing elsewhere. Of each selector,
// TestLeftOut of pkg/prerequisite proves what it leaves out; of what is held then, that of pkg/controller, what becomes of it.
func TestRewrittenSelectors(t *testing.T) {
	serve(t)
	for name, labels := range map[string]map[string]string{
		"gatekeeper-system": {"control-plane": "controller-manager", "kubernetes.azure.com/managedby": "aks"}, "gke-managed-system": nil,
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		must.Get(client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}))(t)
	}
	p := must.Get(controller.Start(t.Context(), cp, controller.Options{Log: t.Output()}))(t)
	t.Cleanup(p.Kill)
	must.Do(t, p.WaitReady(t.Context()))
	t.Cleanup(func() { rewrite(t) })
	warnings, config := &said{}, cp.RESTConfig()
	config.WarningHandler = warnings
	user := must.Get(kubernetes.NewForConfig(config))(t)
	elsewhere := newSet(t, user, "default", "elsewhere")
	rewrite(t, clouds...)
	eventually(t, "the policies know what is left out", func() (bool, error) {
		account, err := client.CoreV1().ServiceAccounts(controller.Namespace).Get(t.Context(), api.HeartbeatName, metav1.GetOptions{})
		return err == nil && account.Annotations[api.LeftOutAnnotation] == "gatekeeper-system,gke-managed-system,kube-system", err
	})
	for _, namespace := range []string{"gatekeeper-system", "gke-managed-system"} {
		warnings.take()
		set := newSet(t, user, namespace, "left-out")
		if got, want := warnings.take(), "leaves the namespace "+namespace+" out, so edits of this StatefulSet restart pods"; !strings.Contains(got, want) {
			t.Errorf("who opts in in %s is told %q", namespace, got)
		}
		eventually(t, "an edit goes through", func() (bool, error) { // API servers learn of the annotation a moment later
			_, err := set.edit(t, 5, metav1.DryRunAll)
			return err == nil, err
		})
		warnings.take()
		if after, err := set.edit(t, 10); err != nil || held(after) {
			t.Errorf("an edit in %s is held, or refused: %v", namespace, err)
		}
		if got := warnings.take(); strings.Count(got, "restart pods") != 1 || !strings.Contains(got, "leaves the namespace "+namespace+" out") {
			t.Errorf("who edits in %s is told %q", namespace, got)
		}
		eventually(t, "the condition says so", func() (bool, error) {
			now, err := client.AppsV1().StatefulSets(namespace).Get(t.Context(), set.name, metav1.GetOptions{})
			return err == nil && slices.ContainsFunc(now.Status.Conditions, func(c appsv1.StatefulSetCondition) bool {
				return c.Type == api.ConditionComplete && c.Reason == "NamespaceLeftOut" && strings.Contains(c.Message, "excludes namespace "+namespace)
			}), err
		})
	}
	if after, err := elsewhere.edit(t, 10); err != nil || !held(after) {
		t.Errorf("an edit elsewhere is not held: %v", err)
	}
	must.Fails(t, "not ready", p.Ready(t.Context()), "")
	if got, err := p.Metrics(t.Context()); err != nil || !strings.Contains(got, "\ninplace_rollout_left_out_namespaces 3\n") {
		t.Errorf("metrics do not say that 3 are left out: %v", err)
	}
	const unheld = "edits are not held in gatekeeper-system, gke-managed-system, kube-system, because of the namespaceSelector"
	check, _ := exec.CommandContext(t.Context(), filepath.Join(controller.Root(), "bin", "inplace-rollout"), "check", "-n", "default", "--kubeconfig", cp.Kubeconfig()).CombinedOutput()
	must.Contain(t, string(check), unheld, "check")
}
