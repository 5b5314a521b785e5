package policy

import (
	"fmt"
	"strings"
	"time"
)

// Defaults are what flags say where a workload says nothing.
type Defaults struct {
	// DeferredTimeout is how long a pod may be Deferred before that counts as final.
	DeferredTimeout time.Duration
	// ErrorTimeout is how long a pod's resize may fail before that counts as final.
	ErrorTimeout time.Duration
	// BoosterTimeout is how long a startup booster is expected to put back the size from before an edit: from when
	// the pod is well with the new one, or the rollout is over; 0 expects it of none.
	BoosterTimeout time.Duration
	// NotReadyTimeout is how long a pod of a guarded rollout may be not Ready at its new size before it has failed. A
	// Deployment's progressDeadlineSeconds counts before it, and [Settings.NotReadyTimeout] before both.
	NotReadyTimeout time.Duration
	// ResizePolicy of a changed resource.
	ResizePolicy Policy
	// UnknownChecksPass: a check without a result counts as passed in the end, and holds no rollout up.
	UnknownChecksPass bool
}

// Standard are the defaults of the flags.
var Standard = Defaults{DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, BoosterTimeout: 5 * time.Minute, NotReadyTimeout: 10 * time.Minute, ResizePolicy: LiveResizeable}

// String says them as flags have them, with commas in between.
func (d Defaults) String() string {
	said := fmt.Sprintf("deferred-timeout=%s,error-timeout=%s,booster-timeout=%s,not-ready-timeout=%s,default-resource-resize-policy=%s",
		d.DeferredTimeout, d.ErrorTimeout, d.BoosterTimeout, d.NotReadyTimeout, d.ResizePolicy)
	if d.UnknownChecksPass {
		said += "," + unknownChecksPass
	}
	return said
}

const unknownChecksPass = "on-unknown-check=Pass"

// ReadDefaults reads what String says. What a controller of another version does not say, or says in another way, is as in [Standard].
func ReadDefaults(said string) Defaults {
	d := Standard
	timeouts := map[string]*time.Duration{
		"deferred-timeout": &d.DeferredTimeout, "error-timeout": &d.ErrorTimeout, "booster-timeout": &d.BoosterTimeout, "not-ready-timeout": &d.NotReadyTimeout,
	}
	for flag := range strings.SplitSeq(said, ",") {
		d.UnknownChecksPass = d.UnknownChecksPass || flag == unknownChecksPass
		name, value, _ := strings.Cut(flag, "=")
		if p := Policy(value); name == "default-resource-resize-policy" && (p == LiveResizeable || p == RestartOnly) {
			d.ResizePolicy = p
		}
		if timeout, err := time.ParseDuration(value); err == nil && timeouts[name] != nil {
			*timeouts[name] = timeout
		}
	}
	return d
}
