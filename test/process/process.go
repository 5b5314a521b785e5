// Package process starts and ends the processes that tests run beside
// themselves, and knows them by their ids.
package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Grace is how long a process may take to end after SIGTERM.
const Grace = 5 * time.Second

// Main is the main function of a program, which is asked to end by a signal.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Process is a started binary.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was waited for
}

// Name is the binary's.
func (p *Process) Name() string { return p.name }

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended reports whether the process has ended and was waited for.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Stop ends the process and returns when it is gone.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-p.done:
	case <-time.After(Grace):
		p.Kill()
	}
}

// Kill ends the process without a chance to clean up, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.done
}

// Spawner starts processes from one OS thread that lives until Close, because
// the kernel delivers Pdeathsig when the thread ends that forked the process.
type Spawner chan func()

// NewSpawner starts the thread. It is never used for anything else, so it may
// enter other namespaces.
func NewSpawner() Spawner {
	s := make(Spawner)
	OnOwnThread(func() {
		for f := range s {
			f()
		}
	})
	return s
}

// OnOwnThread starts f on a thread that is used for nothing else and ends with f.
func OnOwnThread(f func()) {
	go func() {
		runtime.LockOSThread() // and not unlocked: then the thread ends with the goroutine
		if syscall.Gettid() != syscall.Getpid() {
			f()
			return
		}
		// The main thread would never end: occupy it until f has another one.
		defer runtime.UnlockOSThread()
		started := make(chan struct{})
		OnOwnThread(func() { close(started); f() })
		<-started
	}()
}

// Close ends the thread, and with it the processes that are bound to it.
func (s Spawner) Close() { close(s) }

// Do runs f on the thread.
func (s Spawner) Do(f func() error) error {
	done := make(chan error)
	s <- func() { done <- f() }
	return <-done
}

// Start runs the binary with its output in <dir>/log and its pid in <dir>.
func (s Spawner) Start(dir, binary string, attr *syscall.SysProcAttr, args []string) (*Process, error) {
	name := filepath.Base(binary)
	log, err := os.OpenFile(LogFile(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("creating log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()

	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, log, log, attr
	if err := s.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}

	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in its log
	}()
	pid := strconv.Itoa(cmd.Process.Pid) + "\n"
	if err := os.WriteFile(PIDFile(dir, name), []byte(pid), 0o644); err != nil {
		p.Stop()
		return nil, fmt.Errorf("recording pid of %s: %w", name, err)
	}
	return p, nil
}

// LogFile is where the output of a process goes.
func LogFile(dir, name string) string { return filepath.Join(dir, "log", name+".log") }

// PIDFile is where the id of a process is recorded.
func PIDFile(dir, name string) string { return filepath.Join(dir, name+".pid") }

// Tail returns the last n lines of a file.
func Tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
