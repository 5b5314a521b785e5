package policy

import "time"

// Defaults are what flags say where a workload says nothing.
type Defaults struct {
	// DeferredTimeout is how long a pod may be Deferred before that counts as final.
	DeferredTimeout time.Duration
	// ErrorTimeout is how long a pod's resize may fail before that counts as final.
	ErrorTimeout time.Duration
	// ResizePolicy of a changed resource.
	ResizePolicy Policy
}

// Standard are the defaults of the flags.
var Standard = Defaults{DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, ResizePolicy: LiveResizeable}
