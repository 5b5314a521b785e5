package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// grace is how long a process may take to end after SIGTERM.
	grace = 5 * time.Second
	// poll is the pause between two looks at something that is about to happen.
	poll = 20 * time.Millisecond
)

// binaries are the processes of a control plane in the order of their start.
var binaries = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

// process is a started binary.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was waited for
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process and returns when it is gone.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-p.done:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// spawner starts processes from one OS thread that lives until close, because
// the kernel delivers Pdeathsig when the thread ends that forked the process.
type spawner chan func()

func newSpawner() spawner {
	s := make(spawner)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range s {
			f()
		}
	}()
	return s
}

func (s spawner) close() { close(s) }

// start runs the binary with its output in <dir>/log and its pid in <dir>.
func (s spawner) start(dir, binary string, attr *syscall.SysProcAttr, args []string) (*process, error) {
	name := filepath.Base(binary)
	log, err := os.Create(logFile(dir, name))
	if err != nil {
		return nil, fmt.Errorf("creating log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()

	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, log, log, attr
	started := make(chan error)
	s <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}

	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in its log
	}()
	pid := strconv.Itoa(cmd.Process.Pid) + "\n"
	if err := os.WriteFile(pidFile(dir, name), []byte(pid), 0o644); err != nil {
		p.stop()
		return nil, fmt.Errorf("recording pid of %s: %w", name, err)
	}
	return p, nil
}

func logFile(dir, name string) string { return filepath.Join(dir, "log", name+".log") }
func pidFile(dir, name string) string { return filepath.Join(dir, name+".pid") }

// Running names the processes of the control plane in dir that are alive.
func Running(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding folder: %w", err)
	}
	var names []string
	for _, name := range binaries {
		pid, err := readPID(dir, name)
		if err != nil {
			return nil, err
		}
		if pid != 0 && isOurs(dir, name, pid) {
			names = append(names, name)
		}
	}
	return names, nil
}

// StopDir ends the processes of the detached control plane in dir, the last
// started first, and waits for them. A pid that meanwhile belongs to another
// program is left alone.
func StopDir(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("finding folder: %w", err)
	}
	for _, name := range slices.Backward(binaries) {
		if err := stopRecorded(dir, name); err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
	}
	return nil
}

// stopRecorded ends the process whose pid is recorded in dir, if it still runs.
func stopRecorded(dir, name string) error {
	pid, err := readPID(dir, name)
	if err != nil || pid == 0 {
		return err
	}
	// The handle is taken before the check, so that no other process can get the pid in between.
	handle, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("finding process %d: %w", pid, err)
	}
	defer func() { _ = handle.Release() }()

	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !isOurs(dir, name, pid) {
			return nil
		}
		if err := handle.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("sending %s to process %d: %w", signal, pid, err)
		}
		for end := time.Now().Add(grace); isOurs(dir, name, pid) && time.Now().Before(end); {
			time.Sleep(poll)
		}
	}
	if isOurs(dir, name, pid) {
		return fmt.Errorf("process %d survives SIGKILL", pid)
	}
	return nil
}

// readPID returns the recorded pid, or 0 if there is none.
func readPID(dir, name string) (int, error) {
	data, err := os.ReadFile(pidFile(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading pid of %s: %w", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("reading pid of %s: %q is no pid", name, data)
	}
	return pid, nil
}

// isOurs tells whether pid is alive and the named binary working in dir. A
// process that has ended and was not waited for has no command line any more.
func isOurs(dir, name string, pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	binary, args, _ := bytes.Cut(data, []byte{0})
	return filepath.Base(string(binary)) == name && bytes.Contains(args, []byte(dir+"/"))
}
