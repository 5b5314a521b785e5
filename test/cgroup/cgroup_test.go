package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// seen is all that can be read of a cgroup.
type seen struct {
	Limits
	shares int64
}

// TestRead reads the files of both versions as the kernel writes them.
func TestRead(t *testing.T) {
	for name, tt := range map[string]struct {
		v2    bool
		files map[string]string
		want  seen
	}{
		"v1": {
			files: map[string]string{
				"cpu/pod/cpu.cfs_quota_us": "12000", "cpu/pod/cpu.cfs_period_us": "100000", "cpu/pod/cpu.shares": "61",
				"memory/pod/memory.limit_in_bytes": "100663296",
			},
			want: seen{Limits{CPU: 120, Memory: 96 << 20}, 61},
		},
		"v1, no limits": {
			files: map[string]string{
				"cpu/pod/cpu.cfs_quota_us": "-1", "cpu/pod/cpu.cfs_period_us": "100000", "cpu/pod/cpu.shares": "2",
				"memory/pod/memory.limit_in_bytes": "9223372036854771712",
			},
			want: seen{Limits{}, 2},
		},
		"v2": {
			v2: true,
			files: map[string]string{
				"pod/cpu.max": "12000 100000", "pod/cpu.weight": "12", "pod/memory.max": "100663296",
			},
			want: seen{Limits{CPU: 120, Memory: 96 << 20}, 12},
		},
		"v2, no limits": {
			v2: true,
			files: map[string]string{
				"pod/cpu.max": "max 100000", "pod/cpu.weight": "1", "pod/memory.max": "max",
			},
			want: seen{Limits{}, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := write(t, tt.v2, tt.files)
			limits, err := c.Limits()
			if err != nil {
				t.Fatal(err)
			}
			shares, err := c.CPUShares()
			if err != nil {
				t.Fatal(err)
			}
			if got := (seen{limits, shares}); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// write makes the cgroup pod with these files.
func write(t *testing.T, v2 bool, files map[string]string) Cgroup {
	t.Helper()
	mount := t.TempDir()
	for name, content := range files {
		file := filepath.Join(mount, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return at(mount, "pod", v2)
}

// TestNonsense has files that no kernel writes: they are errors, not limits.
func TestNonsense(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no files":        {},
		"no period":       {"pod/cpu.max": "12000", "pod/memory.max": "max"},
		"period 0":        {"pod/cpu.max": "12000 0", "pod/memory.max": "max"},
		"quota no number": {"pod/cpu.max": "much 100000", "pod/memory.max": "max"},
		"no memory":       {"pod/cpu.max": "12000 100000"},
		"memory empty":    {"pod/cpu.max": "12000 100000", "pod/memory.max": ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := write(t, true, files).Limits(); err == nil {
				t.Errorf("got %+v, want an error", got)
			}
		})
	}
}
