package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/process"
)

// poll is the pause between two looks at something that is about to happen.
const poll = 20 * time.Millisecond

// binaries are the processes of a control plane in the order of their start.
var binaries = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

// Running names the processes of the control plane in dir that are alive.
func Running(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding folder: %w", err)
	}
	recorded, err := recorded(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range recorded {
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
	recorded, err := recorded(dir)
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(recorded) {
		if err := stopRecorded(dir, name); err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
	}
	return nil
}

// recorded names the processes that were started in dir, in the order of their start.
func recorded(dir string) ([]string, error) {
	files, err := filepath.Glob(process.PIDFile(dir, "*"))
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	names := slices.Clone(binaries)
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".pid"); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
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
		for end := time.Now().Add(process.Grace); isOurs(dir, name, pid) && time.Now().Before(end); {
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
	data, err := os.ReadFile(process.PIDFile(dir, name))
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

// isOurs reports whether pid is alive and the named binary working in dir. A
// process that has ended and was not waited for has no command line any more.
func isOurs(dir, name string, pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	binary, args, _ := bytes.Cut(data, []byte{0})
	return filepath.Base(string(binary)) == name && bytes.Contains(args, []byte(dir+"/"))
}
