//go:build around

package integration

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// prometheusOperator runs the real one, with the rights that it comes with, for one namespace.
func prometheusOperator(t *testing.T, namespace string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus-operator/prometheus-operator")
	list.Dir = filepath.Join(controller.Root(), "hack", "tools", "prometheus-operator")
	dir := must.Get(list.Output())(t)
	example := filepath.Join(strings.TrimSpace(string(dir)), "example")
	administer(t, "apply", "--server-side", "--filename", filepath.Join(example, "prometheus-operator-crd"))
	for _, file := range []string{"service-account", "cluster-role", "cluster-role-binding"} {
		administer(t, "apply", "--filename", filepath.Join(example, "rbac", "prometheus-operator", "prometheus-operator-"+file+".yaml"))
	}
	administer(t, "wait", "--for=condition=Established", "--timeout="+patience.String(), "customresourcedefinition", "--all")
	kubeconfig := must.Get(cp.ServiceAccountKubeconfig(t.Context(), metav1.NamespaceDefault, "prometheus-operator", ""))(t)
	log := must.Get(os.Create(filepath.Join(t.TempDir(), "prometheus-operator.log")))(t)
	operator := exec.CommandContext(t.Context(), filepath.Join(controller.Root(), "bin", "operators", "prometheus-operator"),
		"--namespaces="+namespace, "--web.listen-address=127.0.0.1:0")
	operator.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	operator.Stdout, operator.Stderr = log, log
	operator.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := operator.Start(); err != nil {
		t.Fatalf("%v (make operator-tools builds it)", err)
	}
	t.Cleanup(func() {
		_ = operator.Wait() // the context is done, which has killed it
		if said, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the operator says:\n%s%v", said, err)
		}
	})
}

// TestPrometheusOperator: the label and the annotations of a Prometheus reach its StatefulSet, and an edit of its
// size is made in place. The operator deletes a StatefulSet whose update is answered with 422: a wrong value in
// one of our annotations is refused, and nothing is deleted for it. It alone runs the real operator.
func TestPrometheusOperator(t *testing.T) {
	parallel(t)
	namespace := newNamespace(t, nil)
	prometheusOperator(t, namespace)
	kubectl := func(args ...string) string {
		t.Helper()
		return must.Get(cp.Kubectl(t.Context(), append([]string{"-n", namespace}, args...)...))(t)
	}
	apply(t, namespace, fmt.Sprintf(`
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata:
  name: web
  namespace: %s
  labels: {%s: "true"}
  annotations: {%s: 90s}
spec:
  replicas: 2
  resources: {requests: {cpu: 100m, memory: 100Mi}}
`, namespace, enabled, setTimeout))
	get := func() *appsv1.StatefulSet {
		set, err := client.AppsV1().StatefulSets(namespace).Get(t.Context(), "prometheus-web", metav1.GetOptions{})
		if err != nil {
			return &appsv1.StatefulSet{}
		}
		return set
	}
	sizes := func() (uids map[string]types.UID, cpu string) {
		pods := must.Get(client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}))(t)
		uids = map[string]types.UID{}
		for _, pod := range pods.Items {
			uids[pod.Name] = pod.UID
			for _, c := range pod.Spec.Containers {
				if request := c.Resources.Requests[corev1.ResourceCPU]; c.Name == "prometheus" && !strings.Contains(cpu, request.String()) {
					cpu += request.String()
				}
			}
		}
		return uids, cpu
	}
	waitDone := func(what, cpu string) {
		t.Helper()
		eventually(t, what, func() (bool, string) {
			set := get()
			_, have := sizes()
			return done(set) && have == cpu && set.Status.ReadyReplicas == 2 && !held(set), fmt.Sprintf("%s, the pods have %s", describe(set), have)
		})
	}
	waitDone("the operator's StatefulSet to be complete", "100m")
	set := get()
	if set.Labels[enabled] != "true" || set.Annotations[setTimeout] != "90s" {
		t.Fatalf("the StatefulSet has %v and %v", set.Labels, set.Annotations)
	}
	before, _ := sizes()

	kubectl("patch", "prometheus/web", "--type=merge", "--patch", `{"spec":{"resources":{"requests":{"cpu":"150m"}}}}`)
	waitDone("the edit to be made in place", "150m")

	kubectl("annotate", "prometheus/web", setAction+"=LiveRezise")
	eventually(t, "the operator to tell of the refusal", func() (bool, string) {
		said := kubectl("get", "prometheus/web", "-o", "jsonpath={.status.conditions[?(@.type=='Reconciled')].message}")
		return strings.Contains(said, `\"LiveRezise\" must be Restart, LiveResize or LiveResizePreferred`) || strings.Contains(said, `"LiveRezise" must be`), said
	})
	kubectl("patch", "prometheus/web", "--type=merge", "--patch", `{"spec":{"resources":{"requests":{"cpu":"160m"}}}}`) // another try
	time.Sleep(3 * time.Second)
	if now := get(); now.UID != set.UID || now.DeletionTimestamp != nil {
		t.Errorf("after a wrong annotation the StatefulSet is another one: %s", describe(now))
	}

	kubectl("annotate", "--overwrite", "prometheus/web", setAction+"=LiveResize")
	waitDone("what was refused to be made in place", "160m")
	if after, _ := sizes(); !maps.Equal(before, after) || get().UID != set.UID {
		t.Errorf("the pods were %v, and are %v", before, after)
	}
}
