package daemonset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

type version = simulated.Version

// fields of a DaemonSet.
var fields = simulated.Fields[*appsv1.DaemonSet]{
	Resource:        "daemonsets",
	Spec:            func(set *appsv1.DaemonSet) any { return set.Spec },
	Template:        func(set *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &set.Spec.Template },
	MinReadySeconds: func(set *appsv1.DaemonSet) int32 { return set.Spec.MinReadySeconds },
	Condition:       condition,
	Rolling:         rolling,
	List: func(version metav1.ListMeta, set *appsv1.DaemonSet) runtime.Object {
		return &appsv1.DaemonSetList{ListMeta: version, Items: []appsv1.DaemonSet{*set}}
	},
	Prepare: func(before, after *appsv1.DaemonSet) {
		generation, _ := strconv.Atoi(templateGeneration(before))
		if !equality.Semantic.DeepEqual(before.Spec.Template, after.Spec.Template) {
			generation++
		}
		after.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.Itoa(generation)
	},
	Admission: simulated.NewAdmission[appsv1.DaemonSet](),
}

var templates = simulated.Templates()

// world is a small cluster with the DaemonSet controller.
type world struct {
	*simulated.Workload[*appsv1.DaemonSet]
	t testing.TB

	// Which deaths the DaemonSet controller waits for: any others will do (its expectations only count).
	dying  []string
	deaths int // that it has yet to see

	revisions []*appsv1.ControllerRevision
	taken     map[string]bool // names of revisions that others have

}

func newWorld(t testing.TB, set *appsv1.DaemonSet, nodes int, outcomes []simulated.Outcome) *world {
	w := &world{
		t: t, taken: map[string]bool{},
	}
	var list []*corev1.Node
	for i := range nodes {
		list = append(list, newNode(i))
	}
	cluster := simulated.New(func(pod *corev1.Pod) int { return number(capacity.TargetNode(pod)) }, outcomes, set)
	w.Workload = simulated.NewWorkload(cluster, set, fields, w, revisions.WatchLag, list...)
	w.Judge, w.Schedule = w.outcome, w.schedule
	return w
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// number of a node; of one that is not known, 0.
func number(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "node-"))
	return n
}

// newNode is one of three zones that can hold every pod.
func newNode(i int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: nodeName(i), ResourceVersion: "1", Labels: map[string]string{corev1.LabelTopologyZone: []string{"a", "b", "c"}[i%3], corev1.LabelHostname: nodeName(i)},
	}}
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

// webSet is an opted-in set of v; its status is empty.
func webSet(v version) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "uid-of-web", ResourceVersion: "0", Generation: 1, CreationTimestamp: metav1.NewTime(build.Start),
			Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "1"},
		},
		Spec: appsv1.DaemonSetSpec{
			Template: *templates[v], Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			UpdateStrategy: rollingUpdate(intstr.FromInt32(1), intstr.FromInt32(0)),
		},
	}
}

func rollingUpdate(unavailable, surge intstr.IntOrString) appsv1.DaemonSetUpdateStrategy {
	return appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable, MaxSurge: &surge},
	}
}

// tooSmall reports whether the pod's node could never hold this size.
func (w *world) tooSmall(pod *corev1.Pod, size version) bool {
	node := w.Nodes[capacity.TargetNode(pod)]
	return node != nil && node.Status.Allocatable.Cpu().MilliValue() < int64(size.CPU)
}

func (w *world) outcome(pod *corev1.Pod, size version) simulated.Outcome {
	switch {
	case w.tooSmall(pod, size):
		return simulated.Outcome{Infeasible: true}
	case len(w.Outcomes) == 0:
		return simulated.Outcome{}
	default:
		return w.Outcomes[(5*number(capacity.TargetNode(pod))+3*size.CPU+size.Memory)%len(w.Outcomes)]
	}
}

// schedule is the scheduler's part: a pod comes to its node, as soon as that can hold it.
func (w *world) schedule(pod *corev1.Pod) string {
	name := capacity.TargetNode(pod)
	node := w.Nodes[name]
	if node == nil || w.tooSmall(pod, simulated.SizeOf(pod)) || !runs(node) {
		return ""
	}
	return name
}

// tolerations are those that pods of DaemonSets get, but for one that only host networks have
// (AddOrUpdateDaemonPodTolerations in pkg/controller/daemon/util of Kubernetes).
var tolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// newPod is a pod of the set for the node that nobody has scheduled yet.
func (w *world) newPod(set *appsv1.DaemonSet, node, hash string) *corev1.Pod {
	uid := w.NextUID()
	pod := simulated.NewPod(uid, fmt.Sprintf("web-%03s", uid), &set.Spec.Template)
	pod.CreationTimestamp = w.Stamp()
	pod.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: hash}
	if generation := templateGeneration(set); generation != "" {
		pod.Labels[templateGenerationLabel] = generation
	}
	pod.OwnerReferences = owners(set)
	build.PinnedTo(node)(pod)
	pod.Spec.NodeName, pod.Spec.Tolerations = "", tolerations
	return pod
}

func owners(set *appsv1.DaemonSet) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
}

func onDelete(set *appsv1.DaemonSet) bool {
	return set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
}

// recreate deletes the set without its pods, and creates it again: it counts its templates from 1.
func (w *world) recreate() {
	for _, name := range slices.Sorted(maps.Keys(w.Pods)) {
		pod := w.Pods[name].DeepCopy()
		pod.OwnerReferences = nil
		w.WritePod(pod)
	}
	for i, r := range w.revisions {
		r = r.DeepCopy()
		r.OwnerReferences = nil
		w.revisions[i] = r
	}
	set := w.Set.DeepCopy()
	set.UID, set.Generation, set.Status = w.NextUID(), 1, appsv1.DaemonSetStatus{}
	set.Annotations[appsv1.DeprecatedTemplateGeneration] = "1"
	fields.Admission.Admit(nil, set, simulated.ByWhom(false, false), nil)
	w.Forget()
	w.Store(set)
}

// changeNode replaces a node.
func (w *world) changeNode(name string, change func(*corev1.Node)) {
	node := w.Nodes[name]
	if node == nil {
		return
	}
	node = node.DeepCopy()
	change(node)
	node.ResourceVersion = w.NextRV()
	w.Nodes = maps.Clone(w.Nodes)
	w.Nodes[name] = node
	w.Changes("patch", node)
}

// readiness has the node be Ready, or not: then no kubelet looks after its pods, which count as
// not Ready (the node lifecycle controller's part).
func (w *world) readiness(name string, ready bool) {
	w.changeNode(name, func(node *corev1.Node) {
		node.Status.Conditions[0].Status, node.Spec.Taints = corev1.ConditionTrue, taints(node, corev1.TaintNodeUnreachable)
		if !ready {
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
		}
	})
	w.Away = maps.Clone(w.Away)
	w.Away[name] = !ready
	for _, of := range slices.Sorted(maps.Keys(w.Pods)) {
		if pod := w.Pods[of]; !ready && pod.Spec.NodeName == name && podutils.IsPodReady(pod) {
			w.Crash(pod, false)
		}
	}
}

// taints are those of the node but one.
func taints(node *corev1.Node, but string) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(taint corev1.Taint) bool { return taint.Key == but })
}

// foreign is a taint that the set's pods do not tolerate.
const foreign = "test/foreign"

// taint has the node not let new pods in, with NoSchedule, nor the old ones stay, with NoExecute;
// with neither it is a usual one again.
func (w *world) taint(name string, effect corev1.TaintEffect) {
	w.changeNode(name, func(node *corev1.Node) {
		if node.Spec.Taints = taints(node, foreign); effect != "" {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: foreign, Effect: effect})
		}
	})
}

// runs and stays are what nodeShouldRunDaemonPod says of a node: a pod is made for it, and one that
// is there may stay.
func runs(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == foreign })
}

func stays(node *corev1.Node) bool {
	return !slices.Contains(node.Spec.Taints, corev1.Taint{Key: foreign, Effect: corev1.TaintEffectNoExecute})
}

// Observe counts the deaths that the DaemonSet controller sees.
func (w *world) Observe() {
	for name, before := range w.Saw.Pods {
		pod := w.Pods[name]
		w.deaths -= asInt(pod == nil || pod.DeletionTimestamp != nil && pod != before)
	}
	if !slices.ContainsFunc(w.dying, func(name string) bool { return w.Pods[name] != nil && w.Pods[name].DeletionTimestamp == nil }) {
		w.deaths = 0
	}
}

// Reconcile is one sync of the DaemonSet controller (syncDaemonSet in daemon_controller.go of Kubernetes
// 1.37), from what it has seen.
func (w *world) Reconcile() {
	set := w.Saw.Set
	if !w.CaughtUp() {
		return
	}
	newest := w.constructHistory(set)
	if newest == nil {
		return // it tries again when it has seen that there was a collision
	}
	s := &dscSync{world: w, set: set, hash: newest.Labels[appsv1.ControllerRevisionHashLabelKey], byNode: map[string][]*corev1.Pod{}}
	for _, name := range slices.Sorted(maps.Keys(w.Saw.Pods)) {
		pod := w.Saw.Pods[name]
		if metav1.GetControllerOfNoCopy(pod) == nil && w.Pods[name] != nil && pod.DeletionTimestamp == nil {
			adopted := w.Pods[name].DeepCopy()
			adopted.OwnerReferences = owners(set)
			w.WritePod(adopted)
			pod = adopted
		}
		s.byNode[capacity.TargetNode(pod)] = append(s.byNode[capacity.TargetNode(pod)], pod)
	}
	for _, pods := range s.byNode {
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(asInt(b.Spec.NodeName != "")-asInt(a.Spec.NodeName != ""), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
	}
	satisfied := w.deaths <= 0
	if satisfied && !s.manage() && !onDelete(set) {
		s.rollingUpdate()
	}
	s.status(satisfied)
}

// constructHistory returns the revision of the set's template, which it makes where there is none.
func (w *world) constructHistory(set *appsv1.DaemonSet) (newest *appsv1.ControllerRevision) {
	v, highest := simulated.VersionOf(&set.Spec.Template.Spec), int64(0)
	for i, r := range w.revisions {
		if metav1.GetControllerOfNoCopy(r) == nil { // of a set of this name that was deleted
			r = r.DeepCopy()
			r.OwnerReferences = owners(set)
			w.revisions[i] = r
		}
		if versionOf(r) == v {
			newest = r
		} else {
			highest = max(highest, r.Revision)
		}
	}
	if newest != nil && newest.Revision <= highest {
		renumbered := newest.DeepCopy()
		renumbered.Revision = highest + 1
		renumbered.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(w.Stamp())}}
		w.revisions[slices.Index(w.revisions, newest)], newest = renumbered, renumbered
	}
	if newest != nil {
		return newest
	}
	hash := v.String()
	if n := ptr.Deref(set.Status.CollisionCount, 0); n > 0 {
		hash += fmt.Sprintf("-%d", n)
	}
	if w.taken[hash] {
		counted := w.Set.DeepCopy()
		counted.Status.CollisionCount = ptr.To(ptr.Deref(counted.Status.CollisionCount, 0) + 1)
		w.Store(counted)
		return nil
	}
	made := newRevision(w.t, set, hash, highest+1)
	made.CreationTimestamp = w.Stamp()
	w.Made(made)
	w.revisions = append(slices.Clone(w.revisions), made)
	return w.revisions[len(w.revisions)-1]
}

// newRevision is the one that the DaemonSet controller makes of the set's template.
func newRevision(t testing.TB, set *appsv1.DaemonSet, hash string, number int64) *appsv1.ControllerRevision {
	r := build.Revision(t, set, "DaemonSet", "web-"+hash, number, &set.Spec.Template)
	r.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: hash}
	r.Annotations = map[string]string{versionAnnotation: simulated.VersionOf(&set.Spec.Template.Spec).String()}
	return r
}

// versionAnnotation names the version of a revision.
const versionAnnotation = "test/version"

func versionOf(r *appsv1.ControllerRevision) (v version) {
	_, _ = fmt.Sscanf(r.Annotations[versionAnnotation], "i%dc%dm%d", &v.Image, &v.CPU, &v.Memory)
	return v
}

// dscSync is one sync of the DaemonSet controller.
type dscSync struct {
	*world
	set    *appsv1.DaemonSet
	hash   string
	byNode map[string][]*corev1.Pod // the oldest first
}

// updated is IsPodUpdated.
func (s *dscSync) updated(pod *corev1.Pod) bool {
	return revisions.HashOf(pod) == s.hash || pod.Labels[templateGenerationLabel] == templateGeneration(s.set)
}

func (s *dscSync) available(pod *corev1.Pod) bool {
	return podutils.IsPodAvailable(pod, s.set.Spec.MinReadySeconds, metav1.NewTime(s.Clock.Now()))
}

// bounds are maxSurge and maxUnavailable, of the nodes that are to have a pod.
func (s *dscSync) bounds() (surge, unavailable, desired int) {
	for _, node := range s.Saw.Nodes {
		desired += asInt(runs(node))
	}
	if r := s.set.Spec.UpdateStrategy.RollingUpdate; r != nil && !onDelete(s.set) {
		surge, _ = intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxSurge, intstr.FromInt32(0)), desired, true)
		unavailable, _ = intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, desired, true)
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable, desired
}

// sync is syncNodes: it makes pods for nodes, and deletes some, by name only.
func (s *dscSync) sync(births []string, deaths []*corev1.Pod) {
	s.dying, s.deaths = nil, 0
	for _, node := range births {
		pod := s.newPod(s.set, node, s.hash)
		s.Create(pod)
	}
	for _, pod := range deaths {
		if s.Pods[pod.Name] != nil {
			s.DeletePod(pod.Name)
			s.dying = append(s.dying, pod.Name)
			s.deaths++
		}
	}
}

// manage makes the pods that nodes lack, and deletes those that are too many, or not to be there. It
// reports whether there are any.
func (s *dscSync) manage() bool {
	var births []string
	var deaths []*corev1.Pod
	r := s.set.Spec.UpdateStrategy.RollingUpdate
	surge := false
	if !onDelete(s.set) && r != nil && r.MaxSurge != nil {
		n, _ := intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, 1, true)
		surge = n > 0
	}
	for _, name := range slices.Sorted(maps.Keys(s.Saw.Nodes)) {
		node, pods := s.Saw.Nodes[name], s.byNode[name]
		alive := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
		if i := slices.IndexFunc(alive, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed }); i >= 0 && stays(node) {
			deaths = append(deaths, alive[i])
			alive = slices.Delete(alive, i, i+1)
		}
		switch {
		case runs(node) && len(pods) == 0, surge && runs(node) && len(alive) == 0:
			births = append(births, name)
		case !stays(node):
			deaths = append(deaths, alive...)
		case len(alive) < 2:
		case !surge:
			deaths = append(deaths, alive[1:]...)
		default:
			deaths = append(deaths, s.pruned(alive)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.byNode)) { // getUnscheduledPodsWithoutNode
		for _, pod := range s.byNode[name] {
			if s.Saw.Nodes[name] == nil && pod.Spec.NodeName == "" {
				deaths = append(deaths, pod)
			}
		}
	}
	s.sync(births, deaths)
	return len(births)+len(s.dying) > 0
}

// pruned are those of several pods of a node that do not stay there during a rollout with maxSurge.
func (s *dscSync) pruned(alive []*corev1.Pod) (deaths []*corev1.Pod) {
	var newest, old *corev1.Pod
	for _, pod := range alive {
		switch {
		case revisions.HashOf(pod) == s.hash && newest == nil:
			newest = pod
		case revisions.HashOf(pod) != s.hash && old == nil:
			old = pod
		default:
			deaths = append(deaths, pod)
		}
	}
	if newest != nil && old != nil && (!podutils.IsPodReady(old) || s.available(newest)) {
		deaths = append(deaths, old)
	}
	return deaths
}

// shuffled are the nodes in some order: that of the controller is by chance.
func (s *dscSync) shuffled() []string {
	for name, node := range s.Saw.Nodes {
		if _, is := s.byNode[name]; !is && runs(node) {
			s.byNode[name] = nil
		}
	}
	names := slices.Sorted(maps.Keys(s.byNode))
	if len(names) == 0 {
		return nil
	}
	first := s.RV % len(names)
	return append(slices.Clone(names[first:]), names[:first]...)
}

// pair is findUpdatedPodsOnNode.
func (s *dscSync) pair(pods []*corev1.Pod) (newest, old *corev1.Pod, ok bool) {
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		of := &old
		if s.updated(pod) {
			of = &newest
		}
		if *of != nil {
			return nil, nil, false
		}
		*of = pod
	}
	return newest, old, true
}

// rollingUpdate restarts old pods, or makes new ones beside them.
func (s *dscSync) rollingUpdate() {
	surge, unavailable, desired := s.bounds()
	if surge > 0 {
		s.surge(surge, desired)
		return
	}
	down := 0
	var allowed, candidates []*corev1.Pod
	for _, name := range s.shuffled() {
		newest, old, ok := s.pair(s.byNode[name])
		switch {
		case !ok, (old == nil) == (newest == nil):
			down++
		case newest != nil:
			down += asInt(!s.available(newest))
		case !s.available(old):
			allowed = append(allowed, old)
			down++
		case down < unavailable:
			candidates = append(candidates, old)
		}
	}
	deaths := slices.Concat(allowed, candidates[:min(max(unavailable-down, 0), len(candidates))])
	s.sync(nil, deaths)
}

func (s *dscSync) surge(most, desired int) {
	surging, available := 0, 0
	var deaths, leaving []*corev1.Pod
	var allowed, candidates []string
	for _, name := range s.shuffled() {
		newest, old, ok := s.pair(s.byNode[name])
		if !ok {
			surging++
			continue
		}
		if first := cmp.Or(old, newest); first != nil && s.available(first) {
			available++
		}
		node := s.Saw.Nodes[name]
		switch {
		case old == nil:
		case newest != nil && s.available(newest):
			deaths = append(deaths, old)
		case newest != nil:
			surging++
		case node == nil:
			return // an error: it tries again
		case !runs(node) && !s.available(old):
			deaths = append(deaths, old)
		case !runs(node):
			leaving = append(leaving, old)
		case !s.available(old):
			allowed = append(allowed, name)
		case surging < most:
			candidates = append(candidates, name)
		}
	}
	deaths = append(deaths, leaving[:min(max(available-desired, 0), len(leaving))]...)
	births := slices.Concat(allowed, candidates[:min(max(most-surging, 0), len(candidates))])
	s.sync(births, deaths)
}

// status is updateDaemonSetStatus. A write that comes too late is made again, for the set that
// there is then.
func (s *dscSync) status(observes bool) {
	// What has been made and deleted since is not counted.
	var n appsv1.DaemonSetStatus
	for _, node := range s.Saw.Nodes {
		pods := s.byNode[node.Name]
		switch {
		case !runs(node):
			n.NumberMisscheduled += int32(asInt(len(pods) > 0))
			continue
		case len(pods) > 0:
			n.CurrentNumberScheduled++
			n.NumberReady += int32(asInt(podutils.IsPodReady(pods[0])))
			n.NumberAvailable += int32(asInt(s.available(pods[0])))
			n.UpdatedNumberScheduled += int32(asInt(s.updated(pods[0])))
		}
		n.DesiredNumberScheduled++
	}
	n.NumberUnavailable = n.DesiredNumberScheduled - n.NumberAvailable
	was := s.set.Status
	n.ObservedGeneration, n.CollisionCount, n.Conditions = was.ObservedGeneration, was.CollisionCount, was.Conditions
	if equality.Semantic.DeepEqual(n, was) && was.ObservedGeneration >= s.set.Generation {
		return
	}
	written := s.Set.DeepCopy()
	if n.ObservedGeneration = written.Status.ObservedGeneration; observes {
		n.ObservedGeneration = s.set.Generation
	}
	n.CollisionCount, n.Conditions = written.Status.CollisionCount, written.Status.Conditions
	written.Status = n
	s.WriteStatus(written, false)
}

// Revisions are those that it has made.
func (w *world) Revisions() []*appsv1.ControllerRevision { return w.revisions }

// Of is the version that the revision of a pod says; none if it has no revision.
func (w *world) Of(pod *corev1.Pod) version {
	for _, r := range w.revisions {
		if r.Labels[appsv1.ControllerRevisionHashLabelKey] == revisions.HashOf(pod) {
			return versionOf(r)
		}
	}
	return version{}
}

// Lacks says which pod is not done, or which node has not one.
func (w *world) Lacks(done func(*corev1.Pod) bool) string {
	byNode := map[string]int{}
	for _, pod := range w.Pods {
		byNode[capacity.TargetNode(pod)]++
		if !done(pod) {
			return pod.Name + " is not done"
		}
	}
	for name, node := range w.Nodes {
		if runs(node) && byNode[name] != 1 {
			return fmt.Sprintf("%s has %d pods", name, byNode[name])
		}
	}
	return ""
}
