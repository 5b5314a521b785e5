// Command counter is a stateful program for tests: it keeps a number in memory,
// which is lost when it ends.
//
//	GET  /         the number
//	POST /         one more, and the new number
//	GET  /limits   the cpu and memory that its cgroup grants, in millicores and bytes
//	POST /memory   holds exactly so many bytes from now on: ?bytes=67108864
//	GET  /healthz  ok
//
// With --memory it holds so many bytes from its start; with --on, only where that is
// the name of the host, which is the pod's. With --cpu it uses so many thousandths of a
// core all the time. Told to end, it ends at once.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
)

// page is how far apart bytes are written to make the kernel give every page.
const page = 4096

func main() {
	address := flag.String("address", ":8080", "where to listen")
	held := flag.Int("memory", 0, "bytes to hold from the start")
	on := flag.String("on", "", "the only host where they are held, if not all")
	cpu := flag.Int("cpu", 0, "thousandths of a core to use all the time")
	flag.Parse()
	if host, err := os.Hostname(); err != nil || *on != "" && *on != host {
		*held = 0
	}
	go burn(*cpu)
	if err := serve(*address, *held); err != nil {
		log.Fatal(err)
	}
}

func serve(address string, held int) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var (
		number atomic.Int64
		memory memory
	)
	if err := memory.hold(held); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, number.Load()) })
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, number.Add(1)) })
	mux.HandleFunc("GET /limits", limits)
	mux.HandleFunc("POST /memory", memory.handle)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// burn has the program use so many thousandths of a core. What it could not use while the machine
// was busy, it uses afterwards.
func burn(millicores int) {
	for began := time.Now(); millicores > 0; {
		var spent syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &spent); err != nil {
			log.Fatal(err)
		}
		if due := time.Since(began) * time.Duration(millicores) / 1000; time.Duration(spent.Utime.Nano()+spent.Stime.Nano()) > due {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func limits(w http.ResponseWriter, _ *http.Request) {
	granted, err := cgroup.Of("/").Limits()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintln(w, granted.CPU, granted.Memory)
}

// memory is a number of bytes held outside of Go's heap, so that they go back to
// the kernel at once when they are let go.
type memory struct {
	mu   sync.Mutex
	data []byte
}

func (m *memory) handle(w http.ResponseWriter, r *http.Request) {
	bytes, err := strconv.Atoi(r.URL.Query().Get("bytes"))
	if err == nil {
		err = m.hold(bytes)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprintln(w, bytes)
}

func (m *memory) hold(bytes int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data != nil {
		if err := syscall.Munmap(m.data); err != nil {
			return fmt.Errorf("letting go of memory: %w", err)
		}
		m.data = nil
	}
	if bytes <= 0 {
		return nil
	}
	data, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("holding memory: %w", err)
	}
	m.data = data
	for i := 0; i < len(data); i += page {
		data[i] = 1
	}
	return nil
}
