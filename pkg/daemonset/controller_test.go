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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
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

// TestHandedOverOnce: a rollout with maxSurge that was held is no edit during a surge.
func TestHandedOverOnce(t *testing.T) {
	c := newCluster(t, 4, controller.Options{})
	c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
	c.edit(otherImage)
	c.Rest()
	must.Equal(t, simulated.Count(c.Events, judge.EventHandedOver), 1, "events that it was handed over: %q", c.Events)
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
	if n := simulated.Count(c.Events, judge.EventHandedOver); n != 1 || simulated.Count(c.Writes, "patch pods") != 0 {
		t.Errorf("%d events that it was handed over, writes %q: %q", n, c.Writes, c.Events)
	}
	before := maps.Clone(c.Pods)
	c.edit(version{Image: 2, CPU: 3})
	c.Rest()
	must.Equal(t, c.replaced(before), "", "nodes on which the next edit replaced pods")
}

// TestLabelsOfAnotherLife: a set is deleted without its pods, and created again with another
// template. It counts its templates from 1, so that the DaemonSet controller takes the pods for
// updated. They are compared by what they were made from. With maxSurge they get a new one beside
// them before they go: none is deleted by us.
func TestLabelsOfAnotherLife(t *testing.T) {
	for _, tt := range []struct {
		edited          version
		surge, replaced bool
	}{{newer, false, false}, {otherImage, false, true}, {otherImage, true, true}} {
		c := newCluster(t, 3, controller.Options{})
		if tt.surge {
			c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
		}
		c.Rest()
		before := maps.Clone(c.Pods)
		c.Client.Lock()
		c.Set = c.Set.DeepCopy()
		c.Set.Spec.Template = *templates[tt.edited]
		c.recreate()
		c.Client.Unlock()
		c.Lives()
		c.Sees()
		c.Rest()
		must.Equal(t, c.replaced(before) != "", tt.replaced, "%v: replaced", tt.edited)
		if n := simulated.Count(c.Writes, "delete pods"); n > 0 != (tt.replaced && !tt.surge) {
			t.Errorf("%v: %d pods were deleted by the controller: %q", tt.edited, n, c.Writes)
		}
	}
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
// Of several that say the same, the one with the highest number is that of the template. One that nobody can read is as if it
// were gone.
func TestHistory(t *testing.T) {
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
	unreadable := func(r *appsv1.ControllerRevision) { r.Data.Raw = []byte("{}") }
	stored := []appsv1.ControllerRevision{
		made(former, "a", 1, as), made(newer, "b", 2, as), made(newer, "c", 4, orphan), made(newer, "d", 3, as),
		made(otherImage, "e", 5, another), made(newer, "x", 9, named), made(former, "y", 9, unreadable),
	}
	h, kept := &history{}, strip(set, false).Spec.Template
	h.read(set, &kept, stored)
	maps.DeleteFunc(h.revisions, func(of string, r *revision) bool { return of == r.unmarked() })
	if got := slices.Sorted(maps.Keys(h.revisions)); !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) || h.newest == nil || h.newest.hash != "c" {
		t.Errorf("the history has %v, and the newest is %+v", got, h.newest)
	}
	if h.read(set, &kept, stored[:1]); len(kept.Spec.Containers) > 0 || h.newest != nil {
		t.Errorf("without a revision of the template: %+v", h.newest)
	}
	client, s := fake.NewClientset(&stored[1]), &session{KindState: &history{}}
	for _, live := range []bool{false, false, true} { // what lets pods be restarted does not rest on what was read before
		must.Get(New(client).Gather(t.Context(), s, set, func() ([]*corev1.Pod, error) { return nil, nil }, live))(t)
	}
	must.Equal(t, len(client.Actions()), 2, "how often the history was read: once, and again for a live look")
	_, err := New(fake.NewClientset(&stored[0])).Gather(t.Context(), &session{KindState: &history{}}, set, func() ([]*corev1.Pod, error) { return nil, nil }, false)
	must.Fails(t, "Gather", err, "is not in the history")
}

// TestHistoryOfAnotherSpelling: that is a new revision for the DaemonSet controller, and for the API
// server the same template, of the same generation. Whoever took the former revision for the newest
// would let go before the pods are of the one that is still to be made.
func TestHistoryOfAnotherSpelling(t *testing.T) {
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
		must.Fails(t, "before there is a revision of the template", gather(), "is not in the history")
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "b"
	}
	must.Get(client.AppsV1().ControllerRevisions(set.Namespace).Create(t.Context(), newRevision(t, set, "c", 2), metav1.CreateOptions{}))(t)
	must.Do(t, gather())
	must.Equal(t, s.KindState.newest.hash, "c", "the newest afterwards")
}

// TestSurgeNeedsRoomForBoth: with maxSurge, the new pod comes beside the old one. Where its node has no room for both, the old one is kept,
// and the condition says so, be it that the DaemonSet controller takes it for updated or not.
func TestSurgeNeedsRoomForBoth(t *testing.T) {
	for _, counted := range []bool{false, true} {
		c := newCluster(t, 2, controller.Options{})
		c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
		c.Rest()
		room := func(cpu string) {
			for name := range c.world.Nodes {
				c.changeNode(name, func(node *corev1.Node) { node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(cpu) })
			}
			c.nodesChange()
		}
		room("1m") // the pod fits, and no other one beside it
		before := maps.Clone(c.Pods)
		c.edit(limited)
		if counted { // one has the limit when the edit is taken back, and the label from before
			c.Until(20, func() bool { return simulated.Count(c.Writes, "patch pods/resize") > 0 })
		} else { // all have it, and the label, too
			c.Rest()
		}
		c.Events = nil
		c.edit(former)
		most := len(c.Pods)
		for range 60 {
			c.Rounds(1)
			most = max(most, len(c.Pods))
		}
		if most > len(before) || c.replaced(before) != "" {
			t.Errorf("counted as updated %t: up to %d pods on %d nodes, each of which has room for one; replaced on %q: %+v; writes %q", counted, most, len(before), c.replaced(before), condition(c.Set), c.Writes)
		}
		must.Equal(t, condition(c.Set).Reason, judge.ReasonNoNodeFits, "counted as updated %t: why it waits", counted)
		room("2m")
		c.Rounds(60)
		must.Equal(t, simulated.Count(c.Events, "Warning "+judge.EventHandedOver), 1, "counted as updated %t: warnings that pods restart: %q", counted, c.Events)
		must.Equal(t, condition(c.Set).Complete(), true, "counted as updated %t: it is over", counted)
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
			must.Equal(t, c.replaced(before), "", "nodes on which pods were replaced")
			must.Equal(t, simulated.Count(c.Events, "Warning "+judge.EventCritical), tt.want, "how often it was told of: %q", c.Events)
		})
	}
}
