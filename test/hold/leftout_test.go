//go:build around

package hold

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
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

// TestRewrittenSelectors: what a cloud leaves out is rolled out as without us, is told, and stops nothing elsewhere. Of each selector,
// TestLeftOut of pkg/prerequisite proves what it leaves out.
func TestRewrittenSelectors(t *testing.T) {
	serve(t)
	for name, labels := range map[string]map[string]string{
		"gatekeeper-system": {"control-plane": "controller-manager", "kubernetes.azure.com/managedby": "aks"}, "gke-managed-system": nil,
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		must.Get(client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}))(t)
	}
	var p *controller.Process
	begin := func() {
		t.Helper()
		p = must.Get(controller.Start(t.Context(), cp, controller.Options{Log: t.Output()}))(t)
		t.Cleanup(p.Kill)
		must.Do(t, p.WaitReady(t.Context()))
	}
	ours := func(args ...string) string {
		t.Helper()
		said, _ := exec.CommandContext(t.Context(), filepath.Join(controller.Root(), "bin", "inplace-rollout"), append(args, "--kubeconfig", cp.Kubeconfig())...).CombinedOutput()
		return string(said)
	}
	begin()
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
	out := map[string]someSet{}
	for _, namespace := range []string{"gatekeeper-system", "gke-managed-system"} {
		warnings.take()
		set := newSet(t, user, namespace, "left-out")
		out[namespace] = set
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
		set.is(t, "NamespaceLeftOut", "excludes namespace "+namespace, false)
	}
	if after, err := elsewhere.edit(t, 10); err != nil || !held(after) {
		t.Errorf("an edit elsewhere is not held: %v", err)
	}
	must.Fails(t, "not ready", p.Ready(t.Context()), "")
	if got, err := p.Metrics(t.Context()); err != nil || !strings.Contains(got, "\ninplace_rollout_left_out_namespaces 3\n") {
		t.Errorf("metrics do not say that 3 are left out: %v", err)
	}
	const unheld = "edits are not held in gatekeeper-system, gke-managed-system, kube-system, because of the namespaceSelector"
	must.Contain(t, ours("check", "-n", "default"), unheld, "check")

	// Where it is not left out any more, edits are held again.
	rewrite(t)
	set := out["gatekeeper-system"]
	eventually(t, "edits are held again", func() (bool, error) {
		after, err := set.edit(t, 5, metav1.DryRunAll)
		return err == nil && held(after), err
	})

	// What is held when a namespace is left out is let go, unless that might restart what must not be.
	p.Stop()
	live := newSet(t, user, "gatekeeper-system", "live", func(set *appsv1.StatefulSet) {
		set.Annotations = map[string]string{api.ResizeActionAnnotation: "LiveResize"}
	})
	for _, s := range []someSet{set, live} {
		if after, err := s.edit(t, 500); err != nil || !held(after) {
			t.Fatalf("an edit of %s is not held: %v", s.name, err)
		}
	}
	rewrite(t, clouds...)
	begin()
	set.is(t, "NamespaceLeftOut", "edits are not held, and the StatefulSet controller makes the rollouts", false)
	live.is(t, "NamespaceLeftOut", "because its action is LiveResize. `kubectl inplace-rollout release` lets go of it", true)
	said := ours("release", "-n", "gatekeeper-system", "statefulset/live", "--yes")
	t.Log(said)
	live.is(t, "NamespaceLeftOut", "edits are not held, and the StatefulSet controller makes the rollouts", false)

	// Without a controller its word still counts: nobody's edit there is refused.
	p.Kill()
	if after, err := set.edit(t, 600); err != nil || held(after) {
		t.Errorf("an edit without a controller is held, or refused: %v", err)
	}

	// A controller with the rights of the whole cluster that looks after one namespace only looks whether that is one of those.
	one := must.Get(controller.Start(t.Context(), cp, controller.Options{Args: []string{"--namespace=default"}, Log: t.Output()}))(t)
	t.Cleanup(one.Kill)
	must.Do(t, one.WaitReady(t.Context()))
}
