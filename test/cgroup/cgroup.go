// Package cgroup reads what the kernel grants a container, on cgroup v1 and v2.
package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is where cgroups are mounted.
const Mount = "/sys/fs/cgroup"

// Unified reports whether the machine has cgroup v2 only.
func Unified() bool {
	var stat unix.Statfs_t
	return unix.Statfs(Mount, &stat) == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC
}

// Cgroup is where the kernel limits a container.
type Cgroup struct {
	cpu, memory string // the folders; the same on v2
	v2          bool
}

// Of is the cgroup of a path. A container sees its own one at the root.
func Of(path string) Cgroup { return at(Mount, path, Unified()) }

func at(mount, path string, v2 bool) Cgroup {
	if v2 {
		folder := filepath.Join(mount, path)
		return Cgroup{cpu: folder, memory: folder, v2: true}
	}
	return Cgroup{cpu: filepath.Join(mount, "cpu", path), memory: filepath.Join(mount, "memory", path)}
}

// Files names those that have the limits.
func (c Cgroup) Files() (cpu, memory string) {
	if c.v2 {
		return "cpu.max", "memory.max"
	}
	return "cpu.cfs_quota_us", "memory.limit_in_bytes"
}

// Limits of a cgroup, 0 where there is none.
type Limits struct {
	CPU    int64 // millicores
	Memory int64 // bytes
}

// Limits reads both.
func (c Cgroup) Limits() (Limits, error) {
	cpu, err := c.CPULimit()
	if err != nil {
		return Limits{}, err
	}
	memory, err := c.MemoryLimit()
	return Limits{CPU: cpu, Memory: memory}, err
}

// CPULimit is the quota in millicores, 0 if there is none.
func (c Cgroup) CPULimit() (int64, error) {
	quota, period, err := c.quota()
	if err != nil || quota == "max" || quota == "-1" {
		return 0, err
	}
	q, err := number(quota)
	if err != nil {
		return 0, err
	}
	p, err := number(period)
	if err != nil || p == 0 {
		return 0, fmt.Errorf("parsing period %q: %w", period, err)
	}
	return q * 1000 / p, nil
}

func (c Cgroup) quota() (quota, period string, err error) {
	file, _ := c.Files()
	quota, err = Read(c.cpu, file)
	if c.v2 {
		quota, period, _ = strings.Cut(quota, " ")
		return quota, period, err
	}
	if err == nil {
		period, err = Read(c.cpu, "cpu.cfs_period_us")
	}
	return quota, period, err
}

// CPUShares is the share of the processors by which the request is kept: cpu.shares
// on v1 (1024 per core), cpu.weight on v2.
func (c Cgroup) CPUShares() (int64, error) {
	file := "cpu.shares"
	if c.v2 {
		file = "cpu.weight"
	}
	return readNumber(c.cpu, file)
}

// WantShares is what CPUShares is for a request in millicores on v1. On v2 the
// runtime converts it, by a formula of its own: it is only known that more is more.
func (c Cgroup) WantShares(millicores int64) (shares int64, known bool) {
	return max(millicores*1024/1000, 2), !c.v2
}

// MemoryLimit is in bytes, 0 if there is none.
func (c Cgroup) MemoryLimit() (int64, error) {
	_, file := c.Files()
	limit, err := Read(c.memory, file)
	if err != nil || limit == "max" {
		return 0, err
	}
	n, err := number(limit)
	if n > 1<<60 {
		n = 0 // v1's word for no limit is a number near the largest one
	}
	return n, err
}

// Processes are the ids, as the machine knows them, of the container's processes.
func (c Cgroup) Processes() ([]int, error) {
	data, err := Read(c.memory, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(data) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("parsing process id: %w", err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Read reads a file of a cgroup.
func Read(folder, file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return "", fmt.Errorf("reading cgroup: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

func readNumber(folder, file string) (int64, error) {
	text, err := Read(folder, file)
	if err != nil {
		return 0, err
	}
	return number(text)
}

func number(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parsing cgroup file: %w", err)
	}
	return n, nil
}
