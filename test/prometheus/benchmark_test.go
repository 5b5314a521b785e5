//go:build around

package prometheus_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/inplace-rollout/inplace-rollout/pkg/initialresources/history"
	"github.com/inplace-rollout/inplace-rollout/test/heap"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

// thousand are 1000 containers of 100 images in 20 namespaces, scraped each minute for some
// time.
func thousand(length time.Duration) prometheus.History {
	h := prometheus.History{Every: time.Minute}
	for i := range 1000 {
		scale := float64(1+i%100) / 20
		h.Containers = append(h.Containers, prometheus.Container{
			Span:      prometheus.Span{From: now.Add(-length), To: now},
			Namespace: fmt.Sprintf("team-%d", i%20), Pod: fmt.Sprintf("app-%d-7d9c6b5f4-x2v%d", i%100, i), Name: "app",
			Image: fmt.Sprintf("registry.example/team/app-%d:1.%d", i%100, i%7),
			CPU:   daily(0.01*scale, scale), Memory: daily(20e6*scale, 200e6*scale),
		})
	}
	return h
}

// BenchmarkHistory says what it costs to read the history of 1000 containers, us and
// Prometheus, and what is kept of it. Memory and time of 30 days are 30 times that of one.
func BenchmarkHistory(b *testing.B) {
	const length = day
	h := thousand(length)
	server := start(b, h)
	o := options(server, h)
	o.Window, o.Lag = length-6*time.Hour, 0
	measure := func(b *testing.B, f func()) {
		before, theirs := ours(b), cpu(b, server.PID())
		f()
		b.ReportMetric((ours(b) - before).Seconds(), "s-cpu")
		b.ReportMetric(cpu(b, server.PID())-theirs, "s-cpu-prometheus")
	}
	var store *history.Store
	b.Run("first", func(b *testing.B) {
		for range b.N {
			store = newStore(b, o)
			bytes := -heap.InUse()
			measure(b, func() {
				if err := store.Refresh(b.Context(), ago(10*time.Minute)); err != nil {
					b.Fatal(err)
				}
			})
			bytes += heap.InUse()
			b.ReportMetric(float64(bytes)/float64(len(store.Keys()))/(length-6*time.Hour).Hours()*24, "B/image-day")
			b.ReportMetric(float64(len(store.Keys())), "images")
		}
	})
	b.Run("refresh", func(b *testing.B) {
		for range b.N {
			measure(b, func() {
				if err := store.Refresh(b.Context(), ago(5*time.Minute)); err != nil {
					b.Fatal(err)
				}
			})
		}
	})
	b.Run("samples", func(b *testing.B) {
		keys := store.Keys()
		for range b.N {
			for _, key := range keys {
				store.Samples(time.Time{}, key, "cpu")
			}
		}
		b.ReportMetric(float64(len(keys)), "images")
	})
	runtime.KeepAlive(store)
}

func ours(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// cpu is what a process has used, in seconds.
func cpu(b *testing.B, pid int) float64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		b.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return stat.CPUTime()
}
