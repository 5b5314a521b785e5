package realnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/process"
)

// namespaces of the node. Its processes see no others, and end with the first
// process of the PID namespace; mounts and network devices end with the processes.
type namespaces struct {
	init *process.Process // the first process
	ids  map[string]string
	// inside is a thread in all of the namespaces, from which the node's processes are started.
	inside process.Spawner
	// outside is the thread that the life of the first process hangs on: if the
	// test dies, however that happens, the kernel ends the node.
	outside process.Spawner

	mu    sync.Mutex
	conns map[*net.TCPConn]struct{} // they keep the network namespace alive
}

const cloneFlags = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// kinds of namespaces as they are called in /proc/<pid>/ns.
var kinds = []string{"pid", "mnt", "net", "uts", "ipc"}

// newNamespaces starts the first process, which is the pause program, in namespaces of its own.
func newNamespaces(dir, pause string) (*namespaces, error) {
	n := &namespaces{ids: map[string]string{}, conns: map[*net.TCPConn]struct{}{}, inside: process.NewSpawner(), outside: process.NewSpawner()}
	var err error
	attr := &syscall.SysProcAttr{Cloneflags: cloneFlags, Pdeathsig: syscall.SIGKILL}
	if n.init, err = n.outside.Start(dir, pause, attr, nil); err != nil {
		n.close()
		return nil, fmt.Errorf("making namespaces: %w", err)
	}
	for _, kind := range kinds {
		if n.ids[kind], err = os.Readlink(n.path(kind)); err != nil {
			n.close()
			return nil, fmt.Errorf("finding the %s namespace: %w", kind, err)
		}
	}
	if err := n.inside.Do(func() error { return n.enter(kinds...) }); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *namespaces) path(kind string) string {
	return fmt.Sprintf("/proc/%d/ns/%s", n.init.PID(), kind)
}

// enter brings the calling thread, which must be used for nothing else, into namespaces.
func (n *namespaces) enter(kinds ...string) error {
	// Threads that share their working directory cannot enter a mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("preparing a thread for namespaces: %w", err)
	}
	var files []*os.File
	defer func() {
		for _, file := range files {
			_ = file.Close()
		}
	}()
	// Opened before any is entered: afterwards /proc may be another one.
	for _, kind := range kinds {
		file, err := os.Open(n.path(kind))
		if err != nil {
			return fmt.Errorf("opening the %s namespace: %w", kind, err)
		}
		files = append(files, file)
	}
	for i, file := range files {
		if err := unix.Setns(int(file.Fd()), 0); err != nil {
			return fmt.Errorf("entering the %s namespace: %w", kinds[i], err)
		}
	}
	return nil
}

// close ends the first process and with it all others, and leaves the namespaces.
func (n *namespaces) close() {
	if n.init != nil {
		n.init.Kill()
	}
	n.inside.Close()
	n.outside.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		_ = conn.Close()
	}
}

// connection is one into the node's network.
type connection struct {
	*net.TCPConn
	node *namespaces
}

// Close closes the connection.
func (c connection) Close() error {
	c.node.mu.Lock()
	delete(c.node.conns, c.TCPConn)
	c.node.mu.Unlock()
	return c.TCPConn.Close()
}

// dial connects to an address in the node's network.
func (n *namespaces) dial(ctx context.Context, _, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	process.OnOwnThread(func() {
		if err := n.enter("net"); err != nil {
			done <- result{nil, err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		done <- result{conn, err}
	})
	r := <-done
	if r.err != nil {
		return nil, r.err
	}
	conn := r.conn.(*net.TCPConn)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[conn] = struct{}{}
	return connection{conn, n}, nil
}

// listen opens a listening socket in the node's network, from outside of it.
func (n *namespaces) listen(address string) (net.Listener, error) {
	var listener net.Listener
	err := n.inside.Do(func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening in the node's network: %w", err)
	}
	return listener, nil
}

// run runs a command in the namespaces and returns what it prints.
func (n *namespaces) run(ctx context.Context, command string, args ...string) (string, error) {
	var out []byte
	err := n.inside.Do(func() (err error) {
		out, err = exec.CommandContext(ctx, command, args...).CombinedOutput()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w: %s", filepath.Base(command), strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// sysctls are what the kubelet wants of the kernel. They are not changed: in the
// node's mount namespace, files that say so lie on top of them.
var sysctls = map[string]string{
	"vm/overcommit_memory": "1",
	"vm/panic_on_oom":      "0",
	"kernel/panic":         "10",
	"kernel/panic_on_oops": "1",
}

// mount is one mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mounting %s: %w", m.target, err)
	}
	return nil
}

// furnish gives the mount namespace what the node writes to: /run and state are
// in memory, and /var is the machine's with a layer on top.
func (n *namespaces) furnish(ctx context.Context, dir string) error {
	if err := n.inside.Do(func() error { return mountAll(dir) }); err != nil {
		return err
	}
	// A process in the PID namespace has to mount its own view of it.
	if _, err := n.run(ctx, "mount", "-t", "proc", "proc", "/proc"); err != nil {
		return err
	}
	return n.inside.Do(func() error { return coverSysctls(dir) })
}

func mountAll(dir string) error {
	// Nothing that is mounted from here on may reach the machine; containers want
	// propagation among themselves.
	for _, flag := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := (mount{target: "/", flags: unix.MS_REC | flag}).do(); err != nil {
			return err
		}
	}
	// The folder stays the machine's also where it is below /var.
	itself, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening folder: %w", err)
	}
	defer itself.Close()

	state := filepath.Join(dir, "state")
	upper, work := filepath.Join(state, "var"), filepath.Join(state, "var-work")
	for _, step := range []func() error{
		mount{source: "tmpfs", target: state, kind: "tmpfs"}.do,
		func() error { return errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)) },
		mount{source: "overlay", target: "/var", kind: "overlay", data: "lowerdir=/var,upperdir=" + upper + ",workdir=" + work}.do,
		mount{source: fmt.Sprintf("/proc/self/fd/%d", itself.Fd()), target: dir, flags: unix.MS_BIND | unix.MS_REC}.do,
		mount{source: "tmpfs", target: "/run", kind: "tmpfs"}.do,
		func() error { return errors.Join(os.MkdirAll("/run/netns", 0o755), os.MkdirAll("/run/lock", 0o755)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("furnishing the mount namespace: %w", err)
		}
	}
	return nil
}

// coverSysctls lays files over the settings of the kernel.
func coverSysctls(dir string) error {
	for name, value := range sysctls {
		file := filepath.Join(dir, "state", "sysctl-"+filepath.Base(name))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("covering sysctl: %w", err)
		}
		if err := (mount{source: file, target: "/proc/sys/" + name, flags: unix.MS_BIND}).do(); err != nil {
			return fmt.Errorf("covering sysctl: %w", err)
		}
	}
	return nil
}

// addresses gives the loopback device addresses beside its own, and sets it up.
func (n *namespaces) addresses(addresses ...string) error {
	return n.inside.Do(func() error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening a socket: %w", err)
		}
		defer func() { _ = unix.Close(socket) }()
		if err := setUp(socket); err != nil {
			return err
		}
		for i, address := range addresses {
			if err := addAddress(socket, fmt.Sprintf("lo:%d", i+1), net.ParseIP(address).To4()); err != nil {
				return fmt.Errorf("adding address %s: %w", address, err)
			}
		}
		return nil
	})
}

func setUp(socket int) error {
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("setting up the loopback device: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("setting up the loopback device: %w", err)
	}
	return nil
}

func addAddress(socket int, label string, address net.IP) error {
	for _, set := range []struct {
		what  uint
		value net.IP
	}{{unix.SIOCSIFADDR, address}, {unix.SIOCSIFNETMASK, net.IPv4bcast.To4()}} {
		request, err := unix.NewIfreq(label)
		if err != nil {
			return err
		}
		if err := request.SetInet4Addr(set.value); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, set.what, request); err != nil {
			return err
		}
	}
	return nil
}

// The node's own network. The same on every node, because no two see each other.
const (
	nodeAddress = "192.0.2.1"
	bridge      = "pods"
	podSubnet   = "10.244.0.0/24"
)

// containerdConfig leaves out what the node does not need, and what needs rights
// that root may lack in a virtual machine or a container.
const containerdConfig = `version = 4
root = '%[1]s/containerd'
state = '/run/containerd'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.erofs',
  'io.containerd.tracing.processor.v1.otlp', 'io.containerd.internal.v1.tracing']
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '%[3]s'
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '%[2]s/runc'
  SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['%[2]s']
  conf_dir = '%[4]s'
[plugins.'io.containerd.server.v1.grpc']
  address = '` + containerdSocket + `'
[plugins.'io.containerd.server.v1.ttrpc']
  address = '` + containerdSocket + `.ttrpc'
`

const containerdSocket = "/run/containerd/containerd.sock"

const cniConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": %q, "isGateway": true,
  "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// KubeletConfig is a KubeletConfiguration, as it is written.
type KubeletConfig map[string]any

// kubeletConfig is how the kubelet is started if nothing else is said. It listens
// in the node's own network only, where nobody but the API server and pods are. The
// API server does not say who it is; whoever does is asked for a token that is good.
func (n *Node) kubeletConfig() KubeletConfig {
	return KubeletConfig{
		"apiVersion":                  "kubelet.config.k8s.io/v1beta1",
		"kind":                        "KubeletConfiguration",
		"address":                     nodeAddress,
		"healthzBindAddress":          "127.0.0.1",
		"authentication":              map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": true}},
		"authorization":               map[string]any{"mode": "AlwaysAllow"},
		"failCgroupV1":                false,
		"failSwapOn":                  false,
		"cgroupDriver":                "cgroupfs",
		"cgroupRoot":                  "/" + n.name,
		"containerRuntimeEndpoint":    "unix://" + containerdSocket,
		"resolvConf":                  n.path("resolv.conf"),
		"makeIPTablesUtilChains":      false,
		"imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]any{
			"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%",
		},
		"podLogsDir":                n.path("log/pods"),
		"nodeStatusUpdateFrequency": "10s",
	}
}

// configure writes what containerd and the CNI plugins read.
func (n *Node) configure() error {
	for name, content := range map[string]string{
		"containerd.toml":      fmt.Sprintf(containerdConfig, n.path("state"), n.bin("node"), pauseImage, n.path("cni")),
		"cni/10-pods.conflist": fmt.Sprintf(cniConfig, bridge, podSubnet),
		"resolv.conf":          "nameserver 127.0.0.1\n",
	} {
		if err := os.WriteFile(n.path(name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing configuration: %w", err)
		}
	}
	return nil
}

// writeKubeletConfig writes what the kubelet reads, with changes.
func (n *Node) writeKubeletConfig(changes []func(KubeletConfig)) error {
	config := n.kubeletConfig()
	for _, change := range changes {
		change(config)
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("writing the kubelet's configuration: %w", err)
	}
	if err := os.WriteFile(n.path("kubelet.yaml"), data, 0o644); err != nil {
		return fmt.Errorf("writing the kubelet's configuration: %w", err)
	}
	return nil
}

func (n *Node) path(name string) string { return filepath.Join(n.dir, name) }
func (n *Node) bin(elements ...string) string {
	return filepath.Join(append([]string{n.options.Bin}, elements...)...)
}
