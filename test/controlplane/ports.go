package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// Ports below the ephemeral ones, in blocks. Each process that starts control planes has a block to itself.
const (
	portBlocks = 60
	blockSize  = 200
)

var (
	// ownBlock returns the first port of this process's block.
	ownBlock = sync.OnceValues(claimBlock)
	// portsTaken counts what this process has asked for.
	portsTaken atomic.Uint32
)

// FreePort returns a port of 127.0.0.1 on which nobody listens. It is below the ephemeral ports: the kernel
// gives those to connections and to whoever listens on port 0, at any time before the port is used.
func FreePort() (string, error) {
	first, err := ownBlock()
	if err != nil {
		return "", err
	}
	for range blockSize {
		port := strconv.Itoa(first + int(portsTaken.Add(1)%blockSize))
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return "", errors.New("finding a free port: somebody listens on each that was tried")
}

// claimBlock locks a block that no other process has: a port that is free when one asks would be another's before it is used.
// The lock is held until the process ends.
func claimBlock() (first int, err error) {
	var failed error
	for _, i := range rand.Perm(portBlocks) {
		name := filepath.Join(os.TempDir(), fmt.Sprintf("inplace-rollout-ports-%d.lock", i))
		fd, err := syscall.Open(name, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
		if failed = err; err != nil { // it may be another user's
			continue
		}
		if failed = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); failed == nil {
			return firstEphemeralPort() - (i+1)*blockSize, nil
		}
		_ = syscall.Close(fd)
	}
	return 0, fmt.Errorf("finding a free port: no block could be locked, the last one by: %w", failed)
}

// firstEphemeralPort is where ip_local_port_range begins, or Linux' default where that cannot be read.
func firstEphemeralPort() int {
	first := 32768
	said, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return first
	}
	var configured int
	if _, err := fmt.Sscan(string(said), &configured); err != nil || configured <= portBlocks*blockSize+1024 {
		return first
	}
	return configured
}
