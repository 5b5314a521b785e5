package policy

import "time"

// Defaults are what flags say where a workload says nothing.
type Defaults struct {
	// DeferredTimeout is how long a pod may be Deferred before that counts as final.
	DeferredTimeout time.Duration
	// ErrorTimeout is how long a pod's resize may fail before that counts as final.
	ErrorTimeout time.Duration
	// BoosterTimeout is how long a startup booster is expected to put back the size from before an edit: from when
	// the pod is well with the new one, or the rollout is over; 0 expects it of none.
	BoosterTimeout time.Duration
	// NotReadyTimeout is how long a pod of a guarded rollout may be not Ready since its resize before it has failed. A
	// Deployment's progressDeadlineSeconds counts before it, and [Settings.NotReadyTimeout] before both.
	NotReadyTimeout time.Duration
	// ResizePolicy of a changed resource.
	ResizePolicy Policy
}

// Standard are the defaults of the flags.
var Standard = Defaults{DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, BoosterTimeout: 5 * time.Minute, NotReadyTimeout: 10 * time.Minute, ResizePolicy: LiveResizeable}
