// Package invariant checks what users are promised, from the API server's audit log alone: who
// wrote what to which object, and what was stored then. It knows nothing of what the controller
// says of itself, and shares no code with it.
//
// What is written may rest on what was read a moment before: a user may have edited the workload
// meanwhile, and faults delay requests. So a write is right if it was right at any time within
// [Options.Lag] before it. The promises are strict where nothing of the kind happens, as for a
// workload whose annotations never change.
package invariant

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// The promises.
const (
	// Restart: a pod goes only if its user has it go, or the table of policies and actions
	// allows it for this pod at that time.
	Restart = "restart"
	// Once: no pod is restarted for what its successor would have, too, and one edit takes from one replica at most one
	// restart by us.
	Once = "once"
	// Availability: a restart never leaves fewer pods available than the workload allows.
	Availability = "availability"
	// Action: no pod is resized where the action or the policy in force says that it restarts.
	Action = "action"
	// Partition: no pod of a StatefulSet is touched that its user's partition keeps back.
	Partition = "partition"
	// Order: the pods of a StatefulSet are asked in reverse ordinal order.
	Order = "order"
	// Apart: with the strategy Recreate, the controller takes down no pod, for another one would
	// be made before that has gone; and none comes during a hold while others go.
	Apart = "apart"
	// Room: no pod that runs is given up for one that no node can hold.
	Room = "room"
	// OptedIn: nothing is written but opted-in workloads, their pods and their ReplicaSets. The condition goes at opt-out.
	OptedIn = "opted in"
	// Fence: of those only what a rollout needs is written.
	Fence = "fence"
	// Template: a StatefulSet's pod is never made of an older template, sizes aside, than the newest
	// that its ordinal has had.
	Template = "template"
	// Proof: no more pods are asked than the limit allows while others are down, or those asked before have not been
	// Ready at their size for minReadySeconds; and first one is asked, then as many more as have been.
	Proof = "proof"
	// Canary: no more Ready pods are asked than the canary is, until so many have been Ready at their size for its time.
	Canary = "canary"
	// Revert: a pod that has its workload's size loses it only for one that the workload had before, if the user wants that after a
	// failure.
	Revert = "revert"
	// Failed: a size with which a guarded rollout was stopped reaches no pod, by a resize or by birth, before a person asks for it again.
	Failed = "failed"
	// Held: what somebody else writes is held if a controller is there, and only then, or if the action in
	// force is LiveResize; and what is not held the controller does not roll out, too.
	Held = "held"
	// HandOver: an operator that deletes pods of a set under OnDelete by their revision, once the status speaks of
	// the set's generation, deletes none that may still be resized, if a controller is there.
	HandOver = "hand-over"
	// Complete: the condition is True only if each pod that may move has its size and revision, and a pod is labelled with a
	// revision only if it has its size.
	Complete = "complete"
)

// Options of Check.
type Options struct {
	// Controllers are the users that the controller writes as.
	Controllers []string
	// Operators is what the names of operators begin with, which delete pods of sets under OnDelete.
	Operators string
	// DeferredTimeout and ErrorTimeout are the flags of the controller.
	DeferredTimeout, ErrorTimeout time.Duration
	// OldKubelets are the nodes whose kubelets lower no memory limit in place.
	OldKubelets []string
	// Misreporting are the nodes whose kubelets say other sizes of pods than are in force.
	Misreporting []string
	// Gaps are when not all admission policies were there: what is edited then may be held, or not.
	Gaps []Span
	// Doubts are when the log may lack what was stored.
	Doubts []Span
	// Lag is how long before a write the reads may be that it rests on; 10 s if 0.
	Lag time.Duration
}

// Violation is a promise that was broken.
type Violation struct {
	// Invariant is one of the promises above.
	Invariant string
	// Object that it was broken for, such as pods/web-1.
	Object string
	// Message says how.
	Message string
	// At is when, by the API server's clock.
	At time.Time
}

// String is the violation in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s %s: %s: %s", v.At.Format("15:04:05.000"), v.Invariant, v.Object, v.Message)
}

// Check returns the promises that were broken in one namespace. The events are those of the
// audit log that are about the namespace, from its beginning on, with requests and answers; those
// about the nodes of its DaemonSets; and, for [Held], those about the controller's ServiceAccount.
func Check(events []auditv1.Event, o Options) ([]Violation, error) {
	writes, err := inOrder(events, cmp.Or(o.Lag, 10*time.Second))
	if err != nil {
		return nil, err
	}
	return Judge(writes, o), nil
}

// Judge is Check for writes in the order in which they were stored.
func Judge(writes []Write, o Options) []Violation {
	h := newHistory(o)
	for _, w := range writes {
		w.at, w.resized = w.StageTimestamp.Time, w.ObjectRef.Subresource == "resize"
		h.check(w)
		h.apply(w)
	}
	for _, judge := range h.judgments {
		judge()
	}
	slices.SortStableFunc(h.violations, func(a, b Violation) int { return a.At.Compare(b.At) })
	return h.violations
}
