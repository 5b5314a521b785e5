package deployment

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
)

// sortAsDeleted orders pods of one ReplicaSet, none of which is terminating, as its controller
// would delete them, but for the last rules, which tell apart what is alike (ActivePodsWithRanks
// in pkg/controller of Kubernetes).
func sortAsDeleted(pods []*corev1.Pod) {
	ranks, ready := make([]rank, len(pods)), map[string]int{} // by node
	for i, pod := range pods {
		ranks[i] = rankOf(pod)
		ready[pod.Spec.NodeName] += ranks[i].ready
	}
	for i := range ranks {
		if ranks[i].ready > 0 {
			ranks[i].beside = ready[pods[i].Spec.NodeName]
		}
	}
	slices.SortStableFunc(ranks, rank.compare)
	for i := range ranks {
		pods[i] = ranks[i].pod
	}
}

// rank is what the order of a pod depends on. It is read once: a sort asks for it again and again.
type rank struct {
	pod      *corev1.Pod
	ready    int
	cost     int64 // as are the next two, only of a pod that is Ready
	beside   int   // pods that are Ready on its node
	since    time.Time
	assigned int
	phase    int
	restarts [2]int // the most of a container, and of a sidecar
	created  time.Time
}

// phases in their order. A phase that is none of them counts as the first.
var phases = []corev1.PodPhase{corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}

func rankOf(pod *corev1.Pod) rank {
	r := rank{
		pod: pod, ready: asInt(podutils.IsPodReady(pod)), assigned: asInt(pod.Spec.NodeName != ""),
		phase: max(slices.Index(phases, pod.Status.Phase), 0), restarts: restarts(pod), created: pod.CreationTimestamp.Time,
	}
	if r.ready > 0 {
		r.cost = deletionCost(pod)
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady {
				r.since = c.LastTransitionTime.Time
			}
		}
	}
	return r
}

// compare orders as ActivePods of podutils does, after readiness, cost, and pods beside. Of equals the
// name decides, so that every look at the same pods has the same order: where the answer to a resize
// was lost, the same pod is asked again, and no other one.
func (r rank) compare(other rank) int {
	return cmp.Or(
		cmp.Compare(r.ready, other.ready),
		cmp.Compare(r.cost, other.cost),
		cmp.Compare(other.beside, r.beside),
		cmp.Compare(r.assigned, other.assigned),
		cmp.Compare(r.phase, other.phase),
		latestFirst(r.since, other.since),
		slices.Compare(other.restarts[:], r.restarts[:]),
		latestFirst(r.created, other.created),
		cmp.Compare(r.pod.Name, other.pod.Name),
	)
}

// latestFirst takes a time that is not known for the latest.
func latestFirst(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return asInt(b.IsZero()) - asInt(a.IsZero())
	}
	return b.Compare(a)
}

// restarts returns the most restarts of a container, and of a sidecar.
func restarts(pod *corev1.Pod) [2]int {
	var most [2]int
	for i := range pod.Status.ContainerStatuses {
		most[0] = max(most[0], int(pod.Status.ContainerStatuses[i].RestartCount))
	}
	for i := range pod.Status.InitContainerStatuses {
		if s := &pod.Status.InitContainerStatuses[i]; s.RestartCount > 0 && isSidecar(pod, s.Name) {
			most[1] = max(most[1], int(s.RestartCount))
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
func deletionCost(pod *corev1.Pod) int64 {
	cost, _ := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32)
	return cost
}
