package statefulset

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
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
	*simulated.Harness[*appsv1.StatefulSet, *memory]
}

// newCluster has a set of older that is at rest.
func newCluster(t testing.TB, replicas int, options controller.Options, outcomes ...simulated.Outcome) *cluster {
	t.Helper()
	return newClusterOf(t, webSet(older, replicas), options, outcomes...)
}

// newClusterOf has this set.
func newClusterOf(t testing.TB, set *appsv1.StatefulSet, options controller.Options, outcomes ...simulated.Outcome) *cluster {
	t.Helper()
	c, client := &cluster{world: newWorld(set, outcomes)}, &fake.Clientset{}
	c.Serve(client)
	c.Harness = simulated.NewHarness[*appsv1.StatefulSet, *memory](t, c, c.Cluster, client, simulated.LargeNode())
	options.Defaults = defaults
	c.Start(New(client), options)
	return c
}

func (c *cluster) Show() error { return c.Kind.Workloads.Show(c.Set) }

func (c *cluster) Shown() bool { return true }

// edit changes the template, and lets the StatefulSet controller see it.
func (c *cluster) edit(v version) { c.Change(func() { c.users(v) }) }

func (c *cluster) users(v version) {
	c.User(func(set *appsv1.StatefulSet) { set.Spec.Template = *templates[v] })
}

var podsResource = schema.GroupResource{Resource: "pods"}

func invalid(name string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, field.ErrorList{field.Forbidden(field.NewPath("spec"), "only cpu and memory resources are mutable")})
}

func TestRefusedResize(t *testing.T) {
	const always = 1 << 20
	for _, tt := range []struct {
		name    string
		err     error
		times   int
		restart bool
		failed  int    // syncs; what the API server refuses is no error, but waited for
		event   string // with its message
	}{
		{
			"a node that is too small is final", simulated.TooSmall("web-1"), always, true, 0,
			judge.EventRestart + ` web-1: restarted by the StatefulSet controller: infeasible on node node: pods "web-1" is forbidden: node didn't have enough`,
		},
		{"a quota may pass", simulated.Forbidden("web-1", "exceeded quota: compute"), 3, false, 0, judge.EventQuotaExceeded + ` web-1: pods "web-1" is forbidden: exceeded quota: compute`},
		{"a conflict is only a reason to look again", apierrors.NewConflict(podsResource, "web-1", errors.New("modified")), 2, false, 2, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 3, controller.Options{})
			before := c.UIDs()
			c.Refuse("patch pods/resize web-1", tt.err, tt.times)
			c.edit(newer)
			if failed := c.Rest(); len(failed) != tt.failed {
				t.Errorf("%d syncs failed, want %d: %v", len(failed), tt.failed, errors.Join(failed...))
			}
			if asked := simulated.Count(c.Writes, "patch pods/resize web-1"); !tt.restart && asked != tt.times+1 {
				t.Errorf("asked %d times for the size, want %d", asked, tt.times+1)
			}
			for name, uid := range before {
				if restarted := c.Pods[name].UID != uid; restarted != (tt.restart && name == "web-1") {
					t.Errorf("%s restarted: %t", name, restarted)
				}
			}
			recorded := 0 // on the set; once, however often the size was refused
			for _, reason := range []string{judge.EventInfeasible, judge.EventAdmissionDenied, judge.EventQuotaExceeded, judge.EventRestart} {
				recorded += simulated.Count(c.Events, " "+reason+" web-1: ")
			}
			if tt.event == "" && recorded != 0 || tt.event != "" && (recorded != 1 || simulated.Count(c.Events, " "+tt.event) != 1) {
				t.Errorf("want only the event %q once: %q", tt.event, c.Events)
			}
			if restart := simulated.Count(c.Events, judge.EventRestart) > 0; restart != tt.restart {
				t.Errorf("restart recorded: %t; events: %q", restart, c.Events)
			}
		})
	}
}

// A label that is refused is waited for, and asked for again; another error is one of the sync.
func TestRefusedLabel(t *testing.T) {
	for fails, err := range []error{simulated.Forbidden("web-1", "no"), apierrors.NewConflict(podsResource, "web-1", errors.New("modified"))} {
		c := newCluster(t, 2, controller.Options{})
		c.Refuse("patch pods web-1", err, 1)
		c.edit(newer)
		failed, asked := c.Rest(), simulated.Count(c.Writes, "patch pods web-1")
		if len(failed) != fails || asked != 2 || label(c.Pods["web-1"]) != revisionOf(newer) {
			t.Errorf("%v: %v after %d writes, and web-1 is of %s", err, errors.Join(failed...), asked, label(c.Pods["web-1"]))
		}
	}
}

// TestUnansweredResize: a resize that nobody has answered may be done. The next plan is made from a live
// read, which shows that it is, and the pod is not asked again.
func TestUnansweredResize(t *testing.T) {
	c := newCluster(t, 2, controller.Options{})
	c.edit(newer)
	lists := func() int {
		return build.Count(c.Client.Actions(), func(action clienttesting.Action) bool { return action.Matches("list", "pods") })
	}
	c.Fails, c.CarriedOut = 1, true
	if _, err := c.Sync(); err == nil {
		t.Fatalf("no error, though a request had no answer: %q", c.Writes)
	}
	before := lists()
	for range 3 {
		must.Get(c.Sync())(t)
	}
	if n := lists() - before; n != 1 {
		t.Errorf("%d live reads of the pods after the request, want 1", n)
	}
	if n := simulated.Count(c.Writes, "patch pods/resize"); n != 1 {
		t.Errorf("asked %d times: %q", n, c.Writes)
	}
}

// A pod is not given up while its node is full of others. Whether there is room is looked at
// less and less often. When there is, the pod is given up.
func TestNoRoomBesideOthers(t *testing.T) {
	c := newCluster(t, 3, controller.Options{}, simulated.Outcome{Infeasible: true})
	node := simulated.LargeNode()
	node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("3m") // two others have 1m each
	c.Nodes.Set(node)
	before := c.UIDs()
	c.edit(newer)
	c.Rounds(100, apierrors.IsConflict)
	if after := c.UIDs(); !maps.Equal(after, before) {
		t.Errorf("pods are given up, and there is no room: %v, were %v", after, before)
	}
	if have := condition(c.Set); have == nil || have.Reason != judge.ReasonNoNodeFits || !strings.Contains(have.Message, "the only node that is large enough has no room beside its pods") {
		t.Errorf("the condition says %+v", have)
	}
	if n := simulated.Count(c.Events, "Warning "+judge.EventNoNodeFits+" web-2: not restarted"); n != 1 {
		t.Errorf("recorded %d times, want once: %q", n, c.Events)
	}
	looks := build.Count(c.Client.Actions(), func(action clienttesting.Action) bool {
		list, ok := action.(clienttesting.ListAction)
		return ok && list.GetListRestrictions().Fields.String() == "spec.nodeName=node"
	})
	if looks < 3 || looks > 3*10 { // at most once for each pod at a time
		t.Errorf("looked %d times at the node for 3 pods in 100 s, want less and less often", looks)
	}
	node = simulated.LargeNode()
	node.ResourceVersion = "2"
	c.Nodes.Set(node)
	c.Rest()
	for name, uid := range c.UIDs() {
		if uid == before[name] {
			t.Errorf("%s is not replaced, and there is room", name)
		}
	}
}

// TestRoomThatMayNotBeSeen: where the pods of the nodes may not be listed, a pod whose resize is impossible is replaced, as the table of
// pkg/policy says, or kept until its user asks for a restart.
func TestRoomThatMayNotBeSeen(t *testing.T) {
	for _, keep := range []bool{false, true} {
		c := newCluster(t, 2, controller.Options{KeepIfRoomUnknown: keep}, simulated.Outcome{Infeasible: true})
		asked := false
		c.Client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetNamespace() != metav1.NamespaceAll {
				return false, nil, nil
			}
			asked = true
			return true, nil, apierrors.NewForbidden(podsResource, "", nil)
		})
		before := c.UIDs()
		c.edit(newer)
		c.Rounds(20, apierrors.IsConflict)
		if have := condition(c.Set); keep && (have.Reason != judge.ReasonRoomUnknown || !strings.Contains(have.Message, "not allowed to list the pods of nodes")) {
			t.Errorf("the condition says %+v", have)
		}
		if after := c.UIDs(); keep && !maps.Equal(after, before) {
			t.Errorf("pods are given up, and it is unknown whether there is room: %v, were %v", after, before)
		}
		c.Change(func() {
			c.User(func(set *appsv1.StatefulSet) {
				set.Annotations[api.RetryAnnotation], set.Annotations[api.InForceAnnotation] = "1;Restart", "Restart;"
			})
		})
		c.Rest()
		for name, uid := range c.UIDs() {
			if uid == before[name] {
				t.Errorf("keep %t: %s is not replaced", keep, name)
			}
		}
		if !asked {
			t.Error("nobody asked what is on the nodes")
		}
	}
}

// TestNewLeader: nothing is given up before each workload that is held has been looked at once.
func TestNewLeader(t *testing.T) {
	ledger := capacity.NewLedger()
	c := newCluster(t, 1, controller.Options{Ledger: ledger}, simulated.Outcome{Infeasible: true})
	ledger.Await("another workload")
	before := c.UIDs()
	c.edit(newer)
	c.Rounds(10, apierrors.IsConflict)
	if after := c.UIDs(); !maps.Equal(after, before) {
		t.Errorf("a pod is given up before another workload was looked at: %v, were %v", after, before)
	}
	ledger.See("another workload", "", nil, nil, c.Clock.Now())
	c.Rest()
	if after := c.UIDs(); maps.Equal(after, before) {
		t.Errorf("no pod is given up: %v", after)
	}
}

// TestRestartIsRecordedOnce: the partition is lowered for a pod that is not Ready and cannot
// have its size, and then we delete it.
func TestRestartIsRecordedOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := newCluster(t, 3, controller.Options{Metrics: controller.NewMetrics(registry)})
	c.Infeasible(func(pod *corev1.Pod) bool { return pod.Name == "web-1" })
	crashed := c.Pods["web-1"].DeepCopy()
	c.Broken[crashed.UID] = simulated.AppliedSize(crashed)
	c.SetReady(crashed, false)
	c.WritePod(crashed)
	c.edit(newer)
	c.Rest()
	if c.Pods["web-1"].UID == crashed.UID {
		t.Error("web-1 is not replaced")
	}
	if n := simulated.Count(c.Events, judge.EventRestart+" web-1: "); n != 1 || simulated.Count(c.Events, "web-1: deleted, because it needs a restart") != 1 {
		t.Errorf("recorded %d times, want once that it is deleted: %q", n, c.Events)
	}
	if n := measured(t, registry)["pods_total[restarted]"]; n != 1 {
		t.Errorf("%v restarts are counted, want 1", n)
	}
}

// TestCompleteIsOfOneVersion: a set that was observed as complete may have been edited by the
// time Complete is written. Whoever waits for it would believe it, so it is not written.
func TestCompleteIsOfOneVersion(t *testing.T) {
	c := newCluster(t, 2, controller.Options{})
	name := cache.MetaObjectToName(c.Set)
	c.Client.Lock()
	c.User(func(set *appsv1.StatefulSet) { set.Spec.Template = *templates[newer] }) // the controller has not seen it
	c.Client.Unlock()
	_, err := c.Controller.Sync(t.Context(), name)
	for err == nil && condition(c.Set).Reason == judge.ReasonPending { // it begins to watch the pods
		time.Sleep(time.Millisecond)
		_, err = c.Controller.Sync(t.Context(), name)
	}
	if !apierrors.IsConflict(err) {
		t.Errorf("writing Complete of an older version of the set: %v, want a conflict", err)
	}
	if have := condition(c.Set); have != nil && have.Status == corev1.ConditionTrue {
		t.Errorf("the edited set says %+v", have)
	}
	c.Sees()
	c.Rest()
}

// TestConditionAndPartitionInOneStep: the reason changes in the very step that has a pod restarted.
// The write of the condition makes a new version of the set, and the next one must not be too late.
func TestConditionAndPartitionInOneStep(t *testing.T) {
	c := newCluster(t, 3, controller.Options{}, simulated.Outcome{Failing: true})
	c.edit(newer)
	c.Rounds(3)
	if have := condition(c.Set); have.Reason != judge.ReasonResizeError {
		t.Fatalf("the condition says %+v", have)
	}
	c.Clock.SetTime(c.Clock.Now().Add(defaults.ErrorTimeout))
	c.Rounds(1) // an error fails the test
	if have := condition(c.Set); have.Reason != judge.ReasonProgressing || simulated.Count(c.Events, judge.EventRestart+" web-2: ") != 1 {
		t.Errorf("the condition says %+v, and recorded is %q", have, c.Events)
	}
}

// TestPhasedImage: each step of an image rollout by lowering the partition is the StatefulSet controller's, as without us. Pods that
// are kept back with another size only are resized when it is lowered.
func TestPhasedImage(t *testing.T) {
	c := newCluster(t, 4, controller.Options{})
	to := func(n int32) {
		c.Change(func() {
			c.User(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n })
		})
	}
	of := func(v version) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(c.Pods)), func(name string) bool { return c.Of(c.Pods[name]) != v })
	}
	lowers := func(v version, asIs bool, steps ...int32) {
		t.Helper()
		for _, n := range steps {
			to(n)
			if free := !policy.Held(c.Set) && partition(c.Set) == int(n); free != asIs {
				t.Errorf("to %v, lowered to %d: it passes as it is: %t, want %t", v, n, free, asIs)
			}
			c.Until(100, func() bool { return !policy.Held(c.Set) && condition(c.Set).Complete() && len(of(v)) == 4-int(n) })
			if got := of(v); len(got) != 4-int(n) {
				t.Fatalf("%v are of %v at partition %d: %+v", got, v, n, condition(c.Set))
			}
		}
	}
	to(4) // all are kept back, as in the conformance tests of Kubernetes
	c.edit(otherImage)
	c.Until(100, func() bool { return !policy.Held(c.Set) })
	lowers(otherImage, true, 3, 1, 0)
	if _, marked := c.Set.Annotations[api.HandedOverAnnotation]; marked {
		t.Error("the mark is left behind")
	}
	to(2)
	larger := version{Image: otherImage.Image, CPU: 2}
	c.edit(larger)
	c.Until(100, func() bool { return !policy.Held(c.Set) && condition(c.Set).Complete() })
	lowers(larger, false, 1, 0)
	to(2)
	c.edit(older) // both parts of it are another image
	c.Until(100, func() bool { return !policy.Held(c.Set) && len(of(older)) == 2 })
	c.edit(version{Image: otherImage.Image, CPU: 3}) // of which those that are kept back have another size only
	c.Until(100, func() bool { return !policy.Held(c.Set) && len(of(older)) == 0 })
	lowers(version{Image: otherImage.Image, CPU: 3}, false, 0)
}

// TestLostAboveThePartition: the StatefulSet controller makes a lost pod, wherever it is, of what the pods below the user's partition
// have. In the middle of an image rollout that is the old image: the pod is restarted when its turn comes. Those below stay.
func TestLostAboveThePartition(t *testing.T) {
	c := newCluster(t, 4, controller.Options{})
	c.Change(func() {
		c.User(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](2) })
	})
	of := func(name string) version {
		if c.Pods[name] == nil {
			return version{}
		}
		return c.Of(c.Pods[name])
	}
	c.edit(otherImage)
	c.Until(100, func() bool { return !policy.Held(c.Set) && of("web-2") == otherImage && of("web-3") == otherImage })
	c.Rounds(5)
	larger := version{Image: otherImage.Image, CPU: 2}
	c.edit(larger)
	c.Change(func() { c.DeletePod("web-3") })
	c.Until(100, func() bool { return of("web-3") == older })
	c.Until(200, func() bool { return !policy.Held(c.Set) && condition(c.Set).Complete() })
	if of("web-0") != older || of("web-1") != older || of("web-2") != larger || of("web-3") != larger {
		t.Errorf("the pods are of %v, %v, %v and %v: %+v", of("web-0"), of("web-1"), of("web-2"), of("web-3"), condition(c.Set))
	}
}

// TestLostAfterAWithdrawnSize: an edit that no pod can get is mended by another one. A pod that is lost then comes as all others are.
func TestLostAfterAWithdrawnSize(t *testing.T) {
	c := newCluster(t, 4, controller.Options{})
	c.Judge = func(*corev1.Pod, version) simulated.Outcome { return simulated.Outcome{Deferred: simulated.Never} }
	for _, cpu := range []int{3, 2} {
		c.edit(version{Image: older.Image, CPU: cpu})
		c.Rounds(5)
	}
	was := c.Pods["web-0"].UID
	c.Change(func() { c.DeletePod("web-0") })
	c.Until(40, func() bool { return c.Pods["web-0"] != nil && c.Pods["web-0"].UID != was })
	if got := c.Of(c.Pods["web-0"]); got != older {
		t.Errorf("it is made of %v, want %v, as all others are; current %s", got, older, c.Set.Status.CurrentRevision)
	}
}

// TestPolicyGoneAndUnanswered: the admission policy was deleted a moment ago. What it would have done is not lost, where any one
// write of the rollout is carried out, and nobody hears of that: the user's partition comes back with the release.
func TestPolicyGoneAndUnanswered(t *testing.T) {
	for nth := 1; ; nth++ {
		c := newCluster(t, 2, controller.Options{})
		c.User(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(1)) })
		c.edit(newer)
		c.Unguarded = true
		last := len(c.Writes) + nth
		c.Fails, c.CarriedOut = last, true
		for range 60 {
			_, _ = c.Sync() // the write that fails
			c.Lives()
			c.Sees()
		}
		if held, got := policy.Held(c.Set), partition(c.Set); held || got != 1 {
			t.Errorf("write %d has no answer: held %t, partition %d, want the user's 1; writes %q", nth, held, got, c.Writes)
		}
		if len(c.Writes) < last {
			return
		}
	}
}

// TestPolicyGoneAtALowering: neither is the request to lower the partition kept, which
// the policy would take for one of today when it is back.
func TestPolicyGoneAtALowering(t *testing.T) {
	c := newCluster(t, 2, controller.Options{}, simulated.Outcome{Infeasible: true})
	c.edit(newer)
	c.Unguarded = true
	said := ""
	for range 10 {
		if _, err := c.Sync(); err != nil {
			said = err.Error()
			break
		}
		c.Lives()
		c.Sees()
	}
	if said != "moving the partition: the admission policy is not in force" {
		t.Errorf("the last error is %q", said)
	}
	if _, stored := c.Set.Annotations[api.PartitionAnnotation]; stored || !policy.Held(c.Set) || partition(c.Set) != everything {
		t.Errorf("annotations %v, partition %d", c.Set.Annotations, partition(c.Set))
	}
	c.Unguarded = false
	c.Rest()
}

// TestEditedInOurWrite: a webhook changes the template in each of the controller's writes,
// and each such edit is held. The controller tries again later and later.
func TestEditedInOurWrite(t *testing.T) {
	c := newCluster(t, 2, controller.Options{})
	c.edit(otherImage)
	tries := 0
	c.Webhook = func(set *appsv1.StatefulSet) {
		tries++
		set.Spec.Template = *templates[version{Image: 3 - simulated.VersionOf(&set.Spec.Template.Spec).Image, CPU: 1}]
	}
	before := c.Clock.Now()
	edited := func(err error) bool { return errors.Is(err, controller.ErrEdited) }
	c.Rounds(300, edited)
	if took := c.Clock.Since(before); tries < 2 || tries > 5+int(took/(judge.MaxAskInterval/2)) || !policy.Held(c.Set) || partition(c.Set) != everything {
		t.Errorf("%d tries in %s, annotations %v, partition %d", tries, took, c.Set.Annotations, partition(c.Set))
	}
	if n := simulated.Count(c.Events, judge.EventStepFailed); n != tries {
		t.Errorf("%d tries, %d events of them", tries, n)
	}
	c.Webhook = nil
	c.Rest()
	if policy.Held(c.Set) || partition(c.Set) != 0 {
		t.Errorf("in the end: annotations %v, partition %d", c.Set.Annotations, partition(c.Set))
	}
}

// TestUnknownToThePolicy: a controller that runs under another identity gets an error that says so, and
// claims nothing that the policy has not let it do.
func TestUnknownToThePolicy(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit version
	}{
		{"letting go", otherImage},
		{"lowering the partition", newer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 2, controller.Options{})
			c.Infeasible(func(pod *corev1.Pod) bool { return pod.Name == "web-1" })
			c.edit(tt.edit)
			c.Unknown = true
			unknown := func(err error) bool { return errors.Is(err, controller.ErrUnknown) }
			c.Rounds(5, unknown)
			if _, err := c.Sync(); !unknown(err) {
				t.Errorf("said %v, want %v", err, controller.ErrUnknown)
			}
			if n := simulated.Count(c.Events, judge.EventHandedOver) + simulated.Count(c.Events, judge.EventRestart); n != 0 || !policy.Held(c.Set) || partition(c.Set) != everything {
				t.Errorf("annotations %v, partition %d, events %q", c.Set.Annotations, partition(c.Set), c.Events)
			}
			c.Unknown = false
			c.Rest()
		})
	}
}

// TestRun runs the workers themselves, for the race detector; one step fails.
func TestRun(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := newCluster(t, 2, controller.Options{Workers: 2, Metrics: controller.NewMetrics(registry)})
	c.Refuse("patch statefulsets/status web", apierrors.NewInternalError(errors.New("etcd is away")), 1)
	c.Run(func() { c.users(newer) })
	if failed := measured(t, registry)["step_errors_total[]"]; failed != 1 {
		t.Errorf("%v failed steps are counted, want 1", failed)
	}
}

// TestMoreSetsThanSessions: the mark of a set under OnDelete goes in time though others always need its session, and a pod that is deferred
// for too long is restarted.
func TestMoreSetsThanSessions(t *testing.T) {
	c := newCluster(t, 2, controller.Options{Sessions: 1}, simulated.Outcome{Unready: true})
	underOnDelete(c)
	c.edit(newer)
	besideAnother(t, c, func() bool { return !policy.Held(c.Set) })

	c = newCluster(t, 2, controller.Options{Sessions: 1}, simulated.Outcome{Deferred: simulated.Never})
	before := c.UIDs()
	c.edit(newer)
	besideAnother(t, c, func() bool { return c.UIDs()["web-1"] != before["web-1"] })
}

// besideAnother has another set need the only session, again and again, until it is done.
func besideAnother(t *testing.T, c *cluster, done func() bool) {
	t.Helper()
	other := c.Set.DeepCopy()
	other.Name, other.UID = "other", "other"
	for range 15 {
		if c.Rounds(3, apierrors.IsConflict); done() { // the first one opens its session
			return
		}
		must.Do(t, c.Kind.Workloads.Show(other))
		// When the other set's mark goes in time first, the API, which has one set, calls that a conflict.
		if _, err := c.Controller.Sync(t.Context(), cache.NewObjectName(other.Namespace, other.Name)); err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		c.Clock.SetTime(c.Clock.Now().Add(time.Minute))
	}
	t.Errorf("nothing has come of it after a quarter of an hour: %+v; %q", condition(c.Set), c.Writes)
}

// TestHistory: a revision that nothing controls is the set's, as it is for the StatefulSet
// controller, which may adopt it late. One of another set is not. One that nobody can read is as if it were gone, unless it is
// the update revision.
func TestHistory(t *testing.T) {
	set := webSet(older, 1)
	mine, orphan, foreign := stored[revisionOf(older)].DeepCopy(), stored[revisionOf(newer)].DeepCopy(), stored[revisionOf(older)].DeepCopy()
	orphan.OwnerReferences = nil
	foreign.Name, foreign.OwnerReferences[0].UID = "foreign", "another"
	former := foreign.DeepCopy()
	former.Name, set.Status.UpdateRevision = "former", "former"
	unreadable := mine.DeepCopy()
	unreadable.Name, unreadable.Data.Raw = "unreadable", []byte("{}")
	s := &session{KindState: &memory{history: history{}}}
	k := New(fake.NewClientset(mine, orphan, foreign, former, unreadable))
	must.Do(t, k.readRevisions(t.Context(), s, set))
	if kept := strip(set, false).Spec.Template; len(kept.Spec.Containers) > 0 || !hash.SameText(&kept, &set.Spec.Template) {
		t.Errorf("of the template, %+v is kept in memory", kept)
	}
	if s.KindState.history[mine.Name] == nil || s.KindState.history[orphan.Name] == nil || s.KindState.history[foreign.Name] != nil || s.KindState.history[former.Name] == nil {
		t.Errorf("the history has %v", slices.Sorted(maps.Keys(s.KindState.history)))
	}
	if set.Status.UpdateRevision = "unreadable"; k.readRevisions(t.Context(), s, set) == nil {
		t.Error("an update revision that nobody can read is no error")
	}
}

// TestKeptOutByQuota: a missing pod that a quota refuses is told of with since when, so that it does not take room from others for long.
func TestKeptOutByQuota(t *testing.T) {
	for _, milli := range []int64{0, 9} {
		c := newCluster(t, 2, controller.Options{})
		c.edit(newer)
		c.Rounds(2)
		hard := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
		k := New(fake.NewClientset(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: c.Set.Namespace, Name: "small"},
			Status: corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{corev1.ResourceCPU: resource.Quantity{}}}}))
		missing := c.Clock.Now()
		for _, after := range []time.Duration{0, lookAtQuotas} {
			c.Clock.SetTime(missing.Add(after))
			o := must.Get(k.Gather(t.Context(), c.Kind.Session, c.Kind.Planned, func() ([]*corev1.Pod, error) { return []*corev1.Pod{c.Pods["web-0"]}, nil }, false))(t)
			want := time.Time{}
			if after > 0 && milli == 0 {
				want = missing
			}
			if _, coming := o.Pods(); len(coming) != 1 || !coming[0].Refused.Equal(want) {
				t.Errorf("quota %dm, %s after it is missing: to come are %+v, want one refused since %s", milli, after, coming, want)
			}
		}
	}
}

// TestWritesInWords: each kind of write is logged by --dry-run.
func TestWritesInWords(t *testing.T) {
	m := judge.Member{Place: judge.Place{Name: "web-1", Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}}}
	restart := rollout.Restart{Member: m, Reason: "the action is Restart"}
	for want, write := range map[string]rollout.Write{
		"mark pod web-1 as updated":               rollout.MarkPod{Member: m, Label: "web-b", Revision: "web-b"},
		"delete pod web-1: the action is Restart": rollout.DeletePod{Restart: restart},
		"lower the partition to 1":                lowerPartition{1, []rollout.Restart{restart}},
		"release the hold":                        rollout.Release{},
		"release the hold: image of app differs":  rollout.Release{HandOver: "image of app differs"},
	} {
		if got := write.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestDryRunLogs: what would be written is logged, of the pod and of the condition.
func TestDryRunLogs(t *testing.T) {
	c := newCluster(t, 2, controller.Options{DryRun: true})
	c.edit(newer)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	for range 2 { // the first one only starts to watch
		must.Get(c.Controller.Sync(klog.NewContext(t.Context(), logger), cache.MetaObjectToName(c.Set)))(t)
		c.Sees()
	}
	logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	for _, want := range []string{"resize pod web-1: ", `Would write the condition status="False" reason="Progressing"`} {
		if !strings.Contains(logged, want) {
			t.Errorf("%q is not logged: %s", want, logged)
		}
	}
}
