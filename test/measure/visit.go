package measure

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/counter"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

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
