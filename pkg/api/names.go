// Package api holds the names that users, the admission policies in deploy/ and
// the controller share.
package api

const (
	// EnabledLabel opts a workload in if its value is "true".
	EnabledLabel = "inplace-rollout.io/enabled"

	// InstalledLabel is "true" on the namespaces in which the admission policies apply, where
	// only some namespaces have a controller. Where one controller looks after the whole
	// cluster, the label means nothing.
	InstalledLabel = "inplace-rollout.io/installed"

	// HoldAnnotation is on a workload exactly while its rollout is held. Its value is what
	// the user wants of the field that holds it: a StatefulSet's partition, whether a
	// Deployment is paused, or the type of a DaemonSet's update strategy. "OnDelete" on a StatefulSet
	// of that strategy is the whole hold: nothing of its spec is another. The Deployment
	// controller copies it to the Deployment's new ReplicaSet, where it means nothing.
	HoldAnnotation = "inplace-rollout.io/hold"

	// PartitionAnnotation asks the admission policy to set the partition of a held
	// StatefulSet to its value. Only the controller's request counts, and it is never stored.
	// A value that admission has set has no owner, so nobody's server-side apply conflicts
	// with it.
	PartitionAnnotation = "inplace-rollout.io/partition"

	// AdoptedAnnotation is on a ReplicaSet that has got the Deployment's template from us. It
	// stays until each pod of the ReplicaSet has the new size, or was made from the new
	// template. Its value is JSON: the template that the ReplicaSet had before, the
	// annotations that go with that, and the names of the pods that have to be restarted.
	AdoptedAnnotation = "inplace-rollout.io/adopted"

	// DetachedLabel is on a pod that cannot be resized and is evicted as soon as
	// another one is available in its place. Its value is the UID of the ReplicaSet that
	// it was taken out of; the Deployment owns it meanwhile.
	DetachedLabel = "inplace-rollout.io/detached-from"

	// AllowCriticalAnnotation is "true" on a workload that may be opted in though the cluster may
	// need it to come up. Admission wants it in [CriticalNamespace], and where an installation
	// says so.
	AllowCriticalAnnotation = "inplace-rollout.io/allow-critical"

	// CriticalNamespace is always one of those.
	CriticalNamespace = "kube-system"

	// ResizePolicyAnnotation says which changed resources may be resized live
	// (resourceResizePolicy of the 2017 proposal).
	ResizePolicyAnnotation = "inplace-rollout.io/resource-resize-policy"

	// ResizeActionAnnotation says what to do with an edit (resourceResizeAction of the
	// 2017 proposal).
	ResizeActionAnnotation = "inplace-rollout.io/resource-resize-action"

	// DeferredTimeoutAnnotation overrides the flag --deferred-timeout.
	DeferredTimeoutAnnotation = "inplace-rollout.io/deferred-timeout"

	// NotReadyTimeoutAnnotation overrides the flag --not-ready-timeout, and a Deployment's progressDeadlineSeconds in its place.
	NotReadyTimeoutAnnotation = "inplace-rollout.io/not-ready-timeout"

	// InForceAnnotation has what was said of the rollout when the template was edited, as
	// `action;policy;canary;canary-duration;on-failure;checks`, where that has changed since: it applies from the next edit. The
	// admission policy writes it, and nobody else can.
	InForceAnnotation = "inplace-rollout.io/in-force"

	// InForceStrategyAnnotation is on a held Deployment whose strategy has been changed to Recreate since its edit: it has
	// what was there before, as `maxSurge;maxUnavailable`. That counts until the hold ends or the template is edited again. The
	// admission policy writes it, and nobody else can.
	InForceStrategyAnnotation = "inplace-rollout.io/in-force-strategy"

	// EditAnnotation names the last edit of a Deployment's template. The admission policy
	// writes it. ReplicaSets have copies of it, so a write that brings the name of another
	// edit is known to come from `kubectl rollout undo`.
	EditAnnotation = "inplace-rollout.io/edit"

	// SaidOfAnnotation has for machines what our conditions say to people: of which template a StatefulSet or DaemonSet is Complete, or
	// left to its controller, and which edit of a Deployment exceeds its progress deadline. See rollout.Spoken. It is written together with
	// the conditions. Complete needs none of a Deployment: its controller would copy the annotation to each new ReplicaSet. But where the
	// strategy is Recreate, letting go of the hold says that its edit is over, until the status shows that, also if it is opted out.
	SaidOfAnnotation = "inplace-rollout.io/said-of"

	// HandedOverAnnotation is on a StatefulSet whose user keeps pods back that differ in more than their size from the newest revision,
	// which it names: when the partition is lowered, they are the StatefulSet controller's. The controller writes it when it lets go of
	// the hold, and the admission policy takes it away with the next edit, or when the user keeps no pods back any more.
	HandedOverAnnotation = "inplace-rollout.io/handed-over"

	// RetryAnnotation has a rollout tried again whenever its value changes. The value is any
	// word, such as the time, or `word;action`: then the admission policy puts the action in
	// force for the rest of the rollout. A guarded rollout that was stopped is tried again only
	// if the word is its name, `of@since` of its record: a value from before means another one.
	RetryAnnotation = "inplace-rollout.io/retry"

	// CanaryAnnotation says how many pods get a new size first, as `1` or `10%`: the others wait until these have been well with
	// it for [CanaryDurationAnnotation].
	CanaryAnnotation = "inplace-rollout.io/canary"

	// CanaryDurationAnnotation is that time, as `10m`, or `manual`: then they wait for [PromoteAnnotation].
	CanaryDurationAnnotation = "inplace-rollout.io/canary-duration"

	// OnFailureAnnotation says what happens when a pod fails with its new size: `Hold` or `Revert`.
	OnFailureAnnotation = "inplace-rollout.io/on-failure"

	// ChecksAnnotation names the checks that a resized pod has to pass. Beside the heartbeat it names all that can be, in alphabetical
	// order and with commas in between; it is not there while they are unknown.
	ChecksAnnotation = "inplace-rollout.io/checks"

	// DefaultsAnnotation is beside the heartbeat. It says what flags of the controller say where workloads say nothing, so that
	// plans can tell what becomes of an edit.
	DefaultsAnnotation = "inplace-rollout.io/defaults"

	// PromoteAnnotation names the rollout whose canary is over, as the condition calls it. While a rollout is held, or
	// recorded, only the controller removes this and [RetryAnnotation].
	PromoteAnnotation = "inplace-rollout.io/promote"

	// RolloutAnnotation is the record of a guarded rollout, as JSON: what has happened since the edit. It is there while one is
	// under way or stopped. The admission policy begins it in the edit itself, where there is to be a canary; else the controller
	// writes it, and nobody else can.
	RolloutAnnotation = "inplace-rollout.io/rollout"

	// NodeResourcesAnnotation has the sizes of a DaemonSet's pods by class of node: a JSON list
	// of {"nodeSelector": {label: value}, "containers": {name: {"requests": {…}, "limits": {…}}}}.
	// The first whose labels the node has counts. Where there is none, the template's size does.
	NodeResourcesAnnotation = "inplace-rollout.io/node-resources"

	// InitialResourcesLabel opts a namespace or a pod into initial resources if its value is
	// "enabled", or "annotate": then it is only said what would be set. What a pod says counts
	// before what its namespace says. As an annotation of a pod it says what is set: "always",
	// "if-not-set" or "never".
	InitialResourcesLabel = "inplace-rollout.io/initial-resources"

	// InitialResourcesEnabled is the value of that label which has requests set.
	InitialResourcesEnabled = "enabled"

	// InitialResourcesAnnotate is the value of that label which only has it said what they would be.
	InitialResourcesAnnotate = "annotate"

	// InitialResourcesNever is the value of that annotation for a pod that is left alone.
	InitialResourcesNever = "never"

	// RoomAnnotation of a namespace says whether the room that nodes have bounds what is estimated
	// for its pods.
	RoomAnnotation = "inplace-rollout.io/initial-resources-room"

	// RoomAlways is the value of that annotation with which it does.
	RoomAlways = "always"

	// RoomNever is the value with which it does not.
	RoomNever = "never"

	// EstimateAnnotation says of a pod's containers what was estimated for them, and from what.
	// The admission policy writes it, and the estimator where it has resized the pod.
	EstimateAnnotation = "inplace-rollout.io/initial-resources-estimate"

	// EstimatesName names the ConfigMap in which the estimator publishes the estimates for the
	// pods of a namespace. The admission policy finds it by [ManagedByLabel]: of a name that is
	// not there, API servers from 1.37 on would ask for each pod anew. There is one for each
	// namespace, and it has all that its pods may get, estimates of the whole cluster included:
	// API servers apply the bindings of a policy in no order, so none could come after another.
	EstimatesName = "inplace-rollout-initial-resources"

	// ManagedByLabel is on that ConfigMap.
	ManagedByLabel = "app.kubernetes.io/managed-by"

	// ManagedBy is its value there.
	ManagedBy = "inplace-rollout"

	// EstimatorFieldManager names the estimator in managedFields.
	EstimatorFieldManager = "inplace-rollout-estimator"

	// ConditionComplete is the type of the status condition that says whether
	// everything that the user lets move has moved.
	ConditionComplete = "inplace-rollout.io/Complete"

	// ConditionObserved is the type of the status condition that says which generation of a held
	// workload the built-in controller has observed. The status itself says an older
	// one meanwhile, so that whoever waits for the workload goes on waiting. The admission policies
	// write it, and take it away when the hold has ended.
	ConditionObserved = "inplace-rollout.io/Observed"

	// FieldManager names the controller in managedFields.
	FieldManager = "inplace-rollout"
	// RetryFieldManager names the command retry in managedFields.
	RetryFieldManager = FieldManager + "-retry"

	// DryRunName is that of workloads in the controller's own namespace that are created by dry runs only, to see whether
	// they would be held.
	DryRunName = "inplace-rollout-dry-run"

	// EvaluatedAnnotation is on what such a dry run returns where a webhook holds: the digest of the policies that it evaluates.
	// It is never stored.
	EvaluatedAnnotation = "inplace-rollout.io/evaluated-policies"

	// AttendedAnnotation asks in a dry run whether the policy that holds sees a controller: its value is "true" or "false" then. It is
	// never stored.
	AttendedAnnotation = "inplace-rollout.io/attended"

	// HeartbeatName is that of a ServiceAccount in the controller's namespace, which has the heartbeat and what else the controller alone
	// knows and admission needs: it is the parameter of the policies. Nobody runs as it, and it has no rights. The controller makes it.
	// For one version, the controller's own ServiceAccount has the heartbeat, too.
	HeartbeatName = "inplace-rollout-heartbeat"

	// ReadyUntilAnnotation is the heartbeat: it is there while a controller is Ready. Its value
	// is until when that counts as there, by the API server's clock, and is written anew every few seconds.
	ReadyUntilAnnotation = "inplace-rollout.io/ready-until"

	// WhenAbsentAnnotation is beside the heartbeat, with the value [Hold] where edits are to be held also
	// while no controller is there.
	WhenAbsentAnnotation = "inplace-rollout.io/when-absent"

	// LeftOutAnnotation is beside the heartbeat. It names the namespaces, with commas in between, that the namespaceSelector of the
	// webhooks leaves out besides those of ours: nothing is held there.
	LeftOutAnnotation = "inplace-rollout.io/left-out-namespaces"

	// Hold has edits held while no controller is there.
	Hold = "Hold"

	// LetGo leaves them to the built-in controllers.
	LetGo = "LetGo"

	// WishAnnotation is on a workload between the two askings of the policy that holds it, with the version that is
	// written over: what the workload says then of partition, paused or strategy is what its user wants. It is never stored.
	WishAnnotation = "inplace-rollout.io/wish"

	// NotHeldAnnotation is on a workload whose last write was not held because no controller was there. Its value is the generation
	// that this write made. The admission policy writes it, and takes it away with the next write. So does the controller, with Complete.
	NotHeldAnnotation = "inplace-rollout.io/not-held"

	// HeartbeatManager is the field manager of the heartbeat.
	HeartbeatManager = "inplace-rollout-heartbeat"

	// ReleaseManager is a field manager: the admission policies let go of a workload that it
	// writes. It is for people, when the controller is gone.
	ReleaseManager = "inplace-rollout-release"
)
