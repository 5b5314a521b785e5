package revisions_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestBelongsTo(t *testing.T) {
	owner := func(uid types.UID) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{UID: uid, Controller: &yes}}
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "set"}}
	for _, tt := range []struct {
		what   string
		name   string
		owners []metav1.OwnerReference
		want   bool
	}{
		{"its own", "web-a", owner("set"), true},
		{"one of nobody", "web-a", nil, true},
		{"another set's", "web-a", owner("other"), false},
		{"that of a set of the same name, which was deleted", "web-b", owner("other"), true},
	} {
		r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: tt.name, OwnerReferences: tt.owners}}
		must.Equal(t, revisions.BelongsTo(set, r, "web-b"), tt.want, "%s: it belongs to it", tt.what)
	}
}

// TestDoubt: where no pod comes or goes, the number is a proof at once; else it takes the lag of a watch.
func TestDoubt(t *testing.T) {
	template := build.Size(t, "")
	updated := func(pod *corev1.Pod) bool { return revisions.HashOf(pod) == "b" }
	of := func(hash string, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := build.Pod("web-"+hash, template, change...)
		pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
		return pod
	}
	for _, tt := range []struct {
		what     string
		pods     []*corev1.Pod
		conceals bool
		want     bool // there is a doubt
	}{
		{"nothing comes or goes", []*corev1.Pod{of("a"), of("b")}, false, false},
		{"the caller knows that a place is empty", []*corev1.Pod{of("a"), of("b")}, true, true},
		{"an updated pod goes", []*corev1.Pod{of("a"), of("b", build.Terminating)}, false, true},
		{"a pod of an older revision goes", []*corev1.Pod{of("a", build.Terminating), of("b")}, false, false},
	} {
		now := build.Start.Add(time.Hour)
		for _, pod := range tt.pods { // we relabelled those that are updated
			if updated(pod) {
				at := metav1.NewTime(now)
				pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{Manager: "inplace-rollout", Operation: metav1.ManagedFieldsOperationUpdate, Time: &at,
					FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:controller-revision-hash":{}}}}`)})
			}
		}
		got := revisions.Doubt(nil, tt.pods, tt.pods, updated, tt.conceals, now)
		if got > revisions.WatchLag || got > 0 != tt.want {
			t.Errorf("%s: %s, want a doubt: %t", tt.what, got, tt.want)
		}
	}
}
