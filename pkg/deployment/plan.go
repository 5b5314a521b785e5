package deployment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/plural"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// plan is the next step of a Deployment's rollout, while it is made.
type plan struct {
	rollout.Plan

	// base is the ReplicaSet whose pods are resized.
	base *replicaSet
	// write is the write of a ReplicaSet, or the release; nil if there is none. Each is a step
	// of its own: the next plan is made from what there is after it.
	write rollout.Write
	// reattach these detached pods to their ReplicaSets, once those have gone that came in their place.
	reattach, came []*corev1.Pod
	// detach these pods from base. They are evicted when others have taken their place.
	detach []rollout.Restart
	// evict these pods now.
	evict []evict
}

// Plan returns the next step.
func (o observation) Plan(f rollout.Facts) (rollout.Plan, error) {
	o.Facts = f
	o.Facts = o.known()
	p, err := o.nextStep()
	if err != nil {
		return rollout.Plan{}, err
	}
	return p.complete(o), nil
}

// complete returns the plan with all that is to be written.
func (p plan) complete(o observation) rollout.Plan {
	p.Revision = o.revision()
	for _, v := range p.Verdicts {
		if v.Member.Updated {
			p.Resized = append(p.Resized, &v.Member)
		}
	}
	p.givesUp(o)
	p.Writes = rollout.Resizes(p.Resize)
	for _, r := range p.detach {
		p.Writes = append(p.Writes, detach{r})
	}
	for _, write := range p.evict {
		p.Writes = append(p.Writes, write)
	}
	if len(p.reattach) > 0 {
		p.Writes = append(p.Writes, reattach{p.reattach, p.came})
	}
	if p.write != nil {
		p.Writes = append(p.Writes, p.write)
	}
	p.Show(o.deployment.Generation, o.deployment.Status.ObservedGeneration, o.deployment.replicas()-int(o.deployment.Status.ReadyReplicas))
	if _, is := p.write.(rollout.Release); is {
		p.Condition = rollout.Condition{} // what there is to say then, its status says
	}
	return p.Plan
}

// givesUp notes the pods that will be replaced because of this plan: now or, if it adopts or
// lets go, after that: all of them, if the strategy is Recreate. With maxUnavailable 0 the new ones come first, but
// for pods that are evicted because they are not available.
func (p *plan) givesUp(o observation) {
	_, unavailable, err := o.deployment.bounds()
	newFirst := err == nil && unavailable == 0
	release, releases := p.write.(rollout.Release)
	_, reverts := p.write.(revert)
	_, adopts := p.write.(adopt)
	switch {
	case reverts || releases && release.HandOver != "" && o.deployment.recreates():
		for _, v := range p.Verdicts {
			p.Replaced = append(p.Replaced, rollout.Restart{Member: v.Member, NewFirst: newFirst})
		}
	case adopts:
		for _, r := range p.Restart {
			r.NewFirst = newFirst && o.available(r.Member.Pod)
			p.Replaced = append(p.Replaced, r)
		}
	case releases && newFirst:
		p.Replaced = rollout.NewFirst(p.Restart)
	case releases:
		p.Replaced = p.Restart
	default:
		for _, write := range p.evict {
			if !isDetached(write.restart.Member.Pod) {
				p.Replaced = append(p.Replaced, write.restart)
			}
		}
		p.Replaced = append(p.Replaced, rollout.NewFirst(p.detach)...)
	}
}

// nextStep plans for a Deployment that is held, or whose pods the Deployment controller
// counts as updated while nobody has looked at their sizes yet.
//
// Its pods are resized while the ReplicaSet that they were made from still has the old
// template: so `kubectl rollout status` goes on waiting. When every pod that can be resized
// has been, the ReplicaSet gets the new template, and the old one goes into the history. From
// then on the Deployment controller takes the pods for updated, and the ReplicaSet makes new
// ones of the new size. Now those that only a restart helps can be evicted. At last the hold
// is let go, and the Deployment controller finds nothing to do.
//
// Where no pod can be resized, the hold is let go at once, and the Deployment
// controller makes the rollout at its own pace.
func (o observation) nextStep() (plan, error) {
	base := o.base()
	if !policy.Held(o.deployment) {
		if condition, nothing := o.nothingToDo(base); nothing {
			return plan{Plan: rollout.Plan{Condition: condition}}, nil
		}
	}
	if base == nil && !o.guardsNone() {
		if p, deserted := o.deserted(); deserted {
			return p, nil
		}
	}
	if p, unfinished := o.unfinished(base); unfinished {
		return p, nil
	}
	if base == nil {
		return o.withoutBase(), nil
	}
	p, err := o.ofBase(base)
	if err == nil && policy.Held(o.deployment) {
		if p.Condition.Reason == "" {
			p.Condition = p.Step.Condition()
		}
		p.Condition.Details += o.besides(base)
	}
	return p, err
}

// ofBase plans where there are pods to resize.
func (o observation) ofBase(base *replicaSet) (plan, error) {
	surge, unavailable, err := o.deployment.bounds()
	if err != nil {
		return plan{}, err
	}
	options := o.options(surge, unavailable)
	options.Guard, options.Closed = o.guard(base), o.scalesIn(base)
	if policy.Held(o.deployment) { // before it counts as one that does not move
		options.ReadyTimeout = min(o.ReadyTimeout(options), time.Duration(ptr.Deref(o.deployment.Spec.ProgressDeadlineSeconds, math.MaxInt32))*time.Second/2)
	}
	if options.Guard.Reverts() && !base.template.Same(o.deployment.template) {
		back := o.reverting(base)
		p, err := rollout.GoBack(options, o.evaluator(base), back.evaluator(base), back.revision(), "")
		return plan{Plan: p, base: base}, err
	}
	verdicts, nonMembers, found, err := o.evaluator(base)(options)
	if err != nil {
		return plan{}, err
	}
	options.NonMembers = nonMembers
	p := plan{Plan: rollout.Plan{Step: rollout.Next(verdicts, options), Found: found}, base: base}
	p.Beside = o.allPods() - len(verdicts)
	p.Started = fmt.Sprintf("ReplicaSet %s: %s%s", base.Name, o.changes(base, verdicts), rollout.OldUntilRestart(verdicts, o.deployment.template.PodTemplateSpec))
	switch historyDue, former := p.awaitsHistory(o), p.givesBack(o, options.Guard); {
	case former != nil:
		p.write = adopt{
			set: base, template: former, restarts: o.madeSince(base), forgets: o.forgets(base),
			back: true,
		}
	case options.Guard.Stopped(): // nothing goes on by itself
	case policy.Held(o.deployment):
		p.held(o, surge, unavailable, historyDue)
	default:
		p.notHeld(o, unavailable)
	}
	return p, nil
}

// held plans for a Deployment that is held, once it is known what its pods need.
func (p *plan) held(o observation, surge, unavailable int, historyDue bool) {
	switch base := p.base; {
	case !historyDue && p.rejects(o):
		// It goes on making pods that no kubelet lets in, which are missing for everything else.
		p.write = adopt{set: base, template: o.deployment.template, restarts: p.outdated(), forgets: o.forgets(base), rejects: true}
	case o.succeeded(base):
		p.replace(o, o.detached(), surge, unavailable)
	case (p.Hold || len(p.Resize) > 0) && !p.leavesAny(o): // not all that can be resized has been
	case base.template.Same(o.deployment.template):
		p.afterAdoption(o, surge, unavailable)
	case o.restartsAll(*p):
		p.letGo(o, p.Restart[0].Reason, p.Restart[0].Cause)
	case p.Unready: // it may be the size
	case len(p.Restart) > 0 && o.deployment.recreates():
		p.recreate(o)
	case p.keepsFormer(o):
		p.awaits()
		p.awaitEvictions(o)
	case base.lags():
		p.wait("waiting for the ReplicaSet controller to observe the template of ReplicaSet %s", base.Name)
	case historyDue:
	default:
		p.write = adopt{set: base, template: o.deployment.template, restarts: p.outdated(), forgets: o.forgets(base)}
	}
}

// keepsFormer reports whether the base keeps the template from before, as what comes would else have a size that is not proved.
func (p *plan) keepsFormer(o observation) bool {
	return p.SizeUnproved() && (p.missing() > 0 || p.restartsNone(o))
}

// missing is how many pods the base has yet to make.
func (p *plan) missing() int { return int(p.base.replicas()) - p.Total }

// restartsNone reports whether no pod is restarted now: the size is tried on one, none is to be, or the evictions of all that are have
// just been refused.
func (p *plan) restartsNone(o observation) bool {
	return p.Trying || !slices.ContainsFunc(p.Restart, func(r rollout.Restart) bool { return !o.Now.Before(o.Notes.Of(r.Member.Pod.UID).Eviction.Last().Until) })
}

// awaitEvictions notes the waits for evictions that have been refused.
func (p *plan) awaitEvictions(o observation) {
	for _, r := range p.Restart {
		p.mayEvict(o, r.Member)
	}
}

// rejects reports whether kubelets reject what the base makes, and it may take over the new template for that: the canary of a
// guarded rollout has proved it.
func (p *plan) rejects(o observation) bool { return !p.SizeUnproved() && o.rejects(p.base) }

// withoutBase returns the plan where no pod can be resized: there is none, or all differ in
// more than their size.
func (o observation) withoutBase() plan {
	p := plan{}
	p.letGo(o, o.differs(), judge.CauseTemplate)
	if p.Condition = handedOver(""); p.write == nil && o.deployment.switched() {
		p.Condition = p.Step.Condition()
	}
	return p
}

// changes describes what the rollout brings, to the first pod that lacks it.
func (o observation) changes(base *replicaSet, verdicts []*judge.Verdict) string {
	brings := resize.Between(base.template.PodTemplateSpec, o.deployment.template.PodTemplateSpec)
	if i := slices.IndexFunc(verdicts, func(v *judge.Verdict) bool { return !v.Member.Updated }); i >= 0 {
		brings = resize.Join(brings, verdicts[i].Member.Target.Effects)
	}
	said := rollout.Changes(verdicts)
	if len(brings) > 0 {
		said = resize.Describe(brings)
	}
	if base.template.Same(o.deployment.template) && !base.adopted() && !strings.HasPrefix(said, rollout.EditBack) {
		said = rollout.EditBack + ": " + said
	}
	return said
}

// restartsAll reports whether the rollout is to be handed over to the Deployment controller:
// every pod is to be restarted for the edit itself, and none for what came of a resize. A canary goes first, and so do those
// that may show that the others need not go. Where the strategy has been changed, they are restarted within the limits of the edit.
func (o observation) restartsAll(p plan) bool {
	if p.Canary || o.deployment.switched() || p.Unproved() && !o.deployment.recreates() {
		return false
	}
	inevitable := 0
	for _, r := range p.Restart {
		if r.ByEdit() {
			inevitable++
		}
	}
	return inevitable > 0 && inevitable == p.Total
}

// recreate hands the rollout over where a pod can only be restarted, and no old pod may be there
// beside a new one: the Deployment controller takes them all down before it makes the first. So it
// must not take the ReplicaSet for the new one, which makes a pod as soon as another goes. One that
// has the new template already, such as after an edit back, gets one that its pods were made from.
//
// All pods go then. None does as long as one, with its new size too, would find no room again.
func (p *plan) recreate(o observation) {
	for _, v := range p.Verdicts {
		if full := v.Member.Unplaceable; v.Member.Updated && full.Reason != "" {
			p.Waits = append(p.Waits, rollout.Wait{Member: v.Member, Reason: full.Kind, Message: "not restarted with the others, because " + full.Reason})
			p.RequeueWithin(full.Until.Sub(o.Now))
			return
		}
	}
	if !p.base.template.Same(o.deployment.template) {
		p.letGo(o, p.Restart[0].Reason, p.Restart[0].Cause)
	} else if former := p.former(); former != nil {
		p.write = revert{p.base, former}
	} else {
		p.leave("the strategy is Recreate")
	}
}

// former returns a template other than that of the base, which is the Deployment's, for those pods
// that only a restart helps: the one before the adoption or, if there was none, one with the size of
// such a pod, or with what its kubelet says that it has still. It is nil if there is none.
func (p *plan) former() *hash.Template {
	if was := p.base.previous; was != nil && !was.template.Same(p.base.template) {
		return was.template
	}
	for _, r := range p.Restart {
		for _, pod := range []*corev1.Pod{r.Member.Pod, reported(r.Member.Pod)} {
			if like, err := sizedLike(p.base.template, pod); err == nil && !like.Same(p.base.template) {
				return like
			}
		}
	}
	return nil
}

// reported returns the pod with what its kubelet says that its containers have.
func reported(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if list[i].Name == s.Name && s.Resources != nil {
					list[i].Resources = *s.Resources
				}
			}
		}
	}
	return pod
}

// outdated names the members that lack the new size.
func (p plan) outdated() []string {
	var names []string
	for _, v := range p.Verdicts {
		if !v.Member.Updated {
			names = append(names, v.Member.Name)
		}
	}
	return names
}

// unfinished plans what an earlier step has begun, and what is to be finished before anything
// else. A template that was replaced goes into the history. Records of adoption are taken from ReplicaSets
// that another edit has left behind, and pods that were detached for it go back.
//
// Two ReplicaSets must not be left with one template: the Deployment controller would take
// the older one for the new one, pods or not. So one that has the base's template now, and no
// pods, is used again.
func (o observation) unfinished(base *replicaSet) (plan, bool) {
	p := plan{base: base}
	for _, rs := range o.sets {
		switch {
		case o.saves(rs):
			p.write = saveHistory{rs, o.idleTwin(rs), o.sets}
			return p, true
		case rs.adopted() && rs != base && (base == nil || !o.retries(rs)):
			p.write = o.endAdoption(rs)
			return p, true
		}
	}
	if base != nil {
		p.reattach, _ = p.reattaches(o, o.overtaken(base))
		p.came = o.cameFor(base, p.reattach)
	}
	return p, len(p.reattach) > 0
}

// afterAdoption replaces the pods that could not be resized. When there are none left, and the
// Deployment controller has seen all of our writes, it lets go of the hold. The last of these
// writes removes the record of adoption. A watch keeps the order of writes: a Deployment controller that
// acknowledges this one has seen the others, too.
func (p *plan) afterAdoption(o observation, surge, unavailable int) {
	detached := o.detached()
	switch {
	case p.base.lags():
		p.wait("waiting for the ReplicaSet controller to observe the new template of ReplicaSet %s", p.base.Name)
	case p.SizeUnproved() && p.missing() > 0: // what comes is a canary, and no other pod goes before it is there
		p.Waits = slices.DeleteFunc(p.Waits, func(w rollout.Wait) bool {
			return slices.ContainsFunc(p.Restart, func(r rollout.Restart) bool { return r.Member.Name == w.Member.Name })
		})
		p.awaits()
	case len(p.Restart)+len(detached) > 0:
		p.giveUp(o, detached, surge, unavailable)
	case p.leavesAny(o):
		p.letGoLeaving(o)
	case len(p.base.adoption.Restarts) > 0 && p.awaits():
	case p.Unready: // not before they are Ready again, or there is a new edit
	case o.retries(p.base): // only the record of adoption has the former template
	case p.base.adopted():
		p.write = o.endAdoption(p.base)
	case o.duplicate() != nil: // of an adoption that the user's edit has overtaken
		p.write = p.closeAdoption()
	case !p.base.acknowledged():
		p.awaitAcknowledgement()
	default:
		p.letGo(o, "", "")
	}
}

// giveUp has those pods replaced that only a new one can replace.
//
// Before the first of them goes, the record is closed: the pods that come from then on
// are of the new template, whatever admission makes of them, and none of them is
// restarted. Of 3 pods where one is replaced, and where admission makes new pods
// Guaranteed, that one is Guaranteed then; restarting it would make another such pod.
func (p *plan) giveUp(o observation, detached []*corev1.Pod, surge, unavailable int) {
	switch {
	case len(p.Restart) > 0 && o.deployment.recreates():
		p.recreate(o)
	case len(p.Restart) > 0 && p.base.adopted() && !p.base.adoption.Closed:
		p.write = p.closeAdoption()
	default:
		p.replace(o, detached, surge, unavailable)
	}
}

// leavesAny reports whether pods of the base cannot have their size for now, which may last, and all
// the others have it, while pods of other ReplicaSets are to be replaced. Those are not to wait, but
// where a pod is to be restarted when there is room and the new one has to come first: that needs the hold.
func (p *plan) leavesAny(o observation) bool {
	if p.Unready || p.Guarding || p.Canary || o.deployment.wouldRecreate() || o.besides(p.base) == "" {
		return false
	}
	_, unavailable, err := o.deployment.bounds()
	left := false
	for _, v := range p.Verdicts {
		refused := v.State == resize.Refused && v.Reason != judge.ReasonProgressing
		switch {
		case v.Cause != "" && (err != nil || unavailable == 0):
			return false
		case v.Decision == policy.Leave || refused:
			left = true
		case v.Decision != "" && v.Decision != policy.RestartByController:
			return false
		}
	}
	return left
}

// letGoLeaving lets go of the hold while pods of the base lack their size. The record of adoption, which names
// them, stays: they are looked at as before, though nobody holds the rollout. They are not restarted
// before the Deployment controller has made its own.
func (p *plan) letGoLeaving(o observation) {
	reattached := p.prepare(o)
	switch {
	case p.base.adopted() && !p.base.adoption.Closed:
		p.write = p.closeAdoption()
	case o.retries(p.base), p.write != nil:
	case !p.base.acknowledged():
		p.awaitAcknowledgement()
	case reattached:
		p.release(o, rollout.Release{})
	}
}

// allPods returns how many pods there are, or are to be. What is detached has been replaced.
func (o observation) allPods() int {
	all := 0
	for _, rs := range o.sets {
		all += max(int(rs.replicas()), len(o.podsOf(rs)))
	}
	return all
}

// besides says, for the end of a message, which pods are not of the base; empty if all are.
func (o observation) besides(base *replicaSet) string {
	said := ""
	for _, rs := range o.sets {
		if n := max(int(rs.replicas()), len(o.podsOf(rs))); rs != base && n > 0 {
			said += fmt.Sprintf("; the Deployment controller has yet to replace %s of ReplicaSet %s", plural.Of(n, "pod"), rs.Name)
		}
	}
	return said
}

// letGo lets go of the hold, once what only the rollout needed is gone.
//
// Where pods of the base are left to the Deployment controller, its record stays until then: without it, nothing shows
// what they were made from, and the next plan could take them for pods that need nothing.
func (p *plan) letGo(o observation, handOver string, cause judge.Cause) {
	reattached, adopted := p.prepare(o), o.adopted()
	switch {
	case p.write != nil:
	case adopted != nil && (handOver == "" || adopted != p.base):
		p.write = o.endAdoption(adopted)
	case reattached:
		release := rollout.Release{HandOver: handOver, To: handedOver(""), Cause: cause}
		if handOver == "" && p.base != nil && o.besides(p.base) == "" && o.deployment.wouldRecreate() {
			release.Over = rollout.EditNamed(o.Edit()) // the status of the hold reads as if the pods were being recreated
		}
		p.release(o, release)
	}
}

// prepare has detached pods go back, and the duplicate go, before the hold does. It reports whether no pod has still to go back.
func (p *plan) prepare(o observation) (reattached bool) {
	reattach, refused := p.reattaches(o, o.detached())
	p.reattach, p.write = reattach, o.removeDuplicate()
	return len(reattach) == 0 && !refused
}

// release lets go of the hold, but where the Deployment controller would then replace pods that have another size only, and may be resized
// only, or have more pods down than the edit allowed, as others have changed the strategy. A person has to say what becomes of them.
func (p *plan) release(o observation, release rollout.Release) {
	switch rs := o.otherSize(p.base); {
	case rs != nil:
		p.Waits = append(p.Waits, rollout.Wait{
			Member: judge.Member{Place: judge.Place{Name: rs.Name}}, Reason: judge.ReasonInfeasible, Message: "its pods are kept, because the action is LiveResize and only the Deployment controller " +
				"can replace them, by restarts: `kubectl inplace-rollout retry --action=LiveResizePreferred` lets it",
		})
	case o.deployment.switched() && !o.deployment.wishedPaused() && o.besides(p.base) != "":
		p.await(o.deployment.Name, "the strategy was changed to Recreate during the rollout, by which all pods of another template would go at once: set it back, edit the template again, or release the Deployment")
	default:
		p.write = release
	}
}

// removeDuplicate removes the duplicate, if there is one.
func (o observation) removeDuplicate() rollout.Write {
	if rs := o.duplicate(); rs != nil {
		return removeSet{rs}
	}
	return nil
}

// endAdoption returns the write that removes the record of adoption from rs, once no two ReplicaSets have one template.
func (o observation) endAdoption(rs *replicaSet) rollout.Write {
	if duplicate := o.removeDuplicate(); duplicate != nil {
		return duplicate
	}
	return endAdoption{rs, o.forgets(rs)}
}

// closeAdoption returns the write that closes the record of the base, with the pods that lack its size.
func (p *plan) closeAdoption() rollout.Write {
	return closeAdoption{p.base, p.outdated()}
}

// replace evicts the pods that only a new one can replace, or detaches them first. Never are
// fewer pods available than the Deployment allows.
//
// With 4 replicas, maxUnavailable 1 and all available, one is evicted, and the next
// when its replacement is available. With maxUnavailable 0 and maxSurge 1 none may
// be evicted; so one is detached from the ReplicaSet, which makes another pod, and
// is evicted when there are 5 available or, if it is not available itself, when the other pod has a node.
//
// A pod that is not Ready is deleted: a PodDisruptionBudget would keep all of them where too many are so,
// though the restart is their cure. As many that are not available go at once as may be unavailable, but for those in which
// nothing runs, and what has come for others counts until it is available. One that is Ready, and not for minReadySeconds yet, serves:
// with maxUnavailable 0 the new pod comes before it, too.
func (p *plan) replace(o observation, detached []*corev1.Pod, surge, unavailable int) {
	left, restarts := o.allowance(p.Restart, unavailable), p.Restart
	if p.Unproved() { // one goes, and its successor shows it
		restarts = restarts[:max(1-o.allMissing(), 0)]
	}
	for _, pod := range detached {
		m := judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod}}
		if podutils.IsPodReady(pod) && left.spare+asInt(!o.available(pod)) <= 0 || m.Runs() && o.homeless() {
			p.Waits = append(p.Waits, rollout.Wait{Member: m, Reason: judge.ReasonProgressing, Message: "waiting for its new pod"})
			continue
		}
		p.remove(o, rollout.Restart{Member: m, Reason: "it has been replaced"}, &left)
	}
	for _, r := range restarts {
		switch {
		case left.spare > 0, !o.available(r.Member.Pod) && (unavailable > 0 || !podutils.IsPodReady(r.Member.Pod)):
			p.remove(o, r, &left)
		case unavailable == 0 && len(detached)+len(p.detach) < surge:
			if p.mayRelabel(o, r.Member, "its new pod cannot come first: ") {
				p.detach = append(p.detach, r)
			}
		}
	}
}

// homeless reports whether a pod is still to come, or has no node: others may have taken the room that it was to have.
func (o observation) homeless() bool {
	return o.allMissing() > 0 || slices.ContainsFunc(o.pods, func(pod *corev1.Pod) bool { return !isDetached(pod) && !judge.Gone(pod) && pod.Spec.NodeName == "" })
}

// mayRelabel reports whether the labels of a pod may be written now. If admission has refused that, it notes so: what
// begins the message.
func (p *plan) mayRelabel(o observation, m judge.Member, what string) bool {
	return p.may(o, m, o.Notes.Of(m.Pod.UID).Relabel.Last(), what)
}

// mayEvict does the same for the eviction of a pod.
func (p *plan) mayEvict(o observation, m judge.Member) bool {
	refused := o.Notes.Of(m.Pod.UID).Eviction.Last()
	refused.Kind = cmp.Or(refused.Kind, judge.ReasonDisruptionBudget)
	return p.may(o, m, refused, "not evicted yet: ")
}

// may reports whether what has been refused may be tried now, and notes the wait for that.
func (p *plan) may(o observation, m judge.Member, refused judge.Refusal, what string) bool {
	if refused.Reason == "" {
		return true
	}
	p.Waits = append(p.Waits, rollout.Wait{Member: m, Reason: refused.Kind, Message: what + refused.Reason})
	p.RequeueWithin(refused.Until.Sub(o.Now))
	return !o.Now.Before(refused.Until)
}

// reattaches returns which of these detached pods go back to their ReplicaSets now, and whether others do not, because admission
// refuses it.
func (p *plan) reattaches(o observation, detached []*corev1.Pod) (now []*corev1.Pod, others bool) {
	for _, pod := range detached {
		if p.mayRelabel(o, judge.Member{Place: judge.Place{Name: pod.Name, Pod: pod}}, "cannot be given back to its ReplicaSet: ") {
			now = append(now, pod)
		} else {
			others = true
		}
	}
	return now, others
}

// allowance is how many pods may still go.
type allowance struct {
	spare  int // that are available; none if negative
	broken int // that are not available, and in which a container runs
}

func (o observation) allowance(restarts []rollout.Restart, unavailable int) allowance {
	a := allowance{spare: unavailable - o.deployment.replicas(), broken: max(unavailable, 1) - o.coming(restarts)}
	for _, rs := range o.sets { // whatever is there beyond its replicas is about to go
		a.spare += min(o.availableOf(rs), o.wanted(rs))
	}
	a.spare += o.availableOf(o.deployment)
	return a
}

// availableOf is how many pods of owner are available.
func (o observation) availableOf(owner metav1.Object) (n int) {
	for _, pod := range o.podsOf(owner) {
		n += asInt(o.available(pod))
	}
	return n
}

// remove evicts a pod, or deletes one that is not Ready, if that is not to wait for others, or for
// the end of a refusal.
func (p *plan) remove(o observation, r rollout.Restart, left *allowance) {
	pod := r.Member.Pod
	available, down := o.available(pod), !podutils.IsPodReady(pod) && !isDetached(pod)
	switch {
	case available:
		left.spare--
	case !isDetached(pod) && r.Member.Runs():
		if left.broken <= 0 {
			return
		}
		left.broken--
	}
	if p.mayEvict(o, r.Member) {
		p.evict = append(p.evict, evict{r, down})
	}
}

// coming returns how many pods are missing, or have come and are not available yet: they are none of
// those that are to be restarted.
func (o observation) coming(restarts []rollout.Restart) int {
	n := o.allMissing()
	for _, pod := range o.pods {
		old := isDetached(pod) || slices.ContainsFunc(restarts, func(r rollout.Restart) bool { return r.Member.Pod.UID == pod.UID })
		n += asInt(!old && !judge.Gone(pod) && !o.available(pod))
	}
	return n
}

// awaits reports whether pods that come for restarted ones are not there yet, or not Ready,
// and notes the wait for them.
func (p *plan) awaits() bool {
	missing := p.missing()
	if missing > 0 {
		p.wait("waiting for %s", plural.Of(missing, "more pod"))
		if why := p.base.failure(); why.Reason != "" {
			last := &p.Waits[len(p.Waits)-1]
			last.Message += ": " + why.Reason
			last.Reason = why.Kind
		}
	}
	return missing > 0 || slices.ContainsFunc(p.Verdicts, func(v *judge.Verdict) bool {
		return !podutils.IsPodReady(v.Member.Pod) && v.Member.Target.Resized.IsZero()
	})
}

// awaitAcknowledgement notes the wait for what [replicaSet.acknowledged] tells.
func (p *plan) awaitAcknowledgement() {
	p.Defer()
	p.Unacknowledged = fmt.Sprintf("waiting for the Deployment controller to see ReplicaSet %s as the new one", p.base.Name)
}

func (p *plan) wait(format string, args ...any) { p.await(p.base.Name, format, args...) }

func (p *plan) await(name, format string, args ...any) {
	p.Defer()
	p.Waits = append(p.Waits, rollout.Wait{Member: judge.Member{Place: judge.Place{Name: name}}, Reason: judge.ReasonProgressing, Message: fmt.Sprintf(format, args...)})
}
