package realnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// janitor is a process that removes the node's cgroups when the test has been
// killed and can not. It waits for the end of its input, whose other end is only
// the test's.
type janitor struct {
	cmd   *exec.Cmd
	input io.Closer
}

// sweep gives the kernel 10 s to end the node's processes.
const sweep = `read -r _
for i in $(seq 100); do
	find "$@" -depth -type d -exec rmdir {} + 2>/dev/null
	ls -d "$@" >/dev/null 2>&1 || exit 0
	sleep 0.1
done`

func newJanitor(name string) (*janitor, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	args := []string{"-c", sweep, "janitor"}
	for _, hierarchy := range all {
		args = append(args, filepath.Join(hierarchy, name))
	}
	cmd := exec.Command("sh", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for it
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the janitor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the janitor: %w", err)
	}
	return &janitor{cmd: cmd, input: input}, nil
}

// dismiss lets the janitor go.
func (j *janitor) dismiss() error {
	_ = j.input.Close() // it has nothing more to say
	if err := j.cmd.Wait(); err != nil {
		return fmt.Errorf("waiting for the janitor: %w", err)
	}
	return nil
}

// ErrLeft is the error of a Stop that has left something of the node behind.
var ErrLeft = errors.New("the node has left behind")

// checkGone makes sure that nothing of the node is left but its folder. The last
// threads may take a moment to go.
func (n *Node) checkGone() error {
	var left []string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(poll) {
		if left = n.left(); len(left) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", ErrLeft, strings.Join(left, "; "))
}

// left names all that is left of the node.
func (n *Node) left() []string {
	left := slices.Concat(n.leftProcesses(), n.leftMounts())
	for _, cgroup := range cgroupsOf(n.name) {
		left = append(left, "cgroup "+cgroup)
	}
	return left
}

// leftProcesses names what is in a namespace of the node, be it a process, a
// thread of this one or an open file, or has its folder in its command line. As
// long as there is none, the kernel has removed the namespaces, with their mounts
// and network devices.
func (n *Node) leftProcesses() []string {
	var ours sets.Set[string]
	if n.namespaces != nil {
		ours = sets.New[string]()
		for _, id := range n.namespaces.ids {
			ours.Insert(id)
		}
	}
	var left []string
	for _, pattern := range []string{"/proc/[0-9]*/task/[0-9]*/ns/*", "/proc/[0-9]*/fd/*"} {
		links, _ := filepath.Glob(pattern) // the pattern is well-formed
		for _, link := range links {
			if id, err := os.Readlink(link); err == nil && ours.Has(id) {
				left = append(left, link+" is "+id)
			}
		}
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(n.dir+"/")) {
			left = append(left, file+" is "+string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return left
}

// leftMounts names the machine's mounts in the node's folder.
func (n *Node) leftMounts() []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{errors.Join(errors.New("cannot read mounts"), err).Error()}
	}
	var left []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, n.dir) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	return left
}

// Dialer connects to an address somewhere.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// forward passes every connection of a listener on to one address, until the listener is closed.
func forward(listener net.Listener, dial Dialer, address string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer func() { _ = conn.Close() }()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if other, err := dial(ctx, "tcp", address); err == nil {
				pipe(conn, conn, other)
			}
		}()
	}
}

// pipe copies in both directions until both have ended.
func pipe(conn net.Conn, from io.Reader, other net.Conn) {
	defer func() { _ = other.Close() }()
	var both sync.WaitGroup
	both.Go(func() { send(other, from) })
	both.Go(func() { send(conn, other) })
	both.Wait()
}

// send copies to a connection and then tells its other end that nothing more comes.
func send(to net.Conn, from io.Reader) {
	_, _ = io.Copy(to, from) // either end may go at any time
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// ServeEgress answers HTTP CONNECT on a Unix socket by dialling, such as in the node's
// network. It is how the API server reaches the kubelet, pods and Services.
func ServeEgress(socket string, dial Dialer) (*http.Server, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening for the API server: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: Egress(dial)}
	go func() { _ = server.Serve(listener) }() // until it is closed
	return server, nil
}

// Egress answers HTTP CONNECT by dialling.
func Egress(dial Dialer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := connect(w, r, dial); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
}

// connect answers one CONNECT. Once the connection is taken over there is nobody to tell of an error.
func connect(w http.ResponseWriter, r *http.Request, dial Dialer) error {
	if r.Method != http.MethodConnect {
		return errors.New("only CONNECT is served")
	}
	other, err := dial(r.Context(), "tcp", r.Host)
	if err != nil {
		return err
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = other.Close()
		return err
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n") // if this fails, so does the rest
	pipe(conn, buffered, other)
	return nil
}
