package deployment

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// scaledIn has the Deployment be edited and scaled in at once. The Deployment controller has seen that, and has scaled the ReplicaSet. The
// ReplicaSet controller has not looked yet.
func (c *cluster) scaledIn(v version, replicas int32) {
	c.Client.Lock()
	c.user(func(d *appsv1.Deployment) { d.Spec.Template, d.Spec.Replicas = *templates[v], &replicas })
	for range 4 {
		c.dcSees(true, true)
		c.dcSync()
	}
	c.Client.Unlock()
	c.Sees()
}

// asks has the controller look so often, and see what it has done.
func (c *cluster) asks(t *testing.T, looks int) {
	t.Helper()
	for range looks {
		if _, err := c.Sync(); err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		c.Sees()
	}
}

// TestCanaryIsScaledIn: one apply has new resources and fewer replicas. A canary that goes for that is not lost to others: another one takes
// its place (docs/guarded-rollouts.md: "If a canary pod is drained, scaled in, …, another takes its place").
func TestCanaryIsScaledIn(t *testing.T) {
	c := newCluster(t, 6, controller.Options{})
	g := c.guarded(t)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	c.Rounds(5)
	c.scaledIn(newer, 2)
	for looks := 0; len(c.Sized(newer)) == 0; looks++ {
		if c.asks(t, 1); looks > 20 {
			t.Fatalf("the setup: none is asked: %+v; writes %q", g.Condition(), c.Writes)
		}
		c.Client.Lock() // the record of the canary is a new generation
		c.dcSees(true, true)
		c.dcSync()
		c.Client.Unlock()
		c.Sees()
	}
	c.Rounds(100)
	if have := g.Condition(); !have.Complete() || simulated.Count(c.Events, judge.EventDeletedAfterResize+" ") > 0 {
		t.Errorf("nobody but the ReplicaSet controller has deleted a pod, because fewer were wanted: %+v; events %q", have, c.Events)
	}
}

// TestOthersAreNotRestartedForScalingIn: the ReplicaSet controller deletes all pods that are too many at once, in no order, but its client
// makes 30 requests, and then 20 in a second (--kube-api-burst, --kube-api-qps of kube-controller-manager). The pods that stay are resized,
// and not restarted.
func TestOthersAreNotRestartedForScalingIn(t *testing.T) {
	const replicas, wanted, burst = 60, 10, 30
	c := newCluster(t, replicas, controller.Options{}, bounded(1, 1))
	names := c.names()
	goes, stays := names[:replicas-wanted], map[types.UID]bool{} // they are all alike, but for their names
	for _, name := range names[replicas-wanted:] {
		stays[c.Pods[name].UID] = true
	}
	c.scaledIn(newer, wanted)
	for i := range goes {
		if i >= burst {
			c.asks(t, 2)
		}
		c.Client.Lock()
		if i >= burst {
			c.Clock.SetTime(c.Clock.Now().Add(time.Second / 20))
		}
		c.DeletePod(goes[i*7%len(goes)])
		c.Client.Unlock()
		c.Sees()
	}
	c.Rounds(300, apierrors.IsConflict)
	for _, pod := range c.Pods {
		delete(stays, pod.UID)
	}
	if len(stays) > 0 {
		t.Errorf("%d of %d pods that stay were restarted: %+v; writes %q; events %q", len(stays), wanted, condition(&Deployment{Deployment: c.d}), c.Writes, c.Events)
	}
}

// TestNoEvictionsBesideScalingIn: the ReplicaSet was scaled from 6 to 3, and its controller has not looked yet: three of these six pods are
// about to go, whichever it likes. Of three pods one may be down.
func TestNoEvictionsBesideScalingIn(t *testing.T) {
	const sets = "a newer was-older closed restart-a-0 restart-a-1 restart-a-2 3: infeasible|infeasible|infeasible|resized|resized|resized; b older: "
	notHeld := func(s *scene) {
		delete(s.d.Annotations, api.HoldAnnotation)
		s.d.Status.Replicas, s.d.Status.UpdatedReplicas, s.d.Status.AvailableReplicas = 6, 6, 6
	}
	held := must.Get(planned(observed(t, sets, bounds(0, 1), lagging)))(t)
	if strings.Contains(does(held), "evict") {
		t.Errorf("held: %s", does(held))
	}
	p := must.Get(planned(observed(t, sets, bounds(0, 1), lagging, notHeld)))(t)
	evicted := 0
	for _, w := range p.Writes {
		if _, is := w.(evict); is {
			evicted++
		}
	}
	if evicted > 0 {
		t.Errorf("not held: %s, beside the three that the ReplicaSet controller takes away: none of three wanted pods may be left, where two have to be", does(p))
	}
}

// TestMissingPodsCostLittle: somebody has typed some zeros too many, and a quota lets no such pods in. That is one tenant's Deployment:
// the controller of all has 256 MiB.
func TestMissingPodsCostLittle(t *testing.T) {
	const missing, most = 20_000, 32 << 20
	o := observed(t, fmt.Sprintf("a older %d: older", missing+1))
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	p, err := rollout.Plan{}, error(nil)
	p, err = o.Facts.Plan(o, o.deployment.Annotations)
	goruntime.ReadMemStats(&after)
	must.Do(t, err)
	if used := after.TotalAlloc - before.TotalAlloc; used > most {
		t.Errorf("one plan with %d missing pods allocates %d MiB, want %d at most; the heap has grown by %d MiB", missing, used>>20, most>>20, int64(after.HeapAlloc-before.HeapAlloc)>>20)
	}
	goruntime.KeepAlive(p)
	_, toCome := o.Pods()
	if len(toCome) > 10_000 {
		t.Errorf("a list of %d pods to come", len(toCome))
	}
}

// TestLargeNumbers: what a template says beside its size is written as it was.
func TestLargeNumbers(t *testing.T) {
	for _, seconds := range []int64{30, 1<<53 + 1, math.MaxInt64} {
		d := webDeployment(newer, 1)
		rs := webSet(d, "a", older, 1)
		for _, template := range []*int64{ptr.To(seconds)} {
			d.Spec.Template.Spec.TerminationGracePeriodSeconds, rs.Spec.Template.Spec.TerminationGracePeriodSeconds = template, template
		}
		edited := read(t, decodeDeployment, build.Stored(t, d))
		live := read(t, decodeReplicaSet, build.Stored(t, rs))
		patch, _, err := adoptPatch(edited, adopt{set: live, template: edited.template})
		must.Do(t, err)
		var operations []struct {
			Path  string          `json:"path"`
			Value json.RawMessage `json:"value"`
		}
		must.Do(t, json.Unmarshal(patch, &operations))
		for _, o := range operations {
			if o.Path != "/spec/template" {
				continue
			}
			if written, err := hash.NewTemplate(o.Value); err != nil || written.Hash == "" || *written.Spec.TerminationGracePeriodSeconds != seconds {
				t.Errorf("terminationGracePeriodSeconds %d: the ReplicaSet gets %s: %v", seconds, o.Value, err)
			}
		}
	}
}

// etcdTimeout is what the API server answers when etcd changes its leader in the middle of a write, which may be carried out all the same
// (ErrorToAPIStatus in pkg/endpoints/handlers/responsewriters of k8s.io/apiserver).
var etcdTimeout = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonUnknown, Message: "etcdserver: request timed out",
}}

// TestEtcdTimesOut: a resize has no answer that says what has become of it, and the watch does not show it yet. No other pod is asked beside
// it, where one may be down, and its container restarts.
func TestEtcdTimesOut(t *testing.T) {
	for name, says := range map[string]error{"the connection broke": simulated.ErrBroken, "etcd has timed out": etcdTimeout} {
		t.Run(name, func(t *testing.T) {
			d := webDeployment(version{Image: 3, CPU: 1, Memory: 1}, 3)
			bounds(0, 1)(&scene{d: d})
			s := newSimulation(t, t, d, nil)
			s.user(func(d *appsv1.Deployment) { d.Spec.Template = *templates[version{Image: 3, CPU: 1, Memory: 2}] })
			s.Others(2)
			s.sees(true, true, true)
			asked := func() (n int) {
				for _, pod := range s.Pods {
					n += asInt(simulated.SizeOf(pod).Memory == 2)
				}
				return n
			}
			for range 4 {
				s.Requests.Loses, s.Requests.Says = asInt(asked() == 0), says
				s.Notice()
				s.Look()
			}
			if n := asked(); n != 1 {
				t.Errorf("%d pods are asked at once, and all restart their containers, where one may be down", n)
			}
		})
	}
}
