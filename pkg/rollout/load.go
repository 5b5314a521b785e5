package rollout

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// load is what is taken of the limits, and what else tells whether one more pod may be
// touched. Everything that is not available takes a share, wherever it is and whatever
// for, and so does everything that is being resized.
//
// With limit 2 and places 4 not Ready, 3 being resized, 2, 1, 0: none of the last three
// may be touched, but 4 may be, for it is down already.
type load struct {
	o Options
	// down are not available, or about to be resized for an edit that was given up; busy
	// are the latter.
	down, busy int
	// later are those of them that wait to be restarted until others have been resized,
	// or for room on a node, which others may have to make: a resize that takes nothing
	// down does not wait for them in turn.
	later int
	// missing are the places without a pod: it may wait for room in a quota, which smaller
	// sizes of others give. A resize to such a size, that takes nothing down, does not wait
	// for it in turn.
	missing int
	// asked are available, and being resized, or about to be restarted.
	asked int
	// unready are not Ready since they were resized.
	unready int
	// pending have been asked, and are not verified and available yet; done are.
	pending, done int
	// started are asked by this step, replaced are down and about to be restarted by it.
	started, replaced int
}

func count(members []Member, o Options) *load {
	l := &load{o: o, down: len(o.Aside)}
	for _, m := range o.Aside {
		l.missing += asInt(m.Pod == nil)
	}
	for _, m := range members {
		l.missing += asInt(m.Pod == nil)
		decision := m.decide(o)
		verified := m.Updated || decision == policy.MarkUpdated
		switch {
		case m.taken():
			l.down++
			l.busy += asInt(m.busy())
			l.later += asInt(m.down() && (m.waitsForRestart(decision) || m.waitsForRoom()))
		case verified:
			l.done++
		case decision == policy.Wait:
			l.asked++
		}
		l.unready += asInt(m.unready())
		l.pending += asInt(m.pending(decision))
	}
	return l
}

// down tells whether the pod is not available, or was not when its node was last heard of.
func (m Member) down() bool { return Gone(m.Pod) || m.Lost != "" || !m.Available }

// taken tells whether the pod has its share already, before it is asked for its size.
func (m Member) taken() bool { return m.down() || m.busy() }

func (m Member) busy() bool {
	return !Gone(m.Pod) && m.Differs == "" && len(m.Target.Changes) > 0 && resize.Busy(m.Pod)
}

// unready tells whether the pod is not Ready since it was resized: the size may have done it.
func (m Member) unready() bool {
	if Gone(m.Pod) || m.Lost != "" || m.Differs != "" || m.Target.Resized.IsZero() || m.Target.Unscheduled() {
		return false
	}
	state, _ := m.Target.Observe()
	return state == resize.Unready
}

// pending tells whether the pod has been asked for the size, and has yet to prove it. One
// that was not Ready when it was asked has lost nothing by it, and proves nothing.
func (m Member) pending(d policy.Decision) bool {
	switch {
	case Gone(m.Pod) || m.Lost != "" || m.Differs != "" || len(m.Target.Changes) > 0 || m.Cure && m.down() || m.waitsForRoom():
		return false
	case m.Updated || d == policy.MarkUpdated:
		return !m.Available && !m.Target.Resized.IsZero()
	default:
		return d == policy.Wait
	}
}

// decide is what the table says about the pod; nothing about one that is updated, gone,
// or of another template.
func (m Member) decide(o Options) policy.Decision {
	if m.Updated || m.Differs != "" || Gone(m.Pod) {
		return ""
	}
	return policy.Decide(m.Policy, o.Action, o.Strategy, m.judge(o).outcome)
}

// waitsForRestart tells whether only a restart, whoever makes it, makes the pod Ready.
func (m Member) waitsForRestart(d policy.Decision) bool {
	return !m.Updated && !Gone(m.Pod) && !podutils.IsPodReady(m.Pod) && m.Lost == "" && m.Unplaceable.Reason == "" &&
		(m.Differs != "" || d == policy.RestartByController || d == policy.WaitForDelete)
}

// waitsForRoom tells whether the pod has its size, which was set while it had no node,
// and still has none.
func (m Member) waitsForRoom() bool {
	return !Gone(m.Pod) && m.Target.Unscheduled() && !m.Target.Resized.IsZero() && len(m.Target.Changes) == 0
}

// most is how many pods may be under way for one more to be touched that goes down by
// that, or does not.
func (l *load) most(goesDown bool) int {
	if goesDown {
		return min(l.o.Limit, max(l.o.Unavailable, 1))
	}
	return l.o.Limit
}

// mayResize tells whether the pod may be asked for its size now.
//
// A pod that is not Ready does not wait, as the size may be its cure, if it has nothing
// to lose. If a container that runs would restart, it waits only for those that are being
// resized, as its own share is taken already. Others that are down may wait for it in
// turn: an OrderedReady set makes no pod above one that is not Ready.
func (l *load) mayResize(m Member) bool {
	goesDown := m.Target.Restarts()
	switch most := l.most(goesDown); {
	case m.Cures(), m.comesBack() && !goesDown:
		return true
	case !podutils.IsPodReady(m.Pod):
		return l.underWay(m) < most && l.inBatch(most)
	case l.unready >= l.most(true):
		return false
	case goesDown:
		return l.others(m) < most && l.inBatch(most)
	case m.Target.GivesRoom():
		return l.others(m)-l.later-l.missing < most && l.inBatch(most)
	default:
		return l.others(m)-l.later < most && l.inBatch(most)
	}
}

// comesBack tells whether the pod has had the size in this rollout already, and somebody else
// has given it another one since: that it is well with it has been seen.
func (m Member) comesBack() bool { return m.Labelled && m.Target.Overrules }

// others is how many other pods take a share.
func (l *load) others(m Member) int { return l.asked + l.down - asInt(m.taken()) }

// underWay is how many other pods are being resized, or are down and about to be restarted.
func (l *load) underWay(m Member) int {
	return l.pending + l.started + l.replaced + l.busy - asInt(m.busy())
}

// Cures tells whether a resize can only do the pod good: it is not Ready, and no
// container of it that runs would restart.
func (m Member) Cures() bool { return !podutils.IsPodReady(m.Pod) && !m.Target.Restarts() }

// inBatch tells whether one more pod may be asked before those that have been are
// verified: a size that nobody has tried is tried on one pod first, then on two, then
// on four (slow start, as in pkg/controller of Kubernetes). It is read from the pods
// alone: while none is pending, one more may be asked than has proved the size; from
// the limit on, every pod that has been verified lets another one go.
func (l *load) inBatch(most int) bool {
	return l.done >= most || l.pending == 0 && l.started < min(most, l.done+1)
}

// asks counts a pod that may be resized now: sent tells whether it is asked.
func (l *load) asks(m Member, sent bool) {
	if !m.taken() {
		l.asked++
	}
	if sent && !m.Cures() {
		l.started++
	}
}

// mayRestart tells whether the pod may be given up for a new one now. One in which no
// container runs has nothing to lose.
func (l *load) mayRestart(m Member) bool {
	if m.down() {
		return l.underWay(m) < l.most(true) || !runs(m.Pod)
	}
	return l.others(m) < l.most(true)
}

// restarts counts a pod for whose restart those below it wait.
func (l *load) restarts(m Member) {
	if !m.taken() {
		l.asked++
		return
	}
	l.replaced++
	if m.down() && m.waitsForRestart(m.decide(l.o)) {
		l.later--
	}
}

func runs(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// UnreadyGrace is how long a pod may be not Ready after its resize before that is told:
// where a container restarts, it is so as a matter of course.
const UnreadyGrace = 10 * time.Second
