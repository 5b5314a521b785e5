package daemonset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// simulation drives the controller in a world, and checks after every step what
// must never happen.
type simulation struct {
	*world
	*simulated.Driver

	t    simulated.T
	eyes simulated.Eyes[*appsv1.DaemonSet, *history]
	view *simulated.Nodes        // what the controller sees of the nodes
	seen map[string]*corev1.Node // which are these
	lag  struct{ DSC, Controller bool }

	listed  map[string]*corev1.Pod // as they were before
	turns   simulated.Turns
	deleted int // available pods, by this sync

	wrong string // what the controller has done that it must not, while it writes on several threads

	first   version
	anyhow  bool                 // users opt out, let go, and choose OnDelete: then the DaemonSet controller restarts what it likes
	under   map[string]under     // by the node
	handed  map[string]bool      // edits that came while a rollout with maxSurge was in flight
	doomed  map[types.UID]string // needed a restart when the hold was let go for this edit
	excused map[types.UID]bool   // born unknown to a plan
	sick    map[types.UID]bool   // crashed for good while the set was held

	admits bool // admission sets the requests of new pods, as a vertical autoscaler does
	births map[types.UID]birth
}

// under is a node that the rollout of one edit has taken.
type under struct {
	edit string
	uid  types.UID // of the pod that is resized, or must be gone
	gone bool
}

// birth is what is known of a pod that the pod itself does not show.
type birth struct {
	of   version
	edit string
}

// must fails where something has happened that must not, unless the users do what lets it.
func (s *simulation) must(format string, args ...any) {
	if !s.anyhow {
		s.never(format, args...)
	}
}

// never fails where something has happened that must not: as soon as the controller has made all
// of its writes, if it is at it.
func (s *simulation) never(format string, args ...any) {
	if s.wrong = cmp.Or(s.wrong, fmt.Sprintf(format, args...)); !s.Syncing() {
		s.t.Fatal(s.wrong)
	}
}

// editAnnotation numbers the users' changes of the template.
const editAnnotation = "test/edit"

func edit(set *appsv1.DaemonSet) string { return set.Annotations[editAnnotation] }

func wanted(set *appsv1.DaemonSet) version { return simulated.VersionOf(&set.Spec.Template.Spec) }

// Restart puts a new controller in the place of the one that there is.
func (s *simulation) Restart() {
	client := &fake.Clientset{}
	s.serve(client)
	s.eyes.Open(s.Driver, s.Cluster, New(client), client, s.view, defaults)
	s.sees(true, true, true)
}

// sees lets the watches of the controller catch up.
func (s *simulation) sees(set, pods, nodes bool) {
	if nodes && !maps.Equal(s.seen, s.nodes) {
		s.seen = s.nodes
		var list []*corev1.Node
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			list = append(list, s.nodes[name])
		}
		s.view.Set(list...)
		s.Notice()
	}
	if set {
		s.eyes.See(s.set)
	}
	if pods {
		s.eyes.SeePods()
	}
}

// Sync has the controller take one step.
func (s *simulation) Sync() (time.Duration, error) {
	s.turns.Batch, s.deleted, s.listed = nil, 0, maps.Clone(s.Pods)
	after, err := s.eyes.Sync()
	if s.wrong != "" {
		s.t.Fatal(s.wrong)
	}
	return after, err
}

// of is the version that the revision of a pod says; none if it has no revision.
func (s *simulation) of(pod *corev1.Pod) version {
	if r := s.revisionOf(pod); r != nil {
		return versionOf(r)
	}
	return version{}
}

// lost reports whether the controller takes the node for lost.
func (s *simulation) lost(name string) bool {
	node := s.seen[name]
	return node == nil || node.Status.Conditions[0].Status != corev1.ConditionTrue
}

// rules are those of the set's rollout.
func (s *simulation) rules(set *appsv1.DaemonSet) simulated.Rules {
	want := wanted(set)
	surge, unavailable := bounds(set)
	return simulated.Rules{
		Cluster: s.Cluster, Want: want, InForce: set.Annotations[api.InForceAnnotation], Edit: edit(set), MinReady: time.Duration(set.Spec.MinReadySeconds) * time.Second, Most: max(surge, unavailable),
		PassDeferred: true,

		Labelled:  func(pod *corev1.Pod) bool { return s.of(pod) == want },
		Available: observation{set: set, Facts: rollout.Facts{Now: s.Clock.Now()}}.available,
		Admitted:  func(pod *corev1.Pod) bool { return s.admitted(pod, want) },
	}
}

// needsRestart reports, by the rules of the world, whether only a new pod can be one of set's template.
// With maxUnavailable 0 that is so, too, where a resize would restart the container of an available pod.
func (s *simulation) needsRestart(pod *corev1.Pod, set *appsv1.DaemonSet) bool {
	r := s.rules(set)
	_, unavailable := bounds(set)
	return r.NeedsRestart(pod) || unavailable == 0 && simulated.Restarts(pod, r.Want) && podutils.IsPodReady(pod)
}

// mayRequest checks each of the controller's writes before it is carried out.
func (s *simulation) mayRequest(action clienttesting.Action) {
	set := s.eyes.Kind.Planned
	switch {
	case action.Matches("patch", "pods/resize"):
		request := action.(clienttesting.PatchAction)
		pod := s.Shown[request.GetName()]
		asked, err := simulated.Patched(pod, &corev1.Pod{}, request.GetPatch())
		s.NoError(err)
		r := s.rules(set)
		if why := r.MayAsk(pod, simulated.SizeOf(asked)); why != "" {
			s.must("%s", why)
		}
		if _, unavailable := bounds(set); simulated.Restarts(pod, r.Want) {
			r.Most = min(r.Most, max(unavailable, 1))
		}
		if why := s.turns.MayResize(r, capacity.TargetNode(pod), pod, s.beside(set, pod)); why != "" {
			s.must("%s", why)
		}
		s.turns.Batch = append(s.turns.Batch, pod)
	case action.Matches("delete", "pods"):
		s.mayDelete(set, s.Shown[action.(clienttesting.DeleteActionImpl).Name])
	}
}

// beside are the places beside that of a pod, by what the plan was made from.
func (s *simulation) beside(set *appsv1.DaemonSet, pod *corev1.Pod) (others []simulated.Other) {
	for range set.Status.DesiredNumberScheduled - set.Status.CurrentNumberScheduled {
		others = append(others, simulated.Other{})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Shown)) {
		other := s.Shown[name]
		node := capacity.TargetNode(other)
		sibling := func(p *corev1.Pod) bool { return capacity.TargetNode(p) == node && !rollout.Gone(p) }
		if name == pod.Name || rollout.Gone(other) && slices.ContainsFunc(slices.Collect(maps.Values(s.Shown)), sibling) {
			continue
		}
		others = append(others, simulated.Other{Pod: other, Lost: s.lost(node)})
	}
	return others
}

// mayDelete checks that only a new pod helps, which the node could hold, and that not more are down
// than may be.
func (s *simulation) mayDelete(set *appsv1.DaemonSet, pod *corev1.Pod) {
	s.stays(set, pod)
	want, node := wanted(set), s.seen[capacity.TargetNode(pod)]
	resized := simulated.VersionOf(&pod.Spec).Image == want.Image // otherwise nobody asks whether there is room
	switch _, unavailable := bounds(set); {
	case !s.needsRestart(pod, set):
		s.must("deletes %s, which needs no restart", pod.Name)
	case resized && (node == nil || !runs(node) || node.Status.Allocatable.Cpu().MilliValue() < int64(want.CPU)):
		s.must("deletes %s, whose node %s cannot have another of %v", pod.Name, capacity.TargetNode(pod), want)
	case s.rules(set).Available(pod):
		down := s.deleted
		for _, other := range s.beside(set, pod) {
			down += asInt(other.Lost || !s.rules(set).Available(other.Pod))
		}
		if down >= max(unavailable, 1) {
			s.must("deletes %s, and %d others are not available: maxUnavailable is %d", pod.Name, down, unavailable)
		}
		s.deleted++
	}
}

// hasWritten checks each of the controller's writes that has been carried out; before is what was there before.
func (s *simulation) hasWritten(action clienttesting.Action, before simulated.Object) {
	set := s.eyes.Kind.Planned
	switch pod, _ := before.(*corev1.Pod); {
	case action.Matches("patch", "pods/resize"):
		s.turns.Asked(s.rules(set), capacity.TargetNode(pod), s.Shown[pod.Name])
		if podutils.IsPodReady(s.Shown[pod.Name]) { // otherwise it was not available anyway
			s.takes(set, under{edit: edit(set), uid: pod.UID}, pod)
		}
	case action.Matches("patch", "pods"):
		want := wanted(set)
		if have := simulated.AppliedSize(pod); simulated.VersionOf(&pod.Spec) != want || pod.Spec.NodeName != "" && (have.CPU != want.CPU || have.Memory != want.Memory) {
			s.never("settled %s, which has %+v, as %+v", pod.Name, have, want)
		}
	case action.Matches("delete", "pods"):
		if !s.needsRestart(pod, set) { // by now
			s.must("deleted %s, which needs no restart any more", pod.Name)
		}
		if s.rules(set).Available(s.Shown[pod.Name]) {
			s.takes(set, under{edit: edit(set), uid: pod.UID, gone: true}, pod)
		}
	case action.Matches("patch", "daemonsets/status"):
		had, has := condition(before.(*appsv1.DaemonSet)), condition(s.set)
		if has.Status == corev1.ConditionTrue && !had.Complete() {
			s.isComplete()
		}
	default:
		s.exposes()
	}
}

// takes checks the limit for a node that is taken.
func (s *simulation) takes(set *appsv1.DaemonSet, u under, pod *corev1.Pod) {
	s.under[capacity.TargetNode(pod)] = u
	taken, waiting := 0, map[types.UID]bool{}
	for _, shown := range s.Shown {
		waiting[shown.UID] = shown.UID != pod.UID && s.rules(set).WaitsForRoom(shown)
	}
	for node, other := range s.under {
		taken += asInt(other.edit == u.edit && !s.lost(node) && (other.gone || !waiting[other.uid]))
	}
	if most := s.rules(set).Most; taken > most {
		s.must("%d nodes are under way, more than %d", taken, most)
	}
}

// isComplete checks the pods when the condition says that the rollout is over. One may have been
// lost since they were looked at, but none is of an older revision, has the size of another, or has
// yet to prove its own.
func (s *simulation) isComplete() {
	want := wanted(s.set)
	for _, pod := range s.Pods {
		if s.Unproved(pod, time.Duration(s.set.Spec.MinReadySeconds)*time.Second) && !s.lost(capacity.TargetNode(pod)) {
			s.never("the set says Complete, and %s has yet to prove its size", pod.Name)
		}
		if pod.DeletionTimestamp == nil && (s.of(pod) != want || !s.admitted(pod, want) && simulated.VersionOf(&pod.Spec) != want) {
			s.never("the set says Complete, and %s is of %v with %+v", pod.Name, s.of(pod), simulated.VersionOf(&pod.Spec))
		}
	}
}

// labelled reports whether the DaemonSet controller takes the pod for updated.
func (s *simulation) labelled(pod *corev1.Pod) bool {
	return s.of(pod) == wanted(s.set) || pod.Labels[templateGenerationLabel] == templateGeneration(s.set)
}

// exposes checks the pods that the DaemonSet controller may restart as soon as the hold is let go,
// by what there was when the controller began to look: it has to ask the API server.
func (s *simulation) exposes() {
	if onDelete(s.set) {
		return
	}
	for _, pod := range s.Pods {
		if s.labelled(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		switch known := s.listed[pod.Name]; {
		case known == nil || known.UID != pod.UID:
			s.excused[pod.UID] = true
		case s.needsRestart(known, s.set):
			s.doomed[pod.UID] = edit(s.set)
		default:
			s.must("lets go of %s, which can be resized live", pod.Name)
		}
	}
}

// replaced checks each pod that the DaemonSet controller is about to delete for its revision, or
// to make another one beside.
func (s *simulation) replaced(pod *corev1.Pod) {
	set := s.saw.set
	s.stays(set, pod)
	if !s.handed[edit(set)] && !s.excused[pod.UID] && s.doomed[pod.UID] != edit(set) && !s.needsRestart(pod, set) {
		s.must("the DaemonSet controller restarts %s, which needs no restart", pod.Name)
	}
}

// stays checks that no node is restarted twice for one edit: a pod that was born of its
// revision is done, whatever admission has made of it.
func (s *simulation) stays(set *appsv1.DaemonSet, pod *corev1.Pod) {
	if s.births[pod.UID] == (birth{wanted(set), edit(set)}) {
		s.must("%s is restarted, which was born of %v", pod.Name, wanted(set))
	}
}

// born notes each new pod.
func (s *simulation) born(pod *corev1.Pod) {
	s.births[pod.UID] = birth{simulated.VersionOf(&pod.Spec), edit(s.saw.set)}
	if s.admits {
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2m")
	}
}

// admitted reports whether the pod was born of that version, and is what admission has made of it.
func (s *simulation) admitted(pod *corev1.Pod, v version) bool {
	return s.admits && s.births[pod.UID].of == v && simulated.SizeOf(pod).CPU == 2
}

// Check gives back the nodes whose pod has come through, or has been refused its size.
func (s *simulation) Check() {
	at := map[string]*corev1.Pod{}
	for _, pod := range s.Pods {
		if node := capacity.TargetNode(pod); at[node] == nil || at[node].DeletionTimestamp != nil {
			at[node] = pod
		}
	}
	givenUp := func(pod *corev1.Pod) bool { return s.needsRestart(pod, s.set) && simulated.Pending(pod) }
	for node, uid := range s.turns.Restarting {
		pod := at[node]
		if pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil || s.lost(node) || givenUp(pod) || simulated.SizeOf(pod) == simulated.AppliedSize(pod) && podutils.IsPodReady(pod) {
			delete(s.turns.Restarting, node)
		}
	}
	for node, u := range s.under {
		pod := at[node]
		arrived := pod != nil && !u.gone && simulated.SizeOf(pod) == simulated.AppliedSize(pod)
		if s.nodes[node] == nil || pod != nil && (!u.gone && givenUp(pod) || (pod.UID != u.uid || arrived) && s.rules(s.set).Available(pod)) {
			delete(s.under, node)
		}
	}
}

// happenings, with how often each occurs.
var happenings = map[string]int{
	"round": 8, "kubelet": 8, "kubelets": 3, "dsc sees the set": 3, "dsc sees the pods": 3, "dsc sees the nodes": 2, "dsc": 6, "collect": 1,
	"sees the set": 2, "sees the pods": 2, "sees the nodes": 2, "sees": 2,
	"sync": 4, simulated.Meanwhile: 4, "syncs": 4, "sync and die": 2, "sync and lose": 2, "restart": 1, "time": 1,
	"edit cpu": 2, "edit memory": 2, "edit image": 1, "first template": 1, "undo": 1, "limit": 1, "delete": 1, "crash": 1,
	"action": 1, "policy": 1, "join": 1, "leave": 1, "away": 1, "back": 1, "taint": 1, "cordon": 1, "shrink": 1, "collide": 1,
}

// ofStrategy are those after which the DaemonSet controller may restart what it likes.
var ofStrategy = map[string]int{"opt": 2, "release": 1, "abandon": 2, "strategy": 2, "orphan": 2}

// Pod is one of those that there are.
func (s *simulation) Pod(n int) *corev1.Pod {
	if len(s.Pods) == 0 {
		return nil
	}
	return s.Pods[slices.Sorted(maps.Keys(s.Pods))[n%len(s.Pods)]]
}

// Do is one thing that happens.
func (s *simulation) Do(happens simulated.Step, pod *corev1.Pod) {
	node := nodeName(happens.Arg % 6)
	others := map[string]func(){
		"dsc sees the set":   func() { s.dscSees(true, false, false) },
		"dsc sees the pods":  func() { s.dscSees(false, true, false) },
		"dsc sees the nodes": func() { s.dscSees(false, false, true) },
		"dsc":                s.dsc,
		"collect":            s.collect,
		"sees the set":       func() { s.sees(true, false, false) },
		"sees the pods":      func() { s.sees(false, true, false) },
		"sees the nodes":     func() { s.sees(false, false, true) },
		"sees":               func() { s.sees(true, true, true) },
		"syncs": func() {
			s.sees(true, true, true)
			s.One(simulated.Step{Do: "sync"})
		},
		"join":  func() { s.join(happens.Arg % 6) },
		"leave": func() { s.leave(node) },
		"away":  func() { s.readiness(node, false) },
		"back":  func() { s.readiness(node, true) },
		"taint": func() {
			s.taint(node, []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}[happens.Arg/2%3])
		},
		"cordon": func() { s.cordon(node, happens.Arg > 5) },
		"shrink": func() { s.resize(node, strconv.Itoa(1+happens.Arg/4)+"m") },
		"collide": func() {
			s.taken[version{Image: 1 + happens.Arg%2, CPU: 1 + happens.Arg%3, Memory: happens.Arg % 3}.String()] = happens.Arg > 5
		},
		"release": func() { // inplace-rollout release
			if policy.Held(s.set) {
				s.releasing = true
				s.user(func(*appsv1.DaemonSet) {})
				s.releasing = false
			}
		},
		"abandon": func() { // an edit, which is undone and let go of while no controller runs
			s.One(simulated.Step{Do: "edit cpu", Arg: happens.Arg})
			for range 1 + happens.Arg/3 {
				s.Round()
			}
			s.One(simulated.Step{Do: "first template"})
			s.One(simulated.Step{Do: "release"})
		},
		"orphan": s.recreate,
	}
	if do := others[happens.Do]; do != nil {
		do()
		return
	}
	switch happens.Do {
	case "kubelet":
		if pod != nil {
			s.Kubelet(pod.Name)
		}
	case "crash":
		if pod != nil && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			if forGood := happens.Arg > 5; forGood {
				s.sick[pod.UID] = policy.Held(s.set) && !s.Syncing()
			}
			s.Crash(pod, happens.Arg > 5)
		}
	default:
		before := edit(s.set)
		s.user(func(set *appsv1.DaemonSet) { s.uses(set, happens) })
		if edit(s.set) != before && !policy.Held(s.set) && !onDelete(s.set) {
			s.handed[edit(s.set)] = true
		}
	}
}

// uses is what users do to the set.
func (s *simulation) uses(set *appsv1.DaemonSet, happens simulated.Step) {
	v := happens.Edited(wanted(set), s.first)
	happens.Annotate(set.Annotations)
	switch happens.Do {
	case "undo": // kubectl rollout undo
		if len(s.revisions) > 0 {
			v = versionOf(s.revisions[happens.Arg%len(s.revisions)])
		}
	case "limit": // of a held set they see the hold's type, and may leave it
		held := set.Spec.UpdateStrategy.Type
		set.Spec.UpdateStrategy = strategies[happens.Arg%len(strategies)]
		if happens.Arg > 5 {
			set.Spec.UpdateStrategy.Type = held
		}
	case "opt":
		set.Labels = map[string]string{api.EnabledLabel: strconv.FormatBool(happens.Arg%3 > 0)}
	case "strategy":
		set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		if happens.Arg%3 > 0 {
			set.Spec.UpdateStrategy = strategies[happens.Arg%len(strategies)]
		}
	}
	if v != wanted(set) {
		set.Spec.Template = *templates[v]
		n, _ := strconv.Atoi(edit(set))
		set.Annotations[editAnnotation] = strconv.Itoa(n + 1)
	}
}

// strategies that the users choose from.
var strategies = []appsv1.DaemonSetUpdateStrategy{
	rollingUpdate(intstr.FromInt32(1), intstr.FromInt32(0)), rollingUpdate(intstr.FromInt32(2), intstr.FromInt32(0)),
	rollingUpdate(intstr.FromString("40%"), intstr.FromInt32(0)), rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)),
	rollingUpdate(intstr.FromInt32(0), intstr.FromString("50%")),
}

func (s *simulation) join(i int) {
	if s.nodes[nodeName(i)] == nil {
		s.nodes = maps.Clone(s.nodes)
		s.nodes[nodeName(i)] = newNode(i)
		s.NextRV()
	}
}

// leave removes a node, unless it is the last one.
func (s *simulation) leave(name string) {
	if len(s.nodes) > 1 && s.nodes[name] != nil {
		s.nodes = maps.Clone(s.nodes)
		delete(s.nodes, name)
		s.Away = maps.Clone(s.Away)
		delete(s.Away, name)
		s.NextRV()
	}
}

func (s *simulation) cordon(name string, cordoned bool) {
	s.changeNode(name, func(node *corev1.Node) {
		node.Spec.Unschedulable, node.Spec.Taints = cordoned, taints(node, corev1.TaintNodeUnschedulable)
		if cordoned {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}
	})
}

// resize has the node have so much cpu.
func (s *simulation) resize(name, cpu string) {
	s.changeNode(name, func(node *corev1.Node) { node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(cpu) })
}

// mend has every node be a usual one again.
func (s *simulation) mend() {
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		s.readiness(name, true)
		s.taint(name, "")
		s.cordon(name, false)
		s.resize(name, "8")
	}
	clear(s.taken)
}

// Round lets everybody do one thing, in the order that lag makes of it.
func (s *simulation) Round() {
	s.Pass(time.Second)
	if s.lag.Controller {
		s.sees(true, true, true)
	}
	s.collect()
	s.Kubelets()
	s.Check()
	s.dscSees(true, !s.lag.DSC, true)
	s.dsc()
	s.dscSees(true, true, true)
	if !s.lag.Controller {
		s.sees(true, true, true)
	}
	s.Look()
	if s.lag.DSC { // time for two steps before it has seen the first
		s.sees(true, false, true)
		s.Look()
	}
}

// cured checks, at rest, that no pod is left not Ready that we could make Ready, by a new size
// or by a restart. With maxSurge restarts come last, and may wait for pods that are kept. Where a
// container restarts for the size, the pod may wait for one that is not Ready with it.
func (s *simulation) cured() {
	want := wanted(s.set)
	surge, _ := bounds(s.set)
	for _, pod := range s.Pods {
		node := s.nodes[capacity.TargetNode(pod)]
		if !s.sick[pod.UID] || podutils.IsPodReady(pod) || simulated.VersionOf(&pod.Spec).Image != want.Image || s.admitted(pod, want) ||
			node == nil || !runs(node) || s.Away[node.Name] || s.tooSmall(pod, want) || simulated.Restarts(pod, want) {
			continue
		}
		if have := simulated.AppliedSize(pod); s.needsRestart(pod, s.set) && surge == 0 || !s.needsRestart(pod, s.set) && (have.CPU != want.CPU || have.Memory != want.Memory) {
			s.t.Fatalf("%s is not Ready, has %+v, needs a restart: %t, and nobody does anything about it", pod.Name, have, s.needsRestart(pod, s.set))
		}
	}
}

// trace logs each change of an object; rapid shows it when a check fails.
func (s *simulation) trace(object runtime.Object, gone bool) {
	at := s.Clock.Now().Format(time.TimeOnly)
	switch o := object.(type) {
	case *appsv1.DaemonSet:
		r := ptr.Deref(o.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		s.t.Logf("%s DaemonSet: %v, %s %v %v, held %q, template %s, observed %d of %d, %d updated of %d of %d, %d misscheduled, %+v", at, wanted(o), o.Spec.UpdateStrategy.Type, r.MaxUnavailable, r.MaxSurge,
			o.Annotations[api.HoldAnnotation], templateGeneration(o), o.Status.ObservedGeneration, o.Generation, o.Status.UpdatedNumberScheduled, o.Status.CurrentNumberScheduled,
			o.Status.DesiredNumberScheduled, o.Status.NumberMisscheduled, ptr.Deref(condition(o), rollout.StoredCondition{}))
	case *corev1.Pod:
		s.t.Logf("%s %s on %s: gone %t, deleted %t, of %s or %s, %v, has %v, ready %t", at, o.Name, capacity.TargetNode(o), gone, o.DeletionTimestamp != nil, hashOf(o),
			o.Labels[templateGenerationLabel], simulated.VersionOf(&o.Spec), simulated.AppliedSize(o), podutils.IsPodReady(o))
	}
}

// Unfinished leaves out what admission has made of pods.
func (s *simulation) Unfinished() string {
	return s.unfinishedBut(func(pod *corev1.Pod) bool { return s.admitted(pod, wanted(s.set)) })
}

// newSimulation has a set that begins with that version, and is at rest.
func newSimulation(t testing.TB, r simulated.T, set *appsv1.DaemonSet, nodes int, outcomes []simulated.Outcome) *simulation {
	s := &simulation{
		world: newWorld(t, set, nodes, outcomes), t: r, first: wanted(set), view: simulated.NewNodes(),
		under: map[string]under{}, handed: map[string]bool{}, doomed: map[types.UID]string{}, excused: map[types.UID]bool{}, sick: map[types.UID]bool{},
		births: map[types.UID]birth{}, turns: simulated.NewTurns(),
	}
	s.replaces, s.surges, s.birth, s.Requested, s.Wrote = s.replaced, s.replaced, s.born, s.mayRequest, s.hasWritten
	s.Driver = simulated.NewDriver(r, s.Cluster, s)
	s.Changed = s.trace
	s.Begin(30)
	return s
}

func TestSimulation(t *testing.T) {
	load(t)
	simulated.Pin(t, 1, 500)
	rapid.Check(t, func(r *rapid.T) {
		set := webSet(version{Image: rapid.SampledFrom([]int{1, 3}).Draw(r, "image"), CPU: 1, Memory: rapid.IntRange(0, 1).Draw(r, "memory")})
		set.Spec.UpdateStrategy = rapid.SampledFrom(strategies).Draw(r, "strategy")
		set.Spec.MinReadySeconds = int32(rapid.SampledFrom([]int{0, 0, 5}).Draw(r, "minReadySeconds"))
		nodes := rapid.IntRange(1, 6).Draw(r, "nodes")
		outcomes := simulated.Outcomes(r)
		admits := rapid.IntRange(0, 3).Draw(r, "admission") == 3
		lags, happens := rapid.IntRange(0, 3).Draw(r, "lags"), simulated.Steps(happenings).Draw(r, "steps")

		s := newSimulation(t, r, set, nodes, outcomes)
		defer s.Stop()
		s.lag.DSC, s.lag.Controller = lags&1 > 0, lags&2 > 0
		s.admits = admits // from now on
		s.All(slices.Concat(happens...))
		s.Finish(s.Unfinished, func() {
			s.cured()
			s.mend()
		})
	})
}

// TestSimulationOfComplete: whatever users do to the strategy, the hold and the label, Complete is
// never said while a pod is of another revision or size, and comes to be said.
func TestSimulationOfComplete(t *testing.T) {
	load(t)
	simulated.Pin(t, 1, 250)
	often := maps.Clone(happenings)
	maps.Copy(often, ofStrategy)
	rapid.Check(t, func(r *rapid.T) {
		set := webSet(version{Image: 1, CPU: 1, Memory: rapid.IntRange(0, 1).Draw(r, "memory")})
		set.Spec.UpdateStrategy = rapid.SampledFrom(strategies).Draw(r, "strategy")
		nodes := rapid.IntRange(1, 4).Draw(r, "nodes")
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]simulated.Outcome{{}, {Slow: 2}, {Deferred: 3}, {Infeasible: true}}), 0, 7).Draw(r, "outcomes")
		happens := simulated.Steps(often).Draw(r, "steps")

		s := newSimulation(t, r, set, nodes, outcomes)
		defer s.Stop()
		s.anyhow = true
		s.All(slices.Concat(happens...))
		clear(s.Broken)
		s.mend()
		s.user(func(set *appsv1.DaemonSet) { set.Labels = map[string]string{api.EnabledLabel: "true"} })
		s.Rest()
		if condition(s.set).Complete() {
			s.isComplete()
		}
		if !rolling(s.set) {
			for name := range s.Pods { // what waits for it
				s.DeletePod(name)
			}
			s.Rest()
		}
		if left := s.Unfinished(); left != "" {
			r.Fatalf("%s: %+v", left, condition(s.set))
		}
		s.isComplete()
	})
}

// TestWatchOfPodsIsBehind: a resize that is infeasible, by what the controller has seen, has been
// carried out a moment ago. So neither is the DaemonSet controller let loose, nor the pod deleted.
func TestWatchOfPodsIsBehind(t *testing.T) {
	load(t)
	for nodes := range 2 { // with a second one, whose pod is to be resized still, we would delete the first
		s := newSimulation(t, t, webSet(former), 1+nodes, nil)
		s.user(func(set *appsv1.DaemonSet) { set.Spec.UpdateStrategy = strategies[1] })
		before := maps.Clone(s.Pods)
		s.Infeasible(onNode(nodeName(0)))
		if nodes > 0 {
			s.readiness(nodeName(1), false)
		}
		s.user(func(set *appsv1.DaemonSet) { set.Spec.Template = *templates[newer] })
		for range 2 {
			s.Others(1)
			s.sees(true, true, true)
			if len(s.turns.Batch) == 0 {
				s.Look() // asks the pod
			}
		}
		s.Judge = nil
		s.Others(1) // the kubelet carries it out
		s.Look()
		if !policy.Held(s.set) {
			t.Errorf("%d nodes: by a watch that is behind, it let go", 1+nodes)
		}
		s.mend()
		s.Rest()
		for name, pod := range before {
			if left := s.Unfinished(); left != "" || s.Pods[name] == nil || s.Pods[name].UID != pod.UID {
				t.Errorf("%d nodes: unfinished: %q; %s is another one", 1+nodes, left, name)
			}
		}
		s.Stop()
	}
}
