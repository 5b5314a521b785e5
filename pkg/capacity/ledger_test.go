package capacity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Two workloads have a pod of 1 cpu each, on a node of 3 where one of them can become one of 2.
func TestTwoRollouts(t *testing.T) {
	const none = "the only node that is large enough has no room beside its pods and those that are to come"
	web, db := podOf(t, "web", "node", "1"), podOf(t, "db", "node", "1")
	nodes, client, ledger := []*corev1.Node{node("node", "3")}, fake.NewClientset(web, db), NewLedger()
	asks := func(workload string, pod *corev1.Pod, now time.Time) string {
		t.Helper()
		room := must.Get(At(client, nodes, ledger, now).Room(t.Context(), workload, "", []*corev1.Pod{pod}, nil, true))(t)
		why := must.Get(room.Replace(t.Context(), judge.Member{Place: placeOf(t, pod)}, rollout.Revision{}, false))(t)
		return why.Reason
	}
	says := func(what, got, want string) {
		t.Helper()
		must.Equal(t, got, want, "%s", what)
	}
	now := build.Start
	says("the first one asks", asks("web", web, now), "")
	says("it asks once more", asks("web", web, now), "")
	says("the second one asks", asks("db", db, now), none)
	ledger.See("web", "", []*corev1.Pod{web}, nil, now.Add(time.Second)) // by a watch that is behind
	says("the first one's pod does not go yet", asks("db", db, now), none)
	ledger.See("web", "", []*corev1.Pod{web}, []rollout.Coming{{Template: templateOf(t, "1"), For: web}}, now)
	says("it is shown what comes, and that counts once", asks("db", db, now), "")
	ledger.Forget("db")
	says("the first one asks again", asks("web", web, now), "")

	going := web.DeepCopy()
	build.Terminating(going)
	coming := []rollout.Coming{{Template: templateOf(t, "2"), For: going}}
	ledger.See("web", "", []*corev1.Pod{going}, coming, now)
	says("it goes", asks("db", db, now), none)
	ledger.See("web", "", nil, coming, now)
	says("it is gone", asks("db", db, now), none)
	ledger.See("web", "", nil, []rollout.Coming{{Template: templateOf(t, "2"), Refused: now}}, now)
	says("a quota may not have counted yet what is gone", asks("db", db, now.Add(keptOutAfter-1)), none)
	says("a quota does not let it come", asks("db", db, now.Add(keptOutAfter)), "")
	ledger.Forget("db")
	ledger.See("web", "", []*corev1.Pod{web}, nil, now)
	says("the first one has all its pods", asks("db", db, now), "")
	ledger.Forget("db")
	says("the first one asks again", asks("web", web, now), "")
	ledger.See("web", "", []*corev1.Pod{web}, nil, now.Add(carriedOut+time.Second))
	says("its pod was not given up", asks("db", db, now), "")
	ledger.Forget("db")
	says("nothing is promised", asks("web", web, now), "")
	ledger.See("web", "", []*corev1.Pod{web}, []rollout.Coming{{Template: templateOf(t, "2"), For: web}}, now.Add(time.Hour))
	says("the built-in controller may take down the first one's pod", asks("db", db, now.Add(time.Hour)), none)
}

// Two others of the same namespace lack a pod each, and there is room for three.
func TestBeside(t *testing.T) {
	db := podOf(t, "db", "node", "1")
	client, ledger := fake.NewClientset(db), NewLedger()
	for _, workload := range []string{"web", "api"} {
		ledger.See(workload, "", nil, []rollout.Coming{{Template: templateOf(t, "2")}}, build.Start)
	}
	for cpu, fits := range map[string]bool{"6": true, "5": false} {
		room := must.Get(At(client, []*corev1.Node{node("node", cpu)}, ledger, build.Start).Room(t.Context(), "db", "", []*corev1.Pod{db}, nil, true))(t)
		if why, err := room.Replace(t.Context(), judge.Member{Place: placeOf(t, db)}, rollout.Revision{}, false); err != nil || (why.Reason == "") != fits {
			t.Errorf("on a node of %s: got %+v and %v, want room: %t", cpu, why, err, fits)
		}
	}
}

// web's pod of so much cpu goes, or has gone, for one of another size, and db's pod of 1 cpu is to become one of 2.
func TestPromises(t *testing.T) {
	const (
		full     = "the only node that is large enough has no room beside its pods"
		promised = full + " and those that are to come"
		fills    = "{apiVersion: v1, kind: LimitRange, metadata: {name: sizes, namespace: ns}, spec: {limits: [{type: Container, defaultRequest: {cpu: 2}}]}}"
	)
	now := build.Start
	going := func(pod *corev1.Pod) { build.Terminating(pod) }
	ended := func(pod *corev1.Pod) { // its grace is over, and the quota does not count it any more
		build.Terminating(pod)
		pod.DeletionGracePeriodSeconds = new(int64)
	}
	size := func(cpu string) *corev1.PodTemplateSpec { return templateOf(t, cpu) }
	for _, tt := range []struct {
		name, cpu    string
		change       func(*corev1.Pod)
		comes        *corev1.PodTemplateSpec
		decided      bool // and no more than that
		gone         bool
		there        string // the cpu of the new one, if it is there
		limits       string
		quota, nodes string
		says         string
	}{
		{name: "its grace is over", cpu: "1", change: ended, comes: size("2"), nodes: "8", quota: "2700m", says: "quota cpu has no room for requests.cpu 2 in place of 1 (used: 3 of 2700m)"},
		{name: "it is gone", cpu: "1", gone: true, comes: size("2"), nodes: "8", quota: "3", says: "quota cpu has no room for requests.cpu 2 in place of 1 (used: 3 of 3)"},
		{name: "it goes, and a LimitRange fills in what comes", cpu: "1", change: going, comes: build.Template(t, "containers: [{name: app}]"), limits: fills, nodes: "3", says: promised},
		{name: "a larger one is decided", cpu: "1", comes: size("2"), decided: true, nodes: "3", says: promised},
		{name: "a smaller one is decided, and it is there yet", cpu: "2", comes: size("1"), decided: true, nodes: "3", says: full},
		{name: "a smaller one may come, and it is there yet", cpu: "2", comes: size("1"), nodes: "3", says: full},
		{name: "it goes for a smaller one", cpu: "2", change: going, comes: size("1"), nodes: "3"},
		{name: "a smaller one has come, and nobody has seen it yet", cpu: "2", comes: size("1"), decided: true, gone: true, there: "1", nodes: "8", quota: "2500m",
			says: "quota cpu has no room for requests.cpu 2 in place of 1 (used: 2 of 2500m)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := func(pod *corev1.Pod) { pod.Namespace = "ns" }
			web, db := podOf(t, "web", "node", tt.cpu, in), podOf(t, "db", "node", "1", in)
			if tt.change != nil {
				tt.change(web)
			}
			objects := append(objectsOf(t, tt.limits), db)
			if tt.quota != "" {
				objects = append(objects, objectsOf(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: cpu, namespace: ns}, spec: {hard: {requests.cpu: "+tt.quota+"}}, status: {hard: {requests.cpu: "+tt.quota+"}, used: {requests.cpu: 2}}}")...)
			}
			there := []*corev1.Pod{web}
			if tt.gone {
				there = nil
			} else {
				objects = append(objects, web)
			}
			if tt.there != "" {
				objects = append(objects, podOf(t, "web", "node", tt.there, in, func(pod *corev1.Pod) { pod.UID = "new" }))
			}
			ledger := NewLedger()
			if tt.decided {
				ledger.promise("web", web, newborns("web", "ns", nil, []rollout.Coming{{Template: tt.comes}})[0], now)
			} else {
				coming := rollout.Coming{Template: tt.comes}
				if !tt.gone {
					coming.For = web
				}
				ledger.See("web", "ns", there, []rollout.Coming{coming}, now)
			}
			room := must.Get(At(fake.NewClientset(objects...), []*corev1.Node{node("node", tt.nodes)}, ledger, now.Add(time.Hour)).Room(t.Context(), "db", "ns", []*corev1.Pod{db}, nil, true))(t)
			why, err := room.Replace(t.Context(), judge.Member{Place: placeOf(t, db)}, rollout.Revision{}, false)
			must.Do(t, err)
			must.Equal(t, why.Reason, tt.says, "the reason")
		})
	}
}

// A new leader decides nothing before it has looked at each workload once, or could not for long.
func TestComplete(t *testing.T) {
	ledger, now := NewLedger(), build.Start
	complete := func(want bool) {
		t.Helper()
		must.Equal(t, ledger.Complete(now), want, "complete")
	}
	complete(true)
	ledger.Await("a kind", "another kind")
	ledger.Await("web", "db")
	ledger.Forget("a kind")
	ledger.Forget("another kind")
	complete(false)
	ledger.See("web", "", nil, nil, now)
	complete(false)
	ledger.Forget("db")
	complete(true)
	ledger.Await("broken")
	now = now.Add(time.Hour) // nobody was ready to look
	complete(false)
	now = now.Add(longestWait + time.Second)
	complete(true)
}

// All pods are listed for those that keep others away, once a minute, and not if there are too many.
func TestRepel(t *testing.T) {
	ledger, now := NewLedger(), build.Start
	client := fake.NewClientset(podOf(t, "quiet", "node", "1"))
	lists, many := 0, 0
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		lists++
		return many > 0, &corev1.PodList{Items: make([]corev1.Pod, many)}, nil
	})
	for range 2 {
		must.Equal(t, len(must.Get(ledger.repel(t.Context(), client, now))(t)), 0, "what is found")
	}
	now, many = now.Add(believeRepelling), mostPods+1
	for range 2 {
		if _, err := ledger.repel(t.Context(), client, now); !isUnknown(err) || !strings.Contains(err.Error(), "more than 50000 pods") {
			t.Errorf("got %v, want that it is unknown", err)
		}
	}
	must.Equal(t, lists, 2, "how often it has listed")
}

// TestDecide: nobody decides while another does, nor waits for that; and none decides for ever.
func TestDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, failed := NewLedger(), errors.New("failed")
		hung := make(chan error, 1)
		go func() {
			_, err := ledger.Decide(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			hung <- err
		}()
		synctest.Wait()
		began := time.Now()
		if decides, err := ledger.Decide(t.Context(), func(context.Context) error { return failed }); decides || err != nil || time.Since(began) > 0 {
			t.Errorf("decides %t, %v, after %s, while another does", decides, err, time.Since(began))
		}
		if err := <-hung; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the other one ended with %v", err)
		}
		if decides, err := ledger.Decide(t.Context(), func(context.Context) error { return failed }); !decides || !errors.Is(err, failed) {
			t.Errorf("decides %t, %v, after that", decides, err)
		}
	})
}

// clusterOf has these objects.
func clusterOf(objects ...runtime.Object) *Cluster {
	return New(fake.NewClientset(objects...), All, build.Start)
}

func withoutRoom(t *testing.T, c *Cluster, members []judge.Member, revision rollout.Revision, newFirst bool) map[types.UID]judge.Refusal {
	t.Helper()
	full, unknown, err := c.withoutRoom(t.Context(), members, podsIn(members), revision, newFirst)
	if err != nil || unknown != "" {
		t.Fatalf("%v %s", err, unknown)
	}
	return full
}

// A forecast has one pod after the other take its room, too.
func TestWithoutRoom(t *testing.T) {
	objects := []runtime.Object{node("node", "3")}
	var members []judge.Member
	for _, name := range []string{"web-1", "web-0"} {
		pod := podOf(t, name, "node", "1")
		objects = append(objects, pod)
		members = append(members, judge.Member{Place: placeOf(t, pod)})
	}
	b := rollout.Revision{Name: "b"}
	full := withoutRoom(t, clusterOf(objects...), members, b, false)
	for i, want := range []bool{false, true} {
		m := members[i]
		if got := full[m.Pod.UID]; (got.Reason != "") != want || want && got.Of != b.Size(m.Target.Changes) {
			t.Errorf("%s has no room: %+v, want that it has none: %t", m.Name, got, want)
		}
	}
}

// TestWithoutRoomBesideTheOld: a new pod that comes first may wait for room that others have, but not for what its own
// workload has: it needs room beside the old one.
func TestWithoutRoomBesideTheOld(t *testing.T) {
	port := func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	const none = "the only node that is large enough has no room beside its pods"
	for _, tt := range []struct {
		what string
		cpu  string // of the node
		pod  func(*corev1.Pod)
		want string
	}{
		{"beside the old one is none anywhere", "2", func(*corev1.Pod) {}, none},
		{"beside the old one is room", "3", func(pod *corev1.Pod) { pinned(pod, "node") }, ""},
		{"beside the old one is none", "2", func(pod *corev1.Pod) { pinned(pod, "node") }, none},
		{"the old one has the host port", "8", port, none},
	} {
		pod := podOf(t, "web", "node", "1", tt.pod)
		m, b := judge.Member{Place: placeOf(t, pod)}, rollout.Revision{Name: "b"}
		full := withoutRoom(t, clusterOf(node("node", tt.cpu), pod), []judge.Member{m}, b, true)
		if got := full[pod.UID]; got.Reason != tt.want || tt.want != "" && got.Of != b.Size(m.Target.Changes) {
			t.Errorf("%s: got %+v, want %q", tt.what, got, tt.want)
		}
	}
}

// However many pods wait for a node, whoever made them: so many are read. Those of a node are few,
// and come from the API server's cache.
func TestPodsOn(t *testing.T) {
	client := fake.NewClientset()
	var asked []string
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, fmt.Sprintf("%s limit %d version %q", o.FieldSelector, o.Limit, o.ResourceVersion))
		return true, &corev1.PodList{Items: make([]corev1.Pod, 1)}, nil
	})
	c := New(client, All, build.Start)
	for range 2 { // it is read once
		for _, node := range []string{"", "node-1"} {
			must.Equal(t, len(must.Get(c.podsOn(t.Context(), node))(t)), 1, "pods on node %q", node)
		}
	}
	must.EqualLists(t, asked, []string{`spec.nodeName= limit 1000 version ""`, `spec.nodeName=node-1 limit 500 version "0"`}, "what is asked for")
}
