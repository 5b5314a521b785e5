package invariant

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// The built-in controllers, as they are called in the audit log.
const (
	builtIn          = "system:serviceaccount:kube-system:"
	statefulSets     = builtIn + "statefulset-controller"
	replicaSets      = builtIn + "replicaset-controller"
	daemonSets       = builtIn + "daemon-set-controller"
	garbageCollector = builtIn + "generic-garbage-collector"
)

// slack is by how much the clocks of a kubelet and of the audit log may differ.
const slack = time.Second

// check looks at a write before it is taken into the history.
func (h *history) check(w Write) {
	if w.failed() {
		return
	}
	ours := h.ours(w.User.Username)
	if ours {
		h.checkOptedIn(w)
		h.checkFence(w)
		h.checkOrder(w)
		h.checkComplete(w)
		h.checkProof(w)
		h.checkCanary(w)
		h.checkRevert(w)
		h.checkHalf(w)
		h.checkAction(w)
		h.checkLabel(w)
		p := h.named(w.ObjectRef.Name)
		if w.resized && p != nil {
			h.checkPartition(w, p)
		} else if after := w.pod(); p != nil && after != nil && detached(after) != detached(p.last()) {
			if p.restart = false; detached(after) { // else it goes back
				h.checkRestart(w, p)
				p.since = w.Since
			}
		}
	}
	h.checkHeld(w)
	h.checkRoom(w)
	h.checkFailed(w)
	if w.ObjectRef.Resource == "pods" && w.Verb == "create" && w.ObjectRef.Subresource == "" {
		switch w.User.Username {
		case daemonSets:
			h.checkDaemonComes(w)
		case statefulSets:
			h.checkTemplate(w)
			h.checkReturn(w)
		case replicaSets:
			h.checkRecreate(w)
		}
	}
	if w.ObjectRef.Resource != "pods" || w.Verb != "delete" && w.ObjectRef.Subresource != "eviction" {
		return
	}
	if p := h.named(w.ObjectRef.Name); p != nil && p.there() {
		switch user := w.User.Username; {
		case h.operator(w):
			h.checkOperator(w, p)
		case ours:
			h.checkRestart(w, p)
			h.checkApart(w, p)
			h.checkDaemonRestart(w, p)
		case user == daemonSets:
			h.checkDaemonGoes(w, p)
		case user == statefulSets && !h.scaledDown(p, w), user == replicaSets && !h.excess(p, w):
			h.checkRestart(w, p)
		case user == garbageCollector:
			if _, set := h.workload(p.last()); set != nil && h.ours(set.deletedBy) {
				h.violate(w, Restart, p.ref(), "it was deleted with its ReplicaSet, which %s had deleted", set.deletedBy)
			}
		}
	}
}

// checkApart checks that the controller does not take a pod down that may not be replaced before it has
// gone. A pod that was detached before has been replaced already, and one that goes as another goes back is not.
func (h *history) checkApart(w Write, p *pod) {
	work, set := h.workload(p.last())
	if work == nil || set == nil || detached(p.last()) || h.cameFor(p) != nil || work.any(w.Since, func(v version) bool { return !v.recreate }) {
		return
	}
	h.violate(w, Apart, p.ref(), "%s had it go, and its ReplicaSet makes another one at once", w.User.Username)
}

// scaledDown reports whether a StatefulSet's pod is not among those that it is to have.
func (h *history) scaledDown(p *pod, by Write) bool {
	w, _ := h.workload(p.last())
	return w == nil || w.any(by.Since, func(v version) bool { return v.surplus(p.last()) })
}

// excess reports whether a ReplicaSet's pod goes for another reason than a rollout: there are
// fewer replicas now, or were when the ReplicaSet was scaled, or there was one pod too many. A rollout that was in flight at an edit,
// or when the workload was opted in, may have left more pods than replicas.
func (h *history) excess(p *pod, by Write) bool {
	w, set := h.workload(p.last())
	if w == nil || set == nil {
		return true
	}
	now, scaled := w.last().replicas, set.scaled()
	if set.replicas >= now || w.any(by.Since, func(v version) bool { return v.replicas > now }) ||
		w.any(scaled.since, func(v version) bool { return v.replicas <= set.replicas && !v.at.After(scaled.at) }) {
		return true
	}
	began := w.stretch()
	surplus := -now
	for _, member := range h.pods {
		if owner, _ := h.workload(member.last()); owner == w && member.at(began) != nil && (member.there() || member.going.After(began)) {
			surplus++
			if member.by == replicaSets {
				surplus--
			}
		}
	}
	return surplus > 0
}

// checkRestart checks that a pod may go for a new one now.
func (h *history) checkRestart(w Write, p *pod) {
	work, _ := h.workload(p.last())
	if work == nil {
		if h.ours(w.User.Username) {
			h.violate(w, Restart, p.ref(), "%s had it go, and it belongs to no workload", w.User.Username)
		}
		return
	}
	if detached(p.last()) && (p.restart || detached(p.versions[0].Pod)) { // it has been replaced, or was before the log began
		made, known := h.made(p)
		_, set := h.workload(p.versions[0].Pod)
		if known && p.restart && len(p.asked) == 0 && (set == nil || len(set.mayBeOf(p)) == 0) && (p.versions[0].at.After(work.ofTemplate()[0].at) || equality.Semantic.DeepEqual(sizesOf(p.last()), sizeOf(made))) && !work.any(w.Since, func(v version) bool { return !equality.Semantic.DeepEqual(sizeOf(made), sizeOf(v.template)) }) {
			h.violate(w, Once, p.ref(), "%s had it go, and it has the very size that is wanted: %s", w.User.Username, h.describe(work, p))
		}
		h.checkAvailability(w, work, p)
		return
	}
	if before := h.cameFor(p); before != nil && h.ours(w.User.Username) {
		h.checkAvailability(w, work, p)
		h.judgments = append(h.judgments, func() {
			back := slices.ContainsFunc(before.versions, func(v podVersion) bool { return !v.at.Before(w.at) && !detached(v.Pod) })
			if !back && !before.there() && h.ours(before.by) {
				h.violate(w, Once, p.ref(), "%s had it go as if %s went back, which went, too", w.User.Username, before.ref())
			}
		})
		return
	}
	why, bySize := h.mayRestart(work, p, w)
	if why == "" {
		h.violate(w, Restart, p.ref(), "%s had it go, and nothing allows that: %s", w.User.Username, h.describe(work, p))
		return
	}
	if bySize {
		p.ours, p.more = h.ours(w.User.Username) || work.last().held, h.asksMore(work, p)
		if w.Verb != "patch" {
			h.checkAvailability(w, work, p)
		}
		h.checkOnce(w, work, p)
		h.checkPartition(w, p)
	}
	p.restart = bySize
}

// cameFor returns a pod that was detached from the pod's ReplicaSet before the pod came, and is there; nil if there is none.
func (h *history) cameFor(p *pod) *pod {
	_, set := h.workload(p.last())
	for _, other := range h.pods {
		if _, from := h.workload(other.last()); set != nil && from == set && detached(other.last()) && other.there() && other.since.Before(p.versions[0].at) {
			return other
		}
	}
	return nil
}

// mayRestart returns what allows the built-in controllers, or ours, to make a new pod in the
// place of this one; "" if nothing does. It reports, too, whether that is because of its size.
func (h *history) mayRestart(w *workload, p *pod, by Write) (why string, bySize bool) {
	template, known := h.template(p.last())
	seen := h.seen(p, by)
	for _, v := range w.since(seen) {
		switch {
		case !v.enabled():
			return "not opted in", false
		case v.released:
			return "released by its user", false
		case v.handedOver:
			return "edited while the built-in controller had two pods on some nodes", false
		case v.meta.DeletionTimestamp != nil || !w.deleted.IsZero():
			return "the workload is deleted", false
		case !known:
			return "the log does not show its template", false
		case !differOnlyInSize(template, v.template):
			return "another template", false
		}
	}
	// A new Deployment is not held: paused, it would make no pods. So what it adopts goes, if it is of
	// another template.
	if w.kind == "Deployment" && p.versions[0].at.Before(w.versions[0].at) && len(w.ofTemplate()) == len(w.versions) {
		return "adopted by a new Deployment", false
	}
	if h.inFlight(w, p) || h.late(w, p) || h.recreating(w, p) {
		return "the built-in controller had begun to replace it", false
	}
	if p.ended() {
		return "it has ended", false
	}
	settings := w.since(seen)
	if of := w.ofTemplate(); len(of) > len(settings) {
		settings = of
	}
	if !slices.ContainsFunc(settings, func(v version) bool { return !v.onDelete }) {
		return "", true
	}
	if slices.ContainsFunc(settings, restarts) {
		return "its policy or action", true
	}
	if slices.ContainsFunc(settings, prefersLive) {
		if h.lost(w, by.at) >= 3 {
			return "others have deleted pods soon after their resize", true
		}
		return h.obstacles(w, p, by), true
	}
	return "", true
}

// seen is what a pod's going rests on: the ReplicaSet controller does what whoever has scaled the ReplicaSet down wanted, by what that one
// had seen of the Deployment.
func (h *history) seen(p *pod, by Write) time.Time {
	if _, set := h.workload(p.last()); by.User.Username == replicaSets && set != nil {
		if scaled := set.scaled(); scaled.replicas < set.at(scaled.at.Add(-1)) && scaled.since.Before(by.Since) {
			return scaled.since
		}
	}
	return by.Since
}

// told is of when it may be what whoever lets the pod go knows of the others: the Deployment controller goes by the statuses of the
// ReplicaSets, and these say what their controller had seen.
func (h *history) told(p *pod, by Write) time.Time {
	looked := h.seen(p, by)
	since := looked
	_, of := h.workload(p.last())
	for _, set := range h.sets {
		if of == nil || by.User.Username != replicaSets || set.owner != of.owner {
			continue
		}
		for _, status := range slices.Backward(set.told) {
			if status.at.After(looked) {
				continue
			}
			if status.seen.Before(since) {
				since = status.seen
			}
			break
		}
	}
	return since
}

// lost is how many pods of a workload others have deleted within a minute after their resize.
func (h *history) lost(w *workload, at time.Time) (n int) {
	for _, p := range h.pods {
		if owner, _ := h.workload(p.last()); owner != w || p.there() || p.going.After(at) || h.ours(p.by) || strings.HasPrefix(p.by, builtIn) {
			continue
		}
		if slices.ContainsFunc(p.asked, func(a ask) bool { return a.code < 300 && p.going.Before(a.at.Add(time.Minute+slack)) }) {
			n++
		}
	}
	return n
}

// inFlight reports whether the Deployment controller was replacing the pod when the template was
// edited, or the workload opted in: another ReplicaSet that differs only in size had pods, too.
// A pod cannot be moved to another ReplicaSet, so that rollout goes on.
func (h *history) inFlight(w *workload, p *pod) bool {
	_, own := h.workload(p.last())
	if own == nil {
		return false
	}
	began := w.stretch()
	for _, other := range h.sets {
		if other != own && h.workloads[other.owner] == w && other.at(began) > 0 && differOnlyInSize(other.template, own.template) {
			return true
		}
	}
	return false
}

// late reports whether a Deployment's pod came of an older size when the Deployment controller had been left to replace those.
func (h *history) late(w *workload, p *pod) bool {
	made, known := h.made(p)
	return w.kind == "Deployment" && known && !equality.Semantic.DeepEqual(sizeOf(made), sizeOf(w.last().template)) &&
		slices.ContainsFunc(w.ofTemplate(), func(v version) bool { return !v.held && v.since.Before(p.versions[0].at) })
}

// recreating reports whether the Deployment controller had been left to replace the pod for the template before this one, all at once: an
// edit in the middle of that is not held.
func (h *history) recreating(w *workload, p *pod) bool {
	n := len(w.versions) - len(w.ofTemplate())
	template, known := h.template(p.last())
	if n == 0 || !known || w.last().held {
		return false
	}
	before := w.versions[n-1]
	return before.recreate && !before.held && !equality.Semantic.DeepEqual(sizeOf(template), sizeOf(before.template))
}

// said are the actions and policies that a version names, those in force among them.
func (v version) said() (actions, policies []string) {
	for _, value := range []func(string) string{v.inForce, v.annotation} {
		actions, policies = append(actions, value("resource-resize-action")), append(policies, value("resource-resize-policy"))
	}
	if _, action, found := strings.Cut(v.annotation("retry"), ";"); found {
		actions = append(actions, action)
	}
	return actions, policies
}

// restarts reports whether a version asks for restarts.
func restarts(v version) bool {
	actions, policies := v.said()
	return slices.Contains(actions, "Restart") || slices.ContainsFunc(policies, func(p string) bool { return strings.Contains(p, "RestartOnly") })
}

// prefersLive reports whether a version allows a restart where no live resize is possible.
func prefersLive(v version) bool {
	actions, _ := v.said()
	return slices.ContainsFunc(actions, func(a string) bool { return a == "" || a == "LiveResizePreferred" })
}

// obstacles returns why the pod cannot be resized live, or why another one cannot that has to go
// with it; "" if nothing says so.
func (h *history) obstacles(w *workload, p *pod, by Write) string {
	why := h.obstacle(w, p, by)
	if !w.any(by.Since, func(v version) bool { return v.recreate }) {
		return why
	}
	for _, other := range h.pods {
		if owner, _ := h.workload(other.last()); why == "" && owner == w {
			why = h.obstacle(w, other, by)
		}
	}
	return why
}

// obstacle returns why the pod cannot be resized live; "" if nothing says so.
func (h *history) obstacle(w *workload, p *pod, by Write) string {
	before, _ := h.template(p.last())
	made := []corev1.PodTemplateSpec{before}
	if _, set := h.workload(p.last()); set != nil {
		made = append(made, set.mayBeOf(p)...)
	}
	for _, v := range w.since(by.Since) {
		if slices.ContainsFunc(made, func(of corev1.PodTemplateSpec) bool { return inTheWay(p.last(), of, v.template) }) {
			return "the API server, or its container, does not allow it in place"
		}
		if slices.Contains(h.options.OldKubelets, nodeOf(p.last())) && lowersMemory(p.last(), v.template) {
			return "its kubelet lowers no memory limit"
		}
	}
	if p.leftBehind(w.last().template) {
		return "an edit that was taken back has given it what no resize can take away"
	}
	deferred, failing := h.options.DeferredTimeout, h.options.ErrorTimeout
	for _, v := range w.ofTemplate() {
		if said, err := time.ParseDuration(v.annotation("deferred-timeout")); err == nil {
			deferred = min(deferred, said)
		}
	}
	for _, v := range p.versions {
		for _, c := range v.Status.Conditions {
			switch {
			case c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible:
				return "infeasible"
			case c.Type == corev1.PodResizePending && by.at.Sub(v.at)+slack >= deferred:
				return "deferred too long"
			case c.Type == corev1.PodResizeInProgress && c.Reason == corev1.PodReasonError && by.at.Sub(v.at)+slack >= failing:
				return "failing too long"
			}
		}
	}
	if slices.ContainsFunc(p.asked, func(a ask) bool { return a.code == 403 || a.code == 422 || a.code == 400 }) {
		return "refused"
	}
	for _, other := range h.pods { // its kubelet may not answer of another one, either
		if owner, _ := h.workload(other.last()); owner == w && nodeOf(other.last()) == nodeOf(p.last()) && other.unanswered(by.at, min(deferred, failing)) {
			return "not done in time"
		}
	}
	return ""
}

// unanswered reports whether the pod was asked, and did not get the size while it was there for so long.
func (p *pod) unanswered(now time.Time, patience time.Duration) bool {
	if !p.going.IsZero() {
		now = p.going
	}
	last := p.last()
	return (!actuated(last) || last.Status.ObservedGeneration != last.Generation) && slices.ContainsFunc(p.asked, func(a ask) bool { return a.code < 300 && now.Sub(a.at)+slack >= patience })
}

// leftBehind reports whether the controller has set a request or a limit that the template does
// not have.
func (p *pod) leftBehind(t corev1.PodTemplateSpec) bool {
	is, wanted := containers(&p.last().Spec), containers(&t.Spec)
	return slices.ContainsFunc(p.asked, func(a ask) bool {
		if a.code >= 300 {
			return false
		}
		for name, was := range containers(&a.before.Spec) {
			if is[name] != nil && wanted[name] != nil && grown(was.Resources, is[name].Resources, wanted[name].Resources) {
				return true
			}
		}
		var none corev1.ResourceRequirements
		return grown(ptr.Deref(a.before.Spec.Resources, none), ptr.Deref(p.last().Spec.Resources, none), ptr.Deref(t.Spec.Resources, none))
	})
}

// grown reports whether there is a request or a limit that was not there before, or was another one, and is not wanted.
func grown(was, is, wanted corev1.ResourceRequirements) bool {
	return added(was.Requests, is.Requests, wanted.Requests) || added(was.Limits, is.Limits, wanted.Limits)
}

// added reports whether there is a size that was not there before, or was another one, and is not wanted: admission may have given
// a pod one that its template does not say.
func added(was, is, wanted corev1.ResourceList) bool {
	return slices.ContainsFunc(sizes, func(size corev1.ResourceName) bool {
		before, had := was[size]
		now, has := is[size]
		_, wants := wanted[size]
		return has && !wants && (!had || now.Cmp(before) != 0)
	})
}

// lowersMemory reports whether a container has a lower memory limit in the template than in the pod.
func lowersMemory(p *corev1.Pod, t corev1.PodTemplateSpec) bool {
	wanted := containers(&t.Spec)
	for name, c := range containers(&p.Spec) {
		if of := wanted[name]; of != nil && !of.Resources.Limits.Memory().IsZero() && of.Resources.Limits.Memory().Cmp(*c.Resources.Limits.Memory()) < 0 {
			return true
		}
	}
	return false
}

func (h *history) describe(w *workload, p *pod) string {
	v := w.last()
	actions, policies := v.said()
	s := w.ref() + " has the actions " + strings.Join(actions, ",") + " and the policies " + strings.Join(policies, ",")
	if template, known := h.template(p.last()); known && equality.Semantic.DeepEqual(sizeOf(template), sizeOf(v.template)) {
		return s + ", and the pod is of the newest template"
	}
	return s
}

func sizeOf(t corev1.PodTemplateSpec) map[string]corev1.ResourceRequirements {
	all := map[string]corev1.ResourceRequirements{}
	for name, c := range containers(&t.Spec) {
		all[name] = c.Resources
	}
	return all
}

// checkAvailability checks that enough pods are left when one goes that is available itself. One that
// the log does not show to be Ready counts if a later write shows that it was.
func (h *history) checkAvailability(w Write, work *workload, p *pod) {
	v, seen := work.last(), h.told(p, w)
	if !p.readySince(w.Since.Add(-v.minReady - slack)) {
		return
	}
	most := v
	for _, before := range work.since(seen) {
		most.down = max(most.down, before.down)
		most.replicas = min(most.replicas, before.replicas)
	}
	most.replicas -= h.left(work)
	available, excused := int32(-1), int32(0) // p goes
	var unready []*pod
	for _, member := range h.pods {
		if owner, _ := h.workload(member.last()); owner != work {
			continue
		}
		switch {
		case member.there() && ready(member.last()):
			available++
		case member.there() && ready(member.at(seen)):
			excused++ // it has become unready a moment ago
		case !member.there() && !member.restart && member.going.After(seen):
			excused++ // somebody else had it go a moment ago
		case member.there():
			unready = append(unready, member)
		}
	}
	h.judgments = append(h.judgments, func() { // when the log has shown whether it lacks a write
		for _, member := range unready {
			if member.lackedReady(w.at) {
				available++
			}
		}
		if available+excused < most.replicas-most.down {
			h.violate(w, Availability, work.ref(), "%s goes, %d pods are left available, and %d of %d may be down", p.last().Name, available, most.down, most.replicas)
		}
	})
}

// checkRecreate checks a new pod of a Deployment whose strategy is Recreate. While the controller holds
// it, the Deployment controller scales without waiting for pods that go. So none may be there then that
// is of another template, or that goes for a rollout.
func (h *history) checkRecreate(w Write) {
	came := w.pod()
	if came == nil {
		return
	}
	work, set := h.workload(came)
	if work == nil || set == nil || !work.last().held || work.any(w.Since, func(v version) bool { return !v.enabled() }) {
		return
	}
	replicas := work.last().replicas
	for _, other := range h.members(work) {
		_, of := h.workload(other.last())
		if of == nil || detached(other.last()) || other.ended() ||
			work.any(other.versions[0].at, func(v version) bool { return !v.recreate }) {
			continue
		}
		switch {
		case !differOnlyInSize(set.template, of.template):
			h.violate(w, Apart, "pods/"+came.Name, "it came while %s was there, which is of another template, and the Deployment is held", other.last().Name)
			return
		case other.by == replicaSets && !work.any(other.since, func(v version) bool { return v.replicas != replicas }):
			h.violate(w, Apart, "pods/"+came.Name, "it came while %s was there, which was going for a rollout, and the Deployment is held", other.last().Name)
			return
		}
	}
}

// limits are the namespace's LimitRanges, by name, from a moment on.
type limits struct {
	at     time.Time
	ranges map[string][]corev1.LimitRangeItem
}

// storeLimits notes a LimitRange as it is now, or that it is gone.
func (h *history) storeLimits(w Write) {
	is := limits{w.at, map[string][]corev1.LimitRangeItem{}}
	if n := len(h.limits); n > 0 {
		maps.Copy(is.ranges, h.limits[n-1].ranges)
	}
	if stored, there := w.Object.(*corev1.LimitRange); there && w.Verb != "delete" {
		is.ranges[w.ObjectRef.Name] = stored.Spec.Limits
	} else {
		delete(is.ranges, w.ObjectRef.Name)
	}
	h.limits = append(h.limits, is)
}

// limited reports whether LimitRanges, as they have been since, have refused the pod the size of the template. It has its own
// size where the template says none.
func (h *history) limited(p *corev1.Pod, template corev1.PodTemplateSpec, since time.Time) bool {
	wants := containers(&template.Spec)
	for name, c := range containers(&p.DeepCopy().Spec) {
		if wants[name] == nil {
			continue
		}
		set(&c.Resources.Requests, wants[name].Resources.Requests)
		set(&c.Resources.Limits, wants[name].Resources.Limits)
		for i, l := range h.limits {
			if i+1 < len(h.limits) && !h.limits[i+1].at.After(since) {
				continue
			}
			for _, items := range l.ranges {
				for _, item := range items {
					if item.Type == corev1.LimitTypeContainer && exceeds(c.Resources, item.Max) {
						return true
					}
				}
			}
		}
	}
	return false
}

// exceeds reports whether a container has more than it may, or no limit where it may not have any size.
func exceeds(r corev1.ResourceRequirements, most corev1.ResourceList) bool {
	for size, q := range most {
		limit, limited := r.Limits[size]
		if request := r.Requests[size]; !limited || limit.Cmp(q) > 0 || request.Cmp(q) > 0 {
			return true
		}
	}
	return false
}

// first reports whether no other pod of the workload has come since it has its template.
func (h *history) first(work *workload, p *pod) bool {
	since := work.ofTemplate()[0].at
	for _, other := range h.pods {
		if owner, _ := h.workload(other.last()); owner == work && other != p && other.versions[0].at.After(since) {
			return false
		}
	}
	return true
}

// asksMore reports whether the newest template asks for more than that of the pod.
func (h *history) asksMore(work *workload, p *pod) bool {
	before, known := h.template(p.last())
	return known && asksMore(before, work.last().template)
}

// asksMore reports whether a container requests more cpu or memory by another template.
func asksMore(before, after corev1.PodTemplateSpec) bool {
	was := containers(&before.Spec)
	for name, c := range containers(&after.Spec) {
		for _, size := range sizes {
			if request := c.Resources.Requests[size]; was[name] == nil || request.Cmp(was[name].Resources.Requests[size]) > 0 {
				return true
			}
		}
	}
	return false
}

// checkRoom checks that the scheduler has found a node for what came in the place of a pod that was
// restarted for its size by the controller itself: it had the pod go, or the built-in one has while the
// workload was held; or by the StatefulSet controller, for a size that asks for more. Once the built-in
// controller has another rollout for itself, room is promised to its first pod only, in the place of one
// that has gone since the edit. A pod that had no node either has lost none. Where pods of others came, or
// became larger, a moment before, the log does not tell whether there was room.
func (h *history) checkRoom(w Write) {
	if w.ObjectRef.Resource != "pods" || w.ObjectRef.Subresource != "status" || w.User.Username != "system:kube-scheduler" || w.pod() == nil {
		return
	}
	p := h.named(w.ObjectRef.Name)
	if p == nil || len(p.versions) > 1 || !unschedulable(w.pod()) {
		return
	}
	work, _ := h.workload(p.last())
	if work == nil || lacks(p.last(), work.last().template) != "" {
		return // admission has made it larger
	}
	for _, before := range h.pods {
		owner, _ := h.workload(before.last())
		if owner != work || before.last().Spec.NodeName == "" || !before.restart || !before.going.Before(w.at) || w.at.Sub(before.going) >= 2*time.Second || before.deleted.IsZero() ||
			work.kind == "StatefulSet" && before.last().Name != p.last().Name || work.kind == "DaemonSet" && nodeOf(before.last()) != nodeOf(p.last()) {
			continue
		}
		promised := before.ours || work.kind == "StatefulSet" && before.more || h.first(work, p) && !before.going.Before(work.ofTemplate()[0].at)
		if !promised || h.crowded(work, before.going.Add(-2*slack), w.at) {
			continue
		}
		h.violate(w, Room, p.ref(), "it came for %s, which ran, and no node can hold it", before.last().Name)
		return
	}
}

func unschedulable(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
}

// crowded reports whether pods that are not of this workload came or became larger between two moments,
// the workload was scaled, or a node was changed.
func (h *history) crowded(work *workload, from, to time.Time) bool {
	replicas := work.last().replicas
	if work.any(from, func(v version) bool { return v.replicas != replicas }) {
		return true
	}
	for _, n := range h.nodes {
		if slices.ContainsFunc(n.written, func(at time.Time) bool { return !at.Before(from) }) {
			return true
		}
	}
	for _, p := range h.pods {
		if owner, _ := h.workload(p.last()); owner == work {
			continue
		}
		for i, v := range p.versions {
			if v.at.Before(from) || v.at.After(to) {
				continue
			}
			if i == 0 || asksMore(corev1.PodTemplateSpec{Spec: p.versions[i-1].Spec}, corev1.PodTemplateSpec{Spec: v.Spec}) {
				return true
			}
		}
	}
	return false
}
