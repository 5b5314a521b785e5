package deployment

import (
	"fmt"
	"slices"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// lacks reports whether the former template of rs is still to go into the history: neither a
// ReplicaSet nor the Deployment itself has it, and the history has room.
func (o observation) lacks(rs *replicaSet) bool {
	return rs.previous != nil && !rs.previous.template.Same(rs.template) && !rs.previous.template.Same(o.deployment.template) && !o.keeps(rs) && o.historyHasRoom(rs)
}

// keeps reports whether another ReplicaSet has the former template of rs, in any spelling: that
// of a record is not the API server's if somebody else has written it.
func (o observation) keeps(rs *replicaSet) bool {
	return slices.ContainsFunc(o.sets, func(other *replicaSet) bool { return other.UID != rs.UID && other.template.Means(rs.previous.template) })
}

// historyTimeout is for how long a rollout waits while the history is refused, as by a quota
// of ReplicaSets.
const historyTimeout = 20 * time.Second

// formerTemplate names in refusals what was refused: the former template of rs.
func formerTemplate(rs *replicaSet) string { return string(rs.previous.Template) }

// refused returns why the history cannot have the former template of rs; without a reason if
// it can, or has it.
func (o observation) refused(rs *replicaSet) judge.Refusal {
	if !o.lacks(rs) {
		return judge.Refusal{}
	}
	return o.history.Of(rs.UID, formerTemplate(rs))
}

// retries reports whether the history was refused, and may be accepted a little later.
func (o observation) retries(rs *replicaSet) bool {
	refused := o.refused(rs)
	return refused.Reason != "" && !refused.Final && o.Now.Before(refused.Since.Add(historyTimeout))
}

// saves reports whether it is time to write the history, for the first time or again.
func (o observation) saves(rs *replicaSet) bool {
	return o.lacks(rs) && (o.refused(rs).Reason == "" || o.retries(rs) && !o.Now.Before(o.refused(rs).Until))
}

// forgets returns why the former template of rs is lost with its record; empty if it is not.
func (o observation) forgets(rs *replicaSet) string {
	refused := o.refused(rs)
	if refused.Reason == "" {
		return ""
	}
	return notKept(rs.previous.revision(), refused.Reason)
}

func notKept(revision int64, why string) string {
	return fmt.Sprintf("revision %d is not kept in the history, so it cannot be undone to: %s", revision, why)
}

// awaitsHistory reports whether the history of the base is still to be written, and notes
// the wait for it.
func (p *plan) awaitsHistory(o observation) bool {
	if !o.retries(p.base) {
		return false
	}
	refused := o.refused(p.base)
	p.Waits = append(p.Waits, rollout.Wait{
		Member: judge.Member{Place: judge.Place{Name: p.base.Name}}, Reason: refused.Kind, Message: fmt.Sprintf("revision %d is not kept in the history yet: %s", p.base.previous.revision(), refused.Reason),
	})
	p.RequeueWithin(refused.Until.Sub(o.Now))
	p.RequeueWithin(refused.Since.Add(historyTimeout).Sub(o.Now))
	return true
}

// historyHasRoom reports whether the Deployment controller would leave the former template of
// rs in the history. It counts all ReplicaSets but the new one as old, those with pods too.
// While the Deployment is paused it removes as many as exceed the limit: those of the lowest
// revisions, as far as they are idle (cleanupDeployment in pkg/controller/deployment of
// Kubernetes). Without room it would remove ours again and again.
//
// With a limit of 1 and an edit to a third template, of which there is no ReplicaSet
// yet, the live ReplicaSet of revision 2 is old, and the one that is to keep
// revision 1 would be the second: it has the lower revision, so there is no room.
func (o observation) historyHasRoom(rs *replicaSet) bool {
	limit := o.deployment.Spec.RevisionHistoryLimit
	if limit == nil || *limit == 0 {
		return limit == nil
	}
	revision := rs.previous.revision()
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
