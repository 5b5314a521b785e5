package statefulset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

type version = simulated.Version

var admission = simulated.NewAdmission[appsv1.StatefulSet]("statefulsets")

var (
	loaded    sync.Once
	templates map[version]*corev1.PodTemplateSpec
	versions  = map[string]version{} // by the name of the revision
	revisions = history{}            // likewise
	stored    = map[string]*appsv1.ControllerRevision{}
)

func revisionOf(v version) string { return "web-" + v.String() }

// load makes the templates and revisions of all versions.
func load(t testing.TB) {
	t.Helper()
	loaded.Do(func() {
		templates = simulated.Templates(t)
		set := webSet(older, 1)
		for v, template := range templates {
			name := revisionOf(v)
			stored[name] = build.Revision(t, set, "StatefulSet", name, 1, template)
			stored[name].Labels = set.Spec.Selector.MatchLabels
			var err error
			if revisions[name], err = hash.OfRevision(stored[name]); err != nil {
				t.Fatal(err)
			}
			versions[name] = v
		}
	})
}

// world is a small cluster: an API server with the admission policies of deploy/,
// the StatefulSet controller and the kubelets, each of which does one thing when
// its method is called. Objects are never changed, only replaced, so that a copy
// of the map of pods is what a watch has seen at some time.
type world struct {
	*simulated.Cluster
	set *appsv1.StatefulSet

	unguarded bool                      // the admission policies are gone
	unknown   bool                      // they take the controller for a user
	releasing bool                      // the next write is the one of inplace-rollout release
	webhook   func(*appsv1.StatefulSet) // changes what the controller writes, after they have been asked

	// What the StatefulSet controller has seen, and what it must see of its own
	// writes before it does anything (StaleControllerConsistencyStatefulSet, 1.36).
	seenSet             *appsv1.StatefulSet
	seenPods            map[string]*corev1.Pod
	seenPodsAt          time.Time
	seenPodsRV, created int
	statusRV            int
	restarts            func(*corev1.Pod) // called before it deletes a pod for its revision
	birth               func(*corev1.Pod)
	refuses             func(*corev1.Pod) bool // admission lets no such pod in
	limits              []corev1.LimitRange
	history             map[string]bool // names of the revisions that it has made
}

func newWorld(set *appsv1.StatefulSet, outcomes []simulated.Outcome) *world {
	w := &world{
		set: set, history: map[string]bool{}, restarts: func(*corev1.Pod) {}, birth: func(*corev1.Pod) {}, refuses: func(*corev1.Pod) bool { return false }}
	w.Cluster = simulated.New(w.place, outcomes)
	return w
}

// webSet is an opted-in set of v; its status is empty.
func webSet(v version, replicas int) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "uid-of-web", ResourceVersion: "0", Generation: 1,
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
	n, _ := observation{set: w.set}.index(pod)
	return n
}

func (w *world) name(index int) string {
	return fmt.Sprintf("web-%d", observation{set: w.set}.start()+index)
}

// newPod is a pod of the named revision that nobody has scheduled yet.
func (w *world) newPod(set *appsv1.StatefulSet, name, revision string) *corev1.Pod {
	pod := simulated.NewPod(w.NextUID(), name, templates[versions[revision]])
	pod.CreationTimestamp = w.Stamp()
	pod.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: revision}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	return pod
}

// writeSet stores a set that admission has seen.
func (w *world) writeSet(set *appsv1.StatefulSet, ours bool) {
	if !w.unguarded {
		webhook := w.webhook
		if !ours {
			webhook = nil
		}
		admission.Admit(w.set, set, simulated.ByWhom(ours, w.releasing), webhook)
	}
	w.Generation(set, w.set.Spec, set.Spec)
	w.storeSet(set)
}

func (w *world) storeSet(set *appsv1.StatefulSet) {
	w.set = set
	w.Written(set)
}

// user changes the set as its user.
func (w *world) user(change func(*appsv1.StatefulSet)) {
	set := w.set.DeepCopy()
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	change(set)
	w.writeSet(set, false)
}

// Live lets the kubelets and the StatefulSet controller do one thing each.
func (w *world) Live() {
	w.Kubelets()
	w.kcmSees(true, true)
	w.kcm()
	w.kcmSees(true, true)
}

// kcm is one sync of the StatefulSet controller (updateStatefulSet in
// stateful_set_control.go of Kubernetes 1.37), from what it has seen.
func (w *world) kcm() {
	set := w.seenSet
	if set == nil || w.seenPodsRV < w.created || version64(set) < w.statusRV {
		return
	}
	status := *set.Status.DeepCopy()
	status.ObservedGeneration = set.Generation
	status.UpdateRevision = revisionOf(simulated.VersionOf(&set.Spec.Template.Spec))
	w.history[status.UpdateRevision] = true
	status.CurrentRevision = cmp.Or(status.CurrentRevision, status.UpdateRevision)
	n, now := replicas(set), metav1.NewTime(w.Clock.Now())
	places, condemned := make([]*corev1.Pod, n), []*corev1.Pod(nil)
	for _, pod := range w.seenPods {
		if i, _ := (observation{set: set}).index(pod); i >= 0 && i < n {
			places[i] = pod
		} else {
			condemned = append(condemned, pod)
		}
	}
	slices.SortFunc(condemned, func(a, b *corev1.Pod) int { return cmp.Compare(b.Name, a.Name) }) // one digit each
	w.kcmPods(set, &status, places, condemned, func(pod *corev1.Pod) bool {
		return pod != nil && pod.DeletionTimestamp == nil && podutils.IsPodAvailable(pod, set.Spec.MinReadySeconds, now)
	})

	// updateStatus and completeUpdate. A write made for an older version of the set fails.
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpdatedReplicas = 0, 0, 0, 0
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
		if pod.DeletionTimestamp == nil && label(pod) == status.UpdateRevision {
			status.UpdatedReplicas++
		}
	}
	if int(status.UpdatedReplicas) == n && int(status.ReadyReplicas) == n && int(status.Replicas) == n {
		status.CurrentRevision = status.UpdateRevision
	}
	if set.ResourceVersion == w.set.ResourceVersion && !equality.Semantic.DeepEqual(set.Status, status) {
		written := set.DeepCopy()
		written.Status = status
		admission.AdmitStatus(set, written)
		w.storeSet(written)
		w.statusRV = w.RV
	}
}

// kcmPods creates and deletes. First come births, then scaling down, then
// restarts; in an OrderedReady set everything waits for the first place that is
// not available.
func (w *world) kcmPods(set *appsv1.StatefulSet, status *appsv1.StatefulSetStatus, places, condemned []*corev1.Pod, available func(*corev1.Pod) bool) {
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
				w.birth(born)
				w.WritePod(born)
				w.created = w.RV
			}
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
				w.restarts(current)
				w.DeletePod(pod.Name)
			}
		}
	}
}

func (w *world) kcmSees(set, podsToo bool) {
	if set {
		w.seenSet = w.set
	}
	if podsToo {
		w.seenPods, w.seenPodsAt, w.seenPodsRV = maps.Clone(w.Pods), w.Clock.Now(), w.RV
	}
}

// Pass lets time pass, in which no watch of the StatefulSet controller is behind for longer than watchLag.
func (w *world) Pass(d time.Duration) {
	now := w.Clock.Now().Add(d)
	if now.Sub(w.seenPodsAt) > watchLag {
		w.kcmSees(false, true)
	}
	w.Clock.SetTime(now)
}

// serve makes client the API server of this world for the controller.
func (w *world) serve(client *fake.Clientset) {
	w.ServePods(client)
	client.AddReactor("list", "controllerrevisions", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &appsv1.ControllerRevisionList{}
		for _, name := range slices.Sorted(maps.Keys(w.history)) {
			list.Items = append(list.Items, *stored[name])
		}
		return true, list, nil
	})
	client.AddReactor("list", "limitranges", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.LimitRangeList{Items: w.limits}, nil
	})
	client.AddReactor("list", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &appsv1.StatefulSetList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(w.RV)}, Items: []appsv1.StatefulSet{*w.set}}, nil
	})
	simulated.ServeWorkload(w.Cluster, client, "statefulsets", func() (now, empty *appsv1.StatefulSet) { return w.set, &appsv1.StatefulSet{} },
		w.storeSet, func(set *appsv1.StatefulSet) { w.writeSet(set, !w.unknown) })
}

func label(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

func version64(object interface{ GetResourceVersion() string }) int {
	n, _ := strconv.Atoi(object.GetResourceVersion())
	return n
}
