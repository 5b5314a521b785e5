package policy

import "time"

// Defaults are what flags say where a workload says nothing.
type Defaults struct {
	// DeferredTimeout is how long a pod may be Deferred before that counts as final.
	DeferredTimeout time.Duration
	// ErrorTimeout is how long a pod's resize may fail before that counts as final.
	ErrorTimeout time.Duration
	// BoosterTimeout is how long a pod that has its size, and carries the mark of a startup booster, is expected to
	// be put back by it; 0 expects it of none.
	BoosterTimeout time.Duration
	// ResizePolicy of a changed resource.
	ResizePolicy Policy
}

// Standard are the defaults of the flags.
var Standard = Defaults{DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, BoosterTimeout: 5 * time.Minute, ResizePolicy: LiveResizeable}
