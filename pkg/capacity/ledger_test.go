package capacity

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// Two workloads have a pod of 1 cpu each, on a node of 3 where one of them can become one of 2.
func TestTwoRollouts(t *testing.T) {
	const none = "the only node that is large enough has no room beside its pods and those that wait for a node"
	web, db := podOf(t, "web", "node", "1"), podOf(t, "db", "node", "1")
	nodes, client, ledger := []*corev1.Node{node("node", "3")}, fake.NewClientset(web, db), NewLedger()
	asks := func(workload string, pod *corev1.Pod, now time.Time) string {
		t.Helper()
		room, err := At(client, nodes, ledger, now).Room(t.Context(), workload, "", []*corev1.Pod{pod}, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		why, err := room.Replace(t.Context(), rollout.Member{Place: placeOf(t, pod)}, rollout.Revision{}, false)
		if err != nil {
			t.Fatal(err)
		}
		return why.Reason
	}
	says := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	now := build.Start
	says("the first one asks", asks("web", web, now), "")
	says("it asks once more", asks("web", web, now), "")
	says("the second one asks", asks("db", db, now), none)
	ledger.See("web", []*corev1.Pod{web}, nil, now.Add(time.Second)) // by a watch that is behind
	says("the first one's pod does not go yet", asks("db", db, now), none)

	going := web.DeepCopy()
	build.Terminating(going)
	coming := []rollout.Coming{{Template: templateOf(t, "2"), For: going}}
	ledger.See("web", []*corev1.Pod{going}, coming, now)
	says("it goes", asks("db", db, now), none)
	ledger.See("web", nil, coming, now)
	says("it is gone", asks("db", db, now), none)
	ledger.See("web", []*corev1.Pod{web}, nil, now)
	says("the first one has all its pods", asks("db", db, now), "")
	ledger.Forget("db")
	says("the first one asks again", asks("web", web, now), "")
	ledger.See("web", []*corev1.Pod{web}, nil, now.Add(carriedOut+time.Second))
	says("its pod was not given up", asks("db", db, now), "")
	ledger.Forget("db")
	says("nothing is promised", asks("web", web, now), "")
	ledger.See("web", []*corev1.Pod{web}, []rollout.Coming{{Template: templateOf(t, "2"), For: web}}, now.Add(time.Hour))
	says("the built-in controller may take down the first one's pod", asks("db", db, now.Add(time.Hour)), none)
}

// Two others of the same namespace lack a pod each, and there is room for three.
func TestBeside(t *testing.T) {
	db := podOf(t, "db", "node", "1")
	client, ledger := fake.NewClientset(db), NewLedger()
	for _, workload := range []string{"web", "api"} {
		ledger.See(workload, nil, []rollout.Coming{{Template: templateOf(t, "2")}}, build.Start)
	}
	for cpu, fits := range map[string]bool{"6": true, "5": false} {
		room, err := At(client, []*corev1.Node{node("node", cpu)}, ledger, build.Start).Room(t.Context(), "db", "", []*corev1.Pod{db}, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		if why, err := room.Replace(t.Context(), rollout.Member{Place: placeOf(t, db)}, rollout.Revision{}, false); err != nil || (why.Reason == "") != fits {
			t.Errorf("on a node of %s: got %+v and %v, want room: %t", cpu, why, err, fits)
		}
	}
}

// Two pods of 500m each become pods of 1 cpu, where the quota has 700m left.
func TestTwoRolloutsInAQuota(t *testing.T) {
	quota := objectsOf(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: cpu}, spec: {hard: {requests.cpu: 2700m}}, status: {hard: {requests.cpu: 2700m}, used: {requests.cpu: 2}}}")
	web, db := podOf(t, "web", "node", "1"), podOf(t, "db", "node", "1")
	now := build.Start
	ended := web.DeepCopy() // its grace is over, and the quota does not count it any more
	build.Terminating(ended)
	ended.DeletionGracePeriodSeconds = new(int64)
	client, ledger := fake.NewClientset(append(quota, ended, db)...), NewLedger()
	ledger.See("web", []*corev1.Pod{ended}, []rollout.Coming{{Template: templateOf(t, "2"), For: ended}}, now)
	room, err := At(client, []*corev1.Node{node("node", "8")}, ledger, now.Add(time.Hour)).Room(t.Context(), "db", "", []*corev1.Pod{db}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	why, err := room.Replace(t.Context(), rollout.Member{Place: placeOf(t, db)}, rollout.Revision{}, false)
	if err != nil || why.Kind != rollout.ReasonQuotaExceeded {
		t.Errorf("got %+v and %v, want that the quota has no room", why, err)
	}
}

// A new leader decides nothing before it has looked at each workload once, or could not for long.
func TestComplete(t *testing.T) {
	ledger, now := NewLedger(), build.Start
	complete := func(want bool) {
		t.Helper()
		if got := ledger.Complete(now); got != want {
			t.Errorf("complete: %t, want %t", got, want)
		}
	}
	complete(true)
	ledger.Await(now, "a kind", "another kind")
	ledger.Await(now, "web", "db")
	ledger.Forget("a kind")
	ledger.Forget("another kind")
	complete(false)
	ledger.See("web", nil, nil, now)
	complete(false)
	ledger.Forget("db")
	complete(true)
	ledger.Await(now, "broken")
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
		if found, err := ledger.repel(t.Context(), client, now); err != nil || len(found) != 0 {
			t.Errorf("found %v and %v, want none", found, err)
		}
	}
	now, many = now.Add(believeRepelling), mostPods+1
	for range 2 {
		if _, err := ledger.repel(t.Context(), client, now); !isUnknown(err) || !strings.Contains(err.Error(), "more than 50000 pods") {
			t.Errorf("got %v, want that it is unknown", err)
		}
	}
	if lists != 2 {
		t.Errorf("listed %d times, want 2", lists)
	}
}

// One decides after the other.
func TestDecide(t *testing.T) {
	ledger, failed := NewLedger(), errors.New("failed")
	var order []string
	first, second := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(second)
		<-first
		_ = ledger.Decide(func() error { order = append(order, "second"); return nil })
	}()
	err := ledger.Decide(func() error {
		close(first)
		time.Sleep(10 * time.Millisecond) // the other one waits
		order = append(order, "first")
		return failed
	})
	<-second
	if !errors.Is(err, failed) || !slices.Equal(order, []string{"first", "second"}) {
		t.Errorf("got %v, in the order %q", err, order)
	}
}
