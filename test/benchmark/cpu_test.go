package main

import (
	"os"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// TestCPU compares the clock of this process with what /proc counts, and shows that a millisecond is seen.
func TestCPU(t *testing.T) {
	work := func(d time.Duration) float64 {
		before, err := cpuOf("this process", os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); time.Since(start) < d; {
		}
		after, err := cpuOf("this process", os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return after - before
	}
	if took := work(time.Millisecond); took <= 0 {
		t.Errorf("a millisecond of work took %v s", took)
	}
	work(100 * time.Millisecond)
	now, err := cpuOf("this process", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if late := stat.CPUTime() - now; late < -0.05 || late > 0.05 {
		t.Errorf("the clock says %v s, /proc %v s", now, stat.CPUTime())
	}
	const nobody = 1 << 23 // PID_MAX_LIMIT of include/linux/threads.h is 1 << 22
	if _, err := cpuOf("nobody", nobody); err == nil {
		t.Error("the cpu of no process was read")
	}
}
