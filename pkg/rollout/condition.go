package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// Condition is what the condition inplace-rollout.io/Complete of a workload says. Its message, which [Condition.Message] makes,
// is for people: what a machine has to know of it, [Spoken] says, and of guarded rollouts their [Record]. It is a sentence,
// details, and who else resizes the pods:
//
//	all pods are of revision web-5d4b648cbf; also resized by updater
//	the pods from 2 on are of revision web-5d4b648cbf; partition 2 keeps the others as they are
//	1 of 3 pods resized; web-1: deferred on node a: no room; likewise web-0
//	left to the DaemonSet controller, template generation 2: 1 of 3 pods updated, 3 available
type Condition struct {
	// Complete: the rollout is over.
	Complete bool
	// Reason is one of the condition's; empty if there is nothing new to say.
	Reason string
	// Phase of the rollout. It decides on the sentence, and on the fields that the sentence is made of.
	Phase Phase
	// Updated pods, of Total: in the phases Resizing, Canary and Stopped; in the phase Reverted those that are back.
	Updated, Total int
	// Version that is rolled out: in the phases Canary, Stopped and Reverted; where it is guarded, in the phase Resizing; of StatefulSets and DaemonSets, Over; and of
	// DaemonSets, HandedOver.
	Version Version
	// Partition that keeps back the pods below it, in the phase Over; 0 if there is none.
	Partition int
	// Late is the edit of a Deployment that has not moved for as long as its user allows; empty if it has. The condition Progressing says so.
	Late Version
	// Kind of the built-in controller that makes the rollout, as in `StatefulSet`, in the phase HandedOver.
	Kind string
	// Why says how far a rollout is that others make, as in `1 of 3 pods updated, 3 available`, or what has failed.
	// Without a phase, it is the whole sentence.
	Why string
	// Details for people, such as what pods wait for. Each begins with "; ".
	Details string
	// Absent names the containers of the template that the pods lack, with commas between.
	Absent string
	// Others name who else resizes the pods, such as a vertical autoscaler, with commas between.
	Others string
	// Next is what a person does next; empty for what the reason asks for.
	Next string
}

// Phase is how far a rollout is. It is empty where the condition is about something else.
type Phase string

// The phases.
const (
	// PhaseResizing: pods are resized.
	PhaseResizing Phase = "Resizing"
	// PhaseCanary: the first pods of a guarded rollout are resized, and the others wait for them.
	PhaseCanary Phase = "Canary"
	// PhaseStopped: a pod of a guarded rollout has failed.
	PhaseStopped Phase = "Stopped"
	// PhasePending: the edit is held, and no controller has looked at it. It stands in records only, and so do the next two.
	PhasePending Phase = "Pending"
	// PhaseRolling: the canary is over, or there is none.
	PhaseRolling Phase = "Rolling"
	// PhaseReverting: the pods go back to the size from before.
	PhaseReverting Phase = "Reverting"
	// PhaseReverted: the pods go back to the size from before, or have gone back.
	PhaseReverted Phase = "Reverted"
	// PhaseHandedOver: the built-in controller makes the rollout.
	PhaseHandedOver Phase = "HandedOver"
	// phaseUnavailable: every pod is updated, and one is not available yet.
	phaseUnavailable Phase = "Unavailable"
	// phasePaused: the user has paused the workload.
	phasePaused Phase = "Paused"
	// PhaseOver: the rollout is over. The condition may be False all the same, because pods cannot have
	// a size for which they are not restarted.
	PhaseOver Phase = "Over"

	// phaseLate is what is spoken of a held edit of a Deployment that is late, whatever the phase of the condition.
	phaseLate Phase = "Late"
)

// Version names a template, as users know it, or an edit.
type Version string

// EditNamed is the version of a Deployment's edit.
func EditNamed(name string) Version { return Version("edit " + name) }

// RevisionNamed is the version of a StatefulSet or a Deployment.
func RevisionNamed(name string) Version { return Version("revision " + name) }

// TemplateGeneration is the version of a DaemonSet.
func TemplateGeneration(n string) Version { return Version("template generation " + n) }

// Invalid is the condition of a workload whose annotations cannot be understood: it
// stays as it is until they are mended.
func Invalid(err error) Condition {
	return Condition{Reason: judge.ReasonInvalidPolicy, Why: err.Error()}
}

// LeftOut is the condition of a workload in a namespace where the API server holds nothing. Because is why its rollout stays held
// all the same; empty if it is not held.
func LeftOut(kind, namespace, because string) Condition {
	why := "the namespaceSelector of the webhooks excludes namespace " + namespace + ": "
	if because != "" {
		return Condition{Reason: judge.ReasonNamespaceLeftOut, Why: why + "this rollout stays held, because " + because +
			". `kubectl inplace-rollout release` lets go of it"}
	}
	return Condition{Reason: judge.ReasonNamespaceLeftOut, Why: why + "edits are not held, and the " + kind + " controller makes the rollouts"}
}

// UnseenHold is the condition of a workload that is held, before anything else is known of that.
func UnseenHold() Condition {
	return Condition{Reason: judge.ReasonPending, Why: "waiting for inplace-rollout to look at this hold"}
}

// HandedOver is the condition of a rollout that the built-in controller makes.
func HandedOver(kind string, version Version, why string) Condition {
	return Condition{Reason: judge.ReasonProgressing, Phase: PhaseHandedOver, Kind: kind, Version: version, Why: why}
}

// Unavailable is the condition of a rollout that waits for updated pods to become available.
func Unavailable(why string) Condition {
	return Condition{Reason: judge.ReasonProgressing, Phase: phaseUnavailable, Why: why}
}

// Paused is the condition of a workload that the user has paused with a rollout to be made.
func Paused(why string) Condition {
	return Condition{Reason: judge.ReasonPaused, Phase: phasePaused, Why: why}
}

// Over is the condition of a workload where the rollout of a version is over.
func Over(version Version, partition int) Condition {
	return Condition{Complete: true, Reason: judge.ReasonComplete, Phase: PhaseOver, Version: version, Partition: partition}
}

// Because returns the condition with another reason why the rollout is not ours to make.
func (c Condition) Because(why string) Condition {
	c.Why = why
	return c
}

// NotHeld returns the condition of a workload that nobody holds: nothing can be tried again, before another edit.
func (c Condition) NotHeld() Condition {
	if c.Next == "" && slices.Contains([]string{judge.ReasonInfeasible, judge.ReasonUnsupportedByNode, judge.ReasonRoomUnknown}, c.Reason) {
		c.Next = "Edit it once more, to another size or with the action LiveResizePreferred"
	}
	return c
}

// And returns the condition with all that another one says as its details, for the reason of that.
func (c Condition) And(other Condition) Condition {
	c.Reason, c.Details = other.Reason, "; "+other.Message()
	return c
}

// Rejecting returns the condition with the new pod that a kubelet has rejected, where the built-in controller makes pods; nil if
// there is none.
func (c Condition) Rejecting(r *judge.Rejected) Condition {
	if r == nil || c.Complete || c.Phase != PhaseHandedOver && c.Phase != phaseUnavailable {
		return c
	}
	c.Details += "; " + r.Pod + ": " + r.Why + judge.AndThen
	if c.Reason == judge.ReasonProgressing {
		c.Reason = judge.ReasonPodRejected
	}
	return c
}

// Spoken is what a workload's status speaks of, for the next controller and for deploy/cluster/status.yaml.
// It stands in the annotation inplace-rollout.io/said-of, which is written together with the condition:
//
//	Over;revision web-5d4b648cbf;2
//	HandedOver;template generation 4;
//	Late;edit 42;
//	Over;generation 7 of 0c8d7b3e;
type Spoken struct {
	Phase   Phase
	Version Version
	// except is which pods have something else by the word of the user: the partition that keeps them back, or
	// those of classes of nodes.
	except string
}

// OverUnnamed begins what deploy/cluster/hold.yaml makes of Over;edit 42; at opt-out: nobody names edits then.
const OverUnnamed = string(PhaseOver) + ";generation "

// exceptClasses is where pods have the size of their node's class, or had it before.
const exceptClasses = "classes"

// Of returns what the condition speaks of. That is nothing where no version is named.
func (c Condition) Of() (of Spoken) {
	switch {
	case c.Late != "":
		return Spoken{Phase: phaseLate, Version: c.Late}
	case c.Version == "" || c.Phase != PhaseOver && c.Phase != PhaseHandedOver:
		return Spoken{}
	}
	of = Spoken{Phase: c.Phase, Version: c.Version}
	if c.Partition > 0 {
		of.except = strconv.Itoa(c.Partition)
	} else if c.Phase == PhaseOver && c.Details != "" {
		of.except = exceptClasses
	}
	return of
}

// String is the annotation's value; empty for nothing.
func (of Spoken) String() string {
	if of == (Spoken{}) {
		return ""
	}
	return string(of.Phase) + ";" + string(of.Version) + ";" + of.except
}

// Over reports whether it speaks of the same rollout, which is over, as the condition.
func (of Spoken) Over(c Condition) bool {
	if of.except == exceptClasses {
		of.except = ""
	}
	return of.Phase == PhaseOver && of == c.Of()
}

// Told is the message, and what a person does next, where one must.
func (c Condition) Told() string {
	return strings.TrimSuffix(c.Message(), ".") + after(". ", cmp.Or(c.Next, judge.Acts[c.Reason].Next))
}

// Message is the condition's text.
func (c Condition) Message() string {
	return c.sentence() + c.Details + after("; not in the pods, so not sized: ", c.Absent) + after("; also resized by ", c.Others)
}

func (c Condition) sentence() string {
	switch c.Phase {
	case PhaseResizing:
		return fmt.Sprintf("%d of %d pods resized", c.Updated, c.Total)
	case PhaseCanary:
		return fmt.Sprintf("canary of %s: %d of %d pods resized", c.Version, c.Updated, c.Total)
	case PhaseStopped:
		return fmt.Sprintf("stopped at %d of %d pods of %s", c.Updated, c.Total, c.Version) + after(": ", c.Why)
	case PhaseReverted:
		return fmt.Sprintf("reverted %s, %d of %d pods have their size from before", c.Version, c.Updated, c.Total) + after(": ", c.Why)
	case PhaseOver:
		of := cmp.Or(string(c.Version), "the newest revision")
		if c.Partition > 0 {
			return fmt.Sprintf("the pods from %d on are of %s; partition %[1]d keeps the others as they are", c.Partition, of)
		}
		return "all pods are of " + of
	case PhaseHandedOver:
		return "left to the " + c.Kind + " controller" + after(", ", string(c.Version)) + after(": ", c.Why)
	case phaseUnavailable:
		return "waiting for pods to become available" + after(": ", c.Why)
	case phasePaused:
		return "paused by the user" + after(": ", c.Why)
	default:
		return c.Why
	}
}

// after returns the text with what comes before it; empty if the text is.
func after(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// StoredCondition is the condition as the API server stores it: what those of the kinds have in common.
type StoredCondition struct {
	Status             corev1.ConditionStatus
	LastTransitionTime metav1.Time
	Reason, Message    string
	// Of is what the condition speaks of.
	Of Spoken
}

// CompleteOf returns the condition inplace-rollout.io/Complete of a workload, with what it speaks of by the annotations; nil if it has
// none. One that admission has taken back speaks of nothing.
func CompleteOf[W metav1.Object](w W, conditionOf func(w W, of string) *StoredCondition) *StoredCondition {
	c, said := conditionOf(w, api.ConditionComplete), strings.SplitN(w.GetAnnotations()[api.SaidOfAnnotation], ";", 3)
	if c != nil && !c.Pending() && len(said) == 3 {
		c.Of = Spoken{Phase: Phase(said[0]), Version: Version(said[1]), except: said[2]}
	}
	return c
}

// Rested reports whether the condition of a workload says that it is Complete, or did until the edit that it has now.
func Rested(w metav1.Object, c *StoredCondition) bool {
	return c.Complete() || c.Pending() && strings.HasPrefix(w.GetAnnotations()[api.SaidOfAnnotation], string(PhaseOver)+";")
}

// Stored returns the condition as it is written, with the time of its transition.
func (c Condition) Stored(transition metav1.Time) StoredCondition {
	stored := StoredCondition{Status: corev1.ConditionFalse, LastTransitionTime: transition, Reason: c.Reason, Message: c.Told(), Of: c.Of()}
	if c.Complete {
		stored.Status = corev1.ConditionTrue
	}
	return stored
}

// SpeaksOf returns what the condition speaks of; nothing if c is nil.
func (c *StoredCondition) SpeaksOf() Spoken {
	if c == nil {
		return Spoken{}
	}
	return c.Of
}

// Complete reports whether the condition says that there is nothing to do; false if c is nil.
// The admission policy takes that back with every new revision.
func (c *StoredCondition) Complete() bool { return c != nil && c.Status == corev1.ConditionTrue }

// DeletesAfterResize reports whether the rollout goes no further because others delete pods that are resized; false if c is nil.
func (c *StoredCondition) DeletesAfterResize() bool {
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == judge.ReasonDeletedAfterResize
}

// Pending reports whether the admission policies have written the condition. They cannot set
// its time, which is still that of the condition before, such as the last Complete.
func (c *StoredCondition) Pending() bool { return c.Has(judge.ReasonPending) }

// Has reports whether the condition has this reason; false if c is nil.
func (c *StoredCondition) Has(reason string) bool { return c != nil && c.Reason == reason }
