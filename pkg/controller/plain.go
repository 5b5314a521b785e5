package controller

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Plain is what kinds have in common that need to watch nothing but workloads and their pods, and
// whose rollouts leave nothing behind that admission does not put in order.
type Plain[W Workload, K KindState] struct {
	// Client to read and write through.
	Client kubernetes.Interface
}

// Decode is that of [Kind].
func (Plain[W, K]) Decode(obj any) (w W, err error) {
	w, is := obj.(W)
	if !is {
		return w, fmt.Errorf("a %T where a %T belongs", obj, w)
	}
	return w, nil
}

// NewPodInformer is that of [Kind].
func (p Plain[W, K]) NewPodInformer(namespace, selector string) cache.SharedIndexInformer {
	return pods.NewInformer(p.Client, namespace, selector)
}

// Watch is that of [Kind]: there is nothing else to watch.
func (Plain[W, K]) Watch(context.Context, func(cache.ObjectName)) error { return nil }

// LeftBehind is that of [Kind]: there is nothing.
func (Plain[W, K]) LeftBehind(cache.ObjectName) (rollout.Write, error) { return nil, nil }

// Apply is that of [Kind]: there is no write that the engine does not make.
func (Plain[W, K]) Apply(_ context.Context, _ *Session[W, K], _ W, write rollout.Write) error {
	return fmt.Errorf("applying a %T, which is no write of this kind", write)
}
