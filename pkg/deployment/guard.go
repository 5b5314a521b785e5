package deployment

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// guard returns how the rollout is guarded, where base has the pods; nil if it is not.
func (o observation) guard(base *replicaSet) *rollout.Guard {
	if !policy.Held(o.deployment) {
		return nil
	}
	d := o.deployment
	g := o.Guard(rollout.Edit{
		Version: rollout.EditNamed(d.Annotations[api.EditAnnotation]), Called: rollout.RevisionNamed(o.nextRevision(base)), Newest: d.template.Digest(), Began: editedAt(d),
		Former: func() string {
			if former := o.former(base); former != nil {
				return former.Digest()
			}
			return ""
		},
	}, d.Spec.MinReadySeconds)
	if g != nil && o.Settings.NotReadyTimeout == nil {
		g.NotReadyTimeout = time.Duration(ptr.Deref(d.Spec.ProgressDeadlineSeconds, int32(g.NotReadyTimeout.Seconds()))) * time.Second
	}
	return g
}

// former returns the template from before the edit: of base, or the one that base had before it took the Deployment's over, or of the
// newest ReplicaSet that has another size. It is nil if there is none.
func (o observation) former(base *replicaSet) *hash.Template {
	switch {
	case base != nil && base.previous != nil && !base.adoption.Back && base.template.Same(o.deployment.template):
		return base.previous.template
	case base != nil:
		return base.template
	}
	newest := o.deployment.template
	if rs := o.last(func(t *hash.Template) bool { return t.Hash == newest.Hash && !t.Same(newest) }); rs != nil {
		return rs.template
	}
	return nil
}

// last returns the ReplicaSet of the highest revision whose template is such a one; nil if there is none.
func (o observation) last(such func(*hash.Template) bool) *replicaSet {
	var last *replicaSet
	for _, rs := range o.sets {
		if such(rs.template) && (last == nil || rs.revision > last.revision) {
			last = rs
		}
	}
	return last
}

// has reports whether a template is the one of that digest.
func has(digest string) func(*hash.Template) bool {
	return func(t *hash.Template) bool { return t.Digest() == digest }
}

// editedAt is when the Deployment was edited last, as far as the watch tells, by the clock of the API server. Whoever has edited it may
// have written something else of it since, so it is not later than when the Deployment controller has seen the hold.
func editedAt(d *Deployment) (last time.Time) {
	for _, entry := range d.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == pausedReason && c.LastUpdateTime.Time.Before(last) {
			last = c.LastUpdateTime.Time
		}
	}
	return last
}

// deserted plans for a guarded rollout whose Deployment was scaled to zero in the midst of it, and whether it is one: its pods come
// back as they were before. Without pods of any ReplicaSet, a Deployment that is paused scales the one that has its template or, if
// there is none, the youngest one (FindActiveOrLatest in pkg/controller/deployment/util of Kubernetes). So none keeps the Deployment's
// template, and the youngest gets the one from before. Where no ReplicaSet has that, because of the revisionHistoryLimit, only a stop
// stays.
func (o observation) deserted() (plan, bool) {
	options := rollout.Options{Terms: judge.Terms{Now: o.Now}, Guard: o.guard(nil)}
	p := plan{Plan: rollout.Plan{Step: rollout.Next(nil, options)}}
	if !p.Canary && !p.Guarding || options.Guard.Back {
		return plan{}, false
	}
	if p.reattach, _ = p.reattaches(o, o.detached()); len(p.reattach) > 0 { // their ReplicaSet is to have no pods
		p.Condition = p.Step.Condition()
		return p, true
	}
	former := has(options.Guard.Former())
	from, newest := o.last(former), o.newest()
	switch {
	case from != nil && newest != nil:
		p.remake(o, from, newest)
	case from != nil && !former(o.youngest().template):
		p.remake(o, from, nil)
	case from != nil:
	case newest != nil && newest.previous != nil && former(newest.previous.template):
		p.write = revert{newest, newest.previous.template}
	case o.deployment.replicas() > 0:
		p.Condition = p.Step.Condition()
		p.Condition.Details += "; no ReplicaSet has the size from before: no pod comes before an edit, or a retry"
		p.Condition.Next = "Choose another size, or try it again with retry"
		return p, options.Guard.Stopped()
	}
	p.Condition = p.Step.Condition()
	return p, true
}

// guardsNone reports whether only pods of another image are left, which are not guarded. But where this very rollout was stopped, it was
// scaled in while that was rolled out, and stays so.
func (o observation) guardsNone() bool {
	return o.differs() != "" && (!o.Record.Stopped() || o.Record.Of != rollout.EditNamed(o.Edit()))
}

// youngest returns the ReplicaSet that was made last; there must be one.
func (o observation) youngest() *replicaSet { return slices.MaxFunc(o.sets, byAge) }

// remake writes the template of a ReplicaSet into another one that has no pods or, if that is nil, into a new one.
func (p *plan) remake(o observation, from, into *replicaSet) {
	of := *from
	of.previous = &previousTemplate{Annotations: historyAnnotations(from), Template: from.template.Raw, template: from.template}
	refused := o.history.Of(of.UID, formerTemplate(&of))
	switch {
	case into != nil && !into.idle(): // its pods are about to go
	case refused.Reason == "" || !refused.Final && !o.Now.Before(refused.Until):
		p.write = saveHistory{&of, into, o.sets}
	default:
		p.Waits = append(p.Waits, rollout.Wait{
			Member: judge.Member{Place: judge.Place{Name: from.Name}}, Reason: refused.Kind, Message: "no other ReplicaSet can have the size from before: " + refused.Reason,
		})
		p.RequeueWithin(refused.Until.Sub(o.Now))
	}
}

// givesBack returns the template from before that base, which has taken a guarded one over, is to have again: the rollout was stopped, or
// is about to be, or its canaries have been restarted, or another edit has overtaken it. What else base makes then has the size from
// before, too. It is nil if base keeps what it has.
func (p *plan) givesBack(o observation, guard *rollout.Guard) *hash.Template {
	if guard == nil || guard.Back || p.base.previous == nil || p.base.template.Digest() == guard.Former() {
		return nil
	}
	made := func() bool { return !p.base.lags() && p.missing() <= 0 && p.restartsNone(o) }
	if guard.Stopped() || len(p.Failures) > 0 || !p.base.template.Same(o.deployment.template) || p.SizeUnproved() && made() {
		return o.had(p.base, has(guard.Former()))
	}
	return nil
}

// succeeded reports whether base has made new pods for canaries that are detached, and has the template from before again: the canaries
// go as soon as the new pods are available.
func (o observation) succeeded(base *replicaSet) bool {
	return o.successors(base) > 0 && len(o.detached()) > 0
}

// successors is how many new pods there are for canaries, where base has the template from before again.
func (o observation) successors(base *replicaSet) (n int) {
	if r := o.Record; !base.adoption.Back || r == nil || r.Stopped() || r.Of != rollout.EditNamed(o.Edit()) {
		return 0
	}
	for _, pod := range o.podsOf(base) {
		n += asInt(runsWith(pod, o.deployment.template))
	}
	return n
}

// runsWith reports whether a pod has the size of a template, and its kubelet does not say that it has another one yet.
func runsWith(pod *corev1.Pod, template *hash.Template) bool {
	return resize.Has(pod, template.PodTemplateSpec) && resize.Has(reported(pod), template.PodTemplateSpec)
}

// overtaken returns the detached pods that are not to be replaced any more: there is another edit, also one back to what base has again
// for the sake of the others, and to what they have; or their new pods are gone, and what base has made since is no canary.
func (o observation) overtaken(base *replicaSet) []*corev1.Pod {
	detached, newest := o.detached(), o.deployment.template
	if base.template.Same(newest) {
		return slices.DeleteFunc(detached, func(pod *corev1.Pod) bool { return !base.adoption.Back || !runsWith(pod, newest) })
	}
	return detached[min(o.successors(base), len(detached)):]
}

// cameFor returns the pods that base has made in the place of these detached ones, which go back to it: its youngest, as many as are too
// many. Its controller would have any pod go that is Ready, such as one on a node with others (ActivePodsWithRanks in pkg/controller of
// Kubernetes); one that is not goes first by itself. Where admission has refused that a pod goes back, none goes for it: another one would
// come in its place, and again.
func (o observation) cameFor(base *replicaSet, back []*corev1.Pod) (came []*corev1.Pod) {
	if len(back) == 0 {
		return nil
	}
	pods := slices.DeleteFunc(slices.Clone(o.podsOf(base)), func(pod *corev1.Pod) bool { return !podutils.IsPodReady(pod) })
	excess, left := len(pods)-int(base.replicas()), o.allowance(nil, 0)
	back = slices.DeleteFunc(slices.Clone(back), func(pod *corev1.Pod) bool { return o.Notes.Of(pod.UID).Relabel.Last().Reason != "" })
	for _, pod := range back {
		excess += asInt(podutils.IsPodReady(pod))
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(latestFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range pods[:max(min(excess, len(back), len(pods)), 0)] {
		if available := o.available(pod); !available || left.spare > 0 {
			came, left.spare = append(came, pod), left.spare-asInt(available)
		}
	}
	return came
}

// had returns such a template that base, or another ReplicaSet, has or had: after A→B→C the record of base may have B only. It is nil if
// there is none.
func (o observation) had(base *replicaSet, such func(*hash.Template) bool) *hash.Template {
	if base.previous != nil && such(base.previous.template) {
		return base.previous.template
	}
	for _, r := range base.adoption.Earlier {
		if such(r.template) {
			return r.template
		}
	}
	if rs := o.last(such); rs != nil {
		return rs.template
	}
	return nil
}

// madeSince names the pods of base that were made of the template that it has taken over.
func (o observation) madeSince(base *replicaSet) (names []string) {
	for _, pod := range o.podsOf(base) {
		if !base.madeBefore(pod) {
			names = append(names, pod.Name)
		}
	}
	return names
}

// reverting returns the observation whose pods that have the size of the Deployment's template go back: to the template that base has.
func (o observation) reverting(base *replicaSet) observation {
	deployment := *o.deployment
	deployment.template = base.template
	o.deployment, o.Admission, o.back = &deployment, resize.Admission{}, true
	return o
}
