package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/test/process"
)

// Options say how a control plane is started. The zero value is good for tests.
type Options struct {
	// Bin is the folder of the binaries, by default bin/k8s of this module.
	Bin string
	// Version is a minor version, such as 1.35: the API server, the built-in controllers and the scheduler
	// are those of the folder beside Bin that has it, here bin/k8s-1.35. By default it is what $KUBERNETES
	// says, or else the newest, which is in Bin.
	Version string
	// Dir is the folder for all data, empty or not there yet. By default it is
	// a temporary one that Stop removes.
	Dir string
	// Detach lets the processes survive their starter. StopDir ends them.
	Detach bool
	// Kubelets are the names of nodes that have a real kubelet, which the caller
	// starts with KubeletKubeconfig; kwok is left out then.
	Kubelets []string
	// Egress is a Unix socket on which the caller serves HTTP CONNECT for all that
	// the API server has to say to nodes and pods. Empty means that it dials itself.
	Egress string
	// TypeChecking has the types in admission policies checked, for their status: that takes as long as all the rest
	// of installing deploy/.
	TypeChecking bool
	// Flags are added to the command line of the binary of that name.
	Flags map[string][]string
	// Log is where the path of a folder that stays is printed, by default os.Stderr.
	Log io.Writer
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	options   Options
	dir       string
	temporary bool // the folder is ours to remove

	ports   ports
	config  *rest.Config
	client  kubernetes.Interface
	version string

	spawner process.Spawner

	mu        sync.Mutex
	processes []*process.Process
	keepLogs  bool
	unattend  func() // ends attend; nil before the first Restart
}

// Start starts a control plane and waits until pods can be created in it. If
// one of the ports that it picked was taken meanwhile, it starts over, once.
// The context bounds the start only. Unless detached, the processes end with Stop,
// or with the calling process, however that ends.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	c, err := newControlPlane(options)
	if err != nil {
		return nil, err
	}
	err = c.start(ctx)
	if err != nil && c.portTaken() {
		c.stopProcesses()
		if err := c.clear(); err != nil {
			return nil, err
		}
		err = c.start(ctx)
	}
	if err != nil {
		c.KeepLogs()
		return nil, errors.Join(fmt.Errorf("starting control plane: %w", err), c.Stop())
	}
	return c, nil
}

func newControlPlane(options Options) (*ControlPlane, error) {
	c := &ControlPlane{options: options}
	if c.options.Log == nil {
		c.options.Log = os.Stderr
	}
	var err error
	if c.options.Bin == "" {
		if c.options.Bin, err = DefaultBin(); err != nil {
			return nil, err
		}
	}
	if c.options.Bin, err = filepath.Abs(c.options.Bin); err != nil {
		return nil, fmt.Errorf("finding binaries: %w", err)
	}
	c.options.Version = versionOr(options.Version)
	for _, name := range append([]string{"kubectl"}, c.binaries()...) {
		if _, err := os.Stat(c.Bin(name)); err != nil {
			return nil, fmt.Errorf("finding binaries: %w", err)
		}
	}

	if options.Dir == "" {
		c.temporary = true
		if c.dir, err = os.MkdirTemp("", "controlplane-"); err != nil {
			return nil, fmt.Errorf("making folder: %w", err)
		}
		return c, nil
	}
	if c.dir, err = filepath.Abs(options.Dir); err != nil {
		return nil, fmt.Errorf("finding folder: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making folder: %w", err)
	}
	if entries, err := os.ReadDir(c.dir); err != nil {
		return nil, fmt.Errorf("reading folder: %w", err)
	} else if len(entries) > 0 {
		return nil, fmt.Errorf("folder %s is not empty", c.dir)
	}
	return c, nil
}

// DefaultBin is the folder bin/k8s of the module that the working directory
// is in, where the Makefile builds the binaries.
func DefaultBin() (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("finding binaries: %w", err)
	}
	return filepath.Join(root, "bin", "k8s"), nil
}

// ModuleRoot is the folder of the module that the working directory is in.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding working directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod in the working directory or above it")
		}
		dir = filepath.Dir(dir)
	}
}

// start starts all processes: etcd and the API server together, then those that need the API server.
func (c *ControlPlane) start(ctx context.Context) error {
	var err error
	if c.ports, err = freePorts(); err != nil {
		return err
	}
	if err := c.configure(); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return fmt.Errorf("making client: %w", err)
	}

	c.spawner = process.NewSpawner()
	if err := c.startProcesses(c.binaries()[:2]); err != nil {
		return err
	}
	if err := c.await(ctx, "API server", binaries, func(ctx context.Context) error {
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for version: %w", err)
	}
	c.version = version.GitVersion
	if want := c.options.Version; want != "" && !strings.HasPrefix(c.version, "v"+want+".") {
		return fmt.Errorf("the API server of version %s is %s", want, c.version)
	}

	if err := c.startProcesses(c.binaries()[2:]); err != nil {
		return err
	}
	// Without its service account, no pod can be created in a namespace.
	return c.await(ctx, "default service account", binaries, func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// binaries are those of all processes: kwok plays no nodes where there are real ones.
func (c *ControlPlane) binaries() []string {
	if len(c.options.Kubelets) == 0 {
		return binaries
	}
	return slices.DeleteFunc(slices.Clone(binaries), func(name string) bool { return name == "kwok" })
}

func (c *ControlPlane) startProcesses(names []string) error {
	flags, err := c.flags()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.Run(c.Bin(name), flags[name]...); err != nil {
			return err
		}
	}
	return nil
}

// Run starts one more process, which ends with the control plane, before it. Its
// arguments must name the control plane's folder: StopDir knows it by that.
func (c *ControlPlane) Run(binary string, args ...string) error {
	p, err := c.spawn(binary, args)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = append(c.processes, p)
	return nil
}

func (c *ControlPlane) spawn(binary string, args []string) (*process.Process, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.options.Detach {
		attr = &syscall.SysProcAttr{Setsid: true}
	}
	return c.spawner.Start(c.dir, binary, attr, args)
}

// Restart kills etcd, the API server or another binary without a chance to clean up, and starts
// it again on the same data and ports. It returns when the API server answers again. From then on,
// what ends by itself is started again, too. Calls must come one after the other.
//
// Simulated kubelets look at their pods again then: kwok gives up what it was to write when the API
// server answered by an error, as it does without etcd. A real kubelet repeats it.
func (c *ControlPlane) Restart(ctx context.Context, name string) error {
	err := c.restart(ctx, name)
	if err == nil && slices.Contains(binaries[:2], name) {
		err = c.nudge(ctx)
	}
	return err
}

const nudgedKey = "sim.inplace-rollout.io/nudged"

// nudge changes an annotation of each pod that has a node, for the kubelets to look at it.
func (c *ControlPlane) nudge(ctx context.Context) error {
	list, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for _, pod := range list.Items {
		patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, nudgedKey, rand.Text())
		_, err := c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("nudging the kubelet of pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

func (c *ControlPlane) restart(ctx context.Context, name string) error {
	all := c.running()
	i := slices.IndexFunc(all, func(p *process.Process) bool { return p.Name() == name })
	if i < 0 {
		return fmt.Errorf("restarting %s: it does not run", name)
	}
	flags, err := c.flags()
	if err != nil {
		return err
	}
	c.unattended()
	defer c.attend(flags)
	all[i].Kill()
	for {
		p, err := c.spawn(c.Bin(name), flags[name])
		if err != nil {
			return fmt.Errorf("restarting %s: %w", name, err)
		}
		c.replace(i, p)
		err = c.await(ctx, "API server", binaries[:2], c.answers)
		if err == nil {
			return nil
		}
		// A client that looked for the port may have got it as its own for a moment.
		if !p.Ended() || !strings.Contains(process.Tail(process.LogFile(c.dir, name), 5), "address already in use") {
			return fmt.Errorf("restarting %s: %w", name, err)
		}
	}
}

// Pause stops a binary where it is, such as the built-in controllers, until resume is called.
func (c *ControlPlane) Pause(name string) (resume func(), err error) {
	pid := c.PID(name)
	if pid == 0 {
		return nil, fmt.Errorf("pausing %s: it does not run", name)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("pausing %s: %w", name, err)
	}
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }, nil // fails only if it has ended
}

// attend starts what ends by itself again, as whatever runs it in a cluster does: the scheduler
// gives up when it finds that it has missed something while there was no API server.
func (c *ControlPlane) attend(flags map[string][]string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, func(context.Context) {
			for i, p := range c.running() {
				if !p.Ended() || !slices.Contains(binaries[2:], p.Name()) {
					continue
				}
				if again, err := c.spawn(c.Bin(p.Name()), flags[p.Name()]); err == nil {
					c.replace(i, again)
				}
			}
		}, 10*poll)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unattend = func() { cancel(); <-done }
}

// unattended ends attend.
func (c *ControlPlane) unattended() {
	c.mu.Lock()
	end := c.unattend
	c.unattend = nil
	c.mu.Unlock()
	if end != nil {
		end()
	}
}

func (c *ControlPlane) replace(i int, p *process.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes[i] = p
}

// answers returns nil if the API server is ready, and etcd answers it.
func (c *ControlPlane) answers(ctx context.Context) error {
	if err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	_, err := c.client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	return err
}

// running are the processes that were started, in that order.
func (c *ControlPlane) running() []*process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.processes)
}

// await polls until f succeeds or one of the needed processes has ended.
func (c *ControlPlane) await(ctx context.Context, what string, needed []string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		for _, p := range c.running() {
			if p.Ended() && slices.Contains(needed, p.Name()) {
				return false, fmt.Errorf("%s has ended: %s", p.Name(), process.Tail(process.LogFile(c.dir, p.Name()), 5))
			}
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
		return fmt.Errorf("waiting for %s: %w", what, errors.Join(err, last))
	}
	return nil
}

// portTaken reports whether a process has found one of its ports in use.
func (c *ControlPlane) portTaken() bool {
	return slices.ContainsFunc(c.running(), func(p *process.Process) bool {
		log, _ := os.ReadFile(process.LogFile(c.dir, p.Name()))
		return bytes.Contains(log, []byte("address already in use"))
	})
}

// clear empties the folder.
func (c *ControlPlane) clear() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("reading folder: %w", err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(c.path(entry.Name())); err != nil {
			return fmt.Errorf("clearing folder: %w", err)
		}
	}
	return nil
}

// KeepLogs marks the run as failed: Stop will leave the folder and print its path.
func (c *ControlPlane) KeepLogs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepLogs = true
}

// Stop ends all processes, the last started first, and waits for them. It
// removes a temporary folder unless KeepLogs was called.
func (c *ControlPlane) Stop() error {
	c.stopProcesses()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keepLogs {
		_, _ = fmt.Fprintf(c.options.Log, "the control plane's logs and data stay in %s\n", c.dir)
		return nil
	}
	if !c.temporary {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("removing folder: %w", err)
	}
	return nil
}

func (c *ControlPlane) stopProcesses() {
	c.unattended()
	for _, p := range slices.Backward(c.running()) {
		p.Stop()
	}
	c.mu.Lock()
	c.processes = nil
	c.mu.Unlock()
	if c.spawner != nil {
		c.spawner.Close()
		c.spawner = nil
	}
}

// SecondAPIServer starts one more API server on the same etcd, with more flags, until stop is called. Its audit log is another one.
func (c *ControlPlane) SecondAPIServer(ctx context.Context, flags ...string) (config *rest.Config, stop func(), err error) {
	port, err := FreePort()
	if err != nil {
		return nil, nil, err
	}
	const name = "kube-apiserver-2" // that of its log
	if err := os.Symlink(c.Bin("kube-apiserver"), c.path(name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, fmt.Errorf("naming the second API server: %w", err)
	}
	flags = slices.Concat(c.apiserverFlags("http://"+c.Etcd()), []string{"--secure-port", port, "--audit-log-path", c.path("log/audit-2.jsonl")}, flags)
	server, err := c.spawn(c.path(name), flags)
	if err != nil {
		return nil, nil, err
	}
	config = c.RESTConfig()
	config.Host = "https://127.0.0.1:" + port
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		err = c.await(ctx, "second API server", binaries, func(ctx context.Context) error {
			return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		})
	}
	if err != nil {
		server.Stop()
		return nil, nil, fmt.Errorf("starting a second API server: %w", err)
	}
	return config, server.Stop, nil
}

// Dir is the folder of all data.
func (c *ControlPlane) Dir() string { return c.dir }

// Address is where the API server listens.
func (c *ControlPlane) Address() string { return "127.0.0.1:" + c.ports.apiserver }

// Etcd is where etcd listens.
func (c *ControlPlane) Etcd() string { return "127.0.0.1:" + c.ports.etcd }

// Version is the API server's, such as v1.37.1.
func (c *ControlPlane) Version() string { return c.version }

// ServiceAddress is where pods and the kubelets of Options.Kubelets look for the
// API server, on port 443. Their starter has to bring them from there to Address.
const ServiceAddress = "10.96.0.1"

// KubeletKubeconfig is the path of the kubeconfig of a node of Options.Kubelets.
func (c *ControlPlane) KubeletKubeconfig(node string) string { return c.path(kubeletFile(node)) }

// Bin is the path of a binary.
func (c *ControlPlane) Bin(name string) string {
	return BinaryOf(c.options.Bin, c.options.Version, name)
}

// PID is the process id of a binary, or 0 if it does not run.
func (c *ControlPlane) PID(name string) int {
	for _, p := range c.running() {
		if p.Name() == name {
			return p.PID()
		}
	}
	return 0
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return c.path("kubeconfig") }

// RESTConfig is the administrator's, without a limit on the rate of requests.
func (c *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Kubectl runs kubectl as the administrator and returns what it prints. What
// it complains about becomes the error.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	own := []string{"--kubeconfig", c.Kubeconfig(), "--cache-dir", c.path("kubectl-cache")}
	cmd := exec.CommandContext(ctx, c.Bin("kubectl"), append(own, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("running kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Apply runs kubectl apply for manifests of ours, without asking for the API server's schemas: kubectl would read them
// anew for each object, which takes ten times as long as all else.
func (c *ControlPlane) Apply(ctx context.Context, args ...string) error {
	_, err := c.Kubectl(ctx, append([]string{"apply", "--validate=false", "--openapi-patch=false"}, args...)...)
	return err
}
