// Package api holds the names that users, the admission policies in deploy/ and
// the controller share.
package api

const (
	// EnabledLabel opts a workload in with the value "true".
	EnabledLabel = "inplace-rollout.io/enabled"

	// HoldAnnotation is on a workload exactly while its rollout is held. Its value
	// is what the user wants of the field that holds it: a StatefulSet's partition.
	HoldAnnotation = "inplace-rollout.io/hold"

	// PartitionAnnotation asks the admission policy to set a held StatefulSet's
	// partition to its value. Only the controller's request counts, and it is never
	// stored: a value set by admission has no owner, so nobody's server-side apply
	// conflicts with it.
	PartitionAnnotation = "inplace-rollout.io/partition"

	// ConditionComplete is the type of the status condition that says whether
	// everything that the user lets move has moved.
	ConditionComplete = "inplace-rollout.io/Complete"

	// FieldManager names the controller in managedFields.
	FieldManager = "inplace-rollout"
)
