package simulated

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Simulation drives the controller of StatefulSets or DaemonSets in a world, and checks after every step
// what must never happen.
type Simulation[S Set, K controller.KindState] struct {
	*Workload[S]
	*Driver

	Eyes  Eyes[S, K]
	Turns Turns
	// Lag is whose view of the pods is a round behind.
	Lag struct{ BuiltIn, Controller bool }
	// Admits: admission sets the requests of new pods, as a vertical autoscaler does.
	Admits bool
	// SeenNodes are the nodes as the controller sees them.
	SeenNodes map[string]*corev1.Node
	// Taken are the places that the rollout of an edit has taken.
	Taken map[string]Taken
	// Canaries is how many pods may have a size that kills them, where that is guarded; 0 where it is not.
	Canaries int
	// Excused pods may be restarted: they were born unknown to a plan, or from a revision that was out of date.
	Excused map[types.UID]bool

	t      T
	setup  Setup[S, K]
	of     Rollouts[S]
	view   *Nodes                 // what shows the nodes to the controller
	first  Version                // that the users began with
	anyhow bool                   // users opt out, let go, and choose OnDelete: then the built-in controller restarts what it likes
	listed map[string]*corev1.Pod // as they were before the sync
	wrong  string                 // what the controller has done that it must not, while it writes on several threads
	once   Once
	doomed map[types.UID]string // needed a restart when they were left to the built-in controller for this edit
	sick   map[types.UID]bool   // crashed for good while the set was held
	births map[types.UID]birth
	given  map[types.UID]bool    // admission gave the pod its cpu
	sizes  map[types.UID]Version // the size that a pod was asked for while it was Ready
}

// Taken says which edit has taken a place, and for which pod.
type Taken struct {
	Edit string
	Pod  *corev1.Pod // that is resized, or must be gone
	Gone bool
}

// birth is what is known of a pod that the pod itself does not show.
type birth struct {
	of   Version
	edit string
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
	// Beside are the places beside that of a pod, by what the plan was made from.
	Beside(set S, pod *corev1.Pod) []Other
	// MayDelete checks what else must be true of a pod that the controller deletes.
	MayDelete(set S, pod *corev1.Pod)
	// Bounds says what the set lets be under way.
	Bounds(set S, r *Rules)
	// Helpless reports whether nothing that we do would make the pod Ready.
	Helpless(pod *corev1.Pod) bool
	// Happens returns what only this kind knows of; nil if it is the set's user who acts.
	Happens(one Step) func()
	// Uses has the user do what this kind alone knows of. It returns the version that the template is to be of,
	// which is v for all kinds.
	Uses(set S, one Step, v Version) Version
	// Edited is called when they have changed the template.
	Edited()
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
	// Exposed: the built-in controller may restart the pod for its revision.
	Exposed bool
	// Lost: nobody waits for it. Gone: there is no such place any more.
	Lost, Gone bool
}

// NewSimulation has the set of a world, which begins to be at rest.
func NewSimulation[S Set, K controller.KindState](t T, w *Workload[S], setup Setup[S, K]) *Simulation[S, K] {
	return &Simulation[S, K]{
		Workload: w, t: t, setup: setup, first: w.Wanted(w.Set), view: NewNodes(), Turns: NewTurns(),
		Taken: map[string]Taken{}, Excused: map[types.UID]bool{},
		doomed: map[types.UID]string{}, sick: map[types.UID]bool{}, births: map[types.UID]birth{}, given: map[types.UID]bool{},
	}
}

// Start has the world come to rest.
func (s *Simulation[S, K]) Start(of Rollouts[S]) {
	s.of, s.Driver = of, NewDriver(s.t, s.Cluster, of)
	s.Requested, s.Wrote, s.Changed, s.Admitted = s.mayRequest, s.hasWritten, s.trace, s.admitted
	s.Lost = func(pod *corev1.Pod) { s.once.Lost(of.Place(s.Set, pod).Name, s.Edit(s.Set), pod.UID) }
	s.Begin(30)
}

// Must fails where something has happened that must not, unless the users do what lets it.
func (s *Simulation[S, K]) Must(format string, args ...any) {
	if !s.anyhow {
		s.never(format, args...)
	}
}

// never fails where something has happened that must not: as soon as the controller has made all
// of its writes, if it is at it.
func (s *Simulation[S, K]) never(format string, args ...any) {
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
		var list []*corev1.Node
		for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
			list = append(list, s.Nodes[name])
		}
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
	s.Turns.Batch, s.listed = nil, maps.Clone(s.Pods)
	after, err := s.Eyes.Sync()
	if s.wrong != "" {
		s.t.Fatal(s.wrong)
	}
	return after, err
}

// Planned is the set that the last plan was made for.
func (s *Simulation[S, K]) Planned() S { return s.Eyes.Kind.Planned }

func (s *Simulation[S, K]) minReady(set S) time.Duration {
	return time.Duration(s.Fields.MinReadySeconds(set)) * time.Second
}

// Rules are those of the set's rollout.
func (s *Simulation[S, K]) Rules(set S) Rules {
	want, seconds, now := s.Wanted(set), s.Fields.MinReadySeconds(set), metav1.NewTime(s.Clock.Now())
	action, list := policy.ActionInForce(set.GetAnnotations())
	r := Rules{
		Cluster: s.Cluster, Want: want, Template: s.Fields.Template(set), InForce: action + ";" + list, Edit: s.Edit(set), MinReady: s.minReady(set),
		Labelled:  func(pod *corev1.Pod) bool { return s.builtIn.Of(pod) == want },
		Available: func(pod *corev1.Pod) bool { return !rollout.Gone(pod) && podutils.IsPodAvailable(pod, seconds, now) },
		Keeps:     func(pod *corev1.Pod) bool { return s.keeps(pod, want) },
		Admitted:  func(pod *corev1.Pod) bool { return s.admitted(pod, want) },
	}
	for _, pod := range s.Shown {
		r.Born = r.Born || s.births[pod.UID] == birth{want, r.Edit}
	}
	s.of.Bounds(set, &r)
	return r
}

// NeedsRestart reports, by the rules of the world, whether only a new pod can be one of set's template.
// Where none may be down that is so, too, where a resize would restart the container of an available pod.
func (s *Simulation[S, K]) NeedsRestart(pod *corev1.Pod, set S) bool {
	r := s.Rules(set)
	return r.NeedsRestart(pod) || r.Down == 0 && Restarts(pod, r.of(pod)) && podutils.IsPodReady(pod)
}

// mayRequest checks each of the controller's writes before it is carried out.
func (s *Simulation[S, K]) mayRequest(action clienttesting.Action) {
	set := s.Planned()
	switch {
	case action.Matches("patch", "pods/resize"):
		request := action.(clienttesting.PatchAction)
		pod, r := s.Shown[request.GetName()], s.Rules(set)
		asked := &corev1.Pod{}
		s.NoError(merge(pod, asked, request.GetPatch()))
		if s.sizes != nil { // it may go back
			r.Want.CPU, r.Want.Memory = SizeOf(asked).CPU, SizeOf(asked).Memory
		}
		if why := r.MayAsk(pod, SizeOf(asked)); why != "" {
			s.Must("%s", why)
		}
		if why := s.Turns.MayResize(r, s.of.Place(set, pod).Name, pod, s.of.Beside(set, pod)); why != "" && s.Hands == nil {
			s.Must("%s", why)
		}
		s.Turns.Batch = append(s.Turns.Batch, pod)
	case action.Matches("delete", "pods"):
		pod := s.Shown[action.(clienttesting.DeleteActionImpl).Name]
		s.Stays(set, pod)
		if !s.NeedsRestart(pod, set) {
			s.Must("deletes %s, which needs no restart", pod.Name)
		}
		s.of.MayDelete(set, pod)
	}
}

// hasWritten checks each of the controller's writes that has been carried out; before is what was there before.
func (s *Simulation[S, K]) hasWritten(action clienttesting.Action, before Object) {
	set := s.Planned()
	switch pod, _ := before.(*corev1.Pod); {
	case action.Matches("patch", "pods/resize"):
		place := s.of.Place(set, pod)
		s.Turns.Asked(s.Rules(set), place.Name, s.Shown[pod.Name])
		s.triesOn(pod)
		if podutils.IsPodReady(s.Shown[pod.Name]) { // otherwise it was not available anyway
			s.takes(set, pod, false)
		} else {
			s.keptBack(place)
		}
	case action.Matches("patch", "pods"):
		want := s.Wanted(set)
		if now := s.Pods[pod.Name]; s.sizes != nil && now != nil { // it may go back
			want = s.builtIn.Of(now)
		}
		if now := s.Pods[pod.Name]; now != nil && now.Labels[appsv1.ControllerRevisionHashLabelKey] == "" { // a new one is made beside it
			if s.Rules(set).Down > 0 || !s.NeedsRestart(pod, set) {
				s.never("unmarked %s, which needs no new one beside it", pod.Name)
			}
		} else if s.Hands != nil {
			if lacks := s.Lacks(pod, s.Fields.Template(set)); lacks != "" {
				s.never("settled what is not: %s", lacks)
			}
		} else if have, spec := AppliedSize(pod), SizeOf(pod); !s.admitted(pod, want) && VersionOf(&pod.Spec) != want || pod.Spec.NodeName != "" && have != spec {
			s.never("settled %s, which has %+v, as %+v", pod.Name, have, want)
		}
	case action.Matches("delete", "pods"):
		if !s.NeedsRestart(pod, set) { // by now
			s.Must("deleted %s, which needs no restart any more", pod.Name)
		}
		if s.Rules(set).Available(s.Shown[pod.Name]) {
			s.takes(set, pod, true)
		}
	case action.Matches("patch", s.Fields.Resource+"/status"):
		if s.Fields.Condition(s.Set).Complete() && !s.Fields.Condition(before.(S)).Complete() {
			s.isComplete()
		}
	default:
		s.exposes()
	}
}

// isComplete checks the pods when the condition says that the rollout is over. One may have been
// lost since they were looked at, but none is of an older revision, has the size of another, or has
// yet to prove its own.
func (s *Simulation[S, K]) isComplete() {
	want := s.Wanted(s.Set)
	for _, pod := range s.Pods {
		place := s.of.Place(s.Set, pod)
		if place.KeptBack || place.Surplus {
			continue
		}
		if s.Unproved(pod, s.minReady(s.Set)) && !place.Lost {
			s.never("the set says Complete, and %s has yet to prove its size", pod.Name)
		}
		if lacks := s.Lacks(pod, s.Fields.Template(s.Set)); s.Hands != nil && pod.DeletionTimestamp == nil && lacks != "" {
			s.never("the set says Complete, and %s", lacks)
		}
		if of := s.builtIn.Of(pod); s.Hands == nil && pod.DeletionTimestamp == nil && (of != want || !s.admitted(pod, want) && VersionOf(&pod.Spec) != want) {
			s.never("the set says Complete, and %s is of %v with %+v", pod.Name, of, VersionOf(&pod.Spec))
		}
	}
}

// keptBack checks the user's partition for a place that is touched.
func (s *Simulation[S, K]) keptBack(place Place) {
	if place.KeptBack {
		s.Must("touched %s, which the user's partition keeps back", place.Name)
	}
}

// takes checks the user's partition, and the limit, for a place that is taken.
func (s *Simulation[S, K]) takes(set S, pod *corev1.Pod, gone bool) {
	place, edit, r := s.of.Place(set, pod), s.Edit(set), s.Rules(set)
	s.keptBack(place)
	s.Taken[place.Name] = Taken{edit, pod, gone}
	taken, waiting, there := 0, map[types.UID]bool{}, map[string]bool{}
	for _, shown := range s.Shown { // nobody waits for these, nor for what only its user restarts
		waiting[shown.UID] = shown.UID != pod.UID && (r.WaitsForRoom(shown) || !s.Fields.Rolling(set) && s.GivenUp(shown))
		there[s.of.Place(set, shown).Name] = true
	}
	gives := !gone && !Restarts(pod, r.of(pod)) && GivesRoom(pod, r.of(pod)) // what is missing may wait for that room
	for name, other := range s.Taken {
		skipped := s.of.Place(set, other.Pod).Lost || gives && !there[name]
		taken += asInt(other.Edit == edit && !skipped && (other.Gone || !waiting[other.Pod.UID]))
	}
	if taken > r.Most && s.Hands == nil {
		s.Must("%d places are under way, more than %d", taken, r.Most)
	}
}

// exposes checks the pods that the built-in controller may restart as soon as it sees the set, by
// what there was when the controller began to look: it has to ask the API server.
func (s *Simulation[S, K]) exposes() {
	for _, pod := range s.Pods {
		place, known := s.of.Place(s.Set, pod), s.listed[pod.Name]
		switch {
		case !place.Exposed || s.builtIn.Of(pod) == s.Wanted(s.Set) || pod.DeletionTimestamp != nil:
		case known == nil || known.UID != pod.UID:
			s.Excused[pod.UID] = true
		case s.NeedsRestart(known, s.Set):
			s.doomed[pod.UID] = s.Edit(s.Set)
		case place.Surplus:
			s.Excused[pod.UID] = true // the user may scale up again before it is gone
		default:
			s.Must("exposes %s, which can be resized live", pod.Name)
		}
	}
}

// Restarts checks each pod that the built-in controller is about to delete for its revision, or to
// make another one beside.
func (s *Simulation[S, K]) Restarts(pod *corev1.Pod) {
	set := s.Saw.Set
	s.Stays(set, pod)
	place := s.of.Place(set, pod)
	s.keptBack(place)
	if !s.Excused[pod.UID] && s.doomed[pod.UID] != s.Edit(set) && !s.NeedsRestart(pod, set) {
		s.Must("the built-in controller restarts %s, which needs no restart", pod.Name)
	}
	if policy.Held(set) && podutils.IsPodReady(pod) { // otherwise it was not available anyway
		s.Taken[place.Name] = Taken{s.Edit(set), pod, true}
	}
}

// Stays checks that no place is restarted twice for one edit: a pod that was born of its revision is done,
// whatever admission has made of it.
func (s *Simulation[S, K]) Stays(set S, pod *corev1.Pod) {
	if want := s.Wanted(set); s.births[pod.UID] == (birth{want, s.Edit(set)}) {
		s.Must("%s is restarted, which was born of %v", pod.Name, want)
	}
	if why := s.once.Restarts(s.of.Place(set, pod).Name, s.Edit(set), 1, pod.UID); why != "" {
		s.Must("%s is restarted, and %s", pod.Name, why)
	}
}

// Born notes each new pod, and the edit of the set that it was born in. Admission may change it.
func (s *Simulation[S, K]) Born(set S, pod *corev1.Pod) {
	s.births[pod.UID] = birth{VersionOf(&pod.Spec), s.Edit(set)}
	if s.given[pod.UID] = s.Admits; s.Admits {
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2m")
	}
}

// admitted reports whether the pod is of that version but for the cpu that admission gave it at its birth, which stays as
// long as nobody edits that.
func (s *Simulation[S, K]) admitted(pod *corev1.Pod, v Version) bool {
	is := VersionOf(&pod.Spec)
	is.CPU = v.CPU
	return s.keeps(pod, v) && is == v
}

func (s *Simulation[S, K]) keeps(pod *corev1.Pod, v Version) bool {
	return s.given[pod.UID] && s.births[pod.UID].of.CPU == v.CPU && SizeOf(pod).CPU == 2
}

// At is the pod of each place: one that is not deleted, if there is one.
func (s *Simulation[S, K]) At() map[string]*corev1.Pod {
	at := map[string]*corev1.Pod{}
	for _, pod := range s.Pods {
		if place := s.of.Place(s.Set, pod).Name; at[place] == nil || at[place].DeletionTimestamp != nil {
			at[place] = pod
		}
	}
	return at
}

// GivenUp reports whether the pod has been refused its size, and only a new one can have it.
func (s *Simulation[S, K]) GivenUp(pod *corev1.Pod) bool {
	return s.NeedsRestart(pod, s.Set) && Pending(pod)
}

// Check gives back the places whose pod has come through, or has been refused its size.
func (s *Simulation[S, K]) Check() {
	at := s.At()
	arrived := func(pod *corev1.Pod) bool { return SizeOf(pod) == AppliedSize(pod) }
	for place, uid := range s.Turns.Restarting {
		if pod := at[place]; pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil || s.of.Place(s.Set, pod).Lost || arrived(pod) && podutils.IsPodReady(pod) {
			delete(s.Turns.Restarting, place)
		}
	}
	for place, taken := range s.Taken {
		pod := at[place]
		through := func() bool {
			return pod.UID != taken.Pod.UID || !taken.Gone && (arrived(pod) || s.GivenUp(pod) || s.sizes != nil && Pending(pod))
		} // it may be left on its way back
		if s.of.Place(s.Set, taken.Pod).Gone || pod != nil && through() && s.Rules(s.Set).Available(pod) {
			delete(s.Taken, place)
		}
	}
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

// OfStrategy adds what has the built-in controller restart what it likes.
func OfStrategy(often map[string]int) map[string]int {
	often = maps.Clone(often)
	maps.Copy(often, map[string]int{"opt": 2, "release": 1, "abandon": 2, "strategy": 2})
	return often
}

// Pod is one of those that there are.
func (s *Simulation[S, K]) Pod(n int) *corev1.Pod {
	if len(s.Pods) == 0 {
		return nil
	}
	return s.Pods[slices.Sorted(maps.Keys(s.Pods))[n%len(s.Pods)]]
}

// Do is one thing that happens.
func (s *Simulation[S, K]) Do(one Step, pod *corev1.Pod) {
	do := map[string]func(){
		s.setup.BuiltIn + " sees the set":   func() { s.BuiltInSees(true, false, false) },
		s.setup.BuiltIn + " sees the pods":  func() { s.BuiltInSees(false, true, false) },
		s.setup.BuiltIn + " sees the nodes": func() { s.BuiltInSees(false, false, true) },
		s.setup.BuiltIn:                     s.builtIn.Reconcile,
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
	before := s.Edit(s.Set)
	s.User(func(set S) { s.uses(set, one) })
	if s.Edit(s.Set) != before {
		s.of.Edited()
	}
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
	s.of.Check()
	s.BuiltInSees(true, !s.Lag.BuiltIn, true)
	s.builtIn.Reconcile()
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
		if !s.sick[pod.UID] || podutils.IsPodReady(pod) || place.KeptBack || place.Surplus || VersionOf(&pod.Spec).Image != want.Image || s.admitted(pod, want) || s.of.Helpless(pod) {
			continue
		}
		have, needs := AppliedSize(pod), s.NeedsRestart(pod, s.Set)
		if !needs && s.tried(pod, want) {
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
}

// GuardedEnds is like Ends, with a canary of one pod, and a size that kills every pod. At most one pod has it at a time.
func (s *Simulation[S, K]) GuardedEnds(onFailure string, steps [][]Step) {
	s.Canaries, s.sizes = 1, map[types.UID]Version{}
	s.Kills = func(_ *corev1.Pod, size Version) bool { return size.CPU == killing }
	s.User(func(set S) {
		set.GetAnnotations()[api.CanaryAnnotation], set.GetAnnotations()[api.CanaryDurationAnnotation] = "1", "45s" // long enough for a kubelet that seldom looks
		set.GetAnnotations()[api.OnFailureAnnotation] = onFailure
	})
	s.All(slices.Concat(steps...))
	for range 90 { // it never comes to rest while containers are killed
		s.of.Round()
	}
	s.Canaries, s.Kills = 0, nil
	s.User(func(set S) {
		delete(set.GetAnnotations(), api.CanaryAnnotation)
		delete(set.GetAnnotations(), api.OnFailureAnnotation)
	})
	s.Ends(nil)
}

// HandsOn lets hands be there from the birth of the pods on, or only from now on.
func (s *Simulation[S, K]) HandsOn(h Hands, fromBirth bool) {
	s.Hands, s.Rejects, s.Admits, s.Ranges = &h, h.Rejects, false, h.Ranges()
	s.Resizes = func(old, resized *corev1.Pod) {
		if why := s.Unedited(old, resized, s.setup.Templates[s.builtIn.Of(old)], s.Fields.Template(s.Planned())); why != "" {
			s.Must("%s", why)
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
	s.Driver.Converges(s.Unfinished, func() string { return Acts(s.Fields.Condition(s.Set)) }, func() {
		s.Hands.Answers, s.Hands.Fits, s.Hands.Deletes = nil, 0, false
		s.of.Mend()
		s.User(func(set S) {
			set.GetAnnotations()[api.ResizeActionAnnotation] = string(policy.LiveResizePreferred)
			v := s.Wanted(set)
			v.CPU = 1 + v.CPU%3
			s.EditTo(set, v)
		})
	})
}

// killing is the cpu with which a guarded simulation has containers killed.
const killing = 3

// triesOn checks that no more pods have a size that kills than there are canaries. Before is one that was asked.
func (s *Simulation[S, K]) triesOn(before *corev1.Pod) {
	pod := s.Pods[before.Name]
	if want := s.Wanted(s.Planned()); s.sizes != nil && pod != nil && (SizeOf(pod).CPU != want.CPU || SizeOf(pod).Memory != want.Memory) {
		s.Excused[pod.UID] = true // it goes back, and may have to be restarted to come to the size after all
		delete(s.births, pod.UID)
		delete(s.Turns.asked, pod.UID)
		s.once.Lost(s.of.Place(s.Set, pod).Name, s.Edit(s.Set), pod.UID) // a restart for the size did not count
	}
	if s.Canaries == 0 || pod == nil || SizeOf(pod).CPU != killing || !podutils.IsPodReady(before) {
		return
	}
	s.sizes[pod.UID] = SizeOf(pod)
	n := 0
	for _, other := range s.Pods {
		if v, asked := s.sizes[other.UID]; asked && v == SizeOf(pod) && SizeOf(other) == v && other.DeletionTimestamp == nil {
			n++
		}
	}
	if n > s.Canaries {
		s.Must("%d pods have a size that kills them, and %d may", n, s.Canaries)
	}
}

// Completes has users do whatever they like to the strategy, the hold and the label. Complete is never said
// while a pod that may move is of another revision or size, and comes to be said.
func (s *Simulation[S, K]) Completes(steps [][]Step) {
	s.anyhow = true
	s.All(slices.Concat(steps...))
	clear(s.Broken)
	s.of.Mend()
	s.User(func(set S) { set.SetLabels(map[string]string{api.EnabledLabel: "true"}) })
	s.Rest()
	if s.Fields.Condition(s.Set).Complete() {
		s.isComplete()
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
	s.isComplete()
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
