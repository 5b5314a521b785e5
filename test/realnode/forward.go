package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

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
