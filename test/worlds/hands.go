package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// The hands that change what templates say, beside those of the table in pkg/resize/doc.go that edits have.
const (
	moves   = "moves"   // the container sidecar of a new pod is one of the init containers, as Istio's
	drops   = "drops"   // a new pod has no container sidecar
	renames = "renames" // it is called otherwise
	halves  = "halves"  // a new pod's request of cpu is half of its limit, as ClusterResourceOverride has it
	unlimit = "unlimit" // a new pod has no limit of cpu
)

// addHands gives some worlds an injector of pods, or a controller that deletes what is resized. These have draws of their
// own, so that a seed makes what else it makes without them.
func (w *World) addHands() {
	g := generator{rand.New(rand.NewPCG(w.Seed, 4))}
	switch g.IntN(6) {
	case 0:
		w.Injects = pick(g, moves, moves, drops, renames)
		for i := range w.Workloads {
			if w.Workloads[i].Sidecar != nil || g.in(2) {
				size := g.size(0)
				w.Workloads[i].Sidecar, w.Workloads[i].SidecarInit = &size, false
			}
		}
	case 1:
		w.Injects = pick(g, halves, unlimit)
	case 2:
		w.Deletes = g.in(2)
	}
}

// injectors change the spec of a new pod, by their names.
var injectors = map[string]func(containers []any) (regular, initial []any){
	moves: func(containers []any) (regular, initial []any) {
		regular, initial = parted(containers)
		for _, c := range initial {
			c.(map[string]any)["restartPolicy"] = "Always"
		}
		return regular, initial
	},
	drops: func(containers []any) (regular, initial []any) {
		regular, _ = parted(containers)
		return regular, nil
	},
	renames: func(containers []any) (regular, initial []any) {
		_, sidecars := parted(containers)
		for _, c := range sidecars {
			c.(map[string]any)["name"] = "injected"
		}
		return containers, nil
	},
	halves: func(containers []any) (regular, initial []any) {
		c := containers[0].(map[string]any)
		if limit, limited, _ := unstructured.NestedString(c, "resources", "limits", "cpu"); limited {
			if q, err := resource.ParseQuantity(limit); err == nil {
				_ = unstructured.SetNestedField(c, resource.NewMilliQuantity(q.MilliValue()/2, resource.DecimalSI).String(), "resources", "requests", "cpu") // it is an object
			}
		}
		return containers, nil
	},
	unlimit: func(containers []any) (regular, initial []any) {
		unstructured.RemoveNestedField(containers[0].(map[string]any), "resources", "limits", "cpu")
		return containers, nil
	},
}

// parted returns the containers of a pod without the sidecar, and the sidecar.
func parted(containers []any) (others, sidecars []any) {
	for _, c := range containers {
		if c.(map[string]any)["name"] == "sidecar" {
			sidecars = append(sidecars, c)
		} else {
			others = append(others, c)
		}
	}
	return others, sidecars
}

// inject registers the world's injector.
func (p *player) inject(ctx context.Context) error {
	injector := injectors[p.Injects]
	stop, err := webhook.Start(ctx, p.admin, webhook.Options{
		Namespace: p.namespace, Resources: []string{"pods"},
		Mutate: func(request *admissionv1.AdmissionRequest, o *unstructured.Unstructured) {
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "containers")
			if err != nil || len(containers) == 0 || request.Operation != admissionv1.Create {
				return
			}
			regular, initial := injector(containers)
			before, _, _ := unstructured.NestedSlice(o.Object, "spec", "initContainers")
			_ = unstructured.SetNestedSlice(o.Object, regular, "spec", "containers") // it is there
			if len(initial) > 0 {
				_ = unstructured.SetNestedSlice(o.Object, append(before, initial...), "spec", "initContainers")
			}
		},
	})
	if err != nil {
		return err
	}
	p.cleanUp = append(p.cleanUp, stop)
	return nil
}

// remove has somebody delete each pod whose requests are not those that it was born with, as Kueue does, until the faults end.
func (p *player) remove(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	born := map[types.UID][]corev1.ResourceList{}
	running.Go(func() {
		for sleep(ctx, 200*time.Millisecond) {
			list, err := p.people.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, pod := range list.Items {
				var requests []corev1.ResourceList
				for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
					requests = append(requests, c.Resources.Requests)
				}
				if before, known := born[pod.UID]; !known {
					born[pod.UID] = requests
				} else if pod.DeletionTimestamp == nil && !equality.Semantic.DeepEqual(before, requests) {
					_ = p.people.CoreV1().Pods(p.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}) // or the next time
				}
			}
		}
	})
	p.removed = func() {
		stop()
		running.Wait()
	}
}
