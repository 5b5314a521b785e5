package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Workload is an object of one kind of workload.
type Workload interface {
	metav1.Object
	runtime.Object
}

// Kind is what Kubernetes does differently for one kind of workload W. K is what only this
// kind keeps in a session.
type Kind[W Workload, K KindState] interface {
	// Access returns how workloads of the kind are watched, read and written. It is asked for once.
	Access() Access[W]
	// BuiltInStatus returns what the status of w says of a rollout that nobody holds.
	BuiltInStatus(w W) rollout.BuiltInStatus
	// Unrestored returns the fields that bring back what the user of a held workload wants, as far as
	// they are still missing in what is written when the hold has been let go; nil if none is.
	Unrestored(held, written W) map[string]any
	// Open returns what a new session keeps of w. It is kept up to date until ctx is done, and
	// changed is called after each change.
	Open(ctx context.Context, w W, changed func()) (K, error)
	// Gather returns the observation that a plan for an opted-in workload is made from. The
	// pods that its selector matches come from list, and what else is needed from the session,
	// or from the API server if live is set. What makes pods is to be read before them: then
	// every pod of what has been read is listed.
	Gather(ctx context.Context, s *Session[W, K], w W, list ListPods, live bool) (rollout.Observation, error)
	// Apply makes one write of a plan that the observation has made, and records it.
	Apply(ctx context.Context, s *Session[W, K], w W, write rollout.Write) error
}

// Access is how the engine watches, reads and writes workloads W of one kind, and what belongs to them. Each kind
// of them has Go types and clients of its own, and the same fields in other places; nothing is decided here.
type Access[W Workload] struct {
	// Kind of the workloads, such as StatefulSet.
	Kind string
	// NewInformer watches the workloads that tweak selects of a namespace, or of all if it is
	// empty.
	NewInformer func(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer
	// NewPodInformer watches the pods of a namespace that selector matches.
	NewPodInformer func(namespace, selector string) cache.SharedIndexInformer
	// Decode reads a workload as the API server hands it out. What it has returned, or Strip, it
	// returns as it is. It fails if obj is something else. See [DecodeTyped].
	Decode func(obj any) (W, error)
	// Strip returns a copy of w without what nothing reads of a workload, and without its template. Of one that is not at rest
	// SameTemplate can still tell whether it is another one.
	Strip func(w W, atRest bool) W
	// Size is how many bytes of templates a session of w, as [Access].Strip returns it, is likely to keep.
	Size func(w W) int
	// Get reads a workload from the API server.
	Get func(ctx context.Context, name cache.ObjectName) (W, error)
	// List reads the workloads of a namespace, or of all if it is empty.
	List func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error)
	// Patch writes a workload, or a subresource of it.
	Patch func(ctx context.Context, w W, kind types.PatchType, patch []byte, subresources ...string) (runtime.Object, error)
	// Selector of the workload's pods.
	Selector func(w W) *metav1.LabelSelector
	// ObservedGeneration is what the status of w says of that.
	ObservedGeneration func(w W) int64
	// AnnotationsCount is how many generations a change of annotations makes: one of a Deployment, as PrepareForUpdate in
	// pkg/registry/apps/deployment/strategy.go of Kubernetes says, and none of other kinds.
	AnnotationsCount int64
	// SameTemplate reports whether two versions of a workload have the same template to the
	// built-in controller.
	SameTemplate func(a, b W) bool
	// ConditionOf returns the condition of w of that type, or nil.
	ConditionOf func(w W, of string) *rollout.StoredCondition
	// NewCondition is a condition, written now, as this kind has it.
	NewCondition func(c rollout.StoredCondition, now metav1.Time) any

	// Watch begins to watch what else belongs to workloads, until ctx is done. When something
	// changes, it calls changed with the name of the workload. Nil where there is nothing else.
	Watch func(ctx context.Context, changed func(cache.ObjectName)) error
	// LeftBehind returns the write that puts in order what a rollout has left behind in a
	// workload that is not held any more; nil if there is nothing. It is applied without a
	// session, and without the workload: that may be gone. Nil where admission puts everything in order.
	LeftBehind func(name cache.ObjectName) (rollout.Write, error)
}

// Condition returns the condition inplace-rollout.io/Complete of w, if it speaks of the edit that w has now; else nil.
func (a Access[W]) Condition(w W) *rollout.StoredCondition {
	return rollout.CompleteOf(w, a.ConditionOf)
}

// HasConditions reports whether the status of w has any condition of ours.
func (a Access[W]) HasConditions(w W) bool {
	return a.Condition(w) != nil || a.ConditionOf(w, api.ConditionObserved) != nil
}

// Observed reports whether the status of w speaks of its template. Before that, the built-in controller may not have seen that it is held.
func (a Access[W]) Observed(w W) bool {
	return rollout.ObservedGeneration(a.ObservedGeneration(w), a.ConditionOf(w, api.ConditionObserved)) >= w.GetGeneration()
}

// ListPods lists the pods of one workload.
type ListPods func() ([]*corev1.Pod, error)

// TypedClient is what client-go has for the workloads of one kind in a namespace.
type TypedClient[W Workload, L runtime.Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (W, error)
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, o metav1.PatchOptions, subresources ...string) (W, error)
}

// Typed returns the access to workloads by such clients. What is different for the kind is not in it.
func Typed[C TypedClient[W, L], W Workload, L runtime.Object](client kubernetes.Interface, in func(namespace string) C) Access[W] {
	return Access[W]{
		NewPodInformer: func(namespace, selector string) cache.SharedIndexInformer {
			return pods.NewInformer(client, namespace, selector)
		},
		Decode: DecodeTyped[W],
		Get: func(ctx context.Context, name cache.ObjectName) (W, error) {
			return in(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		},
		List: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return in(namespace).List(ctx, o)
		},
		Patch: func(ctx context.Context, w W, kind types.PatchType, patch []byte, subresources ...string) (runtime.Object, error) {
			return in(w.GetNamespace()).Patch(ctx, w.GetName(), kind, patch, metav1.PatchOptions{FieldManager: api.FieldManager}, subresources...)
		},
	}
}

// DecodeTyped is [Access].Decode where the client hands out workloads in their Go type.
func DecodeTyped[W Workload](obj any) (w W, err error) {
	w, is := obj.(W)
	if !is {
		return w, fmt.Errorf("a %T where a %T belongs", obj, w)
	}
	return w, nil
}
