//go:build around

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// updateOrRollBack plays one update by an operator with a deadline, as Altinity's for ClickHouse has: it writes the size, waits until
// the generation is observed and, as long again, until all pods are updated and Ready. Otherwise it writes the former size and deletes the pod. It
// reports whether it had to.
func (w *workload) updateOrRollBack(cpu string, deadline time.Duration) (rolledBack bool) {
	w.t.Helper()
	sets, before := client.AppsV1().StatefulSets(w.namespace), cpuOf(w.get().Spec.Template.Spec.Containers[0].Resources)
	write := func(cpu string) {
		w.t.Helper()
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "app", "resources": map[string]any{"requests": map[string]any{"cpu": cpu}}}},
		}}}})
		if err == nil {
			_, err = sets.Patch(w.t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "operator"})
		}
		if err != nil {
			w.t.Fatalf("the operator: %v", err)
		}
	}
	reaches := func(state func(*appsv1.StatefulSet) bool) bool {
		return wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, deadline, true, func(ctx context.Context) (bool, error) {
			set, err := sets.Get(ctx, "web", metav1.GetOptions{})
			return err == nil && set.Status.ObservedGeneration == set.Generation && state(set), nil
		}) == nil
	}
	write(cpu)
	if reaches(func(*appsv1.StatefulSet) bool { return true }) && reaches(func(set *appsv1.StatefulSet) bool {
		return set.Status.ReadyReplicas == 1 && set.Status.UpdatedReplicas == 1
	}) {
		return false
	}
	write(before)
	w.kubectl("delete", "pod", "web-0")
	return true
}

// TestOperatorWithADeadline is what docs/operators.md says: where a node has no room, a rollout must be over before the deadline of the
// operator. Then its pod is lost once at most, and not again by a rollback.
func TestOperatorWithADeadline(t *testing.T) {
	parallel(t)
	for _, tt := range []struct {
		what     string
		deferred time.Duration
		rolls    bool
	}{
		{"below the operator's", 2 * time.Second, false},
		{"above the operator's", time.Hour, true},
	} {
		inParallel(t, tt.what, func(t *testing.T) {
			w := newWorkload(t, options{Replicas: 1, Meta: fmt.Sprintf("annotations: {%s: %s}", setTimeout, tt.deferred)})
			w.waitComplete()
			before := w.uids()
			w.annotatePod("web-0", simDeferred)
			w.markAudit()
			if rolled := w.updateOrRollBack("150m", 20*time.Second); rolled != tt.rolls {
				t.Errorf("the operator rolls back: %t, want %t", rolled, tt.rolls)
			}
			w.waitComplete()
			w.assertReplaced(before, "web-0")
			if lost := w.podsWritten("delete"); len(lost) != 1 {
				t.Errorf("the pods %q were deleted, want one", lost)
			}
			want := "150m"
			if tt.rolls {
				want = cpuOf(w.get().Spec.Template.Spec.Containers[0].Resources)
			}
			w.waitSize("web-0", want)
		})
	}
}

// progressing is the Deployment's own condition Progressing, as status and reason.
func progressing(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// TestDeploymentExceedsDeadline: what waits for a held rollout is told when it does not move for as long
// as its user allows, and not told so any more when it does.
func TestDeploymentExceedsDeadline(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Spec: "progressDeadlineSeconds: 5"})
	none := newDeployment(t, options{Spec: "progressDeadlineSeconds: 2147483647"})
	d.waitComplete()
	before, stuck := d.uids(), d.names()[0]
	d.annotatePod(stuck, simDeferred)
	none.annotatePod(none.names()[0], simDeferred)
	none.beginAny("150m")
	d.setResources("cpu=150m", "")
	d.waitFor("the deadline to be exceeded", func(d *appsv1.Deployment) bool { return progressing(d) == "False ProgressDeadlineExceeded" })
	if err := d.try(t, "rollout", "status", d.ref, "--timeout=60s"); !strings.Contains(said(err), "exceeded its progress deadline") {
		t.Errorf("kubectl rollout status: %v", err)
	}
	if !held(d.get()) {
		t.Error("the hold was let go")
	}
	d.patch(`{"spec":{"revisionHistoryLimit":9}}`)
	d.waitObserved()
	if got := progressing(d.get()); got != "False ProgressDeadlineExceeded" {
		t.Errorf("after a write that moves nothing: %s, want what was said before", got)
	}
	if said := d.get().Annotations; said[api.SaidOfAnnotation] != "Late;edit "+said[api.EditAnnotation]+";" {
		t.Errorf("late is %v", said)
	}
	d.setResources("cpu=160m", "") // a new edit is not late
	d.waitFor("the word to be taken back", func(d *appsv1.Deployment) bool { return progressing(d) == "Unknown DeploymentPaused" })
	d.waitFor("the deadline to be exceeded again", func(d *appsv1.Deployment) bool { return progressing(d) == "False ProgressDeadlineExceeded" })
	d.annotatePod(stuck, simAccepted)
	d.waitComplete()
	d.assertMoved(before, "160m")
	if said, is := d.get().Annotations[api.SaidOfAnnotation]; is {
		t.Errorf("it is Complete, and speaks of %s", said)
	}
	d.waitFor("all to be well", func(d *appsv1.Deployment) bool { return progressing(d) == "True NewReplicaSetAvailable" })
	if got := progressing(none.get()); got != "" {
		t.Errorf("without a deadline: %s", got)
	}
	late := false
	for _, v := range d.versions() {
		was := late
		late = progressing(v.workload) == "False ProgressDeadlineExceeded"
		if late && !was && !held(v.workload) {
			t.Errorf("at %s it is said to be late, and not held", v.written)
		}
	}
}

// TestReplicaSetOfTheUser: a Deployment takes over a ReplicaSet that somebody has made before, whose
// pods have no pod-template-hash.
func TestReplicaSetOfTheUser(t *testing.T) {
	parallel(t)
	o := options{Kind: "Deployment", Replicas: 2}
	d := newDeployment(t, o)
	d.kubectl("delete", d.ref, "--cascade=foreground")
	d.apply(manifest(t, d.namespace, options{Kind: "ReplicaSet", Replicas: 2, OptedOut: true, Meta: "labels: {app: web}"}))
	d.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "replicaset/web", "--timeout="+patience.String())
	before := d.uids()
	d.apply(manifest(t, d.namespace, o))
	d.waitRolledOut()

	d.edit("150m")

	d.assertMoved(before, "150m")
	if active := d.active(); active.Name != "web" {
		t.Errorf("the pods belong to %s", summary(d.replicaSets()))
	}
}
