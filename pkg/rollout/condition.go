package rollout

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition is what the condition inplace-rollout.io/Complete of a workload says. Its message is made
// by [Condition.Message] and read by [Parse], and nowhere else but in the CEL of
// deploy/cluster/pending-*.yaml. It is a sentence, details, and who else resizes the pods:
//
//	3 of 3 pods are of revision web-5d4b648cbf; partition 2 keeps back the others; also resized by updater
//	1 of 3 pods resized; web-1: deferred on node a: no room; likewise web-0
//	left to the DaemonSet controller, template generation 2: 1 of 3 pods updated, 3 available
type Condition struct {
	// Complete: the rollout is over.
	Complete bool
	// Reason is one of the condition's; empty if there is nothing new to say.
	Reason string
	// Phase of the rollout. It decides on the sentence, and on the fields that the sentence is made of.
	Phase Phase
	// Updated pods, of Total: in the phases Resizing, Canary, Stopped and Over; in the phase Reverted those that are back.
	Updated, Total int
	// Version that is rolled out: in the phases Canary, Stopped, Reverted and Over and, of DaemonSets, HandedOver.
	Version Version
	// Partition that keeps back the pods below it, in the phase Over; 0 if there is none.
	Partition int
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
	// PhaseReverted: the pods go back to the size from before, or have gone back.
	PhaseReverted Phase = "Reverted"
	// PhaseHandedOver: the built-in controller makes the rollout.
	PhaseHandedOver Phase = "HandedOver"
	// PhaseUnavailable: every pod is updated, and one is not available yet.
	PhaseUnavailable Phase = "Unavailable"
	// PhasePaused: the user has paused the workload.
	PhasePaused Phase = "Paused"
	// PhaseOver: the rollout is over. The condition may be False all the same, because pods cannot have
	// a size for which they are not restarted.
	PhaseOver Phase = "Over"
)

// Version names a template, as users know it.
type Version string

// RevisionNamed is the version of a StatefulSet or a Deployment.
func RevisionNamed(name string) Version { return Version("revision " + name) }

// TemplateGeneration is the version of a DaemonSet.
func TemplateGeneration(n string) Version { return Version("template generation " + n) }

// Invalid is the condition of a workload whose annotations cannot be understood: it
// stays as it is until they are mended.
func Invalid(err error) Condition {
	return Condition{Reason: ReasonInvalidPolicy, Why: err.Error()}
}

// LeftOut is the condition of a workload in a namespace where the API server holds nothing. Because is why its rollout stays held
// all the same; empty if it is not held.
func LeftOut(kind, namespace, because string) Condition {
	why := "the namespaceSelector of the webhooks excludes namespace " + namespace + ": "
	if because != "" {
		return Condition{Reason: ReasonNamespaceLeftOut, Why: why + "this rollout stays held, because " + because +
			". `kubectl inplace-rollout release` leaves it to the " + kind + " controller"}
	}
	return Condition{Reason: ReasonNamespaceLeftOut, Why: why + "edits are not held, and the " + kind + " controller makes the rollouts"}
}

// UnseenHold is the condition of a workload that is held, before anything else is known of that.
func UnseenHold() Condition {
	return Condition{Reason: ReasonPending, Why: "waiting for inplace-rollout to look at this hold"}
}

// HandedOver is the condition of a rollout that the built-in controller makes.
func HandedOver(kind string, version Version, why string) Condition {
	return Condition{Reason: ReasonProgressing, Phase: PhaseHandedOver, Kind: kind, Version: version, Why: why}
}

// Unavailable is the condition of a rollout that waits for updated pods to become available.
func Unavailable(why string) Condition {
	return Condition{Reason: ReasonProgressing, Phase: PhaseUnavailable, Why: why}
}

// Paused is the condition of a workload that the user has paused with a rollout to be made.
func Paused(why string) Condition {
	return Condition{Reason: ReasonPaused, Phase: PhasePaused, Why: why}
}

// Over is the condition of a workload where the rollout of a version is over.
func Over(updated, total int, version Version, partition int) Condition {
	return Condition{Complete: true, Reason: ReasonComplete, Phase: PhaseOver, Updated: updated, Total: total, Version: version, Partition: partition}
}

// Because returns the condition with another reason why the rollout is not ours to make.
func (c Condition) Because(why string) Condition {
	c.Why = why
	return c
}

// And returns the condition with all that another one says as its details, for the reason of that.
func (c Condition) And(other Condition) Condition {
	c.Reason, c.Details = other.Reason, "; "+other.Message()
	return c
}

// Rejecting returns the condition with the new pod that a kubelet has rejected, where the built-in controller makes pods; nil if
// there is none.
func (c Condition) Rejecting(r *Rejected) Condition {
	if r == nil || c.Complete || c.Phase != PhaseHandedOver && c.Phase != PhaseUnavailable {
		return c
	}
	c.Details += "; " + r.Pod + ": " + r.Why + andThen
	if c.Reason == ReasonProgressing {
		c.Reason = ReasonPodRejected
	}
	return c
}

// Same reports whether both conditions are about the same phase of the same rollout. The counts do not
// matter, nor do the details.
func (c Condition) Same(other Condition) bool {
	return c.Phase == other.Phase && c.Version == other.Version && c.Partition == other.Partition
}

// What the sentences of the phases begin or end with.
const (
	resized       = "resized"
	areOf         = "are of "
	leftTo        = "left to the "
	theController = " controller"
	unavailable   = "waiting for pods to become available"
	paused        = "paused by the user"
	partitioned   = "; partition %d keeps back the others"
	canaryOf      = "canary of "
	stoppedAt     = "stopped at "
	reverted      = "reverted "
	podsOf        = " pods of "
	lacking       = "; not in the pods, so not sized: "
	alsoResizedBy = "; also resized by "
)

// Message is the condition's text.
func (c Condition) Message() string {
	message := c.sentence()
	if c.Partition > 0 {
		message += fmt.Sprintf(partitioned, c.Partition)
	}
	message += c.Details
	if c.Absent != "" {
		message += lacking + c.Absent
	}
	if c.Others != "" {
		message += alsoResizedBy + c.Others
	}
	return message
}

func (c Condition) sentence() string {
	switch c.Phase {
	case PhaseResizing:
		return fmt.Sprintf("%d of %d pods %s", c.Updated, c.Total, resized)
	case PhaseCanary:
		return fmt.Sprintf("%s%s: %d of %d pods %s", canaryOf, c.Version, c.Updated, c.Total, resized)
	case PhaseStopped:
		return fmt.Sprintf("%s%d of %d%s%s", stoppedAt, c.Updated, c.Total, podsOf, c.Version) + after(": ", c.Why)
	case PhaseReverted:
		return fmt.Sprintf("%s%s, %d of %d pods have their size from before", reverted, c.Version, c.Updated, c.Total) + after(": ", c.Why)
	case PhaseOver:
		return fmt.Sprintf("%d of %d pods %s%s", c.Updated, c.Total, areOf, c.Version)
	case PhaseHandedOver:
		return leftTo + c.Kind + theController + after(", ", string(c.Version)) + after(": ", c.Why)
	case PhaseUnavailable:
		return unavailable + after(": ", c.Why)
	case PhasePaused:
		return paused + after(": ", c.Why)
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

// Parse returns what a condition says. Its message is the one that was parsed, whoever has written it:
// one that is not of a phase is all Why.
func Parse(complete bool, reason, message string) Condition {
	other := Condition{Complete: complete, Reason: reason, Why: message}
	if i := strings.LastIndex(message, alsoResizedBy); i >= 0 && i+len(alsoResizedBy) < len(message) {
		other.Why, other.Others = message[:i], message[i+len(alsoResizedBy):]
	}
	if before, absent, is := strings.Cut(other.Why, lacking); is && absent != "" {
		other.Why, other.Absent = before, absent
	}
	c := other
	c.Why = ""
	sentence := other.Why
	if i := strings.Index(sentence, "; "); i >= 0 {
		sentence, c.Details = sentence[:i], sentence[i:]
	}
	if c.parse(sentence); c.Phase == "" || c.Message() != message {
		return other
	}
	return c
}

// parse reads the sentence of a phase, and of the details those that have a field. The phase stays
// empty if it is not one.
func (c *Condition) parse(sentence string) {
	if why, is := strings.CutPrefix(sentence, unavailable); is {
		c.Phase, c.Why = PhaseUnavailable, strings.TrimPrefix(why, ": ")
		return
	}
	if why, is := strings.CutPrefix(sentence, paused); is {
		c.Phase, c.Why = PhasePaused, strings.TrimPrefix(why, ": ")
		return
	}
	if left, is := strings.CutPrefix(sentence, leftTo); is {
		to, why, _ := strings.Cut(left, ": ")
		kind, version, _ := strings.Cut(to, theController)
		c.Phase, c.Kind, c.Version, c.Why = PhaseHandedOver, kind, Version(strings.TrimPrefix(version, ", ")), why
		return
	}
	if c.parseGuarded(sentence) {
		return
	}
	counts, rest, _ := strings.Cut(sentence, " pods ")
	updated, total, _ := strings.Cut(counts, " of ")
	c.Updated, _ = strconv.Atoi(updated)
	c.Total, _ = strconv.Atoi(total)
	if rest == resized {
		c.Phase = PhaseResizing
	}
	if version, is := strings.CutPrefix(rest, areOf); is {
		c.Phase, c.Version = PhaseOver, Version(version)
		if n, _ := fmt.Sscanf(c.Details, partitioned, &c.Partition); n > 0 {
			c.Details = strings.TrimPrefix(c.Details, fmt.Sprintf(partitioned, c.Partition))
		}
	}
}

// parseGuarded reads the sentence of a phase that only guarded rollouts have, and reports whether it is one.
func (c *Condition) parseGuarded(sentence string) bool {
	count := func(text string) { _, _ = fmt.Sscanf(text, "%d of %d", &c.Updated, &c.Total) }
	said, why, _ := strings.Cut(sentence, ": ")
	if version, is := strings.CutPrefix(said, canaryOf); is {
		c.Phase, c.Version = PhaseCanary, Version(version)
		count(why)
	} else if counts, is := strings.CutPrefix(said, stoppedAt); is {
		counts, version, _ := strings.Cut(counts, podsOf)
		c.Phase, c.Version, c.Why = PhaseStopped, Version(version), why
		count(counts)
	} else if version, is := strings.CutPrefix(said, reverted); is {
		version, counts, _ := strings.Cut(version, ", ")
		c.Phase, c.Version, c.Why = PhaseReverted, Version(version), why
		count(counts)
	}
	return c.Phase != ""
}

// StoredCondition is the condition as the API server stores it: what those of the kinds have in common.
type StoredCondition struct {
	Status             corev1.ConditionStatus
	LastTransitionTime metav1.Time
	Reason, Message    string
}

// Stored returns the condition as it is written, with the time of its transition.
func (c Condition) Stored(transition metav1.Time) StoredCondition {
	stored := StoredCondition{Status: corev1.ConditionFalse, LastTransitionTime: transition, Reason: c.Reason, Message: c.Message()}
	if c.Complete {
		stored.Status = corev1.ConditionTrue
	}
	return stored
}

// Says returns what the condition says; nothing if c is nil.
func (c *StoredCondition) Says() Condition {
	if c == nil {
		return Condition{}
	}
	return Parse(c.Complete(), c.Reason, c.Message)
}

// Complete reports whether the condition says that there is nothing to do; false if c is nil.
// The admission policy takes that back with every new revision.
func (c *StoredCondition) Complete() bool { return c != nil && c.Status == corev1.ConditionTrue }

// Pending reports whether the admission policies have written the condition. They cannot set
// its time, which is still that of the condition before, such as the last Complete.
func (c *StoredCondition) Pending() bool { return c != nil && c.Reason == ReasonPending }
