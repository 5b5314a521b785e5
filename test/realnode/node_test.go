//go:build e2e

package realnode

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/counter"
)

const counterPod = `
apiVersion: v1
kind: Pod
metadata: {name: counter, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: counter
    image: inplace-rollout-counter:test
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}
`

// TestNode shows what tests can do with a node, and that nothing of it is left.
func TestNode(t *testing.T) {
	if missing := Missing(); missing != "" {
		if os.Getenv("E2E") == "required" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	started := time.Now()
	n, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Ready after %s", time.Since(started).Round(time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			n.KeepLogs()
		}
		stopped := time.Now()
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		t.Logf("gone after %s", time.Since(stopped).Round(time.Millisecond))
	})
	if err := n.Import(t.Context(), "counter"); err != nil {
		t.Fatal(err)
	}
	pod := n.startCounter(t)
	n.checkLimits(t, pod, 100, 64<<20)
	if got := n.count(t, pod); got != 1 {
		t.Errorf("the counter says %d, want 1", got)
	}
	out, err := n.Kubectl(t.Context(), "exec", "counter", "--", "/counter", "--nonsense")
	if err == nil || !strings.Contains(err.Error(), "-address") {
		t.Errorf("kubectl exec said %q: %v", out, err)
	}

	for name, restart := range map[string]func(context.Context) error{
		"kubelet":    func(ctx context.Context) error { return n.RestartKubelet(ctx) },
		"containerd": n.RestartContainerd,
	} {
		restarted := time.Now()
		if err := restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s restarted in %s", name, time.Since(restarted).Round(time.Millisecond))
	}
	if got := n.count(t, pod); got != 2 {
		t.Errorf("after the restarts the counter says %d, want 2", got)
	}
}

func (n *Node) startCounter(t *testing.T) *corev1.Pod {
	t.Helper()
	file := t.TempDir() + "/pod.yaml"
	if err := os.WriteFile(file, []byte(counterPod), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Kubectl(t.Context(), "apply", "-f", file); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(n.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	var pod *corev1.Pod
	err = wait.PollUntilContextTimeout(t.Context(), poll, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		pod, err = client.CoreV1().Pods("default").Get(ctx, "counter", metav1.GetOptions{})
		return err == nil && podutils.IsPodReady(pod), err
	})
	if err != nil {
		t.Fatalf("%v: %+v", err, pod.Status)
	}
	return pod
}

func (n *Node) checkLimits(t *testing.T, pod *corev1.Pod, cpu, memory int64) {
	t.Helper()
	granted, err := n.Cgroup(pod, "counter")
	if err != nil {
		t.Fatal(err)
	}
	want := cgroup.Limits{CPU: cpu, Memory: memory}
	if got, err := granted.Limits(); err != nil || got != want {
		t.Errorf("the kernel grants %+v, want %+v: %v", got, want, err)
	}
	if got, err := counter.Limits(t.Context(), n.HTTP(5*time.Second), pod); err != nil || got != want {
		t.Errorf("the program reads %+v, want %+v: %v", got, want, err)
	}
	if pids, err := granted.Processes(); err != nil || len(pids) != 1 {
		t.Errorf("processes %v, want one: %v", pids, err)
	}
}

func (n *Node) count(t *testing.T, pod *corev1.Pod) int64 {
	t.Helper()
	number, err := counter.Add(t.Context(), n.HTTP(5*time.Second), pod)
	if err != nil {
		t.Fatal(err)
	}
	return number
}
