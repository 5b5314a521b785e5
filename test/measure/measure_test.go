package measure

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is the moment when an object is changed.
func at(second int, object metav1.Object) Moment {
	object.SetNamespace("demo")
	object.SetLabels(map[string]string{"app": "db"})
	return Moment{At: start.Add(time.Duration(second) * time.Second), Object: object}
}

func podAt(second int, name, uid string, ready corev1.ConditionStatus, restarts int32) Moment {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "database", ContainerID: uid + strconv.Itoa(int(restarts)), RestartCount: restarts,
	}}
	return at(second, pod)
}

// visitAt is a visit to the pod; one that is not answered has the count 0.
func visitAt(second int, name, uid string, count int64) Moment {
	v := &Visit{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}, Count: count}
	if count == 0 {
		v.Err = errors.New("no answer")
	}
	return at(second, v)
}

func deleted(m Moment) Moment { m.Deleted = true; return m }

func podTemplate(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "database", Image: image}}}}
}

func statefulSetAt(second int, image, current, update string) Moment {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	set.Spec = appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Template: podTemplate(image)}
	set.Status = appsv1.StatefulSetStatus{UpdatedReplicas: 1, ReadyReplicas: 1, CurrentRevision: current, UpdateRevision: update}
	return at(second, set)
}

func deploymentAt(second int, image string, replicas, updated int32) Moment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	d.Spec = appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Template: podTemplate(image)}
	d.Status = appsv1.DeploymentStatus{Replicas: replicas, UpdatedReplicas: updated, AvailableReplicas: replicas}
	return at(second, d)
}

func TestEdit(t *testing.T) {
	statefulSet := []Moment{statefulSetAt(0, "a", "a", "a"), podAt(0, "db-0", "old", corev1.ConditionTrue, 0)}
	deployment := []Moment{deploymentAt(0, "a", 1, 1), podAt(0, "db-a-1", "old", corev1.ConditionTrue, 0)}
	for name, c := range map[string]struct {
		before, during []Moment
		want           Measurement
	}{
		"nothing happens to the pod": {
			statefulSet,
			[]Moment{statefulSetAt(1, "b", "a", "b"), podAt(2, "db-0", "old", corev1.ConditionTrue, 0), statefulSetAt(4, "b", "b", "b")},
			Measurement{Completed: true, Took: 3 * time.Second},
		},
		"the pod is replaced": {
			statefulSet,
			[]Moment{
				statefulSetAt(1, "b", "a", "b"), deleted(podAt(2, "db-0", "old", corev1.ConditionTrue, 0)),
				podAt(3, "db-0", "new", corev1.ConditionFalse, 0), podAt(7, "db-0", "new", corev1.ConditionTrue, 0), statefulSetAt(8, "b", "b", "b"),
			},
			Measurement{Completed: true, Took: 7 * time.Second, Replaced: 1, Started: 1, NotReady: 1, Short: 5 * time.Second, ShortAll: 5 * time.Second},
		},
		"the pod is visited, and remembers": {
			slices.Concat(statefulSet, []Moment{visitAt(0, "db-0", "old", 7)}),
			[]Moment{visitAt(1, "db-0", "old", 8), visitAt(2, "db-0", "old", 9)},
			Measurement{Visits: 2},
		},
		"the pod is visited, does not answer once, and starts to count anew": {
			slices.Concat(statefulSet, []Moment{visitAt(0, "db-0", "old", 7)}),
			[]Moment{visitAt(1, "db-0", "old", 8), visitAt(2, "db-0", "old", 0), visitAt(3, "db-0", "old", 1), visitAt(4, "db-0", "old", 2)},
			Measurement{Visits: 4, Lost: 1, Why: "no answer", Forgotten: 8},
		},
		"the visited pod is replaced": {
			slices.Concat(statefulSet, []Moment{visitAt(0, "db-0", "old", 7)}),
			[]Moment{
				visitAt(1, "db-0", "old", 0), deleted(podAt(1, "db-0", "old", corev1.ConditionFalse, 0)),
				podAt(1, "db-0", "new", corev1.ConditionTrue, 0), visitAt(2, "db-0", "new", 1),
			},
			Measurement{Visits: 2, Lost: 1, Why: "no answer", Forgotten: 7, Replaced: 1, Started: 1, NotReady: 1},
		},
		"a container restarts and the pod is not Ready twice, the second time to the end": {
			statefulSet,
			[]Moment{
				podAt(1, "db-0", "old", corev1.ConditionFalse, 1), podAt(4, "db-0", "old", corev1.ConditionTrue, 1),
				podAt(5, "db-0", "old", corev1.ConditionFalse, 1), podAt(6, "db-0", "old", corev1.ConditionFalse, 1),
			},
			Measurement{Started: 1, NotReady: 1, Short: 3 * time.Second, ShortAll: 4 * time.Second},
		},
		"a new ReplicaSet has a new pod before the old one goes": {
			deployment,
			[]Moment{
				deploymentAt(1, "b", 1, 0), podAt(2, "db-b-1", "new", corev1.ConditionTrue, 0),
				deploymentAt(3, "b", 2, 1), deploymentAt(4, "b", 1, 1),
				deleted(podAt(5, "db-a-1", "old", corev1.ConditionTrue, 0)), deploymentAt(6, "b", 1, 1),
			},
			Measurement{Completed: true, Took: 4 * time.Second, Replaced: 1, Started: 1, NotReady: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Edit(append(c.before[:len(c.before):len(c.before)], c.during...), len(c.before), Subject{Namespace: "demo", Name: "db"})
			got.Before, got.After, got.Edited = nil, nil, time.Time{}
			must.Equal(t, got, c.want, "what was measured")
		})
	}
}
