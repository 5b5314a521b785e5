package statefulset

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// plan is the next step of a StatefulSet's rollout.
type plan struct {
	rollout.Step

	// Condition that the observation justifies; what the plan is about to do is not in it.
	Condition rollout.Condition
	// Passing tells that the condition is about to change: the StatefulSet controller needs a
	// moment to count what we have done.
	Passing bool
	// Members that the step was made from.
	Members []rollout.Member
	// Changes that the rollout brings, for its first event.
	Changes string
	// Partition to ask for, or nil to leave it.
	Partition *int
	// ByPartition are the pods that the StatefulSet controller restarts because of that, and did not before.
	ByPartition []rollout.Restart
	// Release lets go of the hold: the user's partition comes back.
	Release bool
	// HandOver is why the rest is left to the StatefulSet controller, when a release does that.
	HandOver string
	// Delete these pods, which the StatefulSet controller would not restart itself:
	// it is stuck at them, or takes them for updated.
	Delete []rollout.Restart
}

// movesPartition tells whether the plan lets the StatefulSet controller touch
// pods that it could not touch before.
func (p plan) movesPartition() bool { return p.Release || p.Partition != nil }

// news is what there is to tell of the plan.
func (p plan) news(set *appsv1.StatefulSet) workload.News {
	news := workload.News{Condition: p.Condition, Last: p.AtRest() && !p.Passing}
	if p.Updated < p.Total && p.Changes != "" {
		news.Started = fmt.Sprintf("revision %s: %s", set.Status.UpdateRevision, p.Changes)
	}
	return news
}

// nextStep plans for a set that is held, whose strategy is OnDelete, or whose pods the
// StatefulSet controller counts as updated while nobody has looked at their sizes yet.
//
// The partition is a baton. Pods are taken from the highest index down. As long
// as they can be resized live, the partition stays above all of them. Where only
// a new pod helps, the partition is lowered to that index, so that the
// StatefulSet controller restarts that pod and no other; it stays there while we
// go on below. Where nothing that can be resized live is left, the hold is let
// go, and the StatefulSet controller restarts the rest at its own pace.
//
// For the indexes 4 live, 3 restart, 2 live, 1 restart, 0 restart: 4 is resized;
// partition 3; once 3 is back and available, 2 is resized; release.
func nextStep(ctx context.Context, o observation) (plan, error) {
	from := WishedPartition(o.set)
	if !rolling(o.set) {
		from = 0
	}
	settings, err := workload.Settings(o.set.Annotations)
	if err != nil {
		return plan{Condition: rollout.Invalid(err)}, nil
	}
	members, err := o.members(ctx, from, settings)
	if err != nil {
		return plan{}, err
	}
	p := plan{Step: rollout.Next(members, o.options(from, settings)), Members: members}
	p.Condition = p.Step.Condition()
	p.Changes = rollout.Changes(members) + rollout.OldEnvironment(members)
	p.LookAfter(rollout.UntilAvailable(members, o.set.Spec.MinReadySeconds, o.now))
	if !workload.Held(o.set) {
		p.unheld(o.set, members)
		return p, nil
	}
	p.letGo(o, members)
	return p, nil
}

// letGo decides what of a held set the StatefulSet controller may touch.
func (p *plan) letGo(o observation, members []rollout.Member) {
	switch {
	case !o.caughtUp():
		p.Passing = true // wait for its status before letting anything loose
	case o.doubt() > 0:
		p.LookAfter(o.doubt())
	case p.Keep || p.Unready || slices.ContainsFunc(p.Restart, o.needsUs):
		p.baton(o)
	default:
		p.Release = true
		if len(p.Restart) > 0 {
			p.HandOver = p.Restart[0].Reason
		}
		return
	}
	if kept := exposed(p.Step, members, partition(o.set)); kept >= 0 && p.Partition == nil {
		p.Partition = ptr.To(kept + 1)
	}
}

// baton lets the StatefulSet controller restart the pods whose turn it is, by a lower
// partition; if that is there already, it deletes those of them that have to be deleted
// for it. Pods that it takes for updated, and pods that it restarts itself, take turns:
// it would not count the former against maxUnavailable.
func (p *plan) baton(o observation) {
	if len(p.Restart) == 0 {
		return
	}
	turn := p.Restart
	labelled := turn[0].Member.Labelled
	if i := slices.IndexFunc(turn, func(r rollout.Restart) bool { return r.Member.Labelled != labelled }); i > 0 {
		turn = turn[:i]
	}
	lowest := turn[len(turn)-1].Member.Index
	lower := partition(o.set) > lowest
	if lower {
		p.Partition = &lowest
	}
	for _, r := range turn {
		switch needsUs := o.needsUs(r); {
		case lower && !needsUs && r.Member.Pod != nil && r.Member.Index < partition(o.set):
			p.ByPartition = append(p.ByPartition, r)
		case !lower && needsUs && (r.Now || !labelled):
			p.Delete = append(p.Delete, r)
		}
	}
}

// needsUs tells whether the StatefulSet controller would not restart the pod
// itself: it takes it for updated, and only we know better; or it is an
// OrderedReady set that waits for ever for a pod that is not Ready before it
// restarts any, that one included.
func (o observation) needsUs(r rollout.Restart) bool {
	m := r.Member
	stuck := o.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement && m.Differs == "" &&
		m.Pod != nil && !podutils.IsPodReady(m.Pod)
	return m.Labelled || stuck
}

// exposed returns the highest index of a pod that has to be kept from the
// StatefulSet controller, and that it may delete nevertheless; -1 if there is none.
// That happens when a pod at or above a lowered partition turns stale, as when a
// condemned pod is scaled back in. A terminating pod is beyond keeping, and is born
// of the newest revision there.
func exposed(s rollout.Step, members []rollout.Member, partition int) int {
	for _, m := range members {
		restarts := slices.ContainsFunc(s.Restart, func(r rollout.Restart) bool { return r.Member.Index == m.Index })
		if m.Index >= partition && m.Pod != nil && m.Pod.DeletionTimestamp == nil && !m.Labelled && !restarts {
			return m.Index
		}
	}
	return -1
}

// unheld is what is left to do in a set that is not held. Pods that count as updated may
// have the size of an edit that was given up, as where the hold was let go without us.
// They need no hold: the StatefulSet controller has nothing against them. Where it has,
// the rollout is its own.
func (p *plan) unheld(set *appsv1.StatefulSet, members []rollout.Member) {
	done := true
	for _, m := range members {
		if rolling(set) && !m.Labelled && !rollout.Gone(m.Pod) {
			*p = plan{Condition: left(m.Name + " is of an older revision")}
			return
		}
		done = done && m.Updated
	}
	if done {
		p.Changes = "" // nothing is rolled out
		// Once Complete, a set stays so when it is scaled, or a pod is lost.
		if said := condition(set); said != nil && said.Status == corev1.ConditionTrue || len(p.Waits) == 0 {
			p.Condition = unheldCondition(set)
		}
		return
	}
	for _, r := range p.Restart {
		if r.Now && rolling(set) && !rollout.Gone(r.Member.Pod) {
			p.Delete = append(p.Delete, r)
		}
	}
}

// atRest tells of a set in which nothing is ours to do, if it is such a one: it is Complete
// already, or the StatefulSet controller makes its rollout.
func atRest(set *appsv1.StatefulSet) (workload.News, bool) {
	if workload.Held(set) {
		return workload.News{}, false
	}
	n := replicas(set)
	counted := int(set.Status.UpdatedReplicas) >= n-keptBack(set)
	if believed(set) {
		said := unheldCondition(set)
		_, others := workload.CutOthers(condition(set).Message)
		said.Message += others
		return workload.News{Condition: said, Last: counted && int(set.Status.Replicas) == n}, true
	}
	return workload.News{Condition: unheldCondition(set)}, rolling(set) && !counted
}

// believed tells whether the condition says Complete of this revision and strategy. A set
// may have been edited while it was opted out, and OnDelete knows no partition. What the
// condition counts is no matter: a pod that is lost or scaled away later is no rollout. But
// under OnDelete a set that was opted out may have been edited, and edited back; then its
// pods are looked at.
func believed(set *appsv1.StatefulSet) bool {
	c := condition(set)
	if c == nil || c.Status != corev1.ConditionTrue || !rolling(set) && set.Status.UpdatedReplicas < set.Status.Replicas {
		return false
	}
	said, _ := workload.CutOthers(c.Message)
	return strings.HasSuffix(said, allOf(set))
}

// allOf is what the condition says Complete of.
func allOf(set *appsv1.StatefulSet) string {
	said := " pods are of revision " + set.Status.UpdateRevision
	if keptBack(set) > 0 {
		said += fmt.Sprintf("; partition %d keeps back the others", partition(set))
	}
	return said
}

// unheldCondition tells of a rollout that the StatefulSet controller makes, or
// that is over. Once Complete, a set stays so until there is a new revision or a
// new hold: a pod that is lost later is no rollout. As for `kubectl rollout status`, the
// pods that the partition keeps back have to be available, too.
func unheldCondition(set *appsv1.StatefulSet) rollout.Condition {
	status, kept := set.Status, keptBack(set)
	c := condition(set)
	if c != nil && c.Status == corev1.ConditionTrue ||
		int(status.UpdatedReplicas) >= replicas(set)-kept && int(status.AvailableReplicas) >= replicas(set) {
		return rollout.Condition{
			Complete: true, Reason: rollout.ReasonComplete, Message: fmt.Sprintf("%d of %d", status.UpdatedReplicas, replicas(set)) + allOf(set),
		}
	}
	told := fmt.Sprintf("%d of %d pods updated, %d available", status.UpdatedReplicas, replicas(set)-kept, status.AvailableReplicas)
	if int(status.UpdatedReplicas) >= replicas(set)-kept {
		return rollout.Condition{Reason: rollout.ReasonProgressing, Message: "waiting for pods to become available: " + told}
	}
	return left(told)
}

// left is the condition of a set whose rollout the StatefulSet controller makes.
func left(told string) rollout.Condition {
	return rollout.Condition{Reason: rollout.ReasonProgressing, Message: "left to the StatefulSet controller: " + told}
}
