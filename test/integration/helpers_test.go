//go:build integration || around

package integration

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	policyv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/faults"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// letGo has edits be left to the built-in controllers where no controller is ready, as shipped.
var letGo = controller.Options{Args: []string{"--when-absent=" + api.LetGo}}

// Annotations of pods that the simulated kubelet knows, as kubectl annotate takes them or as metadata: see test/controlplane.
const (
	simDeferred   = "sim.inplace-rollout.io/resize=deferred"
	simInfeasible = "sim.inplace-rollout.io/resize=infeasible"
	simLasting    = "sim.inplace-rollout.io/resize=lasting"
	simAccepted   = "sim.inplace-rollout.io/resize=accepted"

	// simKubelet has the kubelet played as one of an older version.
	simKubelet = "sim.inplace-rollout.io/kubelet"
)

// Of workloads.
const (
	enabled    = "inplace-rollout.io/enabled"
	setAction  = "inplace-rollout.io/resource-resize-action"
	setPolicy  = "inplace-rollout.io/resource-resize-policy"
	setTimeout = "inplace-rollout.io/deferred-timeout"
	liveOnly   = `annotations: {inplace-rollout.io/resource-resize-action: LiveResize}`

	unheld = "-"       // no hold annotation
	all    = 1<<31 - 1 // the partition that holds everything

	// largerThanBase is base with more cpu.
	largerThanBase = "{requests: {cpu: 150m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}}"
)

// ours is how the names of our metrics begin.
const ours = "inplace_rollout_"

// tooSmall has the kubelets of these pods refuse what their nodes can never hold. From 1.36 on nobody asks
// them: the API server refuses it itself. The simulated kubelet does not add up; it is told.
func (s *sandbox[W]) tooSmall(pods ...string) {
	s.t.Helper()
	if cp.AtLeast("1.36") {
		return
	}
	for _, pod := range pods {
		s.annotatePod(pod, simInfeasible)
	}
}

// needsPolicies skips a test that takes the policies away which hold.
func needsPolicies(t *testing.T) {
	t.Helper()
	if way := controller.Hold(cp); way != prerequisite.Policy {
		t.Skipf("not applicable to the way %s: here no MutatingAdmissionPolicies v1 hold", way)
	}
}

// reinstall returns what installs deploy/ again, once, in a test that takes
// something away from it.
func reinstall(t *testing.T) func() {
	t.Helper()
	return sync.OnceFunc(func() { must.Do(t, install(t.Context())) })
}

// shipped is the path of a file of this module, or of what is built from it.
func shipped(path ...string) string {
	return filepath.Join(append([]string{controller.Root()}, path...)...)
}

// administer runs kubectl as the administrator, outside of any sandbox.
func administer(t *testing.T, args ...string) string {
	t.Helper()
	return must.Get(cp.Kubectl(t.Context(), args...))(t)
}

// ran is what came of a command.
type ran struct {
	stdout, stderr string
	code           int
}

// command runs inplace-rollout with a kubeconfig in a namespace.
func command(t *testing.T, kubeconfig, namespace, stdin string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, shipped("bin", "inplace-rollout"),
		append(args, "--kubeconfig", kubeconfig, "--namespace", namespace, "--cache-dir", t.TempDir())...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatalf("running %v: %v", args, err)
	}
	return ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// run runs inplace-rollout as the administrator.
func (s *sandbox[W]) run(args ...string) ran {
	s.t.Helper()
	return command(s.t, cp.Kubeconfig(), s.namespace, "", args...)
}

// untyped is a workload as other tools read it.
func untyped(t *testing.T, kind string, workload any) *unstructured.Unstructured {
	t.Helper()
	object := must.Get(runtime.DefaultUnstructuredConverter.ToUnstructured(workload))(t)
	object["apiVersion"], object["kind"] = "apps/v1", kind
	return &unstructured.Unstructured{Object: object}
}

// done is how an operator reads the condition: it is about the generation that has been seen.
func done(set *appsv1.StatefulSet) bool {
	status, _, _ := complete(set)
	return set.Status.ObservedGeneration == set.Generation && status == corev1.ConditionTrue
}

// scrape returns the metrics of the controller.
func scrape(t *testing.T, p *controller.Process) map[string]*dto.MetricFamily {
	t.Helper()
	text := must.Get(p.Metrics(t.Context()))(t)
	return parseMetrics(t, text)
}

func parseMetrics(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return must.Get(parser.TextToMetricFamilies(strings.NewReader(text)))(t)
}

// applyFolder applies what kustomize makes of a folder.
func applyFolder(t *testing.T, folder string) {
	t.Helper()
	must.Do(t, cp.Apply(t.Context(), "--kustomize", folder))
}

func addToPool(t *testing.T, pool, name, cpu string) {
	t.Helper()
	node := controlplane.Node{
		CPU: cpu, Memory: "16Gi", Labels: map[string]string{"pool": pool, corev1.LabelHostname: name},
		Taints: []corev1.Taint{{Key: "pool", Value: pool, Effect: corev1.TaintEffectNoSchedule}},
	}
	must.Do(t, cp.AddNode(t.Context(), name, node))
}

// letsGo has edits go unheld while no controller is there, for the rest of the test.
func letsGo(t *testing.T) {
	t.Helper()
	holdAfterwards(t)
	must.Do(t, controller.WhenAbsent(t.Context(), cp, api.LetGo))
}

// holdAfterwards has edits be held again after the test while no controller is there, as they are before it.
func holdAfterwards(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { must.Do(t, controller.WhenAbsent(context.WithoutCancel(t.Context()), cp, api.Hold)) })
}

// fall takes the heartbeat away, as a controller does that ends.
func fall(t *testing.T) {
	t.Helper()
	must.Do(t, controller.Beat(context.WithoutCancel(t.Context()), cp, 0))
}

// holdOf is the hold annotation, or unheld.
func holdOf(w metav1.Object) string {
	if hold, exists := w.GetAnnotations()[api.HoldAnnotation]; exists {
		return hold
	}
	return unheld
}

// newProxy is one without faults.
func newProxy(t *testing.T) *faults.Proxy {
	t.Helper()
	certificate := must.Get(cp.Certificate())(t)
	proxy := must.Get(faults.New(faults.Options{Target: cp.RESTConfig(), Certificate: certificate}))(t)
	t.Cleanup(proxy.Close)
	return proxy
}

// otherPolicy is one that some other program has for the workloads of a namespace, whenever they are updated. It goes at the end of
// the test, or with the returned function.
func otherPolicy(t *testing.T, namespace, name, mutation string, change func(*policyv1.MutatingAdmissionPolicySpec)) (remove func()) {
	t.Helper()
	policies, bindings := client.AdmissionregistrationV1().MutatingAdmissionPolicies(), client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	policy := &policyv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &policyv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
				ResourceRules: []policyv1.NamedRuleWithOperations{{RuleWithOperations: policyv1.RuleWithOperations{
					Operations: []policyv1.OperationType{policyv1.Update},
					Rule:       policyv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"statefulsets", "deployments", "daemonsets"}},
				}}},
			},
			Mutations:     []policyv1.Mutation{{PatchType: policyv1.PatchTypeJSONPatch, JSONPatch: &policyv1.JSONPatch{Expression: mutation}}},
			FailurePolicy: ptr.To(policyv1.Fail), ReinvocationPolicy: policyv1.IfNeededReinvocationPolicy,
		},
	}
	change(&policy.Spec)
	must.Get(policies.Create(t.Context(), policy, metav1.CreateOptions{}))(t)
	must.Get(bindings.Create(t.Context(), &policyv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{}))(t)
	remove = sync.OnceFunc(func() {
		must.Do(t, errors.Join(
			bindings.Delete(context.Background(), name, metav1.DeleteOptions{}),
			policies.Delete(context.Background(), name, metav1.DeleteOptions{}),
		))
	})
	t.Cleanup(remove)
	return remove
}
