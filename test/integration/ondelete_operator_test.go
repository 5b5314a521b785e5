//go:build around

package integration

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

const ofOnDelete = "updateStrategy: {type: OnDelete}"

// deleter restarts pods of a set under OnDelete by itself, as ECK, Crunchy's operator and that of VictoriaMetrics
// do: it deletes a pod that is not of the update revision, one at a time, when all are Ready, and only while the
// status speaks of the set's generation. It knows nothing of us.
type deleter struct {
	// paused asks for this annotation instead of the generation, as Grafana's rollout-operator does.
	paused string

	mu      sync.Mutex
	deleted []string
	took    atomic.Int32
}

// deleter runs one until the test ends.
func (w *workload) deleter() *deleter { return w.operatedBy(&deleter{}) }

func (w *workload) operatedBy(d *deleter) *deleter {
	w.t.Helper()
	var running sync.WaitGroup
	w.t.Cleanup(running.Wait) // the context is done before that
	running.Go(func() {
		for ctx := w.t.Context(); ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if err := d.turn(ctx, w.namespace); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				w.t.Errorf("the operator: %v", err)
			}
			d.took.Add(1)
		}
	})
	return d
}

func (d *deleter) turn(ctx context.Context, namespace string) error {
	set, err := client.AppsV1().StatefulSets(namespace).Get(ctx, "web", metav1.GetOptions{})
	if err != nil || d.paused == "" && set.Status.ObservedGeneration != set.Generation || set.Annotations[d.paused] == "true" {
		return err
	}
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil || len(list.Items) != int(*set.Spec.Replicas) {
		return err
	}
	down := func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil || !podutils.IsPodReady(&pod) }
	stale := slices.IndexFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.Labels[appsv1.ControllerRevisionHashLabelKey] != set.Status.UpdateRevision
	})
	if stale < 0 || slices.ContainsFunc(list.Items, down) {
		return nil
	}
	pod := list.Items[stale]
	d.mu.Lock()
	d.deleted = append(d.deleted, pod.Name)
	d.mu.Unlock()
	return client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}})
}

// waitAsked waits until a pod is asked for its size.
func (w *workload) waitAsked(name, cpu string) {
	w.t.Helper()
	eventually(w.t, name+" to be asked for "+cpu, func() (bool, string) {
		asked := w.pods()[name].Spec.Containers[0].Resources
		return cpuOf(asked) == cpu, cpuOf(asked)
	})
}

// names are those of the pods that it has deleted, one for each time.
func (d *deleter) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.deleted)
}

// turns waits for so many more.
func (d *deleter) turns(t *testing.T, n int32) {
	t.Helper()
	until := d.took.Load() + n
	eventually(t, "the operator's turns", func() (bool, string) { return d.took.Load() >= until, "" })
}

// assertDeleted checks what it has deleted.
func (d *deleter) assertDeleted(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := d.names(); !slices.Equal(got, want) {
		t.Errorf("%s, the operator has deleted %v, want %v", when, got, want)
	}
}

// TestHandOver: an operator that restarts pods by itself finds only those to delete that cannot be resized, and
// it waits no longer than for them.
func TestHandOver(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 4, Spec: ofOnDelete})
	w.waitComplete()
	before := w.uids()
	w.annotatePod("web-2", simInfeasible)
	w.annotatePod("web-1", simLasting)
	operator := w.deleter()

	w.setResources("cpu=150m", "")
	if got := w.get().Annotations[api.HoldAnnotation]; got != string(policy.OnDelete) {
		t.Errorf("the edit is marked with %q", got)
	}
	w.waitSize("web-3", "150m")
	w.waitAsked("web-1", "150m")
	operator.turns(t, 50)
	operator.assertDeleted(t, "while web-1 is resized")
	w.annotatePod("web-1", simAccepted)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-2")
	operator.assertDeleted(t, "in the end", "web-2")

	before = w.uids()
	w.kubectl("set", "image", w.ref, "app=app:2")
	w.waitComplete()
	w.assertReplaced(before, "web-0", "web-1", "web-2", "web-3")
	if got := operator.names(); len(got) != 5 {
		t.Errorf("after an edit of the image, the operator has deleted %v", got)
	}
}

// TestHandOverEndsByItself: whatever a pod waits for, the operator goes on after a while.
func TestHandOverEndsByItself(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2, Spec: ofOnDelete, OptedOut: true})
	w.ownController(t, controller.Options{Args: []string{"--deferred-timeout=5s", "--error-timeout=6s"}})
	w.kubectl("label", "--overwrite", w.ref, enabled+"=true")
	w.waitComplete()
	before := w.uids()
	w.annotatePod("web-0", simLasting)
	operator := w.deleter()
	w.setResources("cpu=150m", "")
	w.waitSize("web-1", "150m")
	edited := time.Now()
	w.waitFor("the operator to go on", func(*appsv1.StatefulSet) bool { return len(operator.names()) > 0 })
	if took := time.Since(edited); took < 5*time.Second {
		t.Errorf("it goes on after %s, want 6 s", took)
	}
	w.waitComplete()
	w.assertReplaced(before, "web-0")
	w.waitEvent("HandedOver", "no pod has got its size for 6s, so the rollout is left to whoever deletes pods")
}

// TestPausedOperator is the recipe for an operator that does not ask the generation: it is paused with the edit, until
// nothing is left but what waits to be deleted.
func TestPausedOperator(t *testing.T) {
	parallel(t)
	const paused = "grafana.com/rollout-paused"
	w := newWorkload(t, options{Replicas: 3, Spec: ofOnDelete})
	w.waitComplete()
	before := w.uids()
	w.annotatePod("web-1", simInfeasible)
	operator := w.operatedBy(&deleter{paused: paused})
	w.kubectl("annotate", w.ref, paused+"=true")
	w.setResources("cpu=150m", "")
	w.waitCondition("WaitingForDelete", "web-1: restarts when it is deleted")
	w.waitFor("the mark to go", func(set *appsv1.StatefulSet) bool { return !held(set) })
	operator.turns(t, 20)
	operator.assertDeleted(t, "while it is paused")
	w.kubectl("annotate", w.ref, paused+"-")
	w.waitComplete()
	w.assertReplaced(before, "web-1")
	operator.assertDeleted(t, "in the end", "web-1")
}

// TestHandOverOfLiveResize: what is left as it is is nobody's to wait for, so the operator goes on.
func TestHandOverOfLiveResize(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2, Spec: ofOnDelete, Meta: "annotations: {" + api.ResizeActionAnnotation + ": LiveResize}"})
	w.waitComplete()
	before := w.uids()
	w.annotatePod("web-1", simInfeasible)
	operator := w.deleter()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertReplaced(before, "web-1")
	operator.assertDeleted(t, "in the end", "web-1")
}

// TestHandOverWithoutController: the controller is killed while the operator waits. The operator goes on when
// people let it, and by itself with the next write of the set, or of its status, when the controller counts
// as gone. While none is there, nothing is marked.
func TestHandOverWithoutController(t *testing.T) {
	letsGo(t)
	t.Cleanup(func() { fall(t) })
	for what, goesOn := range map[string]func(w *workload){
		"people let go of it": func(w *workload) {
			if got := w.run("release", w.ref, "--yes"); got.code != 0 {
				t.Fatalf("inplace-rollout release: %+v", got)
			}
		},
		"somebody writes the set": func(w *workload) {
			fall(t)
			w.kubectl("annotate", w.ref, "a=b")
		},
		"the status changes": func(w *workload) {
			fall(t)
			w.annotatePod("web-1", simNotReady)
			w.waitNotReady("web-1")
			w.annotatePod("web-1", simReady)
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorkload(t, options{Replicas: 3, Spec: ofOnDelete})
			process := ownController(t, controller.Options{Args: []string{"--when-absent=" + api.LetGo}})
			w.waitComplete()
			before := w.uids()
			w.annotatePod("web-1", simLasting)
			operator := w.deleter()
			w.setResources("cpu=150m", "")
			w.waitSize("web-2", "150m")
			w.waitAsked("web-1", "150m")
			process.Kill()
			operator.turns(t, 20)
			operator.assertDeleted(t, "right after the controller was killed")
			goesOn(w)
			w.waitFor("the operator to restart the others", func(set *appsv1.StatefulSet) bool {
				return set.Status.UpdatedReplicas == 3 && set.Status.ReadyReplicas == 3 && set.Status.ObservedGeneration == set.Generation
			})
			w.assertReplaced(before, "web-0", "web-1")

			fall(t)
			w.kubectl("set", "resources", w.ref, "--requests=cpu=160m")
			if held(w.get()) {
				t.Error("while no controller is there, an edit is marked")
			}
			w.waitFor("the operator to restart all", func(set *appsv1.StatefulSet) bool {
				return set.Status.UpdatedReplicas == 3 && set.Status.ReadyReplicas == 3 && set.Status.ObservedGeneration == set.Generation && len(operator.names()) == 5
			})
		})
	}
}
