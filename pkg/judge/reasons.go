package judge

import "github.com/inplace-rollout/inplace-rollout/pkg/resize"

// Reasons of the condition inplace-rollout.io/Complete.
const (
	// ReasonPending is set by the admission policy until the controller has looked.
	ReasonPending = "Pending"
	// ReasonComplete: everything that the user lets move has moved.
	ReasonComplete = "Complete"
	// ReasonProgressing: under way.
	ReasonProgressing = "Progressing"
	// ReasonDeferred: a node has no room now; its kubelet tries again.
	ReasonDeferred = "Deferred"
	// ReasonInfeasible: a node can never hold the new size.
	ReasonInfeasible = "Infeasible"
	// ReasonUnsupportedByNode: a node's kubelet does not know how to do it.
	ReasonUnsupportedByNode = "UnsupportedByNode"
	// ReasonInvalid: the API server would refuse a new pod of this size, too.
	ReasonInvalid = "Invalid"
	// ReasonAdmissionDenied: the API server does not take a resize now, because of a
	// webhook, a policy or a rule that we do not know; it is asked for again.
	ReasonAdmissionDenied = "AdmissionDenied"
	// ReasonResizeError: the kubelet fails to carry a resize out; it tries again.
	ReasonResizeError = "ResizeError"
	// ReasonQuotaExceeded: a quota has no room for the new size now; it is asked for again.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonRoomUnknown: only a restart helps, and it cannot be known whether any node has room for the new size.
	ReasonRoomUnknown = "RoomUnknown"
	// ReasonNoNodeFits: only a restart helps, but no node has room for the new size.
	ReasonNoNodeFits = "NoNodeFits"
	// ReasonDisruptionBudget: a pod has to be evicted, and a PodDisruptionBudget forbids it now.
	ReasonDisruptionBudget = "DisruptionBudget"
	// ReasonNotReadyAfterResize: pods are not Ready since they were resized.
	ReasonNotReadyAfterResize = "NotReadyAfterResize"
	// ReasonResizeFailed: a pod of a guarded rollout has failed since it was resized; no other pod is asked.
	ReasonResizeFailed = "ResizeFailed"
	// ReasonCheckUnknown: nothing is known, for too long, of a check that a resized pod has to pass.
	ReasonCheckUnknown = "CheckUnknown"
	// ReasonReverted: and the pods that had the size have gone back.
	ReasonReverted = "Reverted"
	// ReasonPodRejected: a new pod was rejected by its kubelet; no other pod is given up for a new one.
	ReasonPodRejected = "PodRejected"
	// ReasonDeletedAfterResize: others have deleted pods soon after their resize; no other pod is asked.
	ReasonDeletedAfterResize = "DeletedAfterResize"
	// ReasonNodeLost: a pod's node is gone, or has not been heard of.
	ReasonNodeLost = "NodeLost"
	// ReasonPaused: the user has paused the Deployment, and nothing is done until it is resumed.
	ReasonPaused = "Paused"
	// ReasonInvalidPolicy: an annotation is malformed; nothing is done until it is mended.
	ReasonInvalidPolicy = "InvalidPolicy"
	// ReasonNamespaceLeftOut: the webhook is not asked in this namespace, so nothing is held, and nothing is done.
	ReasonNamespaceLeftOut = "NamespaceLeftOut"
	// ReasonWaitingForDelete: pods of an OnDelete workload get the new template when the user deletes them.
	ReasonWaitingForDelete = "WaitingForDelete"
)

// Act is what a person does where a rollout does not go on, or not as hoped, without one.
type Act struct {
	Next  string // what to do next; empty where the text of the reason says that itself
	Stops bool   // nothing goes on until then. Room comes and goes: what lacks it may go on by itself, however much that is
	Rests Rest   // on what the reason rests
}

// Rest is on what a reason rests that not everybody can see: then a plan without that does not refute it.
type Rest int

const (
	// OnTheWorkload rests on what whoever can read the workload and its pods sees.
	OnTheWorkload Rest = iota
	// OnMemory rests on what only a controller that was there remembers, such as the answer to a request.
	OnMemory
	// OnNodes rests on nodes, on what new pods refer to, and on LimitRanges.
	OnNodes
)

// Acts are those of the reasons that have one. The message of a condition with the reason ends with what to do next.
var Acts = map[string]Act{
	ReasonInfeasible:          {"Choose another size, or allow restarts: `kubectl inplace-rollout retry` with --action=LiveResizePreferred", true, OnNodes},
	ReasonUnsupportedByNode:   {"Update the kubelet, or allow restarts: `kubectl inplace-rollout retry` with --action=LiveResizePreferred", true, OnMemory},
	ReasonInvalid:             {"Choose a size that is allowed, or change what forbids it, such as a LimitRange", true, OnNodes},
	ReasonAdmissionDenied:     {"Have it allowed, or choose another size if the resize is refused; it is tried again every 30 s", false, OnMemory},
	ReasonResizeError:         {"If a limit is below what the pod uses, choose a higher one; else see the kubelet's log", false, OnTheWorkload},
	ReasonQuotaExceeded:       {"Raise the quota, or choose a smaller size; it is tried again every 30 s", false, OnMemory},
	ReasonRoomUnknown:         {"Look whether a node has room, and restart the pods: `kubectl inplace-rollout retry` with --action=Restart", true, OnMemory},
	ReasonNoNodeFits:          {"Choose a smaller size, or make room on a node where the pod can run", false, OnNodes},
	ReasonDisruptionBudget:    {"Wait, allow a disruption in the PodDisruptionBudget, or leave the pod only one; it is tried again every 30 s", false, OnMemory},
	ReasonNotReadyAfterResize: {"See what `kubectl describe pod` says of it; if the size is wrong, edit it again", false, OnTheWorkload},
	ReasonResizeFailed:        {"Choose another size, go back with `kubectl inplace-rollout undo`, or try it again with retry", true, OnMemory},
	ReasonCheckUnknown:        {"Mend the check, or edit again without the annotation inplace-rollout.io/checks; `kubectl inplace-rollout promote` ends a canary that waits for it", false, OnMemory},
	ReasonReverted:            {"Choose another size, or undo the edit: `kubectl rollout restart` uses the size that failed", true, OnTheWorkload},
	ReasonPodRejected:         {"", true, OnMemory},
	ReasonDeletedAfterResize:  {"Have these pods left alone and try it again: `kubectl inplace-rollout retry`, which restarts them with --action=Restart", true, OnMemory},
	ReasonNodeLost:            {"Bring the node back, or delete it", false, OnNodes},
	ReasonPaused:              {"`kubectl rollout resume` has it go on", true, OnTheWorkload},
	ReasonInvalidPolicy:       {"Correct the annotation, or remove it", true, OnTheWorkload},
	ReasonNamespaceLeftOut:    {"", true, OnMemory},
	ReasonWaitingForDelete:    {"Delete these pods when it suits you", true, OnTheWorkload},
}

// Reasons of events. The messages say why.
const (
	// EventStarted: a rollout has begun. The message says of which revision, and what changes.
	EventStarted = "RolloutStarted"
	// EventResized: a pod has the new size and counts as updated.
	EventResized = "PodResized"
	// EventDeferred: a pod's resize waits for room on its node.
	EventDeferred = "ResizeDeferred"
	// EventInfeasible: a pod's node can never hold the new size.
	EventInfeasible = "ResizeInfeasible"
	// EventUnsupportedByNode: a pod's node does not know how to resize it.
	EventUnsupportedByNode = "UnsupportedByNode"
	// EventInvalid: the API server would refuse a new pod of this size, too.
	EventInvalid = "Invalid"
	// EventAdmissionDenied: the API server does not take a resize now.
	EventAdmissionDenied = "AdmissionDenied"
	// EventResizeError: a resize fails.
	EventResizeError = "ResizeError"
	// EventQuotaExceeded: a quota has no room for a pod's new size now.
	EventQuotaExceeded = "QuotaExceeded"
	// EventRestart: only a new pod can have the new size.
	EventRestart = "RestartFallback"
	// EventWaitingForDelete: a pod waits for its deletion by the user.
	EventWaitingForDelete = "WaitingForDelete"
	// EventRoomUnknown: a restart is not made because it cannot be known whether a node has room for the new size.
	EventRoomUnknown = "RoomUnknown"
	// EventNoNodeFits: a restart is not made because no node has room for the new size.
	EventNoNodeFits = "NoNodeFits"
	// EventDisruptionBudget: a PodDisruptionBudget does not let a pod be evicted now.
	EventDisruptionBudget = "DisruptionBudget"
	// EventNotReadyAfterResize: a pod is not Ready since it was resized.
	EventNotReadyAfterResize = "NotReadyAfterResize"
	// EventCanaryStarted: the first pods of a guarded rollout get the size, and the others wait.
	EventCanaryStarted = "CanaryStarted"
	// EventCanaryPassed: they have been well with it, and the others follow.
	EventCanaryPassed = "CanaryPassed"
	// EventCanaryPromoted: somebody has ended their canary, and the others follow.
	EventCanaryPromoted = "CanaryPromoted"
	// EventResizeFailed: a pod of a guarded rollout has failed since it was resized.
	EventResizeFailed = "ResizeFailed"
	// EventCheckUnknown: nothing is known of a check that a resized pod has to pass.
	EventCheckUnknown = "CheckUnknown"
	// EventReverted: the pods have gone back to the size from before.
	EventReverted = "Reverted"
	// EventPodRejected: a new pod was rejected by its kubelet.
	EventPodRejected = "PodRejected"
	// EventDeletedAfterResize: others have deleted a pod soon after its resize.
	EventDeletedAfterResize = "DeletedAfterResize"
	// EventNodeLost: a pod's node is gone, or has not been heard of.
	EventNodeLost = "NodeLost"
	// EventUnconfirmed: a pod counts as resized, though the status that its kubelet reports does not show it.
	EventUnconfirmed = "ResizeUnconfirmed"
	// EventResizedByOthers: somebody else, such as a vertical autoscaler, resizes the same pods.
	EventResizedByOthers = "ResizedByOthers"
	// EventCritical: a workload that the cluster may need to come up was opted in before that took a second word.
	EventCritical = "CriticalNamespace"
	// EventInvalidPolicy: an annotation is malformed.
	EventInvalidPolicy = "InvalidPolicy"
	// EventStepFailed: the next step of the rollout has failed several times.
	EventStepFailed = "StepFailed"
	// EventNotKept: a revision is not kept in the history, so that nobody can go
	// back to it.
	EventNotKept = "RevisionNotKept"
	// EventPodLeftBehind: a pod that was detached from a ReplicaSet which does not exist any more is owned by nothing.
	EventPodLeftBehind = "PodLeftBehind"
	// EventHandedOver: the rest of the rollout is the built-in controller's.
	EventHandedOver = "HandedOver"
	// EventComplete: the rollout is complete.
	EventComplete = "RolloutComplete"
)

// Cause is the kind of reason for a restart.
type Cause string

// The causes.
const (
	// CauseTemplate: the template differs in more than the size.
	CauseTemplate Cause = "template"
	// CausePolicy: the policy of what changes is RestartOnly.
	CausePolicy Cause = "policy"
	// CauseAction: the action is Restart.
	CauseAction Cause = "action"
	// CauseUnresizable: something known before any request stands in the way of a resize.
	CauseUnresizable Cause = "unresizable"
	// CauseInfeasible: the node can never hold the new size.
	CauseInfeasible Cause = "infeasible"
	// CauseDeferred: the node had no room until the deadline.
	CauseDeferred Cause = "deferred"
	// CauseError: the kubelet could not carry the resize out until the deadline.
	CauseError Cause = "error"
	// CauseUnavailable: the resize would take the pod down, and none may be.
	CauseUnavailable Cause = "unavailable"
)

// Causes are all of them.
var Causes = []Cause{CauseTemplate, CausePolicy, CauseAction, CauseUnresizable, CauseInfeasible, CauseDeferred, CauseError, CauseUnavailable}

// causeOf is that of a restart after a resize has come to this state.
var causeOf = map[resize.State]Cause{
	resize.Unresizable: CauseUnresizable, resize.Infeasible: CauseInfeasible,
	resize.DeferredTooLong: CauseDeferred, resize.FailingTooLong: CauseError, resize.Disruptive: CauseUnavailable,
}
