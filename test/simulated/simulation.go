package simulated

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// Simulation drives the controller of StatefulSets or DaemonSets in a world, and checks after every step
// what must never happen.
type Simulation[S Set, K controller.KindState] struct {
	*Workload[S]
	*Driver

	Eyes Eyes[S, K]
	// Lag is whose view of the pods is a round behind.
	Lag struct{ BuiltIn, Controller bool }
	// SeenNodes are the nodes as the controller sees them.
	SeenNodes map[string]*corev1.Node

	t     T
	setup Setup[S, K]
	of    Rollouts[S]
	view  *Nodes             // what shows the nodes to the controller
	first Version            // that the users began with
	wrong string             // what the controller has done that it must not, while it writes on several threads
	sick  map[types.UID]bool // crashed for good while the set was held
}

// Setup is what a simulation begins with.
type Setup[S Set, K controller.KindState] struct {
	// BuiltIn is what [Often] calls the built-in controller.
	BuiltIn string
	// Kind of the controller, with its defaults.
	Kind     func(*fake.Clientset) controller.Kind[S, K]
	Defaults policy.Defaults
	// Templates that the users choose from.
	Templates map[Version]*corev1.PodTemplateSpec
}

// Rollouts is what is different in the simulations of StatefulSets and DaemonSets.
type Rollouts[S Set] interface {
	Actors
	// Place of a pod in the set's rollout.
	Place(set S, pod *corev1.Pod) Place
	// Down is how many pods the set lets be down.
	Down(set S) int
	// Helpless reports whether nothing that we do would make the pod Ready.
	Helpless(pod *corev1.Pod) bool
	// Happens returns what only this kind knows of; nil if it is the set's user who acts.
	Happens(one Step) func()
	// Uses has the user do what this kind alone knows of. It returns the version that the template is to be of,
	// which is v for all kinds.
	Uses(set S, one Step, v Version) Version
	// Mend makes the cluster as usual again.
	Mend()
	// Describe is for the trace.
	Describe(set S) string
}

// Place is that of a pod in a rollout: an index of a StatefulSet, a node of a DaemonSet.
type Place struct {
	Name string
	// KeptBack: the user's partition keeps the pod back. Surplus: it is about to be scaled away.
	KeptBack, Surplus bool
}

// NewSimulation has the set of a world, which begins to be at rest.
func NewSimulation[S Set, K controller.KindState](t T, w *Workload[S], setup Setup[S, K]) *Simulation[S, K] {
	return &Simulation[S, K]{
		Workload: w, t: t, setup: setup, first: w.Wanted(w.Set), view: NewNodes(), sick: map[types.UID]bool{},
	}
}

// Start has the world come to rest.
func (s *Simulation[S, K]) Start(of Rollouts[S]) {
	s.of, s.Driver = of, NewDriver(s.t, s.Cluster, of)
	s.Changed = s.trace
	s.Begins(s.Set)
	s.Begin(30)
}

// Never fails where something has happened that must not: as soon as the controller has made all
// of its writes, if it is at it.
func (s *Simulation[S, K]) Never(format string, args ...any) {
	if s.wrong = cmp.Or(s.wrong, fmt.Sprintf(format, args...)); !s.Syncing() {
		s.t.Fatal(s.wrong)
	}
}

// editAnnotation numbers the users' changes of the template.
const editAnnotation = "test/edit"

// Edit is that of the set's template.
func (*Simulation[S, K]) Edit(set S) string { return set.GetAnnotations()[editAnnotation] }

// Restart puts a new controller in the place of the one that there is.
func (s *Simulation[S, K]) Restart() {
	client := &fake.Clientset{}
	s.Serve(client)
	s.Eyes.Open(s.Driver, s.Cluster, s.setup.Kind(client), client, s.view, s.setup.Defaults)
	s.Sees(true, true, true)
}

// Sees lets the watches of the controller catch up.
func (s *Simulation[S, K]) Sees(set, pods, nodes bool) {
	if nodes && !maps.Equal(s.SeenNodes, s.Nodes) {
		s.SeenNodes = s.Nodes
		list := build.Each(slices.Sorted(maps.Keys(s.Nodes)), func(name string) *corev1.Node { return s.Nodes[name] })
		s.view.Set(list...)
		s.Notice()
	}
	if set {
		s.Eyes.See(s.Set)
	}
	if pods {
		s.Eyes.SeePods()
	}
}

// Sync has the controller take one step.
func (s *Simulation[S, K]) Sync() (time.Duration, error) {
	after, err := s.Eyes.Sync()
	if s.wrong != "" {
		s.t.Fatal(s.wrong)
	}
	return after, err
}

// NeedsRestart reports, by the rules of the world, whether only a new pod can be one of set's template.
// Where none may be down that is so, too, where a resize would restart the container of an available pod.
func (s *Simulation[S, K]) NeedsRestart(pod *corev1.Pod, set S) bool {
	want, have := s.Wanted(set), VersionOf(&pod.Spec)
	size := Version{CPU: want.CPU, Memory: want.Memory}
	o, differs := s.Outcome(pod, size), AppliedSize(pod) != size
	switch {
	case want.Image != have.Image, s.forced(pod, set), s.of.Down(set) == 0 && Restarts(pod, want) && podutils.IsPodReady(pod):
		return true
	default:
		return have.Memory > 0 && want.Memory == 0 || (o.Refused || o.Infeasible) && differs
	}
}

// forced reports whether what is in force says that a pod that has not come to the template's size restarts.
func (s *Simulation[S, K]) forced(pod *corev1.Pod, set S) bool {
	action, list := policy.ActionInForce(set.GetAnnotations())
	want := s.Wanted(set)
	if action != string(policy.Restart) {
		return Forbids(list, pod, want)
	}
	arrived := VersionOf(&pod.Spec) == want && AppliedSize(pod) == SizeOf(pod) && pod.Status.ObservedGeneration == pod.Generation
	return !arrived || s.builtIn.Of(pod) != want && (len(pod.Status.Conditions) > 1 || !podutils.IsPodReady(pod))
}

// Often says how often what happens: what is common to all kinds of set, whose built-in controller has that
// name here, and more.
func Often(builtIn string, more map[string]int) map[string]int {
	often := map[string]int{
		"round": 8, "kubelet": 8, "kubelets": 3, builtIn + " sees the set": 3, builtIn + " sees the pods": 3, builtIn: 6,
		"sees the set": 2, "sees the pods": 2, "sees": 2, "sync": 4, Meanwhile: 4, "syncs": 4, "sync and die": 2, "sync and lose": 2, "restart": 1, "time": 1,
		"edit cpu": 2, "edit memory": 2, "edit image": 1, "first template": 1, "delete": 1, "crash": 1, "action": 1, "policy": 1,
	}
	maps.Copy(often, more)
	return often
}

// OfRoom has users edit sizes, and little else.
func OfRoom(often map[string]int) map[string]int {
	often = maps.Clone(often)
	maps.Copy(often, map[string]int{"edit memory": 5, "edit cpu": 4, "edit image": 0, "policy": 0, "action": 0})
	return often
}

// OfCanaries has users edit sizes, of which one kills, and lose pods and get them back. Rounds pass by the dozen, so that a canary
// comes to its end.
func OfCanaries(often, more map[string]int) map[string]int {
	often = maps.Clone(often)
	maps.Copy(often, map[string]int{"edit cpu": 2, "restart": 3, "edit image": 0, "action": 0, "policy": 0, "rounds": 6, "delete": 3})
	maps.Copy(often, more)
	return often
}

// OfStrategy adds what has the built-in controller restart what it likes.
func OfStrategy(often map[string]int) map[string]int {
	often = maps.Clone(often)
	maps.Copy(often, map[string]int{"opt": 2, "release": 1, "abandon": 2, "strategy": 2})
	return often
}

// Do is one thing that happens.
func (s *Simulation[S, K]) Do(one Step, pod *corev1.Pod) {
	do := map[string]func(){
		s.setup.BuiltIn + " sees the set":   func() { s.BuiltInSees(true, false, false) },
		s.setup.BuiltIn + " sees the pods":  func() { s.BuiltInSees(false, true, false) },
		s.setup.BuiltIn + " sees the nodes": func() { s.BuiltInSees(false, false, true) },
		s.setup.BuiltIn:                     s.Reconcile,
		"collect":                           s.Collect,
		"sees the set":                      func() { s.Sees(true, false, false) },
		"sees the pods":                     func() { s.Sees(false, true, false) },
		"sees the nodes":                    func() { s.Sees(false, false, true) },
		"sees":                              func() { s.Sees(true, true, true) },
		"syncs": func() {
			s.Sees(true, true, true)
			s.One(Step{Do: "sync"})
		},
		"kubelet": func() {
			if pod != nil {
				s.Kubelet(pod.Name)
			}
		},
		"crash":   func() { s.crash(pod, one.Arg > 5) },
		"release": s.Release,
		"abandon": func() { s.abandon(one.Arg) },
	}[one.Do]
	if do == nil {
		do = s.of.Happens(one)
	}
	if do != nil {
		do()
		return
	}
	s.User(func(set S) { s.uses(set, one) })
}

func (s *Simulation[S, K]) crash(pod *corev1.Pod, forGood bool) {
	if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return
	}
	if forGood {
		s.sick[pod.UID] = policy.Held(s.Set) && !s.Syncing()
	}
	s.Crash(pod, forGood)
}

// abandon is an edit, which is undone and let go of while no controller runs.
func (s *Simulation[S, K]) abandon(n int) {
	s.One(Step{Do: "edit cpu", Arg: n})
	for range 1 + n/3 {
		s.of.Round()
	}
	s.One(Step{Do: "first template"})
	s.One(Step{Do: "release"})
}

// uses is what users do to the set.
func (s *Simulation[S, K]) uses(set S, one Step) {
	before := s.Wanted(set)
	one.Annotate(set.GetAnnotations())
	if one.Do == "opt" {
		set.SetLabels(map[string]string{api.EnabledLabel: strconv.FormatBool(one.Arg%3 > 0)})
	}
	if v := s.of.Uses(set, one, one.Edited(before, s.first)); v != before {
		s.EditTo(set, v)
	}
}

// EditTo gives the set the template of that version.
func (s *Simulation[S, K]) EditTo(set S, v Version) {
	*s.Fields.Template(set) = *s.setup.Templates[v]
	n, _ := strconv.Atoi(s.Edit(set))
	set.GetAnnotations()[editAnnotation] = strconv.Itoa(n + 1)
}

// Round lets everybody do one thing, in the order that lag makes of it.
func (s *Simulation[S, K]) Round() {
	s.Pass(time.Second)
	if s.Lag.Controller {
		s.Sees(true, true, true)
	}
	s.Collect()
	s.Kubelets()
	s.BuiltInSees(true, !s.Lag.BuiltIn, true)
	s.Reconcile()
	s.BuiltInSees(true, true, true)
	if !s.Lag.Controller {
		s.Sees(true, true, true)
	}
	s.Look()
	if s.Lag.BuiltIn { // time for two steps before it has seen the first
		s.Sees(true, false, true)
		s.Look()
	}
}

// cured checks, at rest, that no pod is left not Ready that we could make Ready, by a new size
// or by a restart.
func (s *Simulation[S, K]) cured() {
	want := s.Wanted(s.Set)
	for _, pod := range s.Pods {
		place := s.of.Place(s.Set, pod)
		if !s.sick[pod.UID] || podutils.IsPodReady(pod) || place.KeptBack || place.Surplus || VersionOf(&pod.Spec).Image != want.Image || s.of.Helpless(pod) {
			continue
		}
		have, needs := AppliedSize(pod), s.NeedsRestart(pod, s.Set)
		told := strings.Contains(s.Fields.Condition(s.Set).Message, pod.Name+": not restarted before") // another one, which is for people to mend
		if told || !needs && s.tried(pod, want) {
			continue
		}
		if needs || have.CPU != want.CPU || have.Memory != want.Memory {
			s.t.Fatalf("%s is not Ready, has %+v, needs a restart: %t, and nobody does anything about it", pod.Name, have, needs)
		}
	}
}

// tried reports whether a size that restarts a container of the pod is tried on another pod first, which is not Ready with it:
// that is for people.
func (s *Simulation[S, K]) tried(pod *corev1.Pod, want Version) bool {
	if !Restarts(pod, want) {
		return false
	}
	for _, other := range s.Pods {
		if has := AppliedSize(other); other != pod && has.CPU == want.CPU && has.Memory == want.Memory && !podutils.IsPodReady(other) {
			return true
		}
	}
	return false
}

// Ends has the rollout come to its end, after these steps. Where only people can help, they do.
func (s *Simulation[S, K]) Ends(steps [][]Step) {
	s.All(slices.Concat(steps...))
	s.Finish(s.Unfinished, func() {
		s.cured()
		s.of.Mend()
	})
	s.Verdict(s.setup.Defaults)
}

// CanaryDuration is long enough for a kubelet that seldom looks.
const CanaryDuration = "45s"

// GuardedEnds is like Ends, with a canary of one pod, and a size that kills every pod, or all but the first one that has it.
func (s *Simulation[S, K]) GuardedEnds(onFailure string, spares bool, steps [][]Step) {
	dooms := s.Dooms(spares)
	s.User(func(set S) {
		set.GetAnnotations()[api.CanaryAnnotation], set.GetAnnotations()[api.OnFailureAnnotation] = "1", onFailure
	})
	s.All(slices.Concat(append([][]Step{dooms}, steps...)...))
	s.User(func(set S) { // it stays in force until the next edit
		set.SetLabels(map[string]string{api.EnabledLabel: "true"})
		delete(set.GetAnnotations(), api.CanaryAnnotation)
		delete(set.GetAnnotations(), api.OnFailureAnnotation)
	})
	for range 90 { // it never comes to rest while containers are killed
		s.of.Round()
	}
	s.Kills = nil
	s.User(func(set S) { s.uses(set, Step{Do: "edit cpu", Arg: s.Wanted(set).CPU}) })
	s.Ends(nil)
}

// PlannedTemplate is that of the set as the last plan has seen it. Only its name is kept in memory.
func (s *Simulation[S, K]) PlannedTemplate() *corev1.PodTemplateSpec {
	kept := s.Fields.Template(s.Eyes.Kind.Planned)
	for _, template := range s.setup.Templates {
		if hash.SameText(template, kept) {
			return template
		}
	}
	return kept
}

// HandsOn lets hands be there from the birth of the pods on, or only from now on.
func (s *Simulation[S, K]) HandsOn(h Hands, fromBirth bool) {
	s.Cluster.HandsOn(h)
	s.Ranges = h.Ranges()
	s.Resizes = func(old, resized *corev1.Pod) {
		if why := s.Unedited(old, resized, s.setup.Templates[s.builtIn.Of(old)], s.PlannedTemplate()); why != "" {
			s.Never("%s", why)
		}
	}
	s.Admitted = func(pod *corev1.Pod, _ Version) bool { return s.Lacks(pod, s.Fields.Template(s.Set)) == "" }
	if !fromBirth {
		return
	}
	optIn := func(in string) {
		s.User(func(set S) { set.SetLabels(map[string]string{api.EnabledLabel: in}) })
		for range 10 + 5*len(s.Pods) {
			s.of.Round()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Pods)) {
		s.DeletePod(name)
	}
	optIn("false")
	optIn("true")
}

// Converges has the rollout come to its end after these steps, whatever hands do, or say who must act. Then they
// do: kubelets answer as usual, nobody deletes pods, and the users edit, and want no more than the usual action.
func (s *Simulation[S, K]) Converges(steps [][]Step) {
	s.All(slices.Concat(steps...))
	s.Driver.Converges(s.Unfinished, func() string { return s.Fields.Condition(s.Set).Reason }, func() {
		s.HandsOff()
		s.of.Mend()
		s.User(func(set S) {
			set.GetAnnotations()[api.ResizeActionAnnotation] = string(policy.LiveResizePreferred)
			v := s.Wanted(set)
			v.CPU = 1 + v.CPU%3
			s.EditTo(set, v)
		})
	})
	s.Verdict(s.setup.Defaults)
}

// Completes has users do whatever they like to the strategy, the hold and the label. Complete is never said
// while a pod that may move is of another revision or size, and comes to be said.
func (s *Simulation[S, K]) Completes(steps [][]Step) {
	s.All(slices.Concat(steps...))
	clear(s.Broken)
	s.of.Mend()
	s.User(func(set S) { set.SetLabels(map[string]string{api.EnabledLabel: "true"}) })
	s.Rest()
	if left := s.Unfinished(); left != "" && s.Fields.Condition(s.Set).Complete() {
		s.t.Fatalf("the set says Complete, and %s", left)
	}
	if !s.Fields.Rolling(s.Set) {
		for _, name := range slices.Sorted(maps.Keys(s.Pods)) { // what waits for it
			s.DeletePod(name)
		}
		s.Rest()
	}
	if left := s.Unfinished(); left != "" {
		s.t.Fatalf("%s: %+v", left, s.Fields.Condition(s.Set))
	}
	s.Verdict(s.setup.Defaults)
}

// trace logs each change of an object; rapid shows it when a check fails.
func (s *Simulation[S, K]) trace(object runtime.Object, gone bool) {
	at := s.Clock.Now().Format(time.TimeOnly)
	switch o := object.(type) {
	case *corev1.Pod:
		s.t.Logf("%s %s at %s: gone %t, deleted %t, of %v, labels %v, %v, has %v, ready %t", at, o.Name, s.of.Place(s.Set, o).Name, gone, o.DeletionTimestamp != nil,
			s.builtIn.Of(o), o.Labels, VersionOf(&o.Spec), AppliedSize(o), podutils.IsPodReady(o))
	case S:
		s.t.Logf("%s the set: %v, held %q, at generation %d, %s, %+v", at, s.Wanted(o), o.GetAnnotations()[api.HoldAnnotation], o.GetGeneration(),
			s.of.Describe(o), ptr.Deref(s.Fields.Condition(o), rollout.StoredCondition{}))
	}
}
