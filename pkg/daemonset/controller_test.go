package daemonset

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// cluster is the world of the simulation with the whole controller in it.
type cluster struct {
	*world
	*simulated.Harness[*appsv1.DaemonSet, *history]
}

// newCluster has a set of former that is at rest on so many nodes.
func newCluster(t testing.TB, nodes int, options controller.Options, outcomes ...simulated.Outcome) *cluster {
	t.Helper()
	load(t)
	c, client := &cluster{world: newWorld(t, webSet(former), nodes, outcomes)}, &fake.Clientset{}
	c.Serve(client)
	c.Harness = simulated.NewHarness[*appsv1.DaemonSet, *history](t, c, c.Cluster, client, nil)
	c.nodesChange()
	options.Defaults = defaults
	c.Start(New(client), options)
	return c
}

// nodesChange has the controller see the nodes as they are.
func (c *cluster) nodesChange() { c.Nodes.Set(slices.Collect(maps.Values(c.world.Nodes))...) }

func (c *cluster) Show() error { return c.Kind.Workloads.Show(c.Set) }

func (c *cluster) Shown() bool { return true }

// edit changes the template, and lets the DaemonSet controller see it.
func (c *cluster) edit(v version) { c.Change(func() { c.users(v) }) }

func (c *cluster) users(v version) {
	c.User(func(set *appsv1.DaemonSet) { set.Spec.Template = *templates[v] })
}

func (c *cluster) strategy(s appsv1.DaemonSetUpdateStrategy) {
	c.Change(func() { c.User(func(set *appsv1.DaemonSet) { set.Spec.UpdateStrategy = s }) })
}

// replaced are the nodes whose pod is another one than before.
func (c *cluster) replaced(before map[string]*corev1.Pod) string {
	var nodes []string
	for name, pod := range before {
		if c.Pods[name] == nil || c.Pods[name].UID != pod.UID {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return strings.Join(nodes, " ")
}

func onNode(name string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return capacity.TargetNode(pod) == name }
}

// TestHundredNodes: all pods are resized, two writes each, and Kubernetes has the history of it.
func TestHundredNodes(t *testing.T) {
	c := newCluster(t, 100, controller.Options{})
	c.strategy(rollingUpdate(intstr.FromString("10%"), intstr.FromInt32(0)))
	before := maps.Clone(c.Pods)
	c.edit(newer)
	c.Rest()
	if replaced := c.replaced(before); replaced != "" {
		t.Errorf("pods were replaced: %s", replaced)
	}
	if n := simulated.Count(c.Writes, "patch pods"); n != 200 {
		t.Errorf("%d writes to 100 pods, want 200", n)
	}
	if n := len(c.revisions); n != 2 || c.Set.Status.UpdatedNumberScheduled != 100 {
		t.Errorf("%d revisions, and %d pods are counted as updated", n, c.Set.Status.UpdatedNumberScheduled)
	}
	c.edit(former) // kubectl rollout undo
	c.Rest()
	if replaced := c.replaced(before); replaced != "" {
		t.Errorf("pods were replaced by the undo: %s", replaced)
	}
}

// TestSilentKubelets: kubelets of 1.33 say no generation, and their pods are resized all the same.
func TestSilentKubelets(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	for _, node := range c.world.Nodes {
		node.Status.NodeInfo.KubeletVersion = "v1.33.5"
	}
	c.nodesChange()
	c.Silent = true
	c.Lives()
	c.Sees()
	before := maps.Clone(c.Pods)
	c.edit(newer)
	c.Rest()
	if replaced := c.replaced(before); replaced != "" {
		t.Errorf("pods were replaced: %s", replaced)
	}
}

// TestEditOfFormerClass: an edit comes before a pod has gone back from the size of its node's class,
// which is RestartOnly. It is rolled out live, and the pod goes back when the policy lets it.
func TestEditOfFormerClass(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	cpuOf := func(place string) int { return simulated.AppliedSize(c.Pods[place]).CPU }
	annotate := func(edit func(annotations map[string]string)) {
		c.User(func(set *appsv1.DaemonSet) { edit(set.Annotations) })
	}
	c.world.Nodes["node-1"].Labels = map[string]string{"size": "large"}
	c.nodesChange()
	c.Change(func() {
		annotate(func(a map[string]string) {
			a[api.NodeResourcesAnnotation] = `[{"nodeSelector": {"size": "large"}, "containers": {"app": {"requests": {"cpu": "9m"}}}}]`
		})
	})
	c.Until(60, func() bool { return cpuOf("web-002") == 9 })
	before := maps.Clone(c.Pods)
	c.Change(func() {
		annotate(func(a map[string]string) {
			delete(a, api.NodeResourcesAnnotation)
			a[api.ResizePolicyAnnotation] = "cpu:decrease=RestartOnly"
		})
		c.users(newer)
	})
	c.Rounds(60)
	const says = "1 of them has yet to go back to the template's size; web-002: cpu of app: RestartOnly (annotation cpu:decrease); left as it is"
	if got := condition(c.Set); got.Status != corev1.ConditionFalse || !strings.Contains(got.Message, says) || policy.Held(c.Set) {
		t.Errorf("held: %t; the condition is %s %s: %s", policy.Held(c.Set), got.Status, got.Reason, got.Message)
	}
	for place, want := range map[string]int{"web-001": 2, "web-002": 9, "web-003": 2} {
		if got := cpuOf(place); got != want {
			t.Errorf("%s has %dm, want %dm", place, got, want)
		}
	}
	c.Change(func() { annotate(func(a map[string]string) { delete(a, api.ResizePolicyAnnotation) }) })
	c.Until(60, func() bool { return cpuOf("web-002") == newer.CPU && condition(c.Set).Complete() })
	if replaced := c.replaced(before); replaced != "" {
		t.Errorf("pods were replaced: %s", replaced)
	}
}

// TestRefusedResize: what the API server refuses for good, only a new pod on that node can help.
func TestRefusedResize(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		times  int
		failed int // syncs
		event  string
	}{
		{"final", simulated.TooSmall("web-002"), 1 << 20, 0, rollout.EventRestart + " web-002: deleted, because it needs a restart: infeasible on node node-1: "},
		{"a quota may pass", simulated.Forbidden("web-002", "exceeded quota: compute"), 3, 0, rollout.EventQuotaExceeded + ` web-002: pods "web-002" is forbidden: exceeded quota: compute`},
		{"a conflict is only a reason to look again", simulated.Conflict(&corev1.Pod{}), 2, 2, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 3, controller.Options{})
			before := maps.Clone(c.Pods)
			c.Refuse("patch pods/resize web-002", tt.err, tt.times)
			c.edit(newer)
			if failed := c.Rest(); len(failed) != tt.failed {
				t.Errorf("%d syncs failed, want %d: %v", len(failed), tt.failed, errors.Join(failed...))
			}
			want := ""
			if tt.name == "final" {
				want = "node-1"
			}
			if replaced := c.replaced(before); replaced != want {
				t.Errorf("replaced on %q, want %q", replaced, want)
			}
			if tt.event != "" && simulated.Count(c.Events, tt.event) != 1 {
				t.Errorf("want the event %q once: %q", tt.event, c.Events)
			}
		})
	}
}

// TestEveryWriteFailsOnce: whichever write of a rollout fails, and whether it was
// carried out or not, the rollout completes, and no other pod is restarted.
func TestEveryWriteFailsOnce(t *testing.T) {
	kinds := []string{"patch pods/resize", "patch pods web", "delete pods web", "patch daemonsets web", "patch daemonsets/status web"}
	simulated.EachWriteFails(t, kinds, func(t *testing.T, nth int, carriedOut bool) []string {
		c := newCluster(t, 3, controller.Options{})
		c.Infeasible(onNode("node-0"))
		c.Fails, c.CarriedOut = nth, carriedOut
		before := maps.Clone(c.Pods)
		c.edit(newer)
		c.Rest()
		if replaced := c.replaced(before); replaced != "node-0" {
			t.Errorf("write %d fails: replaced on %q; writes: %q", nth, replaced, c.Writes)
		}
		return c.Writes
	})
}

// TestDeletesWhatItHasLookedAt: a pod that has changed since the controller decided to give it up is
// looked at once more.
func TestDeletesWhatItHasLookedAt(t *testing.T) {
	c := newCluster(t, 2, controller.Options{})
	c.strategy(rollingUpdate(intstr.FromInt32(2), intstr.FromInt32(0)))
	c.Infeasible(onNode("node-0"))
	before := maps.Clone(c.Pods)
	late := false
	c.Requested = func(action clienttesting.Action) {
		if action.Matches("delete", "pods") && !late {
			late, c.Judge = true, nil
			c.Kubelet(action.(clienttesting.DeleteAction).GetName()) // carries the resize out after all
		}
	}
	c.edit(newer)
	c.Rest()
	if replaced := c.replaced(before); !late || replaced != "" {
		t.Errorf("tried to delete a pod: %t; replaced on %q", late, replaced)
	}
}

// TestNoRoomOnItsNode: a pod is kept while its node is too small for the size, though others are
// not, and is given up when that has become larger.
func TestNoRoomOnItsNode(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	before := maps.Clone(c.Pods)
	c.changeNode("node-1", func(node *corev1.Node) { node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1m") })
	c.nodesChange()
	c.edit(newer)
	c.Rounds(60)
	if have := condition(c.Set); have.Reason != rollout.ReasonNoNodeFits || c.replaced(before) != "" || !policy.Held(c.Set) {
		t.Errorf("replaced on %q, and it says %+v", c.replaced(before), have)
	}
	for _, pod := range c.Pods {
		if want := map[bool]version{true: {CPU: 1}, false: {CPU: 2}}[pod.Spec.NodeName == "node-1"]; simulated.AppliedSize(pod) != want {
			t.Errorf("%s has %+v, want %+v", pod.Name, simulated.AppliedSize(pod), want)
		}
	}
	c.changeNode("node-1", func(node *corev1.Node) { node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("8") })
	c.nodesChange()
	c.Rest()
}

// TestHandedOverOnce: a rollout with maxSurge that was held is no edit during a surge.
func TestHandedOverOnce(t *testing.T) {
	c := newCluster(t, 4, controller.Options{})
	c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
	c.edit(otherImage)
	c.Rest()
	if n := simulated.Count(c.Events, rollout.EventHandedOver); n != 1 {
		t.Errorf("%d events that it was handed over: %q", n, c.Events)
	}
}

// TestEditDuringSurge: while a rollout with maxSurge is in flight, an edit is not held, and an event
// says so once. The next edit is held.
func TestEditDuringSurge(t *testing.T) {
	c := newCluster(t, 4, controller.Options{})
	c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
	c.edit(otherImage)
	c.Until(100, func() bool { return !policy.Held(c.Set) && len(c.Pods) == 5 })
	if policy.Held(c.Set) || len(c.Pods) != 5 {
		t.Fatalf("no surge: %d pods", len(c.Pods))
	}
	c.Events = nil
	c.edit(version{Image: 2, CPU: 2})
	if policy.Held(c.Set) {
		t.Fatal("the policy holds during a surge")
	}
	c.Rest()
	if n := simulated.Count(c.Events, rollout.EventHandedOver); n != 1 || simulated.Count(c.Writes, "patch pods") != 0 {
		t.Errorf("%d events that it was handed over, writes %q: %q", n, c.Writes, c.Events)
	}
	before := maps.Clone(c.Pods)
	c.edit(version{Image: 2, CPU: 3})
	c.Rest()
	if replaced := c.replaced(before); replaced != "" {
		t.Errorf("the next edit replaced pods on %s", replaced)
	}
}

// TestLabelsOfAnotherLife: a set is deleted without its pods, and created again with another
// template. It counts its templates from 1, so that the DaemonSet controller takes the pods for
// updated. They are compared by what they were made from.
func TestLabelsOfAnotherLife(t *testing.T) {
	for _, edited := range []version{newer, otherImage} {
		c := newCluster(t, 3, controller.Options{})
		c.Rest()
		before := maps.Clone(c.Pods)
		c.Client.Lock()
		c.Set = c.Set.DeepCopy()
		c.Set.Spec.Template = *templates[edited]
		c.recreate()
		c.Client.Unlock()
		c.Lives()
		c.Sees()
		c.Rest()
		if replaced, want := c.replaced(before) != "", edited == otherImage; replaced != want {
			t.Errorf("%v: replaced: %t, want %t", edited, replaced, want)
		}
	}
}

// TestSurgeInAnotherLife: with maxSurge such pods get a new one beside them before they go: none is
// deleted by us.
func TestSurgeInAnotherLife(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
	c.Rest()
	before := maps.Clone(c.Pods)
	c.Client.Lock()
	c.Set = c.Set.DeepCopy()
	c.Set.Spec.Template = *templates[otherImage]
	c.recreate()
	c.Client.Unlock()
	c.Lives()
	c.Sees()
	c.Rest()
	if replaced := c.replaced(before); replaced == "" {
		t.Error("no pod was replaced")
	}
	if n := simulated.Count(c.Writes, "delete pods"); n != 0 {
		t.Errorf("%d pods were deleted by the controller: %q", n, c.Writes)
	}
}

// TestPolicyGone: the admission policy was deleted a moment ago. What it would have done is not
// lost: the user's strategy comes back with the release.
func TestPolicyGone(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	c.edit(newer)
	c.Unguarded = true
	c.Until(100, func() bool { return !policy.Held(c.Set) })
	if policy.Held(c.Set) || onDelete(c.Set) {
		t.Errorf("held %t, strategy %s, want the user's", policy.Held(c.Set), c.Set.Spec.UpdateStrategy.Type)
	}
}

// TestPolicyGoneAndUnavailable: nor is it lost where the API server takes the first of the two writes, and then none for a
// moment.
func TestPolicyGoneAndUnavailable(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	c.edit(newer)
	c.Unguarded = true
	away := 3
	c.Client.PrependReactor("patch", "daemonsets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "" || policy.Held(c.Set) || away == 0 {
			return false, nil, nil
		}
		away--
		return true, nil, apierrors.NewServiceUnavailable("away")
	})
	c.Until(100, func() bool { return !policy.Held(c.Set) })
	if policy.Held(c.Set) || onDelete(c.Set) || away > 0 {
		t.Errorf("held %t, strategy %s, want the user's; %d more to be refused", policy.Held(c.Set), c.Set.Spec.UpdateStrategy.Type, away)
	}
}

// TestEditedInOurWrite: a webhook changes the template in each of the controller's writes,
// and each such edit is held. The controller tries again later and later.
func TestEditedInOurWrite(t *testing.T) {
	c := newCluster(t, 2, controller.Options{})
	c.edit(otherImage)
	tries := 0
	c.Webhook = func(set *appsv1.DaemonSet) {
		tries++
		set.Spec.Template = *templates[version{Image: 3 - simulated.VersionOf(&set.Spec.Template.Spec).Image, CPU: 1}]
	}
	before := c.Clock.Now()
	c.Rounds(100, func(err error) bool { return errors.Is(err, controller.ErrEdited) })
	if most := 5 + int(c.Clock.Since(before)/(rollout.MaxAskInterval/2)); tries < 2 || tries > most || !policy.Held(c.Set) || !onDelete(c.Set) {
		t.Errorf("%d tries, at most %d; annotations %v, strategy %s", tries, most, c.Set.Annotations, c.Set.Spec.UpdateStrategy.Type)
	}
	c.Webhook = nil
	c.Rest()
}

// TestUnknownToThePolicy: a controller that runs under another identity gets an error that says so, and
// claims nothing that the policy has not let it do.
func TestUnknownToThePolicy(t *testing.T) {
	c := newCluster(t, 2, controller.Options{})
	c.edit(otherImage)
	c.Unknown = true
	unknown := func(err error) bool { return errors.Is(err, controller.ErrUnknown) }
	c.Rounds(5, unknown)
	if _, err := c.Sync(); !unknown(err) {
		t.Errorf("said %v, want %v", err, controller.ErrUnknown)
	}
	if n := simulated.Count(c.Events, rollout.EventHandedOver); n != 0 || !policy.Held(c.Set) {
		t.Errorf("annotations %v, events %q", c.Set.Annotations, c.Events)
	}
	c.Unknown = false
	c.Rest()
}

// TestRun runs the workers themselves, for the race detector; one step fails.
func TestRun(t *testing.T) {
	c := newCluster(t, 4, controller.Options{Workers: 2, Metrics: controller.NewMetrics(prometheus.NewRegistry())})
	c.strategy(rollingUpdate(intstr.FromInt32(3), intstr.FromInt32(0)))
	c.Refuse("patch daemonsets/status web", apierrors.NewInternalError(errors.New("etcd is away")), 1)
	c.Run(func() { c.users(newer) })
}

// TestHistory: a revision that nothing controls is the set's, as it is for the DaemonSet
// controller, which may adopt it late. One of another set is not, unless its name is this set's.
// Of several that say the same, the one with the highest number is that of the template.
func TestHistory(t *testing.T) {
	load(t)
	set := webSet(newer)
	made := func(v version, hash string, number int64, change func(*appsv1.ControllerRevision)) appsv1.ControllerRevision {
		of := set.DeepCopy()
		of.Spec.Template = *templates[v]
		r := newRevision(t, of, hash, number)
		change(r)
		return *r
	}
	as := func(*appsv1.ControllerRevision) {}
	orphan := func(r *appsv1.ControllerRevision) { r.OwnerReferences = nil }
	another := func(r *appsv1.ControllerRevision) { r.OwnerReferences[0].UID = "another" }
	named := func(r *appsv1.ControllerRevision) { r.Name, r.OwnerReferences[0].UID = "other-x", "another" }
	stored := []appsv1.ControllerRevision{
		made(former, "a", 1, as), made(newer, "b", 2, as), made(newer, "c", 4, orphan), made(newer, "d", 3, as),
		made(otherImage, "e", 5, another), made(newer, "x", 9, named),
	}
	h := &history{}
	if err := h.read(set, &set.Spec.Template, stored); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(h.revisions)); !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) || h.newest == nil || h.newest.hash != "c" {
		t.Errorf("the history has %v, and the newest is %+v", got, h.newest)
	}
	if err := h.read(set, &set.Spec.Template, stored[:1]); err != nil || h.newest != nil {
		t.Errorf("without a revision of the template: %+v, %v", h.newest, err)
	}
	client, s := fake.NewClientset(&stored[1]), &session{KindState: &history{}}
	for _, live := range []bool{false, false, true} { // what lets pods be restarted does not rest on what was read before
		if _, err := New(client).Gather(t.Context(), s, set, func() ([]*corev1.Pod, error) { return nil, nil }, live); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(client.Actions()); n != 2 {
		t.Errorf("the history was read %d times, want once, and again for a live look", n)
	}
	_, err := New(fake.NewClientset(&stored[0])).Gather(t.Context(), &session{KindState: &history{}}, set, func() ([]*corev1.Pod, error) { return nil, nil }, false)
	if err == nil || !strings.Contains(err.Error(), "is not in the history") {
		t.Errorf("Gather: %v", err)
	}
}

// TestHistoryOfAnotherSpelling: that is a new revision for the DaemonSet controller, and for the API
// server the same template, of the same generation. Whoever took the former revision for the newest
// would let go before the pods are of the one that is still to be made.
func TestHistoryOfAnotherSpelling(t *testing.T) {
	load(t)
	set := webSet(former)
	set.Spec.Template = *set.Spec.Template.DeepCopy()
	size := set.Spec.Template.Spec.Containers[0].Resources.Requests
	size[corev1.ResourceMemory] = resource.MustParse("1Mi")
	stored := newRevision(t, set, "b", 1)
	size[corev1.ResourceMemory] = resource.MustParse("1048576")
	pod := build.Pod("web-1", &set.Spec.Template, func(pod *corev1.Pod) {
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "gone"
		pod.OwnerReferences = owners(set)
	})
	client := fake.NewClientset(stored)
	s := &session{KindState: &history{}}
	gather := func() error {
		_, err := New(client).Gather(t.Context(), s, set, func() ([]*corev1.Pod, error) { return []*corev1.Pod{pod}, nil }, false)
		return err
	}
	for range 2 { // the second time all that is stored is known
		if err := gather(); err == nil || !strings.Contains(err.Error(), "is not in the history") {
			t.Errorf("before there is a revision of the template: %v, and %+v is the newest", err, s.KindState.newest)
		}
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "b"
	}
	if _, err := client.AppsV1().ControllerRevisions(set.Namespace).Create(t.Context(), newRevision(t, set, "c", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := gather(); err != nil || s.KindState.newest.hash != "c" {
		t.Errorf("afterwards: %v, and %+v is the newest", err, s.KindState.newest)
	}
}

// TestCriticalNamespace: what was opted in without a second word, before it took one, goes on, and is told of.
func TestCriticalNamespace(t *testing.T) {
	for name, tt := range map[string]struct {
		allow    string
		critical []string
		want     int
	}{
		"told":              {"", []string{"kube-system", "default"}, 1},
		"confirmed":         {"true", []string{"default"}, 0},
		"another namespace": {"", []string{"kube-system"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, controller.Options{Critical: tt.critical})
			c.Set.Annotations[api.AllowCriticalAnnotation] = tt.allow
			before := maps.Clone(c.Pods)
			c.edit(newer)
			c.Rest()
			if replaced := c.replaced(before); replaced != "" {
				t.Errorf("pods were replaced: %s", replaced)
			}
			if n := simulated.Count(c.Events, "Warning "+rollout.EventCritical); n != tt.want {
				t.Errorf("it was told of %d times, want %d: %q", n, tt.want, c.Events)
			}
		})
	}
}
