// Package api holds the names that users, the admission policies in deploy/ and
// the controller share.
package api

const (
	// EnabledLabel opts a workload in with the value "true".
	EnabledLabel = "inplace-rollout.io/enabled"

	// InstalledLabel is on the namespaces, with the value "true", in which the admission
	// policies apply where only some have a controller. Where one looks after the whole
	// cluster it means nothing.
	InstalledLabel = "inplace-rollout.io/installed"

	// HoldAnnotation is on a workload exactly while its rollout is held. Its value
	// is what the user wants of the field that holds it: a StatefulSet's partition, or
	// whether a Deployment is paused. The Deployment controller copies it to the
	// Deployment's new ReplicaSet, where it means nothing else than that.
	HoldAnnotation = "inplace-rollout.io/hold"

	// PartitionAnnotation asks the admission policy to set a held StatefulSet's
	// partition to its value. Only the controller's request counts, and it is never
	// stored: a value set by admission has no owner, so nobody's server-side apply
	// conflicts with it.
	PartitionAnnotation = "inplace-rollout.io/partition"

	// AdoptedAnnotation is on a ReplicaSet that has got the Deployment's template from
	// us, until no pod is left in it that was made from another one and has not the new
	// size. Its value is, as JSON, the template that it had before, the annotations that go
	// with that, and the names of the pods that have to be restarted.
	AdoptedAnnotation = "inplace-rollout.io/adopted"

	// DetachedLabel is on a pod that cannot be resized and is evicted as soon as
	// another one is available in its place. Its value is the UID of the ReplicaSet that
	// it was taken out of; the Deployment owns it meanwhile.
	DetachedLabel = "inplace-rollout.io/detached-from"

	// ResizePolicyAnnotation says which changed resources may be resized live
	// (resourceResizePolicy of the 2017 proposal).
	ResizePolicyAnnotation = "inplace-rollout.io/resource-resize-policy"

	// ResizeActionAnnotation says what to do with an edit (resourceResizeAction of the
	// 2017 proposal).
	ResizeActionAnnotation = "inplace-rollout.io/resource-resize-action"

	// DeferredTimeoutAnnotation overrides the flag --deferred-timeout.
	DeferredTimeoutAnnotation = "inplace-rollout.io/deferred-timeout"

	// InForceAnnotation keeps what action and policy said when the template was
	// edited, as `action;policy`: a later change of theirs applies from the next edit.
	// The admission policy writes it, and nobody else can.
	InForceAnnotation = "inplace-rollout.io/in-force"

	// EditAnnotation names the last edit of a Deployment's template. The admission policy
	// writes it. ReplicaSets have copies of it, so that an object that comes in with the
	// name of another edit is known for one that `kubectl rollout undo` has made.
	EditAnnotation = "inplace-rollout.io/edit"

	// RetryAnnotation has a rollout tried again whenever it gets a new value: any word, such
	// as the time, or that and an action, as `word;action`, which the admission policy puts
	// in force for the rest of the rollout.
	RetryAnnotation = "inplace-rollout.io/retry"

	// ConditionComplete is the type of the status condition that says whether
	// everything that the user lets move has moved.
	ConditionComplete = "inplace-rollout.io/Complete"

	// FieldManager names the controller in managedFields.
	FieldManager = "inplace-rollout"

	// ReleaseManager asks the admission policies to let go of the workload that is written
	// by this field manager. It is for people, when the controller is gone.
	ReleaseManager = "inplace-rollout-release"
)
