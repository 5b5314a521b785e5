package invariant

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
)

// Write is one event of the audit log.
type Write struct {
	auditv1.Event
	// Object is what was stored, if the answer says it.
	Object metav1.Object
	// Since is the earliest that something can have been read on which the write rests.
	Since time.Time

	at      time.Time // when its answer was ready
	order   int64     // of what is stored
	resized bool      // it is about pods/resize
}

// failed reports whether nothing was stored.
func (w Write) failed() bool { return w.ResponseStatus == nil || w.ResponseStatus.Code >= 300 }

// dryRun reports whether an event changed nothing. A deletion says so in its body.
func dryRun(e auditv1.Event) bool {
	return strings.Contains(e.RequestURI, "dryRun=All") || e.RequestObject != nil && strings.Contains(string(e.RequestObject.Raw), `"dryRun":["All"]`)
}

// inOrder returns the writes in the order in which they were stored. The audit log has them in
// the order in which they were answered.
func inOrder(events []auditv1.Event, lag time.Duration) ([]Write, error) {
	var writes []Write
	var newest int64
	for _, e := range events {
		if e.ObjectRef == nil || e.Stage != auditv1.StageResponseComplete || slices.Contains([]string{"get", "list", "watch"}, e.Verb) || dryRun(e) {
			continue
		}
		w := Write{Event: e, Since: e.StageTimestamp.Add(-lag), order: newest}
		if e.ResponseObject != nil && !w.failed() {
			version, err := w.decode()
			if err != nil {
				return nil, fmt.Errorf("reading the answer to %s: %w", e.RequestURI, err)
			}
			w.order = cmp.Or(version, w.order)
		}
		newest = max(newest, w.order)
		writes = append(writes, w)
	}
	slices.SortStableFunc(writes, func(a, b Write) int { return cmp.Compare(a.order, b.order) })
	return writes, nil
}

// decode takes the answer for what was stored, and returns the version of that; 0 if it is not known.
func (w *Write) decode() (version int64, err error) {
	var answer metav1.PartialObjectMetadata
	if err := json.Unmarshal(w.ResponseObject.Raw, &answer); err != nil || answer.Kind == "Status" {
		return 0, err
	}
	if scale := new(autoscalingv1.Scale); answer.Kind == "Scale" && json.Unmarshal(w.ResponseObject.Raw, scale) == nil {
		w.Object = scale
	} else if kind, new := objectOf(w.ObjectRef.Resource); answer.Kind == kind || answer.Kind == "" {
		if json.Unmarshal(w.ResponseObject.Raw, new) == nil {
			w.Object = new
		}
	}
	version, _ = strconv.ParseInt(answer.ResourceVersion, 10, 64)
	return version, nil
}

// objectOf returns the kind of a resource that this package looks at, and an empty object.
func objectOf(resource string) (kind string, empty metav1.Object) {
	switch resource {
	case "pods":
		return "Pod", &corev1.Pod{}
	case "statefulsets":
		return "StatefulSet", &appsv1.StatefulSet{}
	case "deployments":
		return "Deployment", &appsv1.Deployment{}
	case "daemonsets":
		return "DaemonSet", &appsv1.DaemonSet{}
	case "replicasets":
		return "ReplicaSet", &appsv1.ReplicaSet{}
	case "nodes":
		return "Node", &corev1.Node{}
	case "controllerrevisions":
		return "ControllerRevision", &appsv1.ControllerRevision{}
	case "serviceaccounts":
		return "ServiceAccount", &corev1.ServiceAccount{}
	case "limitranges":
		return "LimitRange", &corev1.LimitRange{}
	default:
		return "", &metav1.ObjectMeta{}
	}
}

// pod that was stored; nil if it is not known.
func (w Write) pod() *corev1.Pod {
	if p, is := w.Object.(*corev1.Pod); is && p.UID != "" { // otherwise it is the answer to a binding, say
		return p
	}
	return nil
}

// history is what was stored up to a write.
type history struct {
	options    Options
	workloads  map[types.UID]*workload
	sets       map[types.UID]*replicaSet
	pods       map[types.UID]*pod
	nodes      map[string]*node
	suspects   map[string][]suspect // by node
	beats      []beat
	limits     []limits
	violations []Violation
	judgments  []func() // made when all writes are known
}

func newHistory(o Options) *history {
	return &history{
		options: o, workloads: map[types.UID]*workload{}, sets: map[types.UID]*replicaSet{}, pods: map[types.UID]*pod{},
		nodes: map[string]*node{}, suspects: map[string][]suspect{},
	}
}

// workload is a StatefulSet, a Deployment or a DaemonSet.
type workload struct {
	kind, name string
	versions   []version
	revisions  map[string]corev1.PodTemplateSpec // of all kinds but Deployments, by the label that pods have
	editions   []edition
	failed     []failure
	deleted    time.Time
}

// version of a workload.
type version struct {
	at, since           time.Time
	by                  string
	kind                string
	updated             string // the revision of the template, if the StatefulSet controller has made it
	observed            int64  // the generation that it has observed
	edited              int64  // the one that the template came with
	meta                metav1.ObjectMeta
	template            corev1.PodTemplateSpec
	replicas, partition int32 // the partition is the user's own
	start               int32 // the first ordinal
	down                int32 // how many may be unavailable
	most                int32 // how many may be resized at a time
	minReady            time.Duration
	onDelete            bool
	held, complete      bool
	parallel            bool // more than one at a time
	recreate            bool // no new pod may be there before the last old one has gone
	empty               bool // by its status, the Deployment has no pods: an edit is not held, so that those that come are of it
	switched            bool // others have changed the strategy to that during the hold
	released            bool // the user has let go of the hold of this template, or no controller was there to hold it for, or no policy
	surges              bool // its user lets two pods be on a node
	surging             bool // the DaemonSet controller has two pods on some nodes for now
	handedOver          bool // the template was edited while it had
	conditioned         bool // the status has a condition of ours
	edit                int  // of the template, counted
	spec                any  // but for what we may change
}

// enabled reports whether the workload is opted in.
func (v version) enabled() bool { return v.meta.Labels["inplace-rollout.io/enabled"] == "true" }

// guarded reports whether a failure stops its rollouts.
func (v version) guarded() bool { return v.inForce("canary") != "" || v.inForce("checks") != "" }

// live reports whether the action in force is LiveResize.
func (v version) live() bool { return v.inForce("resource-resize-action") == "LiveResize" }

// kept are the annotations that count as they were at the edit, as in-force has them. A former version has the first two.
var kept = []string{"resource-resize-action", "resource-resize-policy", "canary", "canary-duration", "on-failure", "checks"}

func (v version) inForce(name string) string {
	values := strings.Split(v.annotation("in-force"), ";")
	if i := slices.Index(kept, name); i < len(values) && (len(values) == 2 || len(values) == len(kept)) {
		return values[i]
	}
	return v.annotation(name)
}

func (v version) annotation(name string) string {
	return v.meta.Annotations["inplace-rollout.io/"+name]
}

// replicaSet of a Deployment.
type replicaSet struct {
	name      string
	owner     types.UID
	replicas  int32
	template  corev1.PodTemplateSpec
	deletedBy string
	versions  []setVersion
	told      []view // by its status
}

// view is that somebody writes what they have seen at an earlier moment.
type view struct{ at, seen time.Time }

// setVersion is what a ReplicaSet says from a moment on.
type setVersion struct {
	at, since  time.Time
	replicas   int32
	template   corev1.PodTemplateSpec
	generation int64
	observed   time.Time // since when its controller's status says that it has seen it; zero if that is not known
}

// mayBeOf returns the former templates that the pod may have been made from, as far as the status of the ReplicaSet tells.
func (s *replicaSet) mayBeOf(p *pod) (former []corev1.PodTemplateSpec) {
	came := p.versions[0].at
	for i, v := range s.versions[1:] {
		if !v.at.After(came) && v.observed.After(came) && lacks(p.versions[0].Pod, s.versions[i].template) == "" {
			former = append(former, s.versions[i].template)
		}
	}
	return former
}

// scaled returns the version that has brought the number of replicas.
func (s *replicaSet) scaled() (v setVersion) {
	for _, earlier := range slices.Backward(s.versions) {
		if earlier.replicas != s.replicas {
			break
		}
		v = earlier
	}
	return v
}

// at returns the number of replicas at a moment.
func (s *replicaSet) at(t time.Time) int32 {
	var replicas int32
	for _, v := range s.versions {
		if !v.at.After(t) {
			replicas = v.replicas
		}
	}
	return replicas
}

// of returns the template that a pod, which is there since then, was made from, or has been brought to. What a later template does not
// say any more goes only with the pod.
func (s *replicaSet) of(p *corev1.Pod, since time.Time) corev1.PodTemplateSpec {
	first := len(s.versions) - 1
	for first > 0 && s.versions[first].at.After(since) {
		first--
	}
	for i, v := range slices.Backward(s.versions) {
		earlier := s.versions[first:max(i, first)]
		if i <= first || lacks(p, v.template) == "" && !slices.ContainsFunc(earlier, func(before setVersion) bool { return keeps(p, before.template, v.template) }) {
			return v.template
		}
	}
	return s.template
}

// pod in all its versions.
type pod struct {
	versions []podVersion
	asked    []ask     // resizes by the controller
	resized  time.Time // when somebody else has resized it last
	deleted  time.Time
	by       string                  // who had it go first, or "" while nobody has
	going    time.Time               // when
	since    time.Time               // what that rests on
	restart  bool                    // it went for a new one
	ours     bool                    // that was the controller's doing
	more     bool                    // for a size that asks for more
	made     *corev1.PodTemplateSpec // by its ReplicaSet
	gaps     []gap
	doubt    time.Time // a write was answered with a fault then, and may have been made
	reverted *Write    // by which the controller has taken its workload's size from it last
}

type podVersion struct {
	at, since time.Time
	*corev1.Pod
}

// ask is a resize that the controller asked for.
type ask struct {
	at, since time.Time
	code      int32
	before    *corev1.Pod
	same      bool // the pod's spec had the size already
}

func (p *pod) last() *corev1.Pod { return p.versions[len(p.versions)-1].Pod }

// at returns the version of a moment; nil if there was none.
func (p *pod) at(t time.Time) *corev1.Pod {
	for _, v := range slices.Backward(p.versions) {
		if !v.at.After(t) {
			return v.Pod
		}
	}
	return nil
}

// there reports whether the pod is there, and nobody has had it go.
func (p *pod) there() bool { return p.going.IsZero() && p.deleted.IsZero() }

// ended reports whether it runs no more, and never will, as where its kubelet has rejected it.
func (p *pod) ended() bool {
	phase := p.last().Status.Phase
	return phase == corev1.PodFailed || phase == corev1.PodSucceeded
}

// goes notes who has it go. If it was detached before, that was for the edit of then.
func (p *pod) goes(w Write) {
	p.by, p.going = w.User.Username, w.at
	if !detached(p.last()) {
		p.since = w.Since
	}
}

// detachedFrom is the label of a pod that was taken out of the ReplicaSet of that UID, to be evicted when its successor is available.
const detachedFrom = "inplace-rollout.io/detached-from"

func detached(p *corev1.Pod) bool { return p.Labels[detachedFrom] != "" }

func (p *pod) ref() string { return "pods/" + p.last().Name }

// ready reports whether a version of a pod is Ready.
func ready(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ordinal of a StatefulSet's pod.
func ordinal(name string) int32 {
	n, err := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

func (w *workload) ref() string { return strings.ToLower(w.kind) + "s/" + w.name }

func (w *workload) last() version { return w.versions[len(w.versions)-1] }

// since returns the versions that were there at a moment or later.
func (w *workload) since(t time.Time) []version {
	for i, v := range slices.Backward(w.versions) {
		if !v.at.After(t) {
			return w.versions[i:]
		}
	}
	return w.versions
}

// any reports whether some version that was there at a moment or later is such.
func (w *workload) any(since time.Time, is func(version) bool) bool {
	return slices.ContainsFunc(w.since(since), is)
}

// ofTemplate returns the versions from the last edit of the template on.
func (w *workload) ofTemplate() []version {
	newest := w.last().edit
	for i, v := range slices.Backward(w.versions) {
		if v.edit != newest {
			return w.versions[i+1:]
		}
	}
	return w.versions
}

// stretch returns since when the workload is opted in and has its template.
func (w *workload) stretch() time.Time {
	of := w.ofTemplate()
	began := of[len(of)-1].at
	for _, v := range slices.Backward(of) {
		if !v.enabled() {
			break
		}
		began = v.at
	}
	return began
}

// ours reports whether the controller is who wrote.
func (h *history) ours(user string) bool { return slices.Contains(h.options.Controllers, user) }

// workload returns the one that a pod belongs to, and its ReplicaSet if it is of one, or was detached from one.
func (h *history) workload(p *corev1.Pod) (*workload, *replicaSet) {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return nil, nil
	}
	if set := h.sets[owner.UID]; set != nil {
		return h.workloads[set.owner], set
	}
	return h.workloads[owner.UID], h.sets[types.UID(p.Labels[detachedFrom])]
}

// members are the pods that belong to the workload and have not been deleted.
func (h *history) members(w *workload) []*pod {
	var members []*pod
	for _, p := range h.pods {
		if owner, _ := h.workload(p.last()); owner == w && p.deleted.IsZero() {
			members = append(members, p)
		}
	}
	slices.SortFunc(members, func(a, b *pod) int { return cmp.Compare(a.last().Name, b.last().Name) })
	return members
}

// made returns the template that the pod was made from.
func (h *history) made(p *pod) (corev1.PodTemplateSpec, bool) {
	if p.made != nil {
		return *p.made, true
	}
	return h.template(p.versions[0].Pod)
}

// template returns the one that the pod was made from, or has been brought to.
func (h *history) template(p *corev1.Pod) (corev1.PodTemplateSpec, bool) {
	w, set := h.workload(p)
	if known := h.pods[p.UID]; set != nil && known != nil {
		return set.of(p, known.versions[0].since), true
	} else if set != nil {
		return set.template, true
	}
	if w == nil {
		return corev1.PodTemplateSpec{}, false
	}
	t, known := w.revisions[p.Labels[appsv1.ControllerRevisionHashLabelKey]]
	return t, known
}

func (h *history) violate(w Write, invariant, object, format string, args ...any) {
	h.violations = append(h.violations, Violation{Invariant: invariant, Object: object, Message: fmt.Sprintf(format, args...), At: w.at})
}

// storeScale takes the answer of the subresource by which kubectl scales a workload.
func (h *history) storeScale(w Write) {
	scale, is := w.Object.(*autoscalingv1.Scale)
	if !is || h.workloads[scale.UID] == nil {
		return
	}
	work := h.workloads[scale.UID]
	v := work.last()
	v.at, v.replicas = w.at, scale.Spec.Replicas
	switch spec := v.spec.(type) {
	case appsv1.StatefulSetSpec:
		spec.Replicas = &scale.Spec.Replicas
		v.spec = spec
	case appsv1.DeploymentSpec:
		spec.Replicas = &scale.Spec.Replicas
		v.spec = spec
	}
	work.versions = append(work.versions, v)
}

// apply takes a write into the history.
func (h *history) apply(w Write) {
	if w.resized && h.ours(w.User.Username) {
		if p := h.named(w.ObjectRef.Name); p != nil && w.ResponseStatus != nil {
			p.asked = append(p.asked, ask{w.at, w.Since, w.ResponseStatus.Code, p.last(), unchanged(w, p.last())})
		}
	}
	if w.failed() {
		p := h.named(w.ObjectRef.Name)
		switch {
		case p == nil || w.ObjectRef.Resource != "pods":
		case w.ResponseStatus == nil || w.ResponseStatus.Code >= 500:
			p.doubt = w.at
		case w.Verb == "delete" && w.ResponseStatus.Code == http.StatusNotFound:
			if p.there() { // the log does not show who has deleted it
				p.going = w.at
			}
			p.deleted = w.at
		}
		return
	}
	if w.resized && !h.ours(w.User.Username) {
		if p := h.named(w.ObjectRef.Name); p != nil {
			p.resized = w.at
		}
	}
	switch ref := w.ObjectRef; {
	case ref.Resource == "pods" && (w.Verb == "delete" || ref.Subresource == "eviction"):
		h.deletePod(w)
	case w.Verb == "deletecollection":
		for _, p := range h.pods {
			if ref.Resource == "pods" && p.there() {
				p.goes(w)
			}
		}
	case w.Verb == "delete" && ref.Subresource == "" && ref.Resource != "nodes" && w.Object == nil: // else it remains until its finalizers have gone
		h.forget(w)
	case ref.Resource == "nodes":
		h.storeNode(w)
	case w.Object == nil:
	case ref.Resource == "pods":
		h.storePod(w)
	case ref.Subresource == "scale":
		h.storeScale(w)
	case isWorkload(ref.Resource):
		h.storeWorkload(w)
	case ref.Resource == "controllerrevisions":
		h.storeRevision(w)
	case ref.Resource == "replicasets":
		h.storeReplicaSet(w)
	case ref.Resource == "serviceaccounts":
		h.storeBeat(w)
	case ref.Resource == "limitranges":
		h.storeLimits(w)
	}
}

// forget notes that a workload or a ReplicaSet is gone.
func (h *history) forget(w Write) {
	for _, known := range h.workloads {
		if known.name == w.ObjectRef.Name && resources[known.kind] == w.ObjectRef.Resource && known.deleted.IsZero() {
			known.deleted = w.at
		}
	}
	switch set := h.namedSet(w.ObjectRef.Name); {
	case set != nil && w.ObjectRef.Resource == "replicasets":
		set.deletedBy = w.User.Username
	case w.ObjectRef.Resource == "limitranges":
		h.storeLimits(w)
	}
}

// resources of the kinds of workloads.
var resources = map[string]string{"StatefulSet": "statefulsets", "Deployment": "deployments", "DaemonSet": "daemonsets"}

func isWorkload(resource string) bool {
	return slices.Contains(slices.Collect(maps.Values(resources)), resource)
}

// named returns the pod of that name which is there.
func (h *history) named(name string) *pod {
	for _, p := range h.pods {
		if p.deleted.IsZero() && p.last().Name == name {
			return p
		}
	}
	return nil
}

func (h *history) deletePod(w Write) {
	p := h.named(w.ObjectRef.Name)
	if p == nil {
		return
	}
	if p.there() {
		p.goes(w)
	}
	// A pod with a grace period is deleted a second time, by its kubelet. The answer to an eviction does
	// not say whether it has one.
	graceful, answer := w.ObjectRef.Subresource != "" && ptr.Deref(p.last().Spec.TerminationGracePeriodSeconds, 0) > 0, w.pod()
	if answer != nil {
		graceful = ptr.Deref(answer.DeletionGracePeriodSeconds, 0) > 0
		p.note(w, answer)
	}
	if !graceful {
		p.deleted = w.at
	}
}

func (h *history) storePod(w Write) {
	stored := w.pod()
	if stored == nil {
		return
	}
	if w.Verb == "create" { // who was deleted by a write that the log does not show, is gone now
		if before := h.named(stored.Name); before != nil {
			before.deleted = w.at
			if before.there() {
				before.going = w.at
			}
		}
	}
	p := h.pods[stored.UID]
	if p == nil {
		p = &pod{}
		h.pods[stored.UID] = p
		if _, set := h.workload(stored); set != nil {
			p.made = ptr.To(set.of(stored, w.Since))
		}
	}
	if stored.DeletionTimestamp != nil && p.there() { // by a deletion that was answered with a fault
		p.going = w.at
	}
	p.note(w, stored)
	p.versions = append(p.versions, podVersion{w.at, w.Since, stored})
}

func (h *history) storeWorkload(w Write) {
	v, ok := workloadOf(w)
	if !ok {
		return
	}
	v.at, v.since, v.by = w.at, w.Since, w.User.Username
	// Nothing was held then, or guarded.
	v.released = w.ObjectRef.Subresource == "" && !h.ours(v.by) && within(h.options.Gaps, v.at)
	known := h.workloads[v.meta.UID]
	if known == nil {
		v.released = v.released || h.mayBeAbsent(w) // a new one is not marked
		known = &workload{kind: v.kind, name: v.meta.Name, revisions: map[string]corev1.PodTemplateSpec{}}
		h.workloads[v.meta.UID] = known
		v.edited = v.meta.Generation
	} else {
		before := known.last()
		same := equality.Semantic.DeepEqual(before.template, v.template)
		if v.edit, v.edited = before.edit, before.edited; !same {
			v.edit, v.edited = before.edit+1, v.meta.Generation
		}
		// The policy says so itself where no controller was there. But LiveResize lets no pod go.
		_, left := v.meta.Annotations["inplace-rollout.io/not-held"]
		v.released = v.released || left && !v.live() || !same && !v.held && before.empty || same && (before.released || before.held && !v.held && v.enabled() && !h.ours(v.by))
		v.handedOver = !v.held && (before.surging && (!same || !before.enabled()) || before.handedOver && same)
		known.fail(v, w, within(h.options.Gaps, v.at))
	}
	named := v.updated
	if v.observed < v.edited {
		v.updated = ""
	}
	if v.updated != "" {
		known.revisions[v.updated] = v.template
	}
	if len(known.versions) == 0 || v.edit != known.last().edit {
		known.edit(v)
	}
	if template, is := known.revisions[named]; is {
		known.know(template, v.observed)
	}
	known.versions = append(known.versions, v)
}

// workloadOf returns the workload that a write was answered with, and whether it was one.
func workloadOf(w Write) (v version, ok bool) {
	switch o := w.Object.(type) {
	case *appsv1.StatefulSet:
		v = ofStatefulSet(o)
	case *appsv1.Deployment:
		v = ofDeployment(o)
	case *appsv1.DaemonSet:
		v = ofDaemonSet(o)
	}
	return v, v.meta.UID != ""
}

// observed returns the generation that the StatefulSet controller has observed. While the set is held, it stands in a condition.
func observed(set *appsv1.StatefulSet) int64 {
	generation := set.Status.ObservedGeneration
	for _, c := range set.Status.Conditions {
		if number, is := strings.CutPrefix(c.Message, "observed generation "); is && c.Type == "inplace-rollout.io/Observed" {
			if said, err := strconv.ParseInt(number, 10, 64); err == nil {
				generation = max(generation, said)
			}
		}
	}
	return generation
}

func ofStatefulSet(set *appsv1.StatefulSet) version {
	v := version{kind: "StatefulSet", meta: set.ObjectMeta, template: set.Spec.Template, replicas: ptr.Deref(set.Spec.Replicas, 1), down: 1}
	if set.Spec.Ordinals != nil {
		v.start = set.Spec.Ordinals.Start
	}
	v.observed, v.updated = observed(set), set.Status.UpdateRevision
	v.onDelete = set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		v.partition = ptr.Deref(rolling.Partition, 0)
		if rolling.MaxUnavailable != nil {
			down, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, int(v.replicas), true)
			if err == nil {
				v.down = int32(max(down, 1))
			}
		}
	}
	v.most, v.minReady = v.down, seconds(set.Spec.MinReadySeconds)
	v.parallel = v.down > 1 || set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
	var hold string
	if hold, v.held = set.Annotations["inplace-rollout.io/hold"]; v.held {
		if wish, err := strconv.ParseInt(hold, 10, 32); err == nil {
			v.partition = int32(wish)
		}
	}
	for _, c := range set.Status.Conditions {
		v.condition(string(c.Type), c.Status)
	}
	spec := set.Spec
	spec.UpdateStrategy, spec.Ordinals = appsv1.StatefulSetUpdateStrategy{Type: spec.UpdateStrategy.Type}, nil
	v.spec = spec
	return v
}

func ofDeployment(d *appsv1.Deployment) version {
	v := version{kind: "Deployment", meta: d.ObjectMeta, template: d.Spec.Template, replicas: ptr.Deref(d.Spec.Replicas, 1), parallel: true, empty: d.Status.Replicas == 0 && d.Status.ObservedGeneration > 0}
	_, v.held = d.Annotations["inplace-rollout.io/hold"]
	rolling := d.Spec.Strategy.RollingUpdate
	inForce, switched := d.Annotations["inplace-rollout.io/in-force-strategy"]
	if v.switched = switched && v.held; v.switched {
		surge, unavailable, _ := strings.Cut(inForce, ";")
		rolling = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.Parse(surge)), MaxUnavailable: ptr.To(intstr.Parse(unavailable))}
	}
	if rolling != nil {
		down, errDown := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, int(v.replicas), false)
		more, errMore := intstr.GetScaledValueFromIntOrPercent(rolling.MaxSurge, int(v.replicas), true)
		if errDown == nil && errMore == nil {
			if down == 0 && more == 0 {
				down = 1
			}
			v.down, v.most = int32(down), int32(down+more)
		}
	} else {
		v.recreate, v.down, v.most = true, v.replicas, v.replicas
	}
	v.minReady = seconds(d.Spec.MinReadySeconds)
	for _, c := range d.Status.Conditions {
		v.condition(string(c.Type), c.Status)
	}
	spec := d.Spec
	spec.Paused = false
	v.spec = spec
	return v
}

// condition notes one of the status.
func (v *version) condition(kind string, status corev1.ConditionStatus) {
	if kind == "inplace-rollout.io/Complete" {
		v.conditioned, v.complete = true, status == corev1.ConditionTrue
	}
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func (h *history) storeReplicaSet(w Write) {
	stored, is := w.Object.(*appsv1.ReplicaSet)
	if !is || stored.UID == "" {
		return
	}
	set := h.sets[stored.UID]
	if set == nil {
		set = &replicaSet{name: stored.Name}
		h.sets[stored.UID] = set
	}
	if owner := metav1.GetControllerOf(stored); owner != nil {
		set.owner = owner.UID
	}
	set.replicas, set.template = ptr.Deref(stored.Spec.Replicas, 1), stored.Spec.Template
	if n := len(set.versions); n == 0 || set.versions[n-1].replicas != set.replicas || !equality.Semantic.DeepEqual(set.versions[n-1].template, set.template) {
		set.versions = append(set.versions, setVersion{at: w.at, since: w.Since, replicas: set.replicas, template: set.template, generation: stored.Generation})
	}
	if w.ObjectRef.Subresource == "status" {
		set.told = append(set.told, view{w.at, w.Since})
	}
	for i := range set.versions {
		if v := &set.versions[i]; v.observed.IsZero() && v.generation > 0 && stored.Status.ObservedGeneration >= v.generation {
			v.observed = w.at
		}
	}
}
