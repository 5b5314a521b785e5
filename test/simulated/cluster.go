// Package simulated is what the simulations of the controllers of all kinds
// share: a few versions of an application, the store of its pods, admission, and
// the kubelets that look after them. Each does one thing when its method is called.
package simulated

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/kubectl/pkg/util/qos"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Stamp is the time that the API server notes of a write, in seconds.
func (c *Cluster) Stamp() metav1.Time {
	return metav1.NewTime(c.Clock.Now().Add(c.Ahead).Truncate(time.Second))
}

// Outcome is what becomes of the resize of one pod to one size.
type Outcome struct {
	Refused, Infeasible, Failing bool
	// Unready: the pod has the size, and is not Ready with it.
	Unready        bool
	Deferred, Slow int // looks of the kubelet
}

// Never is for what the kubelet puts off for ever.
const Never = 1 << 20

// Fails reports whether only a new pod can have the size.
func (o Outcome) Fails() bool { return o.Refused || o.Infeasible || o.Failing || o.Deferred == Never }

// Cluster has the pods. Objects are never changed, only replaced, so that a copy
// of the map is what a watch has seen at some time.
type Cluster struct {
	// Requests of the controller.
	Requests
	// Audit has every write.
	Audit *Audit

	Clock *testingclock.FakePassiveClock
	Pods  map[string]*corev1.Pod
	// Ahead of Clock is the clock of the API server.
	Ahead time.Duration
	// RV is the last resource version, of whatever object.
	RV int
	// Outcomes are what becomes of resizes, by the pod's place and the size; without any, all succeed.
	Outcomes []Outcome
	// Judge decides instead, where it is set.
	Judge func(*corev1.Pod, Version) Outcome
	// Schedule is the node that the scheduler finds for a pod; empty means none for now.
	Schedule func(*corev1.Pod) string
	// Away are the nodes whose kubelets do nothing.
	Away map[string]bool
	// Broken pods cannot become Ready with this size.
	Broken map[types.UID]Version
	// Kills reports whether a container with this size is OOMKilled, again and again; nil kills none.
	Kills func(*corev1.Pod, Version) bool
	// Rejects reports whether its kubelet lets no pod of this size in; nil rejects none.
	Rejects func(*corev1.Pod) bool
	// Mended: no size makes pods unready any more.
	Mended bool
	// Hands are others that change pods, or answer otherwise; nil if there are none.
	Hands *Hands
	// Resizes is called before each resize of a pod that is carried out.
	Resizes func(old, resized *corev1.Pod)
	// Changed is called after each write of an object; gone says that it was removed.
	Changed func(object runtime.Object, gone bool)
	// Evictions is what is said of each eviction; nil says nothing.
	Evictions func() error
	// Requested is called for each write of the controller that arrives.
	Requested func(clienttesting.Action)

	place        func(*corev1.Pod) int // the number of the node that the pod comes to
	uid          int                   // the last one, of whatever object
	looks        map[string]int        // of the kubelet at a resize
	subresource  string                // through which the pod is written
	misreporting []string              // nodes whose kubelets have answered otherwise
	lived        map[types.UID]int     // looks since a container was killed

	births map[types.UID]*born
	truths map[types.UID]truth
}

// New makes a cluster without pods. Pods of the same place share the outcomes of their resizes. The
// clock of its API server is another one for other outcomes, and ahead by minutes, or behind. Where the workload's rollouts are guarded, which
// rests on times, it is as near to ours as docs/operations.md demands.
func New(place func(*corev1.Pod) int, outcomes []Outcome, of metav1.Object) *Cluster {
	ahead := []time.Duration{0, 10 * time.Minute, -10 * time.Minute}[len(outcomes)%3]
	if of.GetAnnotations()[api.CanaryDurationAnnotation] != "" {
		ahead = min(max(ahead, 2*time.Second-resize.ClockSkew), resize.ClockSkew-2*time.Second)
	}
	utilruntime.ReallyCrash = false // a check that fails in a goroutine of the controller's fails the test, and not the process
	return &Cluster{
		Audit: &Audit{stored: map[types.UID]Object{}, looked: map[string]map[string]time.Time{}},
		Clock: testingclock.NewFakePassiveClock(build.Start.Add(time.Hour)), Pods: map[string]*corev1.Pod{}, Outcomes: outcomes, place: place,
		Ahead:  ahead,
		Broken: map[types.UID]Version{}, Changed: func(runtime.Object, bool) {}, looks: map[string]int{}, lived: map[types.UID]int{},
		Schedule: func(*corev1.Pod) string { return "node" }, Away: map[string]bool{},
		births: map[types.UID]*born{}, truths: map[types.UID]truth{}, Resizes: func(_, _ *corev1.Pod) {},
		Requested: func(clienttesting.Action) {},
	}
}

// Outcome is what becomes of the resize of a pod to a size.
func (c *Cluster) Outcome(pod *corev1.Pod, size Version) Outcome {
	if c.Judge != nil {
		return c.Judge(pod, size)
	}
	if len(c.Outcomes) == 0 {
		return Outcome{}
	}
	return c.Outcomes[(5*c.place(pod)+3*size.CPU+size.Memory)%len(c.Outcomes)]
}

// Infeasible has the resizes of these pods be infeasible, and those of all others succeed.
func (c *Cluster) Infeasible(these func(*corev1.Pod) bool) {
	c.Judge = func(pod *corev1.Pod, _ Version) Outcome { return Outcome{Infeasible: these(pod)} }
}

// NextRV is the resource version of the next write.
func (c *Cluster) NextRV() string {
	c.RV++
	return strconv.Itoa(c.RV)
}

// NextUID is for the next object that is made.
func (c *Cluster) NextUID() types.UID {
	c.uid++
	return types.UID(strconv.Itoa(c.uid))
}

// NewPod is a pod of the template that nobody has scheduled yet. It is not stored.
func NewPod(uid types.UID, name string, template *corev1.PodTemplateSpec) *corev1.Pod {
	pod := build.Pod(name, template)
	pod.UID, pod.Spec.NodeName = uid, ""
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: pod.Status.QOSClass}
	return pod
}

// WritePod stores it.
func (c *Cluster) WritePod(pod *corev1.Pod) {
	c.bear(pod)
	c.Pods[pod.Name] = pod
	c.Written(pod)
}

// Written gives an object that has been stored the version of this write.
func (c *Cluster) Written(object Object) {
	object.SetResourceVersion(c.NextRV())
	c.logs(object, false)
	c.Changed(object, false)
}

// Pod is one of those that there are.
func (c *Cluster) Pod(n int) *corev1.Pod {
	if len(c.Pods) == 0 {
		return nil
	}
	return c.Pods[slices.Sorted(maps.Keys(c.Pods))[n%len(c.Pods)]]
}

// Object of the API server.
type Object interface {
	runtime.Object
	metav1.Object
}

// Generation raises the generation of an object whose spec was before, and is after.
func (*Cluster) Generation(object Object, before, after any) {
	if !equality.Semantic.DeepEqual(before, after) {
		object.SetGeneration(object.GetGeneration() + 1)
	}
}

// RemovePod removes the pod at once, as where its node is gone.
func (c *Cluster) RemovePod(pod *corev1.Pod) {
	delete(c.Pods, pod.Name)
	c.Removed(pod)
}

// Removed notes that an object is gone by this write.
func (c *Cluster) Removed(object Object) {
	c.NextRV()
	c.logs(object, true)
	c.Changed(object, true)
}

// DeletePod is graceful: the kubelet removes the pod when it next looks.
func (c *Cluster) DeletePod(name string) {
	pod := c.Pods[name].DeepCopy()
	if pod.Spec.NodeName == "" {
		c.RemovePod(pod)
	} else if pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(c.Stamp()), ptr.To(int64(30))
		c.WritePod(pod)
	}
}

// Resize is admission of a write to a pod's resize subresource.
func (c *Cluster) Resize(old, pod *corev1.Pod) error {
	if size := SizeOf(pod); !sameContainers(old, pod) || qos.ComputePodQOS(pod) != old.Status.QOSClass || size != AppliedSize(pod) && c.Outcome(pod, size).Refused {
		return c.refuses(pod, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod.Name, field.ErrorList{field.Forbidden(field.NewPath("spec"), "Pod QOS Class may not change as a result of resizing")}))
	}
	c.Resizes(old, pod)
	c.manage(old, pod)
	c.resized(old, pod)
	if !equality.Semantic.DeepEqual(old.Spec, pod.Spec) {
		pod.Generation++
	}
	return nil
}

// manage notes in managedFields, as the API server does, what a resize by us has set.
func (c *Cluster) manage(old, pod *corev1.Pod) {
	owned := &fieldpath.Set{}
	for _, entry := range pod.ManagedFields {
		if !resize.Ours(entry) {
			continue
		}
		_ = owned.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes()))
	}
	lists := map[string][2][]corev1.Container{"containers": {old.Spec.Containers, pod.Spec.Containers}, "initContainers": {old.Spec.InitContainers, pod.Spec.InitContainers}}
	for list, both := range lists {
		for i := range both[1] {
			before, after := both[0][i].Resources, both[1][i].Resources
			for side, of := range map[string][2]corev1.ResourceList{"requests": {before.Requests, after.Requests}, "limits": {before.Limits, after.Limits}} {
				for name, quantity := range of[1] {
					if had, ok := of[0][name]; !ok || had.Cmp(quantity) != 0 {
						owned.Insert(fieldpath.MakePathOrDie("spec", list, fieldpath.KeyByFields("name", both[1][i].Name), "resources", side, string(name)))
					}
				}
			}
		}
	}
	fields, _ := owned.ToJSON()
	pod.ManagedFields = slices.DeleteFunc(pod.ManagedFields, resize.Ours)
	build.Ours(string(fields))(pod)
	pod.ManagedFields[len(pod.ManagedFields)-1].Time = ptr.To(c.Stamp())
}

// Relabel notes in managedFields that we have written to the pod itself.
func (c *Cluster) Relabel(pod *corev1.Pod) {
	pod.ManagedFields = slices.DeleteFunc(pod.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == "" })
	build.RelabelledAt(c.Stamp().Time)(pod)
}

// Kubelets looks at each pod once.
func (c *Cluster) Kubelets() {
	for _, name := range slices.Sorted(maps.Keys(c.Pods)) {
		c.Kubelet(name)
	}
	c.reap()
}

// Kubelet looks at one pod once: schedules it (the scheduler's part), starts it,
// goes on with a resize (KEP-1287), or removes what is deleted.
func (c *Cluster) Kubelet(name string) {
	before := c.Pods[name]
	if before == nil || c.Away[before.Spec.NodeName] {
		return
	}
	defer c.As("system:node:" + before.Spec.NodeName)()
	pod := before.DeepCopy()
	if is, another := c.truths[pod.UID]; another {
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = slices.Clone(is.init), slices.Clone(is.regular)
	}
	switch {
	case pod.DeletionTimestamp != nil:
		c.RemovePod(pod)
		return
	case pod.Status.Phase == corev1.PodFailed:
	case pod.Spec.NodeName == "":
		if pod.Spec.NodeName = c.Schedule(pod); pod.Spec.NodeName == "" || c.Rejects == nil || !c.Rejects(pod) {
			break
		}
		pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, QOSClass: pod.Status.QOSClass, Reason: "TopologyAffinityError", Message: "Pod was rejected: Resources cannot be allocated with Topology locality"}
	case pod.Status.Phase == corev1.PodPending:
		pod.Status.Phase = corev1.PodRunning
		build.Actuate(pod)
		c.SetReady(pod, c.Broken[pod.UID] != AppliedSize(pod))
	default:
		restarted := c.lookAtSize(pod)
		killed := c.kill(pod)
		c.SetReady(pod, !restarted && !killed && c.Broken[pod.UID] != AppliedSize(pod) && !c.harmed(pod))
	}
	c.report(before, pod)
	if before.Spec.NodeName != pod.Spec.NodeName || !equality.Semantic.DeepEqual(before.Status, pod.Status) {
		c.WritePod(pod)
	}
}

// harmed reports whether the size that the pod was resized to keeps it from being Ready.
func (c *Cluster) harmed(pod *corev1.Pod) bool {
	return !c.Mended && pod.Generation > 1 && c.Outcome(pod, AppliedSize(pod)).Unready
}

// Dooms has each container be killed that has one cpu, or, if it spares one, all but that of the first pod. It returns how users come
// to a rollout that is stopped, in its canary or later.
func (c *Cluster) Dooms(spares bool) []Step {
	first := types.UID("")
	c.Kills = func(pod *corev1.Pod, size Version) bool {
		if size.CPU == Next.CPU && first == "" {
			first = pod.UID
		}
		return size.CPU == Next.CPU && (!spares || pod.UID != first)
	}
	return append([]Step{{Do: "edit cpu", Arg: Next.CPU - 1}}, slices.Repeat([]Step{{Do: "rounds"}}, 1+5*asInt(spares))...)
}

// kill has the container of the pod be killed in every fourth look, if its size is too small, and reports whether it was.
func (c *Cluster) kill(pod *corev1.Pod) bool {
	if c.Kills == nil || c.Mended || len(pod.Status.ContainerStatuses) == 0 || !c.Kills(pod, AppliedSize(pod)) {
		return false
	}
	if c.lived[pod.UID]++; c.lived[pod.UID]%4 > 0 {
		return false
	}
	s, now := &pod.Status.ContainerStatuses[0], metav1.NewTime(c.Clock.Now())
	run := &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: now, ContainerID: fmt.Sprint("run://", pod.UID, s.RestartCount)}
	if s.State.Running != nil {
		run.StartedAt = s.State.Running.StartedAt
	}
	s.LastTerminationState.Terminated, s.State.Running = run, &corev1.ContainerStateRunning{StartedAt: now}
	s.RestartCount++
	return true
}

// lookAtSize goes on with a resize, and reports whether the container has restarted for it.
func (c *Cluster) lookAtSize(pod *corev1.Pod) (restarted bool) {
	if c.answers(pod) == deaf && !carriedOut(pod) {
		return false
	}
	before := pod.Status.Conditions
	defer func() {
		for i, condition := range pod.Status.Conditions {
			if was := slices.IndexFunc(before, func(b corev1.PodCondition) bool { return b.Type == condition.Type }); was >= 0 {
				pod.Status.Conditions[i].LastTransitionTime = before[was].LastTransitionTime
			} else {
				pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(c.Clock.Now())
			}
		}
	}()
	pod.Status.Conditions = slices.DeleteFunc(slices.Clone(before), func(c corev1.PodCondition) bool { return c.Type != corev1.PodReady })
	pod.Status.ObservedGeneration = pod.Generation
	size := SizeOf(pod)
	if carriedOut(pod) {
		return false // also where a resize was taken back in time
	}
	try := fmt.Sprint(pod.UID, pod.Generation)
	c.looks[try]++
	switch o := c.Outcome(pod, size); {
	case o.Infeasible:
		build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "never")(pod)
	case c.looks[try] <= o.Deferred:
		build.Condition(corev1.PodResizePending, corev1.PodReasonDeferred, "no room")(pod)
	case c.looks[try] <= o.Deferred+o.Slow:
		build.Condition(corev1.PodResizeInProgress, "", "")(pod)
	case o.Failing:
		build.Condition(corev1.PodResizeInProgress, corev1.PodReasonError, "in use")(pod)
	default:
		restarted = Restarts(pod, size)
		was := pod.Status.ContainerStatuses
		build.Actuate(pod)
		for i := range min(len(was), len(pod.Status.ContainerStatuses)) {
			is := &pod.Status.ContainerStatuses[i]
			is.RestartCount, is.LastTerminationState, is.State = was[i].RestartCount, was[i].LastTerminationState, was[i].State
		}
	}
	return restarted
}

// SetReady gives the pod the condition Ready, or takes it away. It is not stored.
func (c *Cluster) SetReady(pod *corev1.Pod, ready bool) {
	if podutils.IsPodReady(pod) == ready {
		return
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(c.Clock.Now()),
	})
}

// Pin sets the seed and number of checks of rapid where none are given, until the test ends. With SIMULATIONS=10 there are ten
// times as many, which begin where the others end: each check has the next seed.
func Pin(t *testing.T, seed, checks int) {
	t.Helper()
	if times, _ := strconv.Atoi(os.Getenv("SIMULATIONS")); times > 0 {
		seed, checks = seed+checks, checks*times
	}
	for name, value := range map[string]int{"rapid.seed": seed, "rapid.checks": checks} {
		f := flag.Lookup(name)
		if f.Value.String() != f.DefValue {
			continue
		}
		must.Do(t, f.Value.Set(strconv.Itoa(value)))
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
	}
}
