//go:build around

package integration

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// starts plays an operator that makes pods Ready itself, as cass-operator does through Cassandra's management API: a pod is Ready
// once it has started the process in it, and again after each restart of the container. It does so only while the status speaks
// of the set's generation. It knows nothing of us.
func (w *workload) starts() {
	w.t.Helper()
	var running sync.WaitGroup
	w.t.Cleanup(running.Wait) // the context is done before that
	running.Go(func() {
		started := map[types.UID]int32{} // how often the container had restarted then
		for ctx := w.t.Context(); ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if err := w.start(ctx, started); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				w.t.Errorf("the operator: %v", err)
			}
		}
	})
}

func (w *workload) start(ctx context.Context, started map[types.UID]int32) error {
	set, err := client.AppsV1().StatefulSets(w.namespace).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range list.Items {
		if len(pod.Status.ContainerStatuses) == 0 {
			continue
		}
		restarts, says := pod.Status.ContainerStatuses[0].RestartCount, "True"
		if at, known := started[pod.UID]; !known || at != restarts {
			if says = "False"; set.Status.ObservedGeneration == set.Generation {
				says, started[pod.UID] = "True", restarts
			}
		}
		if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == "example.com/started" && string(c.Status) == says }) {
			continue
		}
		patch := `{"metadata":{"uid":"` + string(pod.UID) + `"},"status":{"conditions":[{"type":"example.com/started","status":"` + says + `"}]}}`
		if _, err := client.CoreV1().Pods(w.namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

// TestOperatorThatWaitsForTheGeneration: a hold keeps the observed generation behind and waits for pods to be Ready, and an operator
// makes them so when the generation is observed. After their deadline they see each other. Whoever waits for the set is not told
// by that that it is done.
func TestOperatorThatWaitsForTheGeneration(t *testing.T) {
	parallel(t)
	w := createWorkload(t, options{
		Replicas: 2, Pod: "readinessGates: [{conditionType: example.com/started}]",
		Resources: base + ", resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]",
	})
	w.starts()
	w.waitComplete()
	before := w.uids()
	w.markAudit()
	w.setResources("cpu=100m,memory=150Mi", "") // its containers restart
	told := w.rolloutStatus()
	w.waitComplete()
	if <-told.done; told.err != nil {
		t.Errorf("kubectl rollout status: %v, it said\n%s", told.err, told.out)
	}
	w.assertReplaced(before)
	w.waitFor("the hold to be over", func(set *appsv1.StatefulSet) bool { return done(set) && set.Status.UpdatedReplicas == 2 })
	shown := 0
	for _, v := range w.versions() {
		if !held(v.workload) {
			continue
		}
		if v.workload.Status.ObservedGeneration == v.workload.Generation {
			shown++
		}
		object := untyped(t, "StatefulSet", v.workload)
		if is, err := status.Compute(object); err != nil || is.Status == status.CurrentStatus {
			t.Errorf("held, and others take it for %v, %v: %+v", is, err, v.workload.Status)
		}
		if s := v.workload.Status; s.ObservedGeneration >= v.workload.Generation && s.ReadyReplicas == 2 {
			t.Errorf("the generation is shown, and all pods are Ready: %+v", s)
		}
	}
	if shown == 0 {
		t.Error("the generation was never shown")
	}
}
