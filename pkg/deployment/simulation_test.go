package deployment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// simulation drives the controller in a world, and checks after every step what
// must never happen.
type simulation struct {
	*world
	*simulated.Driver

	t          simulated.T
	kind       *simulated.Kind[*Deployment, *kindState]
	controller *controller.Controller[*Deployment, *kindState]
	views      struct {
		sets, pods simulated.View
		detached   cache.Store
	}
	seen struct { // what the controller has seen
		d    *appsv1.Deployment
		sets map[string]*appsv1.ReplicaSet
		pods map[string]*corev1.Pod
	}
	lag struct{ DC, RSC, Controller bool } // whose view is a round behind

	first   version
	rolling appsv1.DeploymentStrategy // that users may choose besides Recreate
	paused  bool                      // what the users want
	nodes   []*corev1.Node
	births  map[types.UID]birth
}

// birth is what is known of a pod that its spec does not show.
type birth struct {
	of   version // the ReplicaSet's
	late bool    // the ReplicaSet had another template by then, or was about to get one
}

// born notes a new pod of rs.
func (s *simulation) born(rs *appsv1.ReplicaSet, pod *corev1.Pod) {
	of, current := simulated.VersionOf(&rs.Spec.Template.Spec), s.sets[rs.Name]
	s.births[pod.UID] = birth{of, s.Syncing() || current == nil || simulated.VersionOf(&current.Spec.Template.Spec) != of}
}

// admitted reports whether the pod was made from that template, and is what hands have made of it. Nothing
// distinguishes it from one that was made a moment too late.
func (s *simulation) admitted(pod *corev1.Pod) bool {
	return s.Hands != nil && (s.births[pod.UID].late || s.Lacks(pod, &s.d.Spec.Template) == "")
}

// Restart puts a new controller in the place of the one that there is.
func (s *simulation) Restart() {
	client := &fake.Clientset{}
	s.serve(client)
	kind := New(client, objects{world: s.world}, "")
	s.views.sets, s.views.pods, s.views.detached = simulated.NewView(), simulated.NewView(), kind.detached.GetStore()
	s.kind = &simulated.Kind[*Deployment, *kindState]{Kind: watching{kind, s}, Pods: s.views.pods}
	var err error
	s.controller, err = controller.New(s.Renew(), s.kind, client, &record.FakeRecorder{}, simulated.NewNodes(s.nodes...),
		controller.Options{Defaults: timeouts(), Ready: func() error { return nil }, Clock: s.Clock})
	s.NoError(err)
	s.seen.d, s.seen.sets, s.seen.pods = nil, nil, nil
	s.sees(true, true, true)
}

// timeouts are the defaults with those of the simulation.
func timeouts() policy.Defaults {
	d := defaults
	d.DeferredTimeout, d.ErrorTimeout = simulated.Timeout, simulated.Timeout
	return d
}

// sees lets the watches of the controller catch up.
func (s *simulation) sees(d, sets, pods bool) {
	s.looks(deploy.User, map[string]bool{"deployments": d, "replicasets": sets, "pods": pods})
	if d && s.seen.d != s.d {
		s.seen.d = s.d
		s.Notice()
		s.NoError(s.kind.Workloads.Show(s.stored(s.d)))
	}
	if sets && !maps.Equal(s.seen.sets, s.sets) {
		s.seen.sets = maps.Clone(s.sets)
		s.Notice()
		var list []any
		for _, rs := range s.sets {
			list = append(list, s.stored(rs))
		}
		s.NoError(s.views.sets.Show(list))
	}
	if pods && !maps.Equal(s.seen.pods, s.Pods) {
		s.seen.pods = maps.Clone(s.Pods)
		s.Notice()
		var list, detached []any
		for _, pod := range s.Pods {
			list = append(list, pod)
			if _, is := pod.Labels[api.DetachedLabel]; is {
				detached = append(detached, pod)
			}
		}
		s.NoError(s.views.pods.Show(list))
		s.NoError(s.views.detached.Replace(detached, ""))
	}
}

// watching is the kind, whose sessions watch our views.
type watching struct {
	Kind
	s *simulation
}

// Open has a new watch begin with what there is.
func (w watching) Open(_ context.Context, d *Deployment, _ func()) (*kindState, error) {
	w.s.sees(false, true, true)
	sets, err := simulated.Watch(w.s.views.sets, decodeReplicaSet)
	return &kindState{sets: sets}, err
}

// Sync has the controller take one step.
func (s *simulation) Sync() (time.Duration, error) {
	return s.controller.Sync(s.t.Context(), simulated.Web)
}

// trace logs each change of an object; rapid shows it when a check fails.
func (s *simulation) trace(object runtime.Object, gone bool) {
	at := s.Clock.Now().Format(time.TimeOnly)
	switch o := object.(type) {
	case *appsv1.Deployment:
		s.t.Logf("%s Deployment: %v ×%d, paused %t, held %q, observed %d of %d, %d updated of %d, %+v", at, simulated.VersionOf(&o.Spec.Template.Spec), *o.Spec.Replicas, o.Spec.Paused,
			o.Annotations[api.HoldAnnotation], o.Status.ObservedGeneration, o.Generation, o.Status.UpdatedReplicas, o.Status.Replicas, ptr.Deref(condition(&Deployment{Deployment: o}), rollout.StoredCondition{}))
	case *appsv1.ReplicaSet:
		s.t.Logf("%s %s: gone %t, %v ×%d, revision %d, %+v, annotations %v", at, o.Name, gone, simulated.VersionOf(&o.Spec.Template.Spec), *o.Spec.Replicas, number(o), o.Status, slices.Sorted(maps.Keys(o.Annotations)))
	case *corev1.Pod:
		s.t.Logf("%s %s: gone %t, deleted %t, %v, has %v, ready %t, of %s", at, o.Name, gone, o.DeletionTimestamp != nil, simulated.VersionOf(&o.Spec), simulated.AppliedSize(o), podutils.IsPodReady(o), metav1.GetControllerOf(o).Name)
	}
}

type step = simulated.Step

// happenings, with how often each occurs.
var happenings = map[string]int{
	"round": 8, "kubelets": 4, "collect": 1, "dc sees it": 3, "dc sees the sets": 3, "dc": 6, "rsc sees the sets": 3, "rsc sees the pods": 3, "rsc": 5,
	"sees it": 2, "sees the sets": 2, "sees the pods": 2, "sync": 6, simulated.Meanwhile: 4, "sync and die": 2, "sync and lose": 1, "restart": 1, "time": 1,
	"edit cpu": 3, "edit memory": 2, "edit image": 1, "first template": 2, "undo": 1, "scale": 1, "delete": 1, "crash": 1, "budget": 1, "quota": 1,
	"action": 1, "policy": 2, "pause": 1, "resume": 1, "opt": 1, "release": 1, "history": 1, "strategy": 1,
}

// ofRestarts are those that matter where containers restart for another size, and pods are
// down for other reasons, too.
var ofRestarts = map[string]int{
	"round": 6, "kubelets": 4, "rsc sees the pods": 2, "rsc": 2, "dc": 2, "sees the pods": 2, "sees it": 1, "sync": 6, "time": 1,
	"edit memory": 4, "crash": 8, "delete": 1, "scale": 1,
}

// ofRoom are those that matter where nodes have no room for a while.
var ofRoom = map[string]int{
	"round": 6, "kubelets": 4, "dc": 2, "rsc": 2, "sees the pods": 2, "sees it": 1, "sync": 6, "restart": 1, "time": 1,
	"edit memory": 5, "edit cpu": 4, "delete": 1, "scale": 1,
}

// Do is one thing that happens.
func (s *simulation) Do(happens step, pod *corev1.Pod) {
	others := map[string]func(){ // the built-in controllers, and the watches
		"collect":           s.collect,
		"dc sees it":        func() { s.dcSees(true, false) },
		"dc sees the sets":  func() { s.dcSees(false, true) },
		"dc":                s.dcSync,
		"rsc sees the sets": func() { s.rscSees(true, false) },
		"rsc sees the pods": func() { s.rscSees(false, true) },
		"rsc":               s.rscSync,
		"sees it":           func() { s.sees(true, false, false) },
		"sees the sets":     func() { s.sees(false, true, false) },
		"sees the pods":     func() { s.sees(false, false, true) },
	}
	if do := others[happens.Do]; do != nil {
		do()
		return
	}
	switch happens.Do {
	case "crash":
		if pod != nil && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			s.Crash(pod, happens.Arg > 5)
		}
	case "quota":
		s.full = happens.Arg%2 == 0
	case "budget":
		s.budget = happens.Arg % 4
	default:
		s.user(func(d *appsv1.Deployment) { s.uses(d, happens) })
	}
}

// uses is what users do to the Deployment.
func (s *simulation) uses(d *appsv1.Deployment, happens step) {
	v := happens.Edited(simulated.VersionOf(&d.Spec.Template.Spec), s.first)
	happens.Annotate(d.Annotations)
	switch happens.Do {
	case "undo": // kubectl rollout undo
		names := slices.Sorted(maps.Keys(s.sets))
		if len(names) == 0 || d.Spec.Paused {
			return
		}
		rs, said := s.sets[names[happens.Arg%len(names)]], maps.Clone(d.Annotations)
		if s.Kills != nil && simulated.VersionOf(&rs.Spec.Template.Spec) == v {
			return // kubectl skips it
		}
		undo(d, rs)
		if s.d.Labels[api.EnabledLabel] == "true" { // the admission policy
			d.Annotations[api.ResizeActionAnnotation], d.Annotations[api.ResizePolicyAnnotation] = said[api.ResizeActionAnnotation], said[api.ResizePolicyAnnotation]
		}
		v = simulated.VersionOf(&rs.Spec.Template.Spec)
	case "scale":
		n := int32(happens.Arg % 7)
		d.Spec.Replicas = &n
	case "pause":
		if !d.Spec.Paused { // otherwise kubectl says that it is paused already
			d.Spec.Paused, s.paused = true, true
		}
	case "resume":
		d.Spec.Paused, s.paused = false, false
	case "release": // inplace-rollout release
		if policy.Held(d) {
			s.releasing = true
		}
	case "opt":
		d.Labels = map[string]string{}
		if happens.Arg%3 > 0 {
			d.Labels[api.EnabledLabel] = "true"
		}
	case "strategy": // users change it, and rollout tools
		if d.Spec.Strategy = s.rolling; happens.Arg%2 == 0 {
			recreate(&scene{d: d})
		}
	case "history":
		d.Spec.RevisionHistoryLimit = ptr.To(int32(happens.Arg % 4))
	}
	if v != simulated.VersionOf(&d.Spec.Template.Spec) {
		d.Spec.Template = *templates[v]
	}
}

// undo does to the annotations what kubectl rollout undo does: they are those of the ReplicaSet.
func undo(d *appsv1.Deployment, rs *appsv1.ReplicaSet) {
	maps.DeleteFunc(d.Annotations, func(key, _ string) bool { return !skipped(key) })
	for key, value := range rs.Annotations {
		if !skipped(key) {
			d.Annotations[key] = value
		}
	}
}

// Pass lets time pass.
func (s *simulation) Pass(d time.Duration) { s.Clock.SetTime(s.Clock.Now().Add(d)) }

// Round lets everybody do one thing, in the order that lag makes of it.
func (s *simulation) Round() {
	s.Pass(time.Second)
	if s.lag.Controller {
		s.sees(true, true, true)
	}
	s.collect()
	s.Kubelets()
	s.rscSees(true, !s.lag.RSC)
	s.dcSees(true, !s.lag.DC)
	s.rscSync()
	s.dcSync()
	s.rscSees(true, true)
	s.dcSees(true, true)
	if !s.lag.Controller {
		s.sees(true, true, true)
	}
	s.Look()
}

// Unfinished returns what of the rollout is not done; empty if nothing.
func (w *world) Unfinished() string {
	return w.unfinishedBut(func(*corev1.Pod) bool { return false })
}

// Unfinished leaves out what admission has made of pods.
func (s *simulation) Unfinished() string { return s.unfinishedBut(s.admitted) }

func (w *world) unfinishedBut(admitted func(*corev1.Pod) bool) string {
	want := simulated.VersionOf(&w.d.Spec.Template.Spec)
	running, ready := []string{}, 0
	for _, rs := range w.sets {
		if *rs.Spec.Replicas > 0 {
			running = append(running, rs.Name)
			if is := simulated.VersionOf(&rs.Spec.Template.Spec); is != want {
				return fmt.Sprintf("%s is of %v, not %v", rs.Name, is, want)
			}
		}
		if _, marked := rs.Annotations[api.AdoptedAnnotation]; marked {
			return rs.Name + " is marked as adopted"
		}
	}
	if len(running) > 1 {
		return fmt.Sprintf("%v have pods", running)
	}
	for _, pod := range w.Pods {
		if pod.Status.Phase == corev1.PodFailed { // it is there until it is collected
			continue
		}
		owner, is := metav1.GetControllerOf(pod), simulated.VersionOf(&pod.Spec)
		if owner.Kind != "ReplicaSet" || pod.Labels[api.DetachedLabel] != "" {
			return fmt.Sprintf("%s is detached", pod.Name)
		}
		if !admitted(pod) && is != want || simulated.AppliedSize(pod) != simulated.SizeOf(pod) {
			return fmt.Sprintf("%s is of %v and has %v, not %v", pod.Name, is, simulated.AppliedSize(pod), want)
		}
		if podutils.IsPodReady(pod) && !judge.Gone(pod) {
			ready++
		}
	}
	if ready != int(*w.d.Spec.Replicas) {
		return fmt.Sprintf("%d pods are ready, not %d", ready, *w.d.Spec.Replicas)
	}
	c := condition(&Deployment{Deployment: w.d})
	if policy.Held(w.d) {
		return fmt.Sprintf("the Deployment is held: %+v", c)
	}
	if c == nil || c.Status != corev1.ConditionTrue {
		return fmt.Sprintf("the condition says %+v", c)
	}
	return ""
}

// unstuck gets the Deployment controller out of what it takes for a scaling event for ever: its replicas were changed to what its only
// active ReplicaSet happened to have in the middle of a rollout, or there are several, and the strategy is Recreate. Where a pod is left as
// it is because none may be unavailable, its user lets one be.
func (s *simulation) unstuck() {
	if c := condition(&Deployment{Deployment: s.d}); !policy.Held(s.d) && c.Has(judge.ReasonInfeasible) && strings.Contains(c.Message, "maxUnavailable is 0") {
		s.user(func(d *appsv1.Deployment) { bounds(0, 1)(&scene{d: d}) })
		s.Rest()
	}
	running := active(slices.Collect(maps.Values(s.sets)))
	if s.d.Spec.Paused || !slices.ContainsFunc(running, func(rs *appsv1.ReplicaSet) bool {
		return rs.Annotations[desiredAnnotation] != fmt.Sprint(*s.d.Spec.Replicas)
	}) {
		return
	}
	if len(running) > 1 {
		s.user(func(d *appsv1.Deployment) { d.Spec.Strategy = webDeployment(older, 1).Spec.Strategy })
	}
	s.One(step{Do: "scale", Arg: int(*s.d.Spec.Replicas) + 1})
	s.Rest()
}

// history returns what of the ReplicaSets is not as it must be at rest; empty if nothing.
func (s *simulation) history() string {
	all := slices.Collect(maps.Values(s.sets))
	for i, rs := range all {
		for _, other := range all[:i] {
			if len(resize.Between(&rs.Spec.Template, &other.Spec.Template)) == 0 && simulated.VersionOf(&rs.Spec.Template.Spec) == simulated.VersionOf(&other.Spec.Template.Spec) {
				return fmt.Sprintf("%s and %s are both of %v", other.Name, rs.Name, simulated.VersionOf(&rs.Spec.Template.Spec))
			}
		}
	}
	idle := slices.DeleteFunc(slices.Collect(maps.Values(s.sets)), func(rs *appsv1.ReplicaSet) bool { return *rs.Spec.Replicas > 0 })
	if limit := int(*s.d.Spec.RevisionHistoryLimit); len(idle) > limit+1 || len(idle) > limit && *s.d.Spec.Replicas > 0 {
		return fmt.Sprintf("%d ReplicaSets are kept, more than %d", len(idle), limit)
	}
	if s.d.Spec.Paused != s.paused {
		return fmt.Sprintf("paused is %t, and the users want %t", s.d.Spec.Paused, s.paused)
	}
	return ""
}

func TestSimulation(t *testing.T) {
	simulated.Pin(t, 1, 250)
	simulate(t, []int{1, 3}, happenings)
}

// TestSimulationOfRestarts: every container restarts for another size, and pods crash.
func TestSimulationOfRestarts(t *testing.T) {
	simulated.Pin(t, 1, 250)
	simulate(t, []int{3}, ofRestarts)
}

// TestSimulationOfHands: whatever others make of pods and containers at their birth, and whatever kubelets answer, no pod
// is restarted for what a new one would have, too, one edit restarts no more pods than there are replicas, no value is touched
// that nobody has edited, and each rollout completes, or its condition says who must act.
func TestSimulationOfHands(t *testing.T) {
	simulated.Pin(t, 1, 150)
	often := simulated.OfHands(happenings)
	rapid.Check(t, func(r *rapid.T) {
		d := webDeployment(version{Image: rapid.IntRange(simulated.Proxied, simulated.Proxied+1).Draw(r, "image"), CPU: 1, Memory: rapid.IntRange(0, 1).Draw(r, "memory")}, rapid.IntRange(1, 4).Draw(r, "replicas"))
		surge := rapid.IntRange(0, 2).Draw(r, "maxSurge")
		d.Spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt(surge))
		d.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(asInt(surge == 0), 2).Draw(r, "maxUnavailable")))
		d.Annotations[api.ResizeActionAnnotation] = rapid.SampledFrom([]string{"", "", string(policy.LiveResize)}).Draw(r, "action")
		outcomes, hands := simulated.OutcomesOfHands(r), simulated.DrawHands(r, "node", "twin")
		fromBirth, happens := rapid.IntRange(0, 3).Draw(r, "from birth") > 0, simulated.Steps(often).Draw(r, "steps")

		s := newSimulation(t, r, d, outcomes)
		s.handsOn(hands, fromBirth)
		s.All(slices.Concat(happens...))
		s.Converges(s.Unfinished, func() string {
			return condition(&Deployment{Deployment: s.d}).Reason
		}, func() {
			s.HandsOff()
			s.budget = 0
			s.user(func(d *appsv1.Deployment) {
				d.Annotations[api.ResizeActionAnnotation] = string(policy.LiveResizePreferred)
				s.uses(d, step{Do: "edit cpu", Arg: simulated.VersionOf(&d.Spec.Template.Spec).CPU})
			})
		})
		s.Verdict(timeouts())
	})
}

// handsOn lets hands be there from the birth of the pods on, or only from now on.
func (s *simulation) handsOn(h simulated.Hands, fromBirth bool) {
	s.HandsOn(h)
	s.nodes = append(s.nodes, simulated.Twin(simulated.LargeNode(), "twin"))
	s.Schedule = func(pod *corev1.Pod) string { return s.nodes[s.place(pod)%2].Name }
	s.Resizes = func(old, resized *corev1.Pod) {
		rs := s.sets[metav1.GetControllerOf(old).Name]
		newest := s.kind.Session.KindState.template.PodTemplateSpec
		why := s.Unedited(old, resized, &rs.Spec.Template, newest)
		if _, adopted := rs.Annotations[api.AdoptedAnnotation]; adopted && why != "" { // it may be of the former one still
			why = s.Unedited(old, resized, templates[s.births[old.UID].of], newest)
		}
		if why != "" {
			s.t.Fatalf("%s", why)
		}
	}
	s.Restart()
	for _, name := range slices.Sorted(maps.Keys(s.Pods)) {
		if fromBirth {
			s.DeletePod(name)
		}
	}
	for _, in := range []string{"false", "true"} {
		s.user(func(d *appsv1.Deployment) { d.Labels = map[string]string{api.EnabledLabel: in} })
		for range 30 {
			s.Round()
		}
	}
}

// TestSimulationOfRoom: users edit sizes while nodes have no room. Others go on beside a pod that waits for
// room, but not where it has something to lose when it gets its size, such as that it had no limit.
func TestSimulationOfRoom(t *testing.T) {
	simulated.Pin(t, 1, 150)
	rapid.Check(t, func(r *rapid.T) {
		d := webDeployment(version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 2).Draw(r, "memory")}, rapid.IntRange(2, 5).Draw(r, "replicas"))
		d.Spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt(rapid.IntRange(0, 1).Draw(r, "maxSurge")))
		d.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		outcomes, happens := simulated.OutcomesOfRoom(r), simulated.Steps(ofRoom).Draw(r, "steps")

		s := newSimulation(t, r, d, outcomes)
		s.All(slices.Concat(happens...))
		s.comeToRest(t)
	})
}

// TestSimulationOfCanaries: one size kills pods. Whatever happens, others do not get it.
func TestSimulationOfCanaries(t *testing.T) {
	simulated.Pin(t, 1, 150)
	often := simulated.OfCanaries(happenings, map[string]int{"scale": 3, "release": 0})
	rapid.Check(t, func(r *rapid.T) {
		d := webDeployment(version{Image: 1, CPU: 1}, rapid.IntRange(2, 5).Draw(r, "replicas"))
		surge := rapid.IntRange(0, 2).Draw(r, "maxSurge")
		d.Spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt(surge))
		d.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(asInt(surge == 0), 2).Draw(r, "maxUnavailable")))
		d.Spec.RevisionHistoryLimit = ptr.To(rapid.SampledFrom([]int32{10, 0}).Draw(r, "history"))
		d.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(r, "minReadySeconds"))
		onFailure := rapid.SampledFrom([]string{"", policy.OnFailureRevert}).Draw(r, "onFailure")
		lags, spares := rapid.IntRange(0, 7).Draw(r, "lags"), rapid.Bool().Draw(r, "spares")
		outcomes, happens := simulated.Outcomes(r), simulated.Steps(often).Draw(r, "steps")

		d.Annotations[api.CanaryDurationAnnotation] = simulated.CanaryDuration
		s := newSimulation(t, r, d, outcomes)
		s.lag.DC, s.lag.RSC, s.lag.Controller = lags&1 > 0, lags&2 > 0, lags&4 > 0
		dooms := s.Dooms(spares)
		guards := map[string]string{api.CanaryAnnotation: "1", api.OnFailureAnnotation: onFailure}
		s.user(func(d *appsv1.Deployment) { maps.Copy(d.Annotations, guards) })
		s.All(slices.Concat(append([][]step{dooms}, happens...)...))
		s.user(func(d *appsv1.Deployment) { // it stays in force until the next edit
			maps.DeleteFunc(d.Annotations, func(key, _ string) bool { return guards[key] != "" || key == api.OnFailureAnnotation })
		})
		for range 90 { // it never comes to rest while containers are killed
			s.Round()
		}
		s.Kills = nil
		s.user(func(d *appsv1.Deployment) {
			s.uses(d, step{Do: "edit cpu", Arg: simulated.VersionOf(&d.Spec.Template.Spec).CPU})
		})
		s.comeToRest(t)
	})
}

// newSimulation has a Deployment that begins with that template, and is at rest.
func newSimulation(t *testing.T, r simulated.T, d *appsv1.Deployment, outcomes []simulated.Outcome) *simulation {
	s := &simulation{
		world: newWorld(t, d, outcomes), t: r, first: simulated.VersionOf(&d.Spec.Template.Spec), rolling: d.Spec.Strategy,
		births: map[types.UID]birth{}, nodes: []*corev1.Node{simulated.LargeNode()},
	}
	s.birth = s.born
	s.Driver = simulated.NewDriver(r, s.Cluster, s)
	s.Changed = s.trace
	s.Begins(s.d)
	s.Begin(12)
	return s
}

// simulate lets things happen to Deployments that begin with one of the images.
func simulate(t *testing.T, images []int, often map[string]int) {
	rapid.Check(t, func(r *rapid.T) {
		first := version{Image: rapid.SampledFrom(images).Draw(r, "image"), CPU: 1, Memory: rapid.IntRange(0, 1).Draw(r, "memory")}
		d := webDeployment(first, rapid.IntRange(1, 5).Draw(r, "replicas"))
		surge := rapid.IntRange(0, 2).Draw(r, "maxSurge")
		d.Spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt(surge))
		d.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(rapid.IntRange(asInt(surge == 0), 2).Draw(r, "maxUnavailable")))
		if rapid.IntRange(0, 7).Draw(r, "recreate") == 7 {
			recreate(&scene{d: d})
		}
		d.Spec.RevisionHistoryLimit = ptr.To(int32(rapid.SampledFrom([]int{10, 0, 1, 2}).Draw(r, "history")))
		d.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(r, "minReadySeconds"))
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]simulated.Outcome{
			{}, {Slow: 2}, {Deferred: 3}, {Deferred: 1, Slow: 1}, {Infeasible: true}, {Refused: true}, {Deferred: simulated.Never}, {Failing: true}, {Unready: true}, {Slow: 1, Unready: true},
		}), 0, 7).Draw(r, "outcomes")
		lags, happens := rapid.IntRange(0, 7).Draw(r, "lags"), simulated.Steps(often).Draw(r, "steps")

		s := newSimulation(t, r, d, outcomes)
		s.lag.DC, s.lag.RSC, s.lag.Controller = lags&1 > 0, lags&2 > 0, lags&4 > 0
		s.All(slices.Concat(happens...))
		s.comeToRest(t)
	})
}

// comeToRest has all come to rest, and checks what must be so then.
func (s *simulation) comeToRest(t *testing.T) {
	s.budget = 0
	s.Rest()
	if s.d.Labels[api.EnabledLabel] != "true" {
		for _, pod := range s.Pods {
			if pod.Labels[api.DetachedLabel] != "" {
				s.t.Fatalf("opted out, and %s is detached", pod.Name)
			}
		}
		s.One(step{Do: "opt", Arg: 1})
		s.Rest()
	}
	if s.d.Annotations[api.InForceStrategyAnnotation] != "" { // it may wait for that
		s.One(step{Do: "strategy", Arg: 1})
		s.Rest()
	}
	if left := s.Unfinished(); left != "" && s.paused && !policy.Held(s.d) {
		s.One(step{Do: "resume"}) // nothing can have been done before
		s.Rest()
	}
	s.unstuck()
	if s.Unfinished() != "" {
		s.Mended = true // where only people can help, they do
		clear(s.Broken)
		s.Rest()
		s.unstuck() // now that it is not held any more
	}
	if left := s.Unfinished() + s.history(); left != "" {
		s.t.Fatal(left)
	}
	s.Verdict(timeouts())
}

// TestWatchOfPodsIsBehind: a pod whose resize is infeasible, by what the controller has seen, has
// been replaced a moment ago by one that can be resized. So the ReplicaSet does not get the template
// yet, and the Deployment controller is not let loose.
func TestWatchOfPodsIsBehind(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d others are resized", replicas-1), func(t *testing.T) {
			s := newSimulation(t, t, webDeployment(older, replicas), nil)
			infeasible := s.Pods[slices.Min(slices.Collect(maps.Keys(s.Pods)))]
			s.Infeasible(func(pod *corev1.Pod) bool { return pod.UID == infeasible.UID })
			s.user(func(d *appsv1.Deployment) { d.Spec.Template = *templates[newer] })
			s.Others(1)
			s.sees(true, true, true)
			for range replicas {
				s.Look() // asks a pod
				s.Others(1)
				s.sees(true, true, true)
			}
			s.DeletePod(infeasible.Name)
			s.Others(3)
			s.sees(true, true, false)
			if len(s.seen.pods) != replicas || s.seen.pods[infeasible.Name].UID != infeasible.UID || s.Pods[infeasible.Name] != nil {
				t.Fatalf("saw %v of %v", slices.Sorted(maps.Keys(s.seen.pods)), slices.Sorted(maps.Keys(s.Pods)))
			}
			sets := maps.Clone(s.sets)
			s.Look()
			if !policy.Held(s.d) || !s.d.Spec.Paused || !maps.Equal(s.sets, sets) {
				t.Errorf("by a watch that is behind, it let go: %t, or wrote a ReplicaSet", !policy.Held(s.d))
			}
			uids := slices.Sorted(maps.Keys(s.Pods))
			s.Rest()
			if left := s.Unfinished(); left != "" || !slices.Equal(uids, slices.Sorted(maps.Keys(s.Pods))) {
				t.Errorf("unfinished: %q; the pods were %v, and are %v", left, uids, slices.Sorted(maps.Keys(s.Pods)))
			}
		})
	}
}

// TestRecreateEditedAtOnce: with Recreate, an edit is held as soon as the hold of the one before has gone, though the status still says
// what it says in the middle of a built-in rollout. So is one after the Deployment controller has said that it is resumed, or after it was
// opted out and in again.
func TestRecreateEditedAtOnce(t *testing.T) {
	for name, then := range map[string]func(*simulation){
		"at once": func(*simulation) {},
		"once it is resumed": func(s *simulation) { // checkPausedConditions: it writes the status that it has read
			said := s.d.DeepCopy()
			said.Status.Conditions = append(said.Status.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Reason: "DeploymentResumed"})
			s.putStatus(said)
		},
		"once it is opted out and in": func(s *simulation) {
			for _, in := range []string{"false", "true"} {
				s.user(func(d *appsv1.Deployment) { d.Labels[api.EnabledLabel] = in })
				s.sees(true, true, true)
				s.Look()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := webDeployment(older, 3)
			recreate(&scene{d: d})
			s := newSimulation(t, t, d, nil)
			before := slices.Sorted(maps.Keys(s.Pods))
			for i, v := range []version{newer, other, older} {
				s.user(func(d *appsv1.Deployment) { d.Spec.Template = *templates[v] })
				if !policy.Held(s.d) {
					t.Fatalf("edit %d is not held: %+v", i, s.d.Status)
				}
				for rounds := 0; policy.Held(s.d); rounds++ {
					if s.Others(1); rounds > 100 {
						t.Fatal("it is never let go")
					}
					s.Pass(time.Second)
					s.sees(true, true, true)
					s.Look()
				}
				then(s)
			}
			s.Rest()
			if left := s.Unfinished(); left != "" || !slices.Equal(before, slices.Sorted(maps.Keys(s.Pods))) {
				t.Errorf("unfinished: %q; the pods were %v, and are %v", left, before, slices.Sorted(maps.Keys(s.Pods)))
			}
			if of, said := s.d.Annotations[api.SaidOfAnnotation]; said {
				t.Errorf("at rest it speaks of %s", of)
			}
		})
	}
}

// TestRecreateDuringAHold: others set the strategy Recreate while an edit is held, as some rollout tools do. No more pods are down for
// that edit than it allowed, whether the others can only be restarted or are of another template.
func TestRecreateDuringAHold(t *testing.T) {
	const replicas = 4
	for name, tt := range map[string]struct {
		surge, unavailable int
		action             string
	}{
		"one may be down": {0, 1, ""}, "none may": {1, 0, ""}, "the action is Restart": {0, 1, string(policy.Restart)},
	} {
		t.Run(name, func(t *testing.T) {
			d := webDeployment(older, replicas)
			d.Spec.Strategy.RollingUpdate.MaxSurge, d.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(tt.surge)), ptr.To(intstr.FromInt(tt.unavailable))
			s := newSimulation(t, t, d, nil)
			infeasible := s.Pods[slices.Max(slices.Collect(maps.Keys(s.Pods)))]
			s.Infeasible(func(pod *corev1.Pod) bool { return pod.UID == infeasible.UID })
			s.user(func(d *appsv1.Deployment) {
				d.Annotations[api.ResizeActionAnnotation] = tt.action
				d.Spec.Template = *templates[newer]
			})
			s.user(func(d *appsv1.Deployment) { recreate(&scene{d: d}) })
			for range 60 {
				s.Round()
			}
			s.Verdict(timeouts())
			if left := s.Unfinished(); left != "" {
				t.Error(left)
			}
			must.Equal(t, s.d.Spec.Strategy.Type, appsv1.RecreateDeploymentStrategyType, "the strategy")
		})
	}
}
