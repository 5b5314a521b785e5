package statefulset

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// plan is the next step of a StatefulSet's rollout, while it is made.
type plan struct {
	rollout.Plan

	// turn are the restarts that have their turn, and that the partition may be lowered to. Those that are ahead of one that
	// has not are not among them: the partition cannot let them go and keep that one.
	turn, ahead []rollout.Restart
	// partition to ask for; nil to leave it.
	partition *int
	// byPartition are the pods that the StatefulSet controller restarts because of that, and
	// did not before.
	byPartition []rollout.Restart
	// renew has missing pods made of the newest revision, though they are below the partition.
	renew *makeOf
	// release lets go of the hold: the user's partition comes back. Under OnDelete that is
	// but an annotation.
	release  bool
	keptBack string // see rollout.Release
	// givenUp is why the hold of a set under OnDelete goes before all that could be done is done; empty if it does not.
	givenUp string
	// remove these pods, which the StatefulSet controller would not restart by itself: it is
	// stuck at them, or takes them for updated.
	remove []rollout.Restart
}

// complete returns the plan with all that is to be written.
func (p plan) complete() rollout.Plan {
	for _, m := range p.MarkUpdated {
		p.Writes = append(p.Writes, rollout.MarkPod{Member: m, Label: p.Revision.Name, Revision: p.Revision.Name})
	}
	p.Writes = append(p.Writes, rollout.Resizes(p.Resize)...)
	if p.renew != nil {
		p.Writes = append(p.Writes, *p.renew)
	}
	for _, r := range p.remove {
		p.Writes = append(p.Writes, rollout.DeletePod{Restart: r})
	}
	switch {
	case p.release && p.givenUp != "":
		p.Writes = append(p.Writes, rollout.Release{HandOver: p.givenUp})
		p.Condition = rollout.Condition{}
	case p.release:
		release := p.LetGo(kindName)
		release.KeptBack = p.keptBack
		p.Writes = append(p.Writes, release)
		p.Condition = rollout.Condition{} // what there is to say then, its status says
	case p.partition != nil && p.renew == nil: // both name the version of the set
		p.Writes = append(p.Writes, lowerPartition{*p.partition, p.byPartition})
	}
	return p.Plan
}

// Plan plans for a set that is held, whose strategy is OnDelete, or whose pods the
// StatefulSet controller counts as updated while nobody has looked at their sizes yet.
//
// Pods are taken from the highest index down. As long as they can be resized live, the
// partition stays above all of them. Where only a new pod helps, the partition is lowered to
// that index: the StatefulSet controller restarts that pod and no other. The partition stays
// there while we go on below. Where nothing is left that can be resized live, the hold is let
// go, and the StatefulSet controller restarts the rest at its own pace.
//
// For the indexes 4 live, 3 restart, 2 live, 1 restart, 0 restart: 4 is resized;
// partition 3; once 3 is back and available, 2 is resized; release.
func (o observation) Plan(f rollout.Facts) (rollout.Plan, error) {
	o.Facts = f
	options := o.options()
	if former := options.Guard.Former(); options.Guard.Reverts() && o.revisions[former] != nil {
		return o.goBack(options, former)
	}
	o.Facts = o.known()
	verdicts, nonMembers, found, err := o.judge(options)
	if err != nil {
		return rollout.Plan{}, err
	}
	options.NonMembers = nonMembers
	p := plan{Plan: rollout.Plan{Step: rollout.Next(verdicts, options), Revision: o.revision(), Found: found}}
	p.Beside = o.surplus()
	p.Condition = p.Step.Condition()
	o.show(&p.Plan)
	if p.Updated < p.Total {
		p.Started = fmt.Sprintf("revision %s: %s%s", p.Revision.Name, rollout.Changes(verdicts), rollout.OldUntilRestart(verdicts, p.Revision.Template))
	}
	p.Replaced = p.Restart
	p.RequeueWithin(o.nextBirth())
	switch {
	case options.Guard.Stopped() && policy.Held(o.set) && rolling(o.set):
	case !policy.Held(o.set):
		p.Plan, p.remove = builtInStatus(o.set).Plan(p.Plan, condition(o.set))
	case !rolling(o.set):
		p.letGoOnDelete(o, options)
	default:
		if p.letGo(o); !p.release && !p.Canary && !p.Guarding { // the current revision is what a failure goes back to
			p.renew = cmp.Or(p.renew, o.renew())
		}
	}
	p.removeBefore(o, o.spans())
	return o.keepBack(options.Guard, p.complete()), nil
}

// goBack plans the way back of the pods that have the size of the newest revision: to that of the revision that each is of. The
// hold of a set under OnDelete goes as ever.
func (o observation) goBack(options rollout.Options, former string) (rollout.Plan, error) {
	forth, patience := o, plan{}
	if policy.Held(o.set) && !rolling(o.set) {
		patience.giveUp(o, options)
	}
	set := *o.set
	o.failed, set.Status.UpdateRevision = set.Status.UpdateRevision, former
	o.set = &set
	p, err := rollout.GoBack(options, forth.judge, o.judge, o.revision(), former)
	if err != nil {
		return rollout.Plan{}, err
	}
	p = forth.keepBack(options.Guard, p)
	o.show(&p)
	p.RequeueWithin(patience.RequeueAfter)
	if patience.release {
		p.Writes = append(p.Writes, rollout.Release{HandOver: patience.givenUp})
	}
	return p, nil
}

// keepBack sees to it, before anything else is done, that no pod that comes anew has a size that has failed, or that a canary has yet to
// prove. The partition of a rollout that was stopped is above all pods: see hold.yaml. And the current revision, which the pods below it
// are made of, is the one from before: it is not where the set was made anew around its pods, or where a pod of it could not be created
// before.
func (o observation) keepBack(guard *rollout.Guard, p rollout.Plan) rollout.Plan {
	former := guard.Former()
	if policy.Held(o.set) && rolling(o.set) && p.SizeUnproved() && o.madeOfUpdate() && o.revisions[former] != nil && former != o.set.Status.UpdateRevision {
		p.Writes = []rollout.Write{makeOf{former, "the size of the newest revision is not proved"}}
	}
	return p
}

// removeBefore leaves out those of the pods to remove that would not come back: the StatefulSet controller of an OrderedReady set makes
// none as long as one before it is not available, and nobody knows whether that comes to be if it is kept, or kept back by the
// partition, or has all that this rollout does for it. One that is to be restarted later has to have room now.
func (p *plan) removeBefore(o observation, spans []span) {
	if len(p.remove) == 0 || o.set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		return
	}
	kept := replicas(o.set)
	for _, s := range spans {
		i, pod := s.index, s.pod
		if pod == nil || o.available(pod) {
			continue
		}
		of := func(m judge.Member) bool { return m.Pod != nil && m.Pod.UID == pod.UID }
		at := slices.IndexFunc(p.Verdicts, func(v *judge.Verdict) bool { return of(v.Member) })
		switch {
		case at < 0 || p.leaves(p.Verdicts[at]):
			kept = min(kept, i)
		case p.Verdicts[at].Decision == policy.RestartByController && !slices.ContainsFunc(p.Replaced, func(r rollout.Restart) bool { return of(r.Member) }):
			v := p.Verdicts[at]
			p.Replaced = append(p.Replaced, rollout.Restart{Member: v.Member, Reason: v.Why, Cause: v.Cause})
		}
	}
	late := slices.DeleteFunc(slices.Clone(p.remove), func(r rollout.Restart) bool { return r.Member.Index < kept })
	if len(late) == 0 {
		return
	}
	p.remove = slices.DeleteFunc(p.remove, func(r rollout.Restart) bool { return r.Member.Index > kept })
	for i, w := range p.Waits {
		if slices.ContainsFunc(late, func(r rollout.Restart) bool { return r.Member.Name == w.Member.Name }) {
			p.Waits[i].Message = "not restarted before " + o.name(kept) + " is available: " + w.Member.Name + " would not come back"
		}
	}
	if policy.Held(o.set) {
		p.Condition = p.Step.Condition()
	}
}

// leaves reports whether the pod stays, and does not wait for the limits: it has been asked for its size, or is now.
func (p *plan) leaves(v *judge.Verdict) bool {
	switch v.Decision {
	case policy.RestartByController:
		return false
	case policy.Resize:
		return v.Member.Refusal.Reason != "" || slices.ContainsFunc(p.Resize, func(m judge.Member) bool { return m.Name == v.Member.Name })
	default:
		return true
	}
}

// show has the generation of the set seen: see rollout.ShowGeneration.
func (o observation) show(p *rollout.Plan) {
	p.Show(o.set.Generation, o.set.Status.ObservedGeneration, replicas(o.set)-int(o.set.Status.ReadyReplicas))
}

// letGoOnDelete decides whether the hold of a set under OnDelete goes, so that whoever deletes pods goes on:
// as soon as no pod is left that a resize may still spare, and in any case when none has got its size
// for too long. An operator whose pod watch is behind would delete a pod that was just relabelled: so
// the StatefulSet controller has to have seen the labels, as for letting go of a hold.
func (p *plan) letGoOnDelete(o observation, options rollout.Options) {
	switch p.giveUp(o, options); {
	case p.release, options.Guard.Keeps():
	case !o.caughtUp():
		p.AwaitCount(kindName)
	case o.doubt() > 0:
		p.RequeueWithin(o.doubt())
	case p.Unready || p.Guarding || slices.ContainsFunc(p.Verdicts, (*judge.Verdict).Spares):
	default:
		p.release = true
	}
}

// giveUp has the hold of a set under OnDelete go when no pod has got its size for too long, but not as long as a person has to act:
// whoever deletes pods would give them a size that has failed, or that nobody has promoted. Nor as long as a canary runs with it, which
// proves it or fails, but where a check has no result.
func (p *plan) giveUp(o observation, options rollout.Options) {
	if options.Guard.Keeps() || p.Trying {
		return
	}
	patience := o.patience(options)
	left := o.moved.Add(patience).Sub(o.Now)
	if p.release = left <= 0; p.release {
		p.givenUp = fmt.Sprintf("no pod has got its size for %s, so the rollout is left to whoever deletes pods", patience)
		return
	}
	p.RequeueWithin(left)
}

// Bound is that of rollout.Bounded.
func (o observation) Bound(f rollout.Facts, invalid rollout.Plan) rollout.Plan {
	o.Facts = f
	if !policy.Held(o.set) || rolling(o.set) || f.Record.Stopped() {
		return invalid
	}
	p := plan{Plan: invalid}
	p.giveUp(o, o.options())
	return p.complete()
}

// letGo decides what of a held set the StatefulSet controller may touch.
func (p *plan) letGo(o observation) {
	p.takeTurns(o)
	switch {
	case !o.caughtUp():
		p.AwaitCount(kindName) // before letting anything loose
	case o.doubt() > 0:
		p.RequeueWithin(o.doubt())
	case p.Hold || p.Unready || p.Shows() || slices.ContainsFunc(p.Restart, o.needsUs) || len(p.turn) < len(p.Restart):
		p.lowerPartition(o)
	case len(p.Restart) == 0 && o.settles() > 0:
		p.Started = "" // nothing is rolled out
		p.Defer()
		p.RequeueWithin(o.settles())
	default:
		if p.release = true; o.keepsOthers() {
			p.keptBack = p.Revision.Name
		}
		return
	}
	p.keepOut(o)
}

// keepsOthers reports whether the user keeps pods back, and all that are of an older revision, or come of one, differ from the newest in
// more than their size.
func (o observation) keepsOthers() bool {
	if wishedPartition(o.set) == 0 || len(o.orphans) > 0 || !o.madeOfUpdate() && o.differs(o.set.Status.CurrentRevision) == "" {
		return false
	}
	others := false
	for _, pod := range o.pods {
		if judge.Gone(pod) || o.labelled(pod) {
			continue
		}
		if others = true; o.differs(revisions.HashOf(pod)) == "" {
			return false
		}
	}
	return others
}

// keepOut has the partition above the pods that nothing is to be done to now.
func (p *plan) keepOut(o observation) {
	switch index := p.exposed(o); {
	case p.partition != nil:
	case index >= 0:
		p.partition = ptr.To(index + 1)
	case p.Canary && len(p.Restart) == 0 && partition(o.set) < math.MaxInt32 && o.allMadeAbove(): // others that come are no canaries
		p.partition = ptr.To(math.MaxInt32)
	}
}

// allMadeAbove reports whether every place that the partition does not keep back has its pod of the newest revision. It is not needed
// where it is for them.
func (o observation) allMadeAbove() bool {
	for _, s := range o.spans() {
		if s.index >= partition(o.set) && (judge.Gone(s.pod) || !o.labelled(s.pod)) {
			return false
		}
	}
	return true
}

// madeNewest reports whether a missing pod is made of the newest revision wherever the partition is.
func (o observation) madeNewest() bool { return o.madeOfUpdate() && wishedPartition(o.set) == 0 }

// madeOfUpdate reports whether the current revision is the newest one.
func (o observation) madeOfUpdate() bool {
	return o.set.Status.CurrentRevision == o.set.Status.UpdateRevision
}

// renew returns the write that has missing pods made of the newest revision; nil if they are, or are to
// be made of the current one. If that differs in more than the size, nothing is to be had in place: it
// is what the user has left. Nor is it if no pod of it can be made. Where the user keeps pods back,
// they come back as they were, and the partition is lowered to the others.
func (o observation) renew() *makeOf {
	if o.madeOfUpdate() || wishedPartition(o.set) > 0 {
		return nil
	}
	if differs := o.differs(o.set.Status.CurrentRevision); differs != "" {
		return &makeOf{o.set.Status.UpdateRevision, differs}
	}
	for _, pod := range o.pods { // such as after an edit back, where lost pods are made of what was edited
		if why := judge.Rejection(pod); why != "" && revisions.HashOf(pod) == o.set.Status.CurrentRevision {
			return &makeOf{o.set.Status.UpdateRevision, pod.Name + ": " + why}
		}
	}
	if len(o.births.due) == 0 {
		return nil
	}
	for _, s := range o.spans() {
		if why, remade := o.unborn(s.index); remade {
			return &makeOf{o.set.Status.UpdateRevision, o.name(s.index) + ": " + why.Reason}
		}
	}
	return nil
}

// takeTurns finds the restarts that have their turn: all, unless one asks for more than the pod has. There
// may be room for some of these only, and who takes it meanwhile is not known: so they go one after the
// other, as many as may be down, and room is looked at before each. So they do where the first new pod may show that the
// others need not go.
//
// One that is down takes no share, so it may be ahead of others. With the partition at its index, these would
// follow it as soon as its new pod is available, and there may be no room for them. So it is deleted with the
// partition above them, where the new pod is made of the newest revision all the same.
func (p *plan) takeTurns(o observation) {
	p.turn = p.Restart
	if !slices.ContainsFunc(p.Restart, needsRoom) && !p.Unproved() {
		return
	}
	p.turn = slices.DeleteFunc(slices.Clone(p.Restart), func(r rollout.Restart) bool { return !r.Now })
	if wishedPartition(o.set) > 0 || p.Canary || p.Guarding { // there it is made of the current revision
		return
	}
	first := 0
	for first < len(p.turn) && p.turn[first].Member.Index == p.Restart[first].Member.Index {
		first++
	}
	notOurs := func(r rollout.Restart) bool { return r.Member.Pod == nil || r.Member.Differs != "" }
	if ahead := p.turn[first:]; !slices.ContainsFunc(ahead, notOurs) {
		p.turn, p.ahead = p.turn[:first], ahead
	}
}

// deleteAhead deletes the pods that are ahead of others, once nothing else comes of that: the StatefulSet controller may see that a pod is
// gone before it sees which revision is the current one now.
func (p *plan) deleteAhead(o observation) {
	switch unseen := o.renewed.Add(revisions.WatchLag).Sub(o.Now); {
	case len(p.ahead) == 0:
	case o.madeNewest() && unseen > 0:
		p.RequeueWithin(unseen)
	case !o.madeNewest():
		p.renew = &makeOf{o.set.Status.UpdateRevision, p.ahead[0].Member.Name + ": " + p.ahead[0].Reason}
	case p.exposed(o) < 0:
		p.remove = append(p.remove, p.ahead...)
	}
}

// needsRoom reports whether the new pod asks for more than the one that is given up for it. Where the
// template differs in more than the size, the edit is the StatefulSet controller's.
func needsRoom(r rollout.Restart) bool {
	return r.Cause != judge.CauseTemplate && r.Member.Target.AsksForMore()
}

// lowerPartition has the pods restarted whose turn it is. It lowers the partition to the lowest
// of them, so that the StatefulSet controller restarts them. If the partition is there already,
// it deletes those of them that the StatefulSet controller would not restart by itself.
//
// Pods that the StatefulSet controller takes for updated have a turn of their own: it would not
// count them against maxUnavailable when it restarts the others.
func (p *plan) lowerPartition(o observation) {
	turn := p.turn
	p.Replaced = slices.Concat(turn, p.ahead)
	p.deleteAhead(o)
	if len(turn) == 0 {
		return
	}
	labelled := turn[0].Member.Labelled
	if i := slices.IndexFunc(turn, func(r rollout.Restart) bool { return r.Member.Labelled != labelled }); i > 0 {
		turn = turn[:i]
	}
	lowest := turn[len(turn)-1].Member.Index
	lower := partition(o.set) > lowest
	if lower {
		p.partition = &lowest
	}
	p.Replaced = append(p.Replaced, p.besides(lowest)...)
	for _, r := range turn {
		switch needsUs := o.needsUs(r); {
		case lower && !needsUs && r.Member.Pod != nil && r.Member.Index < partition(o.set):
			p.byPartition = append(p.byPartition, r)
		case !lower && needsUs && (r.Now || !labelled):
			p.remove = append(p.remove, r)
		}
	}
}

// besides are the other restarts above the partition, which the StatefulSet controller may go on to: there has to be room for them, too.
func (p *plan) besides(partition int) []rollout.Restart {
	return slices.DeleteFunc(slices.Clone(p.Restart), func(r rollout.Restart) bool {
		return r.Member.Index < partition || r.Member.Labelled || among(p.Replaced, r.Member)
	})
}

// among reports whether the member is among those that are to be restarted.
func among(restarts []rollout.Restart, m judge.Member) bool {
	return slices.ContainsFunc(restarts, func(r rollout.Restart) bool { return r.Member.Index == m.Index })
}

// needsUs reports whether the StatefulSet controller would not restart the pod itself. It
// takes the pod for updated, and only we know better. Or the pod is not Ready and the set is
// OrderedReady: its controller then waits for ever for that pod before it restarts any.
func (o observation) needsUs(r rollout.Restart) bool {
	m := r.Member
	return m.Labelled || m.Differs == "" && o.blocks(m.Pod)
}

// blocks reports whether the StatefulSet controller waits for the pod to be Ready before it restarts any (processReplica in
// stateful_set_control.go of Kubernetes).
func (o observation) blocks(pod *corev1.Pod) bool {
	return o.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement && !judge.Gone(pod) && !podutils.IsPodReady(pod)
}

// exposed returns the highest index of a pod that the StatefulSet controller may delete and
// must not; -1 if there is none. A pod at or above a lowered partition turns stale when a
// condemned one is scaled back in. A terminating pod is lost already, and its successor is of
// the newest revision. A pod whose turn has not come is let be as long as one below it needs the
// partition where it is: one that is down waits for nobody, and nor does its successor, unless that is of
// the newest revision wherever the partition is.
func (p *plan) exposed(o observation) int {
	highest, needed := -1, false
	for _, v := range slices.Backward(p.Verdicts) { // the lowest first
		m := &v.Member
		switch {
		case m.Index < partition(o.set):
		case among(p.turn, v.Member):
			needed = true
		case m.Pod == nil || m.Pod.DeletionTimestamp != nil:
			needed = needed || !o.madeNewest()
		case m.Labelled || needed && among(p.Restart, v.Member):
		default:
			highest = m.Index
		}
	}
	return highest
}
