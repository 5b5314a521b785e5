// Package prometheus runs the real Prometheus and kube-state-metrics for tests and demos, and gives
// the former a history that they describe.
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/process"
)

// Bin is the path of a tool that `make monitoring-tools` builds.
func Bin(name string) string {
	return filepath.Join(controller.Root(), "bin", "monitoring", name)
}

// Server is a running Prometheus or kube-state-metrics. Whoever starts it ends it.
type Server struct {
	Address, Dir string
	tool         string
	args         []string
	probe        string // the path that answers when it is ready
	spawner      process.Spawner
	running      *process.Process
}

// Start runs Prometheus in a folder with this configuration, and returns when it answers.
// Its data are in the folder's data; it keeps all that is there.
func Start(ctx context.Context, dir, config string, flags ...string) (*Server, error) {
	address, err := controller.FreeAddress()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	return start(ctx, &Server{Address: address, Dir: dir, tool: "prometheus", probe: "/-/ready", args: append([]string{
		"--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--storage.tsdb.retention.time=10y", "--web.listen-address=" + address,
	}, flags...)})
}

// StartStateMetrics runs kube-state-metrics for the pods of a cluster. Its log is in the folder.
func StartStateMetrics(ctx context.Context, dir, kubeconfig string) (*Server, error) {
	address, err := controller.FreeAddress()
	if err != nil {
		return nil, err
	}
	telemetry, err := controller.FreeAddress()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(address)
	_, telemetryPort, _ := net.SplitHostPort(telemetry)
	return start(ctx, &Server{Address: address, Dir: dir, tool: "kube-state-metrics", probe: "/healthz", args: []string{
		"--kubeconfig=" + kubeconfig, "--resources=pods", "--host=" + host, "--port=" + port, "--telemetry-host=" + host, "--telemetry-port=" + telemetryPort,
	}})
}

func start(ctx context.Context, s *Server) (*Server, error) {
	s.spawner = process.NewSpawner()
	err := os.MkdirAll(filepath.Join(s.Dir, "log"), 0o755)
	if err == nil {
		err = s.run(ctx)
	}
	if err != nil {
		s.spawner.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) run(ctx context.Context) error {
	running, err := s.spawner.Start(s.Dir, Bin(s.tool), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, s.args)
	if err != nil {
		return err
	}
	s.running = running
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := s.ready(ctx)
		switch {
		case err == nil:
			return nil
		case running.Ended():
			return fmt.Errorf("%s has ended: %s", s.tool, s.Log())
		case ctx.Err() != nil:
			running.Stop()
			return fmt.Errorf("%s does not get ready: %w: %s", s.tool, err, s.Log())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *Server) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+s.probe, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// URL is where it answers.
func (s *Server) URL() string { return "http://" + s.Address }

// Ended reports whether it has ended by itself.
func (s *Server) Ended() bool { return s.running.Ended() }

// Log is the end of what it has printed.
func (s *Server) Log() string { return process.Tail(process.LogFile(s.Dir, s.tool), 20) }

// Stop ends it.
func (s *Server) Stop() {
	s.running.Stop()
	s.spawner.Close()
}
