package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// fixture is the workloads of one shape, which are edited again and again.
type fixture struct {
	*cluster
	shape   shape
	resize  time.Duration // how long the kubelets take
	edits   int
	optedIn bool
	floor   *program // while it carries an edit to the pods
}

func (f *fixture) workloads() dynamic.ResourceInterface {
	return f.raw.Resource(f.shape.resource()).Namespace(namespace)
}

// fill makes the workloads, opted in, and waits until they are Complete.
func (f *fixture) fill(ctx context.Context) error {
	if err := f.each(ctx, func(ctx context.Context, i int) error {
		w, err := f.shape.workload(f.shape.name(i), f.resize)
		if err == nil {
			w.SetLabels(map[string]string{api.EnabledLabel: "true"})
			_, err = f.workloads().Create(ctx, w, metav1.CreateOptions{})
		}
		return err
	}); err != nil {
		return fmt.Errorf("creating workloads: %w", err)
	}
	if _, err := f.await(ctx, complete); err != nil {
		return fmt.Errorf("waiting for the pods: %w", err)
	}
	return nil
}

// patch patches all workloads at once.
func (f *fixture) patch(ctx context.Context, how types.PatchType, patch string) error {
	if err := f.each(ctx, func(ctx context.Context, i int) error {
		_, err := f.workloads().Patch(ctx, f.shape.name(i), how, []byte(patch), metav1.PatchOptions{FieldManager: "benchmark"})
		return err
	}); err != nil {
		return fmt.Errorf("patching workloads: %w", err)
	}
	return nil
}

// each does something to each workload.
func (f *fixture) each(ctx context.Context, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for i := range f.shape.workloads {
		all.Go(func() error { return do(ctx, i) })
	}
	return all.Wait()
}

// rolledOut reports whether the built-in controller has nothing left to do.
func rolledOut(w *unstructured.Unstructured) bool {
	result, err := status.Compute(w)
	return err == nil && result.Status == status.CurrentStatus
}

// await waits until done is true of all workloads, and returns when it became so, by name.
func (f *fixture) await(ctx context.Context, done func(*unstructured.Unstructured) bool) (map[string]time.Time, error) {
	at := map[string]time.Time{}
	all := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return f.workloads().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.workloads().Watch(ctx, o)
		},
	}
	_, err := watchtools.UntilWithSync(ctx, all, &unstructured.Unstructured{}, nil, func(event watch.Event) (bool, error) {
		w, is := event.Object.(*unstructured.Unstructured)
		if is && at[w.GetName()].IsZero() && done(w) {
			at[w.GetName()] = time.Now()
		}
		return len(at) == f.shape.workloads, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for %d workloads, of which %d are done: %w", f.shape.workloads, len(at), err)
	}
	return at, nil
}

// pods are the UIDs of the pods that are there, by their names.
func (f *fixture) pods(ctx context.Context) (map[string]types.UID, error) {
	list, err := f.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	uids := map[string]types.UID{}
	for _, pod := range list.Items {
		uids[pod.Name] = pod.UID
	}
	return uids, nil
}
