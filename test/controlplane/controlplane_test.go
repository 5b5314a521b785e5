//go:build around

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/inplace-rollout/inplace-rollout/test/process"
)

// patience bounds every wait. It is never the expected duration.
const patience = 30 * time.Second

const (
	resizeKey = "sim.inplace-rollout.io/resize"
	readyKey  = "sim.inplace-rollout.io/ready"
)

// TestControlPlane shares one control plane among all subtests, since a start takes seconds.
func TestControlPlane(t *testing.T) {
	begin := time.Now()
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(begin))
	pids := pidsOf(c)
	t.Cleanup(func() {
		if t.Failed() {
			c.DumpLogs(t.Output())
			c.KeepLogs()
		}
		begin := time.Now()
		pids = append(pids, pidsOf(c)...) // some were restarted
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		t.Logf("stopped in %s", time.Since(begin))
		checkGone(t, pids)
		if _, err := os.Stat(c.Dir()); !t.Failed() && !os.IsNotExist(err) {
			t.Errorf("the temporary folder is still there: %v", err)
		}
	})
	begin = time.Now()
	if err := c.AddNode(t.Context(), "node-1", Node{CPU: "32", Memory: "64Gi", Labels: map[string]string{"zone": "a"}}); err != nil {
		t.Fatal(err)
	}
	t.Logf("node added in %s", time.Since(begin))
	s := &suite{ControlPlane: c, client: kubernetes.NewForConfigOrDie(c.RESTConfig())}

	t.Run("versions", s.testVersions)
	t.Run("a new pod gets the status of a started one", s.testStart)
	t.Run("resize modes", s.testModes)
	t.Run("a mode can be changed and a resize taken back", s.testLeavingModes)
	t.Run("RestartContainer restarts the container", s.testRestart)
	t.Run("limits only, sidecars, init containers and pod level resize", s.testShapes)
	t.Run("readiness follows the annotation and the gates", s.testReadiness)
	t.Run("a graceful delete spares the pod of the same name", s.testGracefulDelete)
	t.Run("audit log", s.testAudit)
	t.Run("service account kubeconfig", s.testServiceAccount)
	t.Run("restart", s.testProcessRestart)
}

// testProcessRestart restarts every process but kwok in turn. What was written is still there, and
// pods can be made as before. A new kwok waits until the node's Lease of the old one has expired.
func (s *suite) testProcessRestart(t *testing.T) {
	for _, name := range binaries[:4] {
		t.Run(name, func(t *testing.T) {
			before := s.PID(name)
			begin := time.Now()
			if err := s.Restart(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			t.Logf("restarted in %s", time.Since(begin))
			checkGone(t, []int{before})
			if after := s.PID(name); after == 0 || after == before {
				t.Errorf("its process was %d and is %d", before, after)
			}
			if _, err := s.client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{}); err != nil {
				t.Errorf("what was written is lost: %v", err)
			}
			s.create(t, newPod("after-"+name))
		})
	}
	pod, err := s.client.CoreV1().Pods("default").Get(t.Context(), "after-etcd", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Annotations[nudgedKey] == "" {
		t.Error("the kubelet of a pod was not made to look at it again after a restart of the API server")
	}
	t.Run("of what ends by itself", func(t *testing.T) {
		before := s.PID("kube-scheduler")
		if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		again := func(context.Context) (bool, error) { return s.PID("kube-scheduler") != before, nil }
		if err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, again); err != nil {
			t.Fatal("the scheduler does not come back")
		}
		s.create(t, newPod("after-its-end"))
	})
	if err := s.Restart(t.Context(), "etcetera"); err == nil {
		t.Error("something that does not run was restarted")
	}
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

func (s *suite) testVersions(t *testing.T) {
	if s.Version() != "v1.37.1" {
		t.Errorf("server version is %s", s.Version())
	}
	out, err := s.Kubectl(t.Context(), "version", "--output=json")
	if err != nil {
		t.Fatal(err)
	}
	var versions struct{ ClientVersion, ServerVersion struct{ GitVersion string } }
	if err := json.Unmarshal([]byte(out), &versions); err != nil {
		t.Fatal(err)
	}
	if versions.ClientVersion.GitVersion != "v1.37.1" || versions.ServerVersion.GitVersion != "v1.37.1" {
		t.Errorf("kubectl says %+v", versions)
	}
	if _, err := s.Kubectl(t.Context(), "get", "pod", "no-such-pod"); err == nil || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("kubectl's complaint is not in the error: %v", err)
	}
}

func (s *suite) testStart(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := s.create(t, newPod("start", func(pod *corev1.Pod) {
		pod.Spec.Resources = sizes("cpu=2,memory=2Gi", "cpu=4,memory=4Gi")
		pod.Spec.InitContainers = []corev1.Container{
			{Name: "prepare", Image: "prepare:1", Resources: *sizes("cpu=50m", "")},
			{Name: "sidecar", Image: "sidecar:1", Resources: *sizes("cpu=50m", ""), RestartPolicy: &always},
		}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "another", Image: "another:1"})
	}))
	status := pod.Status
	if status.PodIP == "" || len(status.PodIPs) != 1 || status.HostIP != "127.0.0.1" || status.StartTime.IsZero() {
		t.Errorf("addresses or start time are missing: %+v", status)
	}
	if status.QOSClass != corev1.PodQOSBurstable || status.ObservedGeneration != pod.Generation {
		t.Errorf("QoS class %s, observed generation %d", status.QOSClass, status.ObservedGeneration)
	}
	for _, condition := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.PodScheduled,
	} {
		got := find(pod, condition)
		if got == nil || got.Status != corev1.ConditionTrue || got.ObservedGeneration != pod.Generation || got.LastTransitionTime.IsZero() {
			t.Errorf("condition %s is %+v", condition, got)
		}
	}
	if !equal(status.Resources.Limits, pod.Spec.Resources.Limits) || !equal(status.AllocatedResources, pod.Spec.Resources.Requests) {
		t.Errorf("pod level: resources %v, allocated %v", status.Resources, status.AllocatedResources)
	}
	checkRunning(t, pod)
	if names := []string{status.ContainerStatuses[0].Name, status.ContainerStatuses[1].Name}; !slices.IsSorted(names) {
		t.Errorf("container statuses are not sorted: %v", names)
	}
	for _, cs := range status.ContainerStatuses {
		if !*cs.Started || !cs.Ready || cs.State.Running == nil || cs.ContainerID == "" {
			t.Errorf("container is not started: %+v", cs)
		}
	}
	prepare, sidecar := status.InitContainerStatuses[0], status.InitContainerStatuses[1]
	if *prepare.Started || !prepare.Ready || prepare.State.Terminated.Reason != "Completed" {
		t.Errorf("init container has not completed: %+v", prepare)
	}
	if !*sidecar.Started || !sidecar.Ready || sidecar.State.Running == nil {
		t.Errorf("sidecar does not run: %+v", sidecar)
	}
}

func (s *suite) testModes(t *testing.T) {
	for _, test := range []struct {
		mode                string
		condition           corev1.PodConditionType
		reason              string
		allocated, resource string // cpu
		observed            int64
	}{
		{mode: "accepted", allocated: "200m", resource: "200m", observed: 2},
		{mode: "unshown", allocated: "200m", resource: "200m", observed: 2},
		{mode: "another", allocated: "200m", resource: "200m", observed: 2},
		{mode: "mirrored", allocated: "200m", resource: "200m", observed: 1},
		{mode: "delayed", condition: corev1.PodResizeInProgress, allocated: "200m", resource: "100m", observed: 2},
		{mode: "lasting", condition: corev1.PodResizeInProgress, allocated: "200m", resource: "100m", observed: 2},
		{mode: "deferred", condition: corev1.PodResizePending, reason: corev1.PodReasonDeferred, allocated: "100m", resource: "100m", observed: 2},
		{mode: "infeasible", condition: corev1.PodResizePending, reason: corev1.PodReasonInfeasible, allocated: "100m", resource: "100m", observed: 2},
		{mode: "error", condition: corev1.PodResizeInProgress, reason: corev1.PodReasonError, allocated: "200m", resource: "100m", observed: 2},
		{mode: "never", allocated: "100m", resource: "100m", observed: 1},
	} {
		for _, by := range []string{"annotation", "label"} {
			t.Run(test.mode+" by "+by, func(t *testing.T) {
				t.Parallel()
				pod := s.create(t, newPod(test.mode+"-by-"+by, func(pod *corev1.Pod) {
					if by == "label" {
						pod.Labels = map[string]string{resizeKey: test.mode}
					} else {
						pod.Labels = map[string]string{resizeKey: "infeasible"}
						pod.Annotations = map[string]string{resizeKey: test.mode}
					}
				}))
				begin := time.Now()
				s.resize(t, pod, cpu("app", "200m"))
				check := func(pod *corev1.Pod) error {
					cs := pod.Status.ContainerStatuses[0]
					if got := cs.AllocatedResources.Cpu().String(); got != test.allocated {
						return fmt.Errorf("allocated %s", got)
					}
					if got := cs.Resources.Requests.Cpu().String(); got != test.resource {
						return fmt.Errorf("resources %s", got)
					}
					if pod.Status.ObservedGeneration != test.observed {
						return fmt.Errorf("observed generation %d", pod.Status.ObservedGeneration)
					}
					return checkConditions(pod, test.condition, test.reason)
				}
				pod = s.await(t, pod, check)
				t.Logf("%s after %s", test.mode, time.Since(begin))
				if test.mode == "delayed" {
					s.await(t, pod, settled)
					if took := time.Since(begin); took < 1900*time.Millisecond {
						t.Errorf("done after %s", took)
					}
					return
				}
				s.stays(t, pod, check)
			})
		}
	}
}

func (s *suite) testLeavingModes(t *testing.T) {
	deferred := func(pod *corev1.Pod) error {
		return checkConditions(pod, corev1.PodResizePending, corev1.PodReasonDeferred)
	}
	failed := func(pod *corev1.Pod) error {
		return checkConditions(pod, corev1.PodResizeInProgress, corev1.PodReasonError)
	}
	for name, test := range map[string]struct {
		mode  string
		first func(*corev1.Pod) error
		leave func(*testing.T, *corev1.Pod)
		then  func(*corev1.Pod) error
	}{
		"deferred is accepted when the annotation goes": {"deferred", deferred,
			func(t *testing.T, pod *corev1.Pod) { s.annotate(t, pod, resizeKey, nil) }, settled},
		"deferred becomes infeasible": {"deferred", deferred,
			func(t *testing.T, pod *corev1.Pod) { s.annotate(t, pod, resizeKey, "infeasible") },
			func(pod *corev1.Pod) error {
				return checkConditions(pod, corev1.PodResizePending, corev1.PodReasonInfeasible)
			}},
		"deferred is taken back": {"deferred", deferred,
			func(t *testing.T, pod *corev1.Pod) { s.resize(t, pod, cpu("app", "100m")) }, settled},
		"deferred again for another size": {"deferred", deferred,
			func(t *testing.T, pod *corev1.Pod) { s.resize(t, pod, cpu("app", "300m")) },
			func(pod *corev1.Pod) error {
				if pod.Status.ObservedGeneration != 3 {
					return fmt.Errorf("observed generation %d", pod.Status.ObservedGeneration)
				}
				return deferred(pod)
			}},
		"error is taken back": {"error", failed,
			func(t *testing.T, pod *corev1.Pod) { s.resize(t, pod, cpu("app", "100m")) }, settled},
		"error is repaired": {"error", failed,
			func(t *testing.T, pod *corev1.Pod) { s.annotate(t, pod, resizeKey, "accepted") }, settled},
		"infeasible is delayed": {"infeasible",
			func(pod *corev1.Pod) error {
				return checkConditions(pod, corev1.PodResizePending, corev1.PodReasonInfeasible)
			},
			func(t *testing.T, pod *corev1.Pod) { s.annotate(t, pod, resizeKey, "delayed") }, settled},
		"never is accepted": {"never",
			func(pod *corev1.Pod) error { return nil },
			func(t *testing.T, pod *corev1.Pod) { s.annotate(t, pod, resizeKey, "accepted") }, settled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := s.create(t, newPod(strings.ReplaceAll(name, " ", "-"), func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{resizeKey: test.mode}
			}))
			s.resize(t, pod, cpu("app", "200m"))
			pod = s.await(t, pod, test.first)
			test.leave(t, pod)
			pod = s.await(t, pod, test.then)
			s.stays(t, pod, test.then)
		})
	}
}

func (s *suite) testRestart(t *testing.T) {
	pod := s.create(t, newPod("restart", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
			{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
		}
	}))
	before := pod.Status.ContainerStatuses[0]
	s.resize(t, pod, cpu("app", "200m"))
	pod = s.await(t, pod, settled)
	if got := pod.Status.ContainerStatuses[0]; got.RestartCount != 0 || got.ContainerID != before.ContainerID {
		t.Errorf("the cpu change has restarted the container: %+v", got)
	}
	time.Sleep(time.Second) // timestamps have whole seconds
	s.resize(t, pod, map[string]any{"containers": []any{
		map[string]any{"name": "app", "resources": map[string]any{"requests": map[string]any{"memory": "256Mi"}}},
	}})
	pod = s.await(t, pod, settled)
	got := pod.Status.ContainerStatuses[0]
	if got.RestartCount != 1 || got.ContainerID == before.ContainerID || got.LastTerminationState.Terminated == nil ||
		!got.State.Running.StartedAt.After(before.State.Running.StartedAt.Time) {
		t.Errorf("the memory change has not restarted the container: %+v", got)
	}
}

func (s *suite) testShapes(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := s.create(t, newPod("shapes", func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{resizeKey: "error"}
		pod.Spec.Resources = sizes("cpu=2,memory=2Gi", "cpu=4,memory=4Gi")
		pod.Spec.InitContainers = []corev1.Container{
			{Name: "prepare", Image: "prepare:1", Resources: *sizes("cpu=50m", "")},
			{Name: "sidecar", Image: "sidecar:1", Resources: *sizes("cpu=50m", ""), RestartPolicy: &always},
		}
		pod.Spec.Containers = []corev1.Container{
			{Name: "limited", Image: "app:1", Resources: *sizes("", "cpu=100m,memory=100Mi")},
			{Name: "free", Image: "app:1"},
		}
	}))
	change := func(name, kind, cpu string) map[string]any {
		return map[string]any{"name": name, "resources": map[string]any{kind: map[string]any{"cpu": cpu}}}
	}
	for _, step := range []struct {
		name string
		spec map[string]any
	}{
		{"a limit", map[string]any{"containers": []any{change("limited", "limits", "200m")}}},
		{"a sidecar", map[string]any{"initContainers": []any{change("sidecar", "requests", "60m")}}},
		{"an init container", map[string]any{"initContainers": []any{change("prepare", "requests", "60m")}}},
		{"a first request", map[string]any{"containers": []any{change("free", "requests", "60m")}}},
		{"the pod's level", map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "3"}}}},
	} {
		s.annotate(t, pod, resizeKey, "error")
		s.resize(t, pod, step.spec)
		pod = s.await(t, pod, func(pod *corev1.Pod) error {
			return checkConditions(pod, corev1.PodResizeInProgress, corev1.PodReasonError)
		})
		s.annotate(t, pod, resizeKey, nil)
		pod = s.await(t, pod, settled)
		checkRunning(t, pod)
		t.Logf("resized %s", step.name)
	}
	if !equal(pod.Status.Resources.Requests, pod.Spec.Resources.Requests) || !equal(pod.Status.AllocatedResources, pod.Spec.Resources.Requests) {
		t.Errorf("pod level: resources %v, allocated %v", pod.Status.Resources, pod.Status.AllocatedResources)
	}
}

func (s *suite) testReadiness(t *testing.T) {
	ready := func(containers, pod corev1.ConditionStatus) func(*corev1.Pod) error {
		return func(p *corev1.Pod) error {
			if find(p, corev1.ContainersReady).Status != containers || find(p, corev1.PodReady).Status != pod {
				return fmt.Errorf("conditions %+v", p.Status.Conditions)
			}
			if cs := p.Status.ContainerStatuses[0]; cs.Ready != (containers == corev1.ConditionTrue) || cs.State.Running == nil {
				return fmt.Errorf("container %+v", cs)
			}
			return nil
		}
	}
	pod := s.create(t, newPod("unready", func(pod *corev1.Pod) { pod.Annotations = map[string]string{readyKey: "false"} }))
	s.stays(t, pod, ready(corev1.ConditionFalse, corev1.ConditionFalse))
	first := find(pod, corev1.PodReady)
	if first.Reason != "ContainersNotReady" || first.Message == "" {
		t.Errorf("condition is %+v", first)
	}
	time.Sleep(time.Second) // timestamps have whole seconds
	s.annotate(t, pod, readyKey, nil)
	pod = s.await(t, pod, ready(corev1.ConditionTrue, corev1.ConditionTrue))
	if got := find(pod, corev1.PodReady); !got.LastTransitionTime.After(first.LastTransitionTime.Time) || got.Reason != "" || got.Message != "" {
		t.Errorf("condition was %+v, is %+v", first, got)
	}
	s.annotate(t, pod, readyKey, "false")
	pod = s.await(t, pod, ready(corev1.ConditionFalse, corev1.ConditionFalse))
	s.resize(t, pod, cpu("app", "200m"))
	pod = s.await(t, pod, settled)
	s.stays(t, pod, ready(corev1.ConditionFalse, corev1.ConditionFalse))

	gated := s.create(t, newPod("gated", func(pod *corev1.Pod) {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	}))
	s.stays(t, gated, ready(corev1.ConditionTrue, corev1.ConditionFalse))
	patch := `{"status":{"conditions":[{"type":"example.com/gate","status":"True"}]}}`
	if _, err := s.client.CoreV1().Pods("default").Patch(t.Context(), "gated", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	s.await(t, gated, ready(corev1.ConditionTrue, corev1.ConditionTrue))
}

func (s *suite) testGracefulDelete(t *testing.T) {
	const manifest = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: graceful}
spec:
  replicas: 1
  selector: {matchLabels: {app: graceful}}
  template:
    metadata: {labels: {app: graceful}}
    spec: {containers: [{name: app, image: "app:1"}]}
`
	file := filepath.Join(t.TempDir(), "graceful.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kubectl(t.Context(), "apply", "--filename", file); err != nil {
		t.Fatal(err)
	}
	mark, err := s.AuditMark()
	if err != nil {
		t.Fatal(err)
	}
	const times = 10
	pods := s.client.CoreV1().Pods("default")
	var last types.UID
	for range times {
		err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, func(ctx context.Context) (bool, error) {
			pod, err := pods.Get(ctx, "graceful-0", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			if err != nil || pod.UID == last || pod.Status.Phase != corev1.PodRunning {
				return false, err
			}
			last = pod.UID
			return true, pods.Delete(ctx, pod.Name, metav1.DeleteOptions{})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err = wait.PollUntilContextTimeout(t.Context(), poll, patience, true, func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, "graceful-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && pod.UID != last && pod.Spec.NodeName != "", err
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // a pod too many would come now
	births, err := s.AuditSince(mark, OnResource("pods", "binding"), Writes)
	if err != nil {
		t.Fatal(err)
	}
	// One more birth than deletes, or as many if the first was before the mark.
	if len(births) < times || len(births) > times+1 {
		t.Errorf("%d births for %d deletes", len(births), times)
	}
	if _, err := s.Kubectl(t.Context(), "delete", "statefulset", "graceful"); err != nil {
		t.Error(err)
	}
}

func (s *suite) testAudit(t *testing.T) {
	pod := s.create(t, newPod("audited"))
	// Many writers at a time: the answer must never be here before the event.
	var writers sync.WaitGroup
	for i := range 50 {
		writers.Go(func() {
			mark, err := s.AuditMark()
			if err != nil {
				t.Error(err)
			}
			name := fmt.Sprintf("audited-%d", i)
			s.annotate(t, pod, name, "x")
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
	s.resize(t, pod, cpu("app", "200m"))
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

func (s *suite) testServiceAccount(t *testing.T) {
	for _, server := range []string{"", "http://127.0.0.1:1"} {
		path, err := s.ServiceAccountKubeconfig(t.Context(), "default", "default", server)
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		if server != "" {
			if config.Host != server || len(config.CAData) != 0 {
				t.Errorf("server is %s with CA %q", config.Host, config.CAData)
			}
			continue
		}
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:default:default") {
			t.Errorf("listing pods as the service account: %v", err)
		}
	}
}

func newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	zero := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &zero,
			Containers: []corev1.Container{
				{Name: "app", Image: "app:1", Resources: *sizes("cpu=100m,memory=128Mi", "cpu=1,memory=1Gi")},
			},
		},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// sizes parses lists such as "cpu=1,memory=1Gi".
func sizes(requests, limits string) *corev1.ResourceRequirements {
	list := func(text string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for item := range strings.SplitSeq(text, ",") {
			if name, quantity, ok := strings.Cut(item, "="); ok {
				list[corev1.ResourceName(name)] = resource.MustParse(quantity)
			}
		}
		return list
	}
	return &corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
}

// cpu is the spec that asks for a cpu request.
func cpu(container, quantity string) map[string]any {
	return map[string]any{"containers": []any{
		map[string]any{"name": container, "resources": map[string]any{"requests": map[string]any{"cpu": quantity}}},
	}}
}

// create creates the pod and waits until it runs.
func (s *suite) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod, err := s.client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s.await(t, pod, func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase is %s", pod.Status.Phase)
		}
		return nil
	})
}

func (s *suite) resize(t *testing.T, pod *corev1.Pod, spec map[string]any) {
	t.Helper()
	s.patch(t, pod, map[string]any{"spec": spec}, "resize")
}

// annotate sets an annotation, or removes it if the value is nil.
func (s *suite) annotate(t *testing.T, pod *corev1.Pod, key string, value any) {
	t.Helper()
	s.patch(t, pod, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

func (s *suite) patch(t *testing.T, pod *corev1.Pod, patch any, subresources ...string) {
	t.Helper()
	data, err := json.Marshal(patch)
	if err != nil {
		t.Error(err)
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, subresources...)
	if err != nil {
		t.Error(err)
	}
}

// await waits until check accepts the pod.
func (s *suite) await(t *testing.T, pod *corev1.Pod, check func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, func(ctx context.Context) (bool, error) {
		var err error
		pod, err = s.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = check(pod)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("pod %s: %v: %v", pod.Name, err, last)
	}
	return pod
}

// stays makes sure that check accepts the pod for a while, longer than any stage but delayed takes.
func (s *suite) stays(t *testing.T, pod *corev1.Pod, check func(*corev1.Pod) error) {
	t.Helper()
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		pod, err := s.client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := check(pod); err != nil {
			t.Fatalf("pod %s did not stay: %v", pod.Name, err)
		}
	}
}

func find(pod *corev1.Pod, condition corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

// checkConditions reports whether the wanted resize condition, or none, is all that the pod has.
func checkConditions(pod *corev1.Pod, want corev1.PodConditionType, reason string) error {
	for _, condition := range []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress} {
		got := find(pod, condition)
		if (got != nil) != (condition == want) {
			return fmt.Errorf("condition %s is %+v", condition, got)
		}
		if got != nil && (got.Status != corev1.ConditionTrue || got.Reason != reason || got.ObservedGeneration != pod.Generation ||
			(got.Message != "") != (reason != "")) {
			return fmt.Errorf("condition %s is %+v", condition, got)
		}
	}
	return nil
}

// settled reports whether nothing of a resize is left to do.
func settled(pod *corev1.Pod) error {
	if pod.Status.ObservedGeneration != pod.Generation {
		return fmt.Errorf("observed generation %d of %d", pod.Status.ObservedGeneration, pod.Generation)
	}
	if err := checkConditions(pod, "", ""); err != nil {
		return err
	}
	return running(pod)
}

// running reports whether every container has and is allocated what the spec says.
func running(pod *corev1.Pod) error {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		i := slices.IndexFunc(statuses, func(cs corev1.ContainerStatus) bool { return cs.Name == container.Name })
		if i < 0 {
			return fmt.Errorf("container %s has no status", container.Name)
		}
		got, want := statuses[i], container.Resources
		if got.Resources == nil || !equal(got.Resources.Requests, want.Requests) || !equal(got.Resources.Limits, want.Limits) ||
			!equal(got.AllocatedResources, want.Requests) {
			return fmt.Errorf("container %s: resources %v, allocated %v, spec %v", container.Name, got.Resources, got.AllocatedResources, want)
		}
	}
	return nil
}

func checkRunning(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := running(pod); err != nil {
		t.Error(err)
	}
}

func equal(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}
