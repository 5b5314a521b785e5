package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// portsToTry is how many ports below the ephemeral ones FreePort chooses from.
const portsToTry = 12000

// portsTaken counts what this process has asked for, from a random start, so that two processes seldom ask for the same.
var portsTaken atomic.Uint32

func init() { portsTaken.Store(rand.Uint32N(portsToTry)) }

// FreePort returns a port of 127.0.0.1 on which nobody listens. It is below the ephemeral ports: the kernel
// gives those to connections and to whoever listens on port 0, at any time before the port is used.
func FreePort() (string, error) {
	end := firstEphemeralPort()
	for range portsToTry {
		port := strconv.Itoa(end - 1 - int(portsTaken.Add(1)%portsToTry))
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return "", errors.New("finding a free port: somebody listens on each that was tried")
}

// firstEphemeralPort is where ip_local_port_range begins, or Linux' default where that cannot be read.
func firstEphemeralPort() int {
	first := 32768
	said, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return first
	}
	var configured int
	if _, err := fmt.Sscan(string(said), &configured); err != nil || configured <= portsToTry+1024 {
		return first
	}
	return configured
}
