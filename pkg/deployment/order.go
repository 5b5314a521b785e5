package deployment

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// sortAsDeleted orders pods of one ReplicaSet, none of which is terminating, as its controller
// would delete them, but for the last rules, which tell apart what is alike (ActivePodsWithRanks
// in pkg/controller of Kubernetes).
func sortAsDeleted(pods []*corev1.Pod) {
	ranks, order, ready := make([]rank, len(pods)), make([]*rank, len(pods)), map[string]int32{} // by node
	for i, pod := range pods {
		ranks[i], order[i] = rankOf(pod), &ranks[i]
		ready[pod.Spec.NodeName] += int32(asInt(ranks[i].ready))
	}
	for i := range ranks {
		if ranks[i].ready {
			ranks[i].beside = ready[pods[i].Spec.NodeName]
		}
	}
	slices.SortFunc(order, (*rank).compare) // no two are equal: they have names
	for i := range order {
		pods[i] = order[i].pod
	}
}

// rank is what the order of a pod depends on. It is read once: a sort asks for it again and again.
type rank struct {
	pod      *corev1.Pod
	since    time.Time // as the next two, only of a pod that is Ready
	cost     int32
	beside   int32    // pods that are Ready on its node
	restarts [2]int32 // the most of a container, and of a sidecar
	ready    bool
	assigned bool
	phase    int8
}

// phases in their order. A phase that is none of them counts as the first.
var phases = []corev1.PodPhase{corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}

func rankOf(pod *corev1.Pod) rank {
	r := rank{
		pod: pod, assigned: pod.Spec.NodeName != "",
		phase: int8(max(slices.Index(phases, pod.Status.Phase), 0)), restarts: restarts(pod),
	}
	if c := judge.ConditionReady(pod); c != nil && c.Status == corev1.ConditionTrue {
		r.ready, r.cost, r.since = true, deletionCost(pod), c.LastTransitionTime.Time
	}
	return r
}

// compare orders as ActivePods of podutils does, after readiness, cost, and pods beside. Of equals the
// name decides, so that every look at the same pods has the same order: where the answer to a resize
// was lost, the same pod is asked again, and no other one.
func (r *rank) compare(other *rank) int {
	switch {
	case r.ready != other.ready:
		return asInt(r.ready) - asInt(other.ready)
	case r.cost != other.cost:
		return cmp.Compare(r.cost, other.cost)
	case r.beside != other.beside:
		return cmp.Compare(other.beside, r.beside)
	case r.assigned != other.assigned:
		return asInt(r.assigned) - asInt(other.assigned)
	case r.phase != other.phase:
		return cmp.Compare(r.phase, other.phase)
	case !r.since.Equal(other.since):
		return latestFirst(r.since, other.since)
	case r.restarts != other.restarts:
		return slices.Compare(other.restarts[:], r.restarts[:])
	}
	created, also := r.pod.CreationTimestamp.Time, other.pod.CreationTimestamp.Time
	if !created.Equal(also) {
		return latestFirst(created, also)
	}
	return cmp.Compare(r.pod.Name, other.pod.Name)
}

// latestFirst takes a time that is not known for the latest.
func latestFirst(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return asInt(b.IsZero()) - asInt(a.IsZero())
	}
	return b.Compare(a)
}

// restarts returns the most restarts of a container, and of a sidecar.
func restarts(pod *corev1.Pod) [2]int32 {
	var most [2]int32
	for i := range pod.Status.ContainerStatuses {
		most[0] = max(most[0], pod.Status.ContainerStatuses[i].RestartCount)
	}
	for i := range pod.Status.InitContainerStatuses {
		if s := &pod.Status.InitContainerStatuses[i]; s.RestartCount > 0 && isSidecar(pod, s.Name) {
			most[1] = max(most[1], s.RestartCount)
		}
	}
	return most
}

func isSidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
	})
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// deletionCost returns the cost by which the user says which pods are to be deleted first
// (KEP-2255); 0 if the annotation is absent or no number.
func deletionCost(pod *corev1.Pod) int32 {
	said, has := pod.Annotations[corev1.PodDeletionCost]
	if !has {
		return 0
	}
	cost, _ := strconv.ParseInt(said, 10, 32)
	return int32(cost)
}
