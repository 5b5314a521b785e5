package simulated

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
)

// BenchmarkSync measures one sync in the middle of a rollout of so many pods in which there is nothing to do but to look. New
// returns the harness of that kind at that moment.
func BenchmarkSync[W controller.Workload, K controller.KindState](b *testing.B, new func(b *testing.B, pods int) *Harness[W, K]) {
	b.Helper()
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := new(b, n)
			h.Rounds(3)
			h.Kind.Once = true
			cost(b, func() error { _, err := h.Sync(); return err })
		})
	}
}

// cost measures what one call of do allocates, and takes of the cpu: on a machine that others use, too, the time that passes
// says little.
func cost(b *testing.B, do func() error) {
	b.Helper()
	b.ReportAllocs()
	var before, after syscall.Rusage
	used := func(r syscall.Rusage) int64 { return r.Utime.Nano() + r.Stime.Nano() }
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := do(); err != nil {
			b.Fatal(err)
		}
	}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(used(after)-used(before))/float64(b.N), "cpu-ns/op")
}
