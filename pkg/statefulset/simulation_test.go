package statefulset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

type version = simulated.Version

var (
	loaded    sync.Once
	templates map[version]*corev1.PodTemplateSpec
	versions  = map[string]version{} // by the name of the revision
	revisions = history{}            // likewise
)

func revisionOf(v version) string { return "web-" + v.String() }

// load makes the templates and revisions of all versions.
func load(t testing.TB) {
	t.Helper()
	loaded.Do(func() {
		set := &appsv1.StatefulSet{}
		templates = simulated.Templates(t)
		for v, template := range templates {
			name := revisionOf(v)
			var err error
			if revisions[name], err = templateOf(build.Revision(t, set, name, 1, template)); err != nil {
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
	restarts            func(*corev1.Pod) // told before it deletes a pod for its revision
	birth               func(*corev1.Pod)
}

func newWorld(set *appsv1.StatefulSet, outcomes []simulated.Outcome) *world {
	w := &world{set: set, restarts: func(*corev1.Pod) {}, birth: func(*corev1.Pod) {}}
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
	pod.CreationTimestamp = metav1.NewTime(w.Clock.Now())
	pod.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: revision}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	return pod
}

// writeSet stores a set that admission has seen.
func (w *world) writeSet(set *appsv1.StatefulSet, ours bool) {
	if !w.unguarded {
		admit(w.set, set, ours, w.releasing)
		if ours && w.webhook != nil {
			w.webhook(set)
			admit(w.set, set, ours, w.releasing)
		}
		once := set.DeepCopy()
		if admit(w.set, set, ours, w.releasing); !equality.Semantic.DeepEqual(once, set) {
			panic(fmt.Sprintf("the policy says\n%v, %v, and asked again\n%v, %v; before was\n%v, %v", once.Annotations, once.Spec.UpdateStrategy.RollingUpdate,
				set.Annotations, set.Spec.UpdateStrategy.RollingUpdate, w.set.Annotations, w.set.Spec.UpdateStrategy.RollingUpdate))
		}
	}
	if !equality.Semantic.DeepEqual(w.set.Spec, set.Spec) {
		set.Generation++
	}
	w.storeSet(set)
}

func (w *world) storeSet(set *appsv1.StatefulSet) {
	set.ResourceVersion = w.NextRV()
	w.set = set
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

// admit is the policy of deploy/cluster/hold-statefulsets.yaml, variable by variable.
func admit(old, set *appsv1.StatefulSet, ours, released bool) {
	enabledBefore := old.Labels[api.EnabledLabel] == "true"
	_, held := old.Annotations[api.HoldAnnotation]
	held = held && enabledBefore
	kept := wishedPartition(old)
	before, asked := partition(old), partition(set)
	carried := before
	if before != everything {
		carried = min(max(before+observation{set: old}.start()-observation{set: set}.start(), 0), everything)
	}
	saved, keeps := set.Annotations[api.HoldAnnotation]
	said, err := strconv.ParseUint(saved, 10, 31)
	says := err == nil && int(said) <= asked
	silent := held && (asked == before || asked == carried || asked == everything)
	wish := asked
	switch {
	case ours && held:
		wish = kept
	case says && (silent || !held):
		wish = int(said)
	case silent:
		wish = kept
	case keeps && !held && asked == everything:
		if wish = before; before == everything {
			wish = 0
		}
	}
	edited := !equality.Semantic.DeepEqual(old.Spec.Template, set.Spec.Template)
	stirs := edited || !rolling(old) || !enabledBefore || wish < carried
	instruction, instructed := set.Annotations[api.PartitionAnnotation]
	instructs := ours && !edited
	hold := policy.Enabled(set) && rolling(set) && !released && (held || stirs)
	if instructs {
		hold = keeps
	}
	result := max(carried, wish)
	switch {
	case instructs && instructed:
		result, _ = strconv.Atoi(instruction)
	case instructs && held && !keeps:
		result = kept
	case instructs:
		result = asked
	case !hold:
		result = wish
	case edited || !enabledBefore || !rolling(old):
		result = everything
	}
	inForce := ""
	switch {
	case !policy.Enabled(set):
	case edited || !enabledBefore:
		if inForce = set.Annotations[api.ResizeActionAnnotation] + ";" + set.Annotations[api.ResizePolicyAnnotation]; inForce == ";" {
			inForce = ""
		}
	default:
		inForce = old.Annotations[api.InForceAnnotation]
	}
	if inForce != "" {
		set.Annotations[api.InForceAnnotation] = inForce
	} else {
		delete(set.Annotations, api.InForceAnnotation)
	}
	if hold && (held || !instructs) {
		set.Annotations[api.HoldAnnotation] = strconv.Itoa(wish)
	}
	if !hold {
		delete(set.Annotations, api.HoldAnnotation)
	}
	delete(set.Annotations, api.PartitionAnnotation)
	if rolling(set) {
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(result))
	}
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
		// deploy/cluster/pending-statefulsets.yaml
		i := slices.IndexFunc(status.Conditions, func(c appsv1.StatefulSetCondition) bool { return c.Type == api.ConditionComplete })
		if i >= 0 && set.Labels[api.EnabledLabel] == "true" && (status.UpdateRevision != set.Status.UpdateRevision || policy.Held(set) && status.Conditions[i].Status == corev1.ConditionTrue) {
			c := &status.Conditions[i] // its time stays: a policy cannot set it
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, rollout.ReasonPending, ""
		}
		written := set.DeepCopy()
		written.Status = status
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
				revision = status.CurrentRevision // trap T1
			}
			name := w.name(i)
			if w.Pods[name] == nil {
				born := w.newPod(set, name, revision)
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

// pass lets time pass, in which no watch of the StatefulSet controller is behind for longer than watchLag.
func (w *world) pass(d time.Duration) {
	now := w.Clock.Now().Add(d)
	if now.Sub(w.seenPodsAt) > watchLag {
		w.kcmSees(false, true)
	}
	w.Clock.SetTime(now)
}

// serve makes client the API server of this world for the controller's writes.
func (w *world) serve(client *fake.Clientset) {
	client.AddReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(w.RV)}}
		for _, pod := range w.Pods {
			list.Items = append(list.Items, *pod.DeepCopy())
		}
		return true, list, nil
	})
	client.AddReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod, err := w.patchPod(action.(clienttesting.PatchAction))
		return true, pod, err
	})
	client.AddReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.DeleteActionImpl)
		pod := w.Pods[request.Name]
		if pod == nil {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, request.Name)
		}
		p := request.DeleteOptions.Preconditions
		if err := simulated.Meets(pod, ptr.Deref(p.UID, ""), ptr.Deref(p.ResourceVersion, "")); err != nil {
			return true, nil, err
		}
		w.DeletePod(request.Name)
		return true, nil, nil
	})
	client.AddReactor("patch", "statefulsets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.PatchAction)
		set, err := simulated.Patched(w.set, &appsv1.StatefulSet{}, request.GetPatch())
		if err != nil {
			return true, nil, err
		}
		if request.GetSubresource() == "status" {
			w.storeSet(set)
		} else {
			w.writeSet(set, !w.unknown)
		}
		return true, set, nil
	})
}

func (w *world) patchPod(request clienttesting.PatchAction) (*corev1.Pod, error) {
	old := w.Pods[request.GetName()]
	if old == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, request.GetName())
	}
	pod, err := simulated.Patched(old, &corev1.Pod{}, request.GetPatch())
	if err != nil {
		return nil, err
	}
	if request.GetSubresource() == "resize" {
		if err := w.Resize(old, pod); err != nil {
			return nil, err
		}
	} else {
		w.Relabel(pod)
	}
	w.WritePod(pod)
	return pod, nil
}

func label(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

func version64(object interface{ GetResourceVersion() string }) int {
	n, _ := strconv.Atoi(object.GetResourceVersion())
	return n
}

// under is a place that the rollout of one edit has taken.
type under struct {
	edit string
	uid  types.UID // of the pod that is resized, or must be gone
	gone bool
}

// simulation drives the planning of this package in a world, as controller.go and
// apply.go do, and checks after every step what must never happen.
type simulation struct {
	*world
	t          *rapid.T
	controller *Controller
	store      cache.Store            // what the controller has seen of the set
	podsSeen   map[string]*corev1.Pod // and of the pods
	podsWrote  map[string]*corev1.Pod
	session    *session
	lag        struct{ KCM, Controller bool } // whose view of the pods is a round behind
	planned    func()                         // the step that the controller has decided on

	anyhow bool // users opt out, let go, and choose OnDelete: then the StatefulSet controller restarts what it likes
	under  map[int]under
	doomed map[types.UID]string // needed a restart when the partition was moved for this edit
	sick   map[types.UID]bool   // crashed for good while the set was held
	asked  map[types.UID]string // the edit for which a pod was last asked while it was Ready

	restarting map[int]types.UID  // pods whose container has been asked to restart, by their place
	excused    map[types.UID]bool // born unknown to a plan, or from a revision that was out of date

	admits bool // admission sets the requests of new pods, as a vertical autoscaler does
	births map[types.UID]birth
}

// birth is what is known of a pod that it does not tell.
type birth struct{ revision, edit string }

// must fails where something has happened that must not, unless the users do what lets it.
func (s *simulation) must(format string, args ...any) {
	if !s.anyhow {
		s.t.Fatalf(format, args...)
	}
}

// editAnnotation numbers the users' changes of the template.
const editAnnotation = "test/edit"

func edit(set *appsv1.StatefulSet) string { return set.Annotations[editAnnotation] }

func (s *simulation) restart() {
	s.session, s.planned = &session{Refusals: controller.Refusals{}, Seen: &controller.Sightings{}}, nil
	client := &fake.Clientset{}
	s.serve(client)
	options := controller.Options{Defaults: defaults, Ready: func() error { return nil }}
	nodes, err := capacity.NewNodes(client)
	s.noError(err)
	s.controller, err = New(s.t.Context(), client, &record.FakeRecorder{}, nodes, options)
	s.noError(err)
	s.controller.Clock = s.Clock
	s.store = s.controller.Store()
	s.podsWrote = map[string]*corev1.Pod{}
	s.sees()
}

// sees lets both watches of the controller catch up.
func (s *simulation) sees() {
	_ = s.store.Update(s.set)
	s.podsSeen = maps.Clone(s.Pods)
}

// view is what pods.Watch lists: the newer of what was seen and what was written.
func (s *simulation) view() []*corev1.Pod {
	var list []*corev1.Pod
	for name, pod := range s.podsSeen {
		if wrote := s.podsWrote[name]; wrote != nil && version64(wrote) > version64(pod) {
			pod = wrote
		}
		list = append(list, pod)
	}
	return list
}

// plans is the first half of Controller.sync.
func (s *simulation) plans() {
	set, _, err := s.controller.Get(cache.MetaObjectToName(s.set))
	s.noError(err)
	s.planned = nil
	if set.Status.ObservedGeneration < set.Generation || !policy.Enabled(set) {
		return
	}
	if said, rests := atRest(set); rests {
		s.planned = func() { s.tell(set, said) }
		return
	}
	o := observation{
		set: set, pods: s.view(), nodes: []*corev1.Node{largeNode()}, revisions: revisions,
		refusals: s.session.Refusals, seen: s.session.Seen, defaults: defaults, now: s.Clock.Now(),
	}
	p, err := nextStep(s.t.Context(), o)
	s.noError(err)
	if p.movesPartition() || len(p.Delete) > 0 || p.Condition.Complete {
		o.pods = slices.Collect(maps.Values(s.Pods))
		p, err = nextStep(s.t.Context(), o)
		s.noError(err)
	}
	s.planned = func() { s.apply(o, p) }
}

func (s *simulation) acts() {
	if s.planned != nil {
		s.planned()
		s.planned = nil
	}
}

func (s *simulation) tell(set *appsv1.StatefulSet, news controller.News) bool {
	_, err := s.controller.Tell(s.t.Context(), set, news)
	if c := condition(set); err == nil && news.Condition.Complete && (c == nil || c.Status != corev1.ConditionTrue) {
		s.isComplete()
	}
	return s.noError(err)
}

// isComplete checks the pods when somebody who waits is told that the rollout is over.
// One may have been lost since they were looked at, but none is of an older revision, or
// has the size of another.
func (s *simulation) isComplete() {
	newest := revisionOf(simulated.VersionOf(&s.set.Spec.Template.Spec))
	for i := keptBack(s.set); i < replicas(s.set); i++ {
		if pod := s.Pods[s.name(i)]; pod != nil && pod.DeletionTimestamp == nil && (label(pod) != newest || !s.admitted(pod, versions[newest]) && simulated.VersionOf(&pod.Spec) != versions[newest]) {
			s.t.Fatalf("the set says Complete, and %s is of %s with %+v", pod.Name, label(pod), simulated.VersionOf(&pod.Spec))
		}
	}
}

// apply follows Controller.apply.
func (s *simulation) apply(o observation, p plan) {
	if !p.Release {
		s.tell(o.set, p.news(o.set))
	}
	client := s.controller.Client.CoreV1()
	for _, m := range p.Settle {
		truth := s.Pods[m.Name]
		settled, err := pods.Relabel(s.t.Context(), client, m.Pod, o.set.Status.UpdateRevision)
		if !s.noError(err) {
			continue
		}
		s.podsWrote[m.Name] = settled
		want := versions[o.set.Status.UpdateRevision]
		if have := simulated.AppliedSize(truth); simulated.VersionOf(&truth.Spec) != want || truth.Spec.NodeName != "" && (have.CPU != want.CPU || have.Memory != want.Memory) {
			s.t.Fatalf("settled %s, which has %+v, as %+v", m.Name, have, want)
		}
	}
	for i, m := range p.Resize {
		if s.forced(m.Pod, o.set, true) {
			s.must("resizes %s, which has to restart: %q is in force", m.Name, o.set.Annotations[api.InForceAnnotation])
		}
		s.mayResize(o, m, p.Resize[:i])
		resized, err := pods.Resize(s.t.Context(), client, m.Pod, m.Target)
		if apierrors.IsInvalid(err) {
			s.refused(o.set, m, err)
			continue
		}
		if s.noError(err) {
			s.podsWrote[m.Name] = resized
			s.session.Seen.Asked(m)
			if podutils.IsPodReady(m.Pod) { // otherwise it was not available anyway
				s.takes(o.set, m.Index, under{edit: edit(o.set), uid: resized.UID})
			} else {
				s.keptBack(o.set, m.Index)
			}
		}
	}
	for _, r := range p.Delete {
		m := r.Member
		ready := podutils.IsPodReady(m.Pod)
		if !s.noError(pods.Delete(s.t.Context(), client, m.Pod)) {
			continue
		}
		s.stays(o.set, m.Pod)
		if !s.needsRestart(m.Pod, o.set) {
			s.must("deleted %s, which needs no restart", m.Name)
		}
		if ready { // otherwise it was not available anyway
			s.takes(o.set, m.Index, under{edit: edit(o.set), uid: m.Pod.UID, gone: true})
		}
	}
	if p.movesPartition() && s.noError(s.controller.movePartition(s.t.Context(), o.set, p)) {
		s.exposes(o.pods)
	}
}

// mayResize checks what a pod may be asked beside those that the step has asked
// before, by what the plan was made from. With its container about to restart, it and
// all that are not available may not be more than maxUnavailable, whatever made them so.
// And a size is tried on one pod first, then on as many more as have proved it.
func (s *simulation) mayResize(o observation, m rollout.Member, before []rollout.Member) {
	want, most := simulated.VersionOf(&o.set.Spec.Template.Spec), maxUnavailable(o.set)
	restarts, at := simulated.Restarts(m.Pod, want), o.byIndex()
	if !podutils.IsPodReady(m.Pod) { // it has its share already
		if restarts {
			s.restarting[m.Index] = m.Pod.UID
			if n := len(s.restarting); n > most {
				s.must("restarts the containers of %d pods at once, more than maxUnavailable %d", n, most)
			}
		}
		return
	}
	down, underWay, proved, unproved := 0, 0, 0, 0
	for i := range replicas(o.set) {
		pod := at[i]
		asked := slices.ContainsFunc(before, func(b rollout.Member) bool { return b.Index == i && podutils.IsPodReady(b.Pod) })
		has := pod != nil && simulated.SizeOf(pod) == version{CPU: want.CPU, Memory: want.Memory} && simulated.VersionOf(&pod.Spec).Image == want.Image
		is := has && simulated.AppliedSize(pod) == simulated.SizeOf(pod) && pod.Status.ObservedGeneration == pod.Generation
		switch {
		case i == m.Index:
		case !o.available(pod) && !restarts && pod != nil && pod.DeletionTimestamp == nil && s.needsRestart(pod, o.set):
			// It may wait for this one in turn.
		case pod == nil && !restarts && m.Target.GivesRoom():
			// It may wait for the room that this one gives.
		case !o.available(pod):
			down++
			if has && !rollout.Gone(pod) && !s.needsRestart(pod, o.set) && i >= wishedPartition(o.set) && s.asked[pod.UID] == edit(o.set) {
				unproved++
			}
		case is || s.admitted(pod, want):
			proved++
		case asked:
			underWay++
		case !has && pending(pod):
			// It waits for room for the size of an edit that was given up, and is asked for another soon.
		case simulated.SizeOf(pod) != simulated.AppliedSize(pod) && !s.needsRestart(pod, o.set):
			underWay++
			unproved += asInt(has)
		}
	}
	if down+underWay >= most {
		s.must("resizes %s, and %d others are not available, and %d under way: maxUnavailable is %d", m.Name, down, underWay, most)
	}
	fresh := 0
	for _, b := range before {
		fresh += asInt(!b.Cures())
	}
	if proved < most && (unproved > 0 || fresh > proved) {
		s.must("resizes %s with %d others, while %d pods have proved the size, and %d have yet to", m.Name, fresh, proved, unproved)
	}
	if restarts {
		s.restarting[m.Index] = m.Pod.UID
	}
	s.asked[m.Pod.UID] = edit(o.set)
}

func pending(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// refused keeps a refusal as Controller.refused does, but without chance in the time until the next try.
func (s *simulation) refused(set *appsv1.StatefulSet, m rollout.Member, err error) {
	size := controller.Size(set.Status.UpdateRevision, m.Target.Changes)
	if r := s.session.Refusals[m.Pod.UID]; r == nil || r.Size != size {
		predictable := controller.NewBackoff()
		predictable.RandomizationFactor = 0
		s.session.Refusals[m.Pod.UID] = &controller.Refusal{Size: size, Backoff: predictable}
	}
	s.session.Refusals.Keep(m.Pod.UID, size, pods.Refusal(err), s.Clock.Now())
}

// keptBack checks the user's partition for a place that is touched.
func (s *simulation) keptBack(set *appsv1.StatefulSet, index int) {
	if wish := wishedPartition(set); index < wish {
		s.must("touched index %d, which the user's partition %d keeps back", index, wish)
	}
}

// takes checks the user's partition and maxUnavailable for a place that is taken.
func (s *simulation) takes(set *appsv1.StatefulSet, index int, u under) {
	s.keptBack(set, index)
	s.under[index] = u
	taken := 0
	for _, other := range s.under {
		if other.edit == u.edit {
			taken++
		}
	}
	if taken > maxUnavailable(set) {
		s.must("%d places are under way, more than maxUnavailable %d", taken, maxUnavailable(set))
	}
}

// exposes checks the pods that a moved partition lets the StatefulSet controller restart.
func (s *simulation) exposes(known []*corev1.Pod) {
	newest := revisionOf(simulated.VersionOf(&s.set.Spec.Template.Spec))
	for _, pod := range s.Pods {
		index, _ := observation{set: s.set}.index(pod)
		if index < partition(s.set) || label(pod) == newest || pod.DeletionTimestamp != nil {
			continue
		}
		i := slices.IndexFunc(known, func(k *corev1.Pod) bool { return k.UID == pod.UID })
		switch {
		case i < 0:
			s.excused[pod.UID] = true
		case s.needsRestart(known[i], s.set):
			s.doomed[pod.UID] = edit(s.set)
		case index >= replicas(s.set):
			s.excused[pod.UID] = true // about to be scaled away; the user may scale up again before that
		default:
			s.must("partition %d exposes %s, which can be resized live", partition(s.set), pod.Name)
		}
	}
}

// needsRestart tells by the rules of the world whether only a new pod can be one of set's template.
func (s *simulation) needsRestart(pod *corev1.Pod, set *appsv1.StatefulSet) bool {
	want, have := simulated.VersionOf(&set.Spec.Template.Spec), simulated.VersionOf(&pod.Spec)
	o := s.Outcome(pod, version{CPU: want.CPU, Memory: want.Memory})
	unfit := o.Refused || o.Infeasible
	differs := simulated.AppliedSize(pod).CPU != want.CPU || simulated.AppliedSize(pod).Memory != want.Memory
	return want.Image != have.Image || have.Memory > 0 && want.Memory == 0 || unfit && differs || s.forced(pod, set, differs)
}

// forced tells whether what is in force says that a pod that has not come to the size of set's template restarts.
func (s *simulation) forced(pod *corev1.Pod, set *appsv1.StatefulSet, differs bool) bool {
	want := simulated.VersionOf(&set.Spec.Template.Spec)
	action, list, _ := strings.Cut(set.Annotations[api.InForceAnnotation], ";")
	if action != string(policy.Restart) {
		return simulated.Forbids(list, pod, want)
	}
	if label(pod) == revisionOf(want) {
		return differs || simulated.SizeOf(pod).CPU != want.CPU || simulated.SizeOf(pod).Memory != want.Memory
	}
	arrived := simulated.VersionOf(&pod.Spec) == want && !differs && pod.Status.ObservedGeneration == pod.Generation && len(pod.Status.Conditions) == 1 && podutils.IsPodReady(pod)
	return !arrived
}

// restarted is told of each pod that the StatefulSet controller is about to delete for its revision.
func (s *simulation) restarted(pod *corev1.Pod) {
	set := s.seenSet
	s.stays(set, pod)
	index, _ := observation{set: set}.index(pod)
	if wish := wishedPartition(set); index < wish {
		s.must("the StatefulSet controller restarts %s, which the user's partition %d keeps back", pod.Name, wish)
	}
	if !s.excused[pod.UID] && s.doomed[pod.UID] != edit(set) && !s.needsRestart(pod, set) {
		s.must("the StatefulSet controller restarts %s, which needs no restart", pod.Name)
	}
	if policy.Held(set) && podutils.IsPodReady(pod) { // otherwise it was not available anyway
		s.under[index] = under{edit: edit(set), uid: pod.UID, gone: true}
	}
}

// born is told of each new pod. The StatefulSet controller may make one from what
// it saw of the set before we let go, and restart it when it sees that we did.
func (s *simulation) born(pod *corev1.Pod) {
	s.births[pod.UID] = birth{label(pod), edit(s.set)}
	if s.admits {
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2m")
	}
	if partition(s.seenSet) != partition(s.set) {
		s.excused[pod.UID] = true
	}
	index, _ := observation{set: s.set}.index(pod)
	wish := wishedPartition(s.set)
	if u := s.under[index]; u.gone && index >= wish && u.edit == edit(s.set) && label(pod) != revisionOf(simulated.VersionOf(&s.set.Spec.Template.Spec)) {
		s.must("restarted %s for nothing: it is born again from the old revision", pod.Name)
	}
}

// stays checks that no place is restarted twice for one edit: a pod that was born of its
// revision is done, whatever admission has made of it.
func (s *simulation) stays(set *appsv1.StatefulSet, pod *corev1.Pod) {
	if newest := revisionOf(simulated.VersionOf(&set.Spec.Template.Spec)); s.births[pod.UID] == (birth{newest, edit(set)}) {
		s.must("%s is restarted, which was born of %s", pod.Name, newest)
	}
}

// admitted tells whether the pod was born of that version, and is what admission has made of it.
func (s *simulation) admitted(pod *corev1.Pod, v version) bool {
	return s.admits && s.births[pod.UID].revision == revisionOf(v) && simulated.SizeOf(pod).CPU == 2
}

// frees gives back the places whose pod has come through, or has been refused its size.
func (s *simulation) frees() {
	for index, uid := range s.restarting {
		pod := s.Pods[s.name(index)]
		if pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil || simulated.SizeOf(pod) == simulated.AppliedSize(pod) && podutils.IsPodReady(pod) {
			delete(s.restarting, index)
		}
	}
	for index, u := range s.under {
		pod := s.Pods[s.name(index)]
		if index >= replicas(s.set) || pod != nil && (pod.UID != u.uid || !u.gone && (simulated.SizeOf(pod) == simulated.AppliedSize(pod) || s.needsRestart(pod, s.set) && pending(pod))) &&
			pod.DeletionTimestamp == nil && podutils.IsPodAvailable(pod, s.set.Spec.MinReadySeconds, metav1.NewTime(s.Clock.Now())) {
			delete(s.under, index)
		}
	}
}

// noError passes over what the next look mends: conflicts, and pods that are gone.
func (s *simulation) noError(err error) bool {
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return err == nil
}

// step is one thing that happens.
type step struct {
	Do  string
	Arg int
}

// happenings, with how often each occurs.
var happenings = map[string]int{
	"round": 8, "kubelet": 8, "kubelets": 3, "kcm sees the set": 3, "kcm sees the pods": 3, "kcm": 6, "sees": 4, "plans": 4, "acts": 4, "syncs": 4,
	"edit cpu": 2, "edit memory": 2, "edit image": 1, "first template": 1, "scale": 1, "partition": 1, "delete": 1, "crash": 1, "time": 1, "restart": 1,
	"action": 1, "policy": 1,
}

func steps(more ...string) *rapid.Generator[[][]step] {
	names := more
	for _, name := range slices.Sorted(maps.Keys(happenings)) {
		names = append(names, slices.Repeat([]string{name}, happenings[name])...)
	}
	return rapid.SliceOf(rapid.SliceOf(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.SampledFrom(names).Draw(t, "do"), rapid.IntRange(0, 11).Draw(t, "arg")}
	})))
}

func (s *simulation) do(happens step, first version) {
	pod := s.Pods[s.name(happens.Arg%replicas(s.set))]
	change := func(with func(*version)) {
		s.user(func(set *appsv1.StatefulSet) {
			v := simulated.VersionOf(&set.Spec.Template.Spec)
			before := v
			if with(&v); v == before {
				return
			}
			set.Spec.Template = *templates[v]
			n, _ := strconv.Atoi(edit(set))
			set.Annotations[editAnnotation] = strconv.Itoa(n + 1)
		})
	}
	switch happens.Do {
	case "round":
		s.round()
	case "kubelet":
		if pod != nil {
			s.Kubelet(pod.Name)
		}
	case "kubelets":
		s.Kubelets()
	case "kcm sees the set":
		s.kcmSees(true, false)
	case "kcm sees the pods":
		s.kcmSees(false, true)
	case "kcm":
		s.kcm()
	case "sees":
		s.sees()
	case "plans":
		s.plans()
	case "acts":
		s.acts()
	case "syncs":
		s.sees()
		s.plans()
		s.acts()
	case "restart":
		s.restart()
	case "edit cpu":
		change(func(v *version) { v.CPU = 1 + happens.Arg%3 })
	case "edit memory":
		change(func(v *version) { v.Memory = happens.Arg % 3 })
	case "edit image":
		change(func(v *version) { v.Image = 1 + happens.Arg%2 })
	case "first template":
		change(func(v *version) { *v = first })
	case "action":
		s.user(func(set *appsv1.StatefulSet) {
			set.Annotations[api.ResizeActionAnnotation] = []string{"", string(policy.Restart), string(policy.LiveResizePreferred)}[happens.Arg%3]
		})
	case "policy":
		s.user(func(set *appsv1.StatefulSet) {
			set.Annotations[api.ResizePolicyAnnotation] = simulated.Policies[happens.Arg%len(simulated.Policies)]
		})
	case "scale":
		s.user(func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(int32(1 + happens.Arg%6)) })
	case "partition":
		s.user(func(set *appsv1.StatefulSet) {
			if !rolling(set) {
				return
			}
			set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(happens.Arg % 6))
		})
	case "opt":
		s.user(func(set *appsv1.StatefulSet) {
			set.Labels = map[string]string{api.EnabledLabel: strconv.FormatBool(happens.Arg%3 > 0)}
		})
	case "release": // inplace-rollout release
		if policy.Held(s.set) {
			s.releasing = true
			s.user(func(*appsv1.StatefulSet) {})
			s.releasing = false
		}
	case "abandon": // an edit, which is undone and let go of while no controller runs
		s.do(step{"edit cpu", happens.Arg}, first)
		for range 1 + happens.Arg/3 {
			s.round()
		}
		s.do(step{"first template", 0}, first)
		s.do(step{"release", 0}, first)
	case "strategy":
		s.user(func(set *appsv1.StatefulSet) {
			set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
			if happens.Arg%3 > 0 {
				set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
					Type:          appsv1.RollingUpdateStatefulSetStrategyType,
					RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(int32(happens.Arg % 4)), MaxUnavailable: ptr.To(intstr.FromInt32(1))},
				}
			}
		})
	case "delete":
		if pod != nil {
			s.DeletePod(pod.Name)
		}
	case "crash":
		if pod != nil && pod.DeletionTimestamp == nil {
			if happens.Arg > 5 { // until it has another size
				s.Broken[pod.UID] = simulated.AppliedSize(pod)
				s.sick[pod.UID] = policy.Held(s.set) && s.planned == nil
			}
			crashed := pod.DeepCopy()
			s.SetReady(crashed, false)
			s.WritePod(crashed)
		}
	case "time":
		s.pass(4 * time.Second)
	}
}

// round lets everybody do one thing, in the order that lag makes of it.
func (s *simulation) round() {
	s.pass(time.Second)
	if s.lag.Controller {
		s.sees()
	}
	s.Kubelets()
	s.frees()
	s.kcmSees(true, !s.lag.KCM)
	s.kcm()
	s.kcmSees(true, true)
	if !s.lag.Controller {
		s.sees()
	}
	s.plans()
	s.acts()
	if s.lag.KCM { // time for two steps before it has seen the first
		_ = s.store.Update(s.set)
		s.plans()
		s.acts()
	}
}

// cured checks, at rest, that no pod is left as it is that a new size, or a restart
// that is ours to force, may make Ready: an OrderedReady set waits for a pod that is
// not Ready before it restarts any. Weakened: a restart waits for what is stale or
// missing above it, which may wait for the StatefulSet controller, which waits for
// that pod (see TestNextStepDeadlocks).
func (s *simulation) cured() {
	want := simulated.VersionOf(&s.set.Spec.Template.Spec)
	for _, pod := range s.Pods {
		index, _ := observation{set: s.set}.index(pod)
		wish := wishedPartition(s.set)
		if !s.sick[pod.UID] || podutils.IsPodReady(pod) || index < wish || index >= replicas(s.set) || simulated.VersionOf(&pod.Spec).Image != want.Image {
			continue
		}
		above := false
		for i := index + 1; i < replicas(s.set); i++ {
			other := s.Pods[s.name(i)]
			above = above || other == nil || label(other) != revisionOf(want) || !podutils.IsPodReady(other)
		}
		if s.needsRestart(pod, s.set) && above {
			continue
		}
		if s.admitted(pod, want) {
			continue
		}
		if have := simulated.AppliedSize(pod); s.needsRestart(pod, s.set) || have.CPU != want.CPU || have.Memory != want.Memory {
			s.t.Fatalf("%s is not Ready, has %+v, needs a restart: %t, and nobody does anything about it", pod.Name, have, s.needsRestart(pod, s.set))
		}
	}
}

// rest lets everything run until nothing changes any more.
func (s *simulation) rest() {
	for quiet, rounds := 0, 0; quiet < 15; rounds++ { // longer than minReadySeconds and the interval of messages
		before := s.RV
		s.round()
		if quiet++; s.RV != before {
			quiet = 0
		}
		if rounds > 1000 {
			s.t.Fatal("it does not come to rest")
		}
	}
}

// unfinished tells what of the rollout is not done, or "".
func (w *world) unfinished() string {
	return w.unfinishedBut(func(*corev1.Pod, version) bool { return false })
}

// unfinished leaves out what admission has made of pods.
func (s *simulation) unfinished() string { return s.unfinishedBut(s.admitted) }

func (w *world) unfinishedBut(admitted func(*corev1.Pod, version) bool) string {
	if policy.Held(w.set) {
		return fmt.Sprintf("the set is held: %+v", w.set.Status.Conditions)
	}
	want := simulated.VersionOf(&w.set.Spec.Template.Spec)
	for i := partition(w.set); i < replicas(w.set); i++ {
		pod := w.Pods[w.name(i)]
		if pod == nil || label(pod) != revisionOf(want) || !admitted(pod, want) && simulated.VersionOf(&pod.Spec) != want || simulated.AppliedSize(pod) != simulated.SizeOf(pod) || !podutils.IsPodReady(pod) {
			return fmt.Sprintf("index %d is not a Ready pod of %s", i, revisionOf(want))
		}
	}
	if c := condition(w.set); c == nil || c.Status != corev1.ConditionTrue {
		return "the condition does not say Complete"
	}
	return ""
}

func TestSimulation(t *testing.T) {
	load(t)
	simulated.Pin(t, 1, 700)
	rapid.Check(t, func(t *rapid.T) {
		first := version{Image: rapid.SampledFrom([]int{1, 3}).Draw(t, "image"), CPU: 1, Memory: rapid.IntRange(0, 1).Draw(t, "memory")}
		set := webSet(first, rapid.IntRange(1, 6).Draw(t, "replicas"))
		if start := rapid.IntRange(0, 3).Draw(t, "start"); start > 0 {
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(start)}
		}
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(1, 3).Draw(t, "maxUnavailable")))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "partition")))
		if rapid.Bool().Draw(t, "parallel") {
			set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		}
		set.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "minReadySeconds"))
		outcomes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) simulated.Outcome {
			return rapid.SampledFrom([]simulated.Outcome{{}, {Slow: 2}, {Deferred: 3}, {Deferred: 1, Slow: 1}, {Infeasible: true}, {Refused: true}, {Unready: true}, {Slow: 1, Unready: true}}).Draw(t, "outcome")
		}), 0, 7).Draw(t, "outcomes")
		admits := rapid.IntRange(0, 3).Draw(t, "admission") == 3
		lags, happens := rapid.IntRange(0, 3).Draw(t, "lags"), steps().Draw(t, "steps")

		s := &simulation{world: newWorld(set, outcomes), t: t, under: map[int]under{}, doomed: map[types.UID]string{}, excused: map[types.UID]bool{}, sick: map[types.UID]bool{}, births: map[types.UID]birth{},
			asked: map[types.UID]string{}, restarting: map[int]types.UID{}}
		s.lag.KCM, s.lag.Controller = lags&1 > 0, lags&2 > 0
		s.restarts, s.birth = s.restarted, s.born
		s.restart()
		for range 30 {
			s.round()
		}
		s.admits = admits // from now on
		for _, one := range slices.Concat(happens...) {
			s.do(one, first)
			s.frees()
		}
		s.rest()
		if s.unfinished() != "" {
			// Where only people can help, they do.
			s.cured()
			s.Mended = true
			clear(s.Broken)
			s.rest()
		}
		if left := s.unfinished(); left != "" {
			t.Fatal(left)
		}
	})
}

// TestSimulationOfComplete: whatever users do to the strategy, the hold and the label, Complete is
// never said while a pod that may move is of another revision or size, and comes to be said.
func TestSimulationOfComplete(t *testing.T) {
	load(t)
	simulated.Pin(t, 1, 400)
	rapid.Check(t, func(t *rapid.T) {
		first := version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 1).Draw(t, "memory")}
		set := webSet(first, rapid.IntRange(1, 4).Draw(t, "replicas"))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "partition")))
		outcomes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) simulated.Outcome {
			return rapid.SampledFrom([]simulated.Outcome{{}, {Slow: 2}, {Deferred: 3}, {Infeasible: true}}).Draw(t, "outcome")
		}), 0, 7).Draw(t, "outcomes")
		happens := steps("opt", "opt", "release", "abandon", "abandon", "strategy", "strategy").Draw(t, "steps")

		s := &simulation{
			world: newWorld(set, outcomes), t: t, anyhow: true,
			under: map[int]under{}, doomed: map[types.UID]string{}, excused: map[types.UID]bool{}, sick: map[types.UID]bool{}, births: map[types.UID]birth{},
			asked: map[types.UID]string{}, restarting: map[int]types.UID{},
		}
		s.restarts, s.birth = s.restarted, s.born
		s.restart()
		for range 30 {
			s.round()
		}
		for _, one := range slices.Concat(happens...) {
			s.do(one, first)
			s.frees()
		}
		clear(s.Broken)
		s.user(func(set *appsv1.StatefulSet) { set.Labels = map[string]string{api.EnabledLabel: "true"} })
		s.rest()
		if c := condition(s.set); c != nil && c.Status == corev1.ConditionTrue {
			s.isComplete()
		}
		if !rolling(s.set) {
			for name := range s.Pods { // what waits for it
				s.DeletePod(name)
			}
			s.rest()
		}
		if left := s.unfinished(); left != "" {
			t.Fatalf("%s: %+v", left, condition(s.set))
		}
		s.isComplete()
	})
}
