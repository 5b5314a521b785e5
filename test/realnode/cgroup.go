package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
)

// hierarchies are the folders where cgroups are mounted.
func hierarchies() ([]string, error) {
	if cgroup.Unified() {
		return []string{cgroup.Mount}, nil
	}
	entries, err := os.ReadDir(cgroup.Mount)
	if err != nil {
		return nil, fmt.Errorf("finding cgroups: %w", err)
	}
	var found []string
	for _, entry := range entries {
		if entry.IsDir() { // the rest are links, such as cpu to cpu,cpuacct
			found = append(found, filepath.Join(cgroup.Mount, entry.Name()))
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
	if cgroup.Unified() {
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
	available, err := cgroup.Read(cgroup.Mount, "cgroup.controllers")
	if err != nil {
		return err
	}
	enabled, err := cgroup.Read(cgroup.Mount, "cgroup.subtree_control")
	if err != nil {
		return err
	}
	// It demands those of its controllers that the kernel has (cgroup_v2_manager_linux.go).
	var missing []string
	for _, controller := range []string{"cpu", "cpuset", "hugetlb", "memory", "pids"} {
		if slices.Contains(strings.Fields(available), controller) && !slices.Contains(strings.Fields(enabled), controller) {
			missing = append(missing, "+"+controller)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the kubelet needs more cgroup controllers: echo %s > %s/cgroup.subtree_control", strings.Join(missing, " "), cgroup.Mount)
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
		cgroup := filepath.Join(hierarchy, name)
		if info, err := os.Stat(cgroup); err == nil && info.IsDir() {
			found = append(found, cgroup)
		}
	}
	return found
}

// removeCgroups removes the node's cgroups once their processes have gone. Only
// empty ones can be removed, so nothing else can be hit.
func removeCgroups(name string) error {
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(poll) {
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

// Cgroup finds the cgroup of a running container, also of an init container.
func (n *Node) Cgroup(pod *corev1.Pod, container string) (cgroup.Cgroup, error) {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		return cgroup.Cgroup{}, fmt.Errorf("pod %s has no container %s", pod.Name, container)
	}
	_, id, found := strings.Cut(statuses[i].ContainerID, "://")
	if !found {
		return cgroup.Cgroup{}, fmt.Errorf("container %s of pod %s has not started", container, pod.Name)
	}
	return n.cgroup(pod, id), nil
}

// PodCgroup is the cgroup around all containers of a pod.
func (n *Node) PodCgroup(pod *corev1.Pod) cgroup.Cgroup { return n.cgroup(pod, "") }

func (n *Node) cgroup(pod *corev1.Pod, id string) cgroup.Cgroup {
	class := strings.ToLower(string(pod.Status.QOSClass))
	if pod.Status.QOSClass == corev1.PodQOSGuaranteed {
		class = ""
	}
	return cgroup.Of(filepath.Join(n.name, "kubepods", class, "pod"+string(pod.UID), id))
}
