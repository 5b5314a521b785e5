package simulated

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Set is a StatefulSet or DaemonSet.
type Set interface {
	comparable
	Object
}

// Fields are where a world finds those of one kind of set.
type Fields[S Set] struct {
	// Resource of the kind, in the plural.
	Resource        string
	Spec            func(S) any
	Template        func(S) *corev1.PodTemplateSpec
	MinReadySeconds func(S) int32
	Condition       func(S) *rollout.StoredCondition
	// Rolling: the built-in controller restarts pods by itself.
	Rolling func(S) bool
	// List is the answer to whoever lists the sets, at that version.
	List func(version metav1.ListMeta, set S) runtime.Object
	// Prepare has the API server count in a set, which was another one before, what it counts by itself.
	Prepare func(before, after S)
	// Admission has the policies that hold sets of this kind.
	Admission interface {
		Admit(old, written S, by Writer, others func(S))
		AdmitStatus(old, written S, ours bool)
	}
}

// BuiltIn is the built-in controller of a kind of set.
type BuiltIn interface {
	// Reconcile is one sync, from what it has seen.
	Reconcile()
	// Observe is called before its watch of the pods catches up.
	Observe()
	// Revisions are those that it has made.
	Revisions() []*appsv1.ControllerRevision
	// Of is the version that the revision of a pod says; none if it has no revision.
	Of(pod *corev1.Pod) Version
	// Lacks says which pod is not done, is missing or is one too many, or "".
	Lacks(done func(*corev1.Pod) bool) string
}

// Workload is a small cluster with one set: an API server with the admission policies of deploy/, the
// built-in controller, nodes and their kubelets, each of which does one thing when its method is called.
// Objects are never changed, only replaced, so that a copy of a map is what a watch has seen at some time.
type Workload[S Set] struct {
	*Cluster
	Fields Fields[S]

	Set S
	// Nodes are the nodes, by name.
	Nodes map[string]*corev1.Node
	// Ranges are the LimitRanges.
	Ranges []corev1.LimitRange

	// Unguarded: the admission policies are gone. Unknown: they take the controller for a user.
	Unguarded, Unknown bool
	// Webhook changes what the controller writes, after the policies have been asked.
	Webhook func(S)
	// Admitted reports whether the pod is what hands have made of that version.
	Admitted func(*corev1.Pod, Version) bool

	// Saw is what the built-in controller has seen.
	Saw struct {
		Set   S
		Pods  map[string]*corev1.Pod
		Nodes map[string]*corev1.Node
	}

	builtIn   BuiltIn
	empty     func() S
	idle      runtime.Object // the last write of a status that has changed nothing
	lag       time.Duration
	releasing bool // the next write is the one of inplace-rollout release

	// When the built-in controller has seen the pods, and what it must see of its own writes before it does
	// anything (StaleControllerConsistencyStatefulSet and …DaemonSet).
	sawAt                    time.Time
	sawRV, created, statusRV int
}

// NewWorkload has a world with that set and these nodes. The built-in controller's watch of the pods is never
// behind for longer than lag.
func NewWorkload[W any, S interface {
	*W
	Set
}](c *Cluster, set S, fields Fields[S], builtIn BuiltIn, lag time.Duration, nodes ...*corev1.Node) *Workload[S] {
	w := &Workload[S]{
		Cluster: c, Fields: fields, Set: set, Nodes: map[string]*corev1.Node{}, builtIn: builtIn, lag: lag,
		empty: func() S { return new(W) }, Admitted: func(*corev1.Pod, Version) bool { return false },
	}
	for _, node := range nodes {
		w.Nodes[node.Name] = node
	}
	return w
}

// Write stores a set that admission has seen.
func (w *Workload[S]) Write(set S, ours bool) {
	if !w.Unguarded {
		webhook := w.Webhook
		if !ours {
			webhook = nil
		}
		w.Fields.Admission.Admit(w.Set, set, ByWhom(ours, w.releasing), webhook)
	}
	w.Fields.Prepare(w.Set, set)
	w.Generation(set, w.Fields.Spec(w.Set), w.Fields.Spec(set))
	w.Store(set)
}

// Store stores a set as it is.
func (w *Workload[S]) Store(set S) {
	w.Set = set
	w.Written(set)
}

// User changes the set as its user.
func (w *Workload[S]) User(change func(S)) {
	set := w.Set.DeepCopyObject().(S)
	if set.GetAnnotations() == nil {
		set.SetAnnotations(map[string]string{})
	}
	change(set)
	w.Write(set, false)
}

// Release is the command inplace-rollout release.
func (w *Workload[S]) Release() {
	if policy.Held(w.Set) || policy.Recorded(w.Set) {
		w.releasing = true
		w.User(func(S) {})
		w.releasing = false
	}
}

// Create stores a pod that the built-in controller has made.
func (w *Workload[S]) Create(pod *corev1.Pod) {
	w.WritePod(pod)
	w.created = w.RV
}

// WriteStatus stores a set with the status that the controller gives it, or the built-in one. Where nothing
// is changed, the API server writes nothing.
func (w *Workload[S]) WriteStatus(set S, ours bool) {
	if w.Unguarded || w.idle == nil || !equality.Semantic.DeepEqual(set, w.idle) { // else it has changed nothing a moment ago
		asked := set.DeepCopyObject()
		if !w.Unguarded {
			w.Fields.Admission.AdmitStatus(w.Set, set, ours)
		}
		if w.idle = asked; !equality.Semantic.DeepEqual(set, w.Set) {
			w.Store(set)
			w.idle = nil
		}
	}
	if !ours {
		w.statusRV = number(w.Set.GetResourceVersion())
	}
}

// CaughtUp reports whether the built-in controller has seen the set, and all that it has written itself.
func (w *Workload[S]) CaughtUp() bool {
	var none S
	return w.Saw.Set != none && w.sawRV >= w.created && number(w.Saw.Set.GetResourceVersion()) >= w.statusRV
}

// Forget has the built-in controller know nothing of a set that was there before this one.
func (w *Workload[S]) Forget() {
	var none S
	w.Saw.Set, w.statusRV = none, 0
}

// BuiltInSees lets the watches of the built-in controller catch up.
func (w *Workload[S]) BuiltInSees(set, pods, nodes bool) {
	if set {
		w.Looks(controllers[w.Fields.Resource], "set")
		w.Saw.Set = w.Set
	}
	if nodes {
		w.Saw.Nodes = w.Nodes
	}
	if pods {
		w.Looks(controllers[w.Fields.Resource], "pods")
		w.builtIn.Observe()
		w.Saw.Pods, w.sawAt, w.sawRV = maps.Clone(w.Pods), w.Clock.Now(), w.RV
	}
}

// Live lets the kubelets and the built-in controllers do one thing each.
func (w *Workload[S]) Live() {
	w.Kubelets()
	w.Collect()
	w.BuiltInSees(true, true, true)
	w.Reconcile()
	w.BuiltInSees(true, true, true)
}

// Reconcile is one sync of the built-in controller.
func (w *Workload[S]) Reconcile() {
	defer w.As(controllers[w.Fields.Resource])()
	w.builtIn.Reconcile()
}

// Collect is the garbage collector's for pods: what is bound to a node that is gone goes.
func (w *Workload[S]) Collect() {
	defer w.As(builtInUser("pod-garbage-collector"))()
	for _, name := range slices.Sorted(maps.Keys(w.Pods)) {
		if pod := w.Pods[name]; pod.Spec.NodeName != "" && w.Nodes[pod.Spec.NodeName] == nil {
			w.RemovePod(pod)
		}
	}
}

// Pass lets time pass.
func (w *Workload[S]) Pass(d time.Duration) {
	now := w.Clock.Now().Add(d)
	if now.Sub(w.sawAt) > w.lag {
		w.BuiltInSees(false, true, true)
	}
	w.Clock.SetTime(now)
}

// Serve makes client the API server of this world for the controller.
func (w *Workload[S]) Serve(client *fake.Clientset) {
	w.ServePods(client)
	list := func(resource string, items func() runtime.Object) {
		client.AddReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, items(), nil })
	}
	list("controllerrevisions", func() runtime.Object {
		all := &appsv1.ControllerRevisionList{}
		for _, r := range w.builtIn.Revisions() {
			all.Items = append(all.Items, *r)
		}
		return all
	})
	list("limitranges", func() runtime.Object { return &corev1.LimitRangeList{Items: w.Ranges} })
	list(w.Fields.Resource, func() runtime.Object {
		return w.Fields.List(metav1.ListMeta{ResourceVersion: strconv.Itoa(w.RV)}, w.Set)
	})
	ServeWorkload(w.Cluster, client, w.Fields.Resource, func() (now, empty S) { return w.Set, w.empty() },
		func(set S) { w.WriteStatus(set, !w.Unknown) }, func(set S) { w.Write(set, !w.Unknown) })
}

// Objects are all that the controller may watch.
func (w *Workload[S]) Objects() []runtime.Object {
	all := []runtime.Object{w.Set}
	for _, pod := range w.Pods {
		all = append(all, pod)
	}
	return all
}

// Stored names the resource of an object, and returns it as the API server hands it out.
func (w *Workload[S]) Stored(object runtime.Object) (string, runtime.Object) {
	if _, is := object.(S); is {
		return w.Fields.Resource, object.DeepCopyObject()
	}
	return "pods", object.DeepCopyObject()
}

// Wanted is the version of the set's template.
func (w *Workload[S]) Wanted(set S) Version { return VersionOf(&w.Fields.Template(set).Spec) }

// Unfinished returns what of the rollout is not done; empty if nothing.
func (w *Workload[S]) Unfinished() string {
	if policy.Held(w.Set) {
		return fmt.Sprintf("the set is held: %+v", w.Fields.Condition(w.Set))
	}
	want := w.Wanted(w.Set)
	done := func(pod *corev1.Pod) bool {
		return pod != nil && pod.DeletionTimestamp == nil && w.builtIn.Of(pod) == want && (w.Admitted(pod, want) || VersionOf(&pod.Spec) == want) &&
			AppliedSize(pod) == SizeOf(pod) && podutils.IsPodReady(pod)
	}
	if lacks := w.builtIn.Lacks(done); lacks != "" {
		return fmt.Sprintf("%s; wanted is %v", lacks, want)
	}
	if c := w.Fields.Condition(w.Set); !c.Complete() {
		return "the condition does not say Complete"
	}
	return ""
}
