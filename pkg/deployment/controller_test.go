package deployment

import (
	"context"
	"errors"
	"maps"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// cluster is the world of the simulation with the whole controller in it.
type cluster struct {
	*world
	*simulated.Harness[*Deployment, *kindState]
	detached cache.Store              // as the controller sees the detached pods
	listed   func(metav1.ListOptions) // is told of each list of objects
}

// newCluster has a Deployment of older that is at rest.
func newCluster(t testing.TB, replicas int, options controller.Options, change ...func(*appsv1.Deployment)) *cluster {
	t.Helper()
	d := webDeployment(older, replicas)
	for _, f := range change {
		f(d)
	}
	c, client := &cluster{world: newWorld(t, d, nil)}, &fake.Clientset{}
	c.serve(client)
	c.Harness = simulated.NewHarness[*Deployment, *kindState](t, c, c.Cluster, client, simulated.LargeNode())
	kind := New(client, served{objects: objects{world: c.world}, cluster: c}, "")
	c.detached = kind.detached.GetStore()
	options.Defaults = defaults
	c.Start(kind, options)
	return c
}

// served is the world as dynamic.Interface for more than one goroutine, with watches.
type served struct {
	objects
	cluster *cluster
}

func (s served) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return served{objects{world: s.world, resource: r.Resource}, s.cluster}
}

func (s served) Namespace(string) dynamic.ResourceInterface { return s }

func (s served) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	s.cluster.Client.Lock()
	defer s.cluster.Client.Unlock()
	if s.cluster.listed != nil {
		s.cluster.listed(options)
	}
	list, err := s.objects.List(ctx, options)
	return list.DeepCopy(), err // informers strip what they get
}

func (s served) Get(ctx context.Context, name string, options metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	s.cluster.Client.Lock()
	defer s.cluster.Client.Unlock()
	d, err := s.objects.Get(ctx, name, options)
	return d.DeepCopy(), err
}

func (s served) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.cluster.Client.Lock()
	defer s.cluster.Client.Unlock()
	return s.cluster.Watch(s.resource, options), nil
}

func (s served) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (written *unstructured.Unstructured, err error) {
	err = s.write("patch", name, func() error {
		written, err = s.objects.Patch(ctx, name, kind, data, options, subresources...)
		written = written.DeepCopy()
		return err
	}, subresources...)
	return written, err
}

func (s served) Create(ctx context.Context, object *unstructured.Unstructured, options metav1.CreateOptions, _ ...string) (written *unstructured.Unstructured, err error) {
	err = s.write("create", object.GetName(), func() error {
		written, err = s.objects.Create(ctx, object, options)
		written = written.DeepCopy()
		return err
	})
	return written, err
}

func (s served) Delete(ctx context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	return s.write("delete", name, func() error { return s.objects.Delete(ctx, name, options) })
}

func (s served) write(verb, name string, do func() error, subresources ...string) error {
	s.cluster.Client.Lock()
	defer s.cluster.Client.Unlock()
	return s.cluster.Write(strings.Join(append([]string{verb + " " + s.resource}, subresources...), "/")+" "+name, do)
}

func (c *cluster) Objects() []runtime.Object {
	all := []runtime.Object{c.d}
	for _, rs := range c.sets {
		all = append(all, rs)
	}
	for _, pod := range c.Pods {
		all = append(all, pod)
	}
	return all
}

func (c *cluster) Stored(object runtime.Object) (string, runtime.Object) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return deployments.Resource, c.stored(o).DeepCopy()
	case *appsv1.ReplicaSet:
		return replicaSets.Resource, c.stored(o).DeepCopy()
	default:
		return "pods", object.DeepCopyObject()
	}
}

func (c *cluster) Show() error {
	var detached []any
	for _, pod := range c.Pods {
		if _, is := pod.Labels[api.DetachedLabel]; is {
			detached = append(detached, pod.DeepCopy())
		}
	}
	return errors.Join(c.Kind.Workloads.Show(c.stored(c.d)), c.detached.Replace(detached, ""))
}

func (c *cluster) Shown() bool {
	shown, err := c.Kind.KindState.sets.List()
	return err == nil && len(shown) == len(c.sets) && !slices.ContainsFunc(shown, func(rs *replicaSet) bool {
		return c.sets[rs.Name] == nil || c.sets[rs.Name].ResourceVersion != rs.ResourceVersion
	})
}

// change changes the Deployment as its user, and lets the Deployment controller see it.
func (c *cluster) change(f func(*appsv1.Deployment)) { c.Change(func() { c.user(f) }) }

func (c *cluster) edit(v version) {
	c.change(func(d *appsv1.Deployment) { d.Spec.Template = *templates[v] })
}

func (c *cluster) names() []string { return slices.Sorted(maps.Keys(c.Pods)) }

// neverResizes has one pod's size be infeasible for its node, whatever it is.
func (c *cluster) neverResizes(name string) {
	c.Infeasible(func(pod *corev1.Pod) bool { return pod.Name == name })
}

var maxUnavailable1 = bounded(0, 1)

// TestLimitsAreReadForNewPods: a rollout that makes no pod reads the limits of the namespace when they are old, however often it
// looks at what the API server has. Where a pod is replaced, they are read again.
func TestLimitsAreReadForNewPods(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		c := newCluster(t, 3, controller.Options{}, maxUnavailable1)
		if replaced {
			c.neverResizes(c.names()[1])
		}
		began := c.Clock.Now()
		c.edit(newer)
		c.Rest()
		limits, looks := 0, 0
		for _, action := range c.Client.Actions() {
			limits += map[bool]int{true: 1}[action.Matches("list", "limitranges")]
			looks += map[bool]int{true: 1}[action.Matches("list", "pods")]
		}
		old := 1 + int(c.Clock.Since(began)/capacity.LookAgain)
		if looks <= old || replaced != (limits > old) {
			t.Errorf("a pod is replaced: %t; read the limits %d times, which were old %d times, and the pods %d times; writes: %q", replaced, limits, old, looks, c.Writes)
		}
	}
}

// TestStartedInAHold: an edit in the middle of a rollout is told of, too.
func TestStartedInAHold(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	for i, to := range []version{newer, {Image: 1, CPU: 3}} {
		c.edit(to)
		c.Rounds(2)
		if n := simulated.Count(c.Events, "Normal "+judge.EventStarted); n != i+1 {
			t.Errorf("after %d edits, events tell of %d: %q", i+1, n, c.Events)
		}
	}
	c.Rest()
	if n := simulated.Count(c.Events, "Normal "+judge.EventStarted); n != 2 {
		t.Errorf("events tell of %d edits, want 2: %q", n, c.Events)
	}
	c.change(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	c.edit(newer)
	c.Rounds(3)
	c.change(func(d *appsv1.Deployment) { d.Spec.Paused = false })
	c.Rest()
	if n := simulated.Count(c.Events, "Normal "+judge.EventStarted); n != 3 {
		t.Errorf("after a pause, events tell of %d edits, want 3: %q", n, c.Events)
	}
}

// TestAcknowledgementIsLost: a policy takes from ReplicaSets, for a while, the annotation by which the Deployment controller acknowledges
// one. Nothing has it write that again but our condition, which says for how long there has been none.
func TestAcknowledgementIsLost(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	c.strips = true
	c.edit(newer)
	c.Rounds(150)
	if says := condition(&Deployment{Deployment: c.d}).Message; !strings.Contains(says, "to see ReplicaSet web-i1c1m0x0 as the new one; not acknowledged for 1m0s") {
		t.Errorf("the condition says %q", says)
	}
	c.strips = false
	c.Until(150, func() bool { return c.Unfinished() == "" })
	must.Equal(t, c.Unfinished(), "", "unfinished")
}

// TestHoldDoesNotEnd: where a policy refuses the last write, or one of a ReplicaSet, the condition says so after a while.
func TestHoldDoesNotEnd(t *testing.T) {
	const set = "replicasets web-i1c1m0x0"
	refusal := func(reason metav1.StatusReason, code int32) error { // as of a webhook
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "denied"}}
	}
	forbidden, invalid := refusal(metav1.StatusReasonForbidden, http.StatusForbidden), refusal(metav1.StatusReasonInvalid, http.StatusUnprocessableEntity)
	for _, tt := range []struct {
		write   string
		err     error
		guarded bool
		letGo   bool // without us, when the ReplicaSet has the new template
		says    string
	}{
		{"deployments web", forbidden, false, false, "releasing the hold: denied"},
		{"deployments web", invalid, false, false, "releasing the hold: denied"},
		{"deployments web", forbidden, true, false, "recording the guarded rollout: denied"},
		{set, forbidden, false, false, "3 of 3 pods resized; writing ReplicaSet web-i1c1m0x0: denied"},
		{set, invalid, false, false, "writing ReplicaSet web-i1c1m0x0: denied"},
		{set, forbidden, false, true, "writing ReplicaSet web-i1c1m0x0: denied"},
	} {
		c := newCluster(t, 3, controller.Options{})
		if tt.guarded {
			c.change(func(d *appsv1.Deployment) { d.Annotations[api.CanaryAnnotation] = "1" })
		}
		if tt.letGo {
			c.edit(newer)
			c.Until(60, func() bool { return c.sets["web-i1c1m0x0"].Annotations[api.AdoptedAnnotation] != "" })
			c.change(func(d *appsv1.Deployment) { delete(d.Annotations, api.HoldAnnotation) })
		}
		c.Refuse("patch "+tt.write, tt.err, 100)
		if !tt.letGo {
			c.edit(newer)
		}
		c.Rounds(60, func(error) bool { return true })
		have := condition(&Deployment{Deployment: c.d})
		must.Equal(t, have.Reason, judge.ReasonAdmissionDenied, "reason")
		must.Contain(t, have.Message, tt.says, "message")
		c.Rest()
	}
}

func TestEvents(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	c.neverResizes(c.names()[1])
	gone := c.names()[1]
	c.edit(newer)
	c.Rest()
	for event, times := range map[string]int{
		"Normal " + judge.EventStarted + " ReplicaSet web-i1c1m0x0: app: cpu request 1m→2m":                                                      1,
		"Normal " + judge.EventResized + " 1 of 3 pods resized; web-":                                                                            1, // on the Deployment
		"Normal " + judge.EventResized + " 3 of 3 pods resized; web-":                                                                            1,
		"Normal " + judge.EventResized + " resized in place: app: cpu request 1m→2m":                                                             2, // on the pods
		"Warning " + judge.EventRestart + " " + gone + ": replaced: it is evicted when its new pod is available: infeasible on node node: never": 1,
		"Warning " + judge.EventRestart + " " + gone + ": evicted: it has been replaced":                                                         1,
		"Normal " + judge.EventComplete + " all pods are of the newest revision":                                                                 1,
	} {
		if n := simulated.Count(c.Events, event); n != times {
			t.Errorf("%q was recorded %d times, want %d: %q", event, n, times, c.Events)
		}
	}
}

// A pod is not evicted as long as a quota has no room for its successor. Of three pods of 1m
// two are resized to 2m, and the third one has to be replaced.
func TestNoQuotaForTheNext(t *testing.T) {
	for _, tt := range []struct {
		name, tight, wide, refused string
		change                     []func(*appsv1.Deployment)
	}{
		{"evicted first", "5m", "6m", "2m in place of 1m (used: 5m of 5m)", []func(*appsv1.Deployment){maxUnavailable1}},
		{"replaced first", "6m", "7m", "2m (used: 5m of 6m)", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 3, controller.Options{}, tt.change...)
			before, hard := c.names(), tt.tight
			c.Client.AddReactor("list", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
				quota := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "compute"}, Status: corev1.ResourceQuotaStatus{
					Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse(hard)},
					Used: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("0")},
				}}
				return true, &corev1.ResourceQuotaList{Items: []corev1.ResourceQuota{quota}}, nil
			})
			c.neverResizes(before[1])
			c.edit(newer)
			c.Rounds(60, apierrors.IsConflict)
			if after := c.names(); !slices.Equal(after, before) {
				t.Errorf("pods %v became %v", before, after)
			}
			if recorded := simulated.Count(c.Events, judge.EventQuotaExceeded+" "+before[1]+": not restarted, because quota compute has no room for requests.cpu "+tt.refused); recorded != 1 {
				t.Errorf("recorded %d times for the quota: %q", recorded, c.Events)
			}
			hard = tt.wide
			c.Rest()
			for i, name := range before {
				if _, is := c.Pods[name]; is == (i == 1) {
					t.Errorf("%s is there: %t", name, is)
				}
			}
		})
	}
}

// An eviction that is refused, by a budget or for another reason, is asked for less and less often, stands in the condition, and is
// recorded once.
func TestEvictionRefused(t *testing.T) {
	for said, reason := range map[string]string{
		"the budget says no": judge.ReasonDisruptionBudget,
		"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.": judge.ReasonDisruptionBudget,
		"failed calling webhook \"evictions.example.com\"":                                                 judge.ReasonAdmissionDenied,
	} {
		c := newCluster(t, 3, controller.Options{}, maxUnavailable1)
		gone := c.names()[1]
		c.neverResizes(gone)
		refusal, tries := error(apierrors.NewInternalError(errors.New(said))), 0
		if said == "the budget says no" {
			refusal = overBudget(said)
		}
		c.Evictions = func() error {
			if refusal != nil {
				tries++
			}
			return refusal
		}
		c.edit(newer)
		c.Rounds(60, apierrors.IsConflict)
		if is := condition(&Deployment{Deployment: c.d}); is == nil || is.Reason != reason || !strings.Contains(is.Message, gone+": not evicted yet: ") || !strings.Contains(is.Message, said) {
			t.Errorf("the condition says %+v, want %s and %q", is, reason, said)
		}
		if tries < 3 || tries > 10 {
			t.Errorf("asked %d times in 60 s, want less and less often", tries)
		}
		if n := simulated.Count(c.Events, reason+" "+gone+": not evicted yet: "); n != 1 || !slices.Contains(c.names(), gone) {
			t.Errorf("recorded %d times, want once: %q; the pods are %q", n, c.Events, c.names())
		}
		refusal = nil
		c.Rest()
	}
}

// What refuses the history holds a rollout up for a while at the most.
func TestHistoryRefused(t *testing.T) {
	says := func(c *cluster) *rollout.StoredCondition { return condition(&Deployment{Deployment: c.d}) }
	untilRefused := func(c *cluster) { // no longer: the times between tries are random
		for range 15 {
			if is := says(c); is != nil && is.Reason == judge.ReasonQuotaExceeded {
				return
			}
			c.Rounds(1, apierrors.IsConflict)
		}
	}
	const lost = "Warning " + judge.EventNotKept + " revision 1 is not kept in the history, so it cannot be undone to: "
	t.Run("for ever", func(t *testing.T) {
		c := newCluster(t, 3, controller.Options{})
		before := c.names()
		c.full = true
		c.edit(newer)
		untilRefused(c)
		if is := says(c); is == nil || is.Reason != judge.ReasonQuotaExceeded || !strings.Contains(is.Message, "revision 1 is not kept in the history yet: ") || !strings.Contains(is.Message, "exceeded quota") {
			t.Errorf("the condition says %+v, want it to tell of the quota", is)
		}
		if !policy.Held(c.d) {
			t.Error("let go at once, and the quota may be raised")
		}
		edited := c.Clock.Now()
		if failed := c.Rest(); len(failed) > 0 {
			t.Errorf("syncs failed: %v", errors.Join(failed...))
		}
		if took := c.Clock.Since(edited); took > 2*historyTimeout {
			t.Errorf("took %v more", took)
		}
		if n := simulated.Count(c.Events, lost); n != 1 {
			t.Errorf("recorded %d times that revision 1 is lost, want once: %q", n, c.Events)
		}
		if after := c.names(); !slices.Equal(after, before) {
			t.Errorf("the pods are %v, were %v", after, before)
		}
	})
	t.Run("another edit is let go at once", func(t *testing.T) {
		c := newCluster(t, 3, controller.Options{})
		c.full = true
		c.edit(newer)
		c.Rounds(12, apierrors.IsConflict)
		c.edit(version{Image: 2, CPU: 2})
		c.Rounds(4, apierrors.IsConflict)
		if policy.Held(c.d) {
			t.Errorf("an edit of the image is held: %+v", says(c))
		}
		if n := simulated.Count(c.Events, lost); n != 1 {
			t.Errorf("recorded %d times that revision 1 is lost, want once: %q", n, c.Events)
		}
	})
}

// TestLargeAnnotations: a ReplicaSet has the Deployment's. Its former template is kept where there is room beside them.
func TestLargeAnnotations(t *testing.T) {
	for size, lost := range map[int]int{100_000: 0, 140_000: 1} {
		c := newCluster(t, 3, controller.Options{}, func(d *appsv1.Deployment) {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, "example.com/large", strings.Repeat("x", size))
		})
		c.Rest()
		c.edit(newer)
		failed := c.Rest()
		n := simulated.Count(c.Events, "Warning "+judge.EventNotKept+" revision 1 is not kept in the history, so it cannot be undone to: its template and")
		if len(failed) > 0 || policy.Held(c.d) || n != lost || len(c.sets) != 2-lost {
			t.Errorf("%d bytes: syncs failed: %v, held: %t, told %d times, want %d; the ReplicaSets are %v", size, errors.Join(failed...), policy.Held(c.d), n, lost, slices.Collect(maps.Keys(c.sets)))
		}
	}
}

// TestPolicyGoneAndUnanswered: as that of pkg/statefulset, where annotations count for the generation. Where the policies are there, a
// user who pauses after the release has his way.
func TestPolicyGoneAndUnanswered(t *testing.T) {
	for _, gone := range []bool{true, false} {
		for nth, more := 1, true; more; nth++ {
			c := newCluster(t, 2, controller.Options{})
			c.edit(newer)
			c.unguarded = gone
			last := len(c.Writes) + nth
			c.Fails, c.CarriedOut = last, true
			for range 60 {
				_, _ = c.Sync() // the write that fails
				if !gone && !policy.Held(c.d) {
					c.user(func(d *appsv1.Deployment) { d.Spec.Paused = true })
				}
				c.Lives()
				c.Sees()
			}
			if held, got := policy.Held(c.d), c.d.Spec.Paused; held || got == gone {
				t.Errorf("policies gone %t, write %d has no answer: held %t, paused %t; writes %q", gone, nth, held, got, c.Writes)
			}
			more = len(c.Writes) >= last
		}
	}
}

// TestHeldTemplatesAreNotKept: of Deployments that are held, a tenant may have hundreds with templates of 1 MB.
func TestHeldTemplatesAreNotKept(t *testing.T) {
	const many, most = 20, 10 << 10
	heap := func() int {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.GC() // what pools keep goes with the second one
		goruntime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before, kept := heap(), [many]*Deployment{}
	for i := range kept {
		d := webDeployment(older, 3).DeepCopy()
		d.Spec.Template.Spec.Containers[0].Args = []string{strings.Repeat("x", 1<<20)}
		kept[i] = strip(read(t, decodeDeployment, build.Stored(t, d)), false)
	}
	if each := (heap() - before) / many; each > most {
		t.Errorf("each takes %d bytes of memory, want at most %d", each, most)
	}
	goruntime.KeepAlive(kept)
}

// Whoever labels a pod as a detached one does not make it ours.
func TestForgedDetachedLabel(t *testing.T) {
	c := newCluster(t, 2, controller.Options{}, func(d *appsv1.Deployment) { delete(d.Labels, api.EnabledLabel) })
	forged := c.Pods[c.names()[0]].DeepCopy()
	forged.Labels[api.DetachedLabel] = "anything"
	c.WritePod(forged)
	c.Sees()
	for _, owner := range []string{"web", metav1.GetControllerOf(forged).Name} {
		must.Get(c.Controller.Sync(t.Context(), cache.NewObjectName("default", owner)))(t)
	}
	if len(c.Writes) > 0 {
		t.Errorf("wrote %q", c.Writes)
	}
	if name, is := DetachedFrom(forged); is {
		t.Errorf("it is taken for one of %s", name)
	}
}

// TestUnownedPodIsTold: a detached pod that a backup has brought back without owners is adopted by nobody. It and its Deployment
// say so, once.
func TestUnownedPodIsTold(t *testing.T) {
	c := newCluster(t, 2, controller.Options{})
	told := record.NewFakeRecorder(10)
	kind := New(&fake.Clientset{}, served{objects: objects{world: c.world}, cluster: c}, "").Recording(told)
	restored := c.Pods[c.names()[0]].DeepCopy()
	restored.UID, restored.Name, restored.OwnerReferences = "restored", "web-old-1", nil
	restored.Labels[api.DetachedLabel] = "of a ReplicaSet that is gone"
	delete(restored.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	must.Do(t, kind.detached.GetStore().Add(restored))
	for range 2 {
		write, err := kind.leftBehind(cache.NewObjectName("default", ""))
		if err != nil || write == nil {
			t.Fatalf("%v, %v", write, err)
		}
		must.Do(t, kind.Apply(t.Context(), nil, nil, write))
	}
	close(told.Events)
	var events []string
	for event := range told.Events {
		events = append(events, event)
	}
	if want := []string{"Warning PodLeftBehind " + Unowned, "Warning PodLeftBehind web-old-1: " + Unowned}; !slices.Equal(events, want) {
		t.Errorf("the events are %q, want %q", events, want)
	}
}

// TestRun runs the workers themselves, for the race detector.
func TestRun(t *testing.T) {
	c := newCluster(t, 2, controller.Options{Workers: 2})
	c.Run(func() {
		c.neverResizes(c.names()[0])
		c.user(func(d *appsv1.Deployment) { d.Spec.Template = *templates[newer] })
	})
}

// TestNewest: as TestNewest of the pods.
func TestNewest(t *testing.T) {
	c := newCluster(t, 2, controller.Options{})
	asked := make(chan metav1.ListOptions, 1)
	c.Client.Lock()
	c.listed = func(o metav1.ListOptions) {
		select {
		case asked <- o:
		default: // only the first list is looked at
		}
	}
	c.Client.Unlock()
	must.Get(c.Kind.Kind.Open(t.Context(), &Deployment{Deployment: c.d}, func() {}))(t)
	if o := <-asked; o.ResourceVersion != "" || o.LabelSelector != "app=web" {
		t.Errorf("listed is with %v", o)
	}
}

// TestPodsAreListedAfterReplicaSets: of a ReplicaSet that does not lag, every pod of an older
// template is there when the pods are listed after it, and not always if they are listed before.
func TestPodsAreListedAfterReplicaSets(t *testing.T) {
	c := newCluster(t, 2, controller.Options{})
	c.edit(newer)
	must.Get(c.Sync())(t)
	listed, asked := false, false
	c.Client.Lock()
	c.listed = func(metav1.ListOptions) { listed = true }
	c.Client.Unlock()
	_, err := c.Kind.Kind.Gather(t.Context(), c.Kind.Session, c.Kind.Planned, func() ([]*corev1.Pod, error) {
		asked = listed
		return slices.Collect(maps.Values(c.Pods)), nil
	}, true)
	if err != nil || !asked {
		t.Errorf("the pods are listed after the ReplicaSets: %t, %v", asked, err)
	}
}

// TestWritesInWords: each kind of write is logged by --dry-run.
func TestWritesInWords(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-x"}}
	restart := rollout.Restart{Member: judge.Member{Place: judge.Place{Name: "web-x", Pod: pod}}, Reason: "the action is Restart"}
	set := func(name string) *replicaSet {
		return &replicaSet{ReplicaSet: &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	for want, write := range map[string]rollout.Write{
		"detach pod web-x: the action is Restart":                              detach{restart},
		"evict pod web-x: the action is Restart":                               evict{restart, false},
		"give pods back to their ReplicaSets: web-x":                           reattach{pods: []*corev1.Pod{pod}},
		"remove ReplicaSet web-a":                                              removeSet{set("web-a")},
		"keep the former template of ReplicaSet web-a in a new one":            saveHistory{set: set("web-a")},
		"keep the former template of ReplicaSet web-a in ReplicaSet web-b":     saveHistory{set: set("web-a"), reuse: set("web-b")},
		"give ReplicaSet web-a the new template":                               adopt{set: set("web-a")},
		"mark ReplicaSet web-a as adopted":                                     closeAdoption{set: set("web-a")},
		"take the mark from ReplicaSet web-a":                                  endAdoption{set: set("web-a")},
		"release the hold":                                                     rollout.Release{},
		"release the hold: every pod would be restarted: image of app differs": rollout.Release{HandOver: "every pod would be restarted: image of app differs"},
	} {
		if got := write.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
