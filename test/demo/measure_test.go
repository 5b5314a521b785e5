package main

import (
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func podAt(second int, uid string, ready corev1.ConditionStatus, restarts int32) moment {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "db-0", UID: types.UID(uid)}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "database", ContainerID: uid + strconv.Itoa(int(restarts)), RestartCount: restarts,
	}}
	return moment{at: start.Add(time.Duration(second) * time.Second), pod: pod}
}

func deleted(m moment) moment { m.deleted = true; return m }

func setAt(second int, image, current, update string) moment {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "db"}}
	set.Spec.Replicas = ptr.To[int32](1)
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "database", Image: image}}
	set.Status = appsv1.StatefulSetStatus{UpdatedReplicas: 1, ReadyReplicas: 1, CurrentRevision: current, UpdateRevision: update}
	return moment{at: start.Add(time.Duration(second) * time.Second), set: set}
}

func TestMeasure(t *testing.T) {
	before := []moment{setAt(0, "a", "a", "a"), podAt(0, "old", corev1.ConditionTrue, 0)}
	for name, c := range map[string]struct {
		during []moment
		want   measurement
	}{
		"nothing happens to the pod": {
			[]moment{setAt(1, "b", "a", "b"), podAt(2, "old", corev1.ConditionTrue, 0), setAt(4, "b", "b", "b")},
			measurement{completed: true, took: 3 * time.Second},
		},
		"the pod is replaced": {
			[]moment{
				setAt(1, "b", "a", "b"), deleted(podAt(2, "old", corev1.ConditionTrue, 0)),
				podAt(3, "new", corev1.ConditionFalse, 0), podAt(7, "new", corev1.ConditionTrue, 0), setAt(8, "b", "b", "b"),
			},
			measurement{completed: true, took: 7 * time.Second, replaced: 1, started: 1, notReady: 1, short: 5 * time.Second, shortAll: 5 * time.Second},
		},
		"a container restarts and the pod is not Ready twice, the second time to the end": {
			[]moment{
				podAt(1, "old", corev1.ConditionFalse, 1), podAt(4, "old", corev1.ConditionTrue, 1),
				podAt(5, "old", corev1.ConditionFalse, 1), podAt(6, "old", corev1.ConditionFalse, 1),
			},
			measurement{restarts: 1, started: 1, notReady: 1, short: 3 * time.Second, shortAll: 4 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := measure(append(before[:2:2], c.during...), len(before), "demo")
			got.before, got.after = nil, nil
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
