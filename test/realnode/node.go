// Package realnode runs one real Kubernetes node for tests: kubelet, containerd
// and runc, with a control plane of its own on 127.0.0.1. It needs root and
// Linux, with cgroup v1 or v2.
//
// The node is a set of namespaces beside the machine: its processes see neither
// the machine's processes nor its network, and what they mount, or write to /run
// and /var, is gone with them. They hang on one first process, and that on the
// test: however the test ends, the kernel ends the node. Only the node's cgroups
// outlive it, by as long as it takes to remove them.
//
//	machine                                │ node (namespaces: pid, mnt, net, uts, ipc)
//	test ───────── HTTP (Node.Dial) ───────┼──────────────▶ pods, 10.244.0.0/24
//	kube-apiserver ── egress.sock, test ───┼──────────────▶ kubelet, 192.0.2.1:10250
//	127.0.0.1:port ◀────────── test ───────┼── 10.96.0.1:443 ◀── kubelet, pods
//
// There is neither kube-proxy nor DNS: of all Services, pods reach that of the API
// server only.
package realnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/process"
)

const (
	// Name is the node's.
	Name = "real-node"
	// Kubelet is where the kubelet listens, in the node's network.
	Kubelet = nodeAddress + ":10250"
	// pauseImage is what containerd runs in every pod, by the name that it was built under.
	pauseImage = "docker.io/library/inplace-rollout-pause:test"
	// poll is the pause between two looks at something that is about to happen.
	poll = 20 * time.Millisecond
	// patience is how long a part of the node may take to start.
	patience = time.Minute
)

// Options say how a node is started. The zero value is good for tests.
type Options struct {
	// Bin is the folder with k8s/, node/ and images/, by default bin of this module.
	Bin string
	// Kubelet is a minor version, such as 1.35: the kubelet is that of the folder beside k8s/ that has it,
	// here k8s-1.35/. By default it is what $KUBELET says, or else of the control plane's version.
	Kubelet string
	// Log is where the path of a folder that stays is printed, by default os.Stderr.
	Log io.Writer
}

// Node is a running node with its control plane.
type Node struct {
	*controlplane.ControlPlane
	options Options
	dir     string
	name    string // of the cgroup

	namespaces *namespaces
	egress     *http.Server
	apiserver  net.Listener
	janitor    *janitor
	containerd *process.Process
	kubelet    *process.Process

	stop     sync.Once
	stopErr  error
	keepLogs atomic.Bool
}

// Missing says why no node can run here, or nothing.
func Missing() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil || os.Geteuid() != 0 || data[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return "a real node needs root, with the capability SYS_ADMIN, for cgroups and namespaces"
	}
	return ""
}

// Start starts a node and waits until it is Ready. The context bounds the start
// only. The node ends with Stop, or with the calling process, however that ends.
func Start(ctx context.Context, options Options) (*Node, error) {
	if missing := Missing(); missing != "" {
		return nil, errors.New(missing)
	}
	n, err := newNode(options)
	if err != nil {
		return nil, err
	}
	if err := n.start(ctx); err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // which nobody has to look into
			n.KeepLogs()
		}
		return nil, errors.Join(fmt.Errorf("starting a real node: %w", err), n.Stop())
	}
	return n, nil
}

func newNode(options Options) (*Node, error) {
	if options.Log == nil {
		options.Log = os.Stderr
	}
	if options.Bin == "" {
		k8s, err := controlplane.DefaultBin()
		if err != nil {
			return nil, err
		}
		options.Bin = filepath.Dir(k8s)
	}
	bin, err := filepath.Abs(options.Bin)
	if err != nil {
		return nil, fmt.Errorf("finding binaries: %w", err)
	}
	options.Bin = bin
	options.Kubelet = cmp.Or(options.Kubelet, os.Getenv("KUBELET"))
	dir, err := os.MkdirTemp("", "realnode-")
	if err != nil {
		return nil, fmt.Errorf("making folder: %w", err)
	}
	n := &Node{options: options, dir: dir, name: "inplace-rollout-" + filepath.Base(dir)}
	for _, sub := range []string{"log/pods", "state", "cni"} {
		if err := os.MkdirAll(n.path(sub), 0o755); err != nil {
			return nil, fmt.Errorf("making folder: %w", err)
		}
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	if err := n.configure(); err != nil {
		return err
	}
	if err := n.startNamespaces(ctx); err != nil {
		return err
	}
	// The control plane takes seconds to start: meanwhile containerd gets ready.
	started := make(chan error, 1)
	go func() { started <- n.startControlPlane(ctx) }()
	err := n.startContainerd(ctx)
	if err == nil {
		err = n.Import(ctx, "pause")
	}
	if err := errors.Join(<-started, err); err != nil {
		return err
	}
	if err := n.writeKubeletConfig(nil); err != nil {
		return err
	}
	return n.startKubelet(ctx)
}

func (n *Node) startNamespaces(ctx context.Context) error {
	var err error
	if n.janitor, err = newJanitor(n.name); err != nil {
		return err
	}
	if err := makeCgroups(n.name); err != nil {
		return err
	}
	if n.namespaces, err = newNamespaces(n.dir, n.bin("node", "pause")); err != nil {
		return err
	}
	if err := n.namespaces.furnish(ctx, n.dir); err != nil {
		return err
	}
	return n.namespaces.addresses(nodeAddress, controlplane.ServiceAddress)
}

// startControlPlane starts it, and what connects it with the node.
func (n *Node) startControlPlane(ctx context.Context) error {
	var err error
	if n.egress, err = ServeEgress(n.path("egress.sock"), n.namespaces.dial); err != nil {
		return err
	}
	n.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Bin: n.bin("k8s"), Dir: n.path("controlplane"), Log: io.Discard,
		Kubelets: []string{Name}, Egress: n.path("egress.sock"),
		// Nothing leads from a Service to its pods, so that the API server has to find them by itself to ask a webhook.
		Flags: map[string][]string{"kube-apiserver": {"--enable-aggregator-routing"}},
	})
	if err != nil {
		return err
	}
	if n.apiserver, err = n.namespaces.listen(controlplane.ServiceAddress + ":443"); err != nil {
		return err
	}
	go forward(n.apiserver, (&net.Dialer{}).DialContext, n.Address())
	return nil
}

func (n *Node) startContainerd(ctx context.Context) error {
	var err error
	n.containerd, err = n.spawn(n.bin("node", "containerd"), "--config", n.path("containerd.toml"))
	if err != nil {
		return err
	}
	return n.await(ctx, n.containerd, func(ctx context.Context) error {
		_, err := n.ctr(ctx, "version")
		return err
	})
}

func (n *Node) startKubelet(ctx context.Context) error {
	kubelet := n.Bin("kubelet")
	if n.options.Kubelet != "" {
		kubelet = controlplane.BinaryOf(n.bin("k8s"), n.options.Kubelet, "kubelet")
	}
	var err error
	n.kubelet, err = n.spawn(kubelet,
		"--config", n.path("kubelet.yaml"), "--kubeconfig", n.KubeletKubeconfig(Name), "--root-dir", n.path("state/kubelet"),
		"--cert-dir", n.path("state/kubelet-pki"), "--hostname-override", Name, "--node-ip", nodeAddress, "--v", "4")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(n.RESTConfig())
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	since := time.Now()
	return n.await(ctx, n.kubelet, func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if want, is := n.options.Kubelet, node.Status.NodeInfo.KubeletVersion; want != "" && !strings.HasPrefix(is, "v"+want+".") {
			return fmt.Errorf("the kubelet of version %s is %q", want, is)
		}
		return ready(node, since)
	})
}

// ready reports whether the node takes pods, and has said so since the kubelet was started.
func ready(node *corev1.Node, since time.Time) error {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return errors.New("the node has not said whether it is Ready")
	}
	condition := node.Status.Conditions[i]
	if condition.Status != corev1.ConditionTrue {
		return fmt.Errorf("the node is not Ready: %s", condition.Message)
	}
	if condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
		return errors.New("the kubelet has not yet reported again")
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return fmt.Errorf("the node is tainted: %s", taint.Key)
		}
	}
	return nil
}

// spawn starts a process of the node.
func (n *Node) spawn(binary string, args ...string) (*process.Process, error) {
	return n.namespaces.inside.Start(n.dir, binary, nil, args)
}

// await polls until f succeeds or the process has ended.
func (n *Node) await(ctx context.Context, p *process.Process, f func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, poll, patience, true, func(ctx context.Context) (bool, error) {
		if p.Ended() {
			return false, fmt.Errorf("it has ended: %s", process.Tail(process.LogFile(n.dir, p.Name()), 5))
		}
		if err := f(ctx); err != nil {
			if ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", p.Name(), errors.Join(err, last))
	}
	return nil
}

// ctr runs containerd's own client in the node.
func (n *Node) ctr(ctx context.Context, args ...string) (string, error) {
	return n.namespaces.run(ctx, n.bin("node", "ctr"), append([]string{"--address", containerdSocket, "--namespace", "k8s.io"}, args...)...)
}

// Import makes an image known to the node, from bin/images/<name>.tar.
func (n *Node) Import(ctx context.Context, name string) error {
	tar := n.bin("images", name+".tar")
	if _, err := n.ctr(ctx, "images", "import", "--local", tar); err != nil {
		return fmt.Errorf("importing image %s: %w", name, err)
	}
	return nil
}

// Dial connects to a pod, or to anything else in the node's network.
func (n *Node) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.namespaces.dial(ctx, network, address)
}

// Expose leads from a new address in the node's network to one of the machine's, such as that of a
// server on 127.0.0.1, until the node ends or stop is called.
func (n *Node) Expose(to string) (address string, stop func() error, err error) {
	listener, err := n.namespaces.listen(nodeAddress + ":0")
	if err != nil {
		return "", nil, err
	}
	go forward(listener, (&net.Dialer{}).DialContext, to)
	return listener.Addr().String(), listener.Close, nil
}

// HTTP is a new client for pods.
func (n *Node) HTTP(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: n.Dial}}
}

// RestartKubelet ends the kubelet and starts it again, with changed settings; a
// change holds until the next restart. Pods go on running. It returns once the
// node is Ready.
func (n *Node) RestartKubelet(ctx context.Context, changes ...func(KubeletConfig)) error {
	n.kubelet.Stop()
	if err := n.writeKubeletConfig(changes); err != nil {
		return err
	}
	// The kubelet refuses to start with another CPU or memory manager than it remembers.
	err := n.namespaces.inside.Do(func() error {
		return errors.Join(os.RemoveAll(n.path("state/kubelet/cpu_manager_state")), os.RemoveAll(n.path("state/kubelet/memory_manager_state")))
	})
	if err != nil {
		return fmt.Errorf("restarting the kubelet: %w", err)
	}
	return n.startKubelet(ctx)
}

// RestartContainerd ends containerd and starts it again. Containers go on running.
func (n *Node) RestartContainerd(ctx context.Context) error {
	n.containerd.Stop()
	return n.startContainerd(ctx)
}

// KillKubelet ends the kubelet without a chance to clean up; RestartKubelet brings it back.
func (n *Node) KillKubelet() { n.kubelet.Kill() }

// KillContainerd ends containerd without a chance to clean up; RestartContainerd brings it back.
func (n *Node) KillContainerd() { n.containerd.Kill() }

// StopShim stops the process through which containerd runs a container, given the id
// of the container's first process, which Cgroup gives. Until it is resumed, what the
// kubelet asks of that container is in progress, and everything else goes on.
func (n *Node) StopShim(container int) (resume func() error, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", container))
	if err != nil {
		return nil, fmt.Errorf("finding the parent of process %d: %w", container, err)
	}
	_, after, _ := strings.Cut(string(status), "\nPPid:")
	parent := 0
	if _, err := fmt.Sscan(after, &parent); err != nil {
		return nil, fmt.Errorf("finding the parent of process %d: %w", container, err)
	}
	shim, err := os.FindProcess(parent)
	if err != nil {
		return nil, fmt.Errorf("finding process %d: %w", parent, err)
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
	if err != nil {
		return nil, fmt.Errorf("finding out what process %d is: %w", parent, err)
	}
	if !strings.Contains(string(command), "containerd-shim") {
		return nil, fmt.Errorf("the parent of process %d is no shim, but %q", container, command)
	}
	if err := shim.Signal(syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("stopping process %d: %w", parent, err)
	}
	return func() error { return shim.Signal(syscall.SIGCONT) }, nil
}

// KeepLogs marks the run as failed: Stop will leave the folder and print its path.
func (n *Node) KeepLogs() { n.keepLogs.Store(true) }

// Stop ends the node and its control plane, removes what is left of them, and
// makes sure that this is nothing. Another call waits for the first one, and
// returns the same.
func (n *Node) Stop() error {
	n.stop.Do(func() { n.stopErr = n.end() })
	return n.stopErr
}

func (n *Node) end() error {
	var failed []error
	if n.namespaces != nil {
		n.namespaces.close()
	}
	if n.apiserver != nil {
		failed = append(failed, n.apiserver.Close())
	}
	if n.ControlPlane != nil {
		failed = append(failed, n.ControlPlane.Stop())
	}
	if n.egress != nil {
		failed = append(failed, n.egress.Close())
	}
	failed = append(failed, removeCgroups(n.name))
	if n.janitor != nil {
		failed = append(failed, n.janitor.dismiss())
	}
	failed = append(failed, n.checkGone())
	if n.keepLogs.Load() {
		_, _ = fmt.Fprintf(n.options.Log, "the logs of the node and its control plane stay in %s\n", n.dir)
		return errors.Join(failed...)
	}
	return errors.Join(append(failed, os.RemoveAll(n.dir))...)
}
