//go:build around

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/test/process"
)

// patience bounds every wait. It is never the expected duration.
const patience = 30 * time.Second

// TestControlPlane shares one control plane among all subtests, since a start takes seconds.
func TestControlPlane(t *testing.T) {
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	pids := pidsOf(c)
	t.Cleanup(func() {
		if t.Failed() {
			c.DumpLogs(t.Output())
			c.KeepLogs()
		}
		pids = append(pids, pidsOf(c)...) // some were restarted
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		checkGone(t, pids)
		if _, err := os.Stat(c.Dir()); !t.Failed() && !os.IsNotExist(err) {
			t.Errorf("the temporary folder is still there: %v", err)
		}
	})
	if err := c.AddNode(t.Context(), "node-1", Node{CPU: "32", Memory: "64Gi", Labels: map[string]string{"zone": "a"}}); err != nil {
		t.Fatal(err)
	}
	s := &suite{ControlPlane: c, client: kubernetes.NewForConfigOrDie(c.RESTConfig())}

	t.Run("no resize", s.testNever)
	t.Run("audit log", s.testAudit)
}

func TestDetached(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	c, err := Start(t.Context(), Options{Dir: dir, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run("/usr/bin/tail", "-f", filepath.Join(dir, "etcd.pid")); err != nil {
		t.Fatal(err)
	}
	pids := pidsOf(c)
	// A program that was started a moment ago may not have its command line yet.
	names, err := Running(dir)
	for end := time.Now().Add(process.Grace); err == nil && !slices.Contains(names, "tail") && time.Now().Before(end); names, err = Running(dir) {
		time.Sleep(poll)
	}
	if err != nil || !slices.Equal(names, append(slices.Clone(binaries), "tail")) {
		t.Errorf("Running says %v, %v", names, err)
	}
	for _, pid := range pids {
		if session, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0); errno != 0 || int(session) != pid {
			t.Errorf("process %d is in session %d: %v", pid, session, errno)
		}
	}
	// A recorded pid that belongs to somebody else by now, here the test itself, is spared.
	etcd := pids[0]
	writePID(t, dir, "etcd", os.Getpid())
	if err := StopDir(dir); err != nil {
		t.Error(err)
	}
	checkGone(t, pids[1:])
	if err := syscall.Kill(etcd, 0); err != nil {
		t.Errorf("etcd, whose pid was not recorded any more, was stopped: %v", err)
	}
	writePID(t, dir, "etcd", etcd)
	if err := StopDir(dir); err != nil {
		t.Error(err)
	}
	checkGone(t, pids)
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("StopDir has removed the folder: %v", err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil {
		t.Error("a used folder was taken for a new control plane")
	}
}

// TestDiesWithItsParent kills a program that runs a control plane: this test itself, started once more.
func TestDiesWithItsParent(t *testing.T) {
	const variable = "CONTROLPLANE_TEST_DIR"
	if dir := os.Getenv(variable); dir != "" {
		if _, err := Start(t.Context(), Options{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "cluster")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"="+dir)
	if out, err := child.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child was not killed: %v: %s", err, out)
	}
	for _, name := range binaries {
		if pid, err := readPID(dir, name); err != nil || pid == 0 {
			t.Errorf("%s was not started: %v", name, err)
		}
	}
	// Whoever inherits the dead may take his time to wait for them: ask only whether they run.
	gone := func(context.Context) (bool, error) {
		names, err := Running(dir)
		return len(names) == 0, err
	}
	if err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, gone); err != nil {
		t.Errorf("processes have survived: %v", err)
	}
}

// TestStartReportsWhy shows that the log of a process that ends at once is in the error.
func TestStartReportsWhy(t *testing.T) {
	var log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "cluster")
	_, err := Start(t.Context(), Options{Dir: dir, Log: &log, Flags: map[string][]string{"kube-apiserver": {"--feature-gates", "NoSuchGate=true"}}})
	if err == nil || !strings.Contains(err.Error(), "NoSuchGate") {
		t.Errorf("the error does not name the cause: %v", err)
	}
	if !strings.Contains(log.String(), dir) {
		t.Errorf("the folder that stays is not printed: %q", log.String())
	}
	if names, err := Running(dir); err != nil || len(names) > 0 {
		t.Errorf("left running: %v, %v", names, err)
	}
}

func pidsOf(c *ControlPlane) []int {
	var pids []int
	for _, p := range c.processes {
		pids = append(pids, p.PID())
	}
	return pids
}

func writePID(t *testing.T, dir, name string, pid int) {
	t.Helper()
	if err := os.WriteFile(process.PIDFile(dir, name), fmt.Appendln(nil, pid), 0o644); err != nil {
		t.Fatal(err)
	}
}

func checkGone(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) == 0 {
		t.Error("no processes were started")
	}
	for _, pid := range pids {
		// The process may be a zombie for the moment until it is waited for.
		gone := func(context.Context) (bool, error) { return syscall.Kill(pid, 0) == syscall.ESRCH, nil }
		if err := wait.PollUntilContextTimeout(context.Background(), poll, patience, true, gone); err != nil {
			t.Errorf("process %d is still there", pid)
		}
	}
}

type suite struct {
	*ControlPlane
	client kubernetes.Interface
}

// testNever: a kubelet that never looks leaves the pod as it is. What the other modes make of a resize is what test/integration waits for.
func (s *suite) testNever(t *testing.T) {
	pod := s.create(t, "never", map[string]string{"sim.inplace-rollout.io/resize": "never"})
	s.resize(t, pod, "200m")
	for range 10 { // longer than any stage takes
		time.Sleep(50 * time.Millisecond)
		now, err := s.client.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if cs := now.Status.ContainerStatuses[0]; now.Status.ObservedGeneration != 1 || cs.AllocatedResources.Cpu().String() != "100m" || cs.Resources.Requests.Cpu().String() != "100m" {
			t.Fatalf("it becomes %+v", now.Status)
		}
	}
}

func (s *suite) testAudit(t *testing.T) {
	pod := s.create(t, "audited", nil)
	// Many writers at a time: the answer must never be here before the event.
	var writers sync.WaitGroup
	for i := range 50 {
		writers.Go(func() {
			mark, err := s.AuditMark()
			if err != nil {
				t.Error(err)
			}
			name := fmt.Sprintf("audited-%d", i)
			s.patch(t, pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, name))
			events, err := s.AuditSince(mark, Writes, ByUser("admin"), OnResource("pods", ""), func(e *auditv1.Event) bool {
				return bytes.Contains(e.RequestObject.Raw, []byte(name+`"`))
			})
			if err != nil || len(events) != 1 {
				t.Errorf("%d events, %v", len(events), err)
			}
		})
	}
	writers.Wait()

	mark, err := s.AuditMark()
	if err != nil {
		t.Fatal(err)
	}
	s.resize(t, pod, "200m")
	events, err := s.AuditSince(mark, OnResource("pods", "resize"))
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].Verb != "patch" || events[0].ObjectRef.Name != pod.Name || events[0].ResponseStatus.Code != 200 ||
		!bytes.Contains(events[0].RequestObject.Raw, []byte("200m")) || !bytes.Contains(events[0].ResponseObject.Raw, []byte(pod.UID)) {
		t.Errorf("events of the resize: %+v", events)
	}
	all, err := s.Audit(Writes, OnResource("nodes", ""))
	if err != nil || len(all) == 0 {
		t.Errorf("no event of the node: %v", err)
	}
}

// create creates a pod and waits until it runs.
func (s *suite) create(t *testing.T, name string, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pods := s.client.CoreV1().Pods("default")
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{
			Name: "app", Image: "app:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	running := func(ctx context.Context) (bool, error) {
		pod, err = pods.Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	}
	if err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, running); err != nil {
		t.Fatalf("%v: its phase is %s", err, pod.Status.Phase)
	}
	return pod
}

// resize asks for so much cpu.
func (s *suite) resize(t *testing.T, pod *corev1.Pod, cpu string) {
	t.Helper()
	s.patch(t, pod, fmt.Sprintf(`{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":%q}}}]}}`, cpu), "resize")
}

func (s *suite) patch(t *testing.T, pod *corev1.Pod, patch string, subresources ...string) {
	t.Helper()
	if _, err := s.client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		t.Error(err)
	}
}
