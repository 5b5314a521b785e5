// Package revisions is what StatefulSets and DaemonSets have in common: their templates are stored in
// ControllerRevisions, and a label of each pod says of which one it is. To relabel a pod is to say to the
// built-in controller that it is updated.
package revisions

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// BelongsTo reports whether the built-in controller takes a revision for the set's: the set controls it,
// or nothing does, or it has the name that one of the set's has. That controller may have made one of
// those its newest, and adopt it only when something happens to the set again, which a hold prevents. One
// that has the name may still belong to a set of the same name that was deleted (snapshot in
// pkg/controller/daemon of Kubernetes).
func BelongsTo(set metav1.Object, revision *appsv1.ControllerRevision, name string) bool {
	return metav1.IsControlledBy(revision, set) || metav1.GetControllerOfNoCopy(revision) == nil || revision.Name == name
}

// HashOf is what the label of a pod says of its revision: the revision's name where a StatefulSet has
// made it, and the hash in the revision's own label where a DaemonSet has.
func HashOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// WatchLag is how long the built-in controller's watch of the pods may be behind where nothing shows
// that it is not.
const WatchLag = 10 * time.Second

// Doubt returns for how long the number of updated pods in a set's status is no proof that its controller has
// seen the labels of all pods; 0 if it is one. The number may count a pod that has gone, in place of
// one whose label has not been seen. That is possible where pods come and go: conceals says what the
// caller knows of that.
//
// Of the pods 0, 1 and 2, only 0 is updated: the number is 1. We relabel 2, and somebody deletes 0:
// the number is 1, whether the controller has seen both or nothing.
func Doubt(notes *judge.PodNotes, pods, counted []*corev1.Pod, updated func(*corev1.Pod) bool, conceals bool, now time.Time) time.Duration {
	last, known := notes.Relabelled(pods, updated, now)
	comesOrGoes := func(pod *corev1.Pod) bool {
		if updated(pod) {
			return pod.DeletionTimestamp != nil
		}
		return !pod.CreationTimestamp.Time.Before(last) // it may be in the place of one that was updated
	}
	if !conceals && !slices.ContainsFunc(counted, comesOrGoes) {
		return 0
	}
	return max(known.Add(WatchLag).Sub(now), 0)
}

// Former returns the revision that most of the pods are of which have not proved the newest one yet; empty if there are none.
// After A→B→C these are still of A, where B was never proved.
func Former(pods []*corev1.Pod, older func(*corev1.Pod) bool) (name string) {
	carry := map[string]int{}
	for _, pod := range pods {
		if older(pod) {
			carry[HashOf(pod)]++
		}
	}
	for _, of := range slices.Sorted(maps.Keys(carry)) {
		if name == "" || carry[of] > carry[name] {
			name = of
		}
	}
	return name
}
