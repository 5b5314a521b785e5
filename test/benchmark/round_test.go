package main

import (
	"os"
	"testing"
	"time"
)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = ms(100 - i)
	}
	for _, c := range []struct {
		values []time.Duration
		p      float64
		want   time.Duration
	}{
		{hundred, 50, ms(50)}, {hundred, 99, ms(99)}, {hundred[:1], 99, ms(100)}, {hundred[:3], 50, ms(99)}, {hundred[:3], 99, ms(100)}, {nil, 50, 0},
	} {
		if got := percentile(c.values, c.p); got != c.want {
			t.Errorf("%v%% of %d: %s, want %s", c.p, len(c.values), got, c.want)
		}
	}
}

func TestParseShape(t *testing.T) {
	for text, want := range map[string]shape{
		"statefulset:1x100":     {kind: "StatefulSet", workloads: 1, pods: 100, limit: 1},
		"statefulset:1x1000:10": {kind: "StatefulSet", workloads: 1, pods: 1000, limit: 10},
		"daemonset:1x100:10":    {kind: "DaemonSet", workloads: 1, pods: 100, limit: 10},
		"deployment:20x10":      {kind: "Deployment", workloads: 20, pods: 10, limit: 5}, // maxSurge 3, maxUnavailable 2
	} {
		got, err := parseShape(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s is read as %+v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{"", "1x100", "job:1x3", "statefulset:0x1", "statefulset:1x1:0", "deployment:1x10:2", "statefulset:1x10,"} {
		if got, err := parseShape(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// TestCPU shows that a millisecond is seen.
func TestCPU(t *testing.T) {
	before, err := cpuOf("this process", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); time.Since(start) < 5*time.Millisecond; {
	}
	if after, err := cpuOf("this process", os.Getpid()); err != nil || after <= before {
		t.Errorf("work took %v s: %v", after-before, err)
	}
	const nobody = 1 << 23 // PID_MAX_LIMIT of include/linux/threads.h is 1 << 22
	if _, err := cpuOf("nobody", nobody); err == nil {
		t.Error("the cpu of no process was read")
	}
}
