package measure

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/counter"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// Ready reports whether a pod is there, Ready, and stays.
func Ready(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && podutils.IsPodReady(pod)
}

// ContainerStatus is what the kubelet tells of a container.
func ContainerStatus(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

// OtherSize tells where a container of a pod has another size than it should: in its spec, and in what the
// kubelet tells of it.
func OtherSize(pod *corev1.Pod, container string, want corev1.ResourceRequirements) []string {
	var differs []string
	for _, c := range pod.Spec.Containers {
		if c.Name == container && !equality.Semantic.DeepEqual(c.Resources, want) {
			differs = append(differs, fmt.Sprintf("spec %v, want %v", c.Resources, want))
		}
	}
	status := ContainerStatus(pod, container)
	if status.Resources == nil || !equality.Semantic.DeepEqual(*status.Resources, want) {
		differs = append(differs, fmt.Sprintf("status %v, want %v", status.Resources, want))
	}
	if !equality.Semantic.DeepEqual(status.AllocatedResources, want.Requests) {
		differs = append(differs, fmt.Sprintf("allocated %v, want %v", status.AllocatedResources, want.Requests))
	}
	return differs
}

// HasSize reports whether all containers of a pod have the size that a template gives them, and no resize is
// under way.
func HasSize(pod *corev1.Pod, template []corev1.Container) bool {
	return Resizing(pod) == "" && len(pod.Spec.Containers) == len(template) &&
		!slices.ContainsFunc(template, func(c corev1.Container) bool { return len(OtherSize(pod, c.Name, c.Resources)) > 0 })
}

// Resizing tells how far the kubelet is with a resize, or is empty.
func Resizing(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.PodResizePending:
			return strings.ToLower(c.Reason)
		case c.Type == corev1.PodResizeInProgress && c.Reason != "":
			return strings.ToLower(c.Reason)
		case c.Type == corev1.PodResizeInProgress:
			return "in progress"
		}
	}
	return ""
}

// Restarts is how often the containers of a pod have restarted.
func Restarts(pod *corev1.Pod) int {
	n := 0
	for _, c := range pod.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

func containerIDs(pod *corev1.Pod) []string {
	var ids []string
	for _, c := range pod.Status.ContainerStatuses {
		if c.ContainerID != "" {
			ids = append(ids, c.ContainerID)
		}
	}
	return ids
}

// WrongSize is how many pods have another size than the template wants, in spec or status, or are still being resized.
func (s *State) WrongSize() (n int) {
	for _, pod := range s.Pods {
		if !HasSize(pod, s.Template().Spec.Containers) {
			n++
		}
	}
	return n
}

// PodNames are the names of the pods, in order.
func (s *State) PodNames() []string { return slices.Sorted(maps.Keys(s.Pods)) }

// Visit is one visit to the program in a pod on a real node.
type Visit struct {
	*corev1.Pod               // as it was then
	Kernel      cgroup.Limits // that the kernel grants its container
	Reads       cgroup.Limits // that its program reads there
	Count       int64         // how many visits the program remembers, this one included
	Err         error         // if it did not answer
}

// Visit sends a visitor to every pod of some namespaces when it becomes Ready, until the context is done. The
// pods run the program of test/images/counter on the node, and each visitor returns after a pause.
func (r *Recorder) Visit(ctx context.Context, node *realnode.Node, pause time.Duration, namespaces ...string) {
	go func() {
		hosts := map[types.UID]*host{}
		for seen := 0; ctx.Err() == nil; {
			moments, changed := r.From(seen)
			seen += len(moments)
			for _, m := range moments {
				pod, is := m.Object.(*corev1.Pod)
				if !is || !slices.Contains(namespaces, pod.Namespace) {
					continue
				}
				h := hosts[pod.UID]
				if h != nil {
					h.pod.Store(pod)
					h.gone.Store(m.Deleted)
				} else if Ready(pod) {
					h = &host{}
					h.pod.Store(pod)
					hosts[pod.UID] = h
					go r.keepVisiting(ctx, node, pause, h)
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
}

// host is a pod that is visited.
type host struct {
	pod  atomic.Pointer[corev1.Pod] // as it is now; a container that restarts gets another cgroup
	gone atomic.Bool
}

// keepVisiting visits a pod until it is gone, over one connection as long as that
// lasts. Of visits without an answer the first one counts, until there is one again.
func (r *Recorder) keepVisiting(ctx context.Context, node *realnode.Node, pause time.Duration, h *host) {
	browser := node.HTTP(10 * time.Second)
	defer browser.CloseIdleConnections()
	for answered := true; ; {
		v := visit(ctx, node, browser, h.pod.Load())
		if ctx.Err() != nil {
			return
		}
		if v.Err == nil || answered {
			r.note(Moment{At: time.Now(), Object: v})
		}
		if answered = v.Err == nil; !answered && h.gone.Load() {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func visit(ctx context.Context, node *realnode.Node, browser *http.Client, pod *corev1.Pod) *Visit {
	v := &Visit{Pod: pod}
	granted, err := node.Cgroup(pod, pod.Spec.Containers[0].Name)
	if err == nil {
		v.Kernel, err = granted.Limits()
	}
	if err == nil {
		v.Reads, err = counter.Limits(ctx, browser, pod)
	}
	if err == nil {
		v.Count, err = counter.Add(ctx, browser, pod)
	}
	v.Err = err
	return v
}
