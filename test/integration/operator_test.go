//go:build around

package integration

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// reconciles is one turn of an operator: it brings what it wants into the StatefulSet that is there.
type reconciles func(ctx context.Context, sets typedappsv1.StatefulSetInterface, want *appsv1.StatefulSet) error

// updates reads the object, sets the fields that it owns, and writes the whole of it.
func updates(ctx context.Context, sets typedappsv1.StatefulSetInterface, want *appsv1.StatefulSet) error {
	set, err := sets.Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	set.Spec.Template, set.Spec.UpdateStrategy = want.Spec.Template, want.Spec.UpdateStrategy
	_, err = sets.Update(ctx, set, metav1.UpdateOptions{FieldManager: "operator"})
	return err
}

// replaces puts an object that it has built itself in the place of the one that is there: it has
// nothing that others have added.
func replaces(ctx context.Context, sets typedappsv1.StatefulSetInterface, want *appsv1.StatefulSet) error {
	_, err := sets.Update(ctx, want, metav1.UpdateOptions{FieldManager: "operator"})
	return err
}

// applies takes every field that it names, whoever has it.
func applies(ctx context.Context, sets typedappsv1.StatefulSetInterface, want *appsv1.StatefulSet) error {
	body, err := json.Marshal(want)
	if err != nil {
		return err
	}
	_, err = sets.Patch(ctx, want.Name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "operator", Force: ptr.To(true)})
	return err
}

// steps lowers a partition of its own, from the number of pods to 0, whenever the pods above it are
// updated and all are ready. It remembers it: the one in the object is the hold's for a while.
func steps() reconciles {
	partition := int32(3)
	return func(ctx context.Context, sets typedappsv1.StatefulSetInterface, want *appsv1.StatefulSet) error {
		set, err := sets.Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := set.Status
		if s.ObservedGeneration == set.Generation && s.UpdatedReplicas >= 3-partition && s.ReadyReplicas == 3 && partition > 0 {
			partition--
		}
		want.Spec.UpdateStrategy.RollingUpdate.Partition = &partition
		return updates(ctx, sets, want)
	}
}

// TestOperators is what docs/operators.md says: an operator that brings its template, and a
// partition, into a StatefulSet again and again gets a rollout in place, once.
func TestOperators(t *testing.T) {
	parallel(t)
	for name, turn := range map[string]reconciles{"updates": updates, "replaces": replaces, "applies": applies, "steps": steps()} {
		inParallel(t, name, func(t *testing.T) {
			o := options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}"}
			w := newWorkload(t, o)
			w.waitComplete()
			before := w.uids()
			w.annotatePod("web-0", simLasting)
			w.markAudit()
			o.Resources = largerThanBase
			turns := w.operate(o, turn)
			w.waitSize("web-2", "150m")
			w.waitSize("web-1", "150m")
			w.waitFor("web-0 to have its turn", func(set *appsv1.StatefulSet) bool { return holdOf(set) == "0" }) // after each step it is let go
			turns(5)
			if !held(w.get()) {
				t.Error("not held any more while web-0 waits")
			}
			w.annotatePod("web-0", simAccepted)
			w.waitFor("the operator to see that it is done", func(set *appsv1.StatefulSet) bool {
				return done(set) && set.Status.UpdatedReplicas == 3 // and not only above a partition
			})
			w.assertMoved(0)
			w.assertReplaced(before)
			// A write that loses against one of the built-in controller is made again, and on a busy machine loses again.
			lost := func(write string) bool { return write == "patch statefulsets web 409" }
			writes := w.writes()
			carriedOut := slices.DeleteFunc(slices.Clone(writes), lost)
			w.assertFew(carriedOut, 2, 16) // every step of the partition is a rollout of its own
			if conflicts := len(writes) - len(carriedOut); conflicts > 16 {
				t.Errorf("%d conflicts, want at most 16: %v", conflicts, writes)
			}

			complete := w.get()
			w.markAudit()
			turns(5)
			if now := w.get(); now.ResourceVersion != complete.ResourceVersion {
				t.Errorf("the operator's writes go on to change the set:\n%v\n%v", complete, now)
			}
			must.EqualLists(t, w.writes(), nil, "what the controller writes though it is complete")
		})
	}
}

// operate runs an operator until the test ends. The result waits for so many more turns of it.
func (s *sandbox[W]) operate(o options, turn reconciles) (turns func(int)) {
	s.t.Helper()
	want := &appsv1.StatefulSet{}
	must.Do(s.t, yaml.Unmarshal([]byte(manifest(s.t, s.namespace, o)), want))
	var took atomic.Int32
	var running sync.WaitGroup
	s.t.Cleanup(running.Wait) // the context is done before that
	running.Go(func() {
		for ctx := s.t.Context(); ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			err := turn(ctx, client.AppsV1().StatefulSets(s.namespace), want.DeepCopy())
			if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil { // after a conflict it reads again
				s.t.Errorf("the operator: %v", err)
			}
			took.Add(1)
		}
	})
	return func(n int) {
		s.t.Helper()
		until := took.Load() + int32(n)
		eventually(s.t, "the operator's turns", func() (bool, string) { return took.Load() >= until, "" })
	}
}
