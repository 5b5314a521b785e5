package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

// Ports below the ephemeral ones, in blocks. Each process that starts control planes has a block to itself.
const (
	portBlocks = 60
	blockSize  = 200
)

var (
	// ownBlock is this process's block.
	ownBlock = sync.OnceValues(claimBlock)
	// portsTaken counts what this process has asked for.
	portsTaken atomic.Uint32
)

// block is one of ports, which its process has to itself while it listens on the first of them.
type block struct {
	first int
	claim net.Listener
}

// FreePort returns a port of 127.0.0.1 on which nobody listens. It is below the ephemeral ports: the kernel
// gives those to connections and to whoever listens on port 0, at any time before the port is used.
func FreePort() (string, error) {
	own, err := ownBlock()
	if err != nil {
		return "", err
	}
	for range blockSize - 1 {
		port := strconv.Itoa(own.first + 1 + int(portsTaken.Add(1)%(blockSize-1)))
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return "", errors.New("finding a free port: somebody listens on each that was tried")
}

// claimBlock claims a block that no other process has: a port that is free when one asks would be another's before it is used.
// The claim ends with the process, and leaves nothing behind.
func claimBlock() (b block, err error) {
	for _, i := range rand.Perm(portBlocks) {
		b.first = firstEphemeralPort() - (i+1)*blockSize
		if b.claim, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(b.first))); err == nil {
			return b, nil
		}
	}
	return block{}, fmt.Errorf("finding a free port: no block could be claimed, the last one by: %w", err)
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
