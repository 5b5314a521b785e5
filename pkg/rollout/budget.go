package rollout

import (
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// budget is what is taken of a rollout's limits, and so what may still be done in one step.
//
// Every pod that is not available takes a share, wherever it is and whatever for, and so does
// every pod that is being resized, or has its size and has yet to prove it. Where pods have no order,
// one that waits for room on its node takes none, if it is available, and its resize will restart no
// container and takes nothing from the pod: nothing is down. One more pod may be touched while the others that count are
// fewer than the limit. Which ones count depends on what is to be done to it:
//
//	resize that restarts no container, the pod is not Ready  | nobody: the size may be its cure
//	resize that restarts no container, to less than before   | shares, but those of idle and missing pods
//	resize that restarts no container, any other             | shares, but those of idle pods
//	resize that restarts a container, the pod is Ready       | shares
//	resize that restarts a container, the pod is not Ready   | pods at work: its own share is taken already
//	restart of a pod that is available                       | shares
//	restart of a pod that is not                             | pods at work; nobody, if no container of it runs
//
// A restart that shows something for the others, see [Step.Unproved], waits for whoever is to come, too.
//
// With limit 1 and places 1 Ready since its resize for less than minReadySeconds, 0 stale, 0 waits.
// With limit 1 and places 1 stale, 0 asked for another size before this edit, both wait until 0 has that or is overdue, in a StatefulSet.
// With limit 1 and places 1 deferred, 0 stale, 0 waits in an OrderedReady set, and nowhere else.
// With limit 2 and places 4 not available, 3 being resized, 2, 1, 0, none of the last three may
// be touched; 4 may be, for its share is taken already.
type budget struct {
	// limit is how many pods may be under way at once. goingDown, which is at least 1, is the
	// limit for what takes a pod down.
	limit, goingDown int

	// shares are the pods that take one: members, and non-members.
	shares int
	// idle are those of them that are down until others have been resized: they wait for their
	// own restart, or for room on a node, which smaller sizes of others may give. So are those on
	// lost nodes, where nobody is to wait for them, and on the way back those that it does not help.
	//
	// With limit 1 and places 1 stale, 0 just born with another image: 0 is restarted after 1
	// is resized, so 1 does not wait for 0.
	idle int
	// missing are those of them of which there is no pod: it may wait for room in a quota,
	// which smaller sizes of others give.
	//
	// With limit 1 and places 1 missing, 0 larger than wanted: 0 is resized.
	missing int
	// busy are the pods at work for something else than the size that is rolled out: they are
	// being resized for an edit that was given up, or restarted by this step while they are down.
	//
	// With limit 1 and places 1 and 0, which are both down and only a restart helps: 1 is
	// restarted, and 0 waits for it.
	busy int
	// coming are the pods that are gone, or go in this step, and whose successors are still to be made.
	coming int
	// unready are the pods that are not Ready since they were resized. No Ready pod is resized
	// while they are as many as may be down.
	unready int

	// denied are the pods that are passed over because admission refuses their size.
	denied int

	// alone: one pod is asked at most, because others delete those that are, and closed: none is. sent are those that are.
	alone, closed bool
	sent          int

	batch batch
	guard *guarded // nil where the rollout is not guarded
}

// batch is how many pods may have a size at once that is not known to be good: it is tried
// on one pod first, then on two, then on four (slow start, as in pkg/controller of Kubernetes).
//
// It is read from the pods alone: while none is pending, one more may be asked than has proved
// the size; from the limit on, every pod that has proved it lets another one go.
type batch struct {
	// proved are the pods that have the size, are available, and have been well for minReadySeconds
	// since they were resized.
	proved int
	// pending are those that have been asked for it before this step, and have yet to prove it. One
	// that takes no share, because it waits for room on its node, may never have the size.
	pending int
	// asked are those that this step asks.
	asked int
}

// mayGrow reports whether one more pod may be asked, where most may be under way.
func (b batch) mayGrow(most int) bool {
	return b.proved >= most || b.pending == 0 && b.asked < min(most, b.proved+1)
}

func newBudget(verdicts []*judge.Verdict, o Options) *budget {
	b := &budget{limit: o.Limit, goingDown: min(o.Limit, max(o.Unavailable, 1)), guard: o.guard(verdicts)}
	b.alone, b.closed = o.Doubt, o.Closed || o.Now.Before(o.From)
	for _, m := range o.NonMembers {
		b.shares += m.Count()
		if m.Pod == nil {
			b.missing += m.Count()
			b.coming += m.Count()
		}
	}
	for _, v := range verdicts {
		c, n, back := &v.Claim, v.Member.Count(), o.backInVain(v)
		b.shares += n * asInt(c.Share)
		b.idle += n * asInt(c.Idle || back)
		b.missing += n * asInt(c.Missing)
		b.coming += n * asInt(judge.Gone(v.Member.Pod) && v.Member.Lost == "")
		b.busy += asInt(c.Busy || c.Pending && back) // no container is restarted beside it
		b.unready += asInt(v.Unready && !back)
		b.batch.proved += asInt(c.Proved)
		b.batch.pending += asInt(c.Pending && !back)
	}
	return b
}

// backInVain reports whether the pods go back to a size that was proved, and this one has that and is not Ready all the same, but not
// because it has gone back: it was not Ready before, or was not asked; or it has not been for too long. No resize is left that could help it.
func (o Options) backInVain(v *judge.Verdict) bool {
	m := &v.Member
	if !o.Back || v.Observed != resize.Unready || m.Lost != "" {
		return false
	}
	asked := m.Target.Resized
	return m.Cure || asked.IsZero() || asked.Before(o.edited) || judge.DownBefore(m.Pod, asked) ||
		o.patience > 0 && !m.Since.IsZero() && !o.Now.Before(m.Since.Add(o.patience))
}

// atWork is how many pods are being resized, or restarted while they are down.
func (b *budget) atWork() int { return b.busy + b.batch.pending + b.batch.asked }

// mayResize reports whether the pod may be asked for its size now. A pod that has had the size
// before, and comes back to it, waits for nobody if no container restarts.
func (b *budget) mayResize(c judge.Claim) bool {
	most := b.limit
	if c.GoesDown {
		most = b.goingDown
	}
	switch {
	case b.closed, b.alone && b.sent > 0:
		return false
	case !c.GoesDown && (!c.Ready || c.ComesBack):
		return true
	case c.Ready && b.unready >= b.goingDown:
		return false
	}
	return b.before(c) < most && b.batch.mayGrow(most)
}

// mostDenied is how many pods may be asked again and again for what admission refuses, which may be the same for all of them.
const mostDenied = 100

// passes reports whether nobody is to wait for the pod until it is asked again for a size that admission has refused. It is as it was
// before, and what is refused may be of a class that others are not of.
func (b *budget) passes(v *judge.Verdict, o Options) bool {
	denied := o.PassDeferred && v.State == resize.Refused && v.Member.Refusal.Kind == judge.ReasonAdmissionDenied && !v.Member.Down()
	b.denied += asInt(denied)
	return denied && b.denied <= mostDenied
}

// before is how many other pods count for the resize of a pod.
func (b *budget) before(c judge.Claim) int {
	others := b.shares - asInt(c.Share)
	switch {
	case c.GoesDown && c.Ready:
		return others
	case c.GoesDown:
		return b.atWork() - asInt(c.Busy)
	case c.GivesRoom:
		return others - b.idle - b.missing
	default:
		return others - b.idle
	}
}

// resizes counts a pod that may be resized now: sent is whether it is asked in this step.
func (b *budget) resizes(c judge.Claim, sent bool) {
	b.shares += asInt(!c.Share)
	b.sent += asInt(sent)
	b.batch.asked += asInt(sent && (c.Ready || c.GoesDown))
}

// mayRestart reports whether the pod may be given up for a new one now. One in which no
// container runs has nothing to lose.
func (b *budget) mayRestart(c judge.Claim) bool {
	if b.awaitsBirth(c) {
		return false
	}
	if c.Down {
		return b.atWork()-asInt(c.Busy) < b.goingDown || !c.Runs
	}
	return b.shares-asInt(c.Share) < b.goingDown
}

// awaitsBirth reports whether the restart waits for the successor of another pod to be made, which shows whether it is needed. A pod that
// is down does not: an OrderedReady StatefulSet may make none before that one is up.
func (b *budget) awaitsBirth(c judge.Claim) bool { return c.Shows && b.coming > 0 && !c.Down }

// restarts counts a pod that is restarted before those after it have their turn.
func (b *budget) restarts(v *judge.Verdict) {
	c, n := &v.Claim, v.Member.Count()
	if c.Share {
		b.busy += n
	} else {
		b.shares += n
	}
	b.idle -= n * asInt(c.Idle)
	b.coming += n
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
