package statefulset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

type version = simulated.Version

// fields of a StatefulSet.
var fields = simulated.Fields[*appsv1.StatefulSet]{
	Resource:        "statefulsets",
	Spec:            func(set *appsv1.StatefulSet) any { return set.Spec },
	Template:        func(set *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &set.Spec.Template },
	MinReadySeconds: func(set *appsv1.StatefulSet) int32 { return set.Spec.MinReadySeconds },
	Condition:       condition,
	Rolling:         rolling,
	List: func(version metav1.ListMeta, set *appsv1.StatefulSet) runtime.Object {
		return &appsv1.StatefulSetList{ListMeta: version, Items: []appsv1.StatefulSet{*set}}
	},
	Prepare:   func(_, _ *appsv1.StatefulSet) {},
	Admission: simulated.NewAdmission[appsv1.StatefulSet](),
}

var (
	templates    = simulated.Templates()
	versions     = map[string]version{} // by the name of the revision
	allRevisions = history{}            // likewise
	stored       = map[string]*appsv1.ControllerRevision{}
)

func revisionOf(v version) string { return "web-" + v.String() }

// init makes the revisions of all versions.
func init() {
	t, set := simulated.NoTest{}, webSet(older, 1)
	for v, template := range templates {
		name := revisionOf(v)
		stored[name] = build.Revision(t, set, "StatefulSet", name, 2, template) // as if another one was before
		stored[name].Labels = set.Spec.Selector.MatchLabels
		allRevisions[name], versions[name] = must.Get(hash.OfRevision(stored[name]))(t), v
	}
}

// world is a small cluster with the StatefulSet controller.
type world struct {
	*simulated.Workload[*appsv1.StatefulSet]

	refuses func(*corev1.Pod) bool // admission lets no such pod in
	history map[string]metav1.Time // when it has made the revisions of these names
	renewed map[string]metav1.Time // when the set has come back to them last
}

func newWorld(set *appsv1.StatefulSet, outcomes []simulated.Outcome) *world {
	w := &world{history: map[string]metav1.Time{}, renewed: map[string]metav1.Time{}, refuses: func(*corev1.Pod) bool { return false }}
	w.Workload = simulated.NewWorkload(simulated.New(w.place, outcomes, set), set, fields, w, revisions.WatchLag, simulated.LargeNode())
	return w
}

// webSet is an opted-in set of v; its status is empty.
func webSet(v version, replicas int) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "uid-of-web", ResourceVersion: "0", Generation: 1, CreationTimestamp: metav1.NewTime(build.Start),
			Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{},
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(int32(replicas)), Template: *templates[v], PodManagementPolicy: appsv1.OrderedReadyPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(int32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1))},
			},
		},
	}
}

// place of a pod: its successors come to the same node.
func (w *world) place(pod *corev1.Pod) int {
	n, _ := observation{set: w.Set}.index(pod)
	return n
}

func (w *world) name(index int) string {
	return fmt.Sprintf("web-%d", observation{set: w.Set}.start()+index)
}

// newPod is a pod of the named revision that nobody has scheduled yet.
func (w *world) newPod(set *appsv1.StatefulSet, name, revision string) *corev1.Pod {
	pod := simulated.NewPod(w.NextUID(), name, templates[versions[revision]])
	pod.CreationTimestamp = w.Stamp()
	pod.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: revision}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	return pod
}

// Reconcile is one sync of the StatefulSet controller (updateStatefulSet in
// stateful_set_control.go of Kubernetes 1.37), from what it has seen.
func (w *world) Reconcile() {
	set := w.Saw.Set
	if !w.CaughtUp() {
		return
	}
	status := *set.Status.DeepCopy()
	status.ObservedGeneration = set.Generation
	status.UpdateRevision = revisionOf(simulated.VersionOf(&set.Spec.Template.Spec))
	if _, made := w.history[status.UpdateRevision]; !made {
		w.history[status.UpdateRevision] = w.Stamp()
		w.Made(stored[status.UpdateRevision])
	} else if status.UpdateRevision != set.Status.UpdateRevision {
		w.renewed[status.UpdateRevision] = w.Stamp()
	}
	status.CurrentRevision = cmp.Or(status.CurrentRevision, status.UpdateRevision)
	n, now := replicas(set), metav1.NewTime(w.Clock.Now())
	places, condemned := make([]*corev1.Pod, n), []*corev1.Pod(nil)
	for _, pod := range w.Saw.Pods {
		if i, _ := (observation{set: set}).index(pod); i >= 0 && i < n {
			places[i] = pod
		} else {
			condemned = append(condemned, pod)
		}
	}
	slices.SortFunc(condemned, func(a, b *corev1.Pod) int { return cmp.Compare(b.Name, a.Name) }) // one digit each
	w.reconcilePods(set, &status, places, condemned, func(pod *corev1.Pod) bool {
		return pod != nil && pod.DeletionTimestamp == nil && podutils.IsPodAvailable(pod, set.Spec.MinReadySeconds, now)
	})

	// updateStatus and completeUpdate.
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.CurrentReplicas, status.UpdatedReplicas = 0, 0, 0, 0, 0
	for _, pod := range slices.Concat(places, condemned) {
		if pod == nil {
			continue
		}
		status.Replicas++
		if podutils.IsPodReady(pod) {
			status.ReadyReplicas++
		}
		if podutils.IsPodAvailable(pod, set.Spec.MinReadySeconds, now) {
			status.AvailableReplicas++
		}
		if pod.DeletionTimestamp == nil && label(pod) == status.CurrentRevision {
			status.CurrentReplicas++
		}
		if pod.DeletionTimestamp == nil && label(pod) == status.UpdateRevision {
			status.UpdatedReplicas++
		}
	}
	if int(status.UpdatedReplicas) == n && int(status.ReadyReplicas) == n && int(status.Replicas) == n {
		status.CurrentRevision, status.CurrentReplicas = status.UpdateRevision, status.UpdatedReplicas
	}
	if equality.Semantic.DeepEqual(set.Status, status) {
		return
	}
	// A write made for an older version of the set fails, and is tried again with the newest one and the same status
	// (UpdateStatefulSetStatus in stateful_set_status_updater.go).
	written := w.Set.DeepCopy()
	written.Status = status
	w.WriteStatus(written, false)
}

// reconcilePods creates and deletes. First come births, then scaling down, then
// restarts; in an OrderedReady set everything waits for the first place that is
// not available.
func (w *world) reconcilePods(set *appsv1.StatefulSet, status *appsv1.StatefulSetStatus, places, condemned []*corev1.Pod, available func(*corev1.Pod) bool) {
	parallel := set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
	unavailable := 0
	for i, pod := range places {
		if !available(pod) {
			unavailable++
		}
		switch {
		case pod == nil:
			revision := status.UpdateRevision
			if rolling(set) && i < partition(set) {
				revision = status.CurrentRevision // newVersionedStatefulSetPod in pkg/controller/statefulset
			}
			name := w.name(i)
			if w.Pods[name] == nil {
				born := w.newPod(set, name, revision)
				if w.refuses(born) {
					if parallel {
						continue
					}
					return
				}
				w.Create(born)
			}
			if !parallel {
				return
			}
		case pod.Status.Phase == corev1.PodFailed && pod.DeletionTimestamp == nil && w.Pods[pod.Name] != nil:
			w.DeletePod(pod.Name)
			if !parallel {
				return
			}
		case !parallel && !available(pod):
			return
		}
	}
	unready := func(pod *corev1.Pod) bool { return !available(pod) }
	for i, pod := range condemned {
		if pod.DeletionTimestamp == nil && w.Pods[pod.Name] != nil && (parallel || available(pod) || !slices.ContainsFunc(condemned[i+1:], unready)) {
			w.DeletePod(pod.Name)
		}
		if !parallel {
			return
		}
	}
	if !rolling(set) {
		return
	}
	// updateStatefulSetAfterInvariantEstablished, highest first. Parallel sets restart all that is
	// not available, whatever the budget, and only then what is.
	budget := maxUnavailable(set) - unavailable
	for _, whole := range []bool{false, true} {
		for i := len(places) - 1; i >= partition(set); i-- {
			pod := places[i]
			if pod == nil || pod.DeletionTimestamp != nil || label(pod) == status.UpdateRevision || available(pod) != whole && parallel || !parallel && !whole {
				continue
			}
			if whole {
				if budget <= 0 {
					return
				}
				budget--
			}
			if current := w.Pods[pod.Name]; current != nil && current.DeletionTimestamp == nil { // by name only
				w.DeletePod(pod.Name)
			}
		}
	}
}

// Observe does nothing: the StatefulSet controller counts nothing.
func (*world) Observe() {}

// Revisions are those that it has made.
func (w *world) Revisions() (all []*appsv1.ControllerRevision) {
	for _, name := range slices.Sorted(maps.Keys(w.history)) {
		made := stored[name].DeepCopy()
		made.CreationTimestamp = w.history[name]
		if at, renewed := w.renewed[name]; renewed {
			made.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &at}}
		}
		all = append(all, made)
	}
	return all
}

// Of is the version that the revision of a pod says.
func (*world) Of(pod *corev1.Pod) version { return versions[label(pod)] }

// Lacks says which place has no pod that is done.
func (w *world) Lacks(done func(*corev1.Pod) bool) string {
	for i := partition(w.Set); i < replicas(w.Set); i++ {
		if !done(w.Pods[w.name(i)]) {
			return fmt.Sprintf("index %d is not done", i)
		}
	}
	return ""
}

func label(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }
