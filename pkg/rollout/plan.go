package rollout

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Plan is the next step of a workload's rollout: what there is to say, and all that is to
// be written.
type Plan struct {
	Step

	// Condition that the observation justifies; what the plan is about to do is not in it.
	// Without a reason there is nothing new to say.
	Condition Condition
	// repeatsComplete: Complete is only said once more, with other numbers. Nothing rests on these.
	repeatsComplete bool
	// Started says what is rolled out, for the rollout's first event; empty if nothing is.
	Started string
	// HandedOver says which rollout the built-in controller makes without us, and why, for an event;
	// empty if that is not so, or known.
	HandedOver string
	// Resized are the members whose resize is over, if nothing is written for that.
	Resized []*judge.Member
	// Unacknowledged says what the built-in controller has been shown, and has yet to write something of; empty if there is nothing.
	Unacknowledged string
	// Revision that is rolled out.
	Revision Revision
	// Replaced are the pods that the plan gives up for new ones.
	Replaced []Restart
	// Found is what the plan has found of the pods, for [VerdictCache.Keep].
	Found *Found
	// Writes are made in this order. If one fails, the others are made all the same.
	Writes []Write
}

// Revision is the newest one of a workload.
type Revision struct {
	// Name distinguishes the revision from others of the workload.
	Name string
	// Template that pods of it are made from.
	Template *corev1.PodTemplateSpec
	// Labels that the built-in controller gives to pods of it, beside those of the template.
	Labels map[string]string
}

// Size names what the API server is asked for: these changes, for this revision.
func (r Revision) Size(changes []resize.Change) string {
	return r.Name + " " + resize.Describe(changes)
}

// Write is one write of a plan. Its string is what --dry-run logs.
type Write interface{ fmt.Stringer }

// Harmless is a write that lets nobody take a pod down, neither the built-in controller nor us.
type Harmless interface {
	Write
	Harmless()
}

// NeedsLiveRead reports whether the write must not rest on a watch that may be behind: the pods are read from the API server first.
func NeedsLiveRead(w Write) bool {
	if r, is := w.(ResizePod); is { // a container that restarts is down like a pod that goes
		return r.Member.Target.Restarts()
	}
	_, harmless := w.(Harmless)
	return !harmless
}

// Guarding is a write that need not wait for the record of a guarded rollout.
type Guarding interface {
	// Guards reports whether all that the write does is to keep new pods from a size that is not proved.
	Guards() bool
}

// AwaitCount has the plan wait until the controller of that kind counts as many pods as updated as there are.
func (p *Plan) AwaitCount(kind string) {
	p.Defer()
	p.Unacknowledged = fmt.Sprintf("waiting for the %s controller to count %d updated pods", kind, p.Updated)
}

// NeedsLiveRead reports whether the plan must not rest on a watch that may be behind: it says
// Complete, or one of its writes does, or pods are counted that have a size as a canary.
func (p Plan) NeedsLiveRead() bool {
	if p.Condition.Complete && !p.repeatsComplete || p.Canary && len(p.Resize) > 0 {
		return true
	}
	return slices.ContainsFunc(p.Writes, NeedsLiveRead)
}

// LastWord reports whether the condition is not about to change.
func (p Plan) LastWord() bool {
	return p.NothingUnderWay() && p.Urgency != Later && (p.Condition.Complete || !p.NeedsLiveRead())
}

// ResizePod asks for a member's new size.
type ResizePod struct{ Member judge.Member }

func (w ResizePod) String() string {
	return "resize pod " + w.Member.Name + ": " + resize.Describe(w.Member.Target.Changes)
}

// Resizes returns the writes that ask for the new sizes of the members.
func Resizes(members []judge.Member) []Write {
	writes := make([]Write, len(members))
	for i, m := range members {
		writes[i] = ResizePod{m}
	}
	return writes
}

// MarkPod marks a member that has the new size as one of the revision: its label says so to the
// built-in controller.
type MarkPod struct {
	Member judge.Member
	// Label is the value of controller-revision-hash, and Revision how people know it.
	Label, Revision string
}

// Harmless is that of [Harmless].
func (MarkPod) Harmless() {}

func (w MarkPod) String() string { return "mark pod " + w.Member.Name + " as updated" }

// DeletePod deletes a pod that only a new one can replace, and that the built-in controller would
// not restart by itself.
type DeletePod struct{ Restart Restart }

func (w DeletePod) String() string {
	return "delete pod " + w.Restart.Member.Name + ": " + w.Restart.Reason
}

// ShowGeneration has this generation of a held workload count as observed while its pods are overdue to be Ready. Admission
// says that it is not observed, so that everybody waits, and there are operators that make pods Ready only when it is. The hold
// itself stays. Whoever waits for the workload waits for its pods to be Ready, too.
type ShowGeneration struct{ Generation int64 }

// Harmless is that of [Harmless].
func (ShowGeneration) Harmless() {}

func (w ShowGeneration) String() string {
	return fmt.Sprintf("show generation %d as observed", w.Generation)
}

// Show has the generation shown where pods are overdue, and the condition say so. So many are not Ready.
func (p *Plan) Show(generation, observed int64, unready int) {
	if !p.Overdue {
		return
	}
	p.Condition.Details += "; the generation counts as observed until its pods are Ready, in case an operator waits for it"
	if observed < generation && unready > 0 {
		p.Writes = append(p.Writes, ShowGeneration{generation})
	}
}

// Release lets go of the hold, so that what the user wants comes back.
type Release struct {
	// HandOver is why the rest is left to the built-in controller; empty if there is no rest.
	HandOver string
	// To is the rollout that is left then.
	To Condition
	// Cause is why the built-in controller restarts pods for the rest; empty if it restarts none.
	Cause judge.Cause
	// Over is the edit of a Deployment that is over, where the admission policies cannot know that from the status yet.
	Over Version
	// KeptBack is the name of a StatefulSet's newest revision, where the pods that its user keeps back differ from it in more than
	// their size; else it is empty.
	KeptBack string
}

// LetGo returns the release of a StatefulSet or DaemonSet, which leaves the plan's restarts to the built-in controller of that kind.
func (p Plan) LetGo(kind string) Release {
	r := Release{To: HandedOver(kind, RevisionNamed(p.Revision.Name), "")}
	if len(p.Restart) > 0 {
		r.HandOver, r.Cause = p.Restart[0].Reason, p.Restart[0].Cause
	}
	return r
}

// Warns reports whether pods restart of which the edit has not asked for that: it has changed only their size.
func (w Release) Warns() bool { return w.Cause != "" && w.Cause != judge.CauseTemplate }

func (w Release) String() string {
	if w.HandOver != "" {
		return "release the hold: " + w.HandOver
	}
	return "release the hold"
}
