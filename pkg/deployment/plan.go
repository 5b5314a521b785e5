package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	deploymentutil "k8s.io/kubectl/pkg/util/deployment"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// plan is the next step of a Deployment's rollout, while it is made.
type plan struct {
	rollout.Plan

	// base is the ReplicaSet whose pods are resized.
	base *replicaSet
	// write is the one of a ReplicaSet, or the release; nil if there is none. Each is a step
	// of its own, after which all is looked at again.
	write rollout.Write
	// giveBack these detached pods to their ReplicaSet.
	giveBack []*corev1.Pod
	// detach these pods from base, to be evicted when others have taken their place, and evict those.
	detach, evict []rollout.Restart
}

// Plan returns the next step.
func (o observation) Plan(f controller.Facts) (rollout.Plan, error) {
	o.Facts = f
	p, err := o.nextStep()
	if err != nil {
		return rollout.Plan{}, err
	}
	return p.complete(o), nil
}

// complete returns the plan with all that is to be written.
func (p plan) complete(o observation) rollout.Plan {
	p.Revision = o.revision()
	for _, m := range p.Members {
		if m.Updated {
			p.Resized = append(p.Resized, m)
		}
	}
	p.givesUp(o)
	p.Writes = rollout.Resizes(p.Resize)
	for _, r := range p.detach {
		p.Writes = append(p.Writes, detach{r})
	}
	for _, r := range p.evict {
		p.Writes = append(p.Writes, evict{r})
	}
	if len(p.giveBack) > 0 {
		p.Writes = append(p.Writes, giveBack{p.giveBack})
	}
	if p.write != nil {
		p.Writes = append(p.Writes, p.write)
	}
	if _, is := p.write.(release); is {
		p.Condition = rollout.Condition{} // what there is to say then, its status says
	}
	return p.Plan
}

// givesUp lists the pods that are about to be replaced, now or after the adoption, and
// reports whether others come first: so it is with maxUnavailable 0.
func (p *plan) givesUp(o observation) {
	_, unavailable, err := o.deployment.bounds()
	p.NewFirst = err == nil && unavailable == 0
	switch p.write.(type) {
	case adopt, release:
		p.Replaced = p.Restart
	default:
		for _, r := range p.evict {
			if !isDetached(r.Member.Pod) {
				p.Replaced = append(p.Replaced, r)
			}
		}
		p.Replaced = append(p.Replaced, p.detach...)
	}
}

// nextStep plans for a Deployment that is held, or whose pods the Deployment controller
// counts as updated while nobody has looked at their sizes yet.
//
// Its pods are resized while they are in the ReplicaSet that they were made from,
// which still has the old template: so `kubectl rollout status` goes on waiting.
// When every pod that can be resized has been, the ReplicaSet gets the new template,
// and the old one goes into the history. From then on the Deployment
// controller takes the pods for updated, and the ReplicaSet makes new ones of the
// new size, so that now those that only a restart helps can be evicted. At last
// the hold is let go, and the Deployment controller finds nothing to do.
//
// Where no pod can be resized, the hold is let go at once, and the Deployment
// controller makes the rollout at its own pace.
func (o observation) nextStep() (plan, error) {
	base := o.base()
	if !policy.Held(o.deployment) {
		if said, over := o.beyondUs(base); over {
			return plan{Plan: rollout.Plan{Condition: said}}, nil
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
		p.Condition = p.Step.Condition()
	}
	return p, err
}

// ofBase plans where there are pods to resize.
func (o observation) ofBase(base *replicaSet) (plan, error) {
	surge, unavailable, err := o.deployment.bounds()
	if err != nil {
		return plan{}, err
	}
	members, err := o.members(base)
	if err != nil {
		return plan{}, err
	}
	p := plan{Plan: rollout.Plan{Step: rollout.Next(members, o.options(base, surge, unavailable)), Members: members}, base: base}
	p.Started = fmt.Sprintf("ReplicaSet %s: %s%s", base.Name, o.changes(base, members), rollout.OldEnvironment(members))
	p.RequeueWithin(rollout.UntilAvailable(members, o.deployment.Spec.MinReadySeconds, o.Now))
	historyDue := p.awaitsHistory(o)
	switch {
	case !policy.Held(o.deployment):
		p.unheld(o, unavailable)
	case p.Hold || len(p.Resize) > 0: // not all that can be resized has been
	case base.template.Same(o.deployment.template):
		p.afterAdoption(o, surge, unavailable)
	case restartsAll(p):
		p.letGo(o, p.Restart[0].Reason)
	case p.Unready: // it may be the size
	case base.lags():
		p.wait("waiting for ReplicaSet %s to take over its template", base.Name)
	case historyDue:
	default:
		p.write = adopt{base, o.deployment.template, rollout.Names(outdated(members)), o.forgets(base)}
	}
	return p, nil
}

// beyondUs is the condition of a Deployment that is not held, where nothing can be done about
// its pods, or nothing has to be: they are of another template, and the Deployment controller
// makes the rollout; or the user has it paused, and what an edit that was given up has left
// is taken back when it is resumed; or there are none.
func (o observation) beyondUs(base *replicaSet) (rollout.Condition, bool) {
	d := o.deployment
	if stale := o.stale(); stale != "" {
		return d.incomplete(stale), true
	}
	if base == nil || !d.Spec.Paused {
		return unheldCondition(d), base == nil
	}
	for _, pod := range o.podsOf(base) {
		if target, err := o.target(base, pod); err != nil || !target.Clean() {
			return d.incomplete(fmt.Sprintf("pod %s has the size of an edit that was given up", pod.Name)), true
		}
	}
	return unheldCondition(d), true
}

// unheld is what is left to do in a Deployment that is not held. Its pods may have the size
// of an edit that was given up, as where the hold was let go without us. They need no hold:
// the Deployment controller has nothing against them. Where only new pods help, they are
// evicted; but none is replaced before it goes, which is what the hold is for.
func (p *plan) unheld(o observation, unavailable int) {
	p.Condition = p.Step.Condition()
	switch {
	case p.Hold || len(p.Resize) > 0:
	case len(p.Restart) > 0 && p.base.adopted() && !p.base.mark.Closed:
		if !p.base.lags() { // see afterAdoption
			p.write = p.mark()
		}
	case len(p.Restart) > 0:
		p.replace(o, nil, 0, unavailable)
		if len(p.evict) == 0 && unavailable == 0 {
			m := p.Restart[0].Member
			p.Condition.Reason = rollout.ReasonInfeasible
			p.Condition.Message = fmt.Sprintf("%d of %d pods resized; %s: left as it is until the next edit, because maxUnavailable is 0: %s", p.Updated, p.Total, m.Name, p.Restart[0].Reason)
		}
	case p.base.adopted():
		p.write = o.removeDuplicate()
		if p.write == nil {
			p.write = unmark{p.base, o.forgets(p.base)}
		}
	default:
		p.Started = "" // nothing is rolled out
		// Once Complete, a Deployment stays so when it is scaled, or a pod is lost.
		if condition(o.deployment).Complete() || len(p.Waits) == 0 {
			p.Condition = unheldCondition(o.deployment)
		}
	}
}

// withoutBase is the plan where no pod can be resized: none runs, or all differ in
// more than their size.
func (o observation) withoutBase() plan {
	p := plan{}
	p.letGo(o, o.differs())
	p.Condition = rollout.Condition{Reason: rollout.ReasonProgressing, Message: "left to the Deployment controller"}
	return p
}

// changes describes what the rollout brings, to the first pod that lacks it.
func (o observation) changes(base *replicaSet, members []rollout.Member) string {
	brings := resize.Between(base.template.PodTemplateSpec, o.deployment.template.PodTemplateSpec)
	if i := slices.IndexFunc(members, func(m rollout.Member) bool { return !m.Updated }); i >= 0 {
		brings = resize.Join(brings, members[i].Target.Effects)
	}
	said := rollout.Changes(members)
	if len(brings) > 0 {
		said = resize.Describe(brings)
	}
	if base.template.Same(o.deployment.template) && !base.adopted() && !strings.HasPrefix(said, rollout.EditBack) {
		said = rollout.EditBack + ": " + said
	}
	return said
}

// restartsAll reports whether the rollout has to be left to the Deployment controller:
// the edit itself has every pod restarted, and not what came of a resize.
func restartsAll(p plan) bool {
	inevitable := 0
	for _, r := range p.Restart {
		if r.ByEdit() {
			inevitable++
		}
	}
	return inevitable > 0 && inevitable == len(p.Members)
}

// outdated are the members that have not the new size.
func outdated(members []rollout.Member) []rollout.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m rollout.Member) bool { return m.Updated })
}

// unfinished is what an earlier step has begun, and is to be finished before anything
// else: a template that was replaced goes into the history, and marks are taken
// from ReplicaSets that another edit has left behind; pods that were detached for
// another edit go back. Two ReplicaSets must not be left with one template: the
// Deployment controller would take the older one for the new one, pods or not. So
// one that keeps what the base has now is used again.
func (o observation) unfinished(base *replicaSet) (plan, bool) {
	p := plan{base: base}
	for _, rs := range o.sets {
		switch {
		case o.keeps(rs):
			p.write = saveHistory{rs, o.idleTwin(rs), o.sets}
			return p, true
		case rs.adopted() && rs != base && (base == nil || !o.retries(rs)):
			p.write = unmark{rs, o.forgets(rs)}
			return p, true
		}
	}
	if base != nil && !base.template.Same(o.deployment.template) {
		p.giveBack = o.detached()
	}
	return p, len(p.giveBack) > 0
}

// lacks reports whether the history has to keep what rs had before, and does not.
func (o observation) lacks(rs *replicaSet) bool {
	return rs.outgoing != nil && !rs.outgoing.template.Same(rs.template) && o.twin(rs, rs.outgoing.template) == nil && o.historyHasRoom(rs)
}

// historyTimeout is for how long a rollout waits for what refuses the history, such as a
// quota of ReplicaSets.
const historyTimeout = 20 * time.Second

// formerTemplate tells apart what the history is to keep of rs.
func formerTemplate(rs *replicaSet) string { return string(rs.outgoing.Template) }

// refused is why the history cannot keep what rs had before.
func (o observation) refused(rs *replicaSet) rollout.Refusal {
	if !o.lacks(rs) {
		return rollout.Refusal{}
	}
	return o.history.Of(rs.UID, formerTemplate(rs))
}

// retries reports whether the history was refused, and may be accepted a little later.
func (o observation) retries(rs *replicaSet) bool {
	refused := o.refused(rs)
	return refused.Reason != "" && !refused.Final && o.Now.Before(refused.Since.Add(historyTimeout))
}

// keeps reports whether it is time to write the history, for the first time or again.
func (o observation) keeps(rs *replicaSet) bool {
	return o.lacks(rs) && (o.refused(rs).Reason == "" || o.retries(rs) && !o.Now.Before(o.refused(rs).Until))
}

// forgets tells why what rs had before is lost with its mark.
func (o observation) forgets(rs *replicaSet) string {
	refused := o.refused(rs)
	if refused.Reason == "" {
		return ""
	}
	return fmt.Sprintf("revision %d is not kept in the history, so that nobody can go back to it: %s", rs.outgoing.revision(), refused.Reason)
}

// awaitsHistory reports whether the history of Base is still to be written, and of what
// keeps it from that.
func (p *plan) awaitsHistory(o observation) bool {
	if !o.retries(p.base) {
		return false
	}
	refused := o.refused(p.base)
	p.Waits = append(p.Waits, rollout.Wait{
		Member: rollout.Member{Place: rollout.Place{Name: p.base.Name}}, Reason: refused.Kind, Message: fmt.Sprintf("revision %d is not kept in the history yet: %s", p.base.outgoing.revision(), refused.Reason),
	})
	p.RequeueWithin(refused.Until.Sub(o.Now))
	p.RequeueWithin(refused.Since.Add(historyTimeout).Sub(o.Now))
	return true
}

// historyHasRoom reports whether the history would hold what rs had before. The Deployment
// controller counts all ReplicaSets but the new one as old, those with pods too, and
// while the Deployment is paused it removes as many as exceed the limit: those of
// the lowest revisions, as far as they are idle (cleanupDeployment in
// pkg/controller/deployment of Kubernetes). It would remove ours again and again.
//
// With a limit of 1 and an edit to a third template, of which there is no ReplicaSet
// yet, the live ReplicaSet of revision 2 is old, and the one that is to keep
// revision 1 would be the second: it has the lower revision, so there is no room.
func (o observation) historyHasRoom(rs *replicaSet) bool {
	limit := o.deployment.Spec.RevisionHistoryLimit
	if limit == nil || *limit == 0 {
		return limit == nil
	}
	revision := rs.outgoing.revision()
	newest, used := o.newest(), o.idleTwin(rs)
	old, lower := 1, 0
	for _, other := range o.sets {
		if other == newest || other == used || other.DeletionTimestamp != nil {
			continue
		}
		old++
		if other.revision <= revision { // of equals, the older goes first
			lower++
		}
	}
	return lower >= old-int(*limit)
}

// afterAdoption replaces pods that could not be resized, and lets go of the hold
// when there are none left and the Deployment controller has seen all of it: the
// mark is taken away after all other writes to ReplicaSets, whose watch keeps their
// order, and that is what it acknowledges.
//
// Before the first pod is replaced, the mark is closed: the pods that come from then on
// are of the new template, whatever admission makes of them, and none of them is
// restarted. Of 3 pods where one is replaced, and where admission makes new pods
// Guaranteed, that one is Guaranteed then; restarting it would make another such pod.
func (p *plan) afterAdoption(o observation, surge, unavailable int) {
	detached := o.detached()
	switch {
	case p.base.lags():
		p.wait("waiting for ReplicaSet %s to take over the new template", p.base.Name)
	case len(p.Restart) > 0 && p.base.adopted() && !p.base.mark.Closed:
		p.write = p.mark()
	case len(p.Restart)+len(detached) > 0:
		p.replace(o, detached, surge, unavailable)
	case len(p.base.mark.Restarts) > 0 && p.awaits():
	case p.Unready: // not before they are Ready again, or there is a new edit
	case o.retries(p.base): // the mark has what the history has not
	case p.base.adopted():
		p.write = o.removeDuplicate()
		if p.write == nil {
			p.write = unmark{p.base, o.forgets(p.base)}
		}
	case o.duplicate() != nil: // of an adoption that the user's edit has overtaken
		p.write = p.mark()
	case !p.base.acknowledged():
		p.wait("waiting for the Deployment controller to take ReplicaSet %s for the new one", p.base.Name)
	default:
		p.letGo(o, "")
	}
}

// letGo lets go of the hold, once what only the rollout needed is gone.
func (p *plan) letGo(o observation, handOver string) {
	p.giveBack, p.write = o.detached(), o.removeDuplicate()
	marked := o.marked()
	switch {
	case p.write != nil:
	case marked != nil:
		p.write = unmark{marked, o.forgets(marked)}
	case len(p.giveBack) == 0:
		p.write = release{handOver}
	}
}

// removeDuplicate removes the duplicate, if there is one.
func (o observation) removeDuplicate() rollout.Write {
	if rs := o.duplicate(); rs != nil {
		return removeSet{rs}
	}
	return nil
}

// mark marks the base with the pods that have not its size.
func (p *plan) mark() rollout.Write {
	return mark{p.base, rollout.Names(outdated(p.Members))}
}

// replace has pods replaced whom only that helps, never having fewer available than
// the Deployment allows.
//
// With 4 replicas, maxUnavailable 1 and all available, one is evicted, and the next
// when its replacement is available. With maxUnavailable 0 and maxSurge 1 none may
// be evicted; so one is detached from the ReplicaSet, which makes another pod, and
// is evicted when there are 5 available.
func (p *plan) replace(o observation, detached []*corev1.Pod, surge, unavailable int) {
	spare := unavailable - o.deployment.replicas()
	for _, pod := range o.pods {
		if o.available(pod) {
			spare++
		}
	}
	evict := func(r rollout.Restart) bool {
		available := o.available(r.Member.Pod)
		if available && spare <= 0 {
			return false
		}
		if available {
			spare--
		}
		if refused := o.evictions.Of(r.Member.Pod.UID, eviction); refused.Reason != "" {
			p.Waits = append(p.Waits, rollout.Wait{Member: r.Member, Reason: cmp.Or(refused.Kind, rollout.ReasonDisruptionBudget), Message: "not evicted yet: " + refused.Reason})
			if o.Now.Before(refused.Until) {
				p.RequeueWithin(refused.Until.Sub(o.Now))
				return true
			}
		}
		p.evict = append(p.evict, r)
		return true
	}
	for _, pod := range detached {
		m := rollout.Member{Place: rollout.Place{Name: pod.Name, Pod: pod}}
		if !evict(rollout.Restart{Member: m, Reason: "it has been replaced"}) {
			p.Waits = append(p.Waits, rollout.Wait{Member: m, Reason: rollout.ReasonProgressing, Message: "waiting for the pod that takes its place"})
		}
	}
	for _, r := range p.Restart {
		if !evict(r) && unavailable == 0 && len(detached)+len(p.detach) < surge {
			p.detach = append(p.detach, r)
		}
	}
}

// awaits reports whether pods that come for restarted ones are not there yet, or not Ready,
// and waits for them: what keeps them away is not over.
func (p *plan) awaits() bool {
	missing := int(p.base.replicas()) - len(p.Members)
	if missing > 0 {
		p.wait("waiting for %d more pods", missing)
		if why := p.base.failure(); why.Reason != "" {
			last := &p.Waits[len(p.Waits)-1]
			last.Message += ": " + why.Reason
			last.Reason = why.Kind
		}
	}
	return missing > 0 || slices.ContainsFunc(p.Members, func(m rollout.Member) bool {
		return !podutils.IsPodReady(m.Pod) && m.Target.Resized.IsZero()
	})
}

func (p *plan) wait(format string, args ...any) {
	p.Passing = true
	p.Waits = append(p.Waits, rollout.Wait{Member: rollout.Member{Place: rollout.Place{Name: p.base.Name}}, Reason: rollout.ReasonProgressing, Message: fmt.Sprintf(format, args...)})
}

// Unheld is that of controller.Kind. Of an edit that was made while the Deployment was opted
// out and paused, only its pods say something.
func (Kind) Unheld(d *Deployment) controller.Unheld {
	wanted, status := int32(d.replicas()), d.Status
	stale := status.Replicas > status.UpdatedReplicas
	return controller.Unheld{
		Condition: unheldCondition(d), Of: allOf(d), BuiltIn: true, Stale: stale,
		Counted: status.UpdatedReplicas >= wanted && !stale, AllThere: status.Replicas == wanted,
	}
}

// allOf is what the condition says Complete of.
func allOf(d *Deployment) string {
	return " pods are of revision " + d.Annotations[deploymentutil.RevisionAnnotation]
}

// unheldCondition tells of a rollout that the Deployment controller makes, or that
// is over, or that the user has paused. Once Complete, a Deployment stays so until
// there is a new edit: a pod that is lost later is no rollout.
func unheldCondition(d *Deployment) rollout.Condition {
	status, replicas := d.Status, int32(d.replicas())
	stays := condition(d).Complete()
	if status.Replicas <= status.UpdatedReplicas && (stays || status.UpdatedReplicas >= replicas && status.AvailableReplicas >= replicas) {
		return rollout.Condition{Complete: true, Reason: rollout.ReasonComplete, Message: fmt.Sprintf("%d of %d", status.UpdatedReplicas, replicas) + allOf(d)}
	}
	said := d.incomplete(fmt.Sprintf("%d of %d pods updated, %d of an older template, %d available",
		status.UpdatedReplicas, replicas, status.Replicas-status.UpdatedReplicas, status.AvailableReplicas))
	if status.Replicas <= status.UpdatedReplicas && status.UpdatedReplicas >= replicas {
		said.Message = strings.Replace(said.Message, leftTo, "waiting for pods to become available: ", 1)
	}
	return said
}

// leftTo is what a condition begins with while the Deployment controller makes a rollout.
const leftTo = "left to the Deployment controller: "

// incomplete is the condition of a Deployment whose rollout is not held, and not over.
func (d *Deployment) incomplete(told string) rollout.Condition {
	if d.Spec.Paused {
		return rollout.Condition{Reason: rollout.ReasonPaused, Message: "paused by the user: " + told}
	}
	return rollout.Condition{Reason: rollout.ReasonProgressing, Message: leftTo + told}
}
