package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const cgroupfs = "/sys/fs/cgroup"

// unified tells whether the machine has cgroup v2 only.
func unified() bool {
	var stat unix.Statfs_t
	return unix.Statfs(cgroupfs, &stat) == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC
}

// hierarchies are the folders where cgroups are mounted.
func hierarchies() ([]string, error) {
	if unified() {
		return []string{cgroupfs}, nil
	}
	entries, err := os.ReadDir(cgroupfs)
	if err != nil {
		return nil, fmt.Errorf("finding cgroups: %w", err)
	}
	var found []string
	for _, entry := range entries {
		if entry.IsDir() { // the rest are links, such as cpu to cpu,cpuacct
			found = append(found, filepath.Join(cgroupfs, entry.Name()))
		}
	}
	return found, nil
}

// makeCgroups makes the cgroup that holds all pods of the node, in every hierarchy.
func makeCgroups(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if unified() {
		if err := checkControllers(); err != nil {
			return err
		}
	}
	for _, hierarchy := range all {
		cgroup := filepath.Join(hierarchy, name)
		if err := os.Mkdir(cgroup, 0o755); err != nil {
			return fmt.Errorf("making cgroup: %w", err)
		}
		if err := inheritCpuset(hierarchy, cgroup); err != nil {
			return err
		}
	}
	return nil
}

// checkControllers makes sure that the controllers that the kubelet demands can be
// used below the root of cgroup v2. What is missing is the machine's to allow.
func checkControllers() error {
	available, err := read(cgroupfs, "cgroup.controllers")
	if err != nil {
		return err
	}
	enabled, err := read(cgroupfs, "cgroup.subtree_control")
	if err != nil {
		return err
	}
	var missing []string
	for _, controller := range []string{"cpu", "cpuset", "hugetlb", "memory", "pids"} {
		// hugetlb is demanded only where the kernel has it.
		wanted := controller != "hugetlb" || slices.Contains(strings.Fields(available), controller)
		if wanted && !slices.Contains(strings.Fields(enabled), controller) {
			missing = append(missing, "+"+controller)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the kubelet needs more cgroup controllers: echo %s > %s/cgroup.subtree_control", strings.Join(missing, " "), cgroupfs)
	}
	return nil
}

// inheritCpuset fills in what a new cgroup of v1's cpuset lacks.
func inheritCpuset(parent, cgroup string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another hierarchy, or v2, which inherits
		}
		if err != nil {
			return fmt.Errorf("reading cpuset: %w", err)
		}
		if err := os.WriteFile(filepath.Join(cgroup, file), data, 0o644); err != nil {
			return fmt.Errorf("writing cpuset: %w", err)
		}
	}
	return nil
}

// cgroupsOf are the folders of the node's cgroup that there are.
func cgroupsOf(name string) []string {
	all, err := hierarchies()
	if err != nil {
		return nil
	}
	var found []string
	for _, hierarchy := range all {
		if cgroup := filepath.Join(hierarchy, name); isFolder(cgroup) {
			found = append(found, cgroup)
		}
	}
	return found
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// removeCgroups removes the node's cgroups once their processes have gone. Only
// empty ones can be removed, so nothing else can be hit.
func removeCgroups(name string) error {
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(poll) {
		if err = removeFolders(cgroupsOf(name)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("removing cgroups: %w", err)
}

// removeFolders removes trees of folders that have only the kernel's files in them.
func removeFolders(roots []string) error {
	var failed []error
	for _, root := range roots {
		var folders []string
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return err
		})
		failed = append(failed, err)
		for _, folder := range slices.Backward(folders) {
			failed = append(failed, os.Remove(folder))
		}
	}
	return errors.Join(failed...)
}

// Cgroup is where the kernel limits a container.
type Cgroup struct {
	cpu, memory string // the folders; the same on v2
	v2          bool
}

// Cgroup finds the cgroup of a running container, also of an init container.
func (n *Node) Cgroup(pod *corev1.Pod, container string) (Cgroup, error) {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		return Cgroup{}, fmt.Errorf("pod %s has no container %s", pod.Name, container)
	}
	_, id, found := strings.Cut(statuses[i].ContainerID, "://")
	if !found {
		return Cgroup{}, fmt.Errorf("container %s of pod %s has not started", container, pod.Name)
	}
	return n.cgroup(pod, id), nil
}

// PodCgroup is the cgroup around all containers of a pod.
func (n *Node) PodCgroup(pod *corev1.Pod) Cgroup { return n.cgroup(pod, "") }

func (n *Node) cgroup(pod *corev1.Pod, id string) Cgroup {
	class := strings.ToLower(string(pod.Status.QOSClass))
	if pod.Status.QOSClass == corev1.PodQOSGuaranteed {
		class = ""
	}
	path := filepath.Join(n.name, "kubepods", class, "pod"+string(pod.UID), id)
	if unified() {
		folder := filepath.Join(cgroupfs, path)
		return Cgroup{cpu: folder, memory: folder, v2: true}
	}
	return Cgroup{cpu: filepath.Join(cgroupfs, "cpu", path), memory: filepath.Join(cgroupfs, "memory", path)}
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
	if c.v2 {
		both, err := read(c.cpu, "cpu.max")
		quota, period, _ = strings.Cut(both, " ")
		return quota, period, err
	}
	quota, err = read(c.cpu, "cpu.cfs_quota_us")
	if err == nil {
		period, err = read(c.cpu, "cpu.cfs_period_us")
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
	file := "memory.limit_in_bytes"
	if c.v2 {
		file = "memory.max"
	}
	limit, err := read(c.memory, file)
	if err != nil || limit == "max" {
		return 0, err
	}
	n, err := number(limit)
	if n > 1<<60 {
		n = 0 // v1's word for no limit is a number near the largest one
	}
	return n, err
}

// MemoryUsage is in bytes.
func (c Cgroup) MemoryUsage() (int64, error) {
	if c.v2 {
		return readNumber(c.memory, "memory.current")
	}
	return readNumber(c.memory, "memory.usage_in_bytes")
}

// Processes are the ids, as the machine knows them, of the container's processes.
func (c Cgroup) Processes() ([]int, error) {
	data, err := read(c.memory, "cgroup.procs")
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

func read(folder, file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return "", fmt.Errorf("reading cgroup: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

func readNumber(folder, file string) (int64, error) {
	text, err := read(folder, file)
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
