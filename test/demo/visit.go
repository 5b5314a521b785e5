package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/counter"
)

// visit is one visit to the program in a pod on a real node.
type visit struct {
	*corev1.Pod               // as it was then
	kernel      cgroup.Limits // that the kernel grants its container
	reads       cgroup.Limits // that its program reads there
	count       int64         // how many visits the program remembers, this one included
	err         error         // if it did not answer
}

// visit sends a visitor to every pod of the demo when it becomes Ready. It returns at
// once; what goes wrong later is told to fail.
func (d *demo) visit(ctx context.Context, fail func(error)) error {
	watched, err := d.client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	go func() {
		defer watched.Stop()
		hosts := map[types.UID]*host{}
		for event := range watched.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Namespace != inPlace && pod.Namespace != builtIn {
				continue
			}
			h := hosts[pod.UID]
			if h != nil {
				h.pod.Store(pod)
				h.gone.Store(event.Type == watch.Deleted)
			} else if ready(pod) {
				h = &host{}
				h.pod.Store(pod)
				hosts[pod.UID] = h
				go d.keepVisiting(ctx, h)
			}
		}
		fail(errors.New("the watch of the visitors ended"))
	}()
	return nil
}

// host is a pod that is visited.
type host struct {
	pod  atomic.Pointer[corev1.Pod] // as it is now; a container that restarts gets another cgroup
	gone atomic.Bool
}

// keepVisiting visits a pod until it is gone, over one connection as long as that
// lasts. Of visits without an answer the first one counts, until there is one again.
func (d *demo) keepVisiting(ctx context.Context, h *host) {
	browser := d.node.HTTP(10 * time.Second)
	defer browser.CloseIdleConnections()
	for answered := true; ; {
		v := d.visitOnce(ctx, browser, h.pod.Load())
		if ctx.Err() != nil {
			return
		}
		if v.err == nil || answered {
			d.recorder.note(moment{at: time.Now(), object: v})
		}
		if answered = v.err == nil; !answered && h.gone.Load() {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (d *demo) visitOnce(ctx context.Context, browser *http.Client, pod *corev1.Pod) *visit {
	v := &visit{Pod: pod}
	granted, err := d.node.Cgroup(pod, pod.Spec.Containers[0].Name)
	if err == nil {
		v.kernel, err = granted.Limits()
	}
	if err == nil {
		v.reads, err = counter.Limits(ctx, browser, pod)
	}
	if err == nil {
		v.count, err = counter.Add(ctx, browser, pod)
	}
	v.err = err
	return v
}

// granted are limits as the table shows sizes.
func granted(l cgroup.Limits) string {
	return resource.NewMilliQuantity(l.CPU, resource.DecimalSI).String() + " / " + resource.NewQuantity(l.Memory, resource.BinarySI).String()
}

// otherwise names the pods whose kernel or program has shown other limits than the
// template has, or nothing yet.
func otherwise(s *state) []string {
	limits := s.template().Spec.Containers[0].Resources.Limits
	want := cgroup.Limits{CPU: limits.Cpu().MilliValue(), Memory: limits.Memory().Value()}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if seen := s.visits[s.pods[name].UID]; seen == nil || seen.kernel != want || seen.reads != want {
			names = append(names, name)
		}
	}
	return names
}
